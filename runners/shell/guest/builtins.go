package guest

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/interp"
	"mvdan.cc/sh/v3/pattern"
	"mvdan.cc/sh/v3/syntax"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/shell"
)

// Builtins that the interpreter does not implement as POSIX says. A handler cannot set variables of
// the script, so each returns assignments for the interpreter to execute.

// assignments collects the variables that a builtin sets or unsets, and its exit code.
type assignments struct {
	text strings.Builder
	code int
}

func (a *assignments) set(name, value string) {
	fmt.Fprintf(&a.text, "%s='%s'\n", name, strings.ReplaceAll(value, "'", `'"'"'`))
}

func (a *assignments) unset(name string) { fmt.Fprintf(&a.text, "unset %s\n", name) }

func (a *assignments) command() []string {
	return []string{"eval",
		a.text.String() + map[bool]string{true: "true", false: "false"}[a.code == 0]}
}

// formatted returns the printf command for the generated formats of package shell, and nil for
// every other format. The error, for a text that is no number or a zero divisor, ends the script.
func formatted(format, text string) ([]string, error) {
	stop := func(what string) ([]string, error) {
		at := &syntax.ParamExp{Param: &syntax.Lit{Value: runners.Printable(text, 100)}}
		return nil, expand.UnsetParameterError{Node: at, Message: what}
	}
	switch format {
	case shell.QuotePattern:
		text = strings.ReplaceAll(pattern.QuoteMeta(text, 0), "\n", "[\n]")
	case shell.Number:
		if text = strings.TrimSpace(text); text == "" {
			text = "0"
		} else if !syntax.ValidName(text) && !shell.IsNumber(text) {
			return stop("not a number")
		}
	case shell.Divisor:
		if text == "0" {
			return stop("division by it")
		}
	default:
		return nil, nil
	}
	return []string{"printf", "%s", text}, nil
}

// read implements the builtin read with -r and -d. It reads a line and returns the command that
// sets the variables, or one that fails.
func read(ctx context.Context, args []string) []string {
	hc := interp.HandlerCtx(ctx)
	raw, end := false, byte('\n')
	names := args[1:]
	for len(names) > 0 && strings.HasPrefix(names[0], "-") && names[0] != "-" {
		flags := names[0][1:]
		names = names[1:]
		if flags == "-" {
			break
		}
		for flags != "" {
			flag := flags[0]
			flags = flags[1:]
			switch {
			case flag == 'r':
				raw = true
			case flag == 'd' && flags != "":
				end, flags = flags[0], ""
			case flag == 'd' && len(names) > 0:
				end = 0
				if names[0] != "" {
					end = names[0][0]
				}
				names = names[1:]
			default:
				return []string{failPrefix,
					fmt.Sprintf("read: -%c: there are -r and -d DELIMITER", flag)}
			}
		}
	}
	if len(names) == 0 {
		return []string{failPrefix, "read: which variable?"}
	}
	for _, name := range names {
		if !syntax.ValidName(name) {
			return []string{failPrefix, fmt.Sprintf("read: %q is no name of a variable", name)}
		}
	}
	line, found := readLine(hc.Stdin, raw, end)
	ifs := " \t\n"
	if v := hc.Env.Get("IFS"); v.IsSet() {
		ifs = v.Str
	}
	var a assignments
	if !found {
		a.code = 1
	}
	for i, name := range names {
		var value []letter
		if i < len(names)-1 {
			value, line = nextField(line, ifs)
		} else {
			value = lastField(line, ifs)
		}
		var text []byte
		for _, l := range value {
			text = append(text, l.b)
		}
		a.set(name, string(text))
	}
	return a.command()
}

// letter is a byte of a line; quoted is true if a backslash quoted it.
type letter struct {
	b      byte
	quoted bool
}

func (l letter) in(set string) bool { return !l.quoted && strings.IndexByte(set, l.b) >= 0 }

// readLine reads up to and including the delimiter end, and not a byte further. It reports whether
// the delimiter was found. NUL bytes are dropped, since variables cannot hold them.
func readLine(r io.Reader, raw bool, end byte) ([]letter, bool) {
	var line []letter
	if r == nil {
		return nil, false
	}
	quoted := false
	for {
		var b [1]byte
		if n, err := r.Read(b[:]); n == 0 {
			if err == nil {
				continue
			}
			return line, false
		}
		switch {
		case quoted && b[0] == '\n':
			quoted = false
		case quoted:
			line = append(line, letter{b[0], true})
			quoted = false
		case b[0] == end:
			return line, true
		case b[0] == '\\' && !raw:
			quoted = true
		case b[0] != 0:
			line = append(line, letter{b: b[0]})
		}
	}
}

