package workspace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// family is a forked workspace with its branches, each worked on by scripts.
type family struct {
	*fixture
	spec Spec
}

// newFamily makes the workspace "p" with what the script does in it.
func newFamily(f *fixture, script string) *family {
	f.t.Helper()
	settle(f.t)
	spec, w := f.resumable("p")
	m := &family{f, spec}
	m.end(w, order{Script: script})
	return m
}

// end runs an order on a workspace and puts it to sleep.
func (m *family) end(w *Workspace, o order) answer {
	m.t.Helper()
	a := m.run(w, o)
	if a.Script != "" {
		m.t.Fatalf("script: %s: %s", a.Script, a.Out)
	}
	must(m.t, w.Freeze())
	must(m.t, w.Keep())
	must(m.t, w.Close())
	return a
}

// in wakes a workspace, runs a script in it and puts it to sleep again.
func (m *family) in(id, script string) string {
	m.t.Helper()
	return m.order(id, order{Script: script}).Out
}

func (m *family) order(id string, o order) answer {
	m.t.Helper()
	spec := m.spec
	spec.ID = id
	w, err := m.store.Resume(m.t.Context(), spec)
	must(m.t, err)
	return m.end(w, o)
}

func (m *family) fork(parent, id string) {
	m.t.Helper()
	_, err := BranchesOf(m.store).Fork(m.t.Context(), parent, id, m.spec.Caller)
	must(m.t, err)
}

func (m *family) merge(id string, o CommitOptions) (Result, error) {
	m.t.Helper()
	return BranchesOf(m.store).Merge(m.t.Context(), id, m.spec.Caller, o)
}

// tree is what the tool sees in a workspace.
func (m *family) tree(id string) string {
	m.t.Helper()
	return m.order(id, order{}).Out
}

// changes are the differences of a workspace to the real directory.
func (m *family) changes(id string) []string {
	m.t.Helper()
	w, err := m.store.Get(id)
	must(m.t, err)
	defer w.Close()
	return brief(changesOf(m.t, w))
}

// layers returns the names of the frozen layers of the store.
func (m *family) layers() (all []string) {
	names, err := m.store.names()
	must(m.t, err)
	for _, n := range names {
		if strings.HasPrefix(n, layerPrefix) {
			all = append(all, n)
		}
	}
	return all
}

func TestFork(t *testing.T) {
	f := newFixture(t)
	f.write("keep", "gone", "d/x", "d/y", "whole/a", "whole/b/c", "twice")
	m := newFamily(f, `set -e; echo p >>keep; rm gone; mkdir own; echo 1 >own/f; rm -r whole
		mkdir whole; echo new >whole/n`)
	was := m.changes("p")
	m.fork("p", "a")
	m.fork("p", "b")
	for _, id := range []string{"p", "a", "b"} {
		if diff := cmp.Diff(was, m.changes(id)); diff != "" {
			t.Errorf("%s right after the fork: %s", id, diff)
		}
	}
	before := m.tree("p")
	// Whiteouts, opaque directories, renames and links over the frozen layer.
	m.in("a", `set -e; rm own/f; rm -r own; mkdir own; echo a >own/a; mv keep kept; rm d/x
		rm -r whole; mkdir -p whole/b; ln -s ../keep whole/l; echo 2 >twice`)
	m.in("b", `set -e; mv own own2 2>/dev/null || { cp -r own own2; rm -r own; }; echo b >>keep
		ln keep hard; chmod 700 d`)
	if diff := cmp.Diff(before, m.tree("p")); diff != "" {
		t.Errorf("the parent changed: %s", diff)
	}
	wantA := `"." dir 0755
"d" dir 0755
"d/y" file 0644 "d/y\n" <nil>
"kept" file 0644 "keep\np\n" <nil>
"own" dir 0755
"own/a" file 0644 "a\n" <nil>
"twice" file 0644 "2\n" <nil>
"whole" dir 0755
"whole/b" dir 0755
"whole/l" link "../keep"
`
	if diff := cmp.Diff(wantA, m.tree("a")); diff != "" {
		t.Errorf("a: %s", diff)
	}
	wantB := `"." dir 0755
"d" dir 0700
"d/x" file 0644 "d/x\n" <nil>
"d/y" file 0644 "d/y\n" <nil>
"hard" file 0644 "keep\np\nb\n" <nil>
"keep" file 0644 "keep\np\nb\n" <nil>
"own2" dir 0755
"own2/f" file 0644 "1\n" <nil>
"twice" file 0644 "twice\n" <nil>
"whole" dir 0755
"whole/n" file 0644 "new\n" <nil>
`
	if diff := cmp.Diff(wantB, m.tree("b")); diff != "" {
		t.Errorf("b: %s", diff)
	}
	wantChanges := []string{"deleted d/x", "deleted gone", "deleted keep", "added kept",
		"added own", "added own/a", "modified twice", "deleted whole/a", "deleted whole/b/c",
		"added whole/l"}
	if diff := cmp.Diff(wantChanges, m.changes("a")); diff != "" {
		t.Errorf("changes of a: %s", diff)
	}
}

