package sys

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// An Extent is a range of a file and its place on the file system's device, in bytes.
type Extent struct {
	Logical, Physical, Length int64
	// Allocated blocks that were never written and read as zeros.
	Unwritten bool
	// The data is in the inode and has no range of the device.
	Inline bool
}

const (
	fiemapCall      = 0xc020660b // FS_IOC_FIEMAP
	fiemapLast      = 0x1
	fiemapUnwritten = 0x800
	fiemapInline    = 0x200
	fiemapBatch     = 64
)

// fiemap is struct fiemap of <linux/fiemap.h>, with room for fiemapBatch extents.
type fiemap struct {
	start, length                  uint64
	flags, mapped, count, reserved uint32
	extents                        [fiemapBatch]struct {
		logical, physical, length uint64
		_                         [2]uint64
		flags                     uint32
		_                         [3]uint32
	}
}

// Extents returns the extents of a file or directory, in order
// (Documentation/filesystems/fiemap.rst).
func Extents(f *os.File) ([]Extent, error) {
	var all []Extent
	for start := uint64(0); ; {
		m := fiemap{start: start, length: ^uint64(0) - start, count: fiemapBatch}
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), fiemapCall, uintptr(unsafe.Pointer(&m)))
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return nil, pathError("ioctl FS_IOC_FIEMAP", f.Name(), errno)
		}
		for _, e := range m.extents[:m.mapped] {
			all = append(all, Extent{int64(e.logical), int64(e.physical), int64(e.length),
				e.flags&fiemapUnwritten != 0, e.flags&fiemapInline != 0})
			if start = e.logical + e.length; e.flags&fiemapLast != 0 {
				return all, nil
			}
		}
		if m.mapped == 0 {
			return all, nil
		}
	}
}

// Ext4Errors reports whether the kernel has counted errors or warnings of the mounted ext4 file
// system on device. It reports false if the kernel has no such counters.
func Ext4Errors(device *os.File) (bool, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(device.Fd()), &st); err != nil {
		return false, pathError("fstat", device.Name(), err)
	}
	name, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Rdev),
		unix.Minor(st.Rdev)))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	name = name[strings.LastIndexByte(name, '/')+1:]
	for _, counter := range []string{"errors_count", "warning_count"} {
		n, err := os.ReadFile("/sys/fs/ext4/" + name + "/" + counter)
		if err == nil && strings.TrimSpace(string(n)) != "0" {
			return true, nil
		}
	}
	return false, nil
}
