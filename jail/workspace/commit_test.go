package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// T-322, T-323: what changed on both sides is listed, all of it, and nothing is written.
func TestConflicts(t *testing.T) {
	for _, tc := range []struct {
		name, script string
		meanwhile    func(f *fixture, p func(string) string) error
		want         []string
	}{
		{"edited", "echo x >>a", func(f *fixture, p func(string) string) error {
			return os.WriteFile(p("a"), []byte("host"), 0o644)
		}, []string{"a"}},
		{"same size and time", "echo x >a", func(f *fixture, p func(string) string) error {
			info, err := os.Stat(p("a"))
			return errors.Join(err, os.WriteFile(p("a"), []byte("A\n"), 0o644),
				os.Chtimes(p("a"), info.ModTime(), info.ModTime()))
		}, []string{"a"}},
		{"deleted", "echo x >>a", func(f *fixture, p func(string) string) error {
			return os.Remove(p("a"))
		}, []string{"a"}},
		{"became a directory", "echo x >>a", func(f *fixture, p func(string) string) error {
			return errors.Join(os.Remove(p("a")), os.Mkdir(p("a"), 0o755))
		}, []string{"a"}},
		{"both added", "echo x >n", func(f *fixture, p func(string) string) error {
			return os.WriteFile(p("n"), nil, 0o644)
		}, []string{"n"}},
		{"mode", "rm a", func(f *fixture, p func(string) string) error {
			return os.Chmod(p("a"), 0o600)
		}, []string{"a"}},
		{"added in a deleted directory", "rm -r d", func(f *fixture, p func(string) string) error {
			return os.WriteFile(p("d/new"), nil, 0o644)
		}, []string{"d", "d/new"}},
		{"edited in a deleted directory, and another", "rm -r d; echo x >>a", func(f *fixture,
			p func(string) string) error {
			return errors.Join(os.WriteFile(p("d/x"), nil, 0o644), os.WriteFile(p("a"), nil, 0o644))
		}, []string{"a", "d/x"}},
		{"elsewhere", "echo x >>a; rm d/x; echo n >d/n", func(f *fixture,
			p func(string) string) error {
			return errors.Join(os.WriteFile(p("d/y"), []byte("host"), 0o644),
				os.WriteFile(p("other"), nil, 0o644))
		}, nil},
		{"deleted on both sides", "rm a", func(f *fixture, p func(string) string) error {
			return os.Remove(p("a"))
		}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(t)
			f.write("a", "d/x", "d/y")
			w := f.shadow("w", tc.script)
			must(t, tc.meanwhile(f, func(p string) string { return filepath.Join(f.real, p) }))
			before := snapshotText(f.real)
			_, err := w.Commit(t.Context(), CommitOptions{})
			if tc.want == nil {
				must(t, err)
				return
			}
			var conflicts *ConflictError
			if !errors.As(err, &conflicts) || !errors.Is(err, ErrConflict) {
				t.Fatalf("commit: %v", err)
			}
			var got []string
			for _, c := range conflicts.Conflicts {
				got = append(got, string(c.Path))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			if after := snapshotText(f.real); after != before {
				t.Errorf("something was written: %s", cmp.Diff(before, after))
			}
		})
	}
}

// T-327, T-340: parts, and what must be named.
func TestChoosing(t *testing.T) {
	const script = `mkdir -p .git/hooks n/m; echo h >.git/hooks/pre-commit; echo x >n/m/f; echo y >n/g; rm -r old; echo z >Makefile`
	protect := func(path string) (string, bool) { return "of the policy", path == "Makefile" }
	for _, tc := range []struct {
		name       string
		o          CommitOptions
		want, held []string
		err        error
	}{
		{"all", CommitOptions{}, []string{"Makefile", "n", "n/g", "n/m", "n/m/f", "old", "old/a"},
			[]string{".git/hooks", ".git/hooks/pre-commit"}, nil},
		{"policy's own", CommitOptions{Protect: protect, Paths: []Name{"Makefile"}}, nil,
			[]string{"Makefile"}, ErrProtected},
		{"included and named", CommitOptions{Protect: protect, Paths: []Name{"Makefile"},
			IncludeProtected: true}, []string{"Makefile"}, nil, nil},
		{"included, not named", CommitOptions{IncludeProtected: true, Paths: []Name{"", "n/g"}},
			[]string{"Makefile", "n", "n/g", "n/m", "n/m/f", "old", "old/a"}, []string{".git/hooks",
				".git/hooks/pre-commit"}, nil},
		{"named the git directory", CommitOptions{IncludeProtected: true, Paths: []Name{".git",
			"n/g"}}, []string{".git/hooks", ".git/hooks/pre-commit", "n", "n/g"}, nil, nil},
		{"named hook", CommitOptions{IncludeProtected: true,
			Paths: []Name{".git/hooks/pre-commit"}}, nil, nil,
			ErrProtected}, // its directory is new and not named
		{"named without the word", CommitOptions{Paths: []Name{".git/hooks"}}, nil, nil,
			ErrProtected},
		{"named hooks", CommitOptions{IncludeProtected: true, Paths: []Name{".git/hooks"}},
			[]string{".git/hooks", ".git/hooks/pre-commit"}, nil, nil},
		{"a file and its new parents", CommitOptions{Paths: []Name{"n/m/f"}},
			[]string{"n", "n/m", "n/m/f"}, nil, nil},
		{"a part of a deletion", CommitOptions{Paths: []Name{"old/a"}}, []string{"old/a"}, nil,
			nil},
		{"nothing of that name", CommitOptions{Paths: []Name{"nowhere"}}, nil, nil, ErrNoChange},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(t)
			f.write("old/a", "Makefile", ".git/HEAD")
			w := f.shadow("w", script)
			r, err := w.Commit(t.Context(), tc.o)
			if !errors.Is(err, tc.err) || err == nil && tc.err != nil {
				t.Fatalf("commit: %v, want %v", err, tc.err)
			}
			if err != nil {
				return
			}
			var got, held []string
			for _, c := range r.Committed {
				got = append(got, string(c.Path))
			}
			for _, h := range r.Held {
				held = append(held, string(h.Path))
			}
			if diff := cmp.Diff([][]string{tc.want, tc.held}, [][]string{got, held}); diff != "" {
				t.Error(diff)
			}
			if r.State != Frozen {
				t.Errorf("state %s, with changes left", r.State)
			}
		})
	}
}

