package guest

import (
	"io"
	"os"
	"sync"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/internal/sys"
)

// Sizes tells the sizes that the caller's terminal takes, until an error.
type Sizes func() (runners.Terminal, error)

// terminal is a terminal of the jail's own, between process 1 and the program. Only bytes in pipes,
// and a size, connect it with the caller's terminal.
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

// carry copies input, output and sizes.
func (t *terminal) carry(sizes Sizes) {
	go func() {
		// Nothing more is typed.
		_, _ = io.Copy(struct{ io.Writer }{t.master}, struct{ io.Reader }{os.Stdin})
	}()
	t.out.Go(func() {
		// Ends with EIO, when nobody is behind it any more.
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

// drain copies the rest of the output. No other process has the terminal any more.
func (t *terminal) drain() {
	t.slave.Close()
	t.out.Wait()
}
