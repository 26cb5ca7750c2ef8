package workspace

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func (f *fixture) prepareHiding(id string, patterns ...string) *Workspace {
	f.t.Helper()
	settle(f.t)
	source, err := os.Open(f.real)
	must(f.t, err)
	defer source.Close()
	w, err := f.store.Prepare(Spec{ID: id, Source: source, Bytes: 64 << 20, Inodes: 2000,
		Hide: patterns})
	must(f.t, err)
	f.t.Cleanup(func() { w.Close() })
	return w
}

// A native program finds hidden names by no way, and the same script finds them where nothing is
// hidden.
func TestHiddenNamesAreNotThere(t *testing.T) {
	f := newFixture(t)
	f.write(".env", "sub/.env", "sub/deep/key.pem", "sub/ok", "secrets/a", "secrets/b/c", "later/",
		"l -> .env", "env")
	before := snapshotText(f.real)
	patterns := []string{".env", "**/*.pem", "secrets"}
	script := `cat .env sub/.env sub/deep/key.pem secrets/a l ./sub/../.env 2>/dev/null; ln .env hard 2>/dev/null && cat hard; mv sub/.env moved 2>/dev/null && cat moved
		mv sub gone 2>/dev/null; cat gone/.env 2>/dev/null; cat later/.env 2>/dev/null; ls -aR . ; cat env`
	for _, hide := range []bool{true, false} {
		var w *Workspace
		if hide {
			w = f.prepareHiding("h", patterns...)
		} else {
			w = f.prepareHiding("control")
		}
		// The host makes it during the run.
		must(t, os.WriteFile(f.real+"/later/.env", []byte("later/.env\n"), 0o644))
		a := f.run(w, order{Script: script})
		for _, secret := range []string{".env\n", "sub/.env", "key.pem", "secrets", "later/.env"} {
			if found := strings.Contains(a.Out, secret); found == hide {
				t.Errorf("hide %v: %q found: %v\n%s", hide, secret, found, a.Out)
			}
		}
		if !strings.HasSuffix(a.Out, "env\n") || !strings.Contains(a.Out, "ok\n") {
			t.Errorf("what is not hidden is not there: %s", a.Out)
		}
		must(t, w.Discard())
		must(t, os.Remove(f.real+"/later/.env"))
	}
	if now := snapshotText(f.real); now != before {
		t.Errorf("litter in the real directory: %s", cmp.Diff(before, now))
	}
}

// What a tool does to a name that is hidden never reaches what has that name, and its content is in
// no review.
func TestHiddenNamesAreNotCommitted(t *testing.T) {
	f := newFixture(t)
	f.write(".env", "d/.env", "d/x", "e/x")
	w := f.prepareHiding("r1", ".env")
	if a := f.run(w,
		order{Script: `set -e; echo mine >.env; rm -r d; echo y >>e/x; echo n >e/.env`}); a.Script != "" {
		t.Fatalf("%s %s", a.Script, a.Out)
	}
	must(t, w.Freeze())
	var patch strings.Builder
	must(t, w.patch(t.Context(), &patch, PatchOptions{}))
	if strings.Contains(patch.String(), "-.env") || strings.Contains(patch.String(), "-d/.env") {
		t.Errorf("a review shows hidden content:\n%s", patch.String())
	}
	r, err := w.Commit(t.Context(), CommitOptions{IncludeProtected: true, Theirs: true})
	must(t, err)
	for path, want := range map[string]string{".env": ".env\n", "d/.env": "d/.env\n",
		"e/x": "e/x\ny\n"} {
		if got := content(t, filepath.Join(f.real, path)); got != want {
			t.Errorf("%s has %q", path, got)
		}
	}
	if _, err := os.Lstat(f.real + "/d/x"); err == nil {
		t.Error("control: what is not hidden in the same directory was not deleted")
	}
	// Both names, the new one, and the directory that is not empty.
	if len(r.Held) != 4 {
		t.Errorf("held %v", r.Held)
	}
}

// git finds nothing to say about a directory after runs over it.
func TestNoLitter(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("git is not installed")
	}
	f := newFixture(t)
	f.write("a", "d/x", ".env")
	do := func(args ...string) string {
		cmd := exec.Command(git, append([]string{"-C", f.real, "-c", "user.name=x", "-c",
			"user.email=x@x", "-c", "safe.directory=*"}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v %s", args, err, out)
		}
		return string(out)
	}
	do("init", "-q")
	do("add", "-A")
	do("commit", "-q", "-m", "x")
	w := f.prepareHiding("r1", ".env", "**/*.pem", "d/hidden")
	f.run(w, order{Script: `echo x >>a; mkdir n; rm -r d`})
	must(t, w.Freeze())
	_, err = w.Commit(t.Context(), CommitOptions{Keep: keepAll})
	must(t, err)
	if out := do("status", "--porcelain"); !strings.Contains(out, "M a") {
		t.Errorf("control: the commit changed nothing: %s", out)
	}
	_, err = w.Revert(t.Context(), RevertOptions{})
	must(t, err)
	if out := do("status", "--porcelain", "--ignored"); out != "" {
		t.Errorf("left in the real directory: %s", out)
	}
}
