package launch_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/jailtest"
	"github.com/jail-sandbox/jail/jail/seccomp"
)

// inMachine are the files of proc that a jail with a machine of its own has.
var inMachine = []string{"/proc/cpuinfo", "/proc/loadavg", "/proc/meminfo", "/proc/stat",
	"/proc/uptime"}

// showMachine gives a jail what those of programs of the host have, with these files of proc.
func showMachine(s *jailtest.Setup, inProc []string) {
	for _, target := range append(slices.Clone(inProc), "/sys") {
		s.Plan.Mounts = append(s.Plan.Mounts, jail.Mount{Kind: jail.MountMachine, Target: target})
	}
	s.Plan.Landlock.Rules = append(s.Plan.Landlock.Rules, jail.LandlockRule{Path: "/sys"})
}

// TestMachine: a jail with a machine of its own has files of the jail's own for it, which cannot be
// written to, and nothing else of the kernel's: no other sensitive path, by whatever call, with
// Landlock and without (T-017). The control is the host, whose files say something else, and
// /proc/mounts, which is there because somebody holds its name.
func TestMachine(t *testing.T) {
	if jailtest.ProcFixed(t) {
		// TestMachineProcFixed tests what jails have here.
		s := jailtest.New(t)
		showMachine(s, inMachine)
		if _, err := s.TryStart(t); err == nil || !strings.Contains(err.Error(), "reconfigure") {
			t.Errorf("start: %v", err)
		}
		return
	}
	testMachine(t, inMachine)
}

// TestMachineProcFixed: so has one on a kernel that narrows no mounted proc, but in proc there are
// processes only.
func TestMachineProcFixed(t *testing.T) { testMachine(t, nil) }

func testMachine(t *testing.T, inMachine []string) {
	t.Helper()
	for _, strip := range []bool{false, true} {
		s := jailtest.New(t)
		showMachine(s, inMachine)
		if strip {
			s.WithoutLandlock(t)
		}
		for _, f := range []*seccomp.Filter{&s.Plan.InnerFilter, &s.Plan.OuterFilter} {
			allow(f, []string{"openat", "newfstatat", "readlinkat"})
		}
		j := s.Start(t)
		for _, path := range sensitive {
			own := slices.Contains(inMachine, path) || path == "/sys" || path == "/sys/fs/cgroup"
			for n, r := range j.Do(do("openat", i(unix.AT_FDCWD), text(path), i(unix.O_RDONLY)),
				do("openat", i(unix.AT_FDCWD), text(path), i(unix.O_WRONLY)),
				do("readlinkat", i(unix.AT_FDCWD), text(path), buf(64), i(64)), do("newfstatat",
					i(unix.AT_FDCWD), text(path), buf(144), i(0))) {
				switch {
				case !own && r.Errno != "ENOENT" && r.Errno != "ENOTDIR":
					t.Errorf("%s, without Landlock: %v: call %d: %v", path, strip, n, r)
				case own && n == 1 && !slices.Contains([]string{"EACCES", "EROFS", "EISDIR"},
					r.Errno):
					t.Errorf("%s can be written to, without Landlock: %v: %v", path, strip, r)
				case own && (n == 0 || n == 3) && r.Errno != "":
					t.Errorf("%s is not there, without Landlock: %v: call %d: %v", path, strip, n,
						r)
				}
			}
		}
		for _, path := range inMachine {
			here, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			r := j.One("=read", text(path))
			if r.Errno != "" || len(r.Data) == 0 || string(r.Data) == string(here) {
				t.Errorf("%s: %v, and what the host has is no other", path, r)
			}
		}
		if got := string(j.One("=read", text("/proc/meminfo")).Data); inMachine != nil && !strings.HasPrefix(got,
			"MemTotal:          65536 kB\n") {
			t.Errorf("memory of 64 MiB: %s", got)
		}
		if r := j.One("=read", text("/proc/mounts")); inMachine != nil && !strings.Contains(string(r.Data), " /proc ") {
			t.Errorf("/proc/mounts: %v", r)
		}
		for _, name := range strings.Split(strings.TrimRight(
			string(j.One("=readdir", text("/proc")).Data), "\x00"), "\x00") {
			if strings.Trim(name, "0123456789") != "" && name != "self" && name != "thread-self" {
				t.Errorf("/proc lists %q", name)
			}
		}
	}
}

// TestMachineRefused: a jail whose proc cannot be narrowed does not start. The plan puts a file of
// the machine where proc has none.
func TestMachineRefused(t *testing.T) {
	s := jailtest.New(t)
	s.Plan.Mounts = append(s.Plan.Mounts, jail.Mount{Kind: jail.MountMachine,
		Target: "/proc/nothing"})
	if _, err := s.TryStart(t); err == nil || !strings.Contains(err.Error(), "nothing") {
		t.Errorf("start: %v", err)
	}
}
