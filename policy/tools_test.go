package policy_test

import (
	"testing"

	"github.com/jail-sandbox/jail/policy"
)

func TestToolRules(t *testing.T) {
	p := policy.Policy{
		Tools: policy.Tools{
			Allow:   policy.MustGlobs("core-utils/*", "python/python3", "*/version"),
			Modules: policy.MustGlobs("/opt/wasm/**", "**/*.safe.wasm"),
			Native:  policy.MustGlobs("/usr/bin/git", "/usr/lib/git-core/*"),
		},
		Syscalls: policy.TopSyscalls(),
	}
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	eff := resolve(t, policy.Layer{Name: "profile", Policy: p})
	for q, want := range map[policy.Question]bool{
		policy.Tool{Bundle: "core-utils", Command: "grep"}: true,
		// The pattern is a star.
		policy.Tool{Bundle: "core-utils", Command: "Grep"}:    true,
		policy.Tool{Bundle: "Core-utils", Command: "grep"}:    false,
		policy.Tool{Bundle: "core-utils", Command: ""}:        false,
		policy.Tool{Bundle: "core-utils", Command: "a/b"}:     false,
		policy.Tool{Bundle: "core-utils", Command: ".."}:      false,
		policy.Tool{Bundle: "core-utils", Command: "a\x00"}:   false,
		policy.Tool{Bundle: "core-utils/x", Command: "grep"}:  false,
		policy.Tool{Bundle: "python", Command: "python3"}:     true,
		policy.Tool{Bundle: "python", Command: "python"}:      false,
		policy.Tool{Bundle: "any", Command: "version"}:        true,
		policy.Tool{Bundle: ".", Command: "version"}:          false,
		policy.Module{Path: "/opt/wasm/a.wasm"}:               true,
		policy.Module{Path: "/opt/wasm/x/y"}:                  true,
		policy.Module{Path: "/opt/wasmer/a.wasm"}:             false,
		policy.Module{Path: "/home/u/a.safe.wasm"}:            true,
		policy.Module{Path: "/a.safe.wasm"}:                   true,
		policy.Module{Path: "/home/u/a.wasm"}:                 false,
		policy.Module{Path: "/home/u/a.safe.wasm/b"}:          false,
		policy.Module{Path: "a.safe.wasm"}:                    false,
		policy.Module{Path: "/opt/wasm/../../etc/x.wasm"}:     false,
		policy.Module{Path: "/opt/wasm/"}:                     false,
		policy.Module{Path: ""}:                               false,
		policy.Native{Path: "/usr/bin/git"}:                   true,
		policy.Native{Path: "/usr/bin/gits"}:                  false,
		policy.Native{Path: "/usr/lib/git-core/git-log"}:      true,
		policy.Native{Path: "/usr/lib/git-core/x/y"}:          false,
		policy.Native{Path: "/usr/lib/git-core/../../bin/sh"}: false,
		policy.Native{Path: "usr/bin/git"}:                    false,
	} {
		if d := eff.Decide(q); d.Allowed != want {
			t.Errorf("%s: %+v", q, d)
		}
	}
	if p.Tools.Empty() || !(policy.Tools{}).Empty() ||
		(policy.Tools{Native: policy.MustGlobs("/a")}).Empty() {
		t.Error("Empty is wrong")
	}
}

// The last layer that narrows a rule is the one whose rule it is.
func TestToolLayers(t *testing.T) {
	layer := func(name string, patterns ...string) policy.Layer {
		p := policy.Top()
		p.Tools.Allow = policy.MustGlobs(patterns...)
		return policy.Layer{Name: name, Source: name + ".toml", Policy: p}
	}
	grep := policy.Tool{Bundle: "core-utils", Command: "grep"}
	for _, tt := range []struct {
		ceiling, profile, request []string
		allowed                   bool
		layer, rule               string
	}{
		{[]string{"**"}, []string{"core-utils/*"}, []string{"**"}, true, "profile",
			`tools.allow "core-utils/*"`},
		{[]string{"core-utils/*"}, []string{"core-utils/*"}, []string{"**"}, true, "ceiling",
			`tools.allow "core-utils/*"`},
		{[]string{"**"}, []string{"core-utils/*"}, []string{"*/grep"}, true, "request",
			`tools.allow "core-utils/grep"`},
		{[]string{"python/*"}, []string{"**"}, []string{"**"}, false, "ceiling",
			`tools.allow = ["python/*"] does not hold core-utils/grep`},
		{[]string{"**"}, nil, []string{"**"}, false, "profile",
			`tools.allow = [] does not hold core-utils/grep`},
		{[]string{"**"}, []string{"**"}, []string{"*/sed"}, false, "request",
			`tools.allow = ["*/sed"] does not hold core-utils/grep`},
		{nil, nil, nil, false, "ceiling", `tools.allow = [] does not hold core-utils/grep`},
	} {
		d := resolve(t, layer("ceiling", tt.ceiling...), layer("profile", tt.profile...),
			layer("request", tt.request...)).Decide(grep)
		if d.Allowed != tt.allowed || d.Layer != tt.layer || d.Rule != tt.rule ||
			d.Source != tt.layer+".toml" {
			t.Errorf("%v ∧ %v ∧ %v: %+v", tt.ceiling, tt.profile, tt.request, d)
		}
	}
}
