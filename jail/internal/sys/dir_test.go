package sys

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// MakeDirBelow stops at a link and at the parent of its root; os.MkdirAll, the control, goes where
// the link leads.
func TestMakeDirBelow(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	if err := os.Symlink(outside, filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		f, err := MakeDirBelow(root, "/a/b/c")
		if err != nil {
			t.Fatal(err)
		}
		at, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
		f.Close()
		if want := filepath.Join(root, "a/b/c"); err != nil || at != want {
			t.Errorf("opened %s, %v, want %s", at, err, want)
		}
	}
	if f, err := MakeDirBelow(root, "link/c"); err == nil {
		f.Close()
		t.Error("it followed a link")
	}
	if _, err := os.Lstat(filepath.Join(outside, "c")); err == nil {
		t.Error("it made a directory outside")
	}
	if f, err := MakeDirBelow(filepath.Join(root, "a"), "b/../../d"); err == nil {
		f.Close()
		t.Error("it left its root")
	}
	if _, err := os.Lstat(filepath.Join(root, "d")); err == nil {
		t.Error("it made a directory beside its root")
	}
	if err := os.MkdirAll(filepath.Join(root, "link/c"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(outside, "c")); err != nil {
		t.Errorf("control: %v", err)
	}
}
