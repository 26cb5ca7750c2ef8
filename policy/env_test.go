package policy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/policy"
)

func TestEnvNames(t *testing.T) {
	for _, name := range []string{"A", "PATH", "_", "a_b", "A1", "npm_config_x", "A.B", "A-B"} {
		if err := policy.CheckEnvName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", "A=B", "=", "A B", "A\x00", "A\n", "é", "A/B", "A*", "A?",
		"A[", `A\`, strings.Repeat("A", 256)} {
		if policy.CheckEnvName(name) == nil {
			t.Errorf("%q is let through", name)
		}
	}
	if policy.CheckEnvValue("any = value\n\t\xff") != nil || policy.CheckEnvValue("\x00") == nil {
		t.Error("CheckEnvValue is wrong")
	}
}

func TestEnvGlobs(t *testing.T) {
	for _, text := range []string{"*", "A", "LC_*", "*_ALL", "A*B"} {
		if err := policy.FieldOf("env.pass").CheckGlob(policy.MustGlob(text)); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{"**", "a/b", "/A", "A=*", "A B"} {
		if policy.FieldOf("env.pass").CheckGlob(policy.MustGlob(text)) == nil {
			t.Errorf("%q is let through", text)
		}
	}
}

// What comes of one name, from each of the three reasons to have it and all of them.
func TestEnvPrecedence(t *testing.T) {
	for _, tt := range []struct {
		name             string
		env              policy.Env
		given, inherited string // "" for none
		want             string
		refused          bool
	}{
		{"nothing", policy.Env{}, "", "", "", false},
		{"the caller's own is not taken over", policy.Env{}, "", "caller", "", false},
		{"nor what is given", policy.Env{}, "given", "", "", true},
		{"a constant", policy.Env{Set: vars("set")}, "", "caller", "set", false},
		{"taken over", policy.Env{Pass: policy.MustGlobs("NAME")}, "", "caller", "caller", false},
		{"nothing to take over", policy.Env{Pass: policy.MustGlobs("NAME")}, "", "", "", false},
		{"taken over before a constant", policy.Env{Set: vars("set"), Pass: policy.MustGlobs("N*")},
			"", "caller", "caller", false},
		{"a constant where there is nothing to take over",
			policy.Env{Set: vars("set"), Pass: policy.MustGlobs("N*")}, "", "", "set", false},
		{"given", policy.Env{Allow: policy.MustGlobs("*")}, "given", "caller", "given", false},
		{"given before all", policy.Env{Set: vars("set"), Pass: policy.MustGlobs("*"),
			Allow: policy.MustGlobs("*")}, "given", "caller", "given", false},
		{"refused, and so as if not given",
			policy.Env{Set: vars("set"), Pass: policy.MustGlobs("*")}, "given", "", "set", true},
	} {
		given, inherited := map[string]string{}, map[string]string{"OTHER": "x"}
		if tt.given != "" {
			given["NAME"] = tt.given
		}
		if tt.inherited != "" {
			inherited["NAME"] = tt.inherited
		}
		environ, refused := tt.env.Environ(given, inherited)
		got := ""
		for _, e := range environ {
			if value, ok := strings.CutPrefix(e, "NAME="); ok {
				got = value
			}
		}
		if got != tt.want || slices.Contains(refused, "NAME") != tt.refused {
			t.Errorf("%s: NAME is %q, refused %q, want %q, %v", tt.name, got, refused, tt.want,
				tt.refused)
		}
	}
}

func vars(value string) policy.Vars { return policy.Vars{Values: map[string]string{"NAME": value}} }

// Any stands for every pair, and has none of its own to set.
func TestAnyVars(t *testing.T) {
	environ, refused := policy.TopEnv().Environ(nil, nil)
	if len(environ) != 0 || len(refused) != 0 {
		t.Errorf("the top sets %q, and refuses %q", environ, refused)
	}
	if got := (policy.Vars{Any: true}).Meet(vars("x")); got.Any || got.Values["NAME"] != "x" {
		t.Errorf("any ∧ NAME=x is %s", got)
	}
	if got := (policy.Vars{Any: true, Values: map[string]string{"A": "1"}}).Normal(); len(
		got.Values) != 0 {
		t.Errorf("any has %s", got)
	}
}
