package jail

// Bits of arguments (clone(2), prctl(2)).
const (
	cloneThread     = 0x00010000
	cloneNamespaces = 0x7e020080 // CLONE_NEW*: time, mount, cgroup, uts, ipc, user, pid, net
	setVMA          = 0x53564d41 // PR_SET_VMA
)

// Descriptors of jail-init (jail/control).
const (
	initControl  = 3
	initListener = 4
)

// runtimeCalls are what the Go runtime goes on using around the engine when everything is set up.
var runtimeCalls = []call{
	{"read", "descriptors", nil}, {"write", "descriptors", nil}, {"close", "descriptors", nil},
	// Not locks, leases and signals: they would reach whoever else has the file, other jails and the host among them.
	{"fcntl", "whether a descriptor waits, and appends", oneOf(1, 1, 2, 3, 4, 1030)}, // F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC
	{"mmap", "heap, stacks, guest memory, compiled code", nil}, {"munmap", "guest memory is given back", nil},
	{"mprotect", "compiled code is made executable, and guest memory grows", nil}, {"madvise", "heap is given back", nil},
	{"rt_sigaction", "signals", nil}, {"rt_sigprocmask", "start of a thread", nil}, {"rt_sigreturn", "preemption", nil}, {"sigaltstack", "start of a thread", nil},
	{"getpid", "preemption", nil}, {"gettid", "start of a thread", nil}, {"tgkill", "preemption", nil},
	// A filter sees the flags of clone and cannot see those of clone3.
	{"clone", "a thread, and neither a process nor a namespace", []demand{{{Mask: cloneThread | cloneNamespaces, Value: cloneThread}}}},
	{"exit_group", "the end", nil},
	{"futex", "threads wait for each other", nil}, {"sched_yield", "threads, and sched_yield", nil}, {"nanosleep", "the runtime's monitor", nil},
	{"restart_syscall", "a wait goes on after the jail was stopped", nil},
	{"clock_gettime", "clocks that are not in memory", nil}, {"getrandom", "random_get", nil},
	{"epoll_ctl", "the control socket is waited for", nil}, {"epoll_pwait", "the control socket is waited for", nil},
	{"prctl", "areas of memory get names", []demand{{arg(0, setVMA)}}},
	{"recvmsg", "orders and their descriptors", []demand{{arg(0, initControl)}}},
	{"sendmsg", "the listener of the filter itself", []demand{{arg(0, initListener)}}},
}

// wasiCalls are what the guest's files, clocks and streams need.
var wasiCalls = []call{
	{"openat", "mounts, the module's compiled form", nil}, {"openat2", "paths, beneath a directory", nil},
	{"fstat", "fd_filestat_get", nil}, {"newfstatat", "path_filestat_get", nil}, {"fstatfs", "whether a file system can exchange names", nil},
	{"getdents64", "fd_readdir", nil}, {"lseek", "fd_seek", nil},
	{"readv", "fd_read", nil}, {"writev", "fd_write", nil}, {"preadv", "fd_pread", nil}, {"pwritev", "fd_pwrite", nil},
	{"pread64", "the module", nil},
	{"ftruncate", "fd_filestat_set_size", nil}, {"fallocate", "fd_allocate", nil}, {"fsync", "fd_sync", nil}, {"fdatasync", "fd_datasync", nil},
	{"fadvise64", "fd_advise", nil}, {"mkdirat", "path_create_directory", nil}, {"unlinkat", "path_unlink_file, path_remove_directory", nil},
	{"renameat2", "path_rename", nil}, {"linkat", "path_link", nil}, {"symlinkat", "path_symlink", nil},
	{"readlinkat", "path_readlink, and links on the way", nil}, {"utimensat", "path_filestat_set_times", nil},
	{"ppoll", "poll_oneoff", nil}, {"clock_getres", "clock_res_get", nil},
}

// confineCalls are what jail-init still needs when the ceiling's filter is on, to put on its own. That one takes them away.
var confineCalls = []call{
	{"seccomp", "the inner filter", nil}, {"prctl", "privileges stay given up", []demand{{arg(0, 38)}}}, // PR_SET_NO_NEW_PRIVS
	{"sendmsg", "the listener of the inner filter", []demand{{arg(0, initListener)}}}, {"close", "its socket", nil},
	{"recvmsg", "the invocation", []demand{{arg(0, initControl)}}},
}

// compileCalls are what the engine needs to leave the compiled form of a module behind.
var compileCalls = []call{{"renameat", "a compiled form gets its name", nil}}

// initCalls are what libcontainer's last steps and jail-init need before the inner filter takes it away.
var initCalls = []call{
	{"execve", "jail-init, and jail-init once more under Landlock", nil},
	{"landlock_create_ruleset", "Landlock", nil}, {"landlock_add_rule", "Landlock", nil}, {"landlock_restrict_self", "Landlock", nil},
	{"seccomp", "the inner filter", nil},
	{"prctl", "privileges are given up", oneOf(0, 1, 4, 38)}, // PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS
	{"prlimit64", "rlimits", nil}, {"getrlimit", "rlimits", nil},
	{"close_range", "no descriptor is left", nil}, {"getcwd", "the working directory is inside", nil},
	{"arch_prctl", "start of a program", nil}, {"sched_getaffinity", "number of processors", nil},
	{"epoll_create1", "the runtime's poller", nil}, {"eventfd2", "the runtime's poller", nil},
	{"recvmsg", "restrictions and filter", nil}, {"sendmsg", "the listener", nil},
	{"statx", "libcontainer looks at its own descriptors", nil},
}
