package native_test

import (
	"slices"
	"testing"

	"github.com/jail-sandbox/jail/runners/native"
)

func TestReporting(t *testing.T) {
	for _, c := range []struct {
		program string
		args    []string
		at      int
	}{
		{"/usr/bin/bash", []string{"bash", "-c", "cd x"}, 2},
		{"/bin/sh", []string{"sh", "-ec", "cd x", "name", "-c"}, 2},
		{"/bin/bash", []string{"bash", "-lc", "cd x"}, 2},
		{"/bin/bash", []string{"bash", "-c", "-e", "--", "cd x"}, 4},
		{"/bin/bash", []string{"bash", "--norc", "-o", "pipefail", "+e", "-c", "cd x"}, 6},
		{"/bin/bash", []string{"bash", "--rcfile", "-c", "script"}, 0},
		{"/bin/bash", []string{"bash", "script", "-c", "cd x"}, 0},
		{"/bin/bash", []string{"bash", "-c"}, 0},
		{"/bin/bash", []string{"bash", "-c", "--"}, 0},
		{"/bin/bash", []string{"bash"}, 0},
		{"/usr/bin/git", []string{"git", "-c", "a=b", "status"}, 0},
	} {
		got, ok := native.Reporting(c.program, c.args, "say so")
		want := slices.Clone(c.args)
		if c.at > 0 {
			want[c.at] = "trap 'say so' EXIT; " + want[c.at]
		}
		if ok != (c.at > 0) || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v", c.args, got, ok)
		}
	}
}
