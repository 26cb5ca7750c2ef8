package seccomp

import (
	"slices"

	"golang.org/x/sys/unix"
)

// groups are the named groups of rules that filters are made of. A filter refuses every call that
// none of its groups allows. This file is all of them; filter.go joins them to filters.
var groups = map[string][]rule{
	// A module in the WebAssembly engine, which is a Go program.
	"runtime": runtimeRules,
	"wasi":    wasiRules,
	"init":    initRules,

	// A program of the host.
	"memory":    memoryRules,
	"processes": processRules,
	"signals":   signalRules,
	"time":      timeRules,
	"files":     fileRules,
	"streams":   streamRules,
	"terminals": terminalRules,
	"sockets":   socketRules,
	"host":      hostRules,

	// What some runs need besides.
	"fetch":    fetchRules,
	"loopback": loopbackRules,
	"links":    linkRules,
	"shell":    shellRules,
	"compile":  compileRules,
	"agent":    agentRules,
	"narrow":   narrowRules,
	"mux":      muxRules,
	"inside":   insideRules,

	// jail-init under the filter of a ceiling.
	"confine": confineRules,

	// The fetch proxy and the reader of repositories, which are in no jail.
	"network": networkRules,
	"reader":  readerRules,
}

// The groups of each kind of process.
var (
	// WASIGroups are for the WebAssembly engine and its module.
	WASIGroups = []string{"runtime", "wasi"}
	// InitGroups are for jail-init. The inner filter then takes the group init away.
	InitGroups = []string{"runtime", "wasi", "init"}
	// NativeGroups are for a program of the host.
	NativeGroups = []string{
		"memory", "processes", "signals", "time", "files", "streams", "terminals", "sockets",
		"host",
	}
	// NetworkGroups are for the fetch proxy.
	NetworkGroups = []string{"runtime", "network"}
	// ReaderGroups are for the reader of repositories.
	ReaderGroups = []string{"runtime", "reader"}
)

// absent are the calls that fail with ENOSYS in every filter, and that no listener counts, so that
// a C library falls back to an older call.
var absent = []string{
	// The flags are in memory, where a filter cannot see them. The library falls back to clone.
	"clone3",
	// libseccomp may be older than this call.
	"fchmodat2",
}

// absentNative are the calls that fail with ENOSYS for programs of the host besides. Programs try
// them first, or only ask whether the kernel has them.
var absentNative = slices.Concat(
	// Go and Python fall back to process ids, and a jail has its own.
	[]string{"pidfd_open"},
	// libuv falls back to threads. A filter does not see what a ring is asked to do.
	[]string{"io_uring_setup"},
	// Node.
	[]string{"pkey_alloc"},
	// JavaScript engines ask for threads of another priority, and continue without.
	[]string{"sched_setscheduler", "sched_getscheduler", "sched_getparam"},
	// Programs continue as on a machine with one memory node.
	[]string{"get_mempolicy"},
	// C libraries fall back to the older call of the same kind.
	[]string{"preadv2", "pwritev2", "epoll_pwait2"},
)

// unsupportedNative are the calls that fail with ENOTSUP for programs of the host. cp, install and
// Python's shutil continue as on a file system without extended attributes; Python does not where
// the error is ENOSYS or EPERM.
var unsupportedNative = []string{"listxattr", "llistxattr", "flistxattr", "setxattr", "lsetxattr",
	"fsetxattr"}

// invalidNative are the calls that fail with EINVAL for programs of the host, as between two files
// that cannot be spliced. GNU grep and cat, pv, and the standard libraries of Go and Rust then read
// and write; several of them fail where the error is another. The calls move pages of a pipe, or of
// the page cache, without a copy, and several ways from a read-only file to root led over them
// (CVE-2022-0847, CVE-2026-31431).
var invalidNative = []string{"splice", "tee", "vmsplice"}

