package sys

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// SeccompSync returns nil if the kernel can put a filter on all threads of a process at once (seccomp(2), SECCOMP_FILTER_FLAG_TSYNC). It asks
// with no filter at all: a kernel that can gets as far as reading it, and finds that it is not there.
func SeccompSync() error {
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, 0)
	switch {
	case errno == unix.EFAULT:
		return nil
	case errno == 0:
		return errors.New("seccomp: a filter that is not there was taken")
	}
	return callError("seccomp SECCOMP_FILTER_FLAG_TSYNC", errno)
}

// SeccompAction returns nil if the kernel knows the action of a filter (seccomp(2), SECCOMP_GET_ACTION_AVAIL).
func SeccompAction(action uint32) error {
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
	if errno != 0 {
		return callError(fmt.Sprintf("seccomp SECCOMP_GET_ACTION_AVAIL %#x", action), errno)
	}
	return nil
}

// The actions of a jail's filters.
const (
	SeccompErrno       = unix.SECCOMP_RET_ERRNO
	SeccompKillProcess = unix.SECCOMP_RET_KILL_PROCESS
)

// NotThere reports whether err says that the kernel has no such call, or not with such arguments.
func NotThere(err error) bool {
	return errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENODEV)
}
