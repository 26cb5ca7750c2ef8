package workspace

import (
	"errors"
	"fmt"
	"os"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

const (
	// ownInodes are those that the overlay makes in the directory work.
	ownInodes = 3
	// ownBlocks are one for each directory of ownInodes, and some for the extent trees of large
	// files. The tool can use the rest of these beyond its limit, so that a layer without room
	// means that the tool asked for more than the limit.
	ownBlocks = ownInodes + 8
)

// furnish makes the directories of a layer in an empty image, so that their blocks are on the disk
// before the layer is written, and uses up the inodes and blocks beyond inodes and bytes, in a
// directory that no overlay shows. mkfs fills whole blocks of its tables in each block group and so
// makes more inodes than requested, twice as many if they are few; and imageSize leaves more blocks
// than needed.
func furnish(image *os.File, bytes, inodes int64) (err error) {
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
	for _, name := range []string{"upper", "work", "pad"} {
		if err := sys.MkdirAt(mount, name, 0o700); err != nil {
			return err
		}
	}
	dir, err := sys.OpenSubdir(mount, "pad")
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := padBlocks(dir, bytes, inodes); err != nil {
		return err
	}
	return sys.Syncfs(dir)
}

func padBlocks(dir *os.File, bytes, inodes int64) error {
	blocks, err := newFile(dir, "blocks")
	if err != nil {
		return err
	}
	defer blocks.Close()
	if err := padInodes(dir, inodes); err != nil {
		return err
	}
	// The extent tree may take some of its blocks, so check the rest again.
	for size := int64(0); ; {
		free, err := sys.FreeBytes(dir)
		if err != nil {
			return err
		}
		more := free - bytes - ownBlocks*blockSize
		if more < 0 {
			return fmt.Errorf("the image has room for %d bytes, less than %d", free, bytes)
		}
		if more == 0 {
			return nil
		}
		size += more
		if err := sys.Fallocate(blocks, size); err != nil {
			return err
		}
	}
}

func padInodes(dir *os.File, inodes int64) error {
	_, free, err := sys.Room(dir)
	if err != nil {
		return err
	}
	for n := range free - inodes - ownInodes {
		f, err := newFile(dir, fmt.Sprintf("%x", n))
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}