// probed are the calls, as Describe names them, that everyday programs try and do without, so that
// a refusal changes nothing of what they do. They are refused, counted and recorded like any other,
// and not printed one by one.
var probed = slices.Concat(
	// ssh-agent and browsers keep secrets out of swap and core dumps; a jail has neither.
	[]string{"mlock2", "mlockall", "munlockall", "prctl(PR_SET_DUMPABLE)"},
	// Crash handlers name who may look at them; nobody may.
	[]string{"prctl(PR_SET_PTRACER)"},
	// Numerical libraries, build tools and package managers place and rank their threads.
	[]string{"sched_setaffinity", "sched_setparam", "sched_setattr", "sched_getattr",
		"sched_get_priority_min", "sched_get_priority_max", "ioprio_set", "ioprio_get", "mbind",
		"set_mempolicy"},
	// syslog(3) without a daemon that listens.
	[]string{"socket(AF_UNIX, SOCK_DGRAM)"},
	// libaudit, ss and libudev. They continue without, or read /proc.
	[]string{"socket(AF_NETLINK, SOCK_RAW, protocol 9)",
		"socket(AF_NETLINK, SOCK_RAW, protocol 4)", "socket(AF_NETLINK, SOCK_RAW, protocol 15)"},
	// Browsers fall back to files in /dev/shm, and to no further sandbox of their own.
	[]string{"memfd_create", "landlock_create_ruleset"},
	// MariaDB falls back to threads.
	[]string{"io_setup"},
	// SQLite asks whether the file system is F2FS (F2FS_IOC_GET_FEATURES).
	[]string{"ioctl(0x8004f50c)"},
	// C libraries look at routes before they connect, which a jail without a network has not.
	[]string{"socket(AF_NETLINK, SOCK_RAW)", "socket(AF_INET, SOCK_DGRAM)",
		"socket(AF_INET6, SOCK_DGRAM)"},
	// libcap looks at securebits and ambient capabilities when it is loaded.
	[]string{"prctl(PR_GET_SECUREBITS)", "prctl(PR_CAP_AMBIENT)"},
	// Ruby and databases ask for small pages in their children.
	[]string{"prctl(PR_SET_THP_DISABLE)"},
	// nano asks whether it is on a console, which no jail has (VT_GETSTATE).
	[]string{"ioctl(0x5603)"},
	// pv shares its cursor with other instances.
	[]string{"msgget"},
	// Databases look for an address that is unique to the host.
	[]string{"ioctl(SIOCGIFCONF)"},
	// Programs fall back to the call of today, or to a slower way.
	[]string{"inotify_init", "name_to_handle_at", "readahead"},
)

// IsProbe reports whether a refused call, as Describe names it, is one that programs try and do
// without.
func IsProbe(what string) bool { return slices.Contains(probed, what) }

// Descriptors of jail-init, as in jail/control.
const (
	initControl  = 3
	initListener = 4
)

// cloneNamespaces are the flags of clone(2) that make a namespace.
const cloneNamespaces = unix.CLONE_NEWCGROUP | unix.CLONE_NEWIPC | unix.CLONE_NEWNET |
	unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWTIME | unix.CLONE_NEWUSER |
	unix.CLONE_NEWUTS

// Requests of ioctl(2) that x/sys/unix has no name for (asm-generic/ioctls.h).
const (
	ioctlFIONREAD = 0x541b
	ioctlFIONBIO  = 0x5421
	ioctlFIONCLEX = 0x5450
	ioctlFIOCLEX  = 0x5451
)

// shmHugePages is SHM_HUGETLB of linux/shm.h, a flag of shmget(2).
const shmHugePages = 0o4000

// sockTypeMask are the bits of the type argument of socket(2) that are not flags (SOCK_TYPE_MASK of
// linux/net.h).
const sockTypeMask = 0xf

