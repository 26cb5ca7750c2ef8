package sys

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// CloneMount returns a detached mount of the directory dir, read-only, nosuid and nodev, without
// what is mounted below it (open_tree(2)). dir must have been opened in the mount namespace of the
// caller.
func CloneMount(dir *os.File) (*os.File, error) {
	tree, err := unix.OpenTree(int(dir.Fd()), "",
		unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return nil, pathError("open_tree", dir.Name(), err)
	}
	f := os.NewFile(uintptr(tree), dir.Name())
	attr := unix.MountAttr{
		Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV |
			unix.MOUNT_ATTR_NOATIME,
		Attr_clr:    unix.MOUNT_ATTR__ATIME,
		Propagation: unix.MS_PRIVATE,
	}
	// A user may not say of the host's mounts how times are kept, and reads what is theirs.
	if Rootless() {
		attr.Attr_set, attr.Attr_clr = attr.Attr_set&^unix.MOUNT_ATTR_NOATIME, 0
	}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		f.Close()
		return nil, pathError("mount_setattr", dir.Name(), err)
	}
	return f, nil
}

// MapMountIDs makes the owners of the files of a detached mount those that userns maps them to
// (mount_setattr(2), MOUNT_ATTR_IDMAP).
func MapMountIDs(mount, userns *os.File) error {
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(userns.Fd())}
	return pathError("mount_setattr idmap", mount.Name(),
		unix.MountSetattr(int(mount.Fd()), "", unix.AT_EMPTY_PATH, &attr))
}

// AttachMount attaches a detached mount to the directory target (move_mount(2)), in the calling
// thread's mount namespace.
func AttachMount(mount *os.File, target string) error {
	return pathError("move_mount", target,
		unix.MoveMount(int(mount.Fd()), "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH))
}

// RefuseExec makes a detached mount one from which nothing runs, neither started nor mapped
// (mount_setattr(2)).
func RefuseExec(mount *os.File) error {
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOEXEC}
	return pathError("mount_setattr noexec", mount.Name(),
		unix.MountSetattr(int(mount.Fd()), "", unix.AT_EMPTY_PATH, &attr))
}

// DetachTop takes away the topmost mount of target; what still uses it keeps it (umount2(2),
// MNT_DETACH).
func DetachTop(target string) error {
	return pathError("umount2", target, unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW))
}

// An Overlay says what MountOverlay joins. All mounts must be attached in the calling thread's mount
// namespace.
type Overlay struct {
	// Lower is the directory at the bottom.
	Lower *os.File
	// Frozen are mounts with a directory "upper" each, which nothing writes to, the newest first.
	Frozen []*os.File
	// Upper holds the directories "upper" and "work", and perhaps "hide", a layer between Frozen and
	// Lower.
	Upper *os.File
	// ID is the host's id of the layers' owner 0: an overlay acts with the ids of who makes it, and
	// where the layers' id mapping has no place for those it comes up read-only.
	ID uint32
}

// legacyLayers is how many lower layers fit into one option, which the kernel bounds to 256 bytes.
const legacyLayers = 8

// layers sets the lower layers, the topmost first. Linux 6.7 and newer take them one by one.
func (o Overlay) layers(fsfd int) error {
	var all []string
	for _, f := range o.Frozen {
		all = append(all, fdPath(f)+"/upper")
	}
	if _, err := LstatAt(o.Upper, "hide"); err == nil {
		all = append(all, fdPath(o.Upper)+"/hide")
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	all = append(all, fdPath(o.Lower))
	if len(all) <= legacyLayers {
		return pathError("fsconfig overlay lowerdir", o.Lower.Name(),
			unix.FsconfigSetString(fsfd, "lowerdir", strings.Join(all, ":")))
	}
	for _, layer := range all {
		if err := unix.FsconfigSetString(fsfd, "lowerdir+", layer); err != nil {
			return pathError("fsconfig overlay lowerdir+ (more than 8 layers need Linux 6.7)",
				o.Lower.Name(), err)
		}
	}
	return nil
}

// MountOverlay returns a detached overlay mount.
func MountOverlay(o Overlay) (*os.File, error) {
	name := o.Lower.Name()
	fsfd, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, pathError("fsopen overlay", name, err)
	}
	defer unix.Close(fsfd)
	if err := o.layers(fsfd); err != nil {
		return nil, err
	}
	options := [][2]string{
		{"upperdir", fdPath(o.Upper) + "/upper"}, {"workdir", fdPath(o.Upper) + "/work"},
		// What is in the upper layer is the whole change and means the same on every kernel,
		// whatever its defaults are.
		{"index", "off"}, {"metacopy", "off"}, {"redirect_dir", "nofollow"}, {"xino", "off"},
		{"nfs_export", "off"},
	}
	for _, option := range options {
		if err := unix.FsconfigSetString(fsfd, option[0], option[1]); err != nil {
			return nil, pathError("fsconfig overlay "+option[0], name, err)
		}
	}
	// A tool that calls fsync does not keep the host's disk busy: the content is made durable when
	// it is kept.
	if err := unix.FsconfigSetFlag(fsfd, "volatile"); err != nil {
		return nil, pathError("fsconfig overlay volatile", name, err)
	}
	// Whose marks are attributes that a user can set, and which the overlay keeps to itself.
	if Rootless() {
		if err := unix.FsconfigSetFlag(fsfd, "userxattr"); err != nil {
			return nil, pathError("fsconfig overlay userxattr", name, err)
		}
	}
	if err := withFileIDs(o.ID, func() error { return unix.FsconfigCreate(fsfd) }); err != nil {
		return nil, pathError("fsconfig create overlay", name, err)
	}
	mount, err := unix.Fsmount(fsfd, unix.FSMOUNT_CLOEXEC,
		unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return nil, pathError("fsmount overlay", name, err)
	}
	return os.NewFile(uintptr(mount), name), nil
}

// withFileIDs runs f with id as file system user and group but with the capabilities that the
// thread has: they would go with the ids.
func withFileIDs(id uint32, f func() error) error {
	// The layers are the user's own, whose daemon this is.
	if Rootless() {
		return f()
	}
	runtime.LockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&header, &caps[0]); err != nil {
		runtime.UnlockOSThread()
		return callError("capget", err)
	}
	err := setFileIDs(id, id)
	if err == nil {
		err = callError("capset", unix.Capset(&header, &caps[0]))
	}
	if err == nil {
		err = f()
	}
	restored := errors.Join(setFileIDs(uint32(os.Geteuid()), uint32(os.Getegid())),
		callError("capset", unix.Capset(&header, &caps[0])))
	// Else the thread stays locked, and ends with its goroutine.
	if restored == nil {
		runtime.UnlockOSThread()
	}
	return errors.Join(err, restored)
}

// ForgetNames has the kernel look up anew all names of the file system of mount that nothing uses.
// An overlay answers from the names that it looked up before, and so shows a file of its lower layer
// that was replaced meanwhile as it was. A reconfiguration, even one that changes nothing, drops
// them (reconfigure_super in the kernel's fs/super.c); no other call does so for one file system.
func ForgetNames(mount *os.File) error { return reconfigure(mount) }
