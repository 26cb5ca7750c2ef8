package sys

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A Time is a time stamp of a file. Tools can set any, also outside the years 1678 to 2262, for
// which time.Time.UnixNano is not defined.
type Time struct {
	Sec  int64 `json:"sec"`  // seconds since 1970
	Nsec int64 `json:"nsec"` // and nanoseconds
}

// Compare returns -1, 0 or 1 for t before, equal to or after u.
func (t Time) Compare(u Time) int {
	return cmp.Or(cmp.Compare(t.Sec, u.Sec), cmp.Compare(t.Nsec, u.Nsec))
}

// A Stat holds the attributes of an inode (inode(7)).
type Stat struct {
	Dev, Ino uint64
	// Type and permission bits, as in st_mode.
	Mode     uint32
	Nlink    uint64
	UID, GID uint32
	Rdev     uint64
	// Bytes; units of 512 bytes.
	Size, Blocks int64
	Mtime, Ctime Time
}

// Type returns the type bits of the mode, one of the syscall.S_IF constants.
func (s Stat) Type() uint32 { return s.Mode & unix.S_IFMT }

// Perm returns the permission bits of the mode with set-user-id, set-group-id and sticky.
func (s Stat) Perm() uint32 { return s.Mode & 0o7777 }

func statOf(st *unix.Stat_t) Stat {
	return Stat{
		Dev: uint64(st.Dev), Ino: st.Ino, Mode: st.Mode, Nlink: uint64(st.Nlink), UID: st.Uid,
		GID: st.Gid, Rdev: uint64(st.Rdev),
		Size: st.Size, Blocks: st.Blocks,
		Mtime: Time{int64(st.Mtim.Sec), int64(st.Mtim.Nsec)}, Ctime: Time{int64(st.Ctim.Sec),
			int64(st.Ctim.Nsec)},
	}
}

// Fstat describes an open file, which may be open with O_PATH (fstat(2)).
func Fstat(f *os.File) (Stat, error) {
	var st unix.Stat_t
	if err := retryEINTR(func() error { return unix.Fstat(int(f.Fd()), &st) }); err != nil {
		return Stat{}, pathError("fstat", f.Name(), err)
	}
	return statOf(&st), nil
}

// LstatAt describes the entry name, one path component, of dir, without following it (fstatat(2)).
func LstatAt(dir *os.File, name string) (Stat, error) {
	var st unix.Stat_t
	err := retryEINTR(func() error {
		return unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	})
	if err != nil {
		return Stat{}, atError("fstatat", dir, name, err)
	}
	return statOf(&st), nil
}

// Birth returns the creation time of an inode, or the zero Time if the file system has none
// (statx(2)).
func Birth(f *os.File) (Time, error) {
	var st unix.Statx_t
	err := retryEINTR(func() error {
		return unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_BTIME, &st)
	})
	if err != nil {
		return Time{}, pathError("statx", f.Name(), err)
	}
	return Time{st.Btime.Sec, int64(st.Btime.Nsec)}, nil
}

// OpenBeneath opens path below dir (openat2(2)). No component may be a symbolic link, a mount point
// or lead out of dir.
func OpenBeneath(dir *os.File, path string, flags int, perm uint32) (*os.File, error) {
	return openat2(dir, path, flags|unix.O_NOFOLLOW, perm, unix.RESOLVE_BENEATH|
		unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_MAGICLINKS|unix.RESOLVE_NO_XDEV)
}

// OpenDirPath opens the absolute path of a directory with O_PATH. No component may be a symbolic
// link.
func OpenDirPath(path string) (*os.File, error) {
	return openat2(nil, path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0,
		unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_MAGICLINKS)
}

// OpenNamed opens a path that another process has named and follows symbolic links; a relative path
// is below dir. A magic link of /proc is ELOOP: it would lead to an open file of this process
// without a check of the directories above it (openat2(2), RESOLVE_NO_MAGICLINKS).
func OpenNamed(dir *os.File, path string, flags int) (*os.File, error) {
	at := unix.AT_FDCWD
	if dir != nil {
		at = int(dir.Fd())
	}
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Resolve: unix.RESOLVE_NO_MAGICLINKS}
	fd, err := retried(func() (int, error) { return unix.Openat2(at, path, &how) })
	if err == unix.ELOOP {
		err = errLinks
	}
	return opened(fd, "open", path, err)
}

