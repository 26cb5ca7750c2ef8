//go:build league

package league

import (
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/jail/jailtest/victim"
)

// An attack is system calls that the probe makes. What is not "ok" in through is the answer of a
// kernel that took the call and went as far as looking at its arguments, which are wrong on purpose
// where right ones could do harm.
type attack struct {
	group, name string
	calls       func(w *world, p paths) []victim.Call
	through     []string // "ok" if empty
	// whether what was read is the host's
	sees func(w *world, data string) bool
}

// Paths are where a sandbox shows what is granted.
type paths struct{ data, store string }

var (
	i    = victim.Int
	text = victim.Text
	buf  = victim.Buf
	do   = victim.Do
	cwd  = i(unix.AT_FDCWD)
)

func call(name string, args ...victim.Arg) func(*world, paths) []victim.Call {
	return calls(do(name, args...))
}

func calls(c ...victim.Call) func(*world, paths) []victim.Call {
	return func(*world, paths) []victim.Call { return c }
}

func open(path string, flags int64) func(*world, paths) []victim.Call {
	return call("openat", cwd, text(path), i(flags), i(0o600))
}

const (
	files  = "files"
	procs  = "processes and the host"
	kernel = "kernel interfaces"
	rights = "rights and namespaces"
	netw   = "network"
	limits = "limits"
)

