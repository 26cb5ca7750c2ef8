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

// AttachLoop makes a loop device of image that clears itself when its last user is gone, even after
// a crash (loop(4), LO_FLAGS_AUTOCLEAR). The device keeps the open file description of image, and
// with it a lock taken on that.
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

// LoopOf returns the loop device, open for reading, whose backing file is image, and to which the
// kernel may write. While it is open the kernel does not release the device. The error is
// fs.ErrNotExist if there is none (loop(4)). It opens only devices whose backing file has the name
// of image, and leaves those of others alone.
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

// sameTail reports whether two paths have the same last two names. What is above them depends on
// the mount namespace in which the kernel writes a path down.
func sameTail(a, b string) bool {
	return filepath.Base(a) == filepath.Base(b) &&
		filepath.Base(filepath.Dir(a)) == filepath.Base(filepath.Dir(b))
}

// MountExt4 mounts the ext4 file system of device, nosuid, nodev and noexec or not, as a detached
// mount that is in no mount table and goes with its last descriptor (fsmount(2)). A second call on
// one device gives a second mount of one file system.
func MountExt4(device *os.File, readOnly bool) (*os.File, error) {
	// The tables were left unwritten by mkfs and read as zeros; barriers buy nothing before the
	// content is kept.
	options := []string{"noinit_itable", "nobarrier"}
	attributes := unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOATIME
	if readOnly {
		options = []string{"ro", "noload"}
		attributes |= unix.MOUNT_ATTR_RDONLY
	}
	return newMount("ext4", device.Name(), attributes, append(options, "source="+fdPath(device))...)
}

// MakeReadOnly makes the whole file system of mount read-only and writes what is dirty to its
// device. While anything has a file of it open for writing, through any mount, the error is
// syscall.EBUSY.
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
