package workspace

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The bits are what git reads of them, in every form of an index, and without them it is the same
// bytes again.
func TestEditIndex(t *testing.T) {
	for name, setup := range map[string]string{
		"version 2":  `$g init -q; $g config index.version 2`,
		"version 3":  `$g init -q; touch later; add='$g add -N later; $g update-index --skip-worktree d/9'`,
		"version 4":  `$g init -q; $g config index.version 4`,
		"sha256":     `$g init -q --object-format=sha256`,
		"sha256, 4":  `$g init -q --object-format=sha256; $g config index.version 4`,
		"extensions": `$g init -q; $g config core.untrackedCache true; $g config index.threads 2; $g config index.recordEndOfIndexEntries true; $g config index.recordOffsetTable true`,
	} {
		t.Run(name, func(t *testing.T) {
			f := repositoryFixture(t)
			f.onHost(".", `rm -rf .git; `+setup+
				`; for n in $(seq 30); do echo $n >d/$n; echo $n >long-name-with-$n-in-it; done; $g add -A; eval "${add:-:}"; $g write-tree >/dev/null; $g status >/dev/null`)
			path := filepath.Join(f.real, ".git/index")
			before, err := os.ReadFile(path)
			must(t, err)
			skipped := func() string {
				return f.onHost(".", `GIT_OPTIONAL_LOCKS=0 $g ls-files -v | grep '^S' || :`)
			}
			was := skipped()
			set, changed, err := editIndex(before, func(name string, set bool) bool {
				return set || strings.HasSuffix(name, "7") || strings.Contains(name, "-3-")
			})
			if err != nil || !changed {
				t.Fatal(changed, err)
			}
			must(t, os.WriteFile(path, set, 0o644))
			if got := skipped(); strings.Count(got, "\n") != 4+strings.Count(was, "\n") ||
				!strings.Contains(got, "S long-name-with-3-in-it\n") {
				t.Errorf("git reads %q", got)
			}
			f.onHost(".", `$g fsck --strict; GIT_OPTIONAL_LOCKS=0 $g status`)
			cleared, changed, err := editIndex(set, func(name string,
				set bool) bool {
				return name == "d/9" && set
			})
			if err != nil || !changed {
				t.Fatal(changed, err)
			}
			if !bytes.Equal(cleared, before) && name != "extensions" {
				t.Error("without the bits it is not what it was")
			}
			if same, changed, err := editIndex(before, func(_ string,
				set bool) bool {
				return set
			}); changed || err != nil || !bytes.Equal(same, before) {
				t.Errorf("nothing to change: %v %v", changed, err)
			}
		})
	}
	f := repositoryFixture(t)
	f.onHost(".", `$g update-index --split-index`)
	split, err := os.ReadFile(filepath.Join(f.real, ".git/index"))
	must(t, err)
	if _, _, err := editIndex(split, func(string, bool) bool { return true }); !errors.Is(err,
		errIndex) {
		t.Errorf("a split index: %v", err)
	}
}

