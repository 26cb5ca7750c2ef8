package prepare

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/message"
)

// varTemp makes a directory below /var/tmp, which every user can reach.
func varTemp(t *testing.T) string {
	t.Helper()
	top, err := os.MkdirTemp("/var/tmp", "jail-hint-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(top); err != nil {
			t.Error(err)
		}
	})
	return top
}

// A hint proposes a mount of a directory of programs, and of no place of keys, of the system's
// configuration, or around the workspace.
func TestHintToShow(t *testing.T) {
	top := varTemp(t)
	home, work := filepath.Join(top, "home"), filepath.Join(top, "src", "work")
	for _, dir := range []string{work, filepath.Join(home, ".ssh"), filepath.Join(top, "vault")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(top, "vault"), filepath.Join(home, ".gnupg")); err != nil {
		t.Fatal(err)
	}
	f := &finder{caller: caller.Caller{Home: home}, req: message.Request{Dir: work}}
	for at, mount := range map[string]string{
		filepath.Join(home, "sdk/bin/x"):  filepath.Join(home, "sdk/bin"),
		filepath.Join(home, "x"):          filepath.Join(home, "x"),
		filepath.Join(home, ".ssh/x"):     "",
		filepath.Join(home, ".ssh/bin/x"): "",
		filepath.Join(top, "vault/x"):     "",
		filepath.Join(top, "src/x"):       "",
		"/etc/x":                          "",
		"/proc/self/cwd/x":                "",
		"/nowhere/bin/x":                  "/nowhere/bin",
	} {
		hint := f.hintToShow(at)
		if !strings.HasPrefix(hint, at+" is a program of this host") ||
			strings.Contains(hint, "[[mount]]") != (mount != "") ||
			mount != "" && !strings.Contains(hint, fmt.Sprintf("source = %q,", mount)) {
			t.Errorf("%s: %s, want a mount of %q", at, hint, mount)
		}
	}
}

// A program on the caller's PATH is one that the caller may execute, in one of its first
// directories.
func TestOutside(t *testing.T) {
	dir := varTemp(t)
	for name, mode := range map[string]os.FileMode{"tool": 0o755, "text": 0o644} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	if isProgram(dir) || isProgram(filepath.Join(dir, "text")) {
		t.Error("a directory and a file without the right to execute are no programs")
	}
	for before, found := range map[int]bool{0: true, maxSearched - 1: true, maxSearched: false} {
		f := &finder{req: message.Request{Inherit: []string{"PATH=" +
			strings.Repeat("/nowhere:", before) + dir}}}
		if got := f.outside("tool"); (got != "") != found {
			t.Errorf("after %d directories: %q, want found %v", before, got, found)
		}
	}
	if os.Geteuid() != 0 {
		return
	}
	// Only the group may execute it: another user may not, whatever its mode bits say.
	tool := filepath.Join(dir, "tool")
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(tool, 0o710); err != nil {
		t.Fatal(err)
	}
	var c caller.Caller
	c.UID, c.GID = 54321, 54321
	for _, may := range []bool{false, true} {
		if may {
			if err := os.Chmod(tool, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		got := !may
		if err := c.Do(func() error { got = isProgram(tool); return nil }); err != nil {
			t.Fatal(err)
		}
		if got != may {
			t.Errorf("a program of another user: %v, want %v", got, may)
		}
	}
}
