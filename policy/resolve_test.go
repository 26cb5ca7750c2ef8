package policy_test

import (
	"testing"

	"github.com/jail-sandbox/jail/policy"
)

// What a layer says of a tool is met where that tool runs, alone or with others, and nowhere else.
func TestForTools(t *testing.T) {
	whole, part := policy.Top(), policy.Top()
	whole.Limits.PIDs, part.Limits.PIDs = 100, 10
	grep, err := policy.ParseGlob("b/grep")
	if err != nil {
		t.Fatal(err)
	}
	eff, err := policy.Resolve(policy.Layer{Name: "a", Policy: whole,
		Tools: []policy.ForTool{{Tool: grep, Policy: part}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		tools  []string
		pids   int64
		layers int
	}{{[]string{"b/grep"}, 10, 2}, {[]string{"b/sed", "b/grep"}, 10, 2}, {[]string{"b/sed"}, 100,
		1}, {nil, 100, 1}} {
		got := eff.For(c.tools...)
		if pids, n := got.Policy().Limits.PIDs, len(got.Layers()); pids != c.pids || n != c.layers {
			t.Errorf("for %q: %d processes by %d layers, want %d by %d", c.tools, pids, n, c.pids,
				c.layers)
		}
	}
}

// The host's ceiling is the first layer, if it has that name and narrows anything.
func TestCeilingOf(t *testing.T) {
	narrow := policy.Top()
	narrow.Limits.PIDs = 7
	for name, c := range map[string]struct {
		layers []policy.Layer
		want   bool
	}{
		"a ceiling": {[]policy.Layer{{Name: policy.CeilingLayer, Policy: narrow},
			{Name: "run", Policy: policy.Top()}}, true},
		"one that takes nothing": {[]policy.Layer{{Name: policy.CeilingLayer, Policy: policy.Top()},
			{Name: "run", Policy: narrow}}, false},
		"another first": {[]policy.Layer{{Name: "run", Policy: narrow},
			{Name: policy.CeilingLayer, Policy: narrow}}, false},
		"none": {[]policy.Layer{{Name: "run", Policy: narrow}}, false},
	} {
		eff, err := policy.Resolve(c.layers...)
		if err != nil {
			t.Fatal(err)
		}
		p, ok := eff.Ceiling()
		if ok != c.want || ok && p.Limits.PIDs != 7 {
			t.Errorf("%s: %v, %d", name, ok, p.Limits.PIDs)
		}
	}
	if _, ok := (policy.Effective{}).Ceiling(); ok {
		t.Error("nothing has a ceiling")
	}
}
