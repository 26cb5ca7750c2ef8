package shell

import (
	"fmt"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// builtins are the commands that the shell executes itself, without a tool.
var builtins = []string{":", "[", "break", "cd", "command", "continue", "echo", "exit", "export",
	"false", "getopts", "local", "printf", "pwd",
	"read", "readonly", "return", "set", "shift", "test", "times", "trap", "true", "type", "unset",
	"wait"}

// unsupported maps the builtins that other shells have and this one refuses to the reason. A script
// with a literal name is refused before it starts; a name from an expansion is refused at run time.
var unsupported = map[string]string{
	".":         "a file is not read as a script: write its commands out",
	"source":    "a file is not read as a script, and source is not POSIX shell",
	"eval":      "text is not run as a script: what runs must be readable before it runs",
	"exec":      "the shell cannot be replaced: run the command, and exit",
	"alias":     "there are no aliases: use a function",
	"unalias":   "there are no aliases: use a function",
	"bg":        "there is no job control",
	"fg":        "there is no job control",
	"jobs":      "there is no job control",
	"disown":    "there is no job control",
	"suspend":   "there is no job control",
	"kill":      "tools of a script cannot be signalled",
	"ulimit":    "limits come from the policy: use --limit",
	"umask":     "the mode of new files is fixed to 0666 and 0777 less 022",
	"newgrp":    "ids are fixed",
	"fc":        "there is no history",
	"history":   "there is no history",
	"hash":      "commands are found in bundles",
	"enable":    "builtins are fixed",
	"builtin":   "it is not POSIX shell: use command",
	"caller":    "it is not POSIX shell",
	"let":       "it is not POSIX shell: use $((…))",
	"declare":   "it is not POSIX shell: use local or export",
	"typeset":   "it is not POSIX shell: use local or export",
	"shopt":     "it is not POSIX shell",
	"dirs":      "it is not POSIX shell: use cd",
	"pushd":     "it is not POSIX shell: use cd",
	"popd":      "it is not POSIX shell: use cd",
	"mapfile":   "it is not POSIX shell: use read in a loop",
	"readarray": "it is not POSIX shell: use read in a loop",
	"[[":        "it is not POSIX shell: use [",
	"time":      "it is not a command here: jail run --json says how long a tool ran",
	"coproc":    "it is not POSIX shell",
	"select":    "it is not POSIX shell",
	"function":  "it is not POSIX shell: write name() { … }",
	"logout":    "use exit",
	"bind":      "there is no line editor",
	"complete":  "there is no line editor",
	"compgen":   "there is no line editor",
	"compopt":   "there is no line editor",
	"help":      "it is not POSIX shell",
}

// Xargs is the name of the builtin that runs the tool named in its arguments.
const Xargs = "xargs"

// Unsupported returns why this shell refuses the builtin name, or "" if it does not refuse it.
func Unsupported(name string) string { return unsupported[name] }

// traps are the conditions that the trap builtin accepts. No signal reaches the shell.
var traps = []string{"EXIT", "0"}

type checker struct {
	problems  []Problem
	commands  int
	functions map[string]bool
}

// maxProblems bounds the problems of one script that are reported.
const maxProblems = 100

func (c *checker) add(at syntax.Pos, format string, args ...any) {
	if len(c.problems) >= maxProblems {
		return
	}
	c.problems = append(c.problems, Problem{at.Line(), at.Col(), fmt.Sprintf(format, args...)})
}

func check(file *syntax.File) []Problem {
	c := &checker{functions: functions(file)}
	c.walk(file, false)
	(&expander{c.add}).node(file)
	if c.commands > maxCommands {
		// The script is refused as a whole, whatever else is wrong.
		c.problems = nil
		c.add(file.Pos(), "the script has %d commands, more than %d: run it in parts", c.commands,
			maxCommands)
	}
	slices.SortStableFunc(c.problems, func(a, b Problem) int {
		return int(a.Line)<<16 + int(a.Col) - int(b.Line)<<16 - int(b.Col)
	})
	return c.problems
}

// walk checks n and all nodes below it. sub is true if n runs in a subshell.
func (c *checker) walk(n syntax.Node, sub bool) {
	syntax.Walk(n, func(m syntax.Node) bool {
		if m == nil || m == n && sub {
			return true
		}
		switch m := m.(type) {
		case *syntax.Subshell, *syntax.CmdSubst:
			if !sub {
				c.walk(m, true)
				return false
			}
		case *syntax.BinaryCmd:
			if m.Op == syntax.Pipe && !sub {
				c.walk(m, true)
				return false
			}
		}
		c.node(m, sub)
		return true
	})
}

func (c *checker) node(n syntax.Node, sub bool) {
	switch n := n.(type) {
	case *syntax.Stmt:
		if n.Background || n.Coprocess || n.Disown {
			c.add(n.Semicolon,
				"a command in the background (&): there is no job control; use a pipeline, or run "+
					"the script twice")
		}
	case *syntax.Redirect:
		c.redirect(n)
	case *syntax.CallExpr:
		c.call(n, sub)
	case *syntax.ParamExp:
		c.param(n)
	case *syntax.FuncDecl:
		if n.Name != nil && (slices.Contains(builtins, n.Name.Value) || slices.Contains(special,
			n.Name.Value)) {
			c.add(n.Pos(), "a function cannot have the name of the builtin %s", n.Name.Value)
		}
	}
}

func (c *checker) param(p *syntax.ParamExp) {
	switch {
	case p.Param == nil:
	case p.Param.Value == "!":
		c.add(p.Pos(), "$!: there is no job control")
	case len(p.Param.Value) > 1 && p.Param.Value[0] >= '1' && p.Param.Value[0] <= '9':
		c.add(p.Pos(), "${%s}: only $1 to $9 can be named; use shift, or for", p.Param.Value)
	}
}

// redirect reports descriptors other than 0, 1 and 2, which tools do not have, and the operator <>.
func (c *checker) redirect(r *syntax.Redirect) {
	if r.N != nil && r.N.Value != "0" && r.N.Value != "1" && r.N.Value != "2" {
		c.add(r.Pos(), "descriptor %s: tools have 0, 1 and 2 and no others", r.N.Value)
	}
	if r.Op == syntax.RdrInOut {
		c.add(r.OpPos,
			"<> opens for reading and writing at once, which no tool here can use: use < or >")
	}
	if r.Op != syntax.DplOut && r.Op != syntax.DplIn {
		return
	}
	switch to := r.Word.Lit(); {
	case r.Op == syntax.DplIn && to != "0" && to != "-":
		c.add(r.Word.Pos(), "<&%s: only 0 and - can be named", to)
	case r.Op == syntax.DplOut && to != "1" && to != "2" && to != "-":
		c.add(r.Word.Pos(), ">&%s: only 1, 2 and - can be named", to)
	}
}

func (c *checker) call(call *syntax.CallExpr, sub bool) {
	if len(call.Args) == 0 {
		for _, a := range call.Assigns {
			c.ifs(a)
		}
		return
	}
	c.commands++
	name := literal(call.Args[0])
	if why, ok := unsupported[name]; ok && !c.functions[name] {
		c.add(call.Pos(), "%s: %s", name, why)
	}
	switch name {
	case "set":
		for _, w := range call.Args[1:] {
			option, ok := constant(w)
			if !ok || option == "--" || option == "-" || option == "" || !strings.ContainsRune("-+",
				rune(option[0])) && !optionName(call, w) {
				break
			}
			if why := BadOption(option); why != "" {
				c.add(w.Pos(), "set %s: %s", option, why)
			}
		}
	case "trap":
		c.trap(call, sub)
	}
}

// special are further builtins whose names a function cannot have.
var special = []string{".", "eval", "exec"}

// functions returns the names of the functions that a script declares.
func functions(file *syntax.File) map[string]bool {
	names := map[string]bool{}
	syntax.Walk(file, func(n syntax.Node) bool {
		if f, ok := n.(*syntax.FuncDecl); ok && f.Name != nil {
			names[f.Name.Value] = true
		}
		return true
	})
	return names
}

// optionName reports whether w, an argument of set, follows -o or +o and so names an option.
func optionName(call *syntax.CallExpr, w *syntax.Word) bool {
	before := literal(call.Args[slices.Index(call.Args, w)-1])
	return len(before) > 1 && (before[0] == '-' || before[0] == '+') && before[len(before)-1] == 'o'
}

// BadOption returns why set refuses an option, or "" if it accepts it. option is a long name, or a
// sign and one or more letters (-eu).
func BadOption(option string) string {
	if option[0] != '-' && option[0] != '+' {
		if !slices.Contains([]string{"errexit", "nounset", "noglob", "allexport", "xtrace",
			"pipefail"}, option) {
			return "there are errexit, nounset, noglob, allexport, xtrace and pipefail"
		}
		return ""
	}
	if strings.Trim(option[1:], "eufaxo") != "" {
		return "there are -e, -u, -f, -a, -x and -o"
	}
	return ""
}

// ifs reports an assignment to IFS of anything but blanks or a variable: the interpreter treats
// several other separators in a row as one, which POSIX does for blanks only.
func (c *checker) ifs(a *syntax.Assign) {
	if a.Name == nil || a.Name.Value != "IFS" || a.Value == nil {
		return
	}
	if len(a.Value.Parts) == 1 {
		if p, ok := a.Value.Parts[0].(*syntax.ParamExp); ok && p.Exp == nil {
			// IFS=$name restores a saved value.
			return
		}
		if q, ok := a.Value.Parts[0].(*syntax.DblQuoted); ok && len(q.Parts) == 1 {
			if p, ok := q.Parts[0].(*syntax.ParamExp); ok && p.Exp == nil {
				return
			}
		}
	}
	if text := literal(a.Value); text != "" && strings.Trim(text, " \t\n") == "" {
		return
	}
	c.add(a.Pos(),
		"IFS: words are split at blanks only; to split at something else, give it to read: IFS=: "+
			"read -r a b")
}

// trap reports traps other than EXIT of the script itself, and actions that are not literal text.
func (c *checker) trap(call *syntax.CallExpr, sub bool) {
	if len(call.Args) < 2 {
		return
	}
	if sub {
		c.add(call.Pos(),
			"trap in a subshell or a pipeline: only the end of the script itself can be trapped")
	}
	if len(call.Args) < 3 {
		return
	}
	for _, w := range call.Args[2:] {
		if name := literal(w); !slices.Contains(traps, name) {
			c.add(w.Pos(), "trap %s: only EXIT can be trapped, no signal reaches the shell",
				text(w))
		}
	}
	action, ok := constant(call.Args[1])
	if !ok {
		c.add(call.Args[1].Pos(),
			"trap: what it runs must be written out, so that it can be read before it runs")
		return
	}
	if action == "-" || action == "" {
		return
	}
	if _, err := Parse("trap", action); err != nil {
		c.add(call.Args[1].Pos(), "%v", err)
	}
}

// literal returns the text of a word with quotes removed, or "" if the word has expansions.
func literal(w *syntax.Word) string {
	text, _ := constant(w)
	return text
}

// constant returns the text of a word with quotes removed. ok is false if the word has expansions.
func constant(w *syntax.Word) (text string, ok bool) {
	for _, part := range w.Parts {
		switch p := part.(type) {
		case *syntax.Lit:
			text += unescape(p.Value)
		case *syntax.SglQuoted:
			text += p.Value
		case *syntax.DblQuoted:
			for _, q := range p.Parts {
				lit, ok := q.(*syntax.Lit)
				if !ok {
					return "", false
				}
				text += lit.Value
			}
		default:
			return "", false
		}
	}
	return text, true
}

func unescape(s string) string {
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		out = append(out, s[i])
	}
	return string(out)
}

// Command is a simple command of a script that is neither a builtin nor a function of the script.
type Command struct {
	// Name is "" if only the run determines it (an expansion).
	Name      string
	Text      string // as it is written
	Line, Col uint
}

// Commands returns the simple commands in the order of the text, without builtins and the script's
// own functions. The commands of a trap's action have the position of that action.
func (s *Script) Commands() []Command { return s.commands }

// commands returns the simple commands of a file that rewrite has not yet changed. See
// Script.Commands.
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
		// check reports the error.
		return nil
	}
	all := commands(file, functions)
	for i := range all {
		all[i].Line, all[i].Col = action.Pos().Line(), action.Pos().Col()
	}
	return all
}

// Functions returns the names of the functions that the script declares.
func (s *Script) Functions() map[string]bool { return s.functions }

// Names returns the names of the script's commands, sorted, without duplicates. dynamic is true if
// some names are determined only at run time.
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

// text returns the source of a node on one line, or "" if it cannot be printed.
func text(n syntax.Node) string {
	var b strings.Builder
	if err := syntax.NewPrinter(syntax.SingleLine(true)).Print(&b, n); err != nil {
		return ""
	}
	return b.String()
}
