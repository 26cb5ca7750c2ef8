package session

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/prepare"
)

func TestChangedVariables(t *testing.T) {
	set, unset := changed([]string{"A=1", "B=2", "C=3", "PWD=/x", "LOCK=1"},
		[]string{"A=1", "B=3", "D=", "PWD=/y", "OLDPWD=/x", "SHLVL=1", "_=/bin/env", "nothing",
			"BASH_FUNC_f%%=() { :; }", "=x", "LOCKED=1", "A B=1"},
		policy.MustGlobs("A*", "B*", "C", "D", "PWD", "SHLVL"))
	if !maps.Equal(set, map[string]string{"B": "3", "D": ""}) || !slices.Equal(unset,
		[]string{"C"}) {
		t.Errorf("%v, %v", set, unset)
	}
}

func TestKeptIsBounded(t *testing.T) {
	k := prepare.Kept{Set: map[string]string{"A": string(make([]byte, maxKeptBytes-3))}}
	if !bounded(k) {
		t.Error("the most")
	}
	k.Set["B"] = ""
	if bounded(k) {
		t.Error("more bytes")
	}
	k = prepare.Kept{Unset: map[string]bool{}}
	for n := range maxKeptNames + 1 {
		k.Unset[fmt.Sprint("N", n)] = true
	}
	if bounded(k) {
		t.Error("more names")
	}
}

// A directory that a tool reports is kept only if later invocations can be told of it.
func TestKeptDirectory(t *testing.T) {
	for dir, want := range map[string]string{"/workspace": ".", "/workspace/a/b": "a/b",
		"/workspace/a/../b": "b"} {
		if rel, ok := below("/workspace", dir); !ok || rel != want {
			t.Errorf("%q: %q, %v", dir, rel, ok)
		}
	}
	for _, dir := range []string{"", "a", "/", "/tmp", "/workspace/..", "/workspaces", "/workspace/\xe9",
		"/workspace/a\x00b", "/workspace/\uFFFD", "/workspace/" + strings.Repeat("a", maxPath)} {
		if rel, ok := below("/workspace", dir); ok {
			t.Errorf("%.40q is kept as %.40q", dir, rel)
		}
	}
}
