package workspace

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jail-sandbox/jail/jail/internal/sys"
	"github.com/jail-sandbox/jail/jail/jailtest/kernel"
)

var keepAll = Retention{For: time.Hour, Bytes: 1 << 30}

// TestRevertMakesItAsItWas commits random shadows, whole or in two parts, and reverts them.
func TestRevertMakesItAsItWas(t *testing.T) {
	f := newFixture(t)
	for seed := range min(1000, max(10, propertyRuns(t)/4)) {
		if !t.Run(strconv.Itoa(seed), func(t *testing.T) { oneRandomRevert(t, f, uint64(seed)) }) {
			return
		}
	}
}

func oneRandomRevert(t *testing.T, f *fixture, seed uint64) {
	c := chance{rand.New(rand.NewPCG(seed, 3))}
	must(t, os.RemoveAll(f.real))
	must(t, os.Mkdir(f.real, 0o755))
	f.t = t
	f.randomTree(c)
	before := snapshotText(f.real)
	as := Caller{UID: realUID, GID: realUID}
	w := f.prepareAs(fmt.Sprintf("v%d", seed), as, 8<<20, 500)
	ops := make([]toolOp, c.IntN(30))
	for i := range ops {
		ops[i] = c.op()
	}
	shadow := f.run(w, order{UID: realUID, Ops: ops}).Out
	must(t, w.Freeze())
	states := []string{before}
	if changes := changesOf(t, w); c.IntN(2) == 0 && len(changes) > 0 {
		r, err := w.Commit(t.Context(),
			CommitOptions{Paths: []Name{changes[c.IntN(len(changes))].Path}, Keep: keepAll})
		if err != nil && !errors.Is(err, ErrProtected) {
			t.Fatal(err)
		}
		if len(r.Committed) > 0 {
			states = append(states, snapshotText(f.real))
		}
	}
	if w.Info().State == Frozen {
		r, err := w.Commit(t.Context(), CommitOptions{Keep: keepAll})
		must(t, err)
		if r.NotKept != "" || r.State != Committed {
			t.Fatalf("%+v", r)
		}
		states = append(states, shadow)
	}
	for n := len(states) - 1; n > 0; n-- {
		if now := snapshotText(f.real); now != states[n] {
			t.Fatalf("before revert %d: %s", n, cmp.Diff(states[n], now))
		}
		if _, err := w.Revert(t.Context(), RevertOptions{}); err != nil {
			t.Fatalf("%v\nops %v\nbefore\n%s\nshadow\n%s", err, ops, before, shadow)
		}
		if now := snapshotText(f.real); now != states[n-1] {
			t.Fatalf("ops %v\n%s", ops, cmp.Diff(states[n-1], now))
		}
	}
	if _, err := w.Revert(t.Context(), RevertOptions{}); !errors.Is(err, ErrNoCommit) {
		t.Fatalf("one revert too many: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(f.dir, w.meta.ID, pastPrefix+"*")); len(left) > 0 {
		t.Fatalf("left in the store: %v", left)
	}
	must(t, w.Discard())
}

// TestCrashedRevertIsOldOrNew cuts reverts off before every one of their actions in turn.
func TestCrashedRevertIsOldOrNew(t *testing.T) {
	f := newFixture(t)
	points := 0
	for seed := range min(100, max(9, propertyRuns(t)/10)) {
		c := chance{rand.New(rand.NewPCG(uint64(seed), 2))}
		must(t, os.RemoveAll(f.real))
		must(t, os.Mkdir(f.real, 0o755))
		f.randomTree(c)
		before := snapshotText(f.real)
		w := f.prepareAs(fmt.Sprintf("x%d", seed), Caller{UID: realUID, GID: realUID}, 8<<20, 500)
		var ops []toolOp
		for range 25 {
			ops = append(ops, c.op())
		}
		shadow := f.run(w, order{UID: realUID, Ops: ops}).Out
		must(t, w.Freeze())
		_, err := w.Commit(t.Context(), CommitOptions{Keep: keepAll})
		must(t, err)
		for n := 0; w.Info().State == Committed; n++ {
			at, cut := crashed(t, w, n, func() error {
				_, err := w.Revert(t.Context(), RevertOptions{})
				return err
			})
			if cut {
				points++
				_, err := f.store.Recover(t.Context())
				must(t, err)
				must(t, w.load())
			}
			want := shadow
			if w.Info().State == ChangedBack {
				want = before
			}
			if now := snapshotText(f.real); now != want {
				t.Fatalf("seed %d, crash at %s: %s\nops %v", seed, at, cmp.Diff(want, now), ops)
			}
		}
		must(t, w.Discard())
	}
	if points < 50 {
		t.Errorf("only %d crash points: the test tests nothing", points)
	}
}

// What comes back is the inode that was there, where the store is on the same file system, and its
// like where it is not.
func TestRevertBringsAttributesBack(t *testing.T) {
	for _, where := range []string{"the same file system", "another file system"} {
		t.Run(where, func(t *testing.T) {
			f := newFixture(t)
			if where != "the same file system" {
				f.storeElsewhere()
			}
			f.write("edit", "gone", "d/x")
			long := time.Date(2001, 2, 3, 4, 5, 6, 789, time.UTC)
			for _, p := range []string{"edit", "gone", "d/x"} {
				must(t, syscall.Setxattr(filepath.Join(f.real, p), "user.mine", []byte(p), 0))
				must(t, os.Chmod(filepath.Join(f.real, p), 0o640))
				must(t, os.Chtimes(filepath.Join(f.real, p), long, long))
			}
			// Or another file may get its number.
			held, err := os.Open(filepath.Join(f.real, "edit"))
			must(t, err)
			defer held.Close()
			before, err := held.Stat()
			must(t, err)
			w := f.shadow("r1", `set -e; echo more >>edit; rm gone; rm -r d`)
			_, err = w.Commit(t.Context(), CommitOptions{Keep: keepAll})
			must(t, err)
			if got := attribute(t, filepath.Join(f.real, "edit"), "user.mine"); got != "edit" {
				t.Errorf("the commit lost the user's attribute: %q", got)
			}
			if st, err := os.Stat(filepath.Join(f.real, "edit")); err != nil ||
				st.ModTime().Equal(long) {
				t.Errorf("control: the commit did not write: %v", err)
			}
			_, err = w.Revert(t.Context(), RevertOptions{})
			must(t, err)
			for _, p := range []string{"edit", "gone", "d/x"} {
				full, mine := filepath.Join(f.real, p), p
				// Where a tmpfs takes none.
				if where != "the same file system" && kernel.OlderThan(t, 6, 6) {
					mine = ""
				}
				st, err := os.Stat(full)
				must(t, err)
				if got := attribute(t, full, "user.mine"); !st.ModTime().Equal(long) ||
					st.Mode().Perm() != 0o640 || got != mine {
					t.Errorf("%s: %v %v %q", p, st.ModTime(), st.Mode(), got)
				}
			}
			after, err := os.Stat(filepath.Join(f.real, "edit"))
			must(t, err)
			if same := os.SameFile(before, after); same != (where == "the same file system") {
				t.Errorf("the same inode: %v", same)
			}
		})
	}
}

func attribute(t *testing.T, path, name string) string {
	t.Helper()
	buf := make([]byte, 256)
	n, err := syscall.Getxattr(path, name, buf)
	if errors.Is(err, syscall.ENODATA) {
		return ""
	}
	must(t, err)
	return string(buf[:n])
}

// storeElsewhere moves the fixture's store to a tmpfs, which is mounted in no namespace but the
// process's own descriptors.
func (f *fixture) storeElsewhere() {
	f.t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "jail-store-")
	must(f.t, err)
	f.t.Cleanup(func() { os.RemoveAll(dir) })
	var a, b syscall.Stat_t
	must(f.t, syscall.Stat(dir, &a))
	must(f.t, syscall.Stat(f.real, &b))
	if a.Dev == b.Dev {
		f.t.Skip("/dev/shm is no file system of its own")
	}
	f.dir = filepath.Join(dir, "store")
	store, err := Open(f.dir)
	must(f.t, err)
	f.store.Close()
	f.store = store
	f.t.Cleanup(func() { store.Close() })
}

