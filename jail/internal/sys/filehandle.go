package sys

import (
	"encoding/binary"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// HandleOf returns the handle by which the file system of f finds its inode, whatever its name is
// by then (name_to_handle_at(2)); nil where the file system has no handles.
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
// of the same file system that is open for reading. Without CAP_DAC_READ_SEARCH the error is EPERM;
// of an inode that is gone it is ESTALE.
func OpenHandle(mount *os.File, handle []byte) (*os.File, error) {
	if len(handle) < 4 {
		return nil, pathError("open_by_handle_at", mount.Name(), unix.EINVAL)
	}
	h := unix.NewFileHandle(int32(binary.LittleEndian.Uint32(handle)), handle[4:])
	var fd int
	err := retryEINTR(func() (err error) {
		fd, err = unix.OpenByHandleAt(int(mount.Fd()), h,
			unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC)
		return err
	})
	if err != nil {
		return nil, pathError("open_by_handle_at", mount.Name(), err)
	}
	return os.NewFile(uintptr(fd), "a handle below "+mount.Name()), nil
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
		return false, pathError("statx", dir.Name()+"/"+name, err)
	}
	return st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
}