// errLinks explains ELOOP of OpenNamed, which the kernel returns for two reasons.
var errLinks = fmt.Errorf("%w, or a link of /proc to an open file", unix.ELOOP)

// CheckNamed returns nil if OpenNamed can open path with O_PATH, which needs no read permission on
// the file. Otherwise it returns the error of OpenNamed.
func CheckNamed(path string) error {
	f, err := OpenNamed(nil, path, unix.O_PATH)
	if err != nil {
		return err
	}
	return f.Close()
}

// openat2 opens path below dir, or below the working directory if dir is nil. It adds O_CLOEXEC.
func openat2(dir *os.File, path string, flags int, perm uint32, resolve uint64) (*os.File, error) {
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Mode: uint64(perm), Resolve: resolve}
	at, name := unix.AT_FDCWD, path
	if dir != nil {
		at, name = int(dir.Fd()), filepath.Join(dir.Name(), path)
	}
	fd, err := retried(func() (int, error) {
		fd, err := unix.Openat2(at, path, &how)
		// A concurrent rename or mount made the kernel unsure. It asks to try again.
		if err == unix.EAGAIN {
			err = unix.EINTR
		}
		return fd, err
	})
	return opened(fd, "openat2", name, err)
}

// OpenPath is OpenBeneath with O_PATH: it never blocks, has no effect on a device, and opens a link
// itself.
func OpenPath(dir *os.File, path string) (*os.File, error) {
	return OpenBeneath(dir, path, unix.O_PATH, 0)
}

// OpenSubdir opens a directory below dir for reading, as OpenBeneath does: no part of path may lead
// out of dir.
func OpenSubdir(dir *os.File, path string) (*os.File, error) {
	return OpenBeneath(dir, path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
}

// OpenSubdirPath opens a directory below dir with O_PATH, which needs no right to list it.
func OpenSubdirPath(dir *os.File, path string) (*os.File, error) {
	return OpenBeneath(dir, path, unix.O_PATH|unix.O_DIRECTORY, 0)
}

// Reopen opens the inode of f again, whatever its present name is. f may be open with O_PATH.
func Reopen(f *os.File, flags int) (*os.File, error) { return open(fdPath(f), f.Name(), flags) }

// open opens a path (open(2)); errors name it.
func open(path, name string, flags int) (*os.File, error) {
	fd, err := retried(func() (int, error) { return unix.Open(path, flags|unix.O_CLOEXEC, 0) })
	return opened(fd, "open", name, err)
}

func fdPath(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }

// PathOf returns the path by which the kernel knows f at the moment (proc_pid_fd(5)).
func PathOf(f *os.File) (string, error) { return os.Readlink(fdPath(f)) }

// ReadlinkAt returns the target of the link name of dir.
func ReadlinkAt(dir *os.File, name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(dir.Fd()), name, buf)
	if err != nil {
		return "", atError("readlinkat", dir, name, err)
	}
	return string(buf[:n]), nil
}

// SymlinkAt makes the link name in dir.
func SymlinkAt(target string, dir *os.File, name string) error {
	return atError("symlinkat", dir, name, unix.Symlinkat(target, int(dir.Fd()), name))
}

// MkdirAt makes the directory name in dir.
func MkdirAt(dir *os.File, name string, perm uint32) error {
	return atError("mkdirat", dir, name, unix.Mkdirat(int(dir.Fd()), name, perm))
}

// UnlinkAt removes the entry name of dir. A directory is an error.
func UnlinkAt(dir *os.File, name string) error {
	return atError("unlinkat", dir, name, unix.Unlinkat(int(dir.Fd()), name, 0))
}

// RmdirAt removes the empty directory name of dir.
func RmdirAt(dir *os.File, name string) error {
	return atError("rmdirat", dir, name, unix.Unlinkat(int(dir.Fd()), name, unix.AT_REMOVEDIR))
}

