package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Kill ends every process of the leaf and waits, at most for wait, until it is empty. A leaf that was killed must never be used again.
// Where there is a v2 hierarchy, also beside v1, the kernel kills them all at once; elsewhere they are frozen first, so that none can fork away.
func (l *Leaf) Kill(wait time.Duration) error {
	for deadline := time.Now().Add(wait); ; time.Sleep(time.Millisecond) {
		pids, err := l.PIDs()
		if err != nil {
			return err
		}
		if len(pids) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("control group %s: %d processes are left after %v", l.path, len(pids), wait)
		}
		if l.killAtOnce() == nil {
			if l.layout == Hybrid {
				_ = l.Thaw() // what is frozen in a v1 hierarchy does not die before it is thawed
			}
			continue
		}
		if l.layout != V2 {
			_ = l.Freeze() // a leaf without a freezer is killed again and again until it is empty
		}
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("kill process %d: %w", pid, err)
			}
		}
		if l.layout != V2 {
			_ = l.Thaw()
		}
	}
}

func (l *Leaf) killAtOnce() error {
	path := filepath.Join(Root, l.path)
	if l.layout == Hybrid {
		path = filepath.Join(Root, "unified", l.path)
	}
	if l.layout == V1 {
		return fs.ErrNotExist
	}
	return os.WriteFile(filepath.Join(path, "cgroup.kill"), []byte("1"), 0)
}

// Remove removes what a dead daemon left of the leaf at path in every hierarchy. It is no error if nothing is there.
func Remove(path string) error {
	if err := checkLeaf(path); err != nil {
		return err
	}
	layout, err := Detect()
	if err != nil {
		return err
	}
	dirs := []string{filepath.Join(Root, path)}
	if layout != V2 {
		hierarchies, err := os.ReadDir(Root)
		if err != nil {
			return err
		}
		for _, h := range hierarchies {
			dirs = append(dirs, filepath.Join(Root, h.Name(), path)) // no pattern: path is a name, whatever is in it
		}
	}
	var errs []error
	for _, dir := range dirs {
		if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			errs = append(errs, &fs.PathError{Op: "rmdir", Path: dir, Err: err})
		}
	}
	return errors.Join(errs...)
}
