package sys

import (
	"errors"
	"syscall"
)

// NotThere reports whether err says that the kernel has no such call, or not with such arguments.
func NotThere(err error) bool {
	return errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENODEV)
}
