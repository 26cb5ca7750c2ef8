package sys

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// IsTerminal reports whether fd is a terminal.
func IsTerminal(fd int) bool {
	_, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	return err == nil
}

// OpenTerminal makes a new terminal of the devpts at /dev/pts and returns both of its ends,
// close-on-exec (pty(7)). Opening it makes it nobody's controlling terminal.
func OpenTerminal() (master, slave *os.File, err error) {
	const multiplexer = "/dev/pts/ptmx"
	var fd int
	err = retry(func() (err error) {
		fd, err = unix.Open(multiplexer, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK,
			0)
		return err
	})
	if err != nil {
		return nil, nil, wrap("open", multiplexer, err)
	}
	master = os.NewFile(uintptr(fd), multiplexer)
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		master.Close()
		return nil, nil, wrap("open terminal", multiplexer, err)
	}
	return master, slave, nil
}

// SetTerminalSize sets the size of a terminal in characters; the kernel signals the programs on it.
func SetTerminalSize(f *os.File, rows, columns uint16) error {
	return wrap("ioctl TIOCSWINSZ", f.Name(), control(f, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
	}))
}

// CloseWrite ends the sending side of a socket; the other side can still be read.
func CloseWrite(f *os.File) error {
	return control(f, func(fd int) error { return Shutdown(fd, unix.SHUT_WR) })
}

// control calls do with the descriptor of f, which stays open meanwhile and as it is.
func control(f *os.File, do func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var done error
	if err := raw.Control(func(fd uintptr) { done = do(int(fd)) }); err != nil {
		return err
	}
	return done
}
