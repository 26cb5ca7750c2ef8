package policy_test

import (
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/policy"
)

// TestCommitTable is the gate of a commit: what is taken, what waits for a yes, what
// nobody can commit.
func TestCommitTable(t *testing.T) {
	const no, ask, yes = "no", "ask", "yes"
	shadow := func(rule policy.CommitRule) policy.Workspace {
		return policy.Workspace{Access: policy.WorkspaceShadow, Commit: rule,
			Hide: []string{".env"}, Protect: []string{"Makefile", "/deploy"}}
	}
	for _, tt := range []struct {
		path               string
		never, asked, auto string
	}{
		{"main.go", no, ask, yes},
		{"a/b/c.txt", no, ask, yes},
		{"deploy/x", no, ask, ask},
		{"a/deploy/x", no, ask, yes},
		{"Deploy/x", no, ask, ask},
		{"Makefile", no, ask, ask},
		{"sub/makefile", no, ask, ask},
		{".git/hooks/pre-commit", no, ask, ask},
		{".git/config", no, ask, ask},
		{".git", no, ask, ask},
		{".git/index", no, ask, yes},
		{"sub/.GIT/config", no, ask, ask},
		{".envrc", no, ask, ask},
		{".env", no, no, no},
		{"a/.env", no, no, no},
		{"", no, no, no},
		{".", no, no, no},
		{"..", no, no, no},
		{"../x", no, no, no},
		{"a/../../x", no, no, no},
		{"/etc/passwd", no, no, no},
		{"a//b", no, no, no},
		{"a/", no, no, no},
		{"a\x00b", no, no, no},
	} {
		for rule, want := range map[policy.CommitRule]string{policy.CommitNever: tt.never,
			policy.CommitAsk: tt.asked, policy.CommitAuto: tt.auto} {
			eff := resolve(t,
				policy.Layer{Name: "profile", Policy: policy.Policy{Workspace: shadow(rule)}})
			d := eff.Decide(policy.Commit{Path: tt.path})
			got := no
			switch {
			case d.Allowed && d.Ask:
				got = "both"
			case d.Allowed:
				got = yes
			case d.Ask:
				got = ask
			}
			if got != want || d.Rule == "" {
				t.Errorf("commit %s of %q: %s (%s), want %s", rule, tt.path, got, d.Rule, want)
			}
		}
	}
}

// The layer of an ask is the one that made it one, and a no comes before it.
func TestCommitLayers(t *testing.T) {
	layer := func(name string, rule policy.CommitRule, protect ...string) policy.Layer {
		p := policy.Top()
		p.Workspace.Commit, p.Workspace.Protect = rule, protect
		return policy.Layer{Name: name, Policy: p}
	}
	for _, tt := range []struct {
		layers []policy.Layer
		ask    bool
		layer  string
		rule   string
	}{
		{[]policy.Layer{layer("ceiling", policy.CommitAuto), layer("profile", policy.CommitAsk)},
			true, "profile", "workspace.commit"},
		{[]policy.Layer{layer("ceiling", policy.CommitAsk), layer("profile", policy.CommitAuto)},
			true, "ceiling", "workspace.commit"},
		{[]policy.Layer{layer("ceiling", policy.CommitAuto),
			layer("profile", policy.CommitAuto, "a")}, true, "profile", `protected "a"`},
		{[]policy.Layer{layer("ceiling", policy.CommitAsk), layer("profile", policy.CommitNever)},
			false, "profile", "never"},
		{[]policy.Layer{layer("ceiling", policy.CommitNever),
			layer("profile", policy.CommitAsk, "a")}, false, "ceiling", "never"},
	} {
		d := resolve(t, tt.layers...).Decide(policy.Commit{Path: "a"})
		if d.Allowed || d.Ask != tt.ask || d.Layer != tt.layer || !strings.Contains(d.Rule,
			tt.rule) {
			t.Errorf("%+v, want ask %v of %s with %s", d, tt.ask, tt.layer, tt.rule)
		}
	}
}
