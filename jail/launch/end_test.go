package launch_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/jailtest"
	"github.com/jail-sandbox/jail/jail/launch"
	"github.com/jail-sandbox/jail/jail/seccomp"
)

// endsWithin waits for the process behind pidfd to end.
func endsWithin(t *testing.T, pidfd int, limit time.Duration) {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for deadline := time.Now().Add(limit); ; {
		n, err := unix.Poll(fds, max(0, int(time.Until(deadline).Milliseconds())))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n != 1 {
			t.Fatalf("the jail still lives after %v (%v)", limit, err)
		}
		return
	}
}

func pidfd(t *testing.T, pid int) int {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// parent returns the parent of a process: of jail-init that is its shim.
func parent(t *testing.T, pid int) int {
	t.Helper()
	l := liveJail{t: t, Jail: &jailtest.Jail{Process: &launch.Process{PID: pid}}}
	var ppid int
	for _, c := range status(l.read("status"))["PPid"] {
		ppid = ppid*10 + int(c-'0')
	}
	return ppid
}

// TestShimKilled kills the shim, as the host's own memory killer could: the jail goes with it, and
// the launcher says so.
func TestShimKilled(t *testing.T) {
	s := jailtest.New(t)
	j := s.Start(t)
	fd, shim := pidfd(t, j.PID), parent(t, j.PID)
	if err := syscall.Kill(shim, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	endsWithin(t, fd, jailtest.Bound(time.Minute))
	if _, err := j.Wait(); err == nil {
		t.Error("the launcher has not seen that the shim was killed")
	}
	j.End()
	// Nobody is left to remove the control group; the daemon does, when it starts or the run ends.
	removeGroup(t, s)
}

// removeGroup removes the control group of a jail whose shim was killed. A process that has ended
// is in the group until the kernel has put it away.
func removeGroup(t *testing.T, s *jailtest.Setup) {
	t.Helper()
	for late := time.Now().Add(jailtest.Bound(time.Minute)); ; time.Sleep(time.Millisecond) {
		err := cgroup.Remove(s.Plan.Cgroup.Path)
		if errors.Is(err, syscall.EBUSY) && time.Now().Before(late) {
			continue
		}
		if err != nil {
			t.Error(err)
		}
		return
	}
}

// TestControlClosed closes the daemon's end, as its death would.
func TestControlClosed(t *testing.T) {
	j := jailtest.New(t).Start(t)
	fd := pidfd(t, j.PID)
	j.End()
	endsWithin(t, fd, 0)
}

func TestKill(t *testing.T) {
	j := jailtest.New(t).Start(t)
	if err := j.Kill(); err != nil {
		t.Fatal(err)
	}
	if got, err := j.Wait(); err != nil || got != (control.Exited{Signal: int(syscall.SIGKILL)}) {
		t.Errorf("ended with %+v, %v", got, err)
	}
}

// inside is set in a copy of the test's program that is process 1 of a namespace of its own.
const inside = "JAIL_TEST_LAUNCH_INSIDE"

// TestKillReachesNoOther kills a jail that has ended, when its number is another process's. It runs
// in a process namespace of its own: on the host others take the number, and keep it, and would get
// numbers again that have just been theirs.
func TestKillReachesNoOther(t *testing.T) {
	jailtest.Require(t)
	if os.Getenv(inside) == "" {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$",
			"-test.v")
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS}
		if out, err := cmd.CombinedOutput(); err != nil ||
			!strings.Contains(string(out), "--- PASS: "+t.Name()) {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("proc", "/proc", "proc", 0, "")); err != nil {
		t.Fatal(err)
	}
	j := jailtest.New(t).Start(t)
	if err := j.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Wait(); err != nil {
		t.Fatal(err)
	}
	for range 1000 { // threads of this process take numbers, too
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(j.PID-1)),
			0); err != nil {
			t.Fatal(err)
		}
		other := exec.Command("sleep", "600")
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		same := other.Process.Pid == j.PID
		killed := j.Kill()
		err := other.Process.Kill()
		_ = other.Wait() // it was killed
		if same {
			if !errors.Is(killed, syscall.ESRCH) || err != nil {
				t.Errorf("to kill the jail: %v; the other then: %v", killed, err)
			}
			return
		}
	}
	t.Error("no other process got the number")
}

