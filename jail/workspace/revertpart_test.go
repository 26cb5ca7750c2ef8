package workspace

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// partBed is a workspace of which everything was committed.
func partBed(t *testing.T) (*fixture, *Workspace) {
	f := newFixture(t)
	f.write("edit", "other", "gone/a", "gone/sub/b", "was/x", "file")
	w := f.shadow("w", `set -e; echo more >>edit; echo more >>other; rm -r gone; mkdir -p new/in;
		echo n >new/f; echo n >new/in/g; rm -r was; echo f >was; rm file; mkdir file; echo d >file/d`)
	_, err := w.Commit(t.Context(), CommitOptions{Keep: keepAll})
	must(t, err)
	return f, w
}

func revertPaths(w *Workspace, paths ...Name) (Reverted, error) {
	return w.Revert(context.Background(), RevertOptions{Paths: paths})
}

// A revert of a part takes back the named paths with all beneath them, and what they need; the rest
// stays committed and can be reverted later.
func TestRevertPart(t *testing.T) {
	for name, tc := range map[string]struct {
		paths []Name
		want  []string
		rest  int
	}{
		"a file":               {[]Name{"edit"}, []string{"modified edit"}, 13},
		"a pattern":            {[]Name{"*e*"}, nil, 0},
		"below a new dir":      {[]Name{"new/in"}, []string{"deleted new/in", "deleted new/in/g"}, 12},
		"a new dir":            {[]Name{"new/"}, []string{"deleted new", "deleted new/f", "deleted new/in", "deleted new/in/g"}, 10},
		"below a removed dir":  {[]Name{"gone/sub/b"}, []string{"added gone", "added gone/sub", "added gone/sub/b"}, 11},
		"a dir made of a file": {[]Name{"file"}, []string{"type file", "deleted file/d"}, 12},
		"a file made of a dir": {[]Name{"was/x"}, []string{"type was", "added was/x"}, 12},
		"several":              {[]Name{"edit", "was"}, []string{"modified edit", "type was", "added was/x"}, 11},
		"all":                  {[]Name{""}, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f, w := partBed(t)
			committed := snapshotText(f.real)
			r, err := revertPaths(w, tc.paths...)
			must(t, err)
			if tc.want != nil {
				if diff := cmp.Diff(tc.want, brief(r.Changes)); diff != "" {
					t.Errorf("changes: %s", diff)
				}
				if r.Rest != tc.rest || w.Info().State != Committed || r.State != Committed {
					t.Errorf("rest %d, want %d; %s", r.Rest, tc.rest, r.State)
				}
				if back := w.Info().Commits[0].Back; back != 14-tc.rest {
					t.Errorf("the record has %d paths taken back", back)
				}
			}
			if now := snapshotText(f.real); now == committed {
				t.Error("nothing was taken back")
			}
			if w.Info().State == Committed {
				_, err = w.Revert(t.Context(), RevertOptions{})
				must(t, err)
			}
			f.isAsBefore()
			if w.Info().State != ChangedBack {
				t.Errorf("in the end: %s", w.Info().State)
			}
			if left, _ := filepath.Glob(filepath.Join(f.dir, "w", pastPrefix+"*")); len(left) > 0 {
				t.Errorf("left in the store: %v", left)
			}
		})
	}
}

// isAsBefore checks that the directory is as before the commit of partBed.
func (f *fixture) isAsBefore() {
	f.t.Helper()
	for _, path := range []string{"edit", "other", "gone/a", "gone/sub/b", "was/x", "file"} {
		f.holds(path, path+"\n")
	}
	f.holds("new/f", "")
}

