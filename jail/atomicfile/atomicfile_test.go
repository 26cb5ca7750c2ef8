package atomicfile

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// alone checks that dir holds these names and no temporary file.
func alone(t *testing.T, dir string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != len(names) {
		t.Errorf("%v, %v; want %v", entries, err, names)
	}
}

func TestWrite(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	for _, d := range []Durability{Durable, Volatile} {
		dir := t.TempDir()
		path := filepath.Join(dir, "f")
		for _, perm := range []fs.FileMode{0o600, 0o644, 0o640} {
			if err := Write(path, []byte(perm.String()), perm, d); err != nil {
				t.Fatal(err)
			}
			if info, err := os.Stat(path); err != nil || info.Mode() != perm ||
				read(t, path) != perm.String() {
				t.Errorf("%v, %v; want %v", info.Mode(), err, perm)
			}
		}
		alone(t, dir, "f")
	}
}

// A link is replaced, and "link/.." is what the kernel takes it for.
func TestLinks(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := errors.Join(os.MkdirAll("a/b", 0o700), os.Symlink("a/b", "link"),
		os.WriteFile("kept", nil, 0o600), os.Symlink("../kept", "a/f")); err != nil {
		t.Fatal(err)
	}
	for _, d := range []Durability{Durable, Volatile} {
		if err := Write("link/../f", []byte("new"), 0o600, d); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Lstat("a/f"); err != nil || !info.Mode().IsRegular() ||
		read(t, "a/f") != "new" || read(t, "kept") != "" {
		t.Errorf("%v, %v", info, err)
	}
	if err := Write("plain", []byte("new"), 0o600, Volatile); err != nil ||
		read(t, "plain") != "new" {
		t.Error(err)
	}
	for _, target := range []string{"one", "two"} {
		if err := Symlink(target, "link"); err != nil {
			t.Fatal(err)
		}
		if to, err := os.Readlink("link"); err != nil || to != target {
			t.Errorf("%s, %v", to, err)
		}
	}
}

// A failure leaves the old content and nothing beside it, and names the file.
func TestFailure(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "d")
	if err := os.MkdirAll(filepath.Join(path, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, d := range []Durability{Durable, Volatile} {
		err := Write(path, []byte("x"), 0o600, d)
		var at *fs.PathError
		if !errors.As(err, &at) || at.Path != path {
			t.Errorf("%v", err)
		}
		if err := Write(filepath.Join(dir, "none", "f"), nil, 0o600, d); !errors.Is(err,
			fs.ErrNotExist) {
			t.Error(err)
		}
	}
	alone(t, dir, "d")
}

// Readers see one content or the other whole, and of several that create a file one does.
func TestRaces(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	contents := [][]byte{bytes.Repeat([]byte("a"), 100_000), bytes.Repeat([]byte("b"), 50_000)}
	var wg sync.WaitGroup
	made := make(chan bool, len(contents))
	for _, content := range contents {
		wg.Go(func() {
			switch err := Create(path, content, 0o600); {
			case err == nil:
				made <- true
			case !errors.Is(err, fs.ErrExist):
				t.Error(err)
			}
			for range 100 {
				if err := Write(path, content, 0o600, Volatile); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 200 {
		if text, err := os.ReadFile(path); err == nil && !bytes.Equal(text, contents[0]) &&
			!bytes.Equal(text, contents[1]) {
			t.Fatalf("a part of %d bytes", len(text))
		}
	}
	wg.Wait()
	if len(made) != 1 {
		t.Errorf("%d created the file", len(made))
	}
	alone(t, dir, "f")
}
