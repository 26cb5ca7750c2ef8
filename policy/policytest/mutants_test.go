package policytest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// swaps are the faults that are planted: one operator for another.
var swaps = map[token.Token][]token.Token{
	token.LAND: {token.LOR}, token.LOR: {token.LAND},
	token.EQL: {token.NEQ}, token.NEQ: {token.EQL},
	token.LSS: {token.LEQ, token.GEQ}, token.LEQ: {token.LSS, token.GTR},
	token.GTR: {token.GEQ, token.LEQ}, token.GEQ: {token.GTR, token.LSS},
	token.ADD: {token.SUB}, token.SUB: {token.ADD}, token.AND: {token.OR}, token.OR: {token.AND}, token.AND_NOT: {token.AND},
}

// names are called in place of one another.
var names = map[string]string{"min": "max", "max": "min", "true": "false", "false": "true", "Contains": "ContainsAny", "HasPrefix": "HasSuffix", "CutPrefix": "CutSuffix"}

// A mutant is a file of the package with one fault.
type mutant struct {
	file, what string
	text       []byte
}

// TestMutants plants faults in package policy, one at a time, and wants its tests to find them. It takes minutes, so it runs only where
// JAIL_TEST_LONG is set; JAIL_MUTANTS is then how many of them are tried, evenly spread, and all without it.
func TestMutants(t *testing.T) {
	if os.Getenv("JAIL_TEST_LONG") == "" {
		t.Skip("JAIL_TEST_LONG is not set: each of some hundred faults is a run of the tests")
	}
	var all []mutant
	files, err := filepath.Glob("../*.go")
	if err != nil || len(files) < 20 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || strings.HasSuffix(file, "protecteddata.go") {
			continue
		}
		all = append(all, mutantsOf(t, file)...)
	}
	tried := len(all)
	if n, err := strconv.Atoi(os.Getenv("JAIL_MUTANTS")); err == nil && n > 0 {
		tried = min(n, tried)
	}
	killed, unbuilt, survived := 0, 0, []string{}
	for i := range tried {
		m := all[i*len(all)/tried]
		switch how := m.run(t); how {
		case "killed":
			killed++
		case "unbuilt":
			unbuilt++
		default:
			survived = append(survived, m.what)
			t.Log("survived: " + m.what)
		}
	}
	t.Logf("%d faults of %d tried: %d found, %d not, %d that do not compile", tried, len(all), killed, len(survived), unbuilt)
	if found := killed + len(survived); found > 0 && killed*100 < found*80 {
		t.Errorf("only %d of %d faults are found", killed, found)
	}
}

// mutantsOf makes every mutant of a file.
func mutantsOf(t *testing.T, path string) []mutant {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var out []mutant
	plant := func(at token.Pos, what string, change, back func()) {
		change()
		var b bytes.Buffer
		if err := printer.Fprint(&b, fset, file); err != nil {
			t.Fatal(err)
		}
		back()
		pos := fset.Position(at)
		out = append(out, mutant{path, fmt.Sprintf("%s:%d:%d: %s", filepath.Base(path), pos.Line, pos.Column, what), b.Bytes()})
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			was := n.Op
			for _, op := range swaps[was] {
				plant(n.OpPos, was.String()+" is "+op.String(), func() { n.Op = op }, func() { n.Op = was })
			}
		case *ast.UnaryExpr:
			if x := n.X; n.Op == token.NOT {
				plant(n.OpPos, "! is away", func() { n.Op, n.X = token.NOT, &ast.UnaryExpr{Op: token.NOT, X: x} }, func() { n.X = x })
			}
		case *ast.Ident:
			if was, ok := names[n.Name]; ok {
				own := n.Name
				plant(n.Pos(), own+" is "+was, func() { n.Name = was }, func() { n.Name = own })
			}
		case *ast.IfStmt:
			if n.Init == nil {
				cond := n.Cond
				plant(n.Pos(), "the condition is never so", func() {
					n.Cond = &ast.BinaryExpr{X: &ast.ParenExpr{X: cond}, Op: token.LAND, Y: ast.NewIdent("false")}
				}, func() { n.Cond = cond })
			}
		}
		return true
	})
	return out
}

// run runs the tests of the package with the fault in it.
func (m mutant) run(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	abs, err := filepath.Abs(m.file)
	if err != nil {
		t.Fatal(err)
	}
	planted, overlay := filepath.Join(dir, "planted.go"), filepath.Join(dir, "overlay.json")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {abs: planted}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(planted, m.text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, list, 0o600); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "policy.test")
	if exec.Command("go", "test", "-overlay", overlay, "-vet=off", "-c", "-o", program, "..").Run() != nil {
		return "unbuilt"
	}
	cmd := exec.Command(program, "-test.failfast", "-rapid.checks=200", "-test.timeout="+(time.Minute).String())
	cmd.Dir = ".."
	if cmd.Run() != nil {
		return "killed"
	}
	return "survived"
}
