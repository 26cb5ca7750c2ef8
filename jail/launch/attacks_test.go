package launch_test

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/jailtest"
	"github.com/jail-sandbox/jail/jail/jailtest/victim"
)

const walltableHead = `# What each layer stops

A test writes this page, as root: ` + "`go test ./jail/launch -run 'TestWalls$' -update`" + `. Each attack is native code inside a jail, as after an
escape from the WebAssembly engine. It runs in fresh jails: with all layers; with each layer of its row alone, the others of the row removed from
the plan; and with none of them. Each layer of a row stops the attack by itself. The last column is the control: ` +
	"`ok`" + ` if the attack works, or
the error of a kernel that has accepted the call and read its arguments.
The same attacks inside an [outer layer](outer.md): [walls-outer.md](walls-outer.md).

| attack | whole stack | each wall alone | none of them |
|---|---|---|---|
`

// calls that need nothing of the host.
func calls(c ...victim.Call) func(*host) []victim.Call {
	return func(*host) []victim.Call { return c }
}

func call(name string, args ...victim.Arg) func(*host) []victim.Call {
	return calls(victim.Do(name, args...))
}

var (
	i    = victim.Int
	text = victim.Text
	buf  = victim.Buf
	do   = victim.Do
)

var (
	filters  = []wall{inner, outer}
	filtersP = func(more ...wall) []wall { return append([]wall{inner, outer}, more...) }
	admin    = []string{"CAP_SYS_ADMIN"}
	// What a program needs to be started.
	start = []string{"execve", "arch_prctl", "sched_getaffinity", "prlimit64"}
)

var attacks = slices.Concat(rootAttacks, namespaceAttacks, fileAttacks, hostAttacks, limitAttacks,
	moreAttacks, onlyAttacks)

// The root and its mounts (T-014, T-016, T-019, T-020).
var rootAttacks = []attack{
	{name: "mount a tmpfs", calls: call("mount", text("none"), text("/tmp"), text("tmpfs"), i(0),
		i(0)),
		walls: filtersP(domain, caps), caps: admin, through: "ok"},
	{name: "bind a directory elsewhere", calls: call("mount", text("/data"), text("/tmp"), text(""),
		i(unix.MS_BIND), i(0)),
		walls: filtersP(domain, caps), caps: admin, through: "ok"},
	{name: "umount2", calls: call("umount2", text("/tmp"), i(unix.MNT_DETACH)),
		walls: filtersP(caps), caps: admin, through: "EINVAL"},
	{name: "pivot_root", calls: call("pivot_root", text("/tmp"), text("/tmp")),
		walls: filtersP(domain, caps), caps: admin, through: "EINVAL"},
	{name: "chroot", calls: call("chroot", text("/tmp")), walls: filtersP(caps),
		caps: []string{"CAP_SYS_CHROOT"}, through: "ok"},
	{name: "fsopen tmpfs", calls: call("fsopen", text("tmpfs"), i(0)), walls: filtersP(caps),
		caps: admin, through: "ok"},
	{name: "fsopen cgroup", calls: call("fsopen", text("cgroup2"), i(0)), walls: filtersP(caps),
		caps: admin, through: "ok"},
	{name: "open_tree", calls: call("open_tree", i(unix.AT_FDCWD), text("/data"),
		i(unix.OPEN_TREE_CLONE)), walls: filtersP(caps), caps: admin, through: "ok"},
	{name: "mount_setattr", calls: call("mount_setattr", i(unix.AT_FDCWD), text("/tmp"), i(0),
		victim.Bytes(append([]byte{8}, make([]byte, 31)...)...), i(32)),
		walls: filtersP(caps), caps: admin, through: "ok"},
}

