package jail

// Numbers of the arguments that native programs may use (asm-generic/ioctls.h, linux/prctl.h, linux/socket.h).
var (
	nativeIoctls = oneOf(1,
		0x5401,     // TCGETS: is it a terminal?
		0x540f,     // TIOCGPGRP: a shell asks whether it is in front
		0x5413,     // TIOCGWINSZ: how wide is it?
		0x541b,     // FIONREAD
		0x5421,     // FIONBIO
		0x5450,     // FIONCLEX
		0x5451,     // FIOCLEX
		0x40049409, // FICLONE: a copy that shares its blocks, between two open files
	)
	// On the jail's own terminal. None of them puts anything into the input of a terminal that somebody else reads: not TIOCSTI, not TIOCLINUX.
	terminalIoctls = oneOf(1,
		0x5402, 0x5403, 0x5404, // TCSETS, TCSETSW, TCSETSF: an editor reads key by key
		0x5409, 0x540a, 0x540b, // TCSBRK, TCXONC, TCFLSH: what is still to be written or read
		0x540e, 0x5422, 0x5429, // TIOCSCTTY, TIOCNOTTY, TIOCGSID: whose terminal it is
		0x5410,         // TIOCSPGRP: a shell puts a job in front
		0x5414,         // TIOCSWINSZ: its size
		0x5411, 0x5420, // TIOCOUTQ; TIOCPKT, of a program that runs others behind a terminal
		0x80045430, 0x40045431, 0x5441, // TIOCGPTN, TIOCSPTLCK, TIOCGPTPEER: a new terminal of the jail's
		0x802c542a, 0x402c542b, 0x402c542c, 0x402c542d, // TCGETS2, TCSETS2, TCSETSW2, TCSETSF2: the same with any speed
	)
	nativePrctls = oneOf(0,
		1,      // PR_SET_PDEATHSIG
		3,      // PR_GET_DUMPABLE
		15,     // PR_SET_NAME
		16,     // PR_GET_NAME
		23,     // PR_CAPBSET_READ
		39,     // PR_GET_NO_NEW_PRIVS
		setVMA, // names of memory areas
	)
	// Streams on the jail's own loopback: no datagrams, which could be sent past who is connected, no protocol but TCP,
	// and no other family, of which several know no network namespace. Flags are in the upper bits of the type.
	loopbackSockets = []demand{
		socketOf(afInet, 0), socketOf(afInet, tcp), socketOf(afInet6, 0), socketOf(afInet6, tcp),
	}
	unixSockets = []demand{socketOf(afUnix, 0)}
)

// nativeFallBack are answered ENOSYS and counted by nobody besides fallBack: programs try them first, or only to learn whether they are there, and do without.
var nativeFallBack = []string{
	"pidfd_open",                                                                  // Go and Python: they fall back to numbers of processes, of which the jail has its own
	"io_uring_setup",                                                              // libuv: it falls back to threads; what is asked of a ring no filter sees
	"listxattr", "llistxattr", "flistxattr", "setxattr", "lsetxattr", "fsetxattr", // cp, install: as on a file system that has no attributes
	"capget", "pkey_alloc", // Node
	"get_mempolicy", // on a machine with one kind of memory
	"preadv2", "pwritev2", "epoll_pwait2",
}

// nodeOf demands that the mode at this place is that of a FIFO.
func nodeOf(n uint) demand {
	const typeBits, fifo = 0xf000, 0x1000
	return demand{{Arg: n, Mask: typeBits, Value: fifo}}
}

// socketOf demands a stream socket.
func socketOf(family, protocol uint64) demand {
	const typeBits, stream = 0xf, 1 // SOCK_STREAM
	return demand{arg(0, family), {Arg: 1, Mask: typeBits, Value: stream}, arg(2, protocol)}
}

var memoryCalls = []call{
	{"mmap", "memory", nil}, {"munmap", "memory", nil}, {"mprotect", "libraries, compilers at run time", nil}, {"mremap", "memory grows", nil}, {"madvise", "memory is given back", nil},
	{"brk", "the oldest heap", nil}, {"msync", "mapped files", nil}, {"membarrier", "threads of V8", nil},
}

