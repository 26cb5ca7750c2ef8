package launch_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/guest"
	"github.com/jail-sandbox/jail/jail/internal/sys"
	"github.com/jail-sandbox/jail/jail/jailtest"
	"github.com/jail-sandbox/jail/jail/jailtest/victim"
	"github.com/jail-sandbox/jail/jail/seccomp"
	"github.com/jail-sandbox/jail/jail/workspace"
)

// sensitive are paths of the kernel's and the host's from which programs have got out of sandboxes,
// or have learned about the host.
var sensitive = strings.Fields(`
	/proc/acpi /proc/asound /proc/bus /proc/cmdline /proc/config.gz /proc/cpuinfo /proc/crypto /proc/devices /proc/diskstats /proc/dma
	/proc/driver /proc/filesystems /proc/fs /proc/interrupts /proc/iomem /proc/ioports /proc/irq /proc/kallsyms /proc/kcore /proc/key-users
	/proc/keys /proc/kmsg /proc/kpagecount /proc/latency_stats /proc/loadavg /proc/locks /proc/meminfo /proc/modules /proc/mtrr
	/proc/partitions /proc/sched_debug /proc/schedstat /proc/scsi /proc/self/../sys /proc/slabinfo /proc/stat /proc/swaps /proc/sys
	/proc/sys/fs/binfmt_misc /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe /proc/sys/kernel/hostname /proc/sys/vm/panic_on_oom
	/proc/sysrq-trigger /proc/sysvipc /proc/timer_list /proc/timer_stats /proc/tty /proc/uptime /proc/version /proc/vmallocinfo /proc/zoneinfo
	/sys /sys/firmware /sys/fs/cgroup /sys/kernel/debug /sys/kernel/security /sys/kernel/tracing /sys/kernel/uevent_helper /sys/fs/bpf
	/sys/fs/selinux /dev/kmsg /dev/mem /dev/kvm /dev/fuse /dev/shm /dev/mqueue /dev/pts /dev/ptmx /dev/tty /dev/console /dev/loop-control
	/dev/vsock /dev/userfaultfd /etc /etc/passwd /etc/shadow /root /home /var /usr /bin /lib /boot /mnt /srv /media /run/docker.sock /run/systemd`)

// TestSensitivePaths: none of them is there, by whatever call, with Landlock and without (T-017,
// T-019, T-020, T-023). The control is the host, which has most of them.
func TestSensitivePaths(t *testing.T) {
	there := 0
	for _, path := range sensitive {
		if _, err := os.Lstat(path); err == nil {
			there++
		}
	}
	if there < len(sensitive)/2 {
		t.Errorf("the host has only %d of %d: this test would see nothing", there, len(sensitive))
	}
	for _, strip := range []bool{false, true} {
		s := jailtest.New(t)
		if strip {
			s.WithoutLandlock(t)
		}
		for _, f := range []*seccomp.Filter{&s.Plan.InnerFilter, &s.Plan.OuterFilter} {
			allow(f, []string{"openat", "newfstatat", "readlinkat"})
		}
		j := s.Start(t)
		for _, path := range sensitive {
			for n, r := range j.Do(do("openat", i(unix.AT_FDCWD), text(path), i(unix.O_RDONLY)),
				do("openat", i(unix.AT_FDCWD), text(path), i(unix.O_WRONLY)),
				do("readlinkat", i(unix.AT_FDCWD), text(path), buf(64), i(64)), do("newfstatat",
					i(unix.AT_FDCWD), text(path), buf(144), i(0))) {
				// Below a directory that Landlock shuts nothing is said of what is there or not.
				if r.Errno != "ENOENT" && r.Errno != "ENOTDIR" {
					t.Errorf("%s, without Landlock: %v: call %d: %v", path, strip, n, r)
				}
			}
		}
	}
}

