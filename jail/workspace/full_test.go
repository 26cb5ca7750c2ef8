package workspace

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestNoMoreIsPromised: shadows are refused that would together need more room than the disk has,
// counting what those that live have not written yet. One that is frozen or discarded, or whose
// process died, is promised nothing more.
func TestNoMoreIsPromised(t *testing.T) {
	if !inPrivateMounts(t) {
		return
	}
	d := &disk{t: t, kind: "ext4", mkfs: []string{"mkfs.ext4", "-q", "-F", "-m", "0"},
		size: 160 << 20}
	d.make()
	f := d.fixture()
	f.write("a")
	refused := func(id string) {
		t.Helper()
		source, err := os.Open(f.real)
		must(t, err)
		defer source.Close()
		w, err := f.store.Prepare(Spec{ID: id, Source: source, Bytes: 64 << 20, Inodes: 2000})
		if err == nil {
			w.Discard()
		}
		if !errors.Is(err, ErrNoSpace) || !strings.Contains(err.Error(), "may still take") {
			t.Fatalf("%s: %v", id, err)
		}
	}
	one, two := f.prepare("one"), f.prepare("two")
	refused("three")
	// What it has written is taken from the disk, and promised no more.
	f.run(one, order{Script: "head -c 60M /dev/zero >b"})
	must(t, one.Freeze())
	refused("four")
	must(t, one.Discard())
	f.prepare("five")
	refused("six")
	// As when its process dies.
	must(t, two.Close())
	f.prepare("seven")
	if left, err := os.ReadDir(filepath.Join(f.dir, liveDir)); err != nil || len(left) != 3 {
		t.Errorf("%v, %v; want two layers and the lock", left, err)
	}
}

// TestFullDisk: when the disk cannot take what a tool writes, whose writes all end well, it is
// found out while the tool runs, and what the disk has is reviewed and committed, without the files
// that are damaged, which are named; also by a later process.
func TestFullDisk(t *testing.T) {
	if !inPrivateMounts(t) {
		return
	}
	eachFileSystem(t, func(t *testing.T, d *disk) {
		d.size = max(d.size, 160<<20)
		d.make()
		f := d.fixture()
		f.write("edit", "gone", "whole/a", "late")
		w := f.prepare("w")
		f.run(w, order{
			Script: "echo more >>edit; rm gone; mkdir new; seq 1000 >new/f; head -c 3M /dev/zero " +
				"| tr '\\0' x >new/big; rm -r whole"})
		must(t, w.Check())
		must(t, w.layer.sync())
		fill(t, d.dir)
		// A layer can have one overlay in its life.
		upper := fmt.Sprintf("/proc/self/fd/%d/upper/", w.layer.mount.Fd())
		must(t, os.WriteFile(upper+"new/late", bytes.Repeat([]byte("y"), 40<<20), 0o644))
		must(t, os.WriteFile(upper+"late", bytes.Repeat([]byte("z"), 3<<20), 0o644))
		must(t, os.Mkdir(upper+"later", 0o755))
		must(t, os.WriteFile(upper+"later/f", bytes.Repeat([]byte("z"), 3<<20), 0o644))
		var damage *DamageError
		if err := w.Check(); !errors.As(err, &damage) || !damage.Full ||
			!strings.Contains(err.Error(), "no space on the host") {
			t.Fatalf("while the tool runs: %v", err)
		}
		if err := w.Freeze(); !errors.As(err, &damage) || !slices.Contains(damage.Damaged,
			"new/late") {
			t.Fatalf("freeze: %v", err)
		}
		changes := brief(changesOf(t, w))
		for _, want := range []string{"modified edit", "deleted gone", "added new", "added new/f",
			"added new/big", "deleted whole", "deleted whole/a"} {
			if !slices.Contains(changes, want) {
				t.Errorf("%q is not among the changes %q", want, changes)
			}
		}
		for _, name := range damage.Damaged {
			if slices.ContainsFunc(changes, func(c string) bool {
				return strings.HasSuffix(c, " "+string(name))
			}) {
				t.Errorf("%s is damaged, and among the changes", name)
			}
		}
		must(t, w.Close())
		must(t, os.Remove(filepath.Join(d.dir, "filler")))
		// btrfs gives room back with the next transaction
		d.command("sync", "-f", d.dir)
		again, err := f.store.Get("w")
		must(t, err)
		defer again.Close()
		if diff := cmp.Diff(changes, brief(changesOf(t, again))); diff != "" {
			t.Errorf("a later process sees other changes: %s", diff)
		}
		if diff := cmp.Diff(damage.Damaged, again.damaged()); diff != "" {
			t.Errorf("a later process sees other damage: %s", diff)
		}
		_, err = again.Commit(t.Context(), CommitOptions{})
		must(t, err)
		big, err := os.ReadFile(filepath.Join(f.real, "new/big"))
		if err != nil || len(big) != 3<<20 || strings.Trim(string(big), "x") != "" {
			t.Errorf("new/big has %d bytes, %v", len(big), err)
		}
		if late, err := os.ReadFile(filepath.Join(f.real, "late")); err != nil ||
			!strings.HasPrefix(string(late), "late\n") {
			t.Errorf("late is %q, %v", late, err)
		}
	})
}

// fill takes all room of the disk that dir is on.
func fill(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "filler"))
	must(t, err)
	defer f.Close()
	for piece := 1 << 20; piece >= 4096; piece /= 16 {
		for err = nil; err == nil; {
			if _, err = f.Write(make([]byte, piece)); err == nil && piece < 1<<20 {
				err = f.Sync()
			}
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
	_ = f.Sync()
}
