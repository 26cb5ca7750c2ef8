// Package guest interprets a shell script inside a jail. There is no shell program and no other
// process: every simple command is an instance of a WebAssembly module, run by runners/wasi/guest
// on the streams of the script, and the files of the script itself (redirects, globs, tests) are
// opened in the same view of the file system as the tools have.
//
// The interpreter is mvdan.cc/sh. Like the WebAssembly engine, it is not trusted: it runs behind
// all layers of the jail.
package guest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/interp"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/shell"
	wasi "github.com/jail-sandbox/jail/runners/wasi/guest"
)

// Exit codes of commands that did not run, and of scripts that the shell ended, as POSIX has them.
const (
	exitFailed   = 1
	exitUsage    = 2
	exitRefused  = 126
	exitNotFound = 127
)

// Run interprets the order's script and returns its report. It does not close the streams. An error
// means that the script did not run, or that the runner failed: the script's own failures are exit
// codes.
func Run(ctx context.Context, order runners.Order, modules [][]byte, stdin, stdout,
	stderr *os.File) (runners.Report, error) {
	script, err := shell.Parse(order.Script.Name, order.Script.Text)
	if err != nil {
		return runners.Report{}, err
	}
	start := time.Now()
	tools := newTools(order, modules)
	defer tools.close()
	files, err := newFiles(order.Invocation, tools)
	if err != nil {
		return runners.Report{}, err
	}
	defer files.close()
	if err := wasi.CheckCwd(files.view, order.Invocation.Cwd); err != nil {
		return runners.Report{}, err
	}
	tools.files, tools.functions = files, script.Functions()
	r, err := newRunner(order, tools, files, stdin, stdout, stderr)
	if err != nil {
		return runners.Report{}, err
	}
	code := ending(r.Run(ctx, script.File()), stderr)
	err = tools.tally.fault()
	rep := tools.tally.report()
	rep.ExitCode = code
	rep.Usage.RunNanos = int64(time.Since(start)) - rep.Usage.LoadNanos
	return rep, err
}

func newRunner(order runners.Order, t *tools, f *files, stdin, stdout,
	stderr *os.File) (*interp.Runner, error) {
	dir := cmp.Or(order.Invocation.Cwd, "/")
	r, err := interp.New(
		// Not interp.Dir, which would look for the directory outside the view.
		func(r *interp.Runner) error {
			r.Dir = dir
			return nil
		},
		interp.Env(expand.ListEnviron(order.Invocation.Env...)),
		interp.StdIO(stdin, stdout, stderr),
		interp.CallHandler(t.before),
		interp.ExecHandlers(func(interp.ExecHandlerFunc) interp.ExecHandlerFunc { return t.exec }),
		interp.OpenHandler(f.open),
		interp.ReadDirHandler2(f.readDir),
		interp.StatHandler(f.stat),
		interp.AccessHandler(f.access),
	)
	if err != nil {
		return nil, err
	}
	return r, interp.Params(append([]string{"--"}, order.Script.Params...)...)(r)
}

// before is called before every simple command and returns the arguments to run instead. An
// unsupported builtin whose name came from an expansion ends the script with a *refusedError.
func (t *tools) before(ctx context.Context, args []string) ([]string, error) {
	name := args[0]
	if name == "command" && len(args) > 1 {
		name = args[1]
	}
	if why := shell.Unsupported(name); why != "" && !t.functions[name] {
		return nil, &refusedError{interp.HandlerCtx(ctx).Pos.String(), name, why}
	}
	if len(args) == 3 && name == "printf" {
		if own, err := formatted(args[1], args[2]); own != nil || err != nil {
			return own, err
		}
	}
	if own := t.builtin(ctx, args); own != nil {
		return own, nil
	}
	return args, nil
}

// builtin returns the command that replaces a builtin call, or nil if the interpreter executes it
// itself.
func (t *tools) builtin(ctx context.Context, args []string) []string {
	switch args[0] {
	case "printf":
		if len(args) > 2 && args[1] == "--" {
			args = append([]string{"printf"}, args[2:]...)
		}
		if len(args) > 1 && !plainPrintf(args[1:]) {
			return append([]string{toolPrefix}, args...)
		}
		return args
	case "read":
		return read(ctx, args)
	case "getopts":
		return getopts(ctx, args)
	case "trap":
		return endTrap(args)
	case "set":
		return badSet(args)
	case "test", "[":
		if own := t.test(ctx, args); own != nil {
			return own
		}
	}
	return nil
}

// badSet returns a failing command if set has an unsupported option, else nil. Options that come
// from expansions are not known before.
func badSet(args []string) []string {
	for i, a := range args[1:] {
		named := i > 0 && len(args[i]) > 1 && args[i][len(args[i])-1] == 'o'
		if a == "--" || a == "-" || a == "" || a[0] != '-' && a[0] != '+' && !named {
			break
		}
		if why := shell.BadOption(a); why != "" {
			return []string{failPrefix, "set: " + runners.Printable(a, 100) + ": " + why}
		}
	}
	return nil
}

// Commands that no script can name, since no name has a NUL byte. toolPrefix runs the following
// arguments as a tool, even if a builtin has that name; failPrefix prints the error of a builtin.
const (
	toolPrefix = "\x00tool"
	failPrefix = "\x00fail"
)

// endTrap replaces the condition 0 by its name EXIT.
func endTrap(args []string) []string {
	args = slices.Clone(args)
	for i := range args {
		if i > 1 && args[i] == "0" {
			args[i] = "EXIT"
		}
	}
	return args
}

type refusedError struct{ pos, name, why string }

func (e *refusedError) Error() string { return fmt.Sprintf("%s: %s: %s", e.pos, e.name, e.why) }

// ending returns the exit code of a script whose interpreter returned err. It writes errors that
// the interpreter has not printed to stderr.
func ending(err error, stderr *os.File) int {
	var status interp.ExitStatus
	var refused *refusedError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &refused):
		// An error means that nobody reads stderr any more.
		_, _ = fmt.Fprintf(stderr, "sh: %v\n", refused)
		return exitRefused
	case errors.As(err, &status):
		return int(status)
	}
	_, _ = fmt.Fprintf(stderr, "sh: %s\n", strings.TrimPrefix(err.Error(), "sh: "))
	return exitFailed
}
