package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/interp"
)

// Limits of one command line that xargs makes: bytes and number of arguments.
const (
	xargsBytes = 128 << 10
	xargsArgs  = 5000
)

// xargsOptions are the options of xargs: POSIX's, and the common extensions -0 and -r.
type xargsOptions struct {
	// -L: input lines per command, 0 for no limit
	lines int
	// -n: arguments per command, 0 for xargsArgs
	args    int
	replace string // -I
	zero    bool   // -0
	// -r: do not run the command if the input is empty
	empty   bool
	verbose bool // -t
}

const xargsUsage = "usage: xargs [-0rt] [-n ARGS | -L LINES | -I WORD] [COMMAND [ARG...]]"

// xargs makes command lines from its input and runs them like commands of the script. It is a
// builtin because a tool cannot start another tool.
func (t *tools) xargs(ctx context.Context, hc interp.HandlerContext, args []string) error {
	say := func(code uint8, format string, what ...any) error {
		fmt.Fprintf(hc.Stderr, "sh: xargs: %s\n", fmt.Sprintf(format, what...))
		return interp.ExitStatus(code)
	}
	o, command, err := xargsParse(args)
	if err != nil {
		return say(exitFailed, "%v; %s", err, xargsUsage)
	}
	in, _ := hc.Stdin.(*os.File)
	var text []byte
	if in != nil {
		if text, err = io.ReadAll(in); err != nil {
			return say(exitFailed, "%v", err)
		}
	}
	groups, err := o.split(text, command)
	if err != nil {
		return say(exitFailed, "%v", err)
	}
	// The commands do not read xargs' own input.
	hc.Stdin = nil
	var last error
	for _, line := range groups {
		if o.verbose {
			fmt.Fprintln(hc.Stderr, strings.Join(line, " "))
		}
		err := t.command(ctx, hc, line)
		if err == nil {
			continue
		}
		var status interp.ExitStatus
		switch {
		case !errors.As(err, &status):
			return err
		case status == exitRefused, status == exitNotFound:
			return err
		case status == 255:
			return say(124, "%s: ended with 255", line[0])
		}
		last = interp.ExitStatus(123)
	}
	return last
}

func xargsParse(args []string) (o xargsOptions, command []string, err error) {
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		flag := args[0]
		args = args[1:]
		if flag == "--" {
			break
		}
		for i := 1; i < len(flag); i++ {
			switch flag[i] {
			case '0':
				o.zero = true
				continue
			case 'r':
				o.empty = true
				continue
			case 't':
				o.verbose = true
				continue
			case 'n', 'L', 'I':
			default:
				return o, nil, fmt.Errorf("option -%c is not supported", flag[i])
			}
			value := flag[i+1:]
			if value == "" {
				if len(args) == 0 {
					return o, nil, fmt.Errorf("option -%c needs a value", flag[i])
				}
				value, args = args[0], args[1:]
			}
			if err := o.set(flag[i], value); err != nil {
				return o, nil, err
			}
			break
		}
	}
	if len(args) == 0 {
		args = []string{"echo"}
	}
	return o, args, nil
}

func (o *xargsOptions) set(flag byte, value string) error {
	if flag == 'I' {
		o.replace = value
		return nil
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 {
		return fmt.Errorf("-%c %q: want a number from 1", flag, value)
	}
	if flag == 'n' {
		o.args = n
	} else {
		o.lines = n
	}
	return nil
}

// split returns the command lines to run for the input text.
func (o xargsOptions) split(text []byte, command []string) ([][]string, error) {
	lines, err := o.items(text)
	if err != nil {
		return nil, err
	}
	var out [][]string
	if o.replace != "" {
		for _, l := range lines {
			line := make([]string, len(command))
			for i, c := range command {
				line[i] = strings.ReplaceAll(c, o.replace, strings.Join(l, " "))
			}
			out = append(out, line)
		}
		return out, nil
	}
	most := xargsArgs
	if o.args > 0 {
		most = o.args
	}
	current, size, taken := []string{}, 0, 0
	flush := func() {
		if len(current) > 0 {
			out = append(out, append(append([]string{}, command...), current...))
		}
		current, size, taken = nil, 0, 0
	}
	for _, l := range lines {
		for _, a := range l {
			if len(current) == most || size+len(a) > xargsBytes {
				flush()
			}
			current = append(current, a)
			size += len(a) + 1
		}
		if taken++; o.lines > 0 && taken == o.lines {
			flush()
		}
	}
	flush()
	if len(out) == 0 && !o.empty {
		out = append(out, command)
	}
	return out, nil
}

// items returns the arguments of each non-empty line of the input. With -0 or -I the text between
// two separators is one argument.
func (o xargsOptions) items(text []byte) ([][]string, error) {
	if o.zero || o.replace != "" {
		sep := byte('\n')
		if o.zero {
			sep = 0
		}
		var out [][]string
		for _, b := range bytes.Split(bytes.TrimSuffix(text, []byte{sep}), []byte{sep}) {
			item := string(b)
			if o.replace != "" && !o.zero {
				item = strings.TrimLeft(item, " \t")
				if item == "" {
					continue
				}
			}
			if len(text) > 0 {
				out = append(out, []string{item})
			}
		}
		return out, nil
	}
	return xargsWords(string(text))
}

// xargsWords returns the words of each line, split at blanks, with quotes and backslashes as POSIX
// specifies them for xargs. An unterminated quote is an error.
func xargsWords(text string) ([][]string, error) {
	var out [][]string
	var line []string
	var word strings.Builder
	in, quote := false, byte(0)
	end := func() {
		if in {
			line = append(line, word.String())
		}
		word.Reset()
		in = false
	}
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case quote != 0 && c == '\n':
			return nil, fmt.Errorf(
				"a quote %c that does not end on its line; -0 takes everything as it is", quote)
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteByte(c)
		case c == '\'' || c == '"':
			in, quote = true, c
		case c == '\\' && i+1 < len(text):
			i++
			in = true
			word.WriteByte(text[i])
		case c == '\n':
			if end(); len(line) > 0 {
				out = append(out, line)
			}
			line = nil
		case c == ' ' || c == '\t':
			end()
		default:
			in = true
			word.WriteByte(c)
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("a quote %c that does not end; -0 takes everything as it is", quote)
	}
	if end(); len(line) > 0 {
		out = append(out, line)
	}
	return out, nil
}
