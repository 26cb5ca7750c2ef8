package sys

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Constants that package syscall lacks.
const (
	OPath = unix.O_PATH
	// AtFDCWD is the directory argument for an absolute path.
	AtFDCWD = unix.AT_FDCWD
)

// Resolve is how every guest path is resolved: below the descriptor, through no
// magic link, and on the one mount that was granted.
const (
	ResolveBeneath    = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV
	ResolveNoSymlinks = unix.RESOLVE_NO_SYMLINKS
	ResolveNoXDev     = unix.RESOLVE_NO_XDEV
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

// Mkdirat makes the directory name in dirfd. name must be one component, here
// and in every function of this file.
func Mkdirat(dirfd int, name string, mode uint32) error {
	return wrap("mkdirat", name, retry(func() error { return unix.Mkdirat(dirfd, name, mode) }))
}

// Unlinkat removes the file or link name from dirfd.
func Unlinkat(dirfd int, name string) error {
	return wrap("unlinkat", name, retry(func() error { return unix.Unlinkat(dirfd, name, 0) }))
}

// Rmdirat removes the empty directory name from dirfd.
func Rmdirat(dirfd int, name string) error {
	return wrap("rmdir", name, retry(func() error {
		return unix.Unlinkat(dirfd, name, unix.AT_REMOVEDIR)
	}))
}

// Renameat moves a name, replacing what the new name stood for.
func Renameat(olddir int, oldname string, newdir int, newname string) error {
	return wrap("renameat", oldname, retry(func() error {
		return unix.Renameat2(olddir, oldname, newdir, newname, 0)
	}))
}

// Linkat makes newname a hard link of oldname; a symbolic link is linked itself, never followed.
func Linkat(olddir int, oldname string, newdir int, newname string) error {
	return wrap("linkat", oldname, retry(func() error {
		return unix.Linkat(olddir, oldname, newdir, newname, 0)
	}))
}

// Symlinkat makes name a symbolic link that holds target.
func Symlinkat(target string, dirfd int, name string) error {
	return wrap("symlinkat", name, retry(func() error {
		return unix.Symlinkat(target, dirfd, name)
	}))
}

// Readlinkat reads the link name of dirfd, or, with an empty name, the link
// behind an O_PATH descriptor. It returns the number of bytes put into buf.
func Readlinkat(dirfd int, name string, buf []byte) (int, error) {
	var n int
	err := retry(func() (err error) {
		n, err = unix.Readlinkat(dirfd, name, buf)
		return err
	})
	return n, wrap("readlinkat", name, err)
}

// Stat is the kernel's answer about one file.
type Stat = unix.Stat_t

// Timespec is a kernel time. UTIMEOmit and UTIMENow are special Nsec values.
type Timespec = unix.Timespec

// Special values of Timespec.Nsec for Futimens and Utimensat.
const (
	UTIMEOmit = unix.UTIME_OMIT
	UTIMENow  = unix.UTIME_NOW
)

// Device is the number of a device in Stat.Rdev (makedev(3)).
func Device(major, minor uint32) uint64 { return unix.Mkdev(major, minor) }

// IsMemoryDevice reports whether number is a memory device's, such as /dev/null or /dev/zero.
func IsMemoryDevice(number uint64) bool { return unix.Major(number) == 1 }

// Fstat describes the open file fd.
func Fstat(fd int, st *Stat) error {
	return wrapFD("fstat", fd, retry(func() error { return unix.Fstat(fd, st) }))
}

// Lstatat describes the file name in the directory dirfd, a link itself. name must be one
// component.
func Lstatat(dirfd int, name string, st *Stat) error {
	return wrap("fstatat", name, retry(func() error {
		return unix.Fstatat(dirfd, name, st, unix.AT_SYMLINK_NOFOLLOW)
	}))
}

// Futimens sets the times of an open file.
func Futimens(fd int, ts *[2]Timespec) error {
	return wrapFD("futimens", fd, retry(func() error {
		_, _, e := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(ts)), 0,
			0, 0)
		if e != 0 {
			return e
		}
		return nil
	}))
}

// UtimensPath sets the times of the file behind fd, which may be an O_PATH
// descriptor (AT_EMPTY_PATH, Linux 5.8).
func UtimensPath(fd int, ts *[2]Timespec) error {
	return wrapFD("utimensat", fd, retry(func() error {
		return unix.UtimesNanoAt(fd, "", ts[:], unix.AT_EMPTY_PATH)
	}))
}

// FileSystem is the usage of a file system (statfs(2)).
type FileSystem unix.Statfs_t

// Fstatfs asks the file system of the open file fd.
func Fstatfs(fd int, st *FileSystem) error {
	return wrapFD("fstatfs", fd, retry(func() error {
		return unix.Fstatfs(fd, (*unix.Statfs_t)(st))
	}))
}

// IsOverlay reports whether st is of an overlay, which has the numbers of its upper layer.
func (st *FileSystem) IsOverlay() bool { return st.Type == unix.OVERLAYFS_SUPER_MAGIC }

// Used returns the number of bytes in use.
func (st *FileSystem) Used() int64 { return int64(st.Blocks-st.Bfree) * int64(st.Bsize) }