func FuzzEditIndex(f *testing.F) {
	f.Add([]byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x00"+strings.Repeat("\x00", 20)), false)
	f.Add([]byte("DIRC\x00\x00\x00\x04\x00\x00\x00\x02"+strings.Repeat("\x00", 200)), true)
	f.Fuzz(func(t *testing.T, content []byte, to bool) {
		out, _, err := editIndex(append(content, make([]byte, 20)...),
			func(string, bool) bool { return to })
		if err != nil {
			return
		}
		if _, changed, err := editIndex(out, func(string, bool) bool { return to }); changed ||
			err != nil {
			t.Fatalf("what was written changes again: %v", err)
		}
	})
}

// A tracked file that is hidden is no deletion to git: status says nothing, add -A keeps it, and no
// bit is left.
func TestHiddenTrackedFiles(t *testing.T) {
	f := repositoryFixture(t)
	f.write(".env", "d/.env", "secrets/a", "secrets/b/c", "own", "lost.pem")
	f.onHost(".",
		`$g add -A; $g commit -qm secret; rm lost.pem; $g update-index --skip-worktree own secrets/a`)
	f.onHost(".",
		`mkdir ../l; cd ../l; $g init -q; echo l >l; echo e >.env; $g add l .env; $g commit -qm l; cd "$OLDPWD"; $g submodule --quiet add ../l lib; $g commit -qm sub`)
	before := f.onHost(".",
		`GIT_OPTIONAL_LOCKS=0 $g ls-files -v; GIT_OPTIONAL_LOCKS=0 $g -C lib ls-files -v`)
	const script = `set -e; export HOME=/nonexistent; g="` + gitAs + `"; ls .env secrets lib/.env 2>/dev/null && exit 1
		$g status --porcelain; $g -C lib status --porcelain; `
	for round, tc := range []struct{ hide []string }{{nil},
		{[]string{".env", "**/*.pem", "secrets"}}} {
		w := f.prepareHiding(fmt.Sprint("w", round), tc.hide...)
		a := f.run(w, order{Script: script})
		if want := " D lost.pem\n"; tc.hide != nil && (a.Out != want || a.Script != "") {
			t.Fatalf("git status says %q, want %q; %s", a.Out, want, a.Script)
		} else if tc.hide == nil && a.Script == "" {
			t.Fatal("control: nothing was hidden, and the files are not there")
		}
		must(t, w.Discard())
	}
	if out := f.onHost(".", `git status --porcelain`); strings.Contains(out, ".env") {
		t.Error(out)
	}

	w := f.prepareHiding("add", ".env", "**/*.pem", "secrets")
	a := f.run(w,
		order{Script: script +
			`echo more >>a; echo l >>lib/l; $g -C lib add -A; $g -C lib commit -qm l2; $g add -A; $g commit -qm two; $g checkout -q -b other; $g checkout -q .; $g stash -q || :; $g status --porcelain`})
	if a.Script != "" || a.Out != " D lost.pem\n" {
		t.Fatalf("%s: %s", a.Script, a.Out)
	}
	must(t, w.Freeze())
	_, digest, err := w.Review(t.Context())
	must(t, err)
	r, err := w.Commit(t.Context(), CommitOptions{Keep: keepAll, Digest: digest})
	must(t, err)
	if len(r.Held) != 0 || r.State != Committed {
		t.Errorf("held %v, %s", r.Held, r.State)
	}
	f.fsck(".")
	f.fsck("lib")
	want := strings.ReplaceAll(before, "H lost.pem\n", "")
	if diff := cmp.Diff(want,
		f.onHost(".",
			`GIT_OPTIONAL_LOCKS=0 $g ls-files -v; GIT_OPTIONAL_LOCKS=0 $g -C lib ls-files -v`)); diff != "" {
		t.Errorf("the index: %s", diff)
	}
	if got := f.onHost(".",
		`$g ls-tree -r --name-only HEAD | grep -c -e env -e secrets; $g -C lib ls-tree --name-only HEAD; $g status --porcelain; cat .env`); got != "4\n.env\nl\n.env\n" {
		t.Errorf("the real repository: %q", got)
	}
}

// A run that only looks changes nothing of the index but what git itself does.
func TestHiddenIndexIsNoChange(t *testing.T) {
	f := repositoryFixture(t)
	f.write(".env")
	f.onHost(".", `$g add -A; $g commit -qm secret`)
	w := f.prepareHiding("w", ".env")
	if a := f.run(w,
		order{Script: `cp .git/index x; mv x .git/index; touch .git/index`}); a.Script != "" {
		t.Fatal(a.Script, a.Out)
	}
	must(t, w.Freeze())
	for _, c := range changesOf(t, w) {
		if c.Kind != Mode {
			t.Errorf("%s %s", c.Kind, c.Path)
		}
	}
}

// TestUnchangeableIndex: where jail cannot set the bits, the user of the workspace learns it.
func TestUnchangeableIndex(t *testing.T) {
	for name, script := range map[string]string{
		"":          `:`,
		"split":     `$g update-index --split-index`,
		"too large": `truncate -s 257M .git/index`,
		"damaged":   `echo x >.git/index`,
	} {
		t.Run(name, func(t *testing.T) {
			f := repositoryFixture(t)
			f.write(".env")
			f.onHost(".", `$g add -A; $g commit -qm secret; `+script)
			if got := f.prepareHiding("none", "no.pem").Warnings(); len(got) != 0 {
				t.Errorf("nothing is hidden: %q", got)
			}
			got := strings.Join(f.prepareHiding("w", ".env").Warnings(), "\n")
			if told := strings.Contains(got, "cannot change .git/index"); told != (name != "") {
				t.Errorf("%q", got)
			}
		})
	}
}