// Namespaces, identity and other processes (T-030, T-031, T-032, T-036, T-038, T-039, T-041,
// T-044).
var namespaceAttacks = []attack{
	{name: "clone CLONE_NEWUSER", calls: call("=fork", i(unix.CLONE_NEWUSER)),
		filters: []string{"clone"}, walls: filtersP(counts), through: "ok",
		weaken: uncount("user_namespaces")},
	{name: "clone CLONE_NEWUSER, upper bits set", calls: call("=fork", i(unix.CLONE_NEWUSER|1<<40)),
		filters: []string{"clone"}, walls: filtersP(counts), through: "ok",
		weaken: uncount("user_namespaces")},
	{name: "clone CLONE_NEWNS", calls: call("=fork", i(unix.CLONE_NEWNS)),
		filters: []string{"clone"}, walls: filtersP(caps), caps: admin, through: "ok"},
	{name: "clone a process", calls: call("=fork", i(0)), filters: []string{"clone"},
		walls: filters, through: "ok"},
	{name: "clone3", calls: call("clone3", buf(88), i(0)), walls: filters, through: "EINVAL"},
	{name: "unshare CLONE_NEWNET", calls: call("unshare", i(unix.CLONE_NEWNET)),
		walls: filtersP(caps), caps: admin, through: "ok"},
	{name: "unshare CLONE_NEWCGROUP", calls: call("unshare", i(unix.CLONE_NEWCGROUP)),
		walls: filtersP(caps), caps: admin, through: "ok"},
	{name: "setns", calls: calls(do("openat", i(unix.AT_FDCWD), text("/proc/self/ns/net"), i(0)),
		do("setns", victim.Ref(1), i(0))),
		walls: filtersP(caps), caps: admin, through: "ok"},
	{name: "setuid 0", calls: call("setuid", i(0)), walls: filtersP(caps),
		caps: []string{"CAP_SETUID"}, through: "ok"},
	{name: "setgroups", calls: call("setgroups", i(0), i(0)), walls: filtersP(caps),
		caps: []string{"CAP_SETGID"}, through: "ok"},
	{name: "sethostname", calls: call("sethostname", text("x"), i(1)), walls: filtersP(caps),
		caps: admin, through: "ok"},
	{name: "reboot", calls: call("reboot", i(0), i(0), i(0), i(0)), walls: filtersP(caps),
		caps: []string{"CAP_SYS_BOOT"}, through: "EINVAL"},
	{name: "ptrace", calls: call("ptrace", i(unix.PTRACE_PEEKDATA), i(2), i(0), i(0)),
		walls: filters, through: "ESRCH"},
	{name: "process_vm_readv", calls: call("process_vm_readv", i(1), i(0), i(0), i(0), i(0), i(0)),
		walls: filters, through: "ok"},
	{name: "pidfd_open", calls: call("pidfd_open", i(1), i(0)), walls: filters, through: "ok"},
	{name: "kill a process of the tool's own uid on the host", prepare: startVictim,
		walls: filtersP(domain, pidns), abi: 6, through: "ok",
		calls: func(h *host) []victim.Call {
			return []victim.Call{do("kill", i(int64(h.pid)), i(int64(unix.SIGTERM)))}
		},
		weaken: map[wall]func(*jail.Plan){pidns: withoutPIDs}},
	{name: "attach a System V segment of the host", prepare: makeSegment, walls: filtersP(ipcns),
		through: "ok",
		calls: func(h *host) []victim.Call {
			return []victim.Call{do("shmget", i(int64(h.segment)), i(0), i(0))}
		}},
	{name: "read the host's name", calls: call("uname", buf(390)), walls: filtersP(utsns),
		through: "ok", judge: sees(hostname)},
	{name: "read the path of the control group", calls: call("=read", text("/proc/self/cgroup")),
		walls: []wall{cgroupns}, through: "ok", judge: sees(jailtest.Slice)},
}