// Of a revert of a part only the named paths can be in conflict, and a path that the commit has not
// is none.
func TestRevertPartConflicts(t *testing.T) {
	f, w := partBed(t)
	f.edit("edit", "person\n")
	f.edit("new/mine", "person\n")
	there := snapshotText(f.real)
	for _, tc := range []struct {
		paths []Name
		err   error
		says  string
	}{
		{[]Name{"edit"}, ErrConflict, "edit: the file was changed since the commit"},
		{[]Name{"other", "edit"}, ErrConflict, "edit: the file was changed since the commit"},
		{[]Name{"new"}, ErrConflict, "new/mine was put into it since the commit"},
		{[]Name{"nothing"}, ErrNoChange, "nothing: "},
		{[]Name{"other", "nothing"}, ErrNoChange, "nothing: "},
		{[]Name{"[other"}, ErrPattern, ""},
	} {
		_, err := revertPaths(w, tc.paths...)
		if !errors.Is(err, tc.err) || !strings.Contains(fmt.Sprint(err), tc.says) {
			t.Errorf("%q: %v, want %v: %s", tc.paths, err, tc.err, tc.says)
		}
		if now := snapshotText(f.real); now != there {
			t.Fatalf("%q: a refused revert changed something: %s", tc.paths, cmp.Diff(there, now))
		}
	}
	_, err := revertPaths(w, "other", "new/f", "gone/a")
	must(t, err)
	f.holds("other", "other\n")
	f.holds("edit", "person\n")
	f.holds("new/mine", "person\n")
	if _, err := revertPaths(w, "other"); !errors.Is(err, ErrNoChange) {
		t.Errorf("what is taken back already: %v", err)
	}
	// What somebody puts where a path was taken back is theirs.
	f.edit("new/f", "person\n")
	if _, err := revertPaths(w, "new"); !errors.Is(err, ErrConflict) {
		t.Errorf("a directory with a file of somebody else: %v", err)
	}
}

// An earlier commit can be taken back in part while later ones stand, if these did not change the
// same paths; in an open workspace, too.
func TestLiveRevertPart(t *testing.T) {
	f := newFixture(t)
	f.write("first", "second", "twice")
	l := f.live("w")
	l.do("echo 1 >first; echo 1 >twice; mkdir dir; echo 1 >dir/a")
	must(t, l.commit(CommitOptions{Keep: keepAll}))
	l.do("echo 1 >second; echo 2 >twice; echo 1 >dir/b")
	must(t, l.commit(CommitOptions{Keep: keepAll}))
	l.wants()
	revert := func(o RevertOptions) error {
		o.Live = true
		_, err := l.w.Revert(t.Context(), o)
		return err
	}
	must(t, revert(RevertOptions{Paths: []Name{"first"}}))
	f.holds("first", "first\n")
	f.holds("twice", "2\n")
	// It is a change again, and the tool sees its own.
	l.wants("modified first")
	l.sees("cat first", "1\n")
	first := l.w.Info().Commits[0].ID
	err := revert(RevertOptions{Paths: []Name{"twice"}, Commit: first})
	if !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), "has to be reverted first") {
		t.Errorf("what the later commit changed again: %v", err)
	}
	if err := revert(RevertOptions{Paths: []Name{"dir"}, Commit: first}); !errors.Is(err,
		ErrConflict) {
		t.Errorf("a directory with a file of the later commit: %v", err)
	}
	must(t, revert(RevertOptions{Paths: []Name{"twice", "dir"}}))
	f.holds("twice", "1\n")
	f.holds("dir/a", "1\n")
	f.holds("dir/b", "")
	must(t, revert(RevertOptions{Paths: []Name{"twice"}, Commit: first}))
	f.holds("twice", "twice\n")
	l.wants("added dir/b", "modified first", "modified twice")
	must(t, revert(RevertOptions{}))
	must(t, revert(RevertOptions{}))
	f.holds("second", "second\n")
	f.holds("dir/a", "")
	l.commitAll()
	f.holds("twice", "2\n")
}

// The data of a repository is taken back as a whole or not at all.
func TestRevertPartOfGit(t *testing.T) {
	f := repositoryFixture(t)
	before := f.onHost(".", "$g rev-parse HEAD")
	w := f.inJail("w", `echo b >b; $g add b; $g commit -qm two`)
	_, err := w.Commit(t.Context(), CommitOptions{Keep: keepAll})
	must(t, err)
	if _, err := revertPaths(w, ".git/refs"); !errors.Is(err, ErrApart) {
		t.Errorf("refs alone: %v", err)
	}
	f.fsck(".")
	_, err = revertPaths(w, ".git")
	must(t, err)
	f.fsck(".")
	if got := f.onHost(".", "$g rev-parse HEAD"); got != before {
		t.Errorf("HEAD is %s", got)
	}
	f.holds("b", "b\n")
}

