package sys

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Whatever holds a page of the file for a while delays the seals, and whatever keeps it makes them
// an error.
func TestSealWaits(t *testing.T) {
	held := func() (*os.File, []byte) {
		fd, err := unix.MemfdCreate("held", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), "held")
		t.Cleanup(func() { f.Close() })
		if err := f.Truncate(4096); err != nil {
			t.Fatal(err)
		}
		page, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		return f, page
	}

	f, page := held()
	let := make(chan error)
	go func() {
		time.Sleep(50 * time.Millisecond)
		let <- unix.Munmap(page)
	}()
	if err := seal(f); err != nil {
		t.Errorf("a page that was held for a moment: %v", err)
	}
	if err := <-let; err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("x"), 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("a sealed file was written to: %v", err)
	}

	f, page = held()
	defer unix.Munmap(page)
	if err := seal(f); !errors.Is(err, unix.EBUSY) {
		t.Errorf("a page that is held: %v", err)
	}
}