func TestRevertConflicts(t *testing.T) {
	cases := map[string]struct {
		// What the host does after the commit.
		after func(real string) error
		// "" : it can be reverted all the same
		want string
	}{
		"nothing": {func(string) error { return nil }, ""},
		"edited": {func(r string) error {
			return os.WriteFile(r+"/edit", []byte("mine"), 0o644)
		}, "edit: the file was changed"},
		"same again": {func(r string) error {
			return os.WriteFile(r+"/edit", []byte("edit\nmore\n"), 0o644)
		}, ""},
		"touched": {func(r string) error {
			return os.Chtimes(r+"/edit", time.Now(), time.Unix(1, 0))
		}, ""},
		"mode": {func(r string) error { return os.Chmod(r+"/edit", 0o600) },
			"its mode was changed"},
		"put back": {func(r string) error { return os.WriteFile(r+"/gone", nil, 0o644) },
			"gone: a file was put there"},
		"removed": {func(r string) error { return os.Remove(r + "/new/f") },
			"new/f: the file was removed"},
		"in new": {func(r string) error { return os.WriteFile(r+"/new/mine", nil, 0o644) },
			"new/mine was put into it"},
		"link": {func(r string) error {
			os.Remove(r + "/l")
			return os.Symlink("elsewhere", r+"/l")
		}, "the link was changed"},
		"link for file": {func(r string) error {
			os.Remove(r + "/edit")
			return os.Symlink("/etc/passwd", r+"/edit")
		}, "became a link"},
		"elsewhere": {func(r string) error {
			return os.WriteFile(r+"/other", []byte("x"), 0o644)
		}, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.write("edit", "gone", "other", "l -> edit")
			w := f.shadow("r1",
				`set -e; echo more >>edit; rm gone; mkdir new; echo n >new/f; ln -sfn other l`)
			_, err := w.Commit(t.Context(), CommitOptions{Keep: keepAll})
			must(t, err)
			must(t, c.after(f.real))
			there := snapshotText(f.real)
			_, err = w.Revert(t.Context(), RevertOptions{})
			if c.want == "" {
				must(t, err)
				if got := content(t, f.real+"/edit"); got != "edit\n" {
					t.Errorf("edit has %q", got)
				}
				return
			}
			if !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want %s", err, c.want)
			}
			if now := snapshotText(f.real); now != there {
				t.Errorf("a refused revert changed something: %s", cmp.Diff(there, now))
			}
		})
	}
}

