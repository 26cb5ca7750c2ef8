// Package cli has the environment of jail's commands: streams, variables, and the connection to a
// daemon.
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

// Env is what a command uses of its process. Tests replace it.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Environ holds the environment variables, each as NAME=VALUE.
	Environ []string
	// Exe is the path of this program. jaild and the other programs are in its directory.
	Exe string
	// Config has the locations of the daemon, the policies, the log and the bundles.
	Config config.Config
}

// Getenv returns the last value of an environment variable, or "" if it is not set.
func (env *Env) Getenv(name string) string {
	for i := len(env.Environ) - 1; i >= 0; i-- {
		if value, ok := strings.CutPrefix(env.Environ[i], name+"="); ok {
			return value
		}
	}
	return ""
}

// Exit prints err to standard error and returns the exit code. All exit codes come from here.
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

// Print writes a command's result to standard output. write need not check errors: the buffer keeps
// the first one, which Print returns.
func (env *Env) Print(write func(w io.Writer)) error {
	return env.Stream(func(w io.Writer) error {
		write(w)
		return nil
	})
}

// Stream is Print for a long result or one that can fail: it also returns the error of write.
func (env *Env) Stream(write func(w io.Writer) error) error {
	out := bufio.NewWriter(output.Named(env.Stdout, "standard output"))
	if err := write(out); err != nil {
		return errors.Join(err, out.Flush())
	}
	return out.Flush()
}

// StreamAtOnce is Stream without a buffer, for output that is followed live.
func (env *Env) StreamAtOnce(write func(w io.Writer) error) error {
	return write(output.Named(env.Stdout, "standard output"))
}

// PrintJSON writes a value as indented JSON.
func (env *Env) PrintJSON(v any) error {
	return env.Stream(func(w io.Writer) error { return output.WriteJSON(w, v, "  ") })
}

// PrintLine writes a value as one line of JSON.
func (env *Env) PrintLine(v any) error {
	return env.Stream(func(w io.Writer) error { return output.WriteJSON(w, v, "") })
}

// Show writes v as JSON if asJSON is set, else calls text.
func (env *Env) Show(asJSON bool, v any, text func(w io.Writer)) error {
	if asJSON {
		return env.PrintJSON(v)
	}
	return env.Print(text)
}

// Confirm asks a question once. Without a yes (also at the end of the input) it prints "nothing
// was" and done, a past participle, and returns an error with exit code 1.
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

// Colour reports whether standard output is a terminal that may get colours (no-color.org).
func (env *Env) Colour() bool {
	return env.Getenv("NO_COLOR") == "" && env.Getenv("TERM") != "dumb" && terminal.Is(env.Stdout)
}
