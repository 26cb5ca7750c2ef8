package sys

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

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

// IsMemoryDevice reports whether number is that of /dev/null, /dev/zero and their like.
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

// IsOverlay reports whether it is an overlay, whose numbers are those of its upper layer.
func (st *FileSystem) IsOverlay() bool { return st.Type == unix.OVERLAYFS_SUPER_MAGIC }

// Used is how many bytes are in use.
func (st *FileSystem) Used() int64 { return int64(st.Blocks-st.Bfree) * int64(st.Bsize) }
