// Command jail is how people and scripts speak to jail: it asks a daemon, or one that it starts for itself, to run tools, and shows what they did.
//
// Its voice: what a command was asked for goes to standard output; everything else is a line on standard error that begins with "jail: ".
// An error is one sentence (what, which, why) and, where there is something to do about it, a hint on a line of its own. Nothing is
// coloured but on a terminal, and nothing that a tool chose reaches a terminal with its control characters, but for the output of
// `jail run`, which is the tool's own.
package main

import (
	"context"
	"io"
	"log"
	"os"
	"strings"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor"
)

func main() {
	log.SetOutput(io.Discard) // net/http's words are nobody's
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ()))
}

// app is what every command knows.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	environ        []string
	exe            string
	config         supervisor.Config

	// Of a run on a terminal: its sizes, and what gives the caller's back when the tool has ended.
	sizes   <-chan runners.Terminal
	restore func() error

	session string // that the tool is run in, or "": in a jail of its own
}

// run is the whole program. It returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, environ []string) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, environ: environ}
	exe, err := os.Executable()
	if err != nil {
		return a.exit(&supervisor.Error{Code: supervisor.CodeLayer, Message: "layer proc cannot be set up here: " + err.Error(), Hint: "mount -t proc proc /proc: jail finds its own programs by it"})
	}
	a.exe, a.config = exe, supervisor.Default(exe, a.getenv).ForCaller(a.getenv)
	root := a.root()
	root.SetArgs(append([]string{}, args...)) // never nil, which would mean those of the process
	root.SetOut(stdout)
	root.SetErr(stderr)
	return a.exit(root.ExecuteContext(ctx))
}

func (a *app) getenv(name string) string {
	for i := len(a.environ) - 1; i >= 0; i-- {
		if value, ok := strings.CutPrefix(a.environ[i], name+"="); ok {
			return value
		}
	}
	return ""
}