func TestMerge(t *testing.T) {
	f := newFixture(t)
	f.write("keep", "gone", "d/x", "d/y", "whole/a", "text")
	m := newFamily(f, `set -e; echo p >>keep; mkdir own; echo 1 >own/f; seq 20 >text; chmod 755 d`)
	m.fork("p", "a")
	m.fork("p", "b")
	m.in("a", `set -e; rm gone; echo a >>own/f; rm -r whole; echo w >whole; sed -i 's/^2$/two/' text
		mkdir n; echo n >n/n; ln -s n l; echo '#!' >Makefile; touch d/y; mkdir .git; echo x >.git/config`)
	m.in("b", `sed -i 's/^18$/eighteen/' text; echo b >>own/f; rm -r d`)
	before := m.tree("p")
	p, err := BranchesOf(m.store).PreviewMerge(t.Context(), "a", Caller{})
	must(t, err)
	want := []string{"added .git", "added .git/config", "added Makefile", "deleted gone", "added l",
		"added n", "added n/n", "modified own/f", "modified text", "type whole", "deleted whole/a"}
	if diff := cmp.Diff(want, brief(p.Changes)); diff != "" || p.Parent != "p" {
		t.Errorf("preview %s: %s", p.Parent, diff)
	}
	if diff := cmp.Diff(before, m.tree("p")); diff != "" {
		t.Fatalf("the preview changed the parent: %s", diff)
	}
	if _, err := m.merge("a", CommitOptions{Digest: "sha256:0"}); !errors.Is(err, ErrDigest) {
		t.Errorf("merge of another digest: %v", err)
	}
	if _, err := m.merge("a", CommitOptions{Paths: []Name{"no"}}); !errors.Is(err, ErrNoChange) {
		t.Errorf("merge of a path without a change: %v", err)
	}
	// A part, and then the rest.
	if _, err := m.merge("a", CommitOptions{Paths: []Name{"n", "gone"}}); err != nil {
		t.Fatal(err)
	}
	r, err := m.merge("a", CommitOptions{})
	must(t, err)
	if len(r.Committed) != 8 || len(r.Held) != 0 {
		t.Errorf("merged %v, held %v", brief(r.Committed), r.Held)
	}
	if diff := cmp.Diff(m.tree("a"), m.tree("p")); diff != "" {
		t.Errorf("the parent is not as its branch: %s", diff)
	}
	if r, err := m.merge("a", CommitOptions{}); err != nil || len(r.Committed) != 0 {
		t.Errorf("a second merge: %v, %v", r.Committed, err)
	}
	// The other one conflicts in what both changed.
	merged := m.tree("p")
	_, err = m.merge("b", CommitOptions{})
	c, ok := errors.AsType[*ConflictError](err)
	if !ok || len(c.Conflicts) != 2 || c.Conflicts[0].Path != "own/f" ||
		c.Conflicts[1].Path != "text" || !strings.Contains(err.Error(), "p has changed since the fork") {
		t.Fatalf("conflicts: %v", err)
	}
	if diff := cmp.Diff(merged, m.tree("p")); diff != "" {
		t.Errorf("a refused merge changed the parent: %s", diff)
	}
	if _, err := m.merge("b", CommitOptions{Merge: true}); !errors.Is(err, ErrConflict) {
		t.Errorf("merge of the same lines: %v", err)
	}
	if _, err := m.merge("b", CommitOptions{Merge: true, Paths: []Name{"text"}}); err != nil {
		t.Fatal(err)
	}
	if text := m.in("p", "sed -n '2p;18p' text"); text != "two\neighteen\n" {
		t.Errorf("both sides of the text: %q", text)
	}
	if _, err := m.merge("b", CommitOptions{Theirs: true}); err != nil {
		t.Fatal(err)
	}
	if text := m.in("p", "cat own/f; ls -d d 2>/dev/null; true"); text != "1\nb\n" {
		t.Errorf("their side: %q", text)
	}
	// The merges go, the last one first.
	for range 2 {
		_, err := BranchesOf(m.store).RevertMerge(t.Context(), "b", Caller{})
		must(t, err)
	}
	if diff := cmp.Diff(merged, m.tree("p")); diff != "" {
		t.Errorf("after the reverts of b: %s", diff)
	}
	m.in("p", "echo later >>own/f")
	if _, err := BranchesOf(m.store).RevertMerge(t.Context(), "a", Caller{}); !errors.Is(err, ErrConflict) ||
		!strings.Contains(err.Error(), "own/f") {
		t.Errorf("revert of what changed since: %v", err)
	}
	m.in("p", "printf '1\\na\\n' >own/f; echo other >other")
	for range 2 {
		_, err := BranchesOf(m.store).RevertMerge(t.Context(), "a", Caller{})
		must(t, err)
	}
	if got := m.in("p", "rm other"); got != "" {
		t.Error(got)
	}
	if diff := cmp.Diff(before, m.tree("p")); diff != "" {
		t.Errorf("after all reverts: %s", diff)
	}
	if _, err := BranchesOf(m.store).RevertMerge(t.Context(), "a", Caller{}); !errors.Is(err, ErrState) {
		t.Errorf("revert without a merge: %v", err)
	}
}

