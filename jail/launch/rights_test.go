package launch_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/jailtest"
	"github.com/jail-sandbox/jail/jail/jailtest/victim"
)

func allowBoth(p *jail.Plan, names ...string) {
	allow(&p.InnerFilter, names)
	allow(&p.OuterFilter, names)
}

// rawSockets is a file's security.capability: CAP_NET_RAW, permitted and effective
// (capabilities(7)).
var rawSockets = []byte{1, 0, 0, 2, 0, 1 << (unix.CAP_NET_RAW - 8), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
	0, 0, 0}

// TestSetID executes programs whose files would give rights, in a jail that lets them be executed:
// they have none more (T-036). The control is the same file, executed on the host by a user without
// rights.
func TestSetID(t *testing.T) {
	for _, c := range []struct {
		name string
		give func(path string) error
	}{
		{"set-user-id root", func(p string) error {
			return errors.Join(os.Chown(p, 0, 0), os.Chmod(p, 0o755|os.ModeSetuid))
		}},
		{"set-group-id root", func(p string) error {
			return errors.Join(os.Chown(p, 0, 0), os.Chmod(p, 0o755|os.ModeSetgid))
		}},
		{"capabilities", func(p string) error {
			return errors.Join(os.Chown(p, 0, 0), os.Chmod(p, 0o755),
				unix.Setxattr(p, "security.capability", rawSockets, 0))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := &host{Setup: jailtest.New(t)}
			putProgram(t, h)
			path := filepath.Join(h.Data, "program")
			if err := c.give(path); err != nil {
				t.Fatal(err)
			}
			if code := runAsNobody(t, path); code != 43 {
				t.Errorf("on the host the program ends with %d, want 43: this test would see "+
					"nothing", code)
			}
			h.WithoutLandlock(t)
			allowBoth(&h.Plan, append(start, "getuid", "geteuid", "getgid", "getegid", "openat",
				"epoll_create1", "eventfd2")...)
			weakenMount("/data", false, true)[mount](&h.Plan)
			j := h.Start(t)
			if r, err := j.Try(do("execve", text("/data/program"),
				victim.Arg{List: []string{"probe", "gained"}}, i(0))); err == nil {
				t.Fatalf("it was not executed: %v", r)
			}
			if got, err := j.Wait(); err != nil || got.Code != 42 {
				j.End()
				t.Errorf("it ended with %+v, %v; want 42, which says that it gained nothing\n%s",
					got, err, j.Stderr())
			}
		})
	}
}

// runAsNobody executes the program on the host as a user without rights, from where that user can
// reach it.
func runAsNobody(t *testing.T, path string) int {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command("/proc/self/fd/3", "gained")
	cmd.ExtraFiles = []*os.File{f}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: jailtest.UID,
		Gid: jailtest.UID}}
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode()
}

// TestNewNamespaces asks for each kind, by each call, with the flags where a filter sees them and
// where it does not (T-030, T-031, T-032).
func TestNewNamespaces(t *testing.T) {
	s := jailtest.New(t)
	j := s.Start(t)
	own := j.One("=readlink", text("/proc/self/ns/user")).Data
	flags := map[string]int64{"user": unix.CLONE_NEWUSER, "mnt": unix.CLONE_NEWNS,
		"pid": unix.CLONE_NEWPID, "net": unix.CLONE_NEWNET, "ipc": unix.CLONE_NEWIPC,
		"uts": unix.CLONE_NEWUTS, "cgroup": unix.CLONE_NEWCGROUP, "time": unix.CLONE_NEWTIME}
	for name, flag := range flags {
		args := make([]byte, 88)
		args[0], args[1], args[2], args[3] = byte(flag), byte(flag>>8), byte(flag>>16),
			byte(flag>>24)
		for call, r := range map[string]victim.Result{
			"unshare": j.One("unshare", i(flag)),
			"clone":   j.One("=fork", i(flag)),
			"clone3":  j.One("clone3", victim.Bytes(args...), i(88)),
			"setns": j.Do(do("openat", i(unix.AT_FDCWD), text("/proc/self/ns/"+name), i(0)),
				do("setns", victim.Ref(1), i(flag)))[1],
			"setns pidfd": j.One("setns", i(3), i(flag)),
		} {
			if r.Errno != "EPERM" && r.Errno != "ENOSYS" {
				t.Errorf("%s of %s: %v", call, name, r)
			}
		}
	}
	if now := j.One("=readlink", text("/proc/self/ns/user")).Data; string(now) != string(own) {
		t.Errorf("it is in %s, was in %s", now, own)
	}
	if n := j.One("getpid"); n.Errno != "" {
		t.Errorf("threads and processes of its own go on: %v", n)
	}
}

