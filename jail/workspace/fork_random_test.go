package workspace

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A tree is what a snapshot says of each path.
type tree map[string]string

func treeOf(text string) tree {
	t := tree{}
	for line := range strings.Lines(text) {
		quoted, rest, ok := strings.Cut(line, "\" ")
		if name, err := strconv.Unquote(quoted + "\""); ok && err == nil {
			t[name] = rest
		}
	}
	return t
}

// above are the directories above a path, the innermost first.
func above(path string) (all []string) {
	for path = parentOf(path); path != ""; path = parentOf(path) {
		all = append(all, path)
	}
	return all
}

func isDir(entry string) bool { return strings.HasPrefix(entry, "dir ") }

// threeWay merges two trees of one base, path by path: what one side alone changed is taken. It
// knows nothing of layers. conflicts are paths that both changed, to different things, and what one
// side changed in a directory that the other took away.
func threeWay(base, ours, theirs tree) (merged tree, conflicts []string) {
	merged = tree{}
	paths := map[string]bool{}
	for _, t := range []tree{base, ours, theirs} {
		for path := range t {
			paths[path] = true
		}
	}
	for path := range paths {
		b, o, t := base[path], ours[path], theirs[path]
		result := o
		switch {
		case o == t, b == t:
		case b == o:
			result = t
		default:
			conflicts = append(conflicts, path)
		}
		if result != "" {
			merged[path] = result
		}
	}
	for path := range merged {
		for _, dir := range above(path) {
			if !isDir(merged[dir]) {
				conflicts = append(conflicts, path)
				break
			}
		}
	}
	return merged, conflicts
}

// Random trees, and random deeds in the parent and in two branches. A merge is what a merge of
// contents by path makes of them, or is refused where both changed a path; a refused one changes
// nothing, and reverts restore.
func TestMergeOfRandomTrees(t *testing.T) {
	f := newFixture(t)
	merged, refused := 0, 0
	for _, seed := range seeds(t) {
		if !t.Run(strconv.Itoa(seed), func(t *testing.T) {
			f.t = t
			m, r := oneRandomMerge(t, f, uint64(seed))
			merged, refused = merged+m, refused+r
		}) {
			return
		}
	}
	t.Logf("%d merges, %d refused", merged, refused)
	if merged == 0 || refused == 0 {
		t.Error("the control: no merge, or none with a conflict")
	}
}

func oneRandomMerge(t *testing.T, f *fixture, seed uint64) (merged, refused int) {
	c := chance{rand.New(rand.NewPCG(seed, 2))}
	must(t, os.RemoveAll(f.real))
	must(t, os.Mkdir(f.real, 0o755))
	f.randomTree(c)
	settle(t)
	source, err := os.Open(f.real)
	must(t, err)
	defer source.Close()
	spec := Spec{ID: fmt.Sprintf("p%d", seed), Source: source, Bytes: 8 << 20, Inodes: 500,
		Resumable: true, Caller: Caller{UID: realUID, GID: realUID}}
	w, err := f.store.Prepare(spec)
	must(t, err)
	m := &family{f, spec}
	deeds := func(most int) order {
		o := order{UID: realUID, Ops: make([]toolOp, c.IntN(most))}
		for i := range o.Ops {
			o.Ops[i] = c.op()
		}
		return o
	}
	real := snapshotText(f.real)
	base := treeOf(m.end(w, deeds(20)).Out)
	trees := map[string]tree{}
	branches := []string{spec.ID + "-a", spec.ID + "-b"}
	for _, id := range branches {
		m.fork(spec.ID, id)
		trees[id] = treeOf(m.order(id, deeds(12)).Out)
	}
	parent := base
	if c.IntN(2) == 0 {
		parent = treeOf(m.order(spec.ID, deeds(8)).Out)
	}
	var states []tree
	for _, id := range branches {
		want, conflicts := threeWay(base, parent, trees[id])
		_, err := m.merge(id, CommitOptions{})
		got := treeOf(m.tree(spec.ID))
		switch {
		case err == nil && len(conflicts) > 0:
			t.Fatalf("%s: no conflict in %q", id, conflicts)
		case err == nil:
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%s: merge: %s", id, diff)
			}
			if !maps.Equal(parent, got) {
				merged++
				states = append(states, parent)
			} else {
				states = append(states, nil)
			}
		case errors.Is(err, ErrConflict) && len(conflicts) > 0:
			refused++
			states = append(states, nil)
			if diff := cmp.Diff(parent, got); diff != "" {
				t.Fatalf("%s: a refused merge: %s", id, diff)
			}
			named(t, err, conflicts)
		default:
			t.Fatalf("%s: %v; conflicts %q", id, err, conflicts)
		}
		parent = got
	}
	for i, id := range slices.Backward(branches) {
		if states[i] == nil {
			continue
		}
		if _, err := BranchesOf(m.store).RevertMerge(t.Context(), id, spec.Caller); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(states[i], treeOf(m.tree(spec.ID))); diff != "" {
			t.Fatalf("%s: revert: %s", id, diff)
		}
	}
	if now := snapshotText(f.real); now != real {
		t.Fatalf("the real directory changed: %s", cmp.Diff(real, now))
	}
	for _, id := range append(branches, spec.ID) {
		must(t, f.store.discard(id))
	}
	if left := m.layers(); len(left) > 0 {
		t.Fatalf("layers are left: %v", left)
	}
	return merged, refused
}

// named checks that each conflict that the store names is one, or a directory above or below one.
func named(t *testing.T, err error, conflicts []string) {
	t.Helper()
	c, ok := errors.AsType[*ConflictError](err)
	if !ok {
		t.Fatal(err)
	}
	for _, got := range c.Conflicts {
		path := string(got.Path)
		if !slices.ContainsFunc(conflicts, func(want string) bool {
			return within(path, want) || within(want, path)
		}) {
			t.Fatalf("%q is no conflict of %q", path, conflicts)
		}
	}
}
