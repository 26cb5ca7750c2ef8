package asuser_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/jail/asuser"
)

// TestMagicLinks: what a daemon has open of one user is nothing that it opens for another one by a
// link to its descriptor. Root's daemon opens as a user who may not enter the directory above.
func TestMagicLinks(t *testing.T) {
	top := t.TempDir()
	private := filepath.Join(top, "private")
	dir := filepath.Join(private, "project")
	file := filepath.Join(dir, "file")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(file, []byte("secret"), 0o644),
		os.Chmod(private, 0o700), os.Chmod(top, 0o755), os.Chmod(filepath.Dir(top), 0o755)); err != nil {
		t.Fatal(err)
	}
	held, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	c := asuser.Caller{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
	if c.UID == 0 {
		c = asuser.Caller{UID: 60_001, GID: 60_001}
		if _, err := c.OpenDir(dir); !errors.Is(err, fs.ErrPermission) {
			t.Fatalf("the directory by its name: %v", err)
		}
	}
	for _, to := range []string{fmt.Sprintf("/proc/self/fd/%d", held.Fd()),
		fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), held.Fd()),
		fmt.Sprintf("/proc/thread-self/fd/%d", held.Fd()), fmt.Sprintf("/dev/fd/%d", held.Fd())} {
		link := filepath.Join(top, "link")
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{to, link} {
			if f, err := c.OpenDir(path); !errors.Is(err, syscall.ELOOP) ||
				!strings.Contains(err.Error(), "a link of /proc to an open file") {
				t.Errorf("directory %s: %v, %v", path, f, err)
			}
			if text, err := c.ReadFile(path+"/file", 100); !errors.Is(err, syscall.ELOOP) {
				t.Errorf("file of %s: %q, %v", path, text, err)
			}
		}
		if err := os.Remove(link); err != nil {
			t.Fatal(err)
		}
	}
	// Other links are followed.
	if err := errors.Join(os.Symlink("public", filepath.Join(top, "link")),
		os.Mkdir(filepath.Join(top, "public"), 0o755)); err != nil {
		t.Fatal(err)
	}
	f, err := c.OpenDir(filepath.Join(top, "link"))
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}
