// Package flock is the advisory lock that lets several writers take turns at one log. It is a package
// of its own so that the log has one door to the system call, with EINTR retried and the path named.
package flock

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// Lock waits for the exclusive lock on f. The lock belongs to f's open file description: it ends with
// Unlock, with the last close of f, or with the process, however that ends.
func Lock(f *os.File) error { return flock(f, syscall.LOCK_EX) }

// Try takes the lock if nobody holds it, and says whether it did.
func Try(f *os.File) (bool, error) {
	err := flock(f, syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// Unlock gives the lock back.
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
