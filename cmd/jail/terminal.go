package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor"
)

// runOnTerminal runs a tool on a terminal of the jail's own, and makes the caller's its screen and keyboard: what is typed goes there byte by byte, and
// means something there and not here. However the tool ends, the caller's terminal is afterwards what it was.
func (a *app) runOnTerminal(ctx context.Context, req supervisor.Request, asJSON, quiet bool) (err error) {
	in, ok := a.stdin.(*os.File)
	switch {
	case asJSON:
		return usage("", "-t and --json contradict each other")
	case !ok || !isTerminal(in) || !isTerminal(a.stdout):
		return usage("without -t the tool reads and writes pipes", "-t needs a terminal on standard input and standard output")
	}
	fd := int(in.Fd())
	size := func() runners.Terminal {
		columns, rows, err := term.GetSize(fd)
		if err != nil || columns < 1 || rows < 1 || columns > maxSide || rows > maxSide {
			return runners.Terminal{Rows: 24, Columns: 80}
		}
		return runners.Terminal{Rows: uint16(rows), Columns: uint16(columns)}
	}
	now := size()
	req.Terminal = &now
	changed, sizes, done := make(chan os.Signal, 1), make(chan runners.Terminal), make(chan struct{})
	signal.Notify(changed, syscall.SIGWINCH)
	defer signal.Stop(changed)
	defer close(done)
	go func() {
		for {
			select {
			case <-changed:
			case <-done:
				return
			}
			select {
			case sizes <- size():
			case <-done:
				return
			}
		}
	}()
	a.sizes = sizes
	before, err := term.MakeRaw(fd)
	if err != nil {
		return failed(err, "", "the terminal: %v", cause(err))
	}
	restored := false
	restore := func() error {
		if restored {
			return nil
		}
		restored = true
		return term.Restore(fd, before)
	}
	a.restore = restore // before anything is said of the result
	defer func() { err = errors.Join(err, restore()) }()
	return a.runTool(ctx, req, false, quiet)
}

// maxSide bounds the size of a terminal, in characters.
const maxSide = 1<<16 - 1
