package sys

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// LinkInode gives the inode of f, which may be open with O_PATH, another name in dir (linkat(2),
// AT_EMPTY_PATH). It needs root's right to do so whatever the owner is, and finds no path anew: the
// inode is the one that f is open on.
func LinkInode(f *os.File, dir *os.File, name string) error {
	if Rootless() {
		return LinkOwn(f, dir, name)
	}
	return pathError("linkat", filepath.Join(dir.Name(), name),
		unix.Linkat(int(f.Fd()), "", int(dir.Fd()), name, unix.AT_EMPTY_PATH))
}

// LinkOwn is LinkInode with the rights of the calling thread: where links are protected
// (proc_sys_fs(5), protected_hardlinks), an owner may.
func LinkOwn(f *os.File, dir *os.File, name string) error {
	err := unix.Linkat(unix.AT_FDCWD, fdPath(f), int(dir.Fd()), name, unix.AT_SYMLINK_FOLLOW)
	return pathError("linkat", filepath.Join(dir.Name(), name), err)
}

// SetMtime sets the time of the last change of content of f, which may be open with O_PATH
// (utimensat(2)).
func SetMtime(f *os.File, t Time) error {
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(0)}
	times[1].Sec, times[1].Nsec = t.Sec, t.Nsec
	return pathError("utimensat", f.Name(), unix.UtimesNanoAt(unix.AT_FDCWD, fdPath(f), times, 0))
}

// WhiteoutAt makes the entry name of dir a deletion for an overlay of which dir is in a layer: a
// device 0:0 (mknodat(2)).
func WhiteoutAt(dir *os.File, name string) error {
	return pathError("mknodat", filepath.Join(dir.Name(), name),
		unix.Mknodat(int(dir.Fd()), name, unix.S_IFCHR, 0))
}

// MakeOdd makes the entry name of dir a FIFO or a socket that nobody listens on: kind is its type,
// a constant of syscall.S_IF.
func MakeOdd(dir *os.File, name string, kind uint32) error {
	return pathError("mknodat", filepath.Join(dir.Name(), name),
		unix.Mknodat(int(dir.Fd()), name, kind|0o600, 0))
}

// ExchangeAt swaps two entries in one step (renameat2(2), RENAME_EXCHANGE). Where the file system
// cannot, the error is syscall.EINVAL.
func ExchangeAt(dir *os.File, name string, otherDir *os.File, other string) error {
	err := unix.Renameat2(int(dir.Fd()), name, int(otherDir.Fd()), other, unix.RENAME_EXCHANGE)
	return pathError("renameat2 exchange", filepath.Join(otherDir.Name(), other), err)
}
