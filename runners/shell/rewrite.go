package shell

import (
	"fmt"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// rewrite changes the parsed script where the interpreter would differ from a POSIX shell:
//
//   - export, local and readonly are declarations, which the parser's POSIX dialect does not know;
//   - the last part of a pipeline runs in a subshell, as in most shells, and not in the script's
//     own;
//   - return without a number keeps $?;
//   - getopts without arguments reads "$@", and starts again when OPTIND is assigned;
//   - a trap's action becomes a function, since the interpreter would parse its text without these
//     checks;
//   - >| becomes >, since there is no noclobber.
func rewrite(file *syntax.File) {
	var traps []*syntax.Stmt
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.Redirect:
			if n.Op == syntax.RdrClob {
				n.Op = syntax.RdrOut
			}
		case *syntax.Stmt:
			if d := declaration(n.Cmd); d != nil {
				n.Cmd = d
			}
		case *syntax.BinaryCmd:
			if n.Op == syntax.Pipe {
				n.Y = subshell(n.Y)
			}
		case *syntax.CallExpr:
			if at := slices.IndexFunc(n.Assigns,
				func(a *syntax.Assign) bool { return a.Name.Value == "OPTIND" }); at >= 0 &&
				len(n.Args) == 0 {
				n.Assigns = append(n.Assigns, &syntax.Assign{Name: &syntax.Lit{ValuePos: n.End(),
					ValueEnd: n.End(), Value: GetoptsState}})
			}
			if len(n.Args) == 0 {
				return true
			}
			switch name := literal(n.Args[0]); {
			case name == "return" && len(n.Args) == 1:
				n.Args = append(n.Args,
					&syntax.Word{Parts: []syntax.WordPart{variable(n.End(), "?")}})
			case name == "getopts" && len(n.Args) == 3:
				n.Args = append(n.Args, &syntax.Word{Parts: []syntax.WordPart{
					&syntax.DblQuoted{Left: n.End(), Right: n.End(),
						Parts: []syntax.WordPart{variable(n.End(), "@")}}}})
			case name == "trap" && len(n.Args) > 2:
				traps = append(traps, action(n, len(traps)+1)...)
			}
		}
		return true
	})
	file.Stmts = append(traps, file.Stmts...)
}

// GetoptsState is the variable that holds the position of getopts: "INDEX:OFFSET", the number of
// the argument and the byte offset within it.
const GetoptsState = "jail_getopts"

func variable(at syntax.Pos, name string) *syntax.ParamExp {
	return &syntax.ParamExp{Dollar: at, Short: true,
		Param: &syntax.Lit{ValuePos: at, ValueEnd: at, Value: name}}
}

// action turns a trap's action into a call of a function and returns the function's declaration. It
// returns nil if the trap has no action ("-" or empty).
func action(trap *syntax.CallExpr, number int) []*syntax.Stmt {
	text, ok := constant(trap.Args[1])
	if !ok || text == "-" || text == "" {
		return nil
	}
	script, err := Parse("trap", text)
	if err != nil || len(script.file.Stmts) == 0 {
		return nil
	}
	at := trap.Args[1].Pos()
	name := fmt.Sprint("jail_trap_", number)
	trap.Args[1] = &syntax.Word{Parts: []syntax.WordPart{single(at, name+` "$@"`)}}
	body := &syntax.Stmt{Position: at,
		Cmd: &syntax.Block{Lbrace: at, Rbrace: at, Stmts: script.file.Stmts}}
	return []*syntax.Stmt{{Position: at, Cmd: &syntax.FuncDecl{Position: at, Parens: true,
		Name: &syntax.Lit{ValuePos: at, ValueEnd: at, Value: name}, Body: body}}}
}

func subshell(s *syntax.Stmt) *syntax.Stmt {
	if _, ok := s.Cmd.(*syntax.Subshell); ok {
		return s
	}
	return &syntax.Stmt{Position: s.Position,
		Cmd: &syntax.Subshell{Lparen: s.Pos(), Rparen: s.End(), Stmts: []*syntax.Stmt{s}}}
}

// declaration converts a call of export, local or readonly into the interpreter's declaration. It
// returns nil for other commands. Words that are neither a name nor an assignment stay as they are,
// so that the command reads its options and reports the rest when it runs.
func declaration(cmd syntax.Command) syntax.Command {
	call, ok := cmd.(*syntax.CallExpr)
	if !ok || len(call.Args) == 0 || len(call.Assigns) > 0 {
		return nil
	}
	name := literal(call.Args[0])
	if !declaring(name) {
		return nil
	}
	d := &syntax.DeclClause{Variant: &syntax.Lit{ValuePos: call.Args[0].Pos(),
		ValueEnd: call.Args[0].End(), Value: name}}
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
	a := &syntax.Assign{Name: &syntax.Lit{ValuePos: first.ValuePos, ValueEnd: first.ValueEnd,
		Value: name}}
	rest := append([]syntax.WordPart{}, w.Parts[1:]...)
	if value != "" {
		rest = append([]syntax.WordPart{&syntax.Lit{ValuePos: first.ValuePos,
			ValueEnd: first.ValueEnd, Value: value}}, rest...)
	}
	a.Value = &syntax.Word{Parts: rest}
	return a
}
