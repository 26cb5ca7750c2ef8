package outer_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/jail/outer"
)

func TestFind(t *testing.T) {
	dir := t.TempDir()
	// A name that no system has.
	const name = "runtime-of-a-test"
	r := &outer.Runtimes{Dir: dir}
	if _, err := r.Find(t.Context(), name); !errors.Is(err, outer.ErrMissing) {
		t.Errorf("not there: %v", err)
	}
	path := filepath.Join(dir, name)
	write := func(text string, mode os.FileMode) {
		t.Helper()
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o700),
			os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
	}
	write("#!/bin/sh\necho runtime version 7\necho more\n", 0o755)
	first, err := r.Find(t.Context(), name)
	if err != nil || first.Version != "runtime version 7" || first.Path != path ||
		!strings.HasPrefix(first.Digest, "sha256:") {
		t.Errorf("%+v, %v", first, err)
	}
	// Another program of that name is another runtime.
	write("#!/bin/sh\necho runtime version 8, which is longer\n", 0o755)
	if next, err := r.Find(t.Context(), name); err != nil || next.Digest == first.Digest ||
		!strings.Contains(next.Version, "8") {
		t.Errorf("%+v, %v", next, err)
	}
	write("#!/bin/sh\nexit 3\n", 0o755)
	if _, err := r.Find(t.Context(), name); err == nil {
		t.Error("a program that does not say its version")
	}
	write("#!/bin/sh\necho x\n", 0o757)
	if _, err := r.Find(t.Context(), name); err == nil || !strings.Contains(err.Error(), "changed by") {
		t.Errorf("a program that everybody can change: %v", err)
	}
	write("#!/bin/sh\necho x\n", 0o644)
	if _, err := r.Find(t.Context(), name); err == nil || !strings.Contains(err.Error(), "no program") {
		t.Errorf("a file that is no program: %v", err)
	}
}

// A bubblewrap that is older than the one that jail knows is refused, and so is one of which nobody
// knows how old it is.
func TestFindOld(t *testing.T) {
	dir := t.TempDir()
	for version, want := range map[string]string{"0.8.0": "", "0.11.1": "", "0.7.9": "too old",
		"of today": "no version"} {
		text := "#!/bin/sh\necho bubblewrap " + version + "\n"
		path := filepath.Join(dir, "bwrap")
		if err := errors.Join(os.RemoveAll(path), os.WriteFile(path, []byte(text), 0o755)); err != nil {
			t.Fatal(err)
		}
		_, err := (&outer.Runtimes{Dir: dir}).Find(t.Context(), "bwrap")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("bubblewrap %s: %v, want %q", version, err, want)
		}
	}
}
