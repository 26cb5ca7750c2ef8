package cmdtest

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A Terminal is a pseudo-terminal (pty(7)): the test sits before it, programs run behind it.
type Terminal struct {
	t      *testing.T
	Master *os.File
	Slave  *os.File
	before *unix.Termios

	Mu    sync.Mutex
	Shown bytes.Buffer
	done  chan struct{}
}

// NewTerminal opens a pair of a terminal's ends.
func NewTerminal(t *testing.T) *Terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err = errors.Join(err,
		unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)); err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	x := &Terminal{t: t, Master: master, Slave: slave, done: make(chan struct{})}
	if x.before, err = unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS); err != nil {
		t.Fatal(err)
	}
	go x.read()
	t.Cleanup(func() {
		slave.Close()
		master.Close()
		<-x.done
	})
	return x
}

func (x *Terminal) read() {
	defer close(x.done)
	// Fd has made the master a blocking descriptor, on which a read would outlive Close.
	fds := []unix.PollFd{{Fd: int32(x.Master.Fd()), Events: unix.POLLIN}}
	buf := make([]byte, 4096)
	for {
		if _, err := unix.Poll(fds, 20); err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		if fds[0].Revents&unix.POLLNVAL != 0 {
			return
		}
		if fds[0].Revents&unix.POLLIN == 0 {
			if _, err := x.Master.Stat(); err != nil {
				return
			}
			continue
		}
		n, err := x.Master.Read(buf)
		x.Mu.Lock()
		x.Shown.Write(buf[:n])
		x.Mu.Unlock()
		// Nobody has it open behind.
		if err != nil && !errors.Is(err, syscall.EIO) {
			return
		}
	}
}

// Start runs a command in a session of its own behind the terminal.
func (x *Terminal) Start(cmd *exec.Cmd) {
	x.t.Helper()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = x.Slave, x.Slave, x.Slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	if err := cmd.Start(); err != nil {
		x.t.Fatal(err)
	}
}

// Types writes keys as somebody at the terminal does.
func (x *Terminal) Types(keys string) {
	x.t.Helper()
	if _, err := x.Master.WriteString(keys); err != nil {
		x.t.Fatal(err)
	}
}

// Shows waits until text has appeared, and forgets everything up to it.
func (x *Terminal) Shows(text string) {
	x.t.Helper()
	deadline := time.Now().Add(Bound)
	for {
		x.Mu.Lock()
		all := x.Shown.String()
		if _, rest, ok := strings.Cut(all, text); ok {
			x.Shown.Reset()
			x.Shown.WriteString(rest)
			x.Mu.Unlock()
			return
		}
		x.Mu.Unlock()
		if time.Now().After(deadline) {
			x.t.Fatalf("the terminal does not show %q, but %q", text, all)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// WantAsBefore wants the terminal as it was, with nothing typed into it by anybody but the test.
func (x *Terminal) WantAsBefore() {
	x.t.Helper()
	after, err := unix.IoctlGetTermios(int(x.Slave.Fd()), unix.TCGETS)
	if err != nil || *after != *x.before {
		x.t.Errorf("settings of the terminal %+v, were %+v (%v)", after, x.before, err)
	}
	if n, err := unix.IoctlGetInt(int(x.Slave.Fd()), unix.TIOCINQ); err != nil || n != 0 {
		x.t.Errorf("%d bytes wait to be read from the terminal (%v)", n, err)
	}
}

const (
	CtrlC         = "\x03"
	CtrlD         = "\x04"
	CtrlZ         = "\x1a"
	CtrlBackslash = "\x1c"
)
