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

// Files of the throttle in v1's blkio hierarchy.
const (
	readV1   = "blkio.throttle.read_bps_device"
	writeV1  = "blkio.throttle.write_bps_device"
	servedV1 = "blkio.throttle.io_service_bytes"
)

// MissingIO returns nil if this host can bound how fast a jail uses its disks, and else says what it lacks.
func MissingIO() error {
	layout, err := Detect()
	if err != nil {
		return err
	}
	if layout == V2 {
		text, err := os.ReadFile(filepath.Join(Root, "cgroup.controllers"))
		if err != nil {
			return err
		}
		if !slices.Contains(strings.Fields(string(text)), "io") {
			return fmt.Errorf("%w: the controller io is not there", ErrUnsupported)
		}
		return nil
	}
	// The root of the hierarchy has the file only if the kernel has the throttle (CONFIG_BLK_DEV_THROTTLING).
	if _, err := os.Stat(filepath.Join(Root, "blkio", readV1)); err != nil {
		return fmt.Errorf("%w: the controller blkio has no throttle", ErrUnsupported)
	}
	return nil
}

// Disk returns the number, as "8:0", of the whole disk that holds f, or whose node f is: a throttle knows no partitions.
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
		return "", fmt.Errorf("%s is on a file system without a disk of its own (device %s)", f.Name(), dev)
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

// LimitIO bounds how many bytes a second the leaf may read from the disk, as Disk returns it, and write to it. Zero is no bound.
func (l *Leaf) LimitIO(disk string, read, write int64) error {
	if l.layout != V2 {
		for name, n := range map[string]int64{readV1: read, writeV1: write} {
			if n == 0 {
				continue
			}
			if err := os.WriteFile(l.file("blkio", name), fmt.Appendf(nil, "%s %d", disk, n), 0); err != nil {
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

// servedV1 returns what the disks have read and written for the leaf.
func (l *Leaf) servedV1() (read, written int64) {
	text, err := os.ReadFile(l.file("blkio", servedV1))
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line) // "8:0 Read 4096", and at the end "Total 4096"
		if len(f) != 3 {
			continue
		}
		n, err := strconv.ParseInt(f[2], 10, 64)
		switch {
		case err != nil:
		case f[1] == "Read":
			read += n
		case f[1] == "Write":
			written += n
		}
	}
	return read, written
}
