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
	l.unthrottle()
	tries := 0
	for deadline := time.Now().Add(wait); ; time.Sleep(time.Millisecond) {
		tries++
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
		// Beside v1 the v2 group may be there and the processes not in it: then they are killed as where there is none.
		if l.killAll() == nil && (l.layout == V2 || tries < 100) {
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

// KillAtOnce begins to end every process of the leaf and does not wait. Where the kernel cannot kill them all by one order it does nothing:
// the end of the jail's first process, and Kill, do it there.
func (l *Leaf) KillAtOnce() error {
	l.unthrottle()
	err := l.killAll()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// unthrottle takes the quota away from a leaf that is to be killed: dying takes time on a CPU too, and hundreds of processes that had used the
// quota up would die over seconds. It is a matter of speed only, so a leaf without a quota is no error.
func (l *Leaf) unthrottle() {
	if l.layout == V2 {
		_ = os.WriteFile(l.file("cpu", "cpu.max"), []byte("max"), 0)
		return
	}
	_ = os.WriteFile(l.file("cpu", "cpu.cfs_quota_us"), []byte("-1"), 0)
}

func (l *Leaf) killAll() error {
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