// TestDevNodes: /dev has the plan's nodes and nothing else, and no node can be made (T-023).
func TestDevNodes(t *testing.T) {
	s := jailtest.New(t)
	s.WithoutLandlock(t)
	for _, f := range []*seccomp.Filter{&s.Plan.InnerFilter, &s.Plan.OuterFilter} {
		allow(f, []string{"mknodat", "openat"})
	}
	j := s.Start(t)
	names := strings.Split(strings.TrimRight(string(j.One("=readdir", text("/dev")).Data), "\x00"),
		"\x00")
	want := slices.Sorted(slices.Values(s.Plan.Devices))
	if slices.Sort(names); !slices.Equal(names, want) {
		t.Errorf("/dev has %q, want %q", names, want)
	}
	for name, number := range map[string]uint64{"mem": unix.Mkdev(1, 1),
		"disk": unix.Mkdev(254, 0)} {
		for _, kind := range []int64{unix.S_IFCHR, unix.S_IFBLK} {
			if r := j.One("mknodat", i(unix.AT_FDCWD), text("/tmp/"+name), i(kind|0o600),
				i(int64(number))); r.Errno != "EPERM" {
				t.Errorf("make %s (%o), with filters that let it: %v", name, kind, r)
			}
		}
	}
}

// TestClimb: the root is the top, however one climbs, also in a root of a root (T-014).
func TestClimb(t *testing.T) {
	s := jailtest.New(t)
	s.WithoutLandlock(t)
	s.Plan.Capabilities = []string{"CAP_SYS_CHROOT"}
	for _, f := range []*seccomp.Filter{&s.Plan.InnerFilter, &s.Plan.OuterFilter} {
		allow(f, []string{"chroot", "chdir", "fchdir", "openat", "newfstatat", "getcwd"})
	}
	j := s.Start(t)
	up := strings.Repeat("../", 64)
	root := do("newfstatat", i(unix.AT_FDCWD), text("/"), buf(144), i(0))
	for fd := range int64(64) {
		if r := j.Do(do("fchdir", i(fd)), do("getcwd", buf(64), i(64))); r[0].Errno == "" &&
			!strings.HasPrefix(string(r[1].Data), "/") {
			t.Errorf("descriptor %d is a directory outside: %q", fd, r[1].Data)
		}
	}
	climbs := j.Do(root,
		do("chdir", text(up)), do("newfstatat", i(unix.AT_FDCWD), text("."), buf(144), i(0)),
		// The classic: a directory that is held open outside of a new root.
		do("openat", i(unix.AT_FDCWD), text("/"), i(unix.O_DIRECTORY)), do("chroot", text("/tmp")),
		do("fchdir", victim.Ref(4)), do("chdir", text(up)),
		do("newfstatat", i(unix.AT_FDCWD), text("."), buf(144), i(0)), do("getcwd", buf(64), i(64)))
	for _, n := range []int{2, 7} {
		if r := climbs[n]; r.Errno != "" || string(r.Data[:16]) != string(climbs[0].Data[:16]) {
			t.Errorf("climb %d has left the root: %v (%v)", n, r, climbs)
		}
	}
}