// OpenRoot opens dir again as an [os.Root]. dir may be open with O_PATH.
func OpenRoot(dir *os.File) (*os.Root, error) { return os.OpenRoot(fdPath(dir)) }

// MoveAt renames the entry name of dir to newName of newDir. With replace it atomically replaces an
// existing entry; without, an existing entry is an error.
func MoveAt(dir *os.File, name string, newDir *os.File, newName string, replace bool) error {
	flags := uint(unix.RENAME_NOREPLACE)
	if replace {
		flags = 0
	}
	return atError("renameat2", newDir, newName,
		unix.Renameat2(int(dir.Fd()), name, int(newDir.Fd()), newName, flags))
}

// Chmod sets the permission bits of the inode of f, which may be open with O_PATH.
func Chmod(f *os.File, perm uint32) error {
	return pathError("chmod", f.Name(), retryEINTR(func() error {
		return unix.Chmod(fdPath(f), perm)
	}))
}

// Chown sets owner and group of the inode of f, which may be open with O_PATH; of a link, the
// link's own.
func Chown(f *os.File, uid, gid uint32) error {
	return pathError("fchownat", f.Name(),
		unix.Fchownat(int(f.Fd()), "", int(uid), int(gid), unix.AT_EMPTY_PATH))
}

// MayWrite reports whether the calling thread has the right to write to the entry name of dir
// (faccessat2(2)).
func MayWrite(dir *os.File, name string) bool {
	return unix.Faccessat2(int(dir.Fd()), name, unix.W_OK,
		unix.AT_EACCESS|unix.AT_SYMLINK_NOFOLLOW) == nil
}

// Syncfs writes the file system of f to its disk (syncfs(2)).
func Syncfs(f *os.File) error { return pathError("syncfs", f.Name(), unix.Syncfs(int(f.Fd()))) }

// Fallocate allocates disk blocks for the first size bytes of f without writing them
// (fallocate(2)).
func Fallocate(f *os.File, size int64) error {
	return pathError("fallocate", f.Name(),
		retryEINTR(func() error { return unix.Fallocate(int(f.Fd()), 0, 0, size) }))
}

// FreeBytes returns the free space, in bytes, on the file system of f for unprivileged users.
func FreeBytes(f *os.File) (int64, error) {
	bytes, _, err := Room(f)
	return bytes, err
}

// ReadOnly reports whether the mount or the file system of f is read-only.
func ReadOnly(f *os.File) (bool, error) {
	st, err := fstatfs(f)
	return st.Flags&unix.ST_RDONLY != 0, err
}

func fstatfs(f *os.File) (st unix.Statfs_t, err error) {
	err = retryEINTR(func() error { return unix.Fstatfs(int(f.Fd()), &st) })
	return st, pathError("fstatfs", f.Name(), err)
}

// Room returns the number of free bytes and free inodes on the file system of f.
func Room(f *os.File) (bytes, inodes int64, err error) {
	st, err := fstatfs(f)
	return int64(st.Bavail) * st.Bsize, int64(st.Ffree), err
}

// CoarseNow returns the time as file systems stamp it: the clock of the last timer tick, 1 to 10 ms
// old.
func CoarseNow() (Time, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &ts); err != nil {
		return Time{}, callError("clock_gettime", err)
	}
	return Time{int64(ts.Sec), int64(ts.Nsec)}, nil
}

// NextData returns the next range of f at or after off that is not a hole, or io.EOF (lseek(2),
// SEEK_DATA). It moves f's offset.
func NextData(f *os.File, off int64) (start, end int64, err error) {
	start, err = unix.Seek(int(f.Fd()), off, unix.SEEK_DATA)
	if err == unix.ENXIO {
		return 0, 0, io.EOF
	}
	if err == nil {
		end, err = unix.Seek(int(f.Fd()), start, unix.SEEK_HOLE)
	}
	return start, end, pathError("lseek", f.Name(), err)
}

