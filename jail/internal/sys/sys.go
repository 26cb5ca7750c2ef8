// Package sys makes all raw system calls of the packages under jail, so that each retries EINTR,
// has errors that name the call and its object, and can be reviewed in one place.
package sys

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// retryEINTR calls f until it returns something other than EINTR.
func retryEINTR(f func() error) error {
	for {
		err := f()
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// retried calls f until its error is something other than EINTR, and returns the last result and
// error of f.
func retried[T any](f func() (T, error)) (got T, err error) {
	err = retryEINTR(func() error {
		got, err = f()
		return err
	})
	return got, err
}

// opened returns descriptor fd as a file with the given name. If err is not nil, it ignores fd and
// returns err with the operation op and the name.
func opened(fd int, op, name string, err error) (*os.File, error) {
	if err != nil {
		return nil, pathError(op, name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// pathError wraps err in an fs.PathError with the operation op and the path. It returns nil if err
// is nil.
func pathError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}

// atError wraps err in an fs.PathError with the operation op and the path of the entry name in the
// directory dir. It returns nil if err is nil.
func atError(op string, dir *os.File, name string, err error) error {
	if err == nil {
		return nil
	}
	return pathError(op, filepath.Join(dir.Name(), name), err)
}

// callError wraps err in an os.SyscallError with the name of the system call. It returns nil if err
// is nil.
func callError(call string, err error) error { return os.NewSyscallError(call, err) }

// NotThere reports whether err says that the kernel lacks the call or does not support its
// arguments.
func NotThere(err error) bool {
	return isAny(err, syscall.ENOSYS, syscall.EINVAL, syscall.EOPNOTSUPP, syscall.ENODEV)
}

// Forbidden reports whether err is EPERM or EACCES: the kernel has the call, but a security module
// or a container's filter forbids it.
func Forbidden(err error) bool { return isAny(err, syscall.EPERM, syscall.EACCES) }

func isAny(err error, all ...syscall.Errno) bool {
	return slices.ContainsFunc(all, func(e syscall.Errno) bool { return errors.Is(err, e) })
}

// HasFilesystem returns nil if the kernel has or can load the file system type name (fsopen(2)).
func HasFilesystem(name string) error {
	c, err := openContext(name, name)
	if err == nil {
		c.close()
	}
	return err
}