var attacks = []attack{
	{group: files, name: "read a file of the host that was not granted", calls: func(w *world,
		_ paths) []victim.Call {
		return []victim.Call{do("=read", text(w.secret))}
	}},
	{group: files, name: "write to what is granted read-only", calls: func(_ *world,
		p paths) []victim.Call {
		return []victim.Call{do("openat", cwd, text(p.data+"/f"), i(unix.O_WRONLY))}
	}},
	{group: files, name: "change times in what is granted read-only", calls: func(_ *world,
		p paths) []victim.Call {
		return []victim.Call{do("utimensat", cwd, text(p.data+"/f"), i(0), i(0))}
	}},
	{group: files, name: "make a set-user-id file in a writable directory", calls: func(_ *world,
		p paths) []victim.Call {
		return []victim.Call{do("chmod", text(p.store+"/f"), i(0o4755))}
	}},
	{group: files, name: "make a device node", calls: func(_ *world, p paths) []victim.Call {
		return []victim.Call{do("mknodat", cwd, text(p.store+"/null"), i(unix.S_IFCHR|0o666),
			i(0x103))}
	}},
	{group: files, name: "leave a FIFO for the host to open", calls: func(_ *world,
		p paths) []victim.Call {
		return []victim.Call{do("mknodat", cwd, text(p.store+"/fifo"), i(unix.S_IFIFO|0o666), i(0))}
	}},
	{group: files, name: "leave a link to a file of the host in a writable directory",
		calls: func(w *world, p paths) []victim.Call {
			return []victim.Call{do("symlinkat", text(w.secret), cwd, text(p.store+"/link"))}
		}},
	{group: files, name: "execute a program that it brought along", calls: func(_ *world,
		p paths) []victim.Call {
		return []victim.Call{do("execve", text(p.store+"/program"),
			victim.Arg{List: []string{"probe", "hello"}}, i(0))}
	}},
	{group: files, name: "make an executable file in memory",
		calls: call("memfd_create", text("x"), i(0))},
	{group: files, name: "open by handle", calls: call("open_by_handle_at", cwd, buf(8), i(0)),
		through: []string{"EINVAL"}},

	{group: procs, name: "kill a process of its own user on the host", calls: func(w *world,
		_ paths) []victim.Call {
		return []victim.Call{do("kill", i(int64(w.victim)), i(int64(unix.SIGTERM)))}
	}},
	{group: procs, name: "attach a System V segment of the host", calls: func(w *world,
		_ paths) []victim.Call {
		return []victim.Call{do("shmget", i(int64(w.key)), i(0), i(0))}
	}},
	{group: procs, name: "read the host's name", calls: call("uname", buf(390)),
		sees: func(w *world, data string) bool {
			return strings.Contains(data, "\x00"+w.hostname+"\x00")
		}},
	{group: procs, name: "read the host's paths in the mount table",
		calls: call("=read", text("/proc/self/mountinfo")), sees: seesPaths},
	{group: procs, name: "read how long the host has been up",
		calls: call("=read", text("/proc/uptime"))},
	{group: procs, name: "read the kernel's command line",
		calls: call("=read", text("/proc/cmdline"))},
	{group: procs, name: "read the addresses of the kernel's symbols", calls: call("=read",
		text("/proc/kallsyms")),
		sees: func(_ *world, table string) bool {
			return !strings.HasPrefix(table, "0000000000000000 ")
		}},
	{group: procs, name: "read the kernel's build notes in /sys",
		calls: call("=read", text("/sys/kernel/notes"))},
	{group: procs, name: "open core_pattern to write",
		calls: open("/proc/sys/kernel/core_pattern", unix.O_WRONLY)},
	{group: procs, name: "open overcommit_memory to write",
		calls: open("/proc/sys/vm/overcommit_memory", unix.O_WRONLY)},
	{group: procs, name: "ptrace", calls: call("ptrace", i(unix.PTRACE_PEEKDATA), i(1<<22), i(0),
		i(0)), through: []string{"ESRCH"}},
	{group: procs, name: "process_vm_readv", calls: call("process_vm_readv", i(1<<22), i(0), i(0),
		i(0), i(0), i(0)), through: []string{"ESRCH"}},
	{group: procs, name: "set the clock", calls: call("clock_settime", i(0), i(0)),
		through: []string{"EFAULT"}},

	{group: kernel, name: "io_uring", calls: call("io_uring_setup", i(0), buf(120)),
		through: []string{"EINVAL"}},
	{group: kernel, name: "bpf", calls: call("bpf", i(0), buf(8192), i(8192)),
		through: []string{"E2BIG"}},
	{group: kernel, name: "perf_event_open", calls: call("perf_event_open", i(0), i(0), i(-1),
		i(-1), i(1<<20)), through: []string{"EINVAL"}},
	{group: kernel, name: "userfaultfd for user faults", calls: call("userfaultfd", i(1))},
	{group: kernel, name: "a key in a keyring",
		calls: call("add_key", text("user"), text("league"), text("x"), i(1), i(-1))},
	{group: kernel, name: "the key of a session", calls: call("keyctl", i(0), i(-3), i(1))},
	{group: kernel, name: "splice", calls: call("splice", i(-1), i(0), i(-1), i(0), i(1), i(0)),
		through: []string{"EBADF"}},
	{group: kernel, name: "personality: no randomised addresses",
		calls: call("personality", i(0x0040000))},
	{group: kernel, name: "TIOCSTI", calls: call("ioctl", i(0), i(unix.TIOCSTI), text("x")),
		through: []string{"ENOTTY", "EIO"}},
	{group: kernel, name: "a system call of i386 (int 0x80)", calls: call("=int80", i(20))},
	{group: kernel, name: "a system call that is newer than filters (listmount)",
		calls: call("listmount", i(0), i(0), i(0), i(0)), through: []string{"EFAULT", "EINVAL"}},
	{group: kernel, name: "open the kernel's log", calls: call("syslog", i(10), i(0), i(0))},

	{group: rights, name: "a user namespace", calls: call("=fork", i(unix.CLONE_NEWUSER))},
	{group: rights, name: "a mount namespace", calls: call("=fork", i(unix.CLONE_NEWNS))},
	{group: rights, name: "a user namespace and mounts in it",
		calls: call("=fork", i(unix.CLONE_NEWUSER|unix.CLONE_NEWNS|unix.CLONE_NEWNET))},
	{group: rights, name: "mount a tmpfs",
		calls: call("mount", text("none"), text("/tmp"), text("tmpfs"), i(0), i(0))},
	{group: rights, name: "fsopen", calls: call("fsopen", text("tmpfs"), i(0))},
	{group: rights, name: "chroot", calls: call("chroot", text("/tmp"))},
	{group: rights, name: "setuid 0", calls: call("setuid", i(0))},
	{group: rights, name: "sethostname", calls: call("sethostname", text("x"), i(1))},

	{group: netw, name: "connect to the host's 127.0.0.1", calls: func(w *world,
		_ paths) []victim.Call {
		return []victim.Call{do("socket", i(unix.AF_INET), i(unix.SOCK_STREAM), i(0)),
			do("connect", victim.Ref(1), victim.Bytes(2, 0, byte(w.port>>8), byte(w.port), 127, 0,
				0, 1, 0, 0, 0, 0, 0, 0, 0, 0), i(16))}
	}},
	{group: netw, name: "connect to an abstract socket of the host", calls: func(w *world,
		_ paths) []victim.Call {
		return []victim.Call{do("socket", i(unix.AF_UNIX), i(unix.SOCK_STREAM), i(0)),
			do("connect", victim.Ref(1), victim.Bytes(append([]byte{1, 0, 0}, w.socket...)...),
				i(int64(3+len(w.socket))))}
	}},
	{group: netw, name: "connect to a socket file in a writable directory", calls: func(_ *world,
		p paths) []victim.Call {
		address := append([]byte{1, 0}, p.store+"/socket\x00"...)
		return []victim.Call{do("socket", i(unix.AF_UNIX), i(unix.SOCK_STREAM), i(0)),
			do("connect", victim.Ref(1), victim.Bytes(address...), i(int64(len(address))))}
	}},
	{group: netw, name: "a socket of AF_NETLINK",
		calls: call("socket", i(unix.AF_NETLINK), i(unix.SOCK_RAW), i(0))},
	{group: netw, name: "a socket of AF_PACKET",
		calls: call("socket", i(unix.AF_PACKET), i(unix.SOCK_RAW), i(0))},
	{group: netw, name: "a socket of AF_INET with MPTCP",
		calls: call("socket", i(unix.AF_INET), i(unix.SOCK_STREAM), i(unix.IPPROTO_MPTCP))},

	{group: limits, name: "200 processes", calls: call("=forks", i(200))},
	{group: limits, name: "512 MiB of memory", calls: call("=touch", i(512<<20))},
	{group: limits, name: "64 MiB in /tmp", calls: call("=fill", text("/tmp/fill"), i(64<<20))},
	{group: limits, name: "64 MiB in one file of a writable directory", calls: func(_ *world,
		p paths) []victim.Call {
		return []victim.Call{do("=fill", text(p.store+"/fill"), i(64<<20))}
	}},
}

// seesPaths looks for the directory of what is granted, and for the mount point that it lies on.
func seesPaths(w *world, table string) bool {
	return strings.Contains(table, filepath.Join(filepath.Base(filepath.Dir(w.data)), "data")+
		" ") || strings.Contains(table, " /opt ")
}

// judge says how an attack went by its results.
func (a attack) judge(w *world, results []victim.Result) answer {
	for n, r := range results {
		if r.Errno == "" {
			continue
		}
		last := n == len(results)-1
		return answer{Stopped: !last || !slices.Contains(a.through, r.Errno), Text: r.Errno}
	}
	if len(a.through) > 0 && !slices.Contains(a.through, "ok") && len(results) > 0 {
		return answer{Text: "ok"}
	}
	if a.sees != nil && !a.sees(w, string(results[len(results)-1].Data)) {
		return answer{true, "shows another"}
	}
	if strings.HasPrefix(a.name, "a system call of i386") && results[0].Ret < 0 {
		return answer{true, unix.ErrnoName(unix.Errno(-results[0].Ret))}
	}
	return answer{Text: "ok"}
}