// TestCrashedRevertOfPart cuts a revert of a part off before each of its actions in turn: the named
// paths are old or new together, the others are as they were, and the rest can still be reverted.
func TestCrashedRevertOfPart(t *testing.T) {
	points := 0
	for n := 0; ; n++ {
		f, w := partBed(t)
		committed := snapshotText(f.real)
		at, cut := crashedAt(w, n, func() error {
			_, err := revertPaths(w, "edit", "gone/sub", "new", "was", "file")
			return err
		})
		if cut {
			points++
			settled, err := f.store.Recover(t.Context())
			must(t, err)
			if len(settled) == 1 && settled[0].Commit != "" && (!settled[0].Revert || len(settled[0].Paths) != 5) {
				t.Errorf("crash at %s: settled %+v", at, settled)
			}
			must(t, w.load())
		}
		if w.Info().Commits[0].Back == 0 {
			if now := snapshotText(f.real); now != committed {
				t.Fatalf("crash at %s: %s", at, cmp.Diff(committed, now))
			}
		} else {
			f.holds("edit", "edit\n")
			f.holds("gone/sub/b", "gone/sub/b\n")
			f.holds("gone/a", "")
			f.holds("was/x", "was/x\n")
			f.holds("file", "file\n")
			f.holds("other", "other\nmore\n")
		}
		_, err := w.Revert(t.Context(), RevertOptions{})
		if err != nil {
			t.Fatalf("crash at %s: %v", at, err)
		}
		f.isAsBefore()
		if !cut {
			break
		}
	}
	if points < 30 {
		t.Errorf("only %d crash points: the test tests nothing", points)
	}
}

// crashedAt calls do, which is cut off before its n-th action.
func crashedAt(w *Workspace, n int, do func() error) (at string, crashed bool) {
	w.store.fault = func(point string) error {
		if at = point; n == 0 {
			panic(errCrash)
		}
		n--
		return nil
	}
	defer func() {
		w.store.fault = nil
		if r := recover(); r == errCrash {
			crashed = true
		} else if r != nil {
			panic(r)
		}
	}()
	if err := do(); err != nil {
		panic(err)
	}
	return at, false
}

// Random paths of random commits are taken back one after the other; in the end everything is as it
// was.
func TestRevertPartsMakeItAsItWas(t *testing.T) {
	f := newFixture(t)
	for seed := range min(300, max(10, propertyRuns(t)/4)) {
		c := chance{rand.New(rand.NewPCG(uint64(seed), 7))}
		must(t, os.RemoveAll(f.real))
		must(t, os.Mkdir(f.real, 0o755))
		f.randomTree(c)
		before := snapshotText(f.real)
		w := f.prepareAs(fmt.Sprintf("v%d", seed), Caller{UID: realUID, GID: realUID}, 8<<20, 500)
		ops := make([]toolOp, c.IntN(30))
		for i := range ops {
			ops[i] = c.op()
		}
		f.run(w, order{UID: realUID, Ops: ops})
		must(t, w.Freeze())
		r, err := w.Commit(t.Context(), CommitOptions{Keep: keepAll})
		must(t, err)
		for range 4 {
			if len(r.Committed) == 0 || w.Info().State != Committed {
				break
			}
			path := r.Committed[c.IntN(len(r.Committed))].Path
			if _, err := revertPaths(w, path); err != nil && !errors.Is(err, ErrNoChange) {
				t.Fatalf("seed %d: %s: %v\nops %v", seed, path, err, ops)
			}
		}
		if w.Info().State == Committed && w.Info().Commits[0].Reverted.IsZero() {
			if _, err := w.Revert(t.Context(), RevertOptions{}); err != nil {
				t.Fatalf("seed %d: the rest: %v\nops %v", seed, err, ops)
			}
		}
		if now := snapshotText(f.real); now != before {
			t.Fatalf("seed %d: %s\nops %v", seed, cmp.Diff(before, now), ops)
		}
		must(t, w.Discard())
	}
}
