//go:build amd64

package main

import (
	"slices"

	"golang.org/x/sys/unix"
)

// With -role every system call of every program is a point, but those with which a Go program keeps itself going, and those that cannot fail.
var never = []uint64{
	unix.SYS_FUTEX, unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MPROTECT, unix.SYS_MADVISE, unix.SYS_BRK, unix.SYS_MINCORE, unix.SYS_NANOSLEEP,
	unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_GETTIMEOFDAY, unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT,
	unix.SYS_EPOLL_WAIT, unix.SYS_EVENTFD2, unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK,
	unix.SYS_TGKILL, unix.SYS_TIMER_CREATE, unix.SYS_TIMER_SETTIME, unix.SYS_TIMER_DELETE, unix.SYS_SETITIMER, unix.SYS_SCHED_YIELD,
	unix.SYS_SCHED_GETAFFINITY, unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_GETUID, unix.SYS_GETEUID, unix.SYS_GETGID, unix.SYS_GETEGID, unix.SYS_CLONE,
	unix.SYS_CLONE3, unix.SYS_EXIT, unix.SYS_EXIT_GROUP, unix.SYS_SET_ROBUST_LIST, unix.SYS_SET_TID_ADDRESS, unix.SYS_ARCH_PRCTL, unix.SYS_RSEQ,
	unix.SYS_PRCTL, unix.SYS_CLOSE, unix.SYS_SETFSUID, unix.SYS_SETFSGID, unix.SYS_GETRANDOM, unix.SYS_UNAME, unix.SYS_PRLIMIT64, unix.SYS_EXECVE, unix.SYS_RESTART_SYSCALL,
}

var more = map[uint64]call{
	unix.SYS_NEWFSTATAT: {"newfstatat", path1}, unix.SYS_FSTAT: {"fstat", fd0}, unix.SYS_STATX: {"statx", path1}, unix.SYS_READ: {"read", fd0},
	unix.SYS_PREAD64: {"pread64", fd0}, unix.SYS_GETDENTS64: {"getdents64", fd0}, unix.SYS_READLINKAT: {"readlinkat", path1}, unix.SYS_LSEEK: {"lseek", fd0},
	unix.SYS_FGETXATTR: {"fgetxattr", fd0}, unix.SYS_FLISTXATTR: {"flistxattr", fd0}, unix.SYS_FSETXATTR: {"fsetxattr", fd0},
	unix.SYS_GETXATTR: {"getxattr", path0}, unix.SYS_LISTXATTR: {"listxattr", path0}, unix.SYS_SETXATTR: {"setxattr", path0}, unix.SYS_FACCESSAT2: {"faccessat2", path1},
	unix.SYS_FACCESSAT: {"faccessat", path1},
}

// everyCall returns the point that a call is with -role.
func everyCall(nr uint64) (call, bool) {
	if slices.Contains(never, nr) {
		return call{}, false
	}
	if c, ok := more[nr]; ok {
		return c, true
	}
	if c, ok := calls[nr]; ok && nr != unix.SYS_FCNTL {
		return c, true
	}
	return call{}, false
}
