package cmd_test

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

// A terminal is a pseudo-terminal (pty(7)): the test sits before it, programs run behind it.
type terminal struct {
	t      *testing.T
	master *os.File
	slave  *os.File
	before *unix.Termios

	mu    sync.Mutex
	shown bytes.Buffer
	done  chan struct{}
}

// newTerminal opens a pair of a terminal's ends.
func newTerminal(t *testing.T) *terminal {
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
	x := &terminal{t: t, master: master, slave: slave, done: make(chan struct{})}
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

func (x *terminal) read() {
	defer close(x.done)
	// Fd has made the master a blocking descriptor, on which a read would outlive Close.
	fds := []unix.PollFd{{Fd: int32(x.master.Fd()), Events: unix.POLLIN}}
	buf := make([]byte, 4096)
	for {
		if _, err := unix.Poll(fds, 20); err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		if fds[0].Revents&unix.POLLNVAL != 0 {
			return
		}
		if fds[0].Revents&unix.POLLIN == 0 {
			if _, err := x.master.Stat(); err != nil {
				return // closed
			}
			continue
		}
		n, err := x.master.Read(buf)
		x.mu.Lock()
		x.shown.Write(buf[:n])
		x.mu.Unlock()
		// Nobody has it open behind.
		if err != nil && !errors.Is(err, syscall.EIO) {
			return
		}
	}
}

// start runs a command in a session of its own behind the terminal.
func (x *terminal) start(cmd *exec.Cmd) {
	x.t.Helper()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = x.slave, x.slave, x.slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	if err := cmd.Start(); err != nil {
		x.t.Fatal(err)
	}
}

// types writes keys as somebody at the terminal does.
func (x *terminal) types(keys string) {
	x.t.Helper()
	if _, err := x.master.WriteString(keys); err != nil {
		x.t.Fatal(err)
	}
}

// shows waits until text has appeared, and forgets everything up to it.
func (x *terminal) shows(text string) {
	x.t.Helper()
	deadline := time.Now().Add(bound)
	for {
		x.mu.Lock()
		all := x.shown.String()
		if _, rest, ok := strings.Cut(all, text); ok {
			x.shown.Reset()
			x.shown.WriteString(rest)
			x.mu.Unlock()
			return
		}
		x.mu.Unlock()
		if time.Now().After(deadline) {
			x.t.Fatalf("the terminal does not show %q, but %q", text, all)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// wantAsBefore wants the terminal as it was, with nothing typed into it by anybody but the test.
func (x *terminal) wantAsBefore() {
	x.t.Helper()
	after, err := unix.IoctlGetTermios(int(x.slave.Fd()), unix.TCGETS)
	if err != nil || *after != *x.before {
		x.t.Errorf("settings of the terminal %+v, were %+v (%v)", after, x.before, err)
	}
	if n, err := unix.IoctlGetInt(int(x.slave.Fd()), unix.TIOCINQ); err != nil || n != 0 {
		x.t.Errorf("%d bytes wait to be read from the terminal (%v)", n, err)
	}
}

const (
	ctrlC         = "\x03"
	ctrlD         = "\x04"
	ctrlZ         = "\x1a"
	ctrlBackslash = "\x1c"
)

// T-419: keys that make signals end the run, which is on record with the signal's name.
func TestTerminalKeys(t *testing.T) {
	for _, c := range []struct {
		keys, signal string
		code         int
	}{{ctrlC, "SIGINT", 130}, {ctrlBackslash, "SIGQUIT", 131}, {ctrlC + ctrlC, "SIGINT", 130},
		{ctrlD, "", 0}} {
		t.Run(strconv.QuoteToASCII(c.keys), func(t *testing.T) {
			h, x := newHost(t), newTerminal(t)
			cmd := h.command("run", "--id", "victim", "--", h.probe, "lines")
			x.start(cmd)
			x.types("hello\n")
			x.shows("got hello")
			x.types(c.keys)
			if code := h.exitCode(cmd, cmd.Wait()); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			eventually(t, "the end is on record", func() bool {
				return len(h.records("victim", "run.finished")) > 0
			})
			// The second may come while the first is under way, and cut the run off.
			if c.keys == ctrlC+ctrlC {
				if r := h.finished("victim"); r.Signal != "SIGINT" && r.Signal != "SIGKILL" {
					t.Errorf("%+v", r)
				}
			} else if r := h.finished("victim"); r.Signal != c.signal || r.ExitCode != c.code {
				t.Errorf("%+v", r)
			}
			h.wantNothingLeft()
			x.wantAsBefore()
		})
	}
}

// A shell stops the client and continues it; the run goes on as if nothing had been.
func TestTerminalStop(t *testing.T) {
	h, x := newHost(t), newTerminal(t)
	shell := h.program("/bin/bash", "--norc", "--noprofile", "--noediting", "-i")
	shell.Env = append(shell.Env, "PS1=ready> ", "PROBE="+h.probe, "TERM=dumb")
	x.start(shell)
	x.shows("ready> ")
	x.types("jail run --id victim -- $PROBE lines\n")
	x.types("hello\n")
	x.shows("got hello")
	for range 3 {
		x.types(ctrlZ)
		x.shows("Stopped")
		x.shows("ready> ")
		if len(h.records("victim", "run.finished")) > 0 {
			t.Fatal("the run ended when its client was stopped")
		}
		x.types("fg\n")
		// The shell says what it continues.
		x.shows("jail run")
		x.types("again\n")
		x.shows("got again")
	}
	x.types(ctrlD)
	x.shows("ready> ")
	x.types("echo code=$?\n")
	x.shows("code=0")
	x.types("exit 5\n")
	if code := h.exitCode(shell, shell.Wait()); code != 5 {
		t.Errorf("exit code %d of the shell", code)
	}
	if r := h.finished("victim"); r.ExitCode != 0 || r.Signal != "" {
		t.Errorf("%+v", r)
	}
	x.wantAsBefore()
}

// The terminal goes away, as a connection does.
func TestTerminalGone(t *testing.T) {
	h, x := newHost(t), newTerminal(t)
	// Which does not end when its input does.
	cmd := h.command("run", "--id", "victim", "--", h.probe, "hold")
	x.start(cmd)
	x.types("hello\n")
	x.shows("got hello")
	if err := errors.Join(x.slave.Close(), x.master.Close()); err != nil {
		t.Fatal(err)
	}
	if code := h.exitCode(cmd, cmd.Wait()); code != 129 {
		t.Errorf("exit code %d, want 129", code)
	}
	if r := h.finished("victim"); r.Signal != "SIGHUP" {
		t.Errorf("%+v", r)
	}
}