// A commit that fails at any of its actions leaves the tree as it was, and can be made again.
func TestFailedCommitIsUndone(t *testing.T) {
	f := newFixture(t)
	f.write("a", "b", "d/x", "d/y/z", "l -> a")
	before := snapshotText(f.real)
	w := f.shadow("w",
		`echo x >>a; rm b; mkdir b; echo y >b/n; rm -r d; echo now a file >d; ln -sfn b l; mkfifo q`)
	for n := 0; ; n++ {
		left, broken := n, false
		f.store.fault = func(at string) error {
			if left--; left == -1 && !strings.HasPrefix(at, "clean") {
				broken = true
				return syscall.ENOSPC
			}
			return nil
		}
		_, err := w.Commit(t.Context(), CommitOptions{})
		f.store.fault = nil
		if !broken {
			must(t, err)
			break
		}
		var failed *commitError
		if !errors.As(err, &failed) || failed.undo != nil || !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("failure at %d: %v", n, err)
		}
		if after := snapshotText(f.real); after != before {
			t.Fatalf("failure at %d: %s", n, cmp.Diff(before, after))
		}
	}
	if got := content(t, filepath.Join(f.real, "d")); got != "now a file\n" {
		t.Errorf("d holds %q", got)
	}
}

// T-328, T-309: a commit has the caller's rights, not the daemon's.
func TestCommitWithTheCallersRights(t *testing.T) {
	f := newFixture(t)
	f.write("mine", "theirs/x", "secret")
	for path, uid := range map[string]int{"": 1000, "mine": 1000} {
		must(t, os.Chown(filepath.Join(f.real, path), uid, uid))
	}
	must(t, os.Chmod(filepath.Join(f.real, "secret"), 0o600))
	must(t, os.Chmod(filepath.Join(f.real, "mine"), 0o666))
	must(t, os.Chmod(f.real, 0o777))
	caller := Caller{UID: 1000, GID: 1000}
	w := f.prepareAs("w", caller, 16<<20, 100)
	if a := f.run(w,
		order{UID: 0,
			Script: "echo x >>mine; echo y >theirs/y; cp -p secret stolen"}); a.Script != "" {
		// A helper with privileges, who can do what the tool cannot: the owner of what is root's.
		t.Fatal(a.Script, a.Out)
	}
	must(t, w.Freeze())
	for _, c := range changesOf(t, w) {
		if c.Path == "stolen" && c.Refused == "" {
			t.Error("what the caller cannot read can be committed to the caller")
		}
	}
	var patch bytes.Buffer
	must(t, w.patch(t.Context(), &patch, PatchOptions{}))
	if strings.Contains(patch.String(), "+secret") {
		t.Error("the patch shows what the caller cannot read")
	}
	before := snapshotText(f.real)
	if _, err := w.Commit(t.Context(), CommitOptions{}); !errors.Is(err, os.ErrPermission) {
		t.Errorf("commit into a directory of root's: %v", err)
	}
	if after := snapshotText(f.real); after != before {
		t.Error(cmp.Diff(before, after))
	}
	_, err := w.Commit(t.Context(), CommitOptions{Paths: []Name{"mine"}})
	must(t, err)
	// The control: root may.
	_, err = w.Commit(t.Context(), CommitOptions{Paths: []Name{"theirs"}, As: &Caller{}})
	must(t, err)
	for path, uid := range map[string]uint32{"mine": 1000, "theirs/y": 1000} {
		var st syscall.Stat_t
		must(t, syscall.Stat(filepath.Join(f.real, path), &st))
		if st.Uid != uid {
			t.Errorf("%s belongs to %d, not %d", path, st.Uid, uid)
		}
	}
}

