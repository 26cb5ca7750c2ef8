package guest

import (
	"io"
	"os"
	"sync"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/internal/sys"
)

// Sizes waits for the next size of the caller's terminal and returns it. An error ends the
// sequence.
type Sizes func() (runners.Terminal, error)

// terminal is a pseudoterminal of the jail between process 1 and the program. Only bytes in pipes
// and the size connect it with the caller's terminal.
type terminal struct {
	master, slave *os.File
	out           sync.WaitGroup
}

func openTerminal(size runners.Terminal) (*terminal, error) {
	master, slave, err := sys.OpenTerminal()
	if err != nil {
		return nil, err
	}
	t := &terminal{master: master, slave: slave}
	if err := sys.SetTerminalSize(master, size.Rows, size.Columns); err != nil {
		master.Close()
		slave.Close()
		return nil, err
	}
	return t, nil
}

// carry copies input, output and sizes between the terminal and the caller.
func (t *terminal) carry(sizes Sizes) {
	go func() {
		// Nothing more is typed.
		_, _ = io.Copy(struct{ io.Writer }{t.master}, struct{ io.Reader }{os.Stdin})
	}()
	t.out.Go(func() {
		// Ends with EIO when no process has the terminal open any more.
		_, _ = io.Copy(struct{ io.Writer }{os.Stdout}, struct{ io.Reader }{t.master})
	})
	go func() {
		for {
			size, err := sizes()
			if err != nil {
				return
			}
			// One that cannot be had is none.
			_ = sys.SetTerminalSize(t.master, size.Rows, size.Columns)
		}
	}()
}

// drain waits until the rest of the output is copied. No other process may have the terminal open.
func (t *terminal) drain() {
	t.slave.Close()
	t.out.Wait()
}