func TestRetention(t *testing.T) {
	f := newFixture(t)
	f.write("a", "b")
	commit := func(id string, keep Retention) *Workspace {
		w := f.shadow(id, "echo "+id+" >>a")
		_, err := w.Commit(t.Context(), CommitOptions{Keep: keep})
		must(t, err)
		return w
	}
	w := commit("none", Retention{})
	if _, err := w.Revert(t.Context(), RevertOptions{}); !errors.Is(err, ErrNotKept) {
		t.Errorf("kept nothing: %v", err)
	}
	w = commit("large", Retention{For: time.Hour, Bytes: 1})
	if _, err := w.Revert(t.Context(), RevertOptions{}); !errors.Is(err, ErrNotKept) ||
		!strings.Contains(err.Error(), "1 B are kept") {
		t.Errorf("too large: %v", err)
	}
	w = commit("old", Retention{For: time.Nanosecond, Bytes: 1 << 20})
	if _, err := w.Revert(t.Context(), RevertOptions{}); !errors.Is(err, ErrNotKept) {
		t.Errorf("too old: %v", err)
	}
	young := commit("young", keepAll)
	removed, err := f.store.Prune(time.Now(), nil)
	must(t, err)
	if diff := cmp.Diff([]string{"none", "large", "old"}, removed); diff != "" {
		t.Errorf("pruned: %s", diff)
	}
	if _, err := young.Revert(t.Context(), RevertOptions{Commit: "other"}); !errors.Is(err,
		ErrNoCommit) {
		t.Errorf("another commit: %v", err)
	}
	if removed, err = f.store.Prune(time.Now().Add(2*time.Hour), nil); err != nil ||
		len(removed) != 1 {
		t.Errorf("pruned later: %v, %v", removed, err)
	}
}

