package workspace

import (
	"errors"
	"fmt"
	"os"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// ownInodes are those that a workspace takes besides the tool's: the directories upper and work, and three that the overlay makes in the latter.
const ownInodes = 5

// pad uses up the inodes of an empty image that are more than inodes, in a directory that no overlay shows: mkfs fills whole blocks of its
// tables in each group of blocks, and so makes more than it was asked for, twice as many where they are few.
func pad(image *os.File, inodes int64) (err error) {
	loop, err := sys.AttachLoop(image, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, loop.Close()) }()
	mount, err := sys.MountExt4(loop, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, mount.Close()) }()
	if err := sys.MkdirAt(mount, "pad", 0o700); err != nil {
		return err
	}
	dir, err := sys.OpenSubdir(mount, "pad")
	if err != nil {
		return err
	}
	defer dir.Close()
	_, free, err := sys.Room(mount)
	if err != nil {
		return err
	}
	for n := range free - inodes - ownInodes {
		f, err := sys.OpenBeneath(dir, fmt.Sprintf("%x", n), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return sys.Syncfs(dir)
}
