package sys

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// An error names the call and what it was about, and keeps its number.
func TestErrors(t *testing.T) {
	dir, err := OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer Close(dir)
	_, err = Openat2(dir, "missing", syscall.O_RDONLY, 0, ResolveBeneath)
	var pe *fs.PathError
	if !errors.As(err, &pe) || pe.Op != "openat2" || pe.Path != "missing" ||
		ErrnoOf(err) != syscall.ENOENT || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if err := Truncate(-1, 0); ErrnoOf(err) != syscall.EBADF || !strings.Contains(err.Error(),
		"ftruncate fd -1") {
		t.Errorf("%v", err)
	}
	if ErrnoOf(nil) != 0 || ErrnoOf(errors.New("x")) != syscall.EIO {
		t.Error("errors without a number")
	}
}

// The wall that everything stands on: what leads out of a directory does not open.
func TestBeneath(t *testing.T) {
	top := t.TempDir()
	for _, err := range []error{
		os.Mkdir(filepath.Join(top, "in"), 0o755),
		os.WriteFile(filepath.Join(top, "secret"), nil, 0o644),
		os.Symlink("../secret", filepath.Join(top, "in", "rel")),
		os.Symlink(filepath.Join(top, "secret"), filepath.Join(top, "in", "abs")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	dir, err := OpenDir(filepath.Join(top, "in"))
	if err != nil {
		t.Fatal(err)
	}
	defer Close(dir)
	for _, p := range []string{"rel", "abs", "../secret", "..", "/", "/proc/self/exe"} {
		if fd, err := Openat2(dir, p, OPath, 0, ResolveBeneath); ErrnoOf(err) != syscall.EXDEV {
			t.Errorf("%s: %d %v", p, fd, err)
		}
		fd, err := Openat2(dir, p, OPath, 0, 0) // the control
		if err != nil {
			t.Errorf("%s without the wall: %v", p, err)
			continue
		}
		Close(fd)
	}
}

func TestVectors(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd := int(f.Fd())
	many := make([][]byte, 20)
	for i := range many {
		many[i] = []byte{byte('a' + i)}
	}
	if n, err := Writev(fd, append(many, nil, []byte{})); n != 20 || err != nil {
		t.Errorf("writev: %d %v", n, err)
	}
	a, b := make([]byte, 3), make([]byte, 4)
	if n, err := Preadv(fd, [][]byte{a, nil, b}, 2); n != 7 || err != nil ||
		string(a)+string(b) != "cdefghi" {
		t.Errorf("preadv: %d %v %s%s", n, err, a, b)
	}
	if n, err := Readv(fd, nil); n != 0 || err != nil {
		t.Errorf("readv of nothing: %d %v", n, err)
	}
	if n, err := Pwritev(fd, [][]byte{[]byte("X")}, 1<<33); n != 1 || err != nil {
		t.Errorf("pwritev: %d %v", n, err)
	}
	if i, err := f.Stat(); err != nil || i.Size() != 1<<33+1 {
		t.Errorf("the offset was cut to 32 bits: %v", i.Size())
	}
}

func TestReservation(t *testing.T) {
	b, err := Reserve(4 << 30)
	if err != nil {
		t.Fatal(err)
	}
	if err := Open(b[:1<<16]); err != nil {
		t.Fatal(err)
	}
	b[1<<16-1] = 1
	if err := Release(b); err != nil {
		t.Error(err)
	}
}
