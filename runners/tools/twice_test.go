package tools

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestBuiltTwice builds every bundle that this machine can build twice, each time from nothing in a
// folder of its own. Both builds must have the same bytes as that of `make bundles` in bin, so that
// a rebuilt release can be compared. The builds take minutes: only JAIL_TEST_LONG=1 runs the test.
func TestBuiltTwice(t *testing.T) {
	if os.Getenv("JAIL_TEST_LONG") == "" {
		t.Skip("JAIL_TEST_LONG=1 builds all bundles twice")
	}
	first, second := build(t), build(t)
	built := bytesBelow(t, first)
	if len(built) < 9 {
		t.Fatalf("%d files were built", len(built))
	}
	same(t, built, bytesBelow(t, second))
	same(t, built, bytesBelow(t, "../../bin/bundles"))
}

// build makes the bundles in a new folder. Only what was fetched, and is checked against the locks
// again, is taken from elsewhere.
func build(t *testing.T) string {
	t.Helper()
	work, out := filepath.Join(t.TempDir(), "work"), t.TempDir()
	if err := os.Mkdir(work, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(work, "src"), os.DirFS("../../bin/.build/tools/src")); err != nil {
		t.Fatalf("run make bundles first: %v", err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "build.sh", out)
	cmd.Env = append(os.Environ(), "JAIL_TOOLS_WORK="+work)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return out
}

func bytesBelow(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "bundle.sig" {
			return err
		}
		name, err := filepath.Rel(dir, p)
		if err == nil {
			files[name], err = os.ReadFile(p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func same(t *testing.T, a, b map[string][]byte) {
	t.Helper()
	if len(a) != len(b) {
		t.Errorf("%d files and %d", len(a), len(b))
	}
	for name, text := range a {
		if !bytes.Equal(text, b[name]) {
			t.Errorf("%s: %d bytes, and %d others", name, len(text), len(b[name]))
		}
	}
}