var processCalls = []call{
	{"clone", "processes and threads, no namespaces", []demand{{{Mask: cloneNamespaces, Value: 0}}}},
	{"fork", "processes", nil}, {"vfork", "processes", nil}, {"execve", "programs", nil}, {"exit", "the end of a thread", nil}, {"exit_group", "the end", nil},
	{"wait4", "the end of a child", nil}, {"waitid", "the end of a child", nil},
	{"futex", "threads wait for each other", nil}, {"set_robust_list", "start of a thread", nil}, {"rseq", "start of a thread", nil}, {"set_tid_address", "start of a program", nil},
	{"arch_prctl", "start of a program", nil}, {"prctl", "names, the parent's end", nativePrctls},
	{"getpid", "who am I", nil}, {"getppid", "who am I", nil}, {"gettid", "who am I", nil}, {"getuid", "who am I", nil}, {"geteuid", "who am I", nil}, {"getgid", "who am I", nil},
	{"getegid", "who am I", nil}, {"getgroups", "who am I", nil}, {"getresuid", "who am I", nil}, {"getresgid", "who am I", nil},
	// There is no other id to become without capabilities.
	{"setresuid", "make gives its children the ids that they have", nil}, {"setresgid", "make gives its children the ids that they have", nil},
	{"getpgrp", "jobs of a shell", nil}, {"getpgid", "jobs of a shell", nil}, {"setpgid", "jobs of a shell", nil}, {"getsid", "jobs of a shell", nil}, {"setsid", "a child of its own", nil},
	{"sched_yield", "threads", nil}, {"sched_getaffinity", "number of processors", nil},
	{"getpriority", "nice", nil}, {"setpriority", "nice: others first", nil},
	{"getrlimit", "limits", nil}, {"setrlimit", "lower limits", nil}, {"prlimit64", "limits", nil}, {"getrusage", "what was used", nil}, {"times", "what was used", nil},
}

var signalCalls = []call{
	{"rt_sigaction", "signals", nil}, {"rt_sigprocmask", "signals", nil}, {"rt_sigreturn", "signals", nil}, {"rt_sigsuspend", "a shell waits", nil},
	{"rt_sigpending", "signals", nil}, {"rt_sigtimedwait", "signals", nil}, {"sigaltstack", "signals", nil}, {"signalfd4", "signals", nil},
	{"kill", "processes of the jail", nil}, {"tgkill", "threads", nil}, {"pause", "waits", nil}, {"alarm", "waits", nil}, {"setitimer", "waits", nil},
	{"restart_syscall", "after a stop", nil},
}

var timeCalls = []call{
	{"clock_gettime", "time", nil}, {"clock_getres", "time", nil}, {"clock_nanosleep", "sleep", nil}, {"nanosleep", "sleep", nil}, {"gettimeofday", "time", nil},
	{"timer_create", "timers", nil}, {"timer_settime", "timers", nil}, {"timer_delete", "timers", nil},
	{"timerfd_create", "timers", nil}, {"timerfd_settime", "timers", nil}, {"timerfd_gettime", "timers", nil},
}

