package review

import (
	"testing"
)

func TestCommitPath(t *testing.T) {
	for arg, want := range map[string]string{"a": "a", "./a/": "a", "a//b/.": "a/b", ".": "",
		"./": "", `x\x1b`: `x\x1b`, "\xff": `\xff`} {
		if got := commitPath(arg); got != want {
			t.Errorf("%q is %q, want %q", arg, got, want)
		}
	}
}