// runtimeRules are what the Go runtime uses around the engine after the start.
var runtimeRules = []rule{
	allow("descriptors", "read", "write", "close"),
	// No locks, leases or signals: they would reach other holders of the file, in other jails and
	// on the host.
	allow("whether a descriptor blocks, and appends", "fcntl").when(arg(1,
		unix.F_GETFD, unix.F_SETFD, unix.F_GETFL, unix.F_SETFL, unix.F_DUPFD_CLOEXEC)...),

	allow("heap, stacks, guest memory, compiled code", "mmap"),
	allow("guest memory is given back", "munmap"),
	allow("compiled code is made executable, and guest memory grows", "mprotect"),
	allow("heap is given back", "madvise"),
	allow("memory areas get names", "prctl").when(arg(0, unix.PR_SET_VMA)...),

	allow("signals", "rt_sigaction"),
	allow("start of a thread", "rt_sigprocmask", "sigaltstack", "gettid"),
	allow("preemption", "rt_sigreturn", "getpid", "tgkill"),
	allow("a wait continues after the jail was stopped", "restart_syscall"),

	// Threads, and neither processes nor namespaces. A filter sees the flags of clone and cannot
	// see those of clone3.
	allow("threads", "clone").when(masked(0, unix.CLONE_THREAD|cloneNamespaces, unix.CLONE_THREAD)),
	allow("threads wait for each other", "futex"),
	allow("threads, and sched_yield", "sched_yield"),
	allow("the runtime's monitor", "nanosleep"),
	allow("the end", "exit_group"),

	allow("clocks that are not in memory", "clock_gettime"),
	allow("random_get", "getrandom"),
	allow("wait for the control socket", "epoll_ctl", "epoll_pwait"),
	allow("orders and their descriptors", "recvmsg").when(arg(0, initControl)...),
	allow("the listener of the filter itself", "sendmsg").when(arg(0, initListener)...),
}

// wasiRules are what the files, clocks and streams of a module need.
var wasiRules = []rule{
	allow("mounts, the module's compiled form", "openat"),
	allow("paths beneath a directory", "openat2"),
	allow("fd_filestat_get", "fstat"),
	allow("path_filestat_get", "newfstatat"),
	allow("whether a file system can exchange names", "fstatfs"),
	allow("fd_readdir", "getdents64"),
	allow("fd_seek", "lseek"),
	allow("fd_read", "readv"),
	allow("fd_write", "writev"),
	allow("fd_pread", "preadv"),
	allow("fd_pwrite", "pwritev"),
	allow("the module", "pread64"),
	allow("fd_filestat_set_size", "ftruncate"),
	allow("fd_allocate", "fallocate"),
	allow("fd_sync", "fsync"),
	allow("fd_datasync", "fdatasync"),
	allow("fd_advise", "fadvise64"),
	allow("path_create_directory", "mkdirat"),
	allow("path_unlink_file, path_remove_directory", "unlinkat"),
	allow("path_rename", "renameat2"),
	allow("path_link", "linkat"),
	allow("path_symlink", "symlinkat"),
	allow("path_readlink, and links on the way", "readlinkat"),
	allow("path_filestat_set_times", "utimensat"),
	allow("poll_oneoff", "ppoll"),
	allow("clock_res_get", "clock_getres"),
}

// initRules are what the last steps of libcontainer and jail-init need before the inner filter
// takes these rules away.
var initRules = []rule{
	allow("jail-init, and jail-init once more under Landlock", "execve"),
	allow("Landlock", "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"),
	allow("the inner filter", "seccomp"),
	allow("privileges are given up", "prctl").when(arg(0,
		unix.PR_SET_PDEATHSIG, unix.PR_SET_DUMPABLE, unix.PR_SET_NO_NEW_PRIVS)...),
	allow("rlimits", "prlimit64", "getrlimit"),
	allow("no descriptor is left", "close_range"),
	allow("the working directory is inside", "getcwd"),
	allow("start of a program", "arch_prctl"),
	allow("number of processors", "sched_getaffinity"),
	allow("the runtime's poller", "epoll_create1", "eventfd2"),
	allow("restrictions and filter", "recvmsg"),
	allow("the listener", "sendmsg"),
	allow("libcontainer looks at its own descriptors", "statx"),
}

