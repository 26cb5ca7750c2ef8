package shell

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// rewrite says in other words what the interpreter would take differently from a POSIX shell:
//
//   - export, local and readonly are declarations, which the parser's POSIX dialect does not know;
//   - the last part of a pipeline runs in a subshell, as in most shells, and not in the script's own;
//   - return without a number keeps $?.
func rewrite(file *syntax.File) {
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.Stmt:
			if d := declaration(n.Cmd); d != nil {
				n.Cmd = d
			}
		case *syntax.BinaryCmd:
			if n.Op == syntax.Pipe {
				n.Y = subshell(n.Y)
			}
		case *syntax.CallExpr:
			if len(n.Args) == 1 && literal(n.Args[0]) == "return" {
				n.Args = append(n.Args, &syntax.Word{Parts: []syntax.WordPart{
					&syntax.ParamExp{Dollar: n.End(), Short: true, Param: &syntax.Lit{ValuePos: n.End(), ValueEnd: n.End(), Value: "?"}}}})
			}
		}
		return true
	})
}

func subshell(s *syntax.Stmt) *syntax.Stmt {
	if _, ok := s.Cmd.(*syntax.Subshell); ok {
		return s
	}
	return &syntax.Stmt{Position: s.Position, Cmd: &syntax.Subshell{Lparen: s.Pos(), Rparen: s.End(), Stmts: []*syntax.Stmt{s}}}
}

// declaration is the declaration that a plain command stands for, nil if it stands for none. Words that are neither a name nor an
// assignment stay as they are, so that options are read and everything else is an error of the command when it runs.
func declaration(cmd syntax.Command) syntax.Command {
	call, ok := cmd.(*syntax.CallExpr)
	if !ok || len(call.Args) == 0 || len(call.Assigns) > 0 {
		return nil
	}
	name := literal(call.Args[0])
	if name != "export" && name != "local" && name != "readonly" {
		return nil
	}
	d := &syntax.DeclClause{Variant: &syntax.Lit{ValuePos: call.Args[0].Pos(), ValueEnd: call.Args[0].End(), Value: name}}
	for _, w := range call.Args[1:] {
		d.Args = append(d.Args, assign(w))
	}
	return d
}

func assign(w *syntax.Word) *syntax.Assign {
	first, ok := w.Parts[0].(*syntax.Lit)
	if !ok {
		return &syntax.Assign{Naked: true, Value: w}
	}
	name, value, has := strings.Cut(first.Value, "=")
	if !has && len(w.Parts) == 1 && syntax.ValidName(name) {
		return &syntax.Assign{Naked: true, Name: first}
	}
	if !has || !syntax.ValidName(name) {
		return &syntax.Assign{Naked: true, Value: w}
	}
	a := &syntax.Assign{Name: &syntax.Lit{ValuePos: first.ValuePos, ValueEnd: first.ValueEnd, Value: name}}
	rest := append([]syntax.WordPart{}, w.Parts[1:]...)
	if value != "" {
		rest = append([]syntax.WordPart{&syntax.Lit{ValuePos: first.ValuePos, ValueEnd: first.ValueEnd, Value: value}}, rest...)
	}
	a.Value = &syntax.Word{Parts: rest}
	return a
}
