package launch_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/jailtest"
	"github.com/jail-sandbox/jail/jail/jailtest/victim"
)

// TestForeignCalls makes system calls by the entry points of other ABIs: the process is killed
// (T-050).
func TestForeignCalls(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("only amd64 has such entry points")
	}
	// The control: without filters the kernel of this machine accepts int 0x80. Some have no such
	// entry point, and there the processor's fault ends the process before a filter is asked.
	err := exec.Command(jailtest.Binary(t, jailtest.Probe), "int80").Run()
	exit := (*exec.ExitError)(nil)
	enters := errors.As(err, &exit) && exit.ExitCode() == 42
	const getpid32, getpidX32 = 20, 0x40000000 | 39
	for name, c := range map[string]victim.Call{
		"int 0x80": do("=int80", i(getpid32)),
		"x32":      {Nr: getpidX32},
	} {
		for _, strip := range []string{"whole stack", "inner filter alone", "outer filter alone"} {
			t.Run(name+", "+strip, func(t *testing.T) {
				s := jailtest.New(t)
				everything := append(s.Plan.OuterFilter.Allow, "getpid")
				switch strip {
				case "inner filter alone":
					allow(&s.Plan.OuterFilter, everything)
				case "outer filter alone":
					allow(&s.Plan.InnerFilter, everything)
				}
				j := s.Start(t)
				r, err := j.Try(c)
				if err == nil {
					t.Fatalf("it lives on, with %v", r)
				}
				got, err := j.Wait()
				if name == "int 0x80" && !enters {
					t.Logf("it ended with %+v, %v", got, err)
					return
				}
				if err != nil || got.Signal != int(syscall.SIGSYS) {
					t.Errorf("ended with %+v, %v; want SIGSYS", got, err)
				}
			})
		}
	}
	if !enters {
		t.Skipf("without a filter int 0x80 does not work here either: %v", err)
	}
}

// TestThreads: of all that clone can do, threads are left, as many as the plan has tasks.
func TestThreads(t *testing.T) {
	j := jailtest.New(t).Start(t)
	// It has answered, so it runs.
	j.One("getpid")
	tasks, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(j.PID), "task", "*"))
	if err != nil || len(tasks) < 2 {
		t.Errorf("%d threads, %v", len(tasks), err)
	}
}

// TestDeviceNode puts a node of a device that a jail has anyway where a tool could have brought its
// own: it cannot be opened (T-023). The control is the jail's own node, which is the same device.
func TestDeviceNode(t *testing.T) {
	s := jailtest.New(t)
	s.WithoutLandlock(t)
	path := filepath.Join(s.Data, "zero")
	if err := errors.Join(unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))),
		os.Chmod(path, 0o666)); err != nil {
		t.Fatal(err)
	}
	j := s.Start(t)
	if r := j.One("openat", i(unix.AT_FDCWD), text("/data/zero"),
		i(unix.O_RDONLY)); r.Errno != "EACCES" {
		t.Errorf("the tool's node: %v", r)
	}
	if r := j.One("openat", i(unix.AT_FDCWD), text("/dev/zero"), i(unix.O_RDONLY)); r.Errno != "" {
		t.Errorf("the jail's node: %v", r)
	}
}

// TestRoot: there is no way above the root, and nothing can be made in it, with or without Landlock
// (T-014).
func TestRoot(t *testing.T) {
	for _, without := range []bool{false, true} {
		s := jailtest.New(t)
		if without {
			s.WithoutLandlock(t)
		}
		j := s.Start(t)
		for _, path := range []string{"/new", "/run/new", "/dev/new", "/run/jail/init"} {
			r := j.One("openat", i(unix.AT_FDCWD), text(path), i(unix.O_WRONLY|unix.O_CREAT),
				i(0o600))
			if r.Errno != "EROFS" && r.Errno != "EACCES" && r.Errno != "ETXTBSY" || without &&
				path != "/run/jail/init" && r.Errno != "EROFS" {
				t.Errorf("create %s (without Landlock: %v): %v", path, without, r)
			}
		}
		stats := j.Do(do("newfstatat", i(unix.AT_FDCWD), text("/"), buf(144), i(0)),
			do("newfstatat", i(unix.AT_FDCWD), text("/../../../../../../../.."), buf(144), i(0)),
			do("newfstatat", i(unix.AT_FDCWD), text("/proc/1/root/.."), buf(144), i(0)),
			do("newfstatat", i(unix.AT_FDCWD), text("/proc/self/cwd/../.."), buf(144), i(0)))
		for n, r := range stats {
			if r.Errno == "" && string(r.Data[:16]) != string(stats[0].Data[:16]) {
				t.Errorf("path %d is not the root", n)
			}
		}
	}
}