var fileCalls = []call{
	{"open", "files", nil}, {"creat", "files", nil}, {"openat", "files", nil}, {"openat2", "files", nil}, {"close", "files", nil}, {"close_range", "a child's descriptors", nil},
	{"stat", "files", nil}, {"fstat", "files", nil}, {"lstat", "files", nil}, {"newfstatat", "files", nil}, {"statx", "files", nil}, {"statfs", "files", nil}, {"fstatfs", "files", nil},
	{"access", "files", nil}, {"faccessat", "files", nil}, {"faccessat2", "files", nil}, {"readlink", "links", nil}, {"readlinkat", "links", nil},
	{"mkdir", "directories", nil}, {"mkdirat", "directories", nil}, {"rmdir", "directories", nil}, {"unlink", "files", nil}, {"unlinkat", "files", nil},
	{"rename", "files", nil}, {"renameat", "files", nil}, {"renameat2", "files", nil}, {"link", "links", nil}, {"linkat", "links", nil}, {"symlink", "links", nil}, {"symlinkat", "links", nil},
	{"chmod", "modes", nil}, {"fchmod", "modes", nil}, {"fchmodat", "modes", nil}, {"utimes", "times", nil}, {"utimensat", "times", nil},
	{"truncate", "files", nil}, {"ftruncate", "files", nil}, {"fallocate", "files", nil}, {"fsync", "files", nil}, {"fdatasync", "files", nil}, {"sync_file_range", "git", nil},
	{"fadvise64", "files", nil}, {"flock", "locks", nil}, {"getdents64", "directories", nil}, {"getcwd", "the working directory", nil},
	{"chdir", "the working directory", nil}, {"fchdir", "the working directory", nil}, {"umask", "modes", nil},
	{"getxattr", "attributes are read", nil}, {"lgetxattr", "attributes are read", nil}, {"fgetxattr", "attributes are read", nil},
	// To somebody else the kernel gives nothing: there are no capabilities.
	{"chown", "a copy keeps its owner", nil}, {"fchown", "a copy keeps its owner", nil}, {"lchown", "a copy keeps its owner", nil}, {"fchownat", "a copy keeps its owner", nil},
	{"mknod", "pipes with a name, no device", []demand{nodeOf(1)}}, {"mknodat", "pipes with a name, no device", []demand{nodeOf(2)}},
	{"inotify_init1", "changes are waited for", nil}, {"inotify_add_watch", "changes are waited for", nil}, {"inotify_rm_watch", "changes are waited for", nil},
}

var streamCalls = []call{
	{"read", "descriptors", nil}, {"write", "descriptors", nil}, {"readv", "descriptors", nil}, {"writev", "descriptors", nil}, {"pread64", "files", nil}, {"pwrite64", "files", nil},
	{"preadv", "files", nil}, {"pwritev", "files", nil}, {"lseek", "files", nil},
	{"fcntl", "descriptors", nil}, {"ioctl", "terminals, and whether a descriptor waits", nativeIoctls}, {"dup", "descriptors", nil}, {"dup2", "descriptors", nil}, {"dup3", "descriptors", nil},
	{"pipe", "pipes", nil}, {"pipe2", "pipes", nil}, {"sendfile", "copies", nil}, {"copy_file_range", "copies", nil},
	{"poll", "waits", nil}, {"ppoll", "waits", nil}, {"select", "waits", nil}, {"pselect6", "waits", nil}, {"eventfd2", "waits", nil},
	{"epoll_create1", "waits", nil}, {"epoll_ctl", "waits", nil}, {"epoll_wait", "waits", nil}, {"epoll_pwait", "waits", nil},
}

var socketCalls = []call{
	{"socket", "streams between programs of the jail", unixSockets}, {"socketpair", "streams to a child", unixSockets},
	{"connect", "streams", nil}, {"bind", "streams", nil}, {"listen", "streams", nil}, {"accept", "streams", nil}, {"accept4", "streams", nil}, {"shutdown", "streams", nil},
	{"getsockname", "streams", nil}, {"getpeername", "streams", nil}, {"getsockopt", "streams", nil}, {"setsockopt", "streams", nil},
	{"sendto", "streams", nil}, {"recvfrom", "streams", nil}, {"sendmsg", "streams", nil}, {"recvmsg", "streams", nil},
}

// loopbackCalls are for a jail whose loopback leads somewhere.
var loopbackCalls = []call{{"socket", "streams on the jail's own loopback", loopbackSockets}}

// terminalCalls are for a jail with a terminal of its own.
var terminalCalls = []call{{"ioctl", "the jail's own terminal", terminalIoctls}}

var hostCalls = []call{
	{"uname", "what runs here", nil}, {"sysinfo", "how much memory there is", nil}, {"getrandom", "random bytes", nil},
}
