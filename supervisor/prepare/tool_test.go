package prepare

import (
	"testing"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/supervisor/bundle"
)

// What a bundle asks for takes away and never gives.
func TestNeedsOnlyNarrow(t *testing.T) {
	host := func(text string) policy.FetchRule {
		h, err := policy.ParseHost(text)
		if err != nil {
			t.Fatal(err)
		}
		rule := policy.TopFetchRule()
		rule.Host = h
		return rule
	}
	granted := policy.Top()
	granted.Fetch = granted.Fetch.Meet(policy.Fetch{Allow: []policy.FetchRule{host("a.example"),
		host("b.example")}, Limits: policy.TopFetchLimits(), Mode: policy.FetchReport})
	eff, err := policy.Resolve(policy.Layer{Name: "profile", Policy: granted})
	if err != nil {
		t.Fatal(err)
	}
	may := func(e policy.Effective, name string) bool {
		return e.Decide(policy.Connect{Host: name, Port: 443, Method: "GET", Path: "/"}).Allowed
	}
	for _, c := range []struct {
		needs *bundle.Needs
		want  map[string]bool
	}{
		{nil, map[string]bool{"a.example": true, "b.example": true, "c.example": false}},
		{&bundle.Needs{}, map[string]bool{"a.example": false, "b.example": false,
			"c.example": false}},
		{&bundle.Needs{Hosts: []string{"a.example", "c.example"}},
			map[string]bool{"a.example": true, "b.example": false, "c.example": false}},
		{&bundle.Needs{Hosts: []string{"*"}}, map[string]bool{"a.example": true, "b.example": true,
			"c.example": false}},
	} {
		got, err := narrowed(eff, "words", c.needs)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range c.want {
			if may(got, name) != want {
				t.Errorf("needs %+v: %s is allowed: %v, want %v", c.needs, name, !want, want)
			}
		}
	}
}

// A module that an operator installed may take longer to compile than one that anybody may name,
// and a large one longer than a small one.
func TestTimeToCompile(t *testing.T) {
	of := func(t *testing.T, installed bool, size int64) policy.Limits {
		t.Helper()
		file, err := syntax.Parse(syntax.Profile, "compile",
			[]byte(compilePolicyOf(Tool{installed: installed}, size, 0)), nil)
		if err != nil {
			t.Fatal(err)
		}
		return file.Policy.Limits
	}
	file, large, bundled := of(t, false, 100), of(t, false, 10<<20), of(t, true, 100)
	if file.CPUTime >= large.CPUTime || large.CPUTime >= bundled.CPUTime ||
		file.Memory != bundled.Memory {
		t.Errorf("a file has %+v, a large one %+v, an installed module %+v", file, large, bundled)
	}
}
