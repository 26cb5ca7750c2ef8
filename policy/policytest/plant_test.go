package policytest_test

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// planted is the package whose tests are tested.
const planted = ".."

// swaps are the faults that are planted: one operator for another.
var swaps = map[token.Token][]token.Token{
	token.LAND: {token.LOR}, token.LOR: {token.LAND},
	token.EQL: {token.NEQ}, token.NEQ: {token.EQL},
	token.LSS: {token.LEQ, token.GEQ}, token.LEQ: {token.LSS, token.GTR},
	token.GTR: {token.GEQ, token.LEQ}, token.GEQ: {token.GTR, token.LSS},
	token.ADD: {token.SUB}, token.SUB: {token.ADD}, token.AND: {token.OR}, token.OR: {token.AND},
	token.AND_NOT: {token.AND},
}

// calls are made in place of one another.
var calls = map[string]string{
	"min": "max", "max": "min", "strings.Contains": "strings.ContainsAny",
	"strings.HasPrefix": "strings.HasSuffix", "strings.HasSuffix": "strings.HasPrefix",
	"strings.CutPrefix": "strings.CutSuffix", "strings.CutSuffix": "strings.CutPrefix",
}

// switchText is the file that is added to the package: it turns one fault on.
const switchText = `package policy

import (
	"os"
	"strconv"
)

var plantedFault, _ = strconv.Atoi(os.Getenv("JAIL_PLANTED"))

func choosePlanted[T any](fault int, so, other T) T {
	if fault == plantedFault {
		return other
	}
	return so
}
`

// A fault is one that can be planted.
type fault struct {
	number             int
	file, inside, what string
	line               int
	// The file with this fault and no other, where a switch cannot be: among constants.
	alone []byte
}

// name tells a fault from the others however its file grows.
func (f fault) name() string { return filepath.Base(f.file) + " " + f.inside + ": " + f.what }

// A planter writes a file anew, with all its faults behind the switch.
type planter struct {
	text   string
	file   string
	fset   *token.FileSet
	info   *types.Info
	faults []fault
	first  int
	inside string
	consts bool
	seen   map[string]int
}

// plantAll finds all faults, and builds the tests with them behind the switch.
func plantAll(t *testing.T) ([]fault, string) {
	t.Helper()
	fset := token.NewFileSet()
	var names []string
	var files []*ast.File
	paths, err := filepath.Glob(planted + "/*.go")
	if err != nil || len(paths) < 20 {
		t.Fatalf("%v, %v", paths, err)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		names, files = append(names, path), append(files, file)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	conf := types.Config{Importer: importer.ForCompiler(fset, "source", nil)}
	if _, err := conf.Check("policy", fset, files, info); err != nil {
		t.Fatal(err)
	}
	var all []fault
	texts := map[string][]byte{planted + "/planted_switch.go": []byte(switchText)}
	for i, file := range files {
		text, err := os.ReadFile(names[i])
		if err != nil {
			t.Fatal(err)
		}
		p := &planter{text: string(text), file: names[i], fset: fset, info: info, first: len(all),
			seen: map[string]int{}}
		texts[names[i]] = []byte(p.within(file, file.FileStart, file.FileEnd))
		all = append(all, p.faults...)
	}
	program, err := compile(t.TempDir(), texts)
	if err != nil {
		t.Fatal(err)
	}
	return all, program
}

func (p *planter) at(pos token.Pos) int { return p.fset.Position(pos).Offset }

func (p *planter) source(from, to token.Pos) string { return p.text[p.at(from):p.at(to)] }

// plant notes a fault, and returns its number. The text of what it is in stands in its name, on one
// line.
func (p *planter) plant(n ast.Node, change string) int {
	what := strings.Join(strings.Fields(p.source(n.Pos(), n.End())), " ")
	if len(what) > 100 {
		what = what[:100] + "…"
	}
	what += " [" + change + "]"
	p.seen[p.inside+what]++
	if again := p.seen[p.inside+what]; again > 1 {
		what += fmt.Sprintf(" (%d)", again)
	}
	number := p.first + len(p.faults) + 1
	p.faults = append(p.faults, fault{number: number, file: p.file, inside: p.inside, what: what,
		line: p.fset.Position(n.Pos()).Line})
	return number
}

// alone makes the fault that was noted last one that is built by itself.
func (p *planter) alone(n ast.Node, text string) {
	p.faults[len(p.faults)-1].alone = []byte(p.text[:p.at(n.Pos())] + text + p.text[p.at(n.End()):])
}

// within writes what lies between two places of a node, with the outermost of its parts that can be
// faulty behind the switch.
func (p *planter) within(n ast.Node, from, to token.Pos) string {
	var out strings.Builder
	ast.Inspect(n, func(part ast.Node) bool {
		if part == nil || part == n || part.Pos() < from || part.End() > to {
			return part == nil || part.End() > from
		}
		inside, consts := p.inside, p.consts
		switch d := part.(type) {
		case *ast.FuncDecl:
			p.inside = d.Name.Name
		case *ast.GenDecl:
			p.consts = d.Tok == token.CONST
		}
		text, ok := p.switched(part)
		_, decl := part.(ast.Decl)
		if !ok && decl {
			text, ok = p.within(part, part.Pos(), part.End()), true
		}
		p.inside, p.consts = inside, consts
		if ok {
			out.WriteString(p.source(from, part.Pos()) + text)
			from = part.End()
		}
		return !ok
	})
	return out.String() + p.source(from, to)
}

// expr writes an expression that is a part of another.
func (p *planter) expr(x ast.Expr) string {
	if text, ok := p.switched(x); ok {
		return text
	}
	return p.within(x, x.Pos(), x.End())
}

// switched writes a node that can be faulty, with its faults behind the switch.
func (p *planter) switched(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		return p.binary(n)
	case *ast.UnaryExpr:
		if n.Op != token.NOT {
			return "", false
		}
		return fmt.Sprintf("((%d == plantedFault) != !%s)", p.plant(n, "! is away"), p.expr(n.X)),
			true
	case *ast.Ident:
		if n.Name != "true" && n.Name != "false" {
			return "", false
		}
		other := map[string]string{"true": "false", "false": "true"}[n.Name]
		number := p.plant(n, n.Name+" is "+other)
		if p.consts {
			p.alone(n, other)
			return n.Name, true
		}
		return fmt.Sprintf("choosePlanted(%d, %s, %s)", number, n.Name, other), true
	case *ast.CallExpr:
		return p.call(n)
	case *ast.IfStmt:
		if n.Init != nil {
			return "", false
		}
		number := p.plant(n.Cond, "the condition is never so")
		cond := p.expr(n.Cond)
		return fmt.Sprintf("if %d != plantedFault && (%s)%s", number, cond,
			p.within(n, n.Cond.End(), n.End())), true
	}
	return "", false
}

