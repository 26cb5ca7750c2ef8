package runners

import (
	"fmt"
	"io/fs"
	"path"
)

// FilesTarget is where a tool that is a module finds the files of its order, read-only.
const FilesTarget = "/agent"

// Bounds of the files of an order.
const (
	MaxFiles      = 200
	MaxFilesBytes = 1 << 20
)

// CheckFiles returns what is wrong with the files of an order: their names are relative paths.
func CheckFiles(files map[string][]byte) error {
	if len(files) > MaxFiles {
		return fmt.Errorf("%d files, more than %d", len(files), MaxFiles)
	}
	size := 0
	for name, text := range files {
		if !fs.ValidPath(name) || name == "." {
			return fmt.Errorf("file %.60q: want a relative path", name)
		}
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, ok := files[dir]; ok {
				return fmt.Errorf("file %.60q: its directory is a file, too", name)
			}
		}
		size += len(name) + len(text)
	}
	if size > MaxFilesBytes {
		return fmt.Errorf("the files have %d bytes, more than %d", size, MaxFilesBytes)
	}
	return nil
}
