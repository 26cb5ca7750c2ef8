package api

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/jail/oci"
)

// TestClientAsksEveryRoute reads the source of the client, and names each route that no method of
// it asks.
func TestClientAsksEveryRoute(t *testing.T) {
	asked := sourceRequests(t)
	for _, r := range (&Server{}).routes() {
		route := r.method + " " + inPath.ReplaceAllString(r.path, "{}")
		// Is for tools that generate clients.
		if r.path == pathOpenAPI || strings.HasPrefix(r.path, oci.PathContainers) {
			// jail-oci, which asks for containers, must stay small: it has a client of its own.
			continue
		}
		if !asked[route] {
			t.Errorf("no method of the client asks %s %s", r.method, r.path)
		}
	}
}

// sourceRequests returns the requests of this package's source, such as "GET /v1/runs/{}".
func sourceRequests(t *testing.T) map[string]bool {
	t.Helper()
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	src := source{consts: map[string]ast.Expr{}, asked: map[string]bool{}}
	var files []*ast.File
	for _, path := range append(paths, "../wire/wire.go") {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
		for _, decl := range file.Decls {
			src.addConsts(decl)
		}
	}
	for _, file := range files {
		for _, decl := range file.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Body != nil {
				src.addRequests(fn)
			}
		}
	}
	return src.asked
}

// A source is what is known of the source of a package: its constants, those of package wire, and
// the requests that its functions make.
type source struct {
	consts map[string]ast.Expr
	asked  map[string]bool
}

func (s source) addConsts(decl ast.Decl) {
	gen, ok := decl.(*ast.GenDecl)
	if !ok || gen.Tok != token.CONST {
		return
	}
	for _, spec := range gen.Specs {
		for i, name := range spec.(*ast.ValueSpec).Names {
			values := spec.(*ast.ValueSpec).Values
			if len(values) == 0 {
				// Of an iota.
				continue
			}
			// PathRuns is wire.PathRuns: the value of that is the text.
			sel, ok := values[i].(*ast.SelectorExpr)
			if !ok || sel.Sel.Name != name.Name {
				s.consts[name.Name] = values[i]
			}
		}
	}
}

var methodText = regexp.MustCompile(`^"(GET|POST|PUT|DELETE)"$`)

// addRequests finds the calls of a function that have a method and, behind it, a path, and those
// of streamed, which posts.
func (s source) addRequests(fn *ast.FuncDecl) {
	ast.Inspect(fn, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if sel, ok := call.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "streamed" {
			s.add("POST", s.path(fn, call.Args[1]))
		}
		for i, arg := range call.Args[:max(0, len(call.Args)-1)] {
			if lit, ok := arg.(*ast.BasicLit); ok && methodText.MatchString(lit.Value) {
				s.add(strings.Trim(lit.Value, `"`), s.path(fn, call.Args[i+1]))
			}
		}
		return true
	})
}

func (s source) add(method, path string) {
	path, _, _ = strings.Cut(path, "?")
	s.asked[method+" "+strings.TrimPrefix(path, "http://jail")] = true
}

// path returns what is known of the value of an expression: constants, and what was first assigned
// to a variable. {} is an item of a collection.
func (s source) path(fn *ast.FuncDecl, e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		// What is no string is no path.
		text, _ := strconv.Unquote(e.Value)
		return text
	case *ast.BinaryExpr:
		return s.path(fn, e.X) + s.path(fn, e.Y)
	case *ast.SelectorExpr:
		return s.path(fn, e.Sel)
	case *ast.CallExpr:
		if name, ok := e.Fun.(*ast.Ident); ok && name.Name == "item" {
			return s.path(fn, e.Args[0]) + "/{}"
		}
	case *ast.Ident:
		if value, ok := s.consts[e.Name]; ok {
			return s.path(fn, value)
		}
		return s.path(fn, assigned(fn, e.Name))
	}
	return ""
}

// assigned returns what a function assigns to a new variable, or nil.
func assigned(fn *ast.FuncDecl, name string) (value ast.Expr) {
	ast.Inspect(fn, func(n ast.Node) bool {
		if a, ok := n.(*ast.AssignStmt); ok && a.Tok == token.DEFINE && len(a.Rhs) == 1 {
			if left, ok := a.Lhs[0].(*ast.Ident); ok && left.Name == name {
				value = a.Rhs[0]
			}
		}
		return value == nil
	})
	return value
}
