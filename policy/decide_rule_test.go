package policy_test

import (
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/policy"
)

// The layer that refuses says why in its own words, unless it would not refuse by itself.
func TestDecideSaysWhoseRule(t *testing.T) {
	tools := func(texts ...string) policy.Policy {
		p := policy.Top()
		p.Tools.Allow = policy.MustGlobs(texts...)
		return p
	}
	keyed := func(name string) policy.Policy {
		p := policy.Top()
		p.Fetch.Allow = []policy.FetchRule{policy.TopFetchRule(), policy.TopFetchRule()}
		p.Fetch.Allow[0].Credential, p.Fetch.Allow[1].Credential = "", name
		p.Fetch.Allow[1].Methods = policy.MustGlobs("*")
		return p
	}
	commit := func(rule policy.CommitRule, protect ...string) policy.Policy {
		p := policy.Top()
		p.Workspace.Commit, p.Workspace.Protect = rule, protect
		return p
	}
	grep, get := policy.Tool{Bundle: "core-utils", Command: "grep"},
		policy.Connect{Host: "a.example", Port: 443, Method: "GET", Path: "/"}
	for name, tt := range map[string]struct {
		a, b        policy.Policy
		q           policy.Question
		layer, rule string
		ask         bool
	}{
		"the second alone": {tools("core-utils/grep"), tools("core-utils/sed"), grep, "b",
			`tools.allow = ["core-utils/sed"] does not hold core-utils/grep`, false},
		"the first": {tools("core-utils/sed"), tools("core-utils/grep"), grep, "a",
			`tools.allow = ["core-utils/sed"] does not hold core-utils/grep`, false},
		"neither by itself": {commit(policy.CommitAuto), commit(policy.CommitAsk),
			policy.Commit{Path: "x"}, "b", `workspace.commit = "ask"`, true},
		"held by the second": {commit(policy.CommitAuto, "y"), commit(policy.CommitAuto, "x"),
			policy.Commit{Path: "x"}, "b", `protected "x"`, true},
		"asked first, then never": {commit(policy.CommitAsk), commit(policy.CommitNever),
			policy.Commit{Path: "x"}, "b", `workspace.commit = "never"`, false},
		"never first, then asked": {commit(policy.CommitNever), commit(policy.CommitAsk),
			policy.Commit{Path: "x"}, "a", `workspace.commit = "never"`, false},
		"asked by both": {commit(policy.CommitAsk), commit(policy.CommitAuto, "x"),
			policy.Commit{Path: "x"}, "a", `workspace.commit = "ask"`, true},
		"granted": {keyed("k"), policy.Top(), get, "a", `fetch.allow`, false},
	} {
		d := resolve(t, policy.Layer{Name: "a", Policy: tt.a},
			policy.Layer{Name: "b", Policy: tt.b}).Decide(tt.q)
		if d.Layer != tt.layer || !strings.Contains(d.Rule, tt.rule) || d.Ask != tt.ask {
			t.Errorf("%s: %+v, want layer %s, %q, %v", name, d, tt.layer, tt.rule, tt.ask)
		}
	}
}