// A merge takes directories that are closed to the caller, and its revert finds what is in them.
func TestRevertMergeOfClosed(t *testing.T) {
	f := newFixture(t)
	must(t, errors.Join(os.Chown(f.real, realUID, realUID), os.Chmod(f.real, 0o777)))
	settle(t)
	source, err := os.Open(f.real)
	must(t, err)
	defer source.Close()
	spec := Spec{ID: "p", Source: source, Bytes: 64 << 20, Inodes: 2000, Resumable: true,
		Caller: Caller{UID: realUID, GID: realUID}}
	w, err := f.store.Prepare(spec)
	must(t, err)
	m := &family{f, spec}
	m.end(w, order{Script: "echo p >p"})
	before := m.tree("p")
	m.fork("p", "b")
	m.in("b", "mkdir d; echo 1 >d/f; chmod 644 d/f; chmod 700 d")
	_, err = m.merge("b", CommitOptions{})
	must(t, err)
	_, err = BranchesOf(m.store).RevertMerge(t.Context(), "b", spec.Caller)
	must(t, err)
	if diff := cmp.Diff(before, m.tree("p")); diff != "" {
		t.Error(diff)
	}
}

// The limits of a shadow hold for all of its layers.
// TestMergeAgain: what was merged and has changed on both sides is a conflict, and the words are
// about the parent and the merge.
func TestMergeAgain(t *testing.T) {
	f := newFixture(t)
	f.write("x")
	m := newFamily(f, "echo p >x")
	m.fork("p", "a")
	m.in("a", "echo 1 >x")
	if _, err := m.merge("a", CommitOptions{}); err != nil {
		t.Fatal(err)
	}
	m.in("p", "echo 2 >x")
	m.in("a", "echo 3 >x")
	_, err := m.merge("a", CommitOptions{})
	c, ok := errors.AsType[*ConflictError](err)
	if !ok || len(c.Conflicts) != 1 ||
		c.Conflicts[0].Why != "the parent's file was changed since the last merge" {
		t.Errorf("%v, %+v", err, c)
	}
}

func TestForkLimits(t *testing.T) {
	f := newFixture(t)
	source, err := os.Open(f.real)
	must(t, err)
	defer source.Close()
	spec := Spec{ID: "p", Source: source, Bytes: 8 << 20, Inodes: 128, Resumable: true}
	w, err := f.store.Prepare(spec)
	must(t, err)
	m := &family{f, spec}
	m.end(w, order{Script: "head -c 5M /dev/zero >five; for i in $(seq 60); do : >f$i; done"})
	m.fork("p", "a")
	out := m.in("a", `head -c 2M /dev/zero >two || echo full; head -c 2M /dev/zero >more || echo full
		for i in $(seq 100); do touch g$i || { echo none; break; }; done; ls | wc -l`)
	lines := strings.Fields(out)
	if !strings.Contains(out, "full") || !strings.Contains(out, "none") {
		t.Errorf("no limit held: %s", out)
	}
	var n int
	fmt.Sscan(lines[len(lines)-1], &n)
	if n < 120 || n > 128 {
		t.Errorf("%d files of 128", n)
	}
	m.fork("a", "b")
	spec.ID = "b"
	if _, err := f.store.Resume(t.Context(), spec); !errors.Is(err, ErrLimits) {
		t.Errorf("wake of a branch without room: %v", err)
	}
	// What the frozen layers hold is still there.
	if !slices.Contains(m.changes("b"), "added five") {
		t.Error("the branch without room has no changes")
	}
}