// TestHostCalls makes calls that affect the whole host, with arguments without effect (T-016,
// T-020, T-040, T-042). The kernel refuses most of them to processes without privileges in the
// initial user namespace, so only the errno of the filters shows that the filters are there.
func TestHostCalls(t *testing.T) {
	j := jailtest.New(t).Start(t)
	for _, c := range []string{"settimeofday", "adjtimex", "clock_settime", "vhangup", "swapon",
		"swapoff", "acct", "syslog", "sethostname", "setdomainname", "reboot",
		"init_module", "finit_module", "delete_module", "kexec_load", "quotactl", "iopl", "ioperm",
		"modify_ldt", "keyctl", "add_key", "request_key",
		"mount", "umount2", "pivot_root", "chroot", "fsopen", "fsconfig", "fsmount", "fspick",
		"open_tree", "move_mount", "mount_setattr"} {
		if r := j.One(c, i(0), i(0), i(0), i(0), i(0)); r.Errno != "EPERM" && r.Errno != "ENOSYS" {
			t.Errorf("%s: %v", c, r)
		}
	}
}

const (
	keyctlSearch = 10
	userKeyring  = -4
)

// TestKeyrings: without filters, which refuse every call on keys, a jail still does not find the
// key that another one put into its user's ring, since no two have the same user (T-042). The
// control is that the first finds it.
func TestKeyrings(t *testing.T) {
	name := text("jailtest")
	var found []victim.Result
	for n := range 2 {
		s := jailtest.New(t)
		allowBoth(&s.Plan, "keyctl", "add_key")
		j := s.Start(t)
		if n == 0 {
			if r := j.One("add_key", text("user"), name, text("secret"), i(6),
				i(userKeyring)); r.Errno != "" {
				t.Fatalf("without filters: %v", r)
			}
		}
		found = append(found,
			j.One("keyctl", i(keyctlSearch), i(userKeyring), text("user"), name, i(0)))
	}
	if found[0].Errno != "" {
		t.Errorf("its own key: %v: this test would see nothing", found[0])
	}
	if found[1].Errno != "ENOKEY" {
		t.Errorf("another jail's key: %v", found[1])
	}
}

// TestLocks: two jails that are shown the same file of the host could tell each other one bit by a
// lock on it. No lock can be taken (T-043). The control is two jails without filters, which do tell
// each other.
func TestLocks(t *testing.T) {
	shared := func(filtered bool) [2]*jailtest.Jail {
		a, b := jailtest.New(t), jailtest.New(t)
		for n, m := range b.Plan.Mounts {
			if m.Target == "/data" {
				b.Plan.Mounts[n].Source = a.Data
			}
		}
		if !filtered {
			allowBoth(&a.Plan, "flock", "fcntl")
			allowBoth(&b.Plan, "flock", "fcntl")
		}
		return [2]*jailtest.Jail{a.Start(t), b.Start(t)}
	}
	on := func(j *jailtest.Jail, c victim.Call) string {
		return firstError(j.Do(do("openat", i(unix.AT_FDCWD), text("/data/f"), i(0)), c))
	}
	// struct flock, of the whole file
	readLock := victim.Bytes(make([]byte, 32)...)
	for name, c := range map[string]victim.Call{
		"flock":    do("flock", victim.Ref(1), i(unix.LOCK_EX|unix.LOCK_NB)),
		"SETLK":    do("fcntl", victim.Ref(1), i(unix.F_SETLK), readLock),
		"OFD lock": do("fcntl", victim.Ref(1), i(unix.F_OFD_SETLK), readLock),
		"lease":    do("fcntl", victim.Ref(1), i(unix.F_SETLEASE), i(unix.F_RDLCK)),
		"notify":   do("fcntl", victim.Ref(1), i(unix.F_NOTIFY), i(1)),
	} {
		for n, j := range shared(true) {
			if r := on(j, c); r != "EPERM" && r != "ENOSYS" {
				t.Errorf("%s by jail %d: %s", name, n, r)
			}
		}
	}
	free := shared(false)
	take := do("flock", victim.Ref(1), i(unix.LOCK_EX|unix.LOCK_NB))
	if first, second := on(free[0], take), on(free[1], take); first != "ok" || second != "EAGAIN" {
		t.Errorf("without filters: %s by the first, %s by the second: this test would see nothing",
			first, second)
	}
}

