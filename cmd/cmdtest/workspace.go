package cmdtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Write makes these files in the workspace.
func (h *Host) Write(files map[string]string) {
	h.T.Helper()
	for name, text := range files {
		path := filepath.Join(h.Work, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			h.T.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			h.T.Fatal(err)
		}
	}
}

// Holds checks that a file of the workspace has these texts in it.
func (h *Host) Holds(name string, texts ...string) {
	h.T.Helper()
	got, err := os.ReadFile(filepath.Join(h.Work, name))
	if err != nil {
		h.T.Error(err)
	}
	for _, text := range texts {
		if !strings.Contains(string(got), text) {
			h.T.Errorf("%s has no %q: %.300q", name, text, got)
		}
	}
}

// Number is what an environment variable says, or otherwise if it is not set.
func Number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%s", name, text)
	}
	return n
}

// Blame is what an error says that puts the fault on jail.
var Blame = regexp.MustCompile(`fault of jail's own|daemon|did not answer`)

// TargetPolicies writes two policies whose workspace is at its own path: one of programs of the
// host, one of modules.
func TargetPolicies(h *Host) (native, modules string) {
	h.T.Helper()
	text := func(base string) string {
		return "policy = 1\nname = \"same\"\nabout = \"x\"\ninclude = [\"" + base +
			"\"]\n[workspace]\ntarget = \"same\"\n"
	}
	native, modules = filepath.Join(h.Root, "native.toml"), filepath.Join(h.Root, "modules.toml")
	for path, base := range map[string]string{native: "build", modules: "default"} {
		if err := os.WriteFile(path, []byte(text(base)), 0o644); err != nil {
			h.T.Fatal(err)
		}
	}
	return native, modules
}

// OutsideMounts returns a new directory that lies in no tmpfs of the shipped profiles.
func OutsideMounts(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/srv", "jail-target-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}