// TestExit lets the probe end by itself when its socket closes.
func TestExit(t *testing.T) {
	j := jailtest.New(t).Start(t)
	if _, err := j.Try(do("getpid")); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Try(do("=exit", i(7))); err == nil {
		t.Fatal("it lives on")
	}
	if got, err := j.Wait(); err != nil || got != (control.Exited{Code: 7}) {
		t.Errorf("ended with %+v, %v", got, err)
	}
}

// TestCannotStart breaks one thing at a time: there is an error that says which, nothing runs, and
// nothing is left (T-061, T-085).
func TestCannotStart(t *testing.T) {
	for _, c := range []struct {
		name string
		// "" where the error is not of a layer
		layer string
		says  string
		spoil func(s *jailtest.Setup)
	}{
		{"no shim", "", "no such file",
			func(s *jailtest.Setup) { s.Launcher.Shim = filepath.Join(s.RunDir, "none") }},
		{"a shim that ends at once", "", "jail-shim",
			func(s *jailtest.Setup) { s.Launcher.Shim = "/bin/true" }},
		{"no init", "mount", "no such file",
			func(s *jailtest.Setup) { s.Launcher.Init = filepath.Join(s.RunDir, "none") }},
		{"an init that is no program", "namespaces", "exec",
			func(s *jailtest.Setup) { s.Launcher.Init = filepath.Join(s.Data, "f") }},
		{"an unknown namespace", "plan", "namespace",
			func(s *jailtest.Setup) { s.Plan.Namespaces = append(s.Plan.Namespaces, "moon") }},
		{"no user namespace", "container", "user namespace",
			func(s *jailtest.Setup) { s.Plan.Namespaces = s.Plan.Namespaces[1:] }},
		{"an unknown system call in the inner filter", "seccomp", "moonwalk",
			func(s *jailtest.Setup) { allow(&s.Plan.InnerFilter, []string{"moonwalk"}) }},
		{"an unknown system call in the outer filter", "plan", "moonwalk",
			func(s *jailtest.Setup) { allow(&s.Plan.OuterFilter, []string{"moonwalk"}) }},
		{"an outer filter that allows nothing", "namespaces", "",
			func(s *jailtest.Setup) {
				s.Plan.OuterFilter.Allow = nil
				s.Plan.OuterFilter.Only = nil
			}},
		{"an unknown device", "mount", "device",
			func(s *jailtest.Setup) { s.Plan.Devices = append(s.Plan.Devices, "kvm") }},
		{"a tmpfs in the place of proc", "namespaces", "procfs",
			func(s *jailtest.Setup) { s.Plan.Mounts[0].Kind = jail.MountTmpfs }},
		{"an empty id map", "user namespace", "", func(s *jailtest.Setup) { s.Plan.IDs.Size = 0 }},
		{"less memory than anything needs", "namespaces", "",
			func(s *jailtest.Setup) { s.Plan.Cgroup.Memory = 4096 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := jailtest.New(t)
			c.spoil(s)
			j, err := s.TryStart(t)
			if err == nil {
				t.Fatalf("it started, as %d", j.PID)
			}
			layer := (*launch.LayerError)(nil)
			if errors.As(err, &layer) != (c.layer != "") || layer != nil &&
				layer.Layer != c.layer || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want one of layer %q that says %q\nstderr: %s", err, c.layer,
					c.says, j.Stderr())
			}
		})
	}
}

