package cmd_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	namedTest   = regexp.MustCompile("`([a-z0-9/-]+) ((?:Test|Fuzz)[A-Za-z0-9]+)`")
	namedScript = regexp.MustCompile("`([a-z0-9/_-]+\\.txtar)`")
	linked      = regexp.MustCompile(`\]\(([^)#]+)\)`)
	specRow     = regexp.MustCompile(`(?m)^\| (.+) \| (.+) \| (.+) \|$`)
)

// TestSpecification: each promise of SPECIFICATION.md has a test or a script, all that it names are
// there, and it speaks of no attack that docs/coverage.md does not have.
func TestSpecification(t *testing.T) {
	text := readFile(t, filepath.Join("..", "SPECIFICATION.md"))
	promises := 0
	for _, row := range specRow.FindAllStringSubmatch(text, -1) {
		if row[3] == "test" {
			continue
		}
		promises++
		if !namedTest.MatchString(row[3]) && !namedScript.MatchString(row[3]) {
			t.Errorf("no test for: %s", row[1])
		}
	}
	if promises < 30 {
		t.Errorf("only %d promises were found", promises)
	}
	for _, m := range namedTest.FindAllStringSubmatch(text, -1) {
		if !declared(t, m[1], m[2]) {
			t.Errorf("%s has no %s", m[1], m[2])
		}
	}
	for _, m := range append(namedScript.FindAllStringSubmatch(text, -1),
		linked.FindAllStringSubmatch(text, -1)...) {
		if _, err := os.Stat(filepath.Join("..", m[1])); err != nil {
			t.Error(err)
		}
	}
	coverage := readFile(t, filepath.Join("..", "docs", "coverage.md"))
	for _, id := range threatID.FindAllString(text, -1) {
		if !strings.Contains(coverage, "| "+id+" |") {
			t.Errorf("docs/coverage.md has no %s", id)
		}
	}
}

// declared reports whether a package has a test of that name.
func declared(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if strings.Contains(readFile(t, f), "\nfunc "+name+"(") {
			return true
		}
	}
	return false
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
