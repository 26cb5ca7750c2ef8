package shell

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Command is a simple command of a script that is neither a builtin nor a function of the script.
type Command struct {
	// Name is "" if it is known only at run time.
	Name      string
	Text      string // as it is written
	Line, Col uint
}

// Commands lists the simple commands in the order of the text. Builtins and the script's own
// functions are not among them. What a trap runs is said to stand where the trap has it.
func (s *Script) Commands() []Command { return s.commands }

// commands are those of a script as it is written, before anything is said in other words.
func commands(file *syntax.File, functions map[string]bool) []Command {
	var all []Command
	syntax.Walk(file, func(n syntax.Node) bool {
		call, ok := n.(*syntax.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		args := call.Args
		name := literal(args[0])
		for name == "command" && len(args) > 1 && !strings.HasPrefix(literal(args[1]), "-") {
			args = args[1:]
			name = literal(args[0])
		}
		if name == "trap" && len(call.Args) > 2 {
			all = append(all, ofTrap(call.Args[1], functions)...)
		}
		if !functions[name] && !slices.Contains(builtins, name) {
			all = append(all, Command{name, text(call), call.Pos().Line(), call.Pos().Col()})
		}
		return true
	})
	return all
}

func ofTrap(action *syntax.Word, functions map[string]bool) []Command {
	text, ok := constant(action)
	if !ok || text == "-" {
		return nil
	}
	file, err := parse("trap", text)
	if err != nil {
		return nil // which the check says
	}
	all := commands(file, functions)
	for i := range all {
		all[i].Line, all[i].Col = action.Pos().Line(), action.Pos().Col()
	}
	return all
}

// Functions are the names of the script's own functions.
func (s *Script) Functions() map[string]bool { return s.functions }

// Names are the names of the script's commands, each once, sorted, and whether there are commands
// whose names only a run can tell.
func (s *Script) Names() (names []string, dynamic bool) {
	for _, c := range s.Commands() {
		if c.Name == "" {
			dynamic = true
			continue
		}
		names = append(names, c.Name)
	}
	slices.Sort(names)
	return slices.Compact(names), dynamic
}

// text prints one command on one line.
func text(n syntax.Node) string {
	var b strings.Builder
	if err := syntax.NewPrinter(syntax.SingleLine(true)).Print(&b, n); err != nil {
		return ""
	}
	return b.String()
}