// confineRules are what jail-init needs to load the inner filter under the filter of a ceiling.
// The inner filter takes these rules away.
var confineRules = []rule{
	allow("the inner filter", "seccomp"),
	allow("privileges stay given up", "prctl").when(arg(0, unix.PR_SET_NO_NEW_PRIVS)...),
	allow("the listener of the inner filter", "sendmsg").when(arg(0, initListener)...),
	allow("the socket of the listener", "close"),
	allow("the invocation", "recvmsg").when(arg(0, initControl)...),
}

// compileRules are what the engine needs to leave the compiled form of a module behind.
var compileRules = []rule{
	allow("a compiled form gets its name", "renameat"),
}

// agentRules are what the host of an agent needs, which has the agent's database open and listens
// to its guest, besides the engine.
var agentRules = []rule{
	allow("the database and its log", "open", "pwrite64"),
	allow("whether the database and its log are there", "stat", "lstat"),
	allow("the log of a database that was closed", "unlink"),
	// Locks are for the one file that the jail can write on the host.
	allow("the database has one holder", "fcntl").when(arg(1, unix.F_SETLK, unix.F_GETLK)...),
	allow("who owns a new log", "fchown", "geteuid"),
	allow("a stream between the host of the agent and its guest", "socketpair").when(
		stream(unix.AF_UNIX, 0)),
	allow("half of a stream", "shutdown"),
}

// muxRules are what process 1 needs to carry streams to the proxy over one socket, in a jail whose
// kernel takes no descriptor out of a message.
var muxRules = []rule{
	allow("a stream of a guest, whose other end process 1 has", "socketpair").when(
		stream(unix.AF_UNIX, 0)),
	allow("half of a stream", "shutdown"),
}

// insideRules are what programs ask of a kernel of the jail's own that the host's answers without a
// call (vdso(7)).
var insideRules = []rule{
	allow("which processor, as a JVM asks for ever", "getcpu"),
}

// narrowRules are what process 1 of an agent's jail needs to start the agent's program in a
// narrower domain than its own. The program has them, too, and they take only rights of the process
// that calls them.
var narrowRules = []rule{
	allow("the program cannot open the database", "landlock_create_ruleset", "landlock_add_rule",
		"landlock_restrict_self"),
	allow("privileges stay given up", "prctl").when(arg(0, unix.PR_SET_NO_NEW_PRIVS)...),
}

// shellRules are what the interpreter of shell scripts needs besides the engine.
var shellRules = []rule{
	allow("pipelines, command substitution", "pipe2"),
	allow("$UID", "getuid"),
	allow("$EUID, test -r", "geteuid"),
	allow("$GID", "getgid"),
	allow("$PPID", "getppid"),
}

// fetchRules are what a jail needs for its connections to the fetch proxy, besides read and write.
var fetchRules = []rule{
	allow("the proxy sends the descriptor of a connection", "recvmsg"),
	allow("sock_shutdown", "shutdown"),
}

// memoryRules are about the memory of a program of the host.
var memoryRules = []rule{
	allow("memory", "mmap", "munmap", "mremap", "madvise"),
	allow("libraries, just-in-time compilers", "mprotect"),
	allow("the oldest heap", "brk"),
	allow("mapped files", "msync"),
	allow("threads of V8", "membarrier"),
	// RLIMIT_MEMLOCK bounds each process, and the pages count against the memory of the jail.
	allow("gpg keeps keys out of swap", "mlock", "munlock"),
	// The namespace has no segments but the jail's own. Their pages count against the memory of the
	// jail, and they end with it. Huge pages, locks and other owners stay out.
	allow("PostgreSQL, which a cluster needs to start", "shmget").when(masked(2, shmHugePages, 0)),
	allow("segments", "shmat", "shmdt"),
	allow("the end of a segment, and who uses it", "shmctl").when(
		arg(1, unix.IPC_RMID, unix.IPC_STAT)...),
}

