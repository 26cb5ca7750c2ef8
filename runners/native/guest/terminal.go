package guest

import (
	"io"
	"os"
	"sync"
	"syscall"

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

// drain kills the processes that the program has left, which would keep the terminal open, and
// copies the output until then.
func (t *terminal) drain() {
	_ = syscall.Kill(-1, syscall.SIGKILL) // everybody but process 1
	t.slave.Close()
	t.out.Wait()
}
