// Package inode identifies files of the host, whatever their names are now.
package inode

import (
	"io/fs"
	"os"
	"syscall"
)

// An ID is a file or directory of the host, by its device and inode number (inode(7)).
type ID struct{ Dev, Ino uint64 }

// of returns the ID of an open file.
func of(f *os.File) (ID, error) {
	info, err := f.Stat()
	if err != nil {
		return ID{}, err
	}
	return In(info), nil
}

// In returns the ID of the file that info describes.
func In(info fs.FileInfo) ID {
	st := info.Sys().(*syscall.Stat_t)
	return ID{st.Dev, st.Ino}
}

// All returns the IDs of open files, or nil if one of them is not known.
func All(files []*os.File) []ID {
	all := []ID{}
	for _, f := range files {
		id, err := of(f)
		if err != nil {
			return nil
		}
		all = append(all, id)
	}
	return all
}
