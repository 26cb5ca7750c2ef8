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

// A terminal is one of the jail's own, with process 1 before it and the program behind it. The caller's terminal never comes near: what connects the two
// are bytes in pipes, and a size.
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

// carry carries what is typed and shown, and sizes.
func (t *terminal) carry(sizes Sizes) {
	go func() {
		_, _ = io.Copy(struct{ io.Writer }{t.master}, struct{ io.Reader }{os.Stdin}) // nothing more is typed
	}()
	t.out.Go(func() {
		_, _ = io.Copy(struct{ io.Writer }{os.Stdout}, struct{ io.Reader }{t.master}) // ends with EIO, when nobody is behind it any more
	})
	go func() {
		for {
			size, err := sizes()
			if err != nil {
				return
			}
			_ = sys.SetTerminalSize(t.master, size.Rows, size.Columns) // one that cannot be had is none
		}
	}()
}

// drain ends what the program has left behind, which would keep the terminal open, and carries what was shown until then.
func (t *terminal) drain() {
	_ = syscall.Kill(-1, syscall.SIGKILL) // everybody but process 1
	t.slave.Close()
	t.out.Wait()
}