// T-326: commits to one directory come one after the other.
func TestParallelCommits(t *testing.T) {
	f := newFixture(t)
	f.write("shared")
	const n = 12
	var all []*Workspace
	for i := range n {
		all = append(all, f.shadow(fmt.Sprintf("w%d", i),
			fmt.Sprintf("mkdir d%d; echo x >d%d/f; echo %d >shared", i, i, i)))
	}
	var won sync.Map
	var wg sync.WaitGroup
	for i, w := range all {
		wg.Go(func() {
			_, err := w.Commit(context.Background(), CommitOptions{})
			switch {
			case err == nil:
				won.Store(i, true)
			case !errors.Is(err, ErrConflict):
				t.Errorf("commit %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	winners := 0
	won.Range(func(i, _ any) bool {
		winners++
		if got := content(t, filepath.Join(f.real, "shared")); got != fmt.Sprintf("%d\n", i) {
			t.Errorf("winner %d, shared holds %q", i, got)
		}
		return true
	})
	if entries, err := os.ReadDir(f.real); err != nil || len(entries) != 2 || winners != 1 {
		t.Errorf("%d commits took the same file; the directory has %v", winners, entries)
	}
}

// The patch is judged by git.
func TestPatchAppliesWithGit(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("git is not installed")
	}
	f := newFixture(t)
	for seed := range 15 {
		c := chance{rand.New(rand.NewPCG(uint64(seed), 3))}
		must(t, os.RemoveAll(f.real))
		must(t, os.Mkdir(f.real, 0o755))
		lines := strings.Repeat("one\ntwo\nthree\nfour\n", 10)
		f.write("text", "gone", "type", "no newline", "l -> text", "dir/é\n")
		must(t, os.WriteFile(filepath.Join(f.real, "text"), []byte(lines), 0o644))
		w := f.prepare(fmt.Sprintf("g%d", seed))
		edited := strings.Split(lines, "\n")
		for range c.IntN(8) {
			edited[c.IntN(len(edited))] = c.pick("", "new", "\x1b[31mred", "a\nb")
		}
		ops := []toolOp{{Do: "write", Path: "text", Arg: strings.Join(edited, "\n")}, {Do: "remove",
			Path: "gone"},
			{Do: "write", Path: "no newline", Arg: c.pick("x", "", "y\n")},
			{Do: "write", Path: "dir/é\n", Arg: "changed\n"},
			{Do: "write", Path: "added \"quoted\"", Arg: c.pick("", "text", "text\n")},
			{Do: "chmod", Path: "type", Arg: "755"},
			{Do: "remove", Path: "l"}, {Do: "symlink", Path: "l", Arg: "gone"},
			{Do: "mkdir", Path: "n"}, {Do: "write", Path: "n/f", Arg: "z\n"}}
		if seed%2 == 0 {
			ops = append(ops, toolOp{Do: "remove", Path: "type"},
				toolOp{Do: "symlink", Path: "type", Arg: "t"})
		}
		shadow := f.run(w, order{Ops: ops}).Out
		must(t, w.Freeze())
		var patch, shown bytes.Buffer
		must(t, w.patch(t.Context(), &patch, PatchOptions{}))
		must(t, w.patch(t.Context(), &shown, PatchOptions{Terminal: true}))
		if strings.ContainsAny(shown.String(), "\x1b\r") {
			t.Error("the patch for terminals has control characters")
		}
		apply := exec.Command(git, "apply", "--whitespace=nowarn", "-")
		apply.Dir, apply.Stdin = f.real, &patch
		text := patch.String()
		if out, err := apply.CombinedOutput(); err != nil {
			t.Fatalf("seed %d: git apply: %v: %s\n%s", seed, err, out, text)
		}
		if got := snapshotText(f.real); got != shadow {
			t.Fatalf("seed %d: %s\n%s", seed, cmp.Diff(shadow, got), text)
		}
		must(t, w.Discard())
	}
}

// What a commit and a revert tell of their progress only grows, and ends with all of it.
func TestProgress(t *testing.T) {
	f := newFixture(t)
	f.write("a", "d/x", "d/y")
	w := f.shadow("w", "echo x >>a; rm -r d; mkdir n; echo n >n/f; mkdir .git; echo x >.git/config")
	last, total := 0, 0
	tell := func(done, of int) {
		if done <= last || done > of || total != 0 && of != total {
			t.Errorf("%d of %d after %d of %d", done, of, last, total)
		}
		last, total = done, of
	}
	_, err := w.Commit(t.Context(), CommitOptions{Keep: keepAll, Progress: tell})
	must(t, err)
	if last == 0 || last != total {
		t.Errorf("the commit ends at %d of %d", last, total)
	}
	last, total = 0, 0
	_, err = w.Revert(t.Context(), RevertOptions{Progress: tell})
	must(t, err)
	if last == 0 || last != total {
		t.Errorf("the revert ends at %d of %d", last, total)
	}
}
