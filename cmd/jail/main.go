// Command jail is the command line of jail. It asks a daemon to run tools and shows what they did.
// If no daemon answers, it starts one for itself.
//
// The result of a command goes to standard output. Everything else is a line on standard error that
// begins with "jail: ". An error is one sentence (what, on what, why), followed by a line with a
// hint if there is something to do about it. Only a terminal gets colours. A terminal gets no
// control character from a tool, except in the output of the tool itself.
//
// Each family of commands is a package: run, session, review, policy, audit, tool and service. Code
// that several families share is below internal.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/ended"
	"github.com/jail-sandbox/jail/cmd/jail/internal/execute"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/supervisor/config"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

func main() {
	// net/http logs messages of no use to users.
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
		return env.Exit(problem.New(problem.Layer, ended.NoProc, err).WithHint(ended.NoProcHint))
	}
	exe = beside(exe)
	env.Exe, env.Config = exe, config.Default(exe, env.Getenv).ForCaller(env.Getenv)
	if len(args) == 1 && args[0] == ended.Flag {
		return env.Exit(tellEnded(env))
	}
	root := newRoot(env)
	// nil would mean the arguments of the process.
	root.SetArgs(append([]string{}, args...))
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	return env.Exit(withHint(cmd, err))
}

// beside returns the path of the program jail for the path of this one. Other parts of jail are
// found relative to it: in an installation this program is in libexec/jail.
func beside(exe string) string {
	dir := filepath.Dir(exe)
	if strings.HasSuffix(dir, "/libexec/jail") {
		dir = filepath.Join(dir, "../../bin")
	}
	return filepath.Join(dir, "jail")
}

// tellEnded prints how a run ended that the front carried, from the JSON on descriptor ended.FD.
func tellEnded(env *cli.Env) error {
	in := os.NewFile(ended.FD, "outcome")
	defer in.Close()
	var o ended.Outcome[message.Result]
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return exit.Usage("jail --help", "%s is for jail's own use: %v", ended.Flag, err)
	}
	if f := o.Failure; f != nil {
		return &problem.Error{Code: f.Code, Message: f.Message, Hint: f.Hint}
	}
	return execute.Ended(env, o.Result, execute.Options{Quiet: o.Quiet, Explain: o.Explain})
}

// withHint adds "CMD --help" as the hint to a usage error that has none.
func withHint(cmd *cobra.Command, err error) error {
	if e, ok := errors.AsType[*problem.Error](err); ok && e.Code == problem.Usage && e.Hint == "" {
		e.Hint = cmd.CommandPath() + " --help"
	}
	return err
}
