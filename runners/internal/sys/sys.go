// Package sys holds the system calls of the code under runners that runs inside a jail, one
// function per call. No other package there imports unsafe or x/sys/unix. Every function retries
// EINTR, and its error names the operation and the path (or the descriptor where there is no path).
package sys

import (
	"errors"
	"io/fs"
	"os/signal"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Errno is a kernel error number. Error values of this package wrap one.
type Errno = unix.Errno

// ErrnoOf returns the error number that err wraps, EIO for an error that wraps
// none, and zero for nil.
func ErrnoOf(err error) Errno {
	if err == nil {
		return 0
	}
	// Every error of this package.
	if pe, ok := err.(*fs.PathError); ok {
		if n, ok := pe.Err.(Errno); ok {
			return n
		}
	}
	if n, ok := errors.AsType[Errno](err); ok {
		return n
	}
	return unix.EIO
}

// wrap names the operation and its path. A nil error stays nil.
func wrap(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}

// wrapFD is wrap for a call that knows only a descriptor.
func wrapFD(op string, fd int, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: "fd " + strconv.Itoa(fd), Err: err}
}

// retry calls f until it returns something other than EINTR.
func retry(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}

// Reserve takes size bytes of address space that cannot be touched yet and that
// costs no memory. Give it back with Release.
func Reserve(size int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, size, unix.PROT_NONE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	return b, wrap("mmap", "", err)
}

// Open makes part of a reservation usable. Its pages are zero and cost memory
// only once they are touched.
func Open(part []byte) error {
	return wrap("mprotect", "", unix.Mprotect(part, unix.PROT_READ|unix.PROT_WRITE))
}

// Release gives a whole reservation back.
func Release(b []byte) error { return wrap("munmap", "", unix.Munmap(b)) }

// IgnoreFileSizeSignal makes a write beyond RLIMIT_FSIZE fail with EFBIG, as
// the guest can understand, where the signal would end the whole process.
func IgnoreFileSizeSignal() { signal.Ignore(syscall.SIGXFSZ) }