// TestMountBelow: a mount below a read-only source is not in the jail, so that nothing of it can be
// written to (T-015). The host sees it.
func TestMountBelow(t *testing.T) {
	s := jailtest.New(t)
	s.WithoutLandlock(t)
	below := filepath.Join(s.Data, "below")
	if err := os.Mkdir(below, 0o777); err != nil {
		t.Fatal(err)
	}
	// Not a tmpfs, which cannot map owners before Linux 6.3: its files would be nobody's, and
	// refused for that.
	other := t.TempDir()
	if err := errors.Join(os.Chmod(other, 0o777),
		unix.Mount(other, below, "", unix.MS_BIND, "")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(below, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	file := filepath.Join(below, "f")
	if err := errors.Join(os.WriteFile(file, nil, 0o666), os.Chmod(file, 0o666)); err != nil {
		t.Fatal(err)
	}
	j := s.Start(t)
	for _, flags := range []int64{unix.O_WRONLY, unix.O_WRONLY | unix.O_CREAT} {
		if r := j.One("openat", i(unix.AT_FDCWD), text("/data/below/f"), i(flags),
			i(0o600)); r.Errno != "EROFS" && r.Errno != "ENOENT" {
			t.Errorf("write below a read-only bind: %v", r)
		}
	}
	for line := range strings.Lines(string(j.One("=read", text("/proc/self/mountinfo")).Data)) {
		if f := strings.Fields(line); strings.HasPrefix(f[4], "/data/") && !strings.HasPrefix(f[5],
			"ro,nosuid,nodev") {
			t.Errorf("a mount below: %s", line)
		}
	}
}

// TestHostPaths: what a jail reads of itself names no path of the host, but for the mount table:
// there a bind has its directory within its file system, the device of that and its options, since
// the kernel has no other text for it. The mounts that jail itself makes name nothing (T-024).
func TestHostPaths(t *testing.T) {
	t.Run("shadow", func(t *testing.T) {
		s := jailtest.New(t)
		hostPaths(t, s, giveShadow(t, s))
	})
	t.Run("workspace to read", func(t *testing.T) {
		s := jailtest.New(t)
		source, err := os.Open(s.Store)
		if err != nil {
			t.Fatal(err)
		}
		defer source.Close()
		if s.Files.Lower, err = workspace.CloneLower(source); err != nil {
			t.Fatal(err)
		}
		defer s.Files.Lower.Close()
		s.Plan.Workspace = &jail.Workspace{Source: s.Store, Target: "/workspace"}
		hostPaths(t, s)
	})
}

// hostPaths looks for directories of the host that a jail may not name: those of its run, of jail's
// programs, and more.
func hostPaths(t *testing.T, s *jailtest.Setup, more ...string) {
	j := s.Start(t)
	markers := append(more, filepath.Dir(s.Data), s.RunDir, filepath.Dir(s.Launcher.Init))
	if name, err := os.Hostname(); err == nil && len(name) > 4 {
		markers = append(markers, name)
	}
	for _, name := range []string{"cgroup", "cmdline", "environ", "status", "stat", "maps", "comm",
		"limits", "mounts", "mountstats"} {
		r := j.One("=read", text("/proc/self/"+name))
		if r.Errno == "EACCES" {
			// A process that may not be dumped shows it to nobody.
			continue
		}
		if r.Errno != "" {
			t.Errorf("%s: %v", name, r)
		}
		for line := range strings.Lines(string(r.Data)) {
			for _, m := range markers {
				if strings.Contains(line, m) {
					t.Errorf("/proc/self/%s names %s: %s", name, m, line)
				}
			}
		}
	}
	table, err := sys.ParseMounts(string(j.One("=read", text("/proc/self/mountinfo")).Data))
	if err != nil {
		t.Fatal(err)
	}
	binds, seen := bindsShown(t, s), map[string]bool{}
	for _, m := range table {
		seen[m.Point] = true
		got := shownOf(m.Root, m)
		want, ok := binds[m.Point]
		if ok && got == want {
			continue
		}
		if ok || m.Root != "/" || m.Source != "none" && m.Source != m.Type || namesPath(m) {
			t.Errorf("the mount table says %q of %s, want %q", got, m.Point, want)
		}
	}
	for point := range binds {
		if !seen[point] {
			t.Errorf("the mount table does not have %s", point)
		}
	}
}

// bindsShown is what the mount table shows of each bind of a plan, by its mount point: where the
// host has the source, whatever that is mounted from (a directory, a subvolume).
func bindsShown(t *testing.T, s *jailtest.Setup) map[string]string {
	t.Helper()
	host, err := sys.Mounts("self")
	if err != nil {
		t.Fatal(err)
	}
	sources := map[string]string{guest.Self: s.Launcher.Init}
	for _, m := range s.Plan.Mounts {
		if m.Kind == jail.MountBind {
			sources[m.Target] = m.Source
		}
	}
	if w := s.Plan.Workspace; !w.Shadow {
		sources[w.Target] = w.Source
	}
	for _, d := range s.Plan.Devices {
		sources["/dev/"+d] = "/dev/" + d
	}
	shown := map[string]string{}
	for point, source := range sources {
		f, err := sys.OpenTarget(source)
		if err != nil {
			t.Fatal(err)
		}
		at, err := sys.Locate(f, host)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		shown[point] = shownOf(at.Root, at.Mount)
	}
	return shown
}

func shownOf(root string, m sys.Mount) string {
	return strings.Join([]string{root, m.Type, m.Source, strings.Join(m.Super, ",")}, " ")
}

// ownLayer is a layer of an overlay that jail makes: a descriptor of jail-shim, which has ended by
// then or is not in the jail.
var ownLayer = regexp.MustCompile(`^(lower|upper|work)dir=/proc/self/fd/\d+(/upper|/work)?$`)

// namesPath reports whether an option of a file system is or has a path other than that of a
// descriptor.
func namesPath(m sys.Mount) bool {
	return slices.ContainsFunc(m.Super, func(o string) bool {
		return strings.Contains(o, "/") && !ownLayer.MatchString(o)
	})
}
