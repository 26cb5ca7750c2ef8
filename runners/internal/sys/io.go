package sys

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// rw runs one of the four vectored calls. off < 0 means the file's own offset.
func rw(op string, trap uintptr, fd int, iovs [][]byte, off int64) (int, error) {
	var room [8]unix.Iovec
	vec := room[:0]
	for _, b := range iovs {
		if len(b) == 0 {
			continue
		}
		v := unix.Iovec{Base: unsafe.SliceData(b)}
		v.SetLen(len(b))
		vec = append(vec, v)
	}
	for {
		// Offsets are passed in two halves; on 64-bit machines the low one is all.
		n, _, e := unix.Syscall6(trap, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(vec))),
			uintptr(len(vec)), uintptr(off), 0, 0)
		if e == 0 {
			return int(n), nil
		}
		if e != unix.EINTR {
			return 0, wrapFD(op, fd, e)
		}
	}
}

// Readv reads into the buffers in turn. Zero bytes and no error is end of file.
// At most IOVMax buffers may be given, here and in the other three.
func Readv(fd int, iovs [][]byte) (int, error) { return rw("readv", unix.SYS_READV, fd, iovs, -1) }

// Writev writes the buffers in turn.
func Writev(fd int, iovs [][]byte) (int, error) {
	return rw("writev", unix.SYS_WRITEV, fd, iovs, -1)
}

// Preadv reads at the offset off.
func Preadv(fd int, iovs [][]byte, off int64) (int, error) {
	return rw("preadv", unix.SYS_PREADV, fd, iovs, off)
}

// Pwritev writes at the offset off.
func Pwritev(fd int, iovs [][]byte, off int64) (int, error) {
	return rw("pwritev", unix.SYS_PWRITEV, fd, iovs, off)
}

// Seek moves the file offset; whence is 0 (start), 1 (current) or 2 (end).
func Seek(fd int, off int64, whence int) (int64, error) {
	n, err := unix.Seek(fd, off, whence)
	return n, wrapFD("lseek", fd, err)
}

// Truncate sets the size of an open file, in bytes.
func Truncate(fd int, size int64) error {
	return wrapFD("ftruncate", fd, retry(func() error { return unix.Ftruncate(fd, size) }))
}

// Allocate makes sure that the range has disk space, growing the file if needed.
func Allocate(fd int, off, size int64) error {
	return wrapFD("fallocate", fd, retry(func() error { return unix.Fallocate(fd, 0, off, size) }))
}

// Advise passes a POSIX_FADV_* hint.
func Advise(fd int, off, size int64, advice int) error {
	return wrapFD("fadvise", fd, unix.Fadvise(fd, off, size, advice))
}

// Sync writes data and metadata out; Datasync only what reading back needs.
func Sync(fd int) error {
	return wrapFD("fsync", fd, retry(func() error { return unix.Fsync(fd) }))
}

// Datasync writes out the data, and the metadata that reading it back needs.
func Datasync(fd int) error {
	return wrapFD("fdatasync", fd, retry(func() error { return unix.Fdatasync(fd) }))
}

// Getdents fills buf with raw directory entries and returns the bytes used.
func Getdents(fd int, buf []byte) (int, error) {
	var n int
	err := retry(func() (err error) {
		n, err = unix.Getdents(fd, buf)
		return err
	})
	return n, wrapFD("getdents64", fd, err)
}

// PollFD is one descriptor to wait for.
type PollFD = unix.PollFd

// Poll events.
const (
	PollIn  = unix.POLLIN
	PollOut = unix.POLLOUT
	PollHup = unix.POLLHUP
)

// Poll waits until a descriptor is ready or the time is over; a nil time waits
// for ever. It reports how many descriptors have events. A signal ends the
// wait early with zero, so the caller asks the clock again.
func Poll(fds []PollFD, timeout *Timespec) (int, error) {
	n, err := unix.Ppoll(fds, timeout, nil)
	if err == unix.EINTR {
		return 0, nil
	}
	if err != nil {
		return 0, wrap("ppoll", "", err)
	}
	return n, nil
}

// Clock reads a clock, in nanoseconds.
func Clock(id int32) (int64, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		return 0, wrap("clock_gettime", "", err)
	}
	return ts.Nano(), nil
}

// ClockResolution reads the resolution of a clock, in nanoseconds.
func ClockResolution(id int32) (int64, error) {
	var ts unix.Timespec
	if err := unix.ClockGetres(id, &ts); err != nil {
		return 0, wrap("clock_getres", "", err)
	}
	return ts.Nano(), nil
}

// Yield lets another thread run.
func Yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// A Thread is a thread of this process, whose CPU time any other thread may read.
type Thread struct{ clock int32 }

// ThisThread returns the thread that calls it. The goroutine must stay on that thread
// (runtime.LockOSThread).
func ThisThread() Thread {
	// The clock of a thread by its number, as pthread_getcpuclockid(3) computes it: the thread's
	// own time (4), measured by the scheduler (2).
	return Thread{int32(^unix.Gettid()<<3 | 4 | 2)}
}

// CPUTime returns how long the thread has run.
func (t Thread) CPUTime() (time.Duration, error) {
	n, err := Clock(t.clock)
	return time.Duration(n), err
}