// Files and devices (T-015, T-021, T-023, T-060).
var fileAttacks = []attack{
	{name: "write to a read-only bind", calls: call("openat", i(unix.AT_FDCWD), text("/data/f"),
		i(unix.O_WRONLY)),
		walls: []wall{domain, mount}, through: "ok", weaken: weakenMount("/data", true, false)},
	{name: "create in a read-only bind", calls: call("openat", i(unix.AT_FDCWD), text("/data/new"),
		i(unix.O_WRONLY|unix.O_CREAT), i(0o600)),
		walls: []wall{domain, mount}, through: "ok", weaken: weakenMount("/data", true, false)},
	{name: "delete from a read-only bind", calls: call("unlinkat", i(unix.AT_FDCWD),
		text("/data/f"), i(0)),
		walls: []wall{domain, mount}, through: "ok", weaken: weakenMount("/data", true, false)},
	{name: "change times in a read-only bind", calls: call("utimensat", i(unix.AT_FDCWD),
		text("/data/f"), i(0), i(0)),
		walls: []wall{mount}, through: "ok", weaken: weakenMount("/data", true, false)},
	{name: "change the mode in a read-only bind", calls: call("chmod", text("/data/f"), i(0o777)),
		walls: filtersP(mount), through: "ok", weaken: weakenMount("/data", true, false)},
	{name: "set an attribute in a read-only bind", calls: call("setxattr", text("/data/f"),
		text("user.x"), text("y"), i(1), i(0)),
		walls: filtersP(mount), through: "ok", weaken: weakenMount("/data", true, false)},
	{name: "execute a file of a bind", prepare: putProgram, calls: call("execve",
		text("/data/program"), victim.Arg{List: []string{"probe", "hello"}}, i(0)),
		filters: start, walls: []wall{inner, domain, mount}, through: "ok",
		weaken: weakenMount("/data", false, true)},
	{name: "map a file of a bind to be executed", prepare: putProgram, walls: []wall{mount},
		through: "ok", weaken: weakenMount("/data", false, true),
		calls: calls(do("openat", i(unix.AT_FDCWD), text("/data/program"), i(0)), do("mmap", i(0),
			i(4096), i(unix.PROT_READ|unix.PROT_EXEC), i(unix.MAP_PRIVATE), victim.Ref(1), i(0)))},
	{name: "execute jail-init once more", calls: call("execve", text("/run/jail/init"),
		victim.Arg{List: []string{"probe", "hello"}}, i(0)),
		filters: start, walls: []wall{inner}, through: "ok"},
	{name: "make a FIFO", calls: call("mknodat", i(unix.AT_FDCWD), text("/tmp/fifo"),
		i(unix.S_IFIFO|0o600), i(0)), walls: filtersP(domain), through: "ok"},
	{name: "memfd_create", calls: call("memfd_create", text("x"), i(0)), walls: filters,
		through: "ok"},
	{name: "TIOCSTI", calls: call("ioctl", i(0), i(unix.TIOCSTI), text("x")), walls: filters,
		through: "ENOTTY"},
	{name: "TIOCSTI, upper bits set", calls: call("ioctl", i(0), i(unix.TIOCSTI|1<<32), text("x")),
		walls: filters, through: "ENOTTY"},
	{name: "open_by_handle_at", calls: call("open_by_handle_at", i(unix.AT_FDCWD), buf(8), i(0)),
		walls: filters, through: "EINVAL", itself: "EPERM"},
}

