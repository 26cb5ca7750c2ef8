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

// CloneMount returns a detached mount of dir, read-only, nosuid and nodev, without the mounts below
// it (open_tree(2)). dir must have been opened in the mount namespace of the caller.
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
	// In a user namespace the atime flags of the host's mounts are locked.
	if Rootless() {
		attr.Attr_set, attr.Attr_clr = attr.Attr_set&^unix.MOUNT_ATTR_NOATIME, 0
	}
	if err := setAttributes(f, dir.Name(), 0, attr); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// MapMountIDs maps the owners of files on a detached mount by userns (mount_setattr(2),
// MOUNT_ATTR_IDMAP).
func MapMountIDs(mount, userns *os.File) error {
	return setAttributes(mount, mount.Name(), 0,
		unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(userns.Fd())})
}

// RefuseExec makes a detached mount noexec: nothing on it can be executed or mapped executable
// (mount_setattr(2)).
func RefuseExec(mount *os.File) error {
	return setAttributes(mount, mount.Name(), 0, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOEXEC})
}

// DetachTop lazily unmounts the topmost mount of target (umount2(2), MNT_DETACH).
func DetachTop(target string) error {
	return pathError("umount2", target, unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW))
}

// An Overlay lists the layers for MountOverlay. All mounts must be attached in the calling thread's
// mount namespace.
type Overlay struct {
	// Lower is the directory at the bottom.
	Lower *os.File
	// Frozen are mounts with a directory "upper" each, which nothing writes to, the newest first.
	Frozen []*os.File
	// Upper holds the directories "upper" and "work", and perhaps "hide", a layer between Frozen
	// and Lower.
	Upper *os.File
	// ID is the host id of the layers' owner 0. An overlay acts with the ids of its creator, and is
	// read-only if the layers' id mapping does not contain them.
	ID uint32
}

// legacyLayers is the number of lower layers that fit into one mount option of at most 256 bytes.
const legacyLayers = 8

// layers sets the lower layers, the topmost first: up to legacyLayers in a single option, more in
// one option each, which needs Linux 6.7.
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
		// With these options the upper layer holds the complete change, in the same form on every
		// kernel.
		"index=off", "metacopy=off", "redirect_dir=nofollow", "xino=off", "nfs_export=off",
		// A tool's fsync must not load the host's disk. A commit makes the content durable.
		"volatile",
	}
	// A user can only set user.* attributes, so overlayfs stores its marks in these.
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

// withFileIDs runs f with id as file system user and group. It restores the thread's capabilities,
// which the change of ids removes.
func withFileIDs(id uint32, f func() error) error {
	// In a user's daemon the layers already belong to the user.
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
	// Otherwise the thread stays locked and ends with its goroutine.
	if restored == nil {
		runtime.UnlockOSThread()
	}
	return errors.Join(err, restored)
}

// ForgetNames drops the unused cached names (dentries) of the file system of mount. An overlay
// answers from its cache, and so does not show that a file of its lower layer was replaced. A
// reconfiguration that changes nothing drops the cache (reconfigure_super in the kernel's
// fs/super.c); no other call does so for one file system.
func ForgetNames(mount *os.File) error { return reconfigure(mount) }
