package meaning

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/policytest"
)

// For each way in which a name can match some of the globs, cells has a name that does.
func TestCellsAreAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		globs, name := policytest.Globs().Draw(t, "globs"), policytest.Path().Draw(t, "name")
		names, exact := cells(shapeName, globPatterns(globs))
		if !exact {
			t.Fatalf("%s needs too many states", globs)
		}
		vector := func(name string) (out string) {
			for _, g := range globs {
				out += map[bool]string{true: "1", false: "0"}[g.Match(name)]
			}
			return out
		}
		for _, n := range names {
			if vector(n) == vector(name) {
				return
			}
		}
		t.Fatalf("%s: no name of %q matches as %q does", globs, names, name)
	})
}

func TestCells(t *testing.T) {
	for _, tt := range []struct {
		form  shape
		globs []string
		want  int
	}{
		{shapeWord, []string{"*"}, 1}, {shapeWord, []string{"TERM"}, 2},
		{shapeWord, []string{"LC_*", "*_ALL"}, 4},
		{shapePair, []string{"core-utils/*", "*/grep"}, 4}, {shapePair, []string{"**"}, 1},
		{shapePath, []string{"/usr/**"}, 2}, {shapePath, []string{"**"}, 1},
		{shapePath, []string{"/usr/**", "/usr/bin/*", "/usr/bin/git"}, 4},
		{shapeURL, []string{"/simple/**", "/simple/a"}, 3},
	} {
		if names, exact := cells(tt.form, globPatterns(policy.MustGlobs(tt.globs...))); len(
			names) != tt.want || !exact {
			t.Errorf("%q has the cells %q, %v", tt.globs, names, exact)
		}
	}
}

// Names of the workspace match as policy.Names says.
func TestCellsOfNames(t *testing.T) {
	for _, text := range []string{".env", "**/*.pem", "/build/out", "a/**/b", "Makefile"} {
		names, _ := cells(shapeName, []pattern{namePattern(text, false, false)})
		hidden := policy.Hidden([]string{text})
		if len(names) != 2 || hidden.Match(names[0]) == hidden.Match(names[1]) {
			t.Errorf("%s: %q", text, names)
		}
	}
}