// Kernel interfaces that reach beyond this jail (T-040, T-042, T-051, T-053, T-057, T-062, T-063,
// T-064, T-070 to T-073).
var hostAttacks = []attack{
	{name: "io_uring_setup", calls: call("io_uring_setup", i(0), buf(120)), walls: filters,
		through: "EINVAL"},
	{name: "bpf", calls: call("bpf", i(0), buf(8192), i(8192)), walls: filters, through: "E2BIG",
		itself: bpfItself()},
	{name: "perf_event_open", calls: call("perf_event_open", i(0), i(0), i(-1), i(-1), i(1<<20)),
		walls: filters, through: "EINVAL"},
	{name: "userfaultfd", calls: call("userfaultfd", i(1)), walls: filters, through: "ok"},
	{name: "keyctl", calls: call("keyctl", i(0), i(-1), i(1)), walls: filters, through: "ok"},
	{name: "add_key", calls: call("add_key", text("user"), text("jail"), text("x"), i(1), i(-1)),
		walls: filters, through: "ok"},
	{name: "clock_settime", calls: call("clock_settime", i(0), i(0)), walls: filters,
		through: "EFAULT"},
	{name: "seccomp", calls: call("seccomp", i(2), i(0), victim.Bytes(0, 0, 0xff, 0x7f)),
		walls: []wall{inner}, through: "ok"},
	{name: "landlock_create_ruleset", calls: call("landlock_create_ruleset", i(0), i(0), i(1)),
		walls: []wall{inner}, through: "ok"},
	{name: "prctl PR_SET_DUMPABLE", calls: call("prctl", i(unix.PR_SET_DUMPABLE), i(1)),
		walls: []wall{inner}, through: "ok"},
	{name: "personality", calls: call("personality", i(0xffffffff)), walls: filters, through: "ok"},
	{name: "splice", calls: call("splice", i(-1), i(0), i(-1), i(0), i(1), i(0)), walls: filters,
		through: "EBADF"},
	{name: "socket AF_INET", calls: call("socket", i(unix.AF_INET), i(unix.SOCK_STREAM), i(0)),
		walls: filters, through: "ok"},
	{name: "socket AF_INET, MPTCP", calls: call("socket", i(unix.AF_INET), i(unix.SOCK_STREAM),
		i(unix.IPPROTO_MPTCP)), walls: filters, through: "ok"},
	{name: "socket AF_NETLINK", calls: call("socket", i(unix.AF_NETLINK), i(unix.SOCK_RAW), i(0)),
		walls: filters, through: "ok"},
	{name: "socket AF_PACKET", calls: call("socket", i(unix.AF_PACKET), i(unix.SOCK_RAW), i(0)),
		walls: filtersP(caps), caps: []string{"CAP_NET_RAW"}, through: "ok"},
	{name: "socketpair AF_UNIX", calls: call("socketpair", i(unix.AF_UNIX), i(unix.SOCK_DGRAM),
		i(0), buf(8)), walls: filters, through: "ok"},
	{name: "connect to the host's 127.0.0.1", prepare: listen, abi: 4, walls: filtersP(domain,
		netns), through: "ok",
		calls: func(h *host) []victim.Call {
			return []victim.Call{do("socket", i(unix.AF_INET), i(unix.SOCK_STREAM), i(0)),
				do("connect", victim.Ref(1), victim.Bytes(2, 0, byte(h.port>>8), byte(h.port), 127,
					0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0), i(16))}
		}},
	{name: "connect to an abstract socket of the host", prepare: listen, abi: 6,
		walls: filtersP(domain, netns), through: "ok",
		calls: func(h *host) []victim.Call {
			return []victim.Call{do("socket", i(unix.AF_UNIX), i(unix.SOCK_STREAM), i(0)),
				do("connect", victim.Ref(1), victim.Bytes(append([]byte{1, 0, 0}, h.socket...)...),
					i(int64(3+len(h.socket))))}
		}},
	{name: "connect to a socket file in a writable bind", prepare: listen, walls: filters, since: 9,
		through: "ok",
		calls: calls(do("socket", i(unix.AF_UNIX), i(unix.SOCK_STREAM), i(0)),
			do("connect", victim.Ref(1), victim.Bytes(append([]byte{1, 0},
				"/store/socket\x00"...)...), i(16)))},
}

// Limits (T-400 and on).
var limitAttacks = []attack{
	{name: "a fork bomb", calls: call("=forks", i(200)), filters: []string{"clone"},
		walls: filtersP(group), through: "ok",
		weaken: map[wall]func(*jail.Plan){group: func(p *jail.Plan) { p.Cgroup.PIDs = 400 }}},
	{name: "128 MiB of memory", calls: call("=touch", i(128<<20)), walls: []wall{group},
		through: "ok",
		weaken: map[wall]func(*jail.Plan){group: func(p *jail.Plan) {
			p.Cgroup.Memory = 256 << 20
		}}},
	{name: "200 open files", calls: call("=opens", i(200)), walls: []wall{rlimit}, through: "ok",
		weaken: weakenRlimit("nofile", 400)},
	{name: "a file of 8 MiB", calls: call("=fill", text("/tmp/f"), i(8<<20)), walls: []wall{rlimit},
		through: "ok", weaken: weakenRlimit("fsize", 1<<30)},
	{name: "locked memory", filters: []string{"mlock"}, walls: filtersP(rlimit), through: "ok",
		weaken: weakenRlimit("memlock", 1<<20),
		calls: calls(do("mmap", i(0), i(4096), i(unix.PROT_READ|unix.PROT_WRITE),
			i(unix.MAP_PRIVATE|unix.MAP_ANONYMOUS), i(-1), i(0)), do("mlock", victim.Ref(1),
			i(4096)))},
	{name: "1000 timers, each with room for a signal", calls: call("=take", text("signals"),
		i(1000)), filters: []string{"timer_create"},
		walls: filtersP(rlimit), through: "ok", weaken: weakenRlimit("sigpending", 2000)},
	{name: "a message queue", calls: call("=take", text("queues"), i(1)),
		filters: []string{"mq_open", "mq_unlink"},
		walls:   filtersP(domain, rlimit), through: "ok", weaken: weakenRlimit("msgqueue", 1<<20)},
	{name: "100 inotify instances", calls: call("=take", text("inotify"), i(100)),
		filters: []string{"inotify_init1"},
		walls:   filtersP(counts), through: "ok", weaken: uncount("inotify_instances"),
		prepare: manyFiles},
	{name: "a fanotify group", calls: call("=take", text("fanotify"), i(1)),
		filters: []string{"fanotify_init"},
		walls:   filtersP(counts), through: "ok", weaken: uncount("fanotify_groups")},
	{name: "a full /tmp", walls: []wall{mount}, through: "ok",
		calls:   calls(do("=fill", text("/tmp/1"), i(3<<20)), do("=fill", text("/tmp/2"), i(3<<20))),
		weaken:  map[wall]func(*jail.Plan){mount: func(p *jail.Plan) { resize(p, 8<<20) }},
		prepare: smallTmp},
}