func TestForkDepthAndNumber(t *testing.T) {
	f := newFixture(t)
	f.write("a", "d/x")
	m := newFamily(f, "echo p >p")
	last := "p"
	for n := range maxForkDepth {
		id := fmt.Sprintf("n%d", n)
		m.fork(last, id)
		m.in(id, fmt.Sprintf("echo %d >f%d; echo %d >>a; rm -f f%d; rm -rf d; mkdir d; echo %d >d/%d", n, n, n,
			n-1, n, n))
		last = id
	}
	if _, err := BranchesOf(m.store).Fork(t.Context(), last, "deeper", Caller{}); !errors.Is(err, ErrForks) {
		t.Errorf("fork beyond the depth: %v", err)
	}
	want := []string{"modified a", "added d/15", "deleted d/x", "added f15", "added p"}
	if diff := cmp.Diff(want, m.changes(last)); diff != "" {
		t.Error(diff)
	}
	for n := range MaxBranches - 1 {
		m.fork("p", fmt.Sprintf("m%d", n))
	}
	if _, err := BranchesOf(m.store).Fork(t.Context(), "p", "more", Caller{}); !errors.Is(err, ErrForks) {
		t.Errorf("a branch too many: %v", err)
	}
	// Up again, merge by merge.
	for n := maxForkDepth - 1; n >= 0; n-- {
		if _, err := m.merge(fmt.Sprintf("n%d", n), CommitOptions{}); err != nil {
			t.Fatalf("merge of n%d: %v", n, err)
		}
	}
	if diff := cmp.Diff(want, m.changes("p")); diff != "" {
		t.Error(diff)
	}
	err := m.store.discard("p")
	if !errors.Is(err, ErrBranches) || !strings.Contains(err.Error(), "m0, m1,") {
		t.Errorf("discard of a parent: %v", err)
	}
	if _, err := m.store.Get("p"); err != nil {
		t.Fatal(err)
	}
	for n := maxForkDepth - 1; n >= 0; n-- {
		must(t, m.store.discard(fmt.Sprintf("n%d", n)))
	}
	for n := range MaxBranches - 1 {
		must(t, m.store.discard(fmt.Sprintf("m%d", n)))
	}
	if diff := cmp.Diff(want, m.changes("p")); diff != "" {
		t.Error(diff)
	}
	must(t, m.store.discard("p"))
	if left := m.layers(); len(left) > 0 {
		t.Errorf("layers are left: %v", left)
	}
}

// A session that is forked and merged again and again keeps few layers.
func TestLayersFold(t *testing.T) {
	f := newFixture(t)
	f.write("d/x", "gone")
	m := newFamily(f, "rm gone; echo 0 >count; ln count second")
	for n := range 30 {
		m.fork("p", "b")
		m.in("b", fmt.Sprintf("echo %d >>count; rm -rf d; mkdir d; echo %d >d/%d", n, n, n))
		if _, err := m.merge("b", CommitOptions{}); err != nil {
			t.Fatal(err)
		}
		must(t, m.store.discard("b"))
	}
	if n := len(m.layers()); n > foldAbove {
		t.Errorf("%d layers", n)
	}
	if out := m.in("p", "tail -1 count; cat d/*; ls"); out != "29\n29\ncount\nd\nsecond\n" {
		t.Errorf("after all merges: %q", out)
	}
	want := []string{"added count", "added d/29", "deleted d/x", "deleted gone", "added second"}
	if diff := cmp.Diff(want, m.changes("p")); diff != "" {
		t.Error(diff)
	}
}

