package launch_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/jail/jailtest"
	"github.com/jail-sandbox/jail/jail/launch"
)

// TestAhead: a jail gets the shim that was started ahead, once, and a new one where that has been
// killed. Until then the shim has nothing but a socket to its daemon, and nothing is left of it
// when it is not needed.
func TestAhead(t *testing.T) {
	ahead := launch.NewAhead(jailtest.Binary(t, jailtest.Shim))
	defer ahead.Close()
	started := func() int {
		t.Helper()
		s := jailtest.New(t)
		s.Launcher.Ahead = ahead
		j := s.Start(t)
		if _, err := j.Try(do("getpid")); err != nil {
			t.Fatal(err)
		}
		of := parentOf(t, j.PID)
		j.End()
		return of
	}
	if pid := ahead.PID(); pid != 0 {
		t.Errorf("shim %d before any jail", pid)
	}
	first := started()
	next := ahead.PID()
	if next == 0 || next == first {
		t.Fatalf("shim %d is ahead after shim %d", next, first)
	}
	wantNoFiles(t, next)
	if of := started(); of != next {
		t.Errorf("the jail has shim %d, and %d was ahead", of, next)
	}
	killed := ahead.PID()
	if err := syscall.Kill(killed, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	awaitZombie(t, killed)
	if of := started(); of == killed || of == next {
		t.Errorf("the jail has shim %d, which was killed", of)
	}
	last := ahead.PID()
	ahead.Close()
	if err := syscall.Kill(last, 0); err != syscall.ESRCH {
		t.Errorf("shim %d after the end: %v", last, err)
	}
	if started(); ahead.PID() != 0 {
		t.Error("a shim was started after the end")
	}
}

// TestGoneDirectory: a daemon whose working directory was deleted makes jails, and no jail-shim
// keeps the directory in use.
func TestGoneDirectory(t *testing.T) {
	s := jailtest.New(t)
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	j := s.Start(t)
	shim := parentOf(t, j.PID)
	if at, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", shim)); err != nil || at != "/" {
		t.Errorf("jail-shim is in %q, %v", at, err)
	}
	if _, err := j.Try(do("getpid")); err != nil {
		t.Fatal(err)
	}
	j.End()
}

// parentOf returns the parent of a process.
func parentOf(t *testing.T, pid int) (parent int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\nPPid:")
	if _, err := fmt.Sscan(rest, &parent); err != nil {
		t.Fatal(err)
	}
	return parent
}

// wantNoFiles wants a shim that waits for its order to have a socket, /dev/null and what the Go
// runtime waits with.
func wantNoFiles(t *testing.T, pid int) {
	t.Helper()
	sockets := 0
	for fd, to := range awaitPolling(t, pid) {
		switch mine, _ := os.Readlink("/proc/self/fd/" + filepath.Base(fd)); {
		case mine == to && strings.HasPrefix(to, "pipe:"):
			// What started the tests has left it to every process.
		case strings.HasPrefix(to, "socket:"):
			sockets++
		case to == os.DevNull, strings.HasPrefix(to, "anon_inode:[event"), to == "":
		default:
			t.Errorf("a shim without an order has %s: %s", fd, to)
		}
	}
	if sockets != 1 {
		t.Errorf("a shim without an order has %d sockets", sockets)
	}
}

// awaitPolling returns the descriptors of a shim, with what they lead to, once it polls its socket.
// Until then it may have files open that the start of any program reads.
func awaitPolling(t *testing.T, pid int) map[string]string {
	t.Helper()
	for {
		fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		if err != nil || len(fds) == 0 {
			t.Fatalf("descriptors of %d: %v", pid, err)
		}
		all := map[string]string{}
		for _, fd := range fds {
			all[fd], _ = os.Readlink(fd)
		}
		if slices.Contains(slices.Collect(maps.Values(all)), "anon_inode:[eventpoll]") {
			return all
		}
		runtime.Gosched()
	}
}

// awaitZombie waits until a child of this process has ended.
func awaitZombie(t *testing.T, pid int) {
	t.Helper()
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err == nil {
			return
		}
		if err != unix.EINTR {
			t.Fatal(err)
		}
	}
}