// TestTwoJails: a jail can do nothing to the processes of another, also without filters and with
// the other's number in view (T-034, T-044).
func TestTwoJails(t *testing.T) {
	other := look(t, jailtest.New(t))
	s := jailtest.New(t)
	s.WithoutLandlock(t)
	withoutPIDs(&s.Plan)
	allowBoth(&s.Plan, "kill", "ptrace", "process_vm_readv", "openat", "pidfd_open", "pidfd_getfd")
	j := s.Start(t)
	pid := int64(other.PID)
	for name, r := range map[string]victim.Result{
		"kill":   j.One("kill", i(pid), i(int64(unix.SIGKILL))),
		"ptrace": j.One("ptrace", i(unix.PTRACE_SEIZE), i(pid), i(0), i(0)),
		"memory": j.One("openat", i(unix.AT_FDCWD), text(fmt.Sprintf("/proc/%d/mem", pid)),
			i(unix.O_RDONLY)),
		"root": j.One("openat", i(unix.AT_FDCWD), text(fmt.Sprintf("/proc/%d/root/", pid)),
			i(unix.O_RDONLY)),
		"descriptors": j.One("openat", i(unix.AT_FDCWD), text(fmt.Sprintf("/proc/%d/fd/3", pid)),
			i(unix.O_RDONLY)),
		"pidfd_getfd": j.Do(do("pidfd_open", i(pid), i(0)),
			do("pidfd_getfd", victim.Ref(1), i(3), i(0)))[1],
	} {
		if r.Errno != "EPERM" && r.Errno != "EACCES" {
			t.Errorf("%s: %v", name, r)
		}
	}
	if r := other.One("getpid"); r.Errno != "" {
		t.Errorf("the other jail: %v", r)
	}
}

// sockets are where hosts have theirs.
var sockets = []string{"/run/docker.sock", "/var/run/docker.sock",
	"/run/containerd/containerd.sock", "/run/podman/podman.sock", "/run/dbus/system_bus_socket",
	"/run/user/0/bus", "/run/user/1000/bus", "/run/systemd/private", "/run/systemd/notify",
	"/run/jail/jaild.sock", "/run/jaild.sock", "/tmp/.X11-unix/X0",
	"/run/user/1000/wayland-0", "/tmp/ssh-agent", "/run/nscd/socket", "/dev/log"}

// TestSockets: no socket of the host's services is in view, and jail's own is not either, with
// filters and Landlock out of the way (T-075).
func TestSockets(t *testing.T) {
	s := jailtest.New(t)
	s.WithoutLandlock(t)
	allowBoth(&s.Plan, "socket", "connect")
	j := s.Start(t)
	for _, path := range append(sockets, "\x00/tmp/dbus", "\x00docker",
		"\x00/containerd-shim/x.sock") {
		address := append(append([]byte{1, 0}, path...), 0)
		r := j.Do(do("socket", i(unix.AF_UNIX), i(unix.SOCK_STREAM), i(0)),
			do("connect", victim.Ref(1), victim.Bytes(address...), i(int64(len(address)))))
		if r[0].Errno != "" || r[1].Errno != "ENOENT" && r[1].Errno != "ECONNREFUSED" &&
			r[1].Errno != "ENOTDIR" {
			t.Errorf("connect to %q: %v", path, r)
		}
	}
}