// TestCannotMapOwners binds a file system that knows nothing of mapped owners: what could be
// written to is refused in words that help, and what is only read is there.
func TestCannotMapOwners(t *testing.T) {
	for _, write := range []bool{true, false} {
		s := jailtest.New(t)
		mountRamfs(t, s.Store)
		for n := range s.Plan.Mounts {
			if s.Plan.Mounts[n].Target == "/store" {
				s.Plan.Mounts[n].Write = write
			}
		}
		j, err := s.TryStart(t)
		if layer := (*launch.LayerError)(nil); write && (!errors.As(err, &layer) ||
			layer.Layer != "mount" ||
			!strings.Contains(err.Error(),
				"the file system under /store cannot map owners on this kernel")) {
			t.Errorf("to be written to: %v", err)
		}
		if !write && err != nil {
			t.Errorf("to be read: %v\nstderr: %s", err, j.Stderr())
		}
	}
}

// TestCannotRestrict gives jail-init restrictions that it cannot take: it ends before it has taken
// an order.
func TestCannotRestrict(t *testing.T) {
	for _, c := range []struct {
		name  string
		says  string
		spoil func(s *jailtest.Setup)
	}{
		{"a newer landlock", "the plan needs 99",
			func(s *jailtest.Setup) { s.Plan.Landlock.MinABI = 99 }},
		{"a landlock rule for nothing", "no such file", func(s *jailtest.Setup) {
			s.Plan.Landlock.Rules = append(s.Plan.Landlock.Rules, jail.LandlockRule{Path: "/none"})
		}},
		{"an unknown rlimit", "unknown name",
			func(s *jailtest.Setup) {
				s.Plan.Rlimits = append(s.Plan.Rlimits, jail.Rlimit{Name: "moon"})
			}},
		{"an outer filter without landlock", "landlock",
			func(s *jailtest.Setup) { forbid(&s.Plan.OuterFilter, "landlock_restrict_self") }},
		{"an outer filter without seccomp", "seccomp",
			func(s *jailtest.Setup) { forbid(&s.Plan.OuterFilter, "seccomp") }},
		{"an outer filter without close_range", "close_range",
			func(s *jailtest.Setup) { forbid(&s.Plan.OuterFilter, "close_range") }},
		{"an outer filter without setrlimit", "setrlimit", func(s *jailtest.Setup) {
			forbid(&s.Plan.OuterFilter, "setrlimit")
			forbid(&s.Plan.OuterFilter, "prlimit64")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := jailtest.New(t)
			c.spoil(s)
			j, err := s.TryStart(t)
			// It had ended when its shim came to tell it the rest.
			if err != nil {
				if !strings.Contains(j.Stderr(), c.says) {
					t.Errorf("start: %v, and it said %q; want %q", err, j.Stderr(), c.says)
				}
				return
			}
			if r, err := j.Try(do("getpid")); err == nil {
				t.Fatalf("it took an order: %v", r)
			}
			status, err := j.Wait()
			j.End()
			if err != nil || status.Code == 0 || status.Signal != 0 || !strings.Contains(j.Stderr(),
				c.says) {
				t.Errorf("ended with %+v, %v, and said %q; want %q", status, err, j.Stderr(),
					c.says)
			}
		})
	}
}

func forbid(f *seccomp.Filter, name string) {
	var kept []string
	for _, n := range f.Allow {
		if n != name {
			kept = append(kept, n)
		}
	}
	f.Allow = kept
}

// TestStartCancelled gives up before the jail stands.
func TestStartCancelled(t *testing.T) {
	s := jailtest.New(t)
	// No binds to hand over.
	s.Plan.Mounts = s.Plan.Mounts[:1]
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	p, err := s.Launcher.Start(ctx, control.Order{Plan: s.Plan, RunDir: s.RunDir},
		launch.Stdio{In: null, Out: null, Err: null}, launch.Files{})
	if err == nil {
		p.Release()
		t.Fatal("it started")
	}
}
