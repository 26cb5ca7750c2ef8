package workspace

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

func (f *fixture) blanks() []string {
	f.t.Helper()
	names, err := filepath.Glob(filepath.Join(f.dir, blankPrefix+"*"))
	must(f.t, err)
	return names
}

// inode returns the inode of the image in a directory.
func (f *fixture) inode(dir string) uint64 {
	f.t.Helper()
	image, err := os.Open(filepath.Join(dir, "upper.img"))
	must(f.t, err)
	defer image.Close()
	st, err := sys.Fstat(image)
	must(f.t, err)
	return st.Ino
}

// reserved returns the reservations of the disk.
func (f *fixture) reserved() (names []string) {
	f.t.Helper()
	entries, err := os.ReadDir(filepath.Join(f.dir, liveDir))
	must(f.t, err)
	for _, e := range entries {
		if e.Name() != liveLock {
			names = append(names, e.Name())
		}
	}
	return names
}

// TestBlanks: a layer made ahead is used by one shadow with its limits, which is like any other.
func TestBlanks(t *testing.T) {
	f := newFixture(t)
	f.write("edit", "gone")
	first := f.prepare("first")
	must(t, f.store.Stock(first))
	must(t, f.store.Stock(first))
	made := f.blanks()
	if len(made) != 1 {
		t.Fatalf("blanks %q, want one", made)
	}
	blank := f.inode(made[0])
	if got := f.reserved(); !slices.Equal(got, []string{livePrefix + "first"}) {
		t.Errorf("reserved with a blank: %q", got)
	}
	other := f.prepareAs("other", Caller{}, 32<<20, 2000)
	if got := f.blanks(); !slices.Equal(got, made) {
		t.Errorf("blanks after a shadow with other limits: %q", got)
	}
	must(t, other.Discard())
	second := f.prepare("second")
	if got := f.blanks(); len(got) != 0 {
		t.Errorf("blanks after one was taken: %q", got)
	}
	if f.inode(filepath.Join(f.dir, "second")) != blank {
		t.Error("the blank was not taken")
	}
	want := []string{livePrefix + "first", livePrefix + "second"}
	if got := f.reserved(); !slices.Equal(got, want) {
		t.Errorf("reserved after it was taken: %q, want %q", got, want)
	}
	must(t, f.store.Sweep())
	f.run(second, order{Script: "echo more >>edit; rm gone; mkdir new"})
	must(t, second.Freeze())
	if diff := cmp.Diff([]string{"modified edit", "deleted gone", "added new"},
		brief(changesOf(t, second))); diff != "" {
		t.Error(diff)
	}
	must(t, f.store.Stock(second))
	must(t, os.Chown(f.real, 4321, 4321))
	must(t, os.Chmod(f.real, 0o750))
	third := f.prepare("third")
	if f.inode(filepath.Join(f.dir, "third")) == blank {
		t.Error("the blank was taken twice")
	}
	if n := len(f.blanks()); n != 0 {
		t.Errorf("%d blanks after the second was taken", n)
	}
	upper, err := third.layer.openUpper()
	must(t, err)
	st, err := upper.stat()
	upper.Close()
	must(t, err)
	if st.UID != 4321 || st.GID != 4321 || st.Perm() != 0o750 {
		t.Errorf("owner %d:%d, mode %o", st.UID, st.GID, st.Perm())
	}
	for _, w := range []*Workspace{first, second, third} {
		must(t, w.Discard())
	}
	if left, err := f.store.names(); err != nil || len(left) > 3 {
		// The two templates and the directory of the reservations.
		t.Errorf("left %q, %v", left, err)
	}
}

// TestBlankOfABranch: a branch that takes a layer made ahead has its frozen layers below it.
func TestBlankOfABranch(t *testing.T) {
	f := newFixture(t)
	f.write("real")
	m := newFamily(f, "echo own >own")
	m.fork("p", "a")
	m.fork("p", "b")
	want := m.tree("p")
	spec := m.spec
	spec.ID = "a"
	a, err := m.store.Resume(t.Context(), spec)
	must(t, err)
	must(t, f.store.Stock(a))
	made := f.blanks()
	if len(made) != 1 {
		t.Fatalf("blanks %q, want one", made)
	}
	m.end(a, order{})
	for _, id := range []string{"b", "p"} {
		if got := m.tree(id); got != want {
			t.Errorf("%s has\n%swant\n%s", id, got, want)
		}
	}
	if got := f.blanks(); len(got) > 0 {
		t.Errorf("no branch took the layer: %q", got)
	}
}

// TestBlanksGo: blanks are bounded, end with their store, and those of a process that died are
// swept. None leaves a loop device.
func TestBlanksGo(t *testing.T) {
	f := newFixture(t)
	f.write("a")
	var images []string
	for i, mib := range []int64{16, 32, 48} {
		w := f.prepareAs("w"+string(rune('a'+i)), Caller{}, mib<<20, 2000)
		must(t, f.store.Stock(w))
		if n := len(f.blanks()); n != min(i+1, maxBlanks) {
			t.Errorf("%d blanks after %d kinds", n, i+1)
		}
		must(t, w.Discard())
	}
	for _, b := range f.blanks() {
		images = append(images, filepath.Join(b, "upper.img"))
	}
	used := func(image string) bool {
		out, err := exec.Command("losetup", "-j", image).CombinedOutput()
		if err != nil {
			t.Skip("losetup is not installed")
		}
		return len(out) > 0
	}
	for _, image := range images {
		if !used(image) {
			t.Errorf("the control: %s has no loop device", image)
		}
	}
	must(t, f.store.Sweep())
	if n := len(f.blanks()); n != maxBlanks {
		t.Errorf("%d blanks after a sweep beside their maker", n)
	}
	// As when the process dies: the kernel closes its descriptors.
	dead := f.blanks()[0]
	i := slices.IndexFunc(f.store.blanks.ready, func(b *blank) bool {
		return b.name == filepath.Base(dead)
	})
	must(t, closeFiles(&f.store.blanks.ready[i].dir))
	must(t, f.store.blanks.ready[i].layer.close())
	f.store.blanks.ready = slices.Delete(f.store.blanks.ready, i, i+1)
	must(t, f.store.Sweep())
	if slices.Contains(f.blanks(), dead) || len(f.blanks()) != 1 {
		t.Errorf("blanks after a sweep: %q", f.blanks())
	}
	w := f.prepare("last")
	must(t, f.store.EndStock())
	must(t, f.store.Stock(w))
	if n := len(f.blanks()); n != 0 {
		t.Errorf("%d blanks after the end", n)
	}
	for _, image := range images {
		waitFor(t, func() bool { return !used(image) })
	}
}

// TestBlankThatIsGone: a shadow whose blank cannot be taken has a layer of its own.
func TestBlankThatIsGone(t *testing.T) {
	f := newFixture(t)
	f.write("a")
	w := f.prepare("one")
	must(t, f.store.Stock(w))
	must(t, os.Remove(filepath.Join(f.blanks()[0], "upper.img")))
	two := f.prepare("two")
	f.run(two, order{Script: "echo x >b"})
	must(t, two.Freeze())
	if diff := cmp.Diff([]string{"added b"}, brief(changesOf(t, two))); diff != "" {
		t.Error(diff)
	}
	if n := len(f.blanks()); n != 0 {
		t.Errorf("%d blanks are left", n)
	}
}
