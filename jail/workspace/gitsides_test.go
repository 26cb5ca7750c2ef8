package workspace

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jail-sandbox/jail/jail/gitrepo"
)

// readerHere reads repositories in the process of the test.
type readerHere struct{}

func (readerHere) Explain(ctx context.Context, files gitrepo.Files) (gitrepo.Report, error) {
	return gitrepo.Explain(ctx, files)
}

func (readerHere) Take(ctx context.Context, files gitrepo.Files, want gitrepo.Want) (gitrepo.Taken,
	error) {
	return gitrepo.Take(ctx, files, want)
}

// shownGit returns the reports of a showing as one text.
func shownGit(t *testing.T, w *Workspace) (text string, changes []Change) {
	t.Helper()
	shown, err := w.Show(t.Context(), ShowOptions{Git: readerHere{}}, func(c Change) error {
		changes = append(changes, c)
		return nil
	})
	must(t, err)
	for _, r := range shown.Git {
		for _, line := range r.Lines {
			text += string(r.Path) + ": " + line + "\n"
		}
	}
	return text, changes
}

// A showing says what changed in each repository, and of each change whether that sums it up.
func TestShowGit(t *testing.T) {
	f := repositoryFixture(t)
	f.onHost(".", "$g init -q lib; cd lib; echo x >x; $g add x; $g commit -qm lib; $g branch old")
	w := f.inJail("w", `echo b >b; $g add b; $g commit -qm two; $g tag v1; echo x >.git/hooks/x
		cd lib; $g branch -D old; $g commit -q --amend -m other; $g gc -q --prune=now
		rm .git/refs/heads/main.lock 2>/dev/null || true`)
	text, changes := shownGit(t, w)
	for _, want := range []string{`, 1 commit: "two"`, ".git: new tag v1 at ",
		".git: index changed", "lib/.git: branch old deleted, was ",
		"rewritten: 1 commit gone, 1 commit new: \"other\""} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	parts := map[GitPart]bool{}
	for _, c := range changes {
		parts[c.Git] = true
		if inGit := strings.Contains(string(c.Path), ".git/"); c.Git != "" && !inGit ||
			c.Git == "" && inGit && !strings.Contains(string(c.Path), "hooks") &&
				!strings.Contains(string(c.Path), "info") {
			t.Errorf("%s is part %q", c.Path, c.Git)
		}
	}
	for _, part := range []GitPart{GitObjects, GitLogs, GitRefs, GitIndex} {
		if !parts[part] {
			t.Errorf("no change is of %s", part)
		}
	}
}

// A reader sees of the shadow what the tool saw, and of the real directory what is there: after
// deletions, directories that were made anew, and discards.
func TestGitFilesAreThoseOfTheShadow(t *testing.T) {
	f := repositoryFixture(t)
	f.onHost(".", "$g branch x; $g branch y/z; $g commit --allow-empty -qm two; "+
		"$g pack-refs --all; $g branch late")
	before := filepath.Join(f.dir, "..", "before")
	must(t, os.CopyFS(before, os.DirFS(filepath.Join(f.real, ".git"))))
	w := f.prepare("w")
	a := f.run(w, order{Script: "set -e; export HOME=/nonexistent; g=\"" + gitAs + `"
		echo b >b; $g add b; $g commit -qm three; rm -rf .git/logs
		mkdir .git/logs; echo new >.git/logs/n
		rm -rf .git/refs/heads/y; $g gc -q --prune=now; $g branch y2/z; mv .git/description .git/d2
		echo after >.git/logs/n; cd .git; find . -type f | sort | xargs sha256sum`})
	if a.Script != "" {
		t.Fatal(a.Script, a.Out)
	}
	must(t, w.Freeze())
	_ = changesOf(t, w)
	upper, err := w.layer.openUpper()
	must(t, err)
	defer upper.Close()
	files, err := w.gitFiles(upper, &repository{path: ".git"})
	must(t, err)
	shadow := readAll(t, files, gitrepo.Shadow, "")
	var lines []string
	for name, text := range shadow {
		lines = append(lines, fmt.Sprintf("%x  ./%s", sha256.Sum256([]byte(text)), name))
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[66:], b[66:]) })
	want := strings.Split(strings.TrimSpace(a.Out), "\n")
	slices.SortFunc(want, func(a, b string) int { return strings.Compare(a[66:], b[66:]) })
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Error(diff)
	}
	real := readAll(t, files, gitrepo.Real, "")
	must(t, filepath.WalkDir(before, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			rel, _ := filepath.Rel(before, path)
			want, _ := os.ReadFile(path)
			if real[rel] != string(want) {
				t.Errorf("%s of the real directory differs", rel)
			}
			delete(real, rel)
		}
		return err
	}))
	for rel := range real {
		t.Errorf("%s is not in the real directory", rel)
	}
}

func readAll(t *testing.T, files gitFiles, side gitrepo.Side, dir string) map[string]string {
	t.Helper()
	all, at := map[string]string{}, dir
	if at == "" {
		at = "."
	}
	names, err := files.List(side, at)
	must(t, err)
	for _, name := range names {
		path := join(dir, name)
		f, size, err := files.Open(side, path)
		if err == gitrepo.ErrDirectory {
			for k, v := range readAll(t, files, side, path) {
				all[k] = v
			}
			continue
		}
		must(t, err)
		text, err := io.ReadAll(f)
		f.Close()
		if err != nil || int64(len(text)) != size {
			t.Errorf("%s: %d bytes of %d, %v", path, len(text), size, err)
		}
		all[path] = string(text)
	}
	return all
}
