package sys

import "golang.org/x/sys/unix"

// Shutdown ends a socket's reading (0), writing (1) or both (2) (shutdown(2)).
func Shutdown(fd, how int) error {
	return wrapFD("shutdown", fd, retry(func() error { return unix.Shutdown(fd, how) }))
}