// What is still open when a commit replaces it can be written to afterwards; that is not brought
// back as what was there.
func TestRevertKnowsWhatWasWrittenLater(t *testing.T) {
	f := newFixture(t)
	f.write("log")
	w := f.shadow("r1", "echo x >log")
	open, err := os.OpenFile(filepath.Join(f.real, "log"), os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	defer open.Close()
	_, err = w.Commit(t.Context(), CommitOptions{Keep: keepAll})
	must(t, err)
	_, err = open.WriteString("late\n")
	must(t, err)
	if _, err := w.Revert(t.Context(), RevertOptions{}); !errors.Is(err, ErrNotKept) {
		t.Errorf("got %v", err)
	}
}

// A commit that has no room to keep what it replaces stands, and says that it cannot be reverted.
func TestCommitWithoutRoomToKeep(t *testing.T) {
	f := newFixture(t)
	f.write("a")
	w := f.shadow("r1", "echo x >a")
	f.store.fault = func(at string) error {
		if at == "keep 0" {
			return syscall.ENOSPC
		}
		return nil
	}
	r, err := w.Commit(t.Context(), CommitOptions{Keep: keepAll})
	must(t, err)
	if r.State != Committed || !strings.Contains(r.NotKept, "no space left") || len(r.Left) > 0 {
		t.Errorf("%+v", r)
	}
	if got := content(t, f.real+"/a"); got != "x\n" {
		t.Errorf("a has %q", got)
	}
	if _, err := w.Revert(t.Context(), RevertOptions{}); !errors.Is(err, ErrNotKept) {
		t.Errorf("got %v", err)
	}
}

// Access control lists stay with a file whose content is replaced: without one, the bits of its
// mask would become rights of its group.
func TestCommitKeepsAccessControlLists(t *testing.T) {
	f := newFixture(t)
	f.write("a", "plain")
	list := []byte{2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 6, 0, 57, 48, 0, 0, 4, 0, 0, 0,
		255, 255, 255, 255, 16, 0, 6, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255}
	must(t, syscall.Setxattr(f.real+"/a", "system.posix_acl_access", list, 0))
	w := f.shadow("r1", "echo x >>a; echo y >>plain")
	_, err := w.Commit(t.Context(), CommitOptions{})
	must(t, err)
	if got := attribute(t, f.real+"/a", "system.posix_acl_access"); got != string(list) {
		t.Errorf("the list is %q", got)
	}
	if got := attribute(t, f.real+"/plain", "system.posix_acl_access"); got != "" {
		t.Errorf("control: a file without a list got one: %q", got)
	}
}

var _ = sys.OPath

// What was deleted cannot come back into a directory that somebody has removed since.
func TestRevertIntoALostDirectory(t *testing.T) {
	f := newFixture(t)
	f.write("d/x", "d/y", "e/z/x")
	w := f.shadow("w", `rm d/x; rm -r e/z`)
	_, err := w.Commit(t.Context(), CommitOptions{Keep: keepAll})
	must(t, err)
	must(t, os.RemoveAll(filepath.Join(f.real, "d")))
	if _, err := w.Revert(t.Context(), RevertOptions{}); !errors.Is(err, ErrConflict) ||
		!strings.Contains(err.Error(), "d was removed since the commit") {
		t.Errorf("got %v", err)
	}
	must(t, os.Mkdir(filepath.Join(f.real, "d"), 0o755))
	_, err = w.Revert(t.Context(), RevertOptions{})
	must(t, err)
	if got := content(t, filepath.Join(f.real, "d/x")) + content(t,
		filepath.Join(f.real, "e/z/x")); got != "d/x\ne/z/x\n" {
		t.Errorf("after the revert: %q", got)
	}
}
