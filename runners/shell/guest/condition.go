package guest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"mvdan.cc/sh/v3/interp"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/internal/sys"
)

// test evaluates test and [ by the number of arguments, as POSIX does. It returns the command true,
// false or a failing one; nil for tests of one file or descriptor, and for [ without ], which are
// the interpreter's.
func (t *tools) test(ctx context.Context, args []string) []string {
	name, operands := args[0], args[1:]
	if name == "[" {
		if len(operands) == 0 || operands[len(operands)-1] != "]" {
			return nil
		}
		operands = operands[:len(operands)-1]
	}
	is, known, err := t.expression(ctx, operands)
	switch {
	case err != nil:
		return []string{failPrefix, name + ": " + err.Error()}
	case !known:
		return nil
	case is:
		return []string{"true"}
	}
	return []string{"false"}
}

func (t *tools) expression(ctx context.Context, args []string) (is, known bool, err error) {
	not := func(rest []string) (bool, bool, error) {
		is, known, err := t.expression(ctx, rest)
		return !is, known, err
	}
	switch len(args) {
	case 0:
		return false, true, nil
	case 1:
		return args[0] != "", true, nil
	case 2:
		switch args[0] {
		case "!":
			return not(args[1:])
		case "-n":
			return args[1] != "", true, nil
		case "-z":
			return args[1] == "", true, nil
		}
		if len(args[0]) != 2 || args[0][0] != '-' {
			return false, true, fmt.Errorf("%s: no such test",
				strconv.Quote(runners.Printable(args[0], 100)))
		}
		return false, false, nil
	case 3:
		if is, known, err := t.compare(ctx, args[0], args[1], args[2]); known || err != nil {
			return is, known, err
		}
		if args[0] == "!" {
			return not(args[1:])
		}
		if args[0] == "(" && args[2] == ")" {
			return t.expression(ctx, args[1:2])
		}
		return false, true, fmt.Errorf("%s: no such comparison",
			strconv.Quote(runners.Printable(args[1], 100)))
	case 4:
		if args[0] == "!" {
			return not(args[1:])
		}
		if args[0] == "(" && args[3] == ")" {
			return t.expression(ctx, args[1:3])
		}
	}
	return t.longer(ctx, args)
}

// longer evaluates other expressions of four and more arguments: -a binds tighter than -o, !
// tighter than -a, and three words that can be a comparison are one.
func (t *tools) longer(ctx context.Context, args []string) (is, known bool, err error) {
	p := &parser{t: t, ctx: ctx, rest: args}
	is = p.or()
	if p.err == nil && len(p.rest) > 0 {
		p.err = fmt.Errorf("%s: not expected", strconv.Quote(runners.Printable(p.rest[0], 100)))
	}
	return is, true, p.err
}

type parser struct {
	t    *tools
	ctx  context.Context
	rest []string
	err  error
}