// processRules are about processes and threads of programs of the host.
var processRules = []rule{
	// Processes and threads, and no namespaces.
	allow("processes and threads", "clone").when(masked(0, cloneNamespaces, 0)),
	allow("processes", "fork", "vfork"),
	allow("programs", "execve"),
	allow("the end", "exit", "exit_group"),
	allow("the end of a child", "wait4", "waitid"),
	allow("threads wait for each other", "futex"),
	allow("start of a thread", "set_robust_list", "rseq"),
	allow("start of a program", "set_tid_address", "arch_prctl"),
	allow("names, the parent's end", "prctl").when(arg(0,
		unix.PR_SET_PDEATHSIG, unix.PR_GET_DUMPABLE, unix.PR_SET_NAME, unix.PR_GET_NAME,
		unix.PR_CAPBSET_READ, unix.PR_GET_NO_NEW_PRIVS, unix.PR_GET_SECCOMP,
		unix.PR_SET_VMA)...),
	allow("no new privileges, which is so already", "prctl").when(arg(0,
		unix.PR_SET_NO_NEW_PRIVS)...),
	allow("which capabilities it has: none", "capget"),
	// Without capabilities there is nothing to drop, and the kernel refuses to add any. ip does not
	// start if it cannot drop them.
	allow("programs drop the capabilities that they do not need", "capset"),
	allow("ids", "getpid", "getppid", "gettid", "getuid", "geteuid", "getgid", "getegid",
		"getgroups", "getresuid", "getresgid"),
	// Without capabilities a process can change to no id but its own.
	allow("make gives its children the ids that they have", "setresuid", "setresgid"),
	// Older forms of these. A window of screen ends if they fail.
	allow("screen, likewise", "setuid", "setgid"),
	allow("jobs of a shell", "getpgrp", "getpgid", "setpgid", "getsid"),
	allow("a session of its own for a child", "setsid"),
	allow("threads", "sched_yield"),
	allow("number of processors", "sched_getaffinity"),
	allow("nice, which only lowers the priority", "getpriority", "setpriority"),
	allow("limits, which only fall", "getrlimit", "setrlimit", "prlimit64"),
	allow("usage", "getrusage", "times"),
}

// signalRules are about signals. The process namespace keeps them inside the jail.
var signalRules = []rule{
	allow("signals", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "rt_sigpending",
		"rt_sigtimedwait", "sigaltstack", "signalfd4"),
	allow("a shell waits", "rt_sigsuspend"),
	allow("processes of the jail", "kill"),
	allow("threads", "tgkill"),
	allow("waits", "pause", "alarm", "setitimer"),
	allow("after a stop", "restart_syscall"),
}

// timeRules are about clocks, sleep and timers. No rule sets a clock.
var timeRules = []rule{
	allow("time", "clock_gettime", "clock_getres", "gettimeofday"),
	allow("sleep", "clock_nanosleep", "nanosleep"),
	allow("timers", "timer_create", "timer_settime", "timer_delete",
		"timerfd_create", "timerfd_settime", "timerfd_gettime"),
}

