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

// Kill kills every process of the leaf and waits until it is empty, at most for wait. A killed leaf
// must never be used again. If a v2 hierarchy exists, also beside v1, the kernel kills all at once
// by cgroup.kill. Otherwise Kill freezes the processes first, so that none can fork away.
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
			return fmt.Errorf("control group %s: %d processes are left after %v", l.path, len(pids),
				wait)
		}
		// Beside v1 the v2 group may exist without the processes. Then they are killed as without
		// v2.
		if l.killAll() == nil && (l.layout == V2 || tries < 100) {
			if l.layout == Hybrid {
				// A process frozen by v1 does not die before it is thawed.
				_ = l.Thaw()
			}
			continue
		}
		if l.layout != V2 {
			// A leaf without a freezer is killed again and again until it is empty.
			_ = l.Freeze()
		}
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err,
				syscall.ESRCH) {
				return fmt.Errorf("kill process %d: %w", pid, err)
			}
		}
		if l.layout != V2 {
			_ = l.Thaw()
		}
	}
}

// KillAtOnce kills every process of the leaf by cgroup.kill and does not wait. It does nothing if
// the kernel has no cgroup.kill; there the end of the jail's first process, and Kill, end them.
func (l *Leaf) KillAtOnce() error {
	l.unthrottle()
	err := l.killAll()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// unthrottle removes the CPU quota of a leaf before a kill. Processes need CPU time to die, and
// hundreds with an exhausted quota take seconds. A missing quota is no error, since only speed
// depends on it.
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
	if l.layout == v1 {
		return fs.ErrNotExist
	}
	return os.WriteFile(filepath.Join(path, "cgroup.kill"), []byte("1"), 0)
}

// Clear kills the processes of the leaf at path, waits at most for wait until it is empty, and
// removes the leaf from every hierarchy. It succeeds if nothing or only a part of the leaf exists.
func Clear(path string, wait time.Duration) error {
	// Otherwise the leaf is already gone, as a whole or in part.
	if leaf, err := Open(path); err == nil {
		if err := leaf.Kill(wait); err != nil {
			return err
		}
	}
	for deadline := time.Now().Add(wait); ; time.Sleep(time.Millisecond) {
		err := Remove(path)
		if !errors.Is(err, syscall.EBUSY) || time.Now().After(deadline) {
			// A process that has ended stays in its group until the kernel has reaped it.
			return err
		}
	}
}

// Remove removes the leaf at path from every hierarchy after its daemon has died. It succeeds if
// nothing exists.
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
			// Not a glob: path is a literal name.
			dirs = append(dirs, filepath.Join(Root, h.Name(), path))
		}
	}
	var errs []error
	for _, dir := range dirs {
		if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) &&
			!errors.Is(err, syscall.ENOTDIR) {
			errs = append(errs, &fs.PathError{Op: "rmdir", Path: dir, Err: err})
		}
	}
	return errors.Join(errs...)
}
