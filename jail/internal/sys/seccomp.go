package sys

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// filterFlags put the filter on every thread at once. If a thread cannot take it, the result is
	// an error (ESRCH) and not the number of the thread.
	filterFlags = unix.SECCOMP_FILTER_FLAG_TSYNC | unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH
	// listenerFlags ask for a listener. A caller that waits for the listener is woken only by a
	// signal that kills it, so that no call is reported twice.
	listenerFlags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER |
		unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
)

// LoadFilter puts a seccomp filter on every thread of the calling process and sets no_new_privs
// (seccomp(2)). program holds struct sock_filter instructions, as seccomp_export_bpf(3) writes
// them. If a thread cannot take the filter, LoadFilter returns an error. It uses only
// SECCOMP_FILTER_FLAG_TSYNC, which gVisor supports too.
func LoadFilter(program []byte) error {
	thread, err := loadFilter(program, unix.SECCOMP_FILTER_FLAG_TSYNC)
	if err == nil && thread != 0 {
		return fmt.Errorf("seccomp SECCOMP_SET_MODE_FILTER: thread %d did not take the filter", thread)
	}
	return err
}

// LoadListenedFilter loads a seccomp filter like LoadFilter and returns its listener, to which the
// kernel reports calls with the action SeccompNotify (seccomp_unotify(2)). A process can have only
// one listener; a second one is EBUSY.
func LoadListenedFilter(program []byte) (*os.File, error) {
	fd, err := loadFilter(program, filterFlags|listenerFlags)
	if err != nil {
		return nil, err
	}
	return os.NewFile(fd, "seccomp listener"), nil
}

// NoNewPrivsOption is the option of prctl(2) for no_new_privs.
const NoNewPrivsOption = unix.PR_SET_NO_NEW_PRIVS

// NoNewPrivs sets no_new_privs for the calling thread.
func NoNewPrivs() error {
	return callError("prctl PR_SET_NO_NEW_PRIVS", unix.Prctl(NoNewPrivsOption, 1, 0, 0, 0))
}

func loadFilter(program []byte, flags uintptr) (uintptr, error) {
	// size is that of a struct sock_filter.
	const size = 8
	if len(program) == 0 || len(program)%size != 0 || len(program)/size > unix.BPF_MAXINSNS {
		return 0, fmt.Errorf(
			"seccomp filter of %d bytes: not a whole number of instructions, or too many",
			len(program))
	}
	if err := NoNewPrivs(); err != nil {
		return 0, err
	}
	prog := unix.SockFprog{Len: uint16(len(program) / size),
		Filter: (*unix.SockFilter)(unsafe.Pointer(&program[0]))}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags,
		uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(program)
	if errno != 0 {
		return 0, callError("seccomp SECCOMP_SET_MODE_FILTER", errno)
	}
	return fd, nil
}

// SeccompFlags returns nil if the kernel supports the flags of LoadListenedFilter. It passes a nil
// filter: a kernel that knows the flags fails with EFAULT.
func SeccompFlags() error {
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		filterFlags|listenerFlags, 0)
	switch {
	case errno == unix.EFAULT:
		return nil
	case errno == 0:
		return errors.New("seccomp: a filter that is not there was taken")
	}
	return callError("seccomp SECCOMP_SET_MODE_FILTER", errno)
}

// SeccompAction returns nil if the kernel supports a filter action (seccomp(2),
// SECCOMP_GET_ACTION_AVAIL).
func SeccompAction(action uint32) error {
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0,
		uintptr(unsafe.Pointer(&action)))
	if errno != 0 {
		return callError(fmt.Sprintf("seccomp SECCOMP_GET_ACTION_AVAIL %#x", action), errno)
	}
	return nil
}

// The actions of a jail's filters.
const (
	SeccompErrno       = unix.SECCOMP_RET_ERRNO
	SeccompTrace       = unix.SECCOMP_RET_TRACE
	SeccompNotify      = unix.SECCOMP_RET_USER_NOTIF
	SeccompKillProcess = unix.SECCOMP_RET_KILL_PROCESS
)

// AwaitNoReader waits until the read end of a pipe is closed everywhere. f is the write end.
func AwaitNoReader(f *os.File) error {
	_, err := poll(f.Fd(), 0, -1)
	return err
}

// HungUp reports whether the other end of fd is closed (POLLHUP). It does not wait, and returns
// false if poll(2) fails.
func HungUp(fd uintptr) bool {
	got, err := poll(fd, 0, 0)
	return err == nil && got&unix.POLLHUP != 0
}
