package workspace

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// of the random trees and of who commits
const realUID = 1000

// chance makes random trees and random deeds with few names, so that they meet.
type chance struct{ *rand.Rand }

func (c chance) pick(all ...string) string { return all[c.IntN(len(all))] }

func (c chance) path() string {
	parts := make([]string, 1+c.IntN(4))
	for i := range parts {
		parts[i] = c.pick("a", "b", "c", "d\n", "é\xff")
	}
	return strings.Join(parts, "/")
}

func (c chance) op() toolOp {
	o := toolOp{Do: c.pick("write", "write", "append", "mkdir", "mkdir", "mkdir", "remove",
		"rename", "rename", "symlink", "link", "chmod"), Path: c.path()}
	switch o.Do {
	case "rename", "link":
		o.Arg = c.path()
	case "symlink":
		o.Arg = c.pick("a", "b/c", "nowhere", "a/../b")
	case "chmod":
		o.Arg = c.pick("755", "700", "644", "600", "555", "500", "444", "0")
	default:
		o.Arg = c.pick("", "x\n", strings.Repeat("y", 40), strconv.Itoa(c.IntN(3)))
	}
	return o
}

func (f *fixture) randomTree(c chance) {
	defer workIn(f.t, f.real)()
	for range c.IntN(40) {
		if o := c.op(); o.Do != "chmod" || !strings.HasPrefix(o.Arg, "0") {
			o.run()
		}
	}
	must(f.t, filepath.WalkDir(f.real, func(p string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(p, realUID, realUID))
	}))
}

// longRuns is how many random pairs JAIL_TEST_LONG asks for.
const longRuns = 10000

// propertyRuns is how many random pairs are tried; JAIL_TEST_PAIRS asks for more, JAIL_TEST_LONG
// for longRuns.
func propertyRuns(t *testing.T) int {
	n := 16
	if text := os.Getenv("JAIL_TEST_PAIRS"); text != "" {
		var err error
		n, err = strconv.Atoi(text)
		must(t, err)
	} else if os.Getenv("JAIL_TEST_LONG") != "" {
		n = longRuns
	}
	return n
}

// seeds returns the seeds of the random pairs: propertyRuns that are always the same, from
// JAIL_TEST_SEED on, so that several processes can share the work, and a random one. The name of
// the subtest has the seed.
func seeds(t *testing.T) (all []int) {
	first, _ := strconv.Atoi(os.Getenv("JAIL_TEST_SEED"))
	for n := range propertyRuns(t) {
		all = append(all, first+n)
	}
	return append(all, first+len(all)+rand.IntN(longRuns))
}

// T-325, T-327: random trees and deeds, with names that meet. A commit makes the shadow real, and
// reverts make it as it was.
func TestCommitMakesTheShadow(t *testing.T) {
	f := newFixture(t)
	for _, seed := range seeds(t) {
		if !t.Run(strconv.Itoa(seed), func(t *testing.T) { oneRandomCommit(t, f, uint64(seed)) }) {
			return
		}
	}
}

func oneRandomCommit(t *testing.T, f *fixture, seed uint64) {
	c := chance{rand.New(rand.NewPCG(seed, 1))}
	must(t, os.RemoveAll(f.real))
	must(t, os.Mkdir(f.real, 0o755))
	f.t = t
	f.randomTree(c)
	before := snapshotText(f.real)
	o := newOracle(t, f)
	id := fmt.Sprintf("r%d", seed)
	w := f.prepareAs(id, Caller{UID: realUID, GID: realUID}, 8<<20, 500)
	ops := make([]toolOp, c.IntN(30))
	for i := range ops {
		ops[i] = c.op()
	}
	shadow := f.run(w, order{UID: realUID, Ops: ops, Copy: o.shadow}).Out
	must(t, w.Freeze())
	_, digest, err := w.Review(t.Context())
	must(t, err)
	if now := snapshotText(f.real); now != before {
		t.Fatalf("the run changed the real directory: %s", cmp.Diff(before, now))
	}
	changes := changesOf(t, w)
	o.changesAre(changes)
	if c.IntN(2) == 0 && len(changes) > 0 {
		_, err := w.Commit(t.Context(),
			CommitOptions{Paths: []Name{changes[c.IntN(len(changes))].Path}, Digest: digest,
				Keep: keepAll})
		if err != nil && !errors.Is(err, ErrProtected) {
			t.Fatal(err)
		}
		digest = ""
	}
	if w.Info().State == Frozen {
		r, err := w.Commit(t.Context(), CommitOptions{Digest: digest, Keep: keepAll})
		if err != nil {
			t.Fatalf("%v\nbefore:\n%s\nops: %v\nchanges %v", err, before, ops,
				brief(changesOf(t, w)))
		}
		if r.State != Committed {
			t.Fatalf("result %+v", r)
		}
	}
	if after := snapshotText(f.real); after != shadow {
		t.Fatalf("ops %v\n%s", ops, cmp.Diff(shadow, after))
	}
	o.same(o.shadow, false)
	for err == nil {
		_, err = w.Revert(t.Context(), RevertOptions{})
	}
	if !errors.Is(err, ErrNoCommit) {
		t.Fatalf("revert: %v\nbefore:\n%s\nops: %v", err, before, ops)
	}
	if after := snapshotText(f.real); after != before {
		t.Fatalf("after the revert, ops %v\n%s", ops, cmp.Diff(before, after))
	}
	o.same(o.before, true)
	must(t, w.Discard())
}

var errCrash = errors.New("crash")

// crashed has a commit or a revert end without a word at its n-th action, as after a kill, and
// reports whether it came that far.
func crashed(t *testing.T, w *Workspace, n int, do func() error) (at string, crashed bool) {
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
	must(t, do())
	return at, false
}

// T-324: TestCrashedCommitIsOldOrNew cuts commits off before every one of their actions in turn.
// After recovery the tree is what it was, or all of what it was to become, and has no other name in
// it.
func TestCrashedCommitIsOldOrNew(t *testing.T) {
	f := newFixture(t)
	points := 0
	for seed := range min(100, max(9, propertyRuns(t)/10)) {
		c := chance{rand.New(rand.NewPCG(uint64(seed), 2))}
		must(t, os.RemoveAll(f.real))
		must(t, os.Mkdir(f.real, 0o755))
		f.randomTree(c)
		before := snapshotText(f.real)
		w := f.prepareAs(fmt.Sprintf("c%d", seed), Caller{UID: realUID, GID: realUID}, 8<<20, 500)
		var ops []toolOp
		for range 25 {
			ops = append(ops, c.op())
		}
		shadow := f.run(w, order{UID: realUID, Ops: ops}).Out
		must(t, w.Freeze())
		for n := 0; w.Info().State == Frozen; n++ {
			at, cut := crashed(t, w, n, func() error {
				_, err := w.Commit(t.Context(), CommitOptions{})
				return err
			})
			if cut {
				points++
				half := snapshotText(f.real)
				_, err := f.store.Recover(t.Context())
				must(t, err)
				must(t, w.load())
				if strings.Contains(snapshotText(f.real), ".jail-") {
					t.Fatalf("seed %d, crash at %s: our names are left\nhalf:\n%s", seed, at, half)
				}
			}
			want := before
			if w.Info().State == Committed {
				want = shadow
			}
			if now := snapshotText(f.real); now != want {
				t.Fatalf("seed %d, crash at %s: %s\nops %v", seed, at, cmp.Diff(want, now), ops)
			}
		}
		must(t, w.Discard())
	}
	t.Logf("%d crash points", points)
	if points < 50 {
		t.Errorf("only %d crash points: the test tests nothing", points)
	}
}