// blanks returns the blanks in IFS. Several blanks, and blanks around another separator, count as
// one separator.
func blanks(ifs string) string {
	return strings.Map(func(r rune) rune {
		if r == ' ' || r == '\t' || r == '\n' {
			return r
		}
		return -1
	}, ifs)
}

func trimLeft(line []letter, set string) []letter {
	for len(line) > 0 && line[0].in(set) {
		line = line[1:]
	}
	return line
}

func nextField(line []letter, ifs string) (field, rest []letter) {
	line = trimLeft(line, blanks(ifs))
	n := 0
	for n < len(line) && !line[n].in(ifs) {
		n++
	}
	field, rest = line[:n], trimLeft(line[n:], blanks(ifs))
	if len(rest) > 0 && rest[0].in(ifs) {
		rest = trimLeft(rest[1:], blanks(ifs))
	}
	return field, rest
}

// lastField returns the rest of the line without blanks around it. If it is a single field, the
// separator at its end is removed too.
func lastField(line []letter, ifs string) []letter {
	line = trimLeft(line, blanks(ifs))
	for len(line) > 0 && line[len(line)-1].in(blanks(ifs)) {
		line = line[:len(line)-1]
	}
	if field, rest := nextField(line, ifs); len(rest) == 0 {
		return field
	}
	return line
}

// getopts implements the builtin. Its position within an argument is kept in a variable of the
// script (shell.GetoptsState), so that a subshell has its own.
func getopts(ctx context.Context, args []string) []string {
	hc := interp.HandlerCtx(ctx)
	if len(args) < 3 || !syntax.ValidName(args[2]) {
		return []string{failPrefix, "getopts: usage: getopts OPTIONS NAME [ARG...]"}
	}
	options, name, words := args[1], args[2], args[3:]
	silent := strings.HasPrefix(options, ":")
	index, err := strconv.Atoi(hc.Env.Get("OPTIND").Str)
	if err != nil || index < 1 {
		index = 1
	}
	within := 0
	if at, rest, ok := strings.Cut(hc.Env.Get(shell.GetoptsState).Str, ":"); ok &&
		at == strconv.Itoa(index) {
		// Atoi returns 0 if a script wrote something else.
		within, _ = strconv.Atoi(rest)
	}
	var a assignments
	done := func(next int) []string {
		a.set("OPTIND", strconv.Itoa(next))
		a.unset("OPTARG")
		a.set(shell.GetoptsState, "")
		a.set(name, "?")
		a.code = 1
		return a.command()
	}
	if index > len(words) {
		return done(len(words) + 1)
	}
	word := words[index-1]
	if within < 1 || within >= len(word) {
		if len(word) < 2 || word[0] != '-' {
			return done(index)
		}
		if word == "--" {
			return done(index + 1)
		}
		within = 1
	}
	option := word[within : within+1]
	within++
	next, rest := index, word[within:]
	if rest == "" {
		next, within = index+1, 0
	}
	at := strings.Index(strings.TrimPrefix(options, ":"), option)
	value, has, bad := "", false, ""
	switch known := strings.TrimPrefix(options, ":"); {
	case at < 0 || option == ":":
		bad = "no such option"
	case at+1 < len(known) && known[at+1] == ':':
		switch {
		case rest != "":
			value, has, next, within = rest, true, index+1, 0
		case index < len(words):
			value, has, next, within = words[index], true, index+2, 0
		default:
			bad = "the option needs an argument"
		}
	}
	switch {
	case bad == "":
		a.set(name, option)
	case silent:
		value, has = option, true
		a.set(name, map[bool]string{true: "?", false: ":"}[at < 0 || option == ":"])
	default:
		fmt.Fprintf(hc.Stderr, "sh: -%s: %s\n", option, bad)
		a.set(name, "?")
	}
	if has {
		a.set("OPTARG", value)
	} else {
		a.unset("OPTARG")
	}
	a.set("OPTIND", strconv.Itoa(next))
	a.set(shell.GetoptsState, fmt.Sprintf("%d:%d", next, within))
	return a.command()
}

// plainPrintf reports whether the interpreter's printf supports these arguments. It has neither
// precision nor floating point, and takes an invalid number for zero.
func plainPrintf(args []string) bool {
	format, numbers := args[0], false
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			continue
		}
		for i++; i < len(format) && strings.IndexByte("0123456789-", format[i]) >= 0; i++ {
		}
		if i == len(format) || strings.IndexByte("%sdiuoxXcb", format[i]) < 0 {
			return false
		}
		numbers = numbers || strings.IndexByte("diuoxX", format[i]) >= 0
	}
	if !numbers {
		return true
	}
	for _, a := range args[1:] {
		digits := strings.TrimPrefix(a, "-")
		if digits == "" || len(digits) > 15 || digits[0] == '0' && digits != "0" ||
			strings.Trim(digits, "0123456789") != "" {
			return false
		}
	}
	return true
}
