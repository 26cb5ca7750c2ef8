package sys

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// MountFlags are the attributes of a mount, besides nosuid and nodev, which every mount of a jail
// has.
type MountFlags struct {
	Write bool
	Exec  bool
}

func (m MountFlags) attributes() uint64 {
	attr := uint64(unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV)
	if !m.Write {
		attr |= unix.MOUNT_ATTR_RDONLY
	}
	if !m.Exec {
		attr |= unix.MOUNT_ATTR_NOEXEC
	}
	return attr
}

// MountTmpfs mounts a fresh tmpfs on the directory target (tmpfs(5)); options are its own, as
// "size" and "mode".
func MountTmpfs(target string, flags MountFlags, options map[string]string) error {
	fsfd, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return pathError("fsopen tmpfs", target, err)
	}
	defer unix.Close(fsfd)
	for key, value := range options {
		if err := unix.FsconfigSetString(fsfd, key, value); err != nil {
			return pathError(fmt.Sprintf("fsconfig tmpfs %s=%s", key, value), target, err)
		}
	}
	if err := unix.FsconfigCreate(fsfd); err != nil {
		return pathError("fsconfig create tmpfs", target, err)
	}
	mount, err := unix.Fsmount(fsfd, unix.FSMOUNT_CLOEXEC, int(flags.attributes()))
	if err != nil {
		return pathError("fsmount tmpfs", target, err)
	}
	defer unix.Close(mount)
	return pathError("move_mount", target,
		unix.MoveMount(mount, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH))
}

// MountTerminals mounts a devpts of its own on the directory target; options are its own, as mount(2)
// takes them. What it shows belongs to a user and a group of the host.
func MountTerminals(target, options string, uid, gid uint32) error {
	if err := unix.Mount("devpts", target, "devpts", unix.MS_NOSUID|unix.MS_NOEXEC,
		options); err != nil {
		return pathError("mount devpts", target, err)
	}
	return errors.Join(os.Chown(target, int(uid), int(gid)),
		os.Chown(filepath.Join(target, "ptmx"), int(uid), int(gid)))
}

// MountGroups mounts the hierarchy of control groups of version 2 on the directory target
// (cgroups(7)), unless it is there already.
func MountGroups(target string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(target, &st); err != nil {
		return pathError("statfs", target, err)
	}
	if st.Type == unix.CGROUP2_SUPER_MAGIC {
		return nil
	}
	return pathError("mount cgroup2", target, unix.Mount("cgroup2", target, "cgroup2",
		unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""))
}

// CloneTree returns a detached copy of the mount of source, an open file or directory, with all
// that is mounted below it. It must be called in the mount namespace in which source was opened;
// the copy can be attached in any.
func CloneTree(source *os.File) (*os.File, error) {
	tree, err := unix.OpenTree(int(source.Fd()), "",
		unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	if err != nil {
		return nil, pathError("open_tree", source.Name(), err)
	}
	return os.NewFile(uintptr(tree), source.Name()), nil
}

// AttachTree attaches a detached copy of a mount on target. Where userns is not nil, the owners of
// its files are those that userns maps them to (mount_setattr(2), MOUNT_ATTR_IDMAP).
func AttachTree(tree *os.File, target string, flags MountFlags, userns *os.File) error {
	attr := unix.MountAttr{Attr_set: flags.attributes(), Propagation: unix.MS_PRIVATE}
	if userns != nil {
		attr.Attr_set |= unix.MOUNT_ATTR_IDMAP
		attr.Userns_fd = uint64(userns.Fd())
	}
	if err := unix.MountSetattr(int(tree.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE,
		&attr); err != nil {
		return pathError("mount_setattr", target, err)
	}
	return pathError("move_mount", target,
		unix.MoveMount(int(tree.Fd()), "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH))
}

// AttachShared attaches a detached mount of a file system that is mounted elsewhere too. Its
// attributes are all set to what they are to be here, and none of them is taken over; its owners
// are mapped already.
func AttachShared(mount *os.File, target string, flags MountFlags) error {
	attr := unix.MountAttr{Attr_set: flags.attributes(), Propagation: unix.MS_PRIVATE}
	attr.Attr_clr = (unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOEXEC) &^ attr.Attr_set
	if err := unix.MountSetattr(int(mount.Fd()), "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return pathError("mount_setattr", target, err)
	}
	return pathError("move_mount", target,
		unix.MoveMount(int(mount.Fd()), "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH))
}

// CloneMountOf returns a detached mount of what is mounted on target in the calling thread's mount
// namespace, without what is mounted below it.
func CloneMountOf(target string) (*os.File, error) {
	tree, err := unix.OpenTree(unix.AT_FDCWD, target,
		unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return nil, pathError("open_tree", target, err)
	}
	return os.NewFile(uintptr(tree), target), nil
}

// AttachDevice attaches a detached mount of a device node on target: nosuid and noexec, and of all
// mounts of a jail the only one that is not nodev.
func AttachDevice(tree *os.File, target string) error {
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC,
		Attr_clr: unix.MOUNT_ATTR_NODEV, Propagation: unix.MS_PRIVATE}
	if err := unix.MountSetattr(int(tree.Fd()), "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return pathError("mount_setattr", target, err)
	}
	return pathError("move_mount", target,
		unix.MoveMount(int(tree.Fd()), "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH))
}

// MakeReadOnlyMount makes the mount at target read-only, but none below it.
func MakeReadOnlyMount(target string) error {
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	return pathError("mount_setattr", target,
		unix.MountSetattr(unix.AT_FDCWD, target, unix.AT_SYMLINK_NOFOLLOW, &attr))
}

// OpenNode opens a device node to be named by its descriptor, without opening the device; a link is
// not followed.
func OpenNode(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, pathError("open", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// OpenTarget opens what path leads to, through links, with O_PATH.
func OpenTarget(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, pathError("open", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// mountID returns the ID, as Mounts gives it, of the mount that f lies on; f may be open with
// O_PATH.
func mountID(f *os.File) (string, error) {
	var st unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st); err != nil {
		return "", pathError("statx", f.Name(), err)
	}
	if st.Mask&unix.STATX_MNT_ID == 0 {
		return "", pathError("statx", f.Name(),
			errors.New("this kernel does not tell mounts apart"))
	}
	return strconv.FormatUint(st.Mnt_id, 10), nil
}

// CheckCharDevice returns an error unless f is the character device of those numbers.
func CheckCharDevice(f *os.File, major, minor uint32) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return pathError("fstat", f.Name(), err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR || unix.Major(st.Rdev) != major ||
		unix.Minor(st.Rdev) != minor {
		return pathError("check", f.Name(),
			fmt.Errorf("is not the character device %d:%d", major, minor))
	}
	return nil
}