// Xattr returns the extended attribute name of f, or nil if f has none.
func Xattr(f *os.File, name string) ([]byte, error) {
	for size := 256; ; size *= 2 {
		buf := make([]byte, size)
		n, err := unix.Fgetxattr(int(f.Fd()), name, buf)
		switch {
		case err == nil:
			return buf[:n], nil
		case err == unix.ENODATA || err == unix.EOPNOTSUPP:
			return nil, nil
		case err != unix.ERANGE || size > 64<<10:
			return nil, pathError("fgetxattr "+name, f.Name(), err)
		}
	}
}

// Xattrs returns the names of the extended attributes of f.
func Xattrs(f *os.File) ([]string, error) {
	size, err := unix.Flistxattr(int(f.Fd()), nil)
	if err != nil || size == 0 {
		if err == unix.EOPNOTSUPP {
			err = nil
		}
		return nil, pathError("flistxattr", f.Name(), err)
	}
	buf := make([]byte, size+1024)
	n, err := unix.Flistxattr(int(f.Fd()), buf)
	if err != nil {
		return nil, pathError("flistxattr", f.Name(), err)
	}
	var names []string
	for rest := buf[:n]; len(rest) > 0; {
		name := unix.ByteSliceToString(rest)
		names = append(names, name)
		rest = rest[min(len(name)+1, len(rest)):]
	}
	return names, nil
}

// SetXattr sets an extended attribute of f.
func SetXattr(f *os.File, name string, value []byte) error {
	return pathError("fsetxattr "+name, f.Name(), unix.Fsetxattr(int(f.Fd()), name, value, 0))
}

// Lock takes or converts a lock on the open file description of f without waiting (flock(2)). The
// error is syscall.EWOULDBLOCK if another description holds a conflicting lock.
func Lock(f *os.File, exclusive bool) error { return flock(f, exclusive, unix.LOCK_NB) }

// LockWait is Lock, but waits while another description holds a conflicting lock.
func LockWait(f *os.File, exclusive bool) error { return flock(f, exclusive, 0) }

func flock(f *os.File, exclusive bool, flags int) error {
	how := unix.LOCK_SH
	if exclusive {
		how = unix.LOCK_EX
	}
	return pathError("flock", f.Name(), retryEINTR(func() error {
		return unix.Flock(int(f.Fd()), how|flags)
	}))
}

// CloneFile makes dst a reflink copy of src. It is an error if the file system has no reflinks
// (ioctl_ficlone(2)).
func CloneFile(dst, src *os.File) error {
	return pathError("ficlone", dst.Name(), unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())))
}

// BootID returns the kernel's random id of this boot.
func BootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return string(b[:max(0, len(b)-1)]), err
}

// OPath is the open flag for a descriptor that only names an inode (open(2), O_PATH).
const OPath = unix.O_PATH

// OpenParent opens the directory above dir with O_PATH, across mounts.
func OpenParent(dir *os.File) (*os.File, error) {
	return openat2(dir, "..", unix.O_PATH|unix.O_DIRECTORY, 0, 0)
}

// MakeDirBelow makes the directory name and missing parents below root, and opens it with O_PATH.
// It follows no link below root and does not leave root, but crosses mounts.
func MakeDirBelow(root, name string) (*os.File, error) {
	dir, err := OpenTarget(root)
	if err != nil {
		return nil, err
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" {
			continue
		}
		var next *os.File
		if err = MkdirAt(dir, part, 0o755); err == nil || errors.Is(err, unix.EEXIST) {
			next, err = openat2(dir, part, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0,
				unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS)
		}
		dir.Close()
		if err != nil {
			return nil, err
		}
		dir = next
	}
	return dir, nil
}

// OpenDirScoped opens the directory path with O_PATH, with root as the root directory: links are
// followed as a process with that root directory would, absolute ones and those with ".." too, and
// none leads out of root or onto another mount.
func OpenDirScoped(root *os.File, path string) (*os.File, error) {
	return openat2(root, path, unix.O_PATH|unix.O_DIRECTORY, 0,
		unix.RESOLVE_IN_ROOT|unix.RESOLVE_NO_MAGICLINKS|unix.RESOLVE_NO_XDEV)
}

