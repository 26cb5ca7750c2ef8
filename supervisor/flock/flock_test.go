package flock

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestDir: shared locks go together, an exclusive one goes with none, and a directory that was
// replaced or removed is not locked.
func TestDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var held []*os.File
	for range 2 {
		f, err := Dir(dir, syscall.LOCK_SH)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, f)
	}
	if _, err := Dir(dir, syscall.LOCK_EX); !errors.Is(err, syscall.EWOULDBLOCK) {
		t.Errorf("beside shared locks: %v", err)
	}
	for _, f := range held {
		f.Close()
	}
	f, err := Dir(dir, syscall.LOCK_EX)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Dir(dir, syscall.LOCK_SH); !errors.Is(err, syscall.EWOULDBLOCK) {
		t.Errorf("beside an exclusive lock: %v", err)
	}
	f.Close()
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := Dir(dir, syscall.LOCK_SH); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removed: %v", err)
	}
}

// TestOpen: the second one waits until the first one has closed the file. A link is not followed.
func TestOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := Apply(f, syscall.LOCK_SH|syscall.LOCK_NB); !errors.Is(err, syscall.EWOULDBLOCK) {
		t.Errorf("while it is held: %v", err)
	}
	got := make(chan error, 1)
	go func() {
		second, err := Open(path)
		if err == nil {
			err = second.Close()
		}
		got <- err
	}()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
	if err := os.Symlink(path, path+".link"); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path + ".link"); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("a link: %v", err)
	}
}