// TestDeviceRules narrows the control group's rules of a live jail to nothing: the nodes that it
// has cannot be opened any more, so the group alone stops them (T-023). In a hierarchy of version 2
// the rules are a program, and the kernel is asked whether there is one.
func TestDeviceRules(t *testing.T) {
	s := jailtest.New(t)
	s.WithoutLandlock(t)
	j := s.Start(t)
	layout, err := cgroup.Detect()
	if err != nil {
		t.Fatal(err)
	}
	if layout == cgroup.V2 {
		if n := devicePrograms(t, filepath.Join(cgroup.Root, s.Plan.Cgroup.Path)); n != 1 {
			t.Errorf("%d programs decide on devices, want 1", n)
		}
		return
	}
	zero := func() victim.Result {
		return j.One("openat", i(unix.AT_FDCWD), text("/dev/zero"), i(unix.O_RDONLY))
	}
	if r := zero(); r.Errno != "" {
		t.Fatalf("by the plan's rules: %v", r)
	}
	if err := os.WriteFile(filepath.Join(cgroup.Root, "devices", s.Plan.Cgroup.Path,
		"devices.deny"), []byte("a"), 0); err != nil {
		t.Fatal(err)
	}
	if r := zero(); r.Errno != "EPERM" {
		t.Errorf("without rules: %v", r)
	}
}

// devicePrograms asks how many programs of a control group decide on devices (bpf(2),
// BPF_PROG_QUERY).
func devicePrograms(t *testing.T, dir string) uint32 {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const progQuery, cgroupDevice = 16, 6
	ids := make([]uint32, 8)
	query := struct {
		target, attachType, flags, attached uint32
		ids                                 uint64
		count, _                            uint32
		_                                   [4]uint64
	}{target: uint32(f.Fd()), attachType: cgroupDevice,
		ids: uint64(uintptr(unsafe.Pointer(&ids[0]))), count: uint32(len(ids))}
	_, _, errno := unix.Syscall(unix.SYS_BPF, progQuery, uintptr(unsafe.Pointer(&query)),
		unsafe.Sizeof(query))
	runtime.KeepAlive(ids)
	if errno != 0 {
		t.Fatalf("bpf BPF_PROG_QUERY: %v", errno)
	}
	return query.count
}

// TestSpeculation: a jail's threads are not let speculate more than those of the host are (T-059).
func TestSpeculation(t *testing.T) {
	l := look(t, jailtest.New(t))
	own, inside := status(read(t, "/proc/self/status")), status(l.read("status"))
	for _, key := range []string{"Speculation_Store_Bypass", "SpeculationIndirectBranch"} {
		if got := inside[key]; got != own[key] && !strings.Contains(got, "mitigated") &&
			!strings.Contains(got, "disabled") {
			t.Errorf("%s is %q, on the host %q", key, got, own[key])
		}
	}
	if r := l.One("prctl", i(unix.PR_SET_SPECULATION_CTRL), i(0), i(2), i(0),
		i(0)); r.Errno != "EPERM" && r.Errno != "ENOSYS" {
		t.Errorf("allow speculation: %v", r)
	}
}

// TestRenamedAway: what may be read or written in one place cannot be brought to another where more
// is allowed, and a place cannot be moved (T-065). The control is a name within one place.
func TestRenamedAway(t *testing.T) {
	for _, strip := range []bool{false, true} {
		s := jailtest.New(t)
		if strip {
			s.WithoutLandlock(t)
		}
		j := s.Start(t)
		for _, c := range [][2]string{{"/data/f", "/store/moved"}, {"/data/f", "/tmp/moved"},
			{"/run/jail/init", "/tmp/moved"}, {"/store", "/tmp/moved"}, {"/data", "/data2"}} {
			for _, call := range []victim.Call{do("linkat", i(unix.AT_FDCWD), text(c[0]),
				i(unix.AT_FDCWD), text(c[1]), i(0)),
				do("renameat2", i(unix.AT_FDCWD), text(c[0]), i(unix.AT_FDCWD), text(c[1]), i(0))} {
				if r := j.Do(call)[0]; !slices.Contains([]string{"EXDEV", "EPERM", "EACCES",
					"EROFS", "EBUSY"}, r.Errno) {
					t.Errorf("%s of %s to %s, without Landlock: %v: %v", call.Name, c[0], c[1],
						strip, r)
				}
			}
		}
		if r := j.One("renameat2", i(unix.AT_FDCWD), text("/store/f"), i(unix.AT_FDCWD),
			text("/store/g"), i(0)); r.Errno != "" {
			t.Errorf("within one place: %v", r)
		}
	}
}