// TestInitBinary: jail-init is the host's very file, and cannot be written to, by any of its names
// (T-002, T-007).
func TestInitBinary(t *testing.T) {
	s := jailtest.New(t)
	s.WithoutLandlock(t)
	before, err := os.ReadFile(s.Launcher.Init)
	if err != nil {
		t.Fatal(err)
	}
	j := s.Start(t)
	for _, path := range []string{"/run/jail/init", "/proc/self/exe", "/proc/1/exe",
		"/proc/thread-self/exe"} {
		for _, flags := range []int64{unix.O_WRONLY, unix.O_RDWR, unix.O_WRONLY | unix.O_TRUNC} {
			if r := j.One("openat", i(unix.AT_FDCWD), text(path), i(flags)); r.Errno == "" {
				t.Errorf("opened %s to write", path)
			}
		}
	}
	j.End()
	after, err := os.ReadFile(s.Launcher.Init)
	if err != nil || string(after) != string(before) {
		t.Errorf("the program has changed, %v", err)
	}
}

// TestNoMountArrives: what is mounted on the host while a jail lives is not seen in it (T-013).
func TestNoMountArrives(t *testing.T) {
	s := jailtest.New(t)
	j := s.Start(t)
	if err := unix.Mount("none", s.Data, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(s.Data, 0); err != nil {
			t.Error(err)
		}
	}()
	if r := j.One("=read", text("/data/f")); string(r.Data) != "canary\n" {
		t.Errorf("the jail sees the host's mount: %v", r)
	}
	if _, err := os.Stat(filepath.Join(s.Data, "f")); err == nil {
		t.Error("the host does not see its own mount; this test would see nothing")
	}
}

// TestCanaries: what is granted works, and as the tool's own user; what is not is as it was before.
func TestCanaries(t *testing.T) {
	s := jailtest.New(t)
	j := s.Start(t)
	if r := j.One("=fill", text("/store/made"), i(1)); r.Errno != "" {
		t.Fatal(r)
	}
	if r := j.One("=fill", text("/data/made"), i(1)); r.Errno != "EROFS" {
		t.Error(r)
	}
	if r := j.One("=fill", text("/tmp/made"), i(1)); r.Errno != "" {
		t.Error(r)
	}
	j.End()
	info, err := os.Stat(filepath.Join(s.Store, "made"))
	if err != nil {
		t.Fatal(err)
	}
	if uid := info.Sys().(*syscall.Stat_t).Uid; uid != jailtest.UID {
		t.Errorf("the new file belongs to %d, not to the owner of the directory", uid)
	}
	for _, dir := range []string{s.Data, s.Store} {
		if content, err := os.ReadFile(filepath.Join(dir, "f")); err != nil ||
			string(content) != "canary\n" {
			t.Errorf("%s: %q, %v", dir, content, err)
		}
	}
}

// TestSamePlanTwice: one plan can start several jails, one after the other.
func TestSamePlanTwice(t *testing.T) {
	s := jailtest.New(t)
	for range 2 {
		s.Start(t).End()
		// A control group is never used again.
		s.Plan.ID = jail.NewID()
		s.Plan.Cgroup.Path = filepath.Join(jailtest.Slice(), string(s.Plan.ID))
	}
}
