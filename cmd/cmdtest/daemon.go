package cmdtest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/jail/asuser"
	"github.com/jail-sandbox/jail/supervisor/api"
)

// Stranger is a user that the host does not know.
const Stranger = 12345

// As makes a command that user's.
func As(cmd *exec.Cmd, uid uint32) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return cmd
}

// A daemon is a shared jaild on a socket.
type SharedDaemon struct {
	H      *Host
	Cmd    *exec.Cmd
	Socket string
	Err    bytes.Buffer
	// Logs is a part of the log that the test expects; without one the daemon logs nothing.
	Logs string
}

// Daemon starts a shared jaild and returns when it answers. Commands of the host find it.
func (h *Host) Daemon() *SharedDaemon {
	h.T.Helper()
	return DaemonWith(h, nil)
}

// DaemonWith is daemon, with what it says going to log.
func DaemonWith(h *Host, log io.Writer) *SharedDaemon {
	h.T.Helper()
	// It may live as long as the test.
	return DaemonOf(h, exec.Command(filepath.Join(h.Bin, "jaild")), log)
}

// DaemonOf is DaemonWith of a command that becomes jaild.
func DaemonOf(h *Host, cmd *exec.Cmd, log io.Writer) *SharedDaemon {
	h.T.Helper()
	d := &SharedDaemon{H: h, Cmd: cmd, Socket: filepath.Join(h.State, "jail.sock")}
	d.Cmd.Dir, d.Cmd.Env, d.Cmd.Stderr = h.Work, h.Env, &d.Err
	if log != nil {
		d.Cmd.Stderr = log
	}
	if err := d.Cmd.Start(); err != nil {
		h.T.Fatal(err)
	}
	h.Daemons[d.Cmd.Process.Pid] = true
	h.T.Cleanup(func() {
		switch {
		case d.Cmd.ProcessState != nil:
		case h.T.Failed():
			d.Kill()
			h.T.Logf("a daemon ended with %v and said: %s", d.Cmd.ProcessState, d.Err.String())
		default:
			d.Stop()
		}
	})
	Eventually(h.T, "the daemon answers", func() bool {
		c, err := net.Dial("unix", d.Socket)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return d
}

// Admit lets every user connect.
func (d *SharedDaemon) Admit() {
	d.H.T.Helper()
	c, err := api.Dial(d.H.T.Context(), d.Socket)
	if err != nil {
		d.H.T.Fatal(err)
	}
	defer c.Close()
	// From here on it leaves the socket's mode alone.
	if _, err := c.Version(d.H.T.Context()); err != nil {
		d.H.T.Fatal(err)
	}
	if err := os.Chmod(d.Socket, 0o666); err != nil {
		d.H.T.Fatal(err)
	}
}

// Stop ends the daemon as a service manager does.
func (d *SharedDaemon) Stop() {
	d.H.T.Helper()
	delete(d.H.Daemons, d.Cmd.Process.Pid)
	err := errors.Join(d.Cmd.Process.Signal(syscall.SIGTERM), d.Cmd.Wait())
	asExpected := d.Err.Len() == 0
	if d.Logs != "" {
		asExpected = strings.Contains(d.Err.String(), d.Logs)
	}
	if err != nil || !asExpected {
		d.H.T.Errorf("end of jaild: %v: %s", err, d.Err.String())
	}
}

// Kill ends it as nobody should. Its socket is dead when Kill returns: a process that the daemon was
// starting keeps the socket open until it executes its program.
func (d *SharedDaemon) Kill() {
	d.H.T.Helper()
	delete(d.H.Daemons, d.Cmd.Process.Pid)
	d.Cmd.Process.Kill()
	d.Cmd.Wait()
	Eventually(d.H.T, "the socket of the killed daemon is dead", func() bool {
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: d.Socket, Net: "unix"})
		if err != nil {
			return true
		}
		defer c.Close()
		// The kernel names the process that called listen(2) (unix(7), SO_PEERCRED).
		peer, err := asuser.PeerOf(c)
		return err == nil && peer.PID != d.Cmd.Process.Pid
	})
}

// KillWith kills the daemon and others as if at once: the others are stopped first, so that none of
// them sees it end.
func (d *SharedDaemon) KillWith(pids []int) {
	t := d.H.T
	t.Helper()
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	d.Kill()
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
	}
}

// Kill9 ends a process as nothing can refuse.
func Kill9(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatalf("kill %d: %v", pid, err)
	}
}

// KillAll ends processes as nothing can refuse, and returns when they have ended. One may end by
// itself as soon as another one has.
func KillAll(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatalf("kill %d: %v", pid, err)
		}
	}
	Eventually(t, "what was killed has ended", func() bool {
		return !slices.ContainsFunc(pids, func(p int) bool { return !Gone(p) })
	})
}

// Gone reports whether every thread of a process has ended. /proc calls one a zombie as soon as its
// first thread is.
func Gone(pid int) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return errors.Is(err, unix.ESRCH)
	}
	defer unix.Close(fd)
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return err == nil && n == 1
}

// ResidentKiB returns how much memory a process has.
func ResidentKiB(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	if f := strings.Fields(rest); err == nil && len(f) > 0 {
		if n, err := strconv.Atoi(f[0]); err == nil {
			return n
		}
	}
	t.Fatalf("resident size of process %d: %v", pid, err)
	return 0
}
