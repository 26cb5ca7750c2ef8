package jail

import (
	"slices"
	"strings"
)

// A call is a system call that a filter allows, and why.
type call struct{ name, why string }

// callGroups are the named groups that filters are made of. What is in none of a filter's groups is refused.
var callGroups = map[string][]call{
	// What the Go runtime of jail-init and of the engine inside it uses.
	"runtime": {
		{"read", "descriptors"}, {"write", "descriptors"}, {"close", "descriptors"},
		{"mmap", "heap, stacks, guest memory, compiled code"}, {"munmap", "heap"}, {"madvise", "heap given back"},
		{"mprotect", "compiled code is made executable"}, {"mremap", "heap"}, {"mincore", "runtime checks a mapping"}, {"brk", "vdso-less start"},
		{"rt_sigaction", "signals"}, {"rt_sigprocmask", "signals"}, {"rt_sigreturn", "signals"}, {"sigaltstack", "signals"},
		{"tgkill", "preemption"}, {"getpid", "preemption"}, {"gettid", "threads"}, {"clone", "threads"}, {"exit", "threads"}, {"exit_group", "end"},
		{"futex", "threads"}, {"sched_yield", "threads"}, {"sched_getaffinity", "number of processors"}, {"nanosleep", "runtime monitor"},
		{"set_robust_list", "thread start"}, {"rseq", "thread start"}, {"restart_syscall", "after a stop"},
		{"clock_gettime", "time, where the vdso cannot"}, {"clock_nanosleep", "sleep"}, {"clock_getres", "clock_res_get"}, {"getrandom", "hash seeds, random_get"},
		{"epoll_create1", "poller"}, {"epoll_ctl", "poller"}, {"epoll_pwait", "poller"}, {"eventfd2", "poller"}, {"pipe2", "poller"},
		{"fcntl", "descriptor flags"}, {"arch_prctl", "thread start"}, {"prctl", "names of memory areas"}, {"uname", "kernel version"},
		{"getrlimit", "descriptor limit at start"}, {"prlimit64", "descriptor limit at start"}, {"getuid", "start"}, {"getgid", "start"},
		{"geteuid", "start"}, {"getegid", "start"}, {"getppid", "start"},
	},
	// What the guest's file system, clocks and streams need.
	"wasi": {
		{"openat", "files"}, {"openat2", "files, beneath a directory"}, {"fstat", "files"}, {"newfstatat", "files"}, {"statx", "files"},
		{"fstatfs", "kind of file system"}, {"getdents64", "directories"}, {"lseek", "files"}, {"pread64", "files"}, {"pwrite64", "files"},
		{"readv", "files"}, {"writev", "files"}, {"preadv", "files"}, {"pwritev", "files"}, {"ftruncate", "files"}, {"fallocate", "files"},
		{"fsync", "files"}, {"fdatasync", "files"}, {"fadvise64", "files"}, {"mkdirat", "directories"}, {"unlinkat", "files"},
		{"renameat", "files"}, {"renameat2", "files"}, {"linkat", "files"}, {"symlinkat", "links"}, {"readlinkat", "links"},
		{"utimensat", "times"}, {"poll", "poll_oneoff"}, {"ppoll", "poll_oneoff"}, {"pselect6", "poll_oneoff"},
		{"dup", "descriptors"}, {"dup3", "descriptors"}, {"recvmsg", "control socket"}, {"sendmsg", "control socket"}, {"faccessat2", "files"},
	},
	// What jail-init needs before the inner filter takes it away.
	"init": {
		{"execve", "jail-init executes itself under Landlock"}, {"landlock_create_ruleset", "Landlock"}, {"landlock_add_rule", "Landlock"},
		{"landlock_restrict_self", "Landlock"}, {"seccomp", "inner filter"}, {"setrlimit", "rlimits"}, {"close_range", "no descriptor is left"},
		{"access", "libcontainer's last steps"}, {"faccessat", "libcontainer's last steps"}, {"statfs", "libcontainer's last steps"},
		{"readlink", "libcontainer's last steps"}, {"stat", "libcontainer's last steps"}, {"getcwd", "libcontainer checks the directory"},
	},
}

// noSuchCall are answered ENOSYS, so that a C library falls back to a call whose arguments a filter can see.
var noSuchCall = []string{"clone3"}

// Bits of arguments (clone(2), prctl(2)).
const (
	cloneThread     = 0x00010000
	cloneNamespaces = 0x7e020080 // CLONE_NEW*: time, mount, cgroup, uts, ipc, user, pid, net
	prctlOption     = 0xffffffff
	setVMA          = 0x53564d41 // PR_SET_VMA
)

// conditions hold in every filter that has none of the groups that need the whole call.
var conditions = []struct {
	Condition
	unless string
}{
	// A thread, and neither a process nor a namespace: a filter sees the flags of clone and cannot see those of clone3.
	{Condition{"clone", 0, cloneThread | cloneNamespaces, cloneThread}, ""},
	// jail-init gives up privileges with prctl; the engine only names areas of memory.
	{Condition{"prctl", 0, prctlOption, setVMA}, "init"},
}

// NewFilter returns the allow-list of the named groups. Refused calls fail with EPERM.
func NewFilter(groups ...string) Filter {
	var allow []string
	for _, g := range groups {
		for _, c := range callGroups[g] {
			allow = append(allow, c.name)
		}
	}
	slices.SortFunc(allow, strings.Compare)
	f := Filter{Groups: groups, Allow: slices.Compact(allow), ENOSYS: slices.Clone(noSuchCall), Errno: "EPERM"}
	for _, c := range conditions {
		if slices.Contains(allow, c.Call) && !slices.Contains(groups, c.unless) {
			f.Only = append(f.Only, c.Condition)
		}
	}
	return f
}
