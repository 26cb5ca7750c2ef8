package sys

import (
	"errors"
	"slices"
	"syscall"
)

// NotThere reports whether err says that the kernel has no such call, or not with such arguments.
func NotThere(err error) bool {
	return isAny(err, syscall.ENOSYS, syscall.EINVAL, syscall.EOPNOTSUPP, syscall.ENODEV)
}

// Forbidden reports whether err says that this process may not make a call that the kernel has: a
// security module or a container's filter is in the way.
func Forbidden(err error) bool { return isAny(err, syscall.EPERM, syscall.EACCES) }

func isAny(err error, all ...syscall.Errno) bool {
	return slices.ContainsFunc(all, func(e syscall.Errno) bool { return errors.Is(err, e) })
}

// HasFilesystem returns nil if the kernel has a file system of that name, or could load it
// (fsopen(2)).
func HasFilesystem(name string) error {
	c, err := openContext(name, name)
	if err == nil {
		c.close()
	}
	return err
}
