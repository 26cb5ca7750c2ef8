package cmdtest

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Holding returns the files below the root of the host that hold one of texts, by their paths.
func Holding(h *Host, texts ...string) map[string]string {
	h.T.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(h.Root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		found, err := holds(path, texts)
		if found != "" {
			all[path] = found
		}
		// A daemon that works removes files.
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		h.T.Error(err)
	}
	return all
}

// holds returns the one of texts that a file holds. It reads no holes: the images of shadows are
// gibibytes of them.
func holds(path string, texts []string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	for to := int64(0); ; {
		from, err := unix.Seek(int(f.Fd()), to, unix.SEEK_DATA)
		if errors.Is(err, syscall.ENXIO) {
			return "", nil
		}
		if err == nil {
			to, err = unix.Seek(int(f.Fd()), from, unix.SEEK_HOLE)
		}
		if err != nil {
			return "", err
		}
		data := make([]byte, to-from)
		n, _ := f.ReadAt(data, from)
		for _, text := range texts {
			if bytes.Contains(data[:n], []byte(text)) {
				return text, nil
			}
		}
	}
}
