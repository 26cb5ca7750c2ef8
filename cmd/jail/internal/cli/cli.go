// Package cli holds what every command of jail gets: its streams, its environment, and the way to
// a daemon.
package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/cmd/jail/internal/terminal"
	"github.com/jail-sandbox/jail/supervisor/config"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// Env is what a command gets from the process that it runs in. Tests give their own.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Environ holds the environment variables, each as NAME=VALUE.
	Environ []string
	// Exe is the path of this program, beside which jaild and the other programs are.
	Exe string
	// Config says where the daemon, the policies, the log and the bundles are.
	Config config.Config
}

// Getenv returns the value of an environment variable, "" where it is not set. The last one counts.
func (env *Env) Getenv(name string) string {
	for i := len(env.Environ) - 1; i >= 0; i-- {
		if value, ok := strings.CutPrefix(env.Environ[i], name+"="); ok {
			return value
		}
	}
	return ""
}

// Exit writes what err says to standard error and returns the exit code. No other function makes
// exit codes of errors.
func (env *Env) Exit(err error) int {
	var known *problem.Error
	var c exit.Code
	switch {
	case err == nil:
		return 0
	case errors.As(err, &c) && !errors.As(err, &known):
		return int(c)
	}
	e := exit.Describe(err)
	env.Complain(e)
	return e.Exit()
}

// Complain writes an error and its hint to standard error.
func (env *Env) Complain(e *problem.Error) {
	output.Say(env.Stderr, "error", e.Message)
	output.Say(env.Stderr, "hint", e.Hint)
}

// Print writes the result of a command to standard output. The buffer that write gets keeps the
// first error of the stream, so that write looks at none: Print returns it.
func (env *Env) Print(write func(w io.Writer)) error {
	return env.Stream(func(w io.Writer) error {
		write(w)
		return nil
	})
}

// Stream is Print of a result that is long, or whose parts can fail: it ends with the error of write.
func (env *Env) Stream(write func(w io.Writer) error) error {
	out := bufio.NewWriter(output.Named(env.Stdout, "standard output"))
	if err := write(out); err != nil {
		return errors.Join(err, out.Flush())
	}
	return out.Flush()
}

// StreamAtOnce is Stream without a buffer, for output that somebody follows.
func (env *Env) StreamAtOnce(write func(w io.Writer) error) error {
	return write(output.Named(env.Stdout, "standard output"))
}

// PrintJSON writes one value, indented, for people and programs alike.
func (env *Env) PrintJSON(v any) error {
	return env.Stream(func(w io.Writer) error { return output.WriteJSON(w, v, "  ") })
}

// PrintLine writes one value as JSON on a line of its own.
func (env *Env) PrintLine(v any) error {
	return env.Stream(func(w io.Writer) error { return output.WriteJSON(w, v, "") })
}

// Show writes v as JSON where that was asked for, else as text.
func (env *Env) Show(asJSON bool, v any, text func(w io.Writer)) error {
	if asJSON {
		return env.PrintJSON(v)
	}
	return env.Print(text)
}

// Confirm asks once whether to do something. The end of the input counts as no. Without a yes it
// says that nothing was done, which done names, and returns the error to end with.
func (env *Env) Confirm(done, question string, args ...any) error {
	fmt.Fprintf(env.Stderr, question+" [y,n] ", args...)
	line, err := bufio.NewReader(env.Stdin).ReadString('\n')
	switch answer := strings.ToLower(strings.TrimSpace(line)); {
	case answer == "y" || answer == "yes":
		return nil
	case err != nil && !errors.Is(err, io.EOF):
		return exit.Failed(err, "--yes asks nothing", "standard input: %v", exit.Cause(err))
	case answer == "":
		fmt.Fprintln(env.Stderr)
	}
	fmt.Fprintf(env.Stderr, "nothing was %s\n", done)
	return exit.No
}

// Colour reports whether standard output takes colours, and wants them (no-color.org).
func (env *Env) Colour() bool {
	return env.Getenv("NO_COLOR") == "" && env.Getenv("TERM") != "dumb" && terminal.Is(env.Stdout)
}