// HandleOf returns the file handle of f, by which OpenHandle finds the inode independently of its
// name (name_to_handle_at(2)). It returns nil if the file system has no handles.
func HandleOf(f *os.File) ([]byte, error) {
	h, _, err := unix.NameToHandleAt(int(f.Fd()), "", unix.AT_EMPTY_PATH)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EOVERFLOW) {
		return nil, nil
	}
	if err != nil {
		return nil, pathError("name_to_handle_at", f.Name(), err)
	}
	return append(binary.LittleEndian.AppendUint32(nil, uint32(h.Type())), h.Bytes()...), nil
}

// OpenHandle opens the directory of a handle with O_PATH (open_by_handle_at(2)). mount is any file
// of the same file system that is open for reading. The error is EPERM without CAP_DAC_READ_SEARCH,
// and ESTALE if the inode is gone.
func OpenHandle(mount *os.File, handle []byte) (*os.File, error) {
	if len(handle) < 4 {
		return nil, pathError("open_by_handle_at", mount.Name(), unix.EINVAL)
	}
	h := unix.NewFileHandle(int32(binary.LittleEndian.Uint32(handle)), handle[4:])
	fd, err := retried(func() (int, error) {
		return unix.OpenByHandleAt(int(mount.Fd()), h, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC)
	})
	return opened(fd, "open_by_handle_at", "a handle below "+mount.Name(), err)
}

// IsMount reports whether something is mounted on the entry name of dir in this mount namespace
// (statx(2), STATX_ATTR_MOUNT_ROOT).
func IsMount(dir *os.File, name string) (bool, error) {
	var st unix.Statx_t
	err := retryEINTR(func() error {
		return unix.Statx(int(dir.Fd()), name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT,
			unix.STATX_TYPE, &st)
	})
	if err != nil {
		return false, atError("statx", dir, name, err)
	}
	return st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
}

// LinkInode makes a hard link name in dir to the inode of f, which may be open with O_PATH
// (linkat(2), AT_EMPTY_PATH). It resolves no path, and needs CAP_DAC_READ_SEARCH. In a user's
// daemon it is LinkOwn.
func LinkInode(f *os.File, dir *os.File, name string) error {
	if Rootless() {
		return LinkOwn(f, dir, name)
	}
	return atError("linkat", dir, name,
		unix.Linkat(int(f.Fd()), "", int(dir.Fd()), name, unix.AT_EMPTY_PATH))
}

// LinkOwn is LinkInode without a capability: the calling thread must be allowed to link the file
// (proc_sys_fs(5), protected_hardlinks).
func LinkOwn(f *os.File, dir *os.File, name string) error {
	return atError("linkat", dir, name,
		unix.Linkat(unix.AT_FDCWD, fdPath(f), int(dir.Fd()), name, unix.AT_SYMLINK_FOLLOW))
}

// SetMtime sets the time of the last change of content of f, which may be open with O_PATH
// (utimensat(2)).
func SetMtime(f *os.File, t Time) error {
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(0)}
	times[1].Sec, times[1].Nsec = t.Sec, t.Nsec
	return pathError("utimensat", f.Name(), unix.UtimesNanoAt(unix.AT_FDCWD, fdPath(f), times, 0))
}

// WhiteoutAt makes the overlayfs whiteout name in dir, a directory of a layer: a device 0:0
// (mknodat(2)).
func WhiteoutAt(dir *os.File, name string) error {
	return atError("mknodat", dir, name, unix.Mknodat(int(dir.Fd()), name, unix.S_IFCHR, 0))
}

// MakeOdd makes a FIFO or a Unix socket without a listener. kind is syscall.S_IFIFO or S_IFSOCK.
func MakeOdd(dir *os.File, name string, kind uint32) error {
	return atError("mknodat", dir, name, unix.Mknodat(int(dir.Fd()), name, kind|0o600, 0))
}

// ExchangeAt atomically swaps two entries (renameat2(2), RENAME_EXCHANGE). The error is
// syscall.EINVAL if the file system cannot do so.
func ExchangeAt(dir *os.File, name string, otherDir *os.File, other string) error {
	return atError("renameat2 exchange", otherDir, other,
		unix.Renameat2(int(dir.Fd()), name, int(otherDir.Fd()), other, unix.RENAME_EXCHANGE))
}
