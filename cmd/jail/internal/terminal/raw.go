package terminal

import (
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/term"

	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/runners"
)

// maxSide bounds the rows and columns of a terminal.
const maxSide = 1<<16 - 1

// A Raw is the caller's terminal in raw mode: all keys are passed on as bytes.
type Raw struct {
	// Sizes receives the size of the terminal after each change.
	Sizes <-chan runners.Terminal
	// Restore restores the former mode. A second call does nothing.
	Restore func() error

	fd   int
	done chan struct{}
}

// OpenRaw puts a terminal into raw mode until Close.
func OpenRaw(in *os.File) (*Raw, error) {
	sizes := make(chan runners.Terminal)
	t := &Raw{Sizes: sizes, fd: int(in.Fd()), done: make(chan struct{})}
	before, err := term.MakeRaw(t.fd)
	if err != nil {
		return nil, exit.Failed(err, "", "the terminal: %v", exit.Cause(err))
	}
	t.Restore = sync.OnceValue(func() error { return term.Restore(t.fd, before) })
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	go t.watch(changed, sizes)
	return t, nil
}

// Close stops watching the size and restores the terminal.
func (t *Raw) Close() error {
	close(t.done)
	return t.Restore()
}

// watch sends the size of the terminal after each SIGWINCH.
func (t *Raw) watch(changed chan os.Signal, sizes chan<- runners.Terminal) {
	defer signal.Stop(changed)
	for {
		select {
		case <-changed:
		case <-t.done:
			return
		}
		select {
		case sizes <- t.Size():
		case <-t.done:
			return
		}
	}
}

// Size returns the size of the terminal, or 24 rows of 80 columns if it is unknown.
func (t *Raw) Size() runners.Terminal {
	columns, rows, err := term.GetSize(t.fd)
	if err != nil || columns < 1 || rows < 1 || columns > maxSide || rows > maxSide {
		return runners.Terminal{Rows: 24, Columns: 80}
	}
	return runners.Terminal{Rows: uint16(rows), Columns: uint16(columns)}
}
