package sys

import (
	"golang.org/x/sys/unix"
)

// openAttempts bounds the retries of an openat2 that lost a race against a
// rename or mount (EAGAIN). A resolution that loses this often is under attack.
const openAttempts = 128

// Openat2 opens path below the directory dirfd. O_CLOEXEC is always added.
// mode is used only with O_CREAT or O_TMPFILE. resolve is a set of RESOLVE_*.
func Openat2(dirfd int, path string, flags, mode, resolve uint64) (int, error) {
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Mode: mode, Resolve: resolve}
	for tries := 0; ; {
		fd, err := unix.Openat2(dirfd, path, &how)
		switch {
		case err == nil:
			return fd, nil
		case err == unix.EINTR:
		case err == unix.EAGAIN && tries < openAttempts:
			tries++
		default:
			return -1, wrap("openat2", path, err)
		}
	}
}

// OpenDir opens the directory at a path of the jail itself (never one that a
// guest named) for use as the root of a mount.
func OpenDir(path string) (int, error) {
	var fd int
	err := retry(func() (err error) {
		fd, err = unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return -1, wrap("open", path, err)
	}
	return fd, nil
}

// Close closes fd. It is not retried: Linux has released the descriptor even
// when close reports EINTR.
func Close(fd int) error { return wrapFD("close", fd, unix.Close(fd)) }

// StatusFlags returns the file status flags of fd (F_GETFL).
func StatusFlags(fd int) (int, error) {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	return n, wrapFD("fcntl", fd, err)
}

// SetStatusFlags sets the file status flags of fd (F_SETFL).
func SetStatusFlags(fd, flags int) error {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags)
	return wrapFD("fcntl", fd, err)
}

// Shutdown ends a socket's reading (0), writing (1) or both (2) (shutdown(2)).
func Shutdown(fd, how int) error {
	return wrapFD("shutdown", fd, retry(func() error { return unix.Shutdown(fd, how) }))
}