func weakenMount(target string, write, exec bool) map[wall]func(*jail.Plan) {
	return map[wall]func(*jail.Plan){mount: func(p *jail.Plan) {
		for n, m := range p.Mounts {
			if m.Target == target {
				p.Mounts[n].Write, p.Mounts[n].Exec = m.Write || write, m.Exec || exec
			}
		}
	}}
}

func weakenRlimit(name string, value uint64) map[wall]func(*jail.Plan) {
	return map[wall]func(*jail.Plan){rlimit: func(p *jail.Plan) {
		for n, r := range p.Rlimits {
			if r.Name == name {
				p.Rlimits[n].Value = value
			}
		}
	}}
}

// uncount takes a bound out of the plan.
func uncount(name string) map[wall]func(*jail.Plan) {
	return map[wall]func(*jail.Plan){counts: func(p *jail.Plan) {
		p.UserCounts = slices.DeleteFunc(slices.Clone(p.UserCounts),
			func(c jail.UserCount) bool { return c.Name == name })
	}}
}

// manyFiles leaves the number of open files to the limit that is looked at.
func manyFiles(_ *testing.T, h *host) { weakenRlimit("nofile", 400)[rlimit](&h.Plan) }

// resize gives /tmp a size, if the attack's wall has not yet.
func resize(p *jail.Plan, size int64) {
	for n, m := range p.Mounts {
		if m.Kind == jail.MountTmpfs {
			p.Mounts[n].Size = size
		}
	}
}

func smallTmp(_ *testing.T, h *host) {
	for _, m := range h.Plan.Mounts {
		if m.Kind == jail.MountTmpfs && m.Size == 16<<20 {
			resize(&h.Plan, 4<<20)
		}
	}
}

// withoutPIDs leaves the namespace out. Only its owner may mount its proc, so the host's own is
// shown instead.
func withoutPIDs(p *jail.Plan) {
	leaveOut(p, pidns)
	for n, m := range p.Mounts {
		if m.Kind == jail.MountProc {
			p.Mounts[n] = jail.Mount{Kind: jail.MountBind, Source: "/proc", Target: m.Target}
		}
	}
}

func sees(secret func() string) func([]victim.Result) string {
	return func(r []victim.Result) string {
		if e := firstError(r); e != "ok" {
			return e
		}
		if bytes.Contains(r[0].Data, []byte(secret())) {
			return "ok"
		}
		return "shows another"
	}
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil || strings.Contains("jail", name) {
		return "the host's name is that of jails"
	}
	return "\x00" + name + "\x00"
}

// bpfItself is what an older kernel that has bpf for root alone answers before it looks at the
// arguments: seen on 6.1, and on 6.12 no more. The filters answer the same, so it counts there and
// nowhere else.
func bpfItself() string {
	var u unix.Utsname
	if unix.Uname(&u) == nil && strings.HasPrefix(unix.ByteSliceToString(u.Release[:]), "6.1.") {
		return "EPERM"
	}
	return ""
}