// A meta of a later version is refused, and one of the release before is read.
func TestFormatOfMeta(t *testing.T) {
	f := newFixture(t)
	m := newFamily(f, "echo x >x")
	path := filepath.Join(f.dir, "p", "meta.json")
	text, err := os.ReadFile(path)
	must(t, err)
	if strings.Contains(string(text), "format") || strings.Contains(string(text), "layers") {
		t.Errorf("a workspace without branches is as before: %s", text)
	}
	m.fork("p", "a")
	text, err = os.ReadFile(path)
	must(t, err)
	if !strings.Contains(string(text), `"format":1`) {
		t.Fatalf("no format: %s", text)
	}
	later := strings.Replace(string(text), `"format":1`, `"format":2`, 1)
	must(t, os.WriteFile(path, []byte(later), 0o600))
	if _, err := m.store.Get("p"); !errors.Is(err, ErrRecord) ||
		!strings.Contains(err.Error(), "a later version of jail") {
		t.Errorf("a later format: %v", err)
	}
	must(t, os.WriteFile(path, text, 0o600))
	if diff := cmp.Diff([]string{"added x"}, m.changes("p")); diff != "" {
		t.Error(diff)
	}
}

// Each user's workspaces are that user's alone, and one that is in use is not forked.
func TestForkRefusals(t *testing.T) {
	f := newFixture(t)
	f.write("a")
	m := newFamily(f, "echo x >x")
	if _, err := BranchesOf(m.store).Fork(t.Context(), "p", "q", Caller{UID: 4321}); !errors.Is(err, ErrState) {
		t.Errorf("fork by a stranger: %v", err)
	}
	m.fork("p", "q")
	for _, id := range []string{"q", "p"} {
		if _, err := BranchesOf(m.store).Fork(t.Context(), "p", id, Caller{}); !errors.Is(err, errExists) {
			t.Errorf("fork to a name in use: %v", err)
		}
	}
	if _, err := BranchesOf(m.store).Merge(t.Context(), "q", Caller{UID: 4321}, CommitOptions{}); !errors.Is(err,
		ErrState) {
		t.Errorf("merge by a stranger: %v", err)
	}
	if _, err := m.merge("p", CommitOptions{}); !errors.Is(err, ErrNoBranch) {
		t.Errorf("merge of what is no branch: %v", err)
	}
	spec := m.spec
	spec.ID = "q"
	w, err := m.store.Resume(t.Context(), spec)
	must(t, err)
	defer w.Close()
	if _, err := BranchesOf(m.store).Fork(t.Context(), "q", "r", Caller{}); !errors.Is(err, ErrActive) &&
		!errors.Is(err, ErrBusy) {
		t.Errorf("fork of one in use: %v", err)
	}
	if _, err := m.merge("q", CommitOptions{}); !errors.Is(err, ErrActive) && !errors.Is(err, ErrBusy) {
		t.Errorf("merge of one in use: %v", err)
	}
}

// A branch is committed to the real directory as any shadow, and its parent then has no such
// change.
func TestCommitOfABranch(t *testing.T) {
	f := newFixture(t)
	f.write("a", "b", "d/x")
	m := newFamily(f, "echo p >>a; rm b; mkdir n; echo n >n/n")
	m.fork("p", "q")
	m.in("q", "echo q >>a; echo q >d/q; rm n/n")
	w, err := m.store.Get("q")
	must(t, err)
	defer w.Close()
	_, digest, err := w.Review(t.Context())
	must(t, err)
	r, err := w.Commit(t.Context(), CommitOptions{Digest: digest, Keep: keepAll})
	must(t, err)
	if r.State != Committed {
		t.Errorf("state %s", r.State)
	}
	want := `"." dir 0755
"a" file 0644 "a\np\nq\n" <nil>
"d" dir 0755
"d/q" file 0644 "q\n" <nil>
"d/x" file 0644 "d/x\n" <nil>
"n" dir 0755
`
	if diff := cmp.Diff(want, snapshotText(f.real)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"modified a", "added n/n"}, m.changes("p")); diff != "" {
		t.Error(diff)
	}
	if _, err := m.merge("q", CommitOptions{}); !errors.Is(err, ErrState) {
		t.Errorf("merge of a committed branch: %v", err)
	}
	must(t, m.store.discard("q"))
	if got := len(m.layers()); got != 1 {
		t.Errorf("%d layers", got)
	}
	must(t, m.store.discard("p"))
	if _, err := os.Stat(filepath.Join(f.real, "a")); err != nil || len(m.layers()) != 0 {
		t.Errorf("%v, layers %v", err, m.layers())
	}
}
