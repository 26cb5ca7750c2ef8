package sys

import (
	"errors"
	"fmt"
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
	f, err := CloneOf(dir)
	if err != nil {
		return nil, err
	}
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
	if err := setAttributes(f, dir.Name(), 0, attr); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// MapMountIDs makes the owners of the files of a detached mount those that userns maps them to
// (mount_setattr(2), MOUNT_ATTR_IDMAP).
func MapMountIDs(mount, userns *os.File) error {
	return setAttributes(mount, mount.Name(), 0,
		unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(userns.Fd())})
}

// RefuseExec makes a detached mount one from which nothing runs, neither started nor mapped
// (mount_setattr(2)).
func RefuseExec(mount *os.File) error {
	return setAttributes(mount, mount.Name(), 0, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOEXEC})
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
func (o Overlay) layers(c fsContext) error {
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
		return c.set("lowerdir=" + strings.Join(all, ":"))
	}
	for _, layer := range all {
		if err := c.set("lowerdir+=" + layer); err != nil {
			return fmt.Errorf("%w (more than 8 layers need Linux 6.7)", err)
		}
	}
	return nil
}

// MountOverlay returns a detached overlay mount.
func MountOverlay(o Overlay) (*os.File, error) {
	c, err := openContext("overlay", o.Lower.Name())
	if err != nil {
		return nil, err
	}
	defer c.close()
	if err := o.layers(c); err != nil {
		return nil, err
	}
	options := []string{
		"upperdir=" + fdPath(o.Upper) + "/upper", "workdir=" + fdPath(o.Upper) + "/work",
		// What is in the upper layer is the whole change and means the same on every kernel,
		// whatever its defaults are.
		"index=off", "metacopy=off", "redirect_dir=nofollow", "xino=off", "nfs_export=off",
		// A tool that calls fsync does not keep the host's disk busy: the content is made durable
		// when it is kept.
		"volatile",
	}
	// Whose marks are attributes that a user can set, and which the overlay keeps to itself.
	if Rootless() {
		options = append(options, "userxattr")
	}
	if err := c.set(options...); err != nil {
		return nil, err
	}
	if err := withFileIDs(o.ID, c.create); err != nil {
		return nil, err
	}
	return c.mount(unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV)
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
