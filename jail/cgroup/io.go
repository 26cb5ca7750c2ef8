package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Files of the throttle in the blkio hierarchy of v1.
const (
	readV1   = "blkio.throttle.read_bps_device"
	writeV1  = "blkio.throttle.write_bps_device"
	servedV1 = "blkio.throttle.io_service_bytes"
)

// MissingIO returns nil if the kernel can bound the disk bandwidth of a jail below slice, and an
// error that names what is lacking otherwise. A user's slice has the controllers that were
// delegated to the user.
func MissingIO(slice string) error {
	layout, err := Detect()
	if err != nil {
		return err
	}
	if layout == V2 {
		all, err := wordsOf(filepath.Join(Root, slice, "cgroup.controllers"))
		if err != nil {
			return err
		}
		if !slices.Contains(all, "io") {
			return fmt.Errorf("%w: the controller io is not in control group %s", errUnsupported,
				slice)
		}
		return nil
	}
	// The root of the hierarchy has the file only if the kernel has the throttle
	// (CONFIG_BLK_DEV_THROTTLING).
	if _, err := os.Stat(filepath.Join(Root, "blkio", readV1)); err != nil {
		return fmt.Errorf("%w: the controller blkio has no throttle", errUnsupported)
	}
	return nil
}

// Disk returns the device number, such as "8:0", of the whole disk that holds f, or whose node f
// is. A throttle knows no partitions.
func Disk(f *os.File) (string, error) {
	var st syscall.Stat_t
	if err := syscall.Fstat(int(f.Fd()), &st); err != nil {
		return "", &fs.PathError{Op: "fstat", Path: f.Name(), Err: err}
	}
	number := st.Dev
	if st.Mode&syscall.S_IFMT == syscall.S_IFBLK {
		number = st.Rdev
	}
	dev := fmt.Sprintf("%d:%d", number>>8&0xfff|number>>32&^0xfff, number&0xff|number>>12&^0xff)
	dir, err := filepath.EvalSymlinks(filepath.Join("/sys/dev/block", dev))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s is on a file system without a disk of its own (device %s)",
			f.Name(), dev)
	}
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(dir, "partition")); err != nil {
		return dev, nil
	}
	whole, err := os.ReadFile(filepath.Join(filepath.Dir(dir), "dev"))
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(whole)), nil
}

// LimitIO bounds the reads from and writes to a disk, in bytes per second. disk is a result of
// Disk. Zero is no bound.
func (l *Leaf) LimitIO(disk string, read, write int64) error {
	if l.layout != V2 {
		for name, n := range map[string]int64{readV1: read, writeV1: write} {
			if n == 0 {
				continue
			}
			if err := os.WriteFile(l.file("blkio", name), fmt.Appendf(nil, "%s %d", disk, n),
				0); err != nil {
				return err
			}
		}
		return nil
	}
	line := disk
	for key, n := range map[string]int64{"rbps": read, "wbps": write} {
		if n > 0 {
			line += " " + key + "=" + strconv.FormatInt(n, 10)
		}
	}
	return os.WriteFile(l.file("io", "io.max"), []byte(line), 0)
}