// fileRules are about files by name. Landlock and the mounts decide which.
var fileRules = []rule{
	allow("files", "open", "creat", "openat", "openat2", "close"),
	allow("a child's descriptors", "close_range"),
	allow("what a file is", "stat", "fstat", "lstat", "newfstatat", "statx", "statfs", "fstatfs",
		"access", "faccessat", "faccessat2"),
	allow("directories", "mkdir", "mkdirat", "rmdir", "getdents64"),
	// The same work of the kernel as getdents64, in an older form.
	allow("directories, by sanitizers and older programs", "getdents"),
	allow("names", "unlink", "unlinkat", "rename", "renameat", "renameat2"),
	allow("links", "readlink", "readlinkat", "link", "linkat", "symlink", "symlinkat"),
	allow("modes", "chmod", "fchmod", "fchmodat", "umask"),
	allow("times", "utimes", "utimensat"),
	allow("sizes", "truncate", "ftruncate", "fallocate"),
	allow("to the disk", "fsync", "fdatasync"),
	allow("git", "sync_file_range"),
	allow("advice", "fadvise64"),
	allow("locks", "flock"),
	allow("the working directory", "getcwd", "chdir", "fchdir"),
	allow("extended attributes are read", "getxattr", "lgetxattr", "fgetxattr"),
	// Without capabilities the kernel gives no file to another owner.
	allow("a copy keeps its owner", "chown", "fchown", "lchown", "fchownat"),
	// FIFOs, and no devices.
	allow("named pipes", "mknod").when(masked(1, unix.S_IFMT, unix.S_IFIFO)),
	allow("named pipes", "mknodat").when(masked(2, unix.S_IFMT, unix.S_IFIFO)),
	allow("wait for changes", "inotify_init1", "inotify_add_watch", "inotify_rm_watch"),
}

// streamRules are about open descriptors.
var streamRules = []rule{
	allow("descriptors", "read", "write", "readv", "writev", "fcntl", "dup", "dup2", "dup3"),
	allow("files", "pread64", "pwrite64", "preadv", "pwritev", "lseek"),
	allow("terminals, and whether a descriptor blocks", "ioctl").when(arg(1,
		// Is the descriptor a terminal, how wide, and is the shell in the foreground?
		unix.TCGETS, unix.TIOCGPGRP, unix.TIOCGWINSZ,
		ioctlFIONREAD, ioctlFIONBIO, ioctlFIONCLEX, ioctlFIOCLEX,
		// A copy that shares its blocks, between two open files.
		unix.FICLONE)...),
	allow("pipes", "pipe", "pipe2"),
	allow("copies", "sendfile", "copy_file_range"),
	// epoll_create is epoll_create1 without flags. Redis and nginx have no other way to wait.
	allow("waits", "poll", "ppoll", "select", "pselect6", "eventfd2",
		"epoll_create", "epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait"),
}

// socketRules are about Unix sockets inside the jail: streams, and messages between a program and
// its children.
var socketRules = []rule{
	allow("streams between programs of the jail", "socket").when(stream(unix.AF_UNIX, 0)),
	// A pair is connected from the start. One of datagrams can be connected anew, to a socket that
	// a stream could be connected to as well.
	allow("streams and messages to a child, as socat's and Chromium's", "socketpair").when(
		stream(unix.AF_UNIX, 0), socketOf(unix.AF_UNIX, unix.SOCK_DGRAM, 0),
		socketOf(unix.AF_UNIX, unix.SOCK_SEQPACKET, 0)),
	allow("streams", "connect", "bind", "listen", "accept", "accept4", "shutdown",
		"getsockname", "getpeername", "getsockopt", "setsockopt",
		"sendto", "recvfrom", "sendmsg", "recvmsg"),
}

// loopbackRules are for a jail whose loopback has a listener, such as the fetch proxy. Streams
// only: datagrams could be sent past the connected peer. TCP only, and no other family, because
// several families know no network namespace.
var loopbackRules = []rule{
	allow("streams on the jail's own loopback", "socket").when(
		stream(unix.AF_INET, 0), stream(unix.AF_INET, unix.IPPROTO_TCP),
		stream(unix.AF_INET6, 0), stream(unix.AF_INET6, unix.IPPROTO_TCP)),
}

