package cmd_test

import (
	"bufio"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var updateCoverage = flag.Bool("update", false, "write docs/coverage.md as it was found")

// limits are the attacks that no test holds off, each with the reason.
var limits = map[string]string{
	"T-054": "There is no decision to race: the filter's listener never lets a call go on, whatever its arguments are.",
	"T-055": "There is no such decision: the filter's listener counts refusals that the kernel has made already, and looks at no process.",
	"T-096": "Reproducers are native programs that need root; a jail executes no file but jail-init, and the filter holds the calls that they begin with. What such a hole in the kernel itself would give an attacker is a limit of every sandbox on the host's kernel.",
	"T-117": "An engine that compiles wrongly is taken for granted: every attack on the jail is made by native code in the engine's place.",
	"T-229": "Rules are about hosts, ports, methods and paths, which every server reads alike. What a query means is each server's own, so none is decided: it is sent as it came, and its hash is on record.",
	"T-254": "A run keeps its policy: it is the one that was resolved, shown and recorded when it started. Who wants less of it stops it, which ends its tunnels.",
	"T-264": "There is no placeholder: a tool never has a text that the proxy would exchange for a credential.",
}

const coverageHead = `# What is tested

Written by the test that looks for it: ` + "`go test ./cmd -run 'TestCoverage$' -update`" + `. Each attack that jail must withstand has a number; a test that
holds one off says so with it. Which layer stops what, and what happens without it, is in [walls.md](walls.md).

| number | attack | held by |
|---|---|---|
`

const coverageLimits = `
## Known limits

Attacks that no test holds off, and why.

| number | attack | why |
|---|---|---|
`

var (
	threatID    = regexp.MustCompile(`T-\d{3}`)
	threatRange = regexp.MustCompile(`T-(\d{3}) to T-(\d{3})`)
)

// TestCoverage holds that every attack is named by a test or is a known limit, never both.
func TestCoverage(t *testing.T) {
	held := heldBy(t)
	var table, known strings.Builder
	table.WriteString(coverageHead)
	for _, row := range threats {
		tests, why := held[row.id], limits[row.id]
		switch {
		case len(tests) == 0 && why == "":
			t.Errorf("%s, %s: no test names it, and it is no known limit", row.id, row.attack)
		case len(tests) > 0 && why != "":
			t.Errorf("%s, %s: it is a known limit, and %v name it", row.id, row.attack, tests)
		case why != "":
			fmt.Fprintf(&known, "| %s | %s | %s |\n", row.id, row.attack, why)
		default:
			fmt.Fprintf(&table, "| %s | %s | %s |\n", row.id, row.attack, strings.Join(tests, ", "))
		}
	}
	if t.Failed() {
		return
	}
	compare(t, filepath.Join("..", "docs", "coverage.md"),
		table.String()+coverageLimits+known.String())
}

func compare(t *testing.T, path, got string) {
	t.Helper()
	if *updateCoverage {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != got {
		lines := strings.Split(string(want), "\n")
		for n, line := range strings.Split(got, "\n") {
			if n >= len(lines) || lines[n] != line {
				t.Errorf("%s: line %d is now\n%s\ngo test ./cmd -run 'TestCoverage$' -update writes it", path, n+1, line)
				return
			}
		}
		t.Errorf("%s has lines that are no longer so; go test ./cmd -run 'TestCoverage$' -update writes it", path)
	}
}

// heldBy returns, for each number, the tests and scripts that name it.
func heldBy(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	note := func(text, where string) {
		for _, id := range idsIn(text) {
			if !slices.Contains(all[id], where) {
				all[id] = append(all[id], where)
			}
		}
	}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			// Tests beside this one make and remove directories.
			return nil
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && d.Name() != ".." ||
			d.Name() == "bin") {
			return fs.SkipDir
		}
		name := filepath.ToSlash(strings.TrimPrefix(path, ".."+string(filepath.Separator)))
		switch {
		case strings.HasPrefix(name, "cmd/coverage"):
		case strings.HasSuffix(name, "_test.go"):
			return inTests(path, filepath.Dir(name), note)
		case strings.HasSuffix(name, ".txtar"):
			return inScript(path, name, note)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for id := range all {
		slices.Sort(all[id])
	}
	return all
}

// idsIn returns the numbers in a text, those between two of them, too.
func idsIn(text string) []string {
	ids := threatID.FindAllString(text, -1)
	for _, m := range threatRange.FindAllStringSubmatch(text, -1) {
		from, _ := strconv.Atoi(m[1])
		to, _ := strconv.Atoi(m[2])
		for n := from; n <= to; n++ {
			ids = append(ids, fmt.Sprintf("T-%03d", n))
		}
	}
	return ids
}

// inTests looks at the comments and texts of a file: within a test they are the test's, elsewhere
// the file's.
func inTests(path, dir string, note func(text, where string)) error {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, path, nil, parser.ParseComments)
	if err != nil {
		return err
	}
	whose := func(pos token.Pos) string {
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !strings.HasPrefix(f.Name.Name, "Test") && !strings.HasPrefix(f.Name.Name,
				"Fuzz") {
				continue
			}
			begin := f.Pos()
			if f.Doc != nil {
				begin = f.Doc.Pos()
			}
			if begin <= pos && pos <= f.End() {
				return dir + " " + f.Name.Name
			}
		}
		return dir + "/" + filepath.Base(path)
	}
	for _, group := range parsed.Comments {
		note(group.Text(), whose(group.Pos()))
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			note(lit.Value, whose(lit.Pos()))
		}
		return true
	})
	return nil
}

// inScript looks at the comments of a script.
func inScript(path, name string, note func(text, where string)) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "#") {
			note(lines.Text(), name)
		}
	}
	return lines.Err()
}
