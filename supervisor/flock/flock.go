// Package flock takes advisory locks on files and directories (flock(2)). A lock belongs to the
// open file description: it ends with the last close, or when the process ends.
package flock

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// Lock waits for the exclusive lock on f.
func Lock(f *os.File) error { return Apply(f, syscall.LOCK_EX) }

// Unlock releases the lock.
func Unlock(f *os.File) error { return Apply(f, syscall.LOCK_UN) }

// Apply calls flock(2) on f with the operation how, again if a signal interrupts it. Errors name
// the path of f.
func Apply(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how)
		if err == nil {
			return nil
		}
		if !errors.Is(err, syscall.EINTR) {
			return &fs.PathError{Op: "flock", Path: f.Name(), Err: err}
		}
	}
}

// Open opens the lock file at path, made with mode 0600 if there is none, and waits for the
// exclusive lock. The caller closes the file.
func Open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := Lock(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Dir locks the directory at path without waiting. how is LOCK_SH or LOCK_EX of flock(2). The error is
// EWOULDBLOCK if another process holds the lock, and fs.ErrNotExist if path is no longer the
// directory that was locked. The caller closes the directory.
func Dir(path string, how int) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := Apply(f, how|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	locked, err := f.Stat()
	if err == nil {
		var now fs.FileInfo
		if now, err = os.Lstat(path); err == nil && !os.SameFile(locked, now) {
			err = &fs.PathError{Op: "flock", Path: path, Err: fs.ErrNotExist}
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
