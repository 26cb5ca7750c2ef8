package sys

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// AttachLoop returns a loop device on image that detaches itself when its last user is gone, even
// after a crash (loop(4), LO_FLAGS_AUTOCLEAR). The device keeps the open file description of image,
// with its lock.
func AttachLoop(image *os.File, readOnly bool) (*os.File, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	flags := os.O_RDWR
	if readOnly {
		flags = os.O_RDONLY
	}
	// Another process may take the free device first, so the pair of calls is tried again.
	for range 256 {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, pathError("ioctl LOOP_CTL_GET_FREE", control.Name(), err)
		}
		device, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), flags, 0)
		if err != nil {
			return nil, err
		}
		config := unix.LoopConfig{Fd: uint32(image.Fd())}
		config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
		if readOnly {
			config.Info.Flags |= unix.LO_FLAGS_READ_ONLY
		}
		err = retryEINTR(func() error { return unix.IoctlLoopConfigure(int(device.Fd()), &config) })
		if err == nil {
			return device, nil
		}
		device.Close()
		if !errors.Is(err, unix.EBUSY) {
			return nil, pathError("ioctl LOOP_CONFIGURE", device.Name(), err)
		}
	}
	return nil, pathError("ioctl LOOP_CONFIGURE", "/dev/loop*", unix.EBUSY)
}

// LoopOf returns the writable loop device whose backing file is image, open for reading, which
// keeps it attached (loop(4)). The error is fs.ErrNotExist if there is none. It opens no devices
// whose backing file has another name.
func LoopOf(image *os.File) (*os.File, error) {
	want, err := Fstat(image)
	if err != nil {
		return nil, err
	}
	path, err := PathOf(image)
	if err != nil {
		return nil, err
	}
	bound, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	for _, name := range bound {
		backing, err := os.ReadFile(name)
		if err != nil || !sameTail(strings.TrimSuffix(string(backing), "\n"), path) {
			// It was released meanwhile, or is of another file.
			continue
		}
		device, err := os.OpenFile("/dev/"+strings.Split(name, "/")[3], os.O_RDONLY, 0)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EBUSY) ||
			errors.Is(err, unix.ENXIO) {
			// It was released meanwhile.
			continue
		}
		if err != nil {
			return nil, err
		}
		info, err := unix.IoctlLoopGetStatus64(int(device.Fd()))
		if err == nil && info.Device == want.Dev && info.Inode == want.Ino &&
			info.Flags&unix.LO_FLAGS_READ_ONLY == 0 {
			return device, nil
		}
		device.Close()
		if err != nil && !errors.Is(err, unix.ENXIO) {
			return nil, pathError("ioctl LOOP_GET_STATUS64", device.Name(), err)
		}
	}
	return nil, &fs.PathError{Op: "loop device of", Path: image.Name(), Err: fs.ErrNotExist}
}

// sameTail reports whether the last two components of two paths are equal. The others depend on the
// mount namespace.
func sameTail(a, b string) bool {
	return filepath.Base(a) == filepath.Base(b) &&
		filepath.Base(filepath.Dir(a)) == filepath.Base(filepath.Dir(b))
}

// MountExt4 mounts the ext4 file system of device, nosuid and nodev, read-only or not, as a
// detached mount that is in no mount table and goes with its last descriptor (fsmount(2)). A second
// call on one device gives a second mount of one file system.
func MountExt4(device *os.File, readOnly bool) (*os.File, error) {
	// noinit_itable: mkfs left the tables as zeros. nobarrier: durability does not matter before a
	// commit.
	options := []string{"noinit_itable", "nobarrier"}
	attributes := unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOATIME
	if readOnly {
		options = []string{"ro", "noload"}
		attributes |= unix.MOUNT_ATTR_RDONLY
	}
	return newMount("ext4", device.Name(), attributes, append(options, "source="+fdPath(device))...)
}

// MakeReadOnly makes the whole file system of mount read-only and writes dirty data to its device.
// The error is syscall.EBUSY while any file of it is open for writing, through any mount.
func MakeReadOnly(mount *os.File) error { return reconfigure(mount, "ro") }

// reconfigure sets options of the whole file system of mount.
func reconfigure(mount *os.File, options ...string) error {
	c, err := pickContext(int(mount.Fd()), "", mount.Name(), unix.FSPICK_EMPTY_PATH)
	if err != nil {
		return err
	}
	defer c.close()
	return c.reconfigure(options...)
}
