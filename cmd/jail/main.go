// Command jail is how people and scripts speak to jail. It asks a daemon to run tools and shows
// what they did. Where no daemon answers, it starts one for itself.
//
// What a command was asked for goes to standard output. Everything else is a line on standard error
// that begins with "jail: ". An error is one sentence (what, on what, why), and a hint on a line of
// its own where there is something to do about it. Only a terminal gets colours. A terminal gets no
// control character that a tool chose, except in the output of a tool itself.
//
// Each family of commands is a package: run, session, review, policy, audit, tool and service. What
// several families need is below internal, one idea in each package.
package main

import (
	"context"
	"errors"
	"io"
	"log"
	"os"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/supervisor/config"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

func main() {
	// net/http logs what no user can act on.
	log.SetOutput(io.Discard)
	os.Exit(program(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr,
		os.Environ()))
}

// program runs the command line args and returns the exit code.
func program(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer,
	environ []string) int {
	env := &cli.Env{Stdin: stdin, Stdout: stdout, Stderr: stderr, Environ: environ}
	exe, err := os.Executable()
	if err != nil {
		return env.Exit(problem.New(problem.Layer, "layer proc cannot be set up here: %v", err).
			WithHint("mount -t proc proc /proc: jail finds its own programs by it"))
	}
	env.Exe, env.Config = exe, config.Default(exe, env.Getenv).ForCaller(env.Getenv)
	root := newRoot(env)
	// nil would mean the arguments of the process.
	root.SetArgs(append([]string{}, args...))
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	return env.Exit(withHint(cmd, err))
}

// withHint adds "CMD --help" as the hint to an error about wrong usage that has none.
func withHint(cmd *cobra.Command, err error) error {
	var e *problem.Error
	if errors.As(err, &e) && e.Code == problem.Usage && e.Hint == "" {
		e.Hint = cmd.CommandPath() + " --help"
	}
	return err
}