func (p *planter) binary(n *ast.BinaryExpr) (string, bool) {
	ops := swaps[n.Op]
	known := p.info.Types[n]
	if kind, ok := known.Type.Underlying().(*types.Basic); len(ops) == 0 || n.Op == token.ADD &&
		ok && kind.Info()&types.IsString != 0 {
		return "", false
	}
	faults := ""
	join := func(op token.Token) string {
		return p.source(n.X.Pos(),
			n.OpPos) + op.String() + p.text[p.at(n.OpPos)+len(n.Op.String()):p.at(n.End())]
	}
	boolean := types.Identical(types.Default(known.Type), types.Typ[types.Bool])
	for _, op := range ops {
		number := p.plant(n, n.Op.String()+" is "+op.String())
		switch {
		case known.Value != nil:
			p.alone(n, join(op))
		case boolean:
			faults += fmt.Sprintf("if %d == plantedFault { return %s }; ", number, join(op))
		default:
			// Its operands have no effects, so both may be made.
			faults = fmt.Sprintf("choosePlanted(%d, %%s, %s)", number,
				strings.ReplaceAll(join(op), "%", "%%"))
		}
	}
	if known.Value != nil {
		return p.source(n.Pos(), n.End()), true
	}
	so := p.expr(n.X) + p.source(n.X.End(), n.Y.Pos()) + p.expr(n.Y)
	if boolean {
		return "func() bool { " + faults + "return " + so + " }()", true
	}
	return fmt.Sprintf(faults, so), true
}

func (p *planter) call(n *ast.CallExpr) (string, bool) {
	name := p.source(n.Fun.Pos(), n.Fun.End())
	other, ok := calls[name]
	if !ok {
		return "", false
	}
	if name == "strings.Contains" {
		if what := p.info.Types[n.Args[1]].Value; what != nil &&
			len(constant.StringVal(what)) == 1 {
			// Any of one is that one.
			return "", false
		}
	}
	number, rest := p.plant(n, name+" is "+other), p.within(n, n.Fun.End(), n.End())
	if strings.Contains(name, ".") {
		return fmt.Sprintf("choosePlanted(%d, %s, %s)%s", number, name, other, rest), true
	}
	return fmt.Sprintf("choosePlanted(%d, %s%s, %s%s)", number, name, rest, other,
		p.source(n.Fun.End(), n.End())), true
}