// linkRules are for programs that may use the jail's own loopback as they like. They ask for its
// interfaces and addresses, and send datagrams. The network namespace has nothing but the loopback,
// so that no datagram leaves it, and without capabilities a program changes none of what it asks
// about. Of netlink(7) there is the one protocol that is about the namespace alone.
var linkRules = []rule{
	allow("datagrams on the jail's own loopback", "socket").when(
		socketOf(unix.AF_INET, unix.SOCK_DGRAM, 0),
		socketOf(unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDP),
		socketOf(unix.AF_INET6, unix.SOCK_DGRAM, 0),
		socketOf(unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_UDP)),
	allow("the interfaces and addresses of the jail", "socket").when(
		socketOf(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE),
		socketOf(unix.AF_NETLINK, unix.SOCK_DGRAM, unix.NETLINK_ROUTE)),
}

// terminalRules are for the terminals of a jail of programs of the host: the one that -t gives it,
// and those that script, expect, tmux and test suites make for the programs that they run. All are
// of the jail's own devpts. None of the rules puts input into a terminal, not even into one of
// these: no TIOCSTI, no TIOCLINUX; and none loads a line discipline: no TIOCSETD.
var terminalRules = []rule{
	allow("the jail's own terminal", "ioctl").when(arg(1,
		// An editor reads key by key.
		unix.TCSETS, unix.TCSETSW, unix.TCSETSF,
		// Input and output that are still queued.
		unix.TCSBRK, unix.TCXONC, unix.TCFLSH,
		// The session that owns the terminal.
		unix.TIOCSCTTY, unix.TIOCNOTTY, unix.TIOCGSID,
		// A shell puts a job into the foreground.
		unix.TIOCSPGRP,
		unix.TIOCSWINSZ,
		unix.TIOCOUTQ,
		// A program that runs others behind a terminal.
		unix.TIOCPKT,
		// A new terminal of the jail's own.
		unix.TIOCGPTN, unix.TIOCSPTLCK, unix.TIOCGPTPEER,
		// The terminal's settings, with any speed.
		unix.TCGETS2, unix.TCSETS2, unix.TCSETSW2, unix.TCSETSF2)...),
}

// hostRules are questions about the machine.
var hostRules = []rule{
	allow("the kernel's version", "uname"),
	allow("how much memory there is", "sysinfo"),
	allow("random bytes", "getrandom"),
}

// networkRules are what the fetch proxy needs: it connects, never listens, and opens no file.
var networkRules = []rule{
	allow("connections to hosts and name servers", "socket").when(
		arg(0, unix.AF_INET, unix.AF_INET6)...),
	allow("a stream of a jail", "socketpair").when(arg(0, unix.AF_UNIX)...),
	allow("connections", "connect", "getsockname", "getpeername", "setsockopt", "getsockopt"),
	allow("half of a stream", "shutdown"),
	allow("whether an idle connection has ended", "recvfrom"),
	allow("name servers", "sendto"),
	allow("orders of the daemon, requests for a connection", "recvmsg"),
	allow("a stream is handed to a jail", "sendmsg"),
	allow("streams", "readv", "writev"),
	allow("a tunnel's streams", "splice", "pipe2"),
	allow("descriptors", "fstat", "dup"),
	allow("poller", "epoll_create1", "eventfd2"),
}

// readerRules are what the reader of repositories needs besides the runtime: it opens nothing, and
// its descriptors come from the daemon.
var readerRules = []rule{
	allow("files of a repository", "pread64"),
	allow("poller", "epoll_create1", "eventfd2"),
}

// stream demands a stream socket of a family and a protocol. Flags in the type argument are free.
func stream(family, protocol uint64) demand { return socketOf(family, unix.SOCK_STREAM, protocol) }

// socketOf demands a socket of a family, a type and a protocol. Flags in the type argument are
// free.
func socketOf(family, kind, protocol uint64) demand {
	return slices.Concat(arg(0, family)[0], masked(1, sockTypeMask, kind), arg(2, protocol)[0])
}
