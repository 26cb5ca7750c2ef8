package launch_test

import (
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/jail/jailtest"
	"github.com/jail-sandbox/jail/jail/seccomp"
)

// short is how long a race runs, and how often something is started in it, unless JAIL_TEST_LONG is
// set.
func short(brief, long int) int {
	if os.Getenv("JAIL_TEST_LONG") != "" {
		return long
	}
	return brief
}

// TestInheritedDescriptors starts a jail from a process full of descriptors that nobody marked to
// be closed (T-001). The control is the shim, to which they go: the test sees them there.
func TestInheritedDescriptors(t *testing.T) {
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	l := listener.(*net.UnixListener)
	socket, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	var leaks []int
	defer func() {
		for _, fd := range leaks {
			unix.Close(fd)
		}
	}()
	for n := range 50 {
		paths := []string{"/", "/sys/fs/cgroup", "/proc/self/ns/net", "/proc/self/ns/mnt",
			"/etc/passwd"}
		fd, err := unix.Open(paths[n%len(paths)], unix.O_RDONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		leaks = append(leaks, fd)
	}
	fd, err := unix.Dup(int(socket.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	leaks = append(leaks, fd)
	live := look(t, jailtest.New(t))
	live.descriptors(t)
	shim := parent(t, live.PID)
	seen := 0
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", shim))
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && slices.Contains([]string{"/", "/sys/fs/cgroup",
			"/etc/passwd"}, to) {
			seen++
		}
	}
	if seen == 0 {
		t.Log("the shim has closed them already")
	}
}

// TestInitBinaryRace tries to write to jail-init by the links of processes, while jails start and
// end (T-002).
func TestInitBinaryRace(t *testing.T) {
	before := digest(t, jailtest.Binary(t, jailtest.Probe))
	s := jailtest.New(t)
	s.WithoutLandlock(t)
	for _, f := range []*seccomp.Filter{&s.Plan.InnerFilter, &s.Plan.OuterFilter} {
		allow(f, []string{"openat"})
	}
	program := digest(t, s.Launcher.Init)
	starts := short(20, 500)
	for range starts {
		j := s.Start(t)
		for _, path := range []string{"/proc/self/exe", "/proc/1/exe", "/run/jail/init"} {
			if r := j.One("=reopen", text(path)); r.Errno != "" {
				t.Fatal(r)
			}
		}
		// In the middle of it.
		j.End()
		fresh(s)
	}
	if digest(t, s.Launcher.Init) != program || digest(t,
		jailtest.Binary(t, jailtest.Probe)) != before {
		t.Error("a jail has written to its own program")
	}
	t.Logf("%d jails", starts)
}

func digest(t *testing.T, path string) [32]byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(content)
}

// TestSwapped starts jails while two threads exchange names in what they bind, by those that
// masking mounts have in container images, for links that lead to the kernel (T-010, T-012). Where
// a jail's mounts go is a tmpfs that nobody else has, so the names are not even looked at.
func TestSwapped(t *testing.T) {
	s := jailtest.New(t)
	links := map[string]string{"dev": "/proc/sys", "proc": "/proc/1",
		"null": "/proc/sys/kernel/core_pattern", "run": "/"}
	for name, to := range links {
		if err := os.Symlink(to, filepath.Join(s.Store, name)); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(s.Store, name+".dir"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	pattern, tableBefore := read(t, "/proc/sys/kernel/core_pattern"), mountPoints(t)
	stop, counts := make(chan struct{}), make(chan int, 2)
	for range 2 {
		go func() {
			swaps := 0
			defer func() { counts <- swaps }()
			for {
				for name := range links {
					select {
					case <-stop:
						return
					default:
					}
					p := filepath.Join(s.Store, name)
					if unix.Renameat2(unix.AT_FDCWD, p, unix.AT_FDCWD, p+".dir",
						unix.RENAME_EXCHANGE) == nil {
						swaps++
					}
				}
			}
		}()
	}
	starts, seenDir, seenLink := 0, 0, 0
	for end := time.Now().Add(time.Duration(short(2, 120)) * time.Second); time.Now().Before(
		end); starts++ {
		j := s.Start(t)
		l := &liveJail{s, j, t}
		j.One("getpid")
		for line := range strings.Lines(l.read("mountinfo")) {
			if point := strings.Fields(line)[4]; strings.HasPrefix(point, "/store/") ||
				strings.HasPrefix(point, "/data/") {
				t.Errorf("a mount went into a bind: %s", line)
			}
		}
		if info, err := os.Lstat(filepath.Join(s.Store, "dev")); err == nil && info.IsDir() {
			seenDir++
		} else {
			seenLink++
		}
		j.End()
		fresh(s)
	}
	close(stop)
	swaps := <-counts + <-counts
	if swaps < 1000 {
		t.Errorf("only %d exchanges of names", swaps)
	}
	if got := read(t, "/proc/sys/kernel/core_pattern"); got != pattern {
		t.Errorf("core_pattern is %q, was %q", got, pattern)
	}
	if got := mountPoints(t); !slices.Equal(got, tableBefore) {
		t.Errorf("mounts of the host: %q, were %q", got, tableBefore)
	}
	t.Logf("%d exchanges of names, %d jails; the name was a directory %d times and a link %d times",
		swaps, starts, seenDir, seenLink)
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// mountPoints are the host's, but for those that other tests make at the same time.
func mountPoints(t *testing.T) []string {
	t.Helper()
	var all []string
	for line := range strings.Lines(read(t, "/proc/self/mountinfo")) {
		if point := strings.Fields(line)[4]; !strings.HasPrefix(point, os.TempDir()) {
			all = append(all, point)
		}
	}
	slices.Sort(all)
	return all
}
