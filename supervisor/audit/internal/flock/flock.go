// Package flock is the advisory lock by which several writers take turns at one log. It retries
// EINTR and names the path in errors.
package flock

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// Lock waits for the exclusive lock on f. The lock belongs to f's open file description: it ends
// with Unlock, with the last close of f, or with the process, however that ends.
func Lock(f *os.File) error { return flock(f, syscall.LOCK_EX) }

// Unlock releases the lock.
func Unlock(f *os.File) error { return flock(f, syscall.LOCK_UN) }

func flock(f *os.File, how int) error {
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