func (p *parser) next(word string) bool {
	if len(p.rest) == 0 || p.rest[0] != word {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

func (p *parser) or() bool {
	is := p.and()
	for p.next("-o") {
		is = p.and() || is
	}
	return is
}

func (p *parser) and() bool {
	is := p.not()
	for p.next("-a") {
		is = p.not() && is
	}
	return is
}

func (p *parser) not() bool {
	if p.compares() || !p.next("!") {
		return p.primary()
	}
	return !p.not()
}

func (p *parser) compares() bool { return len(p.rest) > 2 && comparisons[p.rest[1]] }

var comparisons = map[string]bool{"=": true, "!=": true, "<": true, ">": true, "-nt": true,
	"-ot": true, "-ef": true,
	"-eq": true, "-ne": true, "-lt": true, "-le": true, "-gt": true, "-ge": true}

func (p *parser) primary() bool {
	fail := func(err error) bool {
		if p.err == nil {
			p.err = err
		}
		p.rest = nil
		return false
	}
	switch {
	case len(p.rest) == 0:
		return fail(fmt.Errorf("it ends too early"))
	case p.compares():
		is, _, err := p.t.compare(p.ctx, p.rest[0], p.rest[1], p.rest[2])
		if err != nil {
			return fail(err)
		}
		p.rest = p.rest[3:]
		return is
	case p.next("("):
		is := p.or()
		if p.err == nil && !p.next(")") {
			return fail(fmt.Errorf(") is missing"))
		}
		return is
	}
	if len(p.rest) > 1 && len(p.rest[0]) == 2 && p.rest[0][0] == '-' && p.rest[1] != "-a" &&
		p.rest[1] != "-o" {
		is, err := p.t.unary(p.ctx, p.rest[0][1], p.rest[1])
		if err != nil {
			return fail(err)
		}
		p.rest = p.rest[2:]
		return is
	}
	is := p.rest[0] != ""
	p.rest = p.rest[1:]
	return is
}

// fileKinds maps the letter of a file test (-d, -f) to the S_IFMT type for which it is true.
var fileKinds = map[byte]uint32{'b': syscall.S_IFBLK, 'c': syscall.S_IFCHR,
	'd': syscall.S_IFDIR, 'f': syscall.S_IFREG,
	'p': syscall.S_IFIFO, 'S': syscall.S_IFSOCK}

// unary evaluates a test of one operand within a longer expression. Tests that it does not know are
// errors, also -t: only the interpreter knows which descriptors are terminals.
func (t *tools) unary(ctx context.Context, op byte, operand string) (bool, error) {
	if op == 'n' || op == 'z' {
		return (operand == "") == (op == 'z'), nil
	}
	if mode, ok := map[byte]interp.AccessMode{'r': interp.AccessRead, 'w': interp.AccessWrite,
		'x': interp.AccessExec}[op]; ok {
		return operand != "" && t.files.access(ctx, operand, mode) == nil, nil
	}
	const follow, setgid, setuid = true, 0o2000, 0o4000
	if kind, ok := fileKinds[op]; ok {
		st := t.stat(ctx, operand, follow)
		return st != nil && st.Mode&syscall.S_IFMT == kind, nil
	}
	switch op {
	case 'h', 'L':
		st := t.stat(ctx, operand, !follow)
		return st != nil && st.Mode&syscall.S_IFMT == syscall.S_IFLNK, nil
	case 'e':
		return t.stat(ctx, operand, follow) != nil, nil
	case 's':
		st := t.stat(ctx, operand, follow)
		return st != nil && st.Size > 0, nil
	case 'g', 'u':
		st := t.stat(ctx, operand, follow)
		return st != nil && st.Mode&map[byte]uint32{'g': setgid, 'u': setuid}[op] != 0, nil
	}
	return false, fmt.Errorf("-%c within a longer expression: write several, with && and ||", op)
}

func (t *tools) compare(ctx context.Context, a, op, b string) (is, known bool, err error) {
	switch op {
	case "=":
		return a == b, true, nil
	case "!=":
		return a != b, true, nil
	case "<":
		return a < b, true, nil
	case ">":
		return a > b, true, nil
	case "-a":
		return a != "" && b != "", true, nil
	case "-o":
		return a != "" || b != "", true, nil
	case "-nt":
		return t.newer(ctx, a, b), true, nil
	case "-ot":
		return t.newer(ctx, b, a), true, nil
	case "-ef":
		x, y := t.stat(ctx, a, true), t.stat(ctx, b, true)
		return x != nil && y != nil && x.Dev == y.Dev && x.Ino == y.Ino, true, nil
	case "-eq", "-ne", "-lt", "-le", "-gt", "-ge":
		var n [2]int64
		for i, text := range []string{a, b} {
			if n[i], err = strconv.ParseInt(strings.TrimSpace(text), 10, 64); err != nil {
				return false, true, fmt.Errorf("%s: not a number",
					strconv.Quote(runners.Printable(text, 100)))
			}
		}
		return map[string]bool{"-eq": n[0] == n[1], "-ne": n[0] != n[1], "-lt": n[0] < n[1],
			"-le": n[0] <= n[1], "-gt": n[0] > n[1], "-ge": n[0] >= n[1]}[op], true, nil
	}
	return false, false, nil
}

// newer reports whether a exists and b is older or does not exist.
func (t *tools) newer(ctx context.Context, a, b string) bool {
	x, y := t.stat(ctx, a, true), t.stat(ctx, b, true)
	if x == nil || y == nil {
		return x != nil
	}
	return x.Mtim.Nano() > y.Mtim.Nano()
}

func (t *tools) stat(ctx context.Context, name string, follow bool) *sys.Stat {
	if name == "" || strings.Contains(name, "\x00") {
		return nil
	}
	i, err := t.files.stat(ctx, name, follow)
	if err != nil {
		return nil
	}
	st := i.(info).st
	return &st
}
