package launch_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/jailtest"
	"github.com/jail-sandbox/jail/jail/jailtest/victim"
)

// sensitive are paths of the kernel's and the host's from which programs have got out of sandboxes, or have learned about the host.
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

// TestSensitivePaths: none of them is there, by whatever call, with Landlock and without (T-017, T-019, T-020, T-023). The control is the
// host, which has most of them.
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
		for _, f := range []*jail.Filter{&s.Plan.InnerFilter, &s.Plan.OuterFilter} {
			allow(f, []string{"openat", "newfstatat", "readlinkat"})
		}
		j := s.Start(t)
		for _, path := range sensitive {
			for n, r := range j.Do(do("openat", i(unix.AT_FDCWD), text(path), i(unix.O_RDONLY)), do("openat", i(unix.AT_FDCWD), text(path), i(unix.O_WRONLY)),
				do("readlinkat", i(unix.AT_FDCWD), text(path), buf(64), i(64)), do("newfstatat", i(unix.AT_FDCWD), text(path), buf(144), i(0))) {
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
	for _, f := range []*jail.Filter{&s.Plan.InnerFilter, &s.Plan.OuterFilter} {
		allow(f, []string{"mknodat", "openat"})
	}
	j := s.Start(t)
	names := strings.Split(strings.TrimRight(string(j.One("=readdir", text("/dev")).Data), "\x00"), "\x00")
	want := slices.Sorted(slices.Values(s.Plan.Devices))
	if slices.Sort(names); !slices.Equal(names, want) {
		t.Errorf("/dev has %q, want %q", names, want)
	}
	for name, number := range map[string]uint64{"mem": unix.Mkdev(1, 1), "disk": unix.Mkdev(254, 0)} {
		for _, kind := range []int64{unix.S_IFCHR, unix.S_IFBLK} {
			if r := j.One("mknodat", i(unix.AT_FDCWD), text("/tmp/"+name), i(kind|0o600), i(int64(number))); r.Errno != "EPERM" {
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
	for _, f := range []*jail.Filter{&s.Plan.InnerFilter, &s.Plan.OuterFilter} {
		allow(f, []string{"chroot", "chdir", "fchdir", "openat", "newfstatat", "getcwd"})
	}
	j := s.Start(t)
	up := strings.Repeat("../", 64)
	root := do("newfstatat", i(unix.AT_FDCWD), text("/"), buf(144), i(0))
	for fd := range int64(64) {
		if r := j.Do(do("fchdir", i(fd)), do("getcwd", buf(64), i(64))); r[0].Errno == "" && !strings.HasPrefix(string(r[1].Data), "/") {
			t.Errorf("descriptor %d is a directory outside: %q", fd, r[1].Data)
		}
	}
	climbs := j.Do(root,
		do("chdir", text(up)), do("newfstatat", i(unix.AT_FDCWD), text("."), buf(144), i(0)),
		// The classic: a directory that is held open outside of a new root.
		do("openat", i(unix.AT_FDCWD), text("/"), i(unix.O_DIRECTORY)), do("chroot", text("/tmp")), do("fchdir", victim.Ref(4)), do("chdir", text(up)),
		do("newfstatat", i(unix.AT_FDCWD), text("."), buf(144), i(0)), do("getcwd", buf(64), i(64)))
	for _, n := range []int{2, 7} {
		if r := climbs[n]; r.Errno != "" || string(r.Data[:16]) != string(climbs[0].Data[:16]) {
			t.Errorf("climb %d has left the root: %v (%v)", n, r, climbs)
		}
	}
}

// TestMountBelow: a mount below a read-only source is not in the jail, so that nothing of it can be written to (T-015). The host sees it.
func TestMountBelow(t *testing.T) {
	s := jailtest.New(t)
	s.WithoutLandlock(t)
	below := filepath.Join(s.Data, "below")
	if err := os.Mkdir(below, 0o777); err != nil {
		t.Fatal(err)
	}
	other := t.TempDir() // not a tmpfs, which cannot map owners before Linux 6.3: its files would be nobody's, and refused for that
	if err := errors.Join(os.Chmod(other, 0o777), unix.Mount(other, below, "", unix.MS_BIND, "")); err != nil {
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
		if r := j.One("openat", i(unix.AT_FDCWD), text("/data/below/f"), i(flags), i(0o600)); r.Errno != "EROFS" && r.Errno != "ENOENT" {
			t.Errorf("write below a read-only bind: %v", r)
		}
	}
	for line := range strings.Lines(string(j.One("=read", text("/proc/self/mountinfo")).Data)) {
		if f := strings.Fields(line); strings.HasPrefix(f[4], "/data/") && !strings.HasPrefix(f[5], "ro,nosuid,nodev") {
			t.Errorf("a mount below: %s", line)
		}
	}
}

// TestHostPaths: what a jail reads of itself names no path of the host but those of the plan's binds and of jail-init itself, in the mount
// table only (T-024).
func TestHostPaths(t *testing.T) {
	s := jailtest.New(t)
	j := s.Start(t)
	markers := []string{filepath.Dir(s.Data), s.RunDir, filepath.Dir(s.Launcher.Init)}
	if name, err := os.Hostname(); err == nil && len(name) > 4 {
		markers = append(markers, name)
	}
	for _, name := range []string{"cgroup", "cmdline", "environ", "status", "stat", "maps", "comm", "limits", "mounts", "mountstats", "mountinfo"} {
		r := j.One("=read", text("/proc/self/"+name))
		if r.Errno == "EACCES" {
			continue // a process that may not be dumped shows it to nobody
		}
		if r.Errno != "" {
			t.Errorf("%s: %v", name, r)
		}
		for line := range strings.Lines(string(r.Data)) {
			for _, m := range markers {
				if strings.Contains(line, m) && !(name == "mountinfo" && isBindOf(s, line)) {
					t.Errorf("/proc/self/%s names %s: %s", name, m, line)
				}
			}
		}
	}
}

// isBindOf reports whether a line of the mount table is of a bind of the plan, or of jail-init.
func isBindOf(s *jailtest.Setup, line string) bool {
	root := strings.Fields(line)[3]
	return slices.ContainsFunc([]string{s.Data, s.Store, s.Launcher.Init}, func(p string) bool { return strings.HasSuffix(p, root) })
}
