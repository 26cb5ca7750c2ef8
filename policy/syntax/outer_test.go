package syntax_test

import (
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
)

func TestOuter(t *testing.T) {
	for text, want := range map[string]policy.Outer{
		`layer = "runsc"`:             policy.OuterOf("runsc"),
		`layer = "none"`:              policy.OuterOf("none"),
		`allow = ["runc", "none"]`:    policy.OuterOf("none", "runc"),
		`layer = "bwrap"`:             policy.OuterOf("bwrap"),
		`allow = []`:                  policy.OuterOf(),
		"# nothing is said of layers": policy.KeepingOuter(),
	} {
		f := parse(t, syntax.Ceiling, "policy = 1\n[outer]\n"+text)
		if f.Policy.Outer.String() != want.String() {
			t.Errorf("%s reads as %s, want %s", text, f.Policy.Outer, want)
		}
	}
	for text, want := range map[string]string{
		`layer = "gvisor"`:                     "no outer layer is called",
		`layer = ["runc"]`:                     "outer.layer",
		`allow = "runc"`:                       "outer.allow",
		"layer = \"runc\"\nallow = [\"runc\"]": "both layer and allow",
	} {
		_, err := syntax.Parse(syntax.Ceiling, "x.toml", []byte("policy = 1\n[outer]\n"+text), nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
