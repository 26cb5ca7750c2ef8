package workspace

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// resumable prepares a workspace that can be resumed.
func (f *fixture) resumable(id string) (Spec, *Workspace) {
	f.t.Helper()
	source, err := os.Open(f.real)
	must(f.t, err)
	f.t.Cleanup(func() { source.Close() })
	spec := Spec{ID: id, Source: source, Bytes: 64 << 20, Inodes: 2000, Resumable: true}
	w, err := f.store.Prepare(spec)
	must(f.t, err)
	return spec, w
}

// sleep ends the tool and keeps its workspace, as for a session that is not used.
func (l *liveTool) sleep() {
	l.f.t.Helper()
	l.end()
	must(l.f.t, l.w.Freeze())
	must(l.f.t, l.w.Keep())
	must(l.f.t, l.w.Close())
}

// wake resumes the workspace and starts a shell on it.
func (f *fixture) wake(spec Spec) *liveTool {
	f.t.Helper()
	w, err := f.store.Resume(f.t.Context(), spec)
	must(f.t, err)
	return f.liveOn(w)
}

// A resumed workspace has what its tool wrote, and what was committed or discarded in between is no
// change.
func TestResume(t *testing.T) {
	f := newFixture(t)
	f.write("kept", "theirs")
	settle(t)
	spec, w := f.resumable("r1")
	l := f.liveOn(w)
	l.do("echo tool >made; mkdir dir; echo one >dir/one; echo two >dir/two")
	l.do("echo more >>kept; rm theirs")
	l.sleep()

	// A part of it is committed while nothing is mounted, another is discarded.
	kept, err := f.store.Get("r1")
	must(t, err)
	r, err := kept.Commit(t.Context(), CommitOptions{Paths: []Name{"dir", "theirs"}})
	must(t, err)
	if r.State != Frozen {
		t.Errorf("after the commit of a part it is %s", r.State)
	}
	_, _, err = kept.DiscardPaths(t.Context(), []Name{"made"}, false,
		func(gone, left Summary) error { return nil })
	must(t, err)
	must(t, kept.Close())
	f.edit("outside", "somebody else's")

	l = f.wake(spec)
	l.wants("modified kept")
	l.sees("cat made dir/one outside; echo; ls theirs 2>/dev/null", "tool\none\nsomebody else's\n")
	// What was discarded is a change again when the tool changes it.
	l.do("echo again >made; rm dir/one; echo three >dir/three")
	l.wants("deleted dir/one", "added dir/three", "modified kept", "added made")
	l.sleep()

	// The tool's own directory has no mark of the deletion, and the real one has the file.
	f.holds("dir/one", "one\n")
	l = f.wake(spec)
	l.sees("ls dir", "three\ntwo\n")
	l.wants("deleted dir/one", "added dir/three", "modified kept", "added made")
	l.commitAll()
	f.holds("dir/one", "")
	f.holds("made", "again\n")
	l.sleep()
}

// A workspace of which all was committed gets an empty layer, and its commits can be reverted.
func TestResumeCommitted(t *testing.T) {
	f := newFixture(t)
	f.write("old")
	settle(t)
	spec, w := f.resumable("r1")
	l := f.liveOn(w)
	l.do("echo first >made")
	l.sleep()
	kept, err := f.store.Get("r1")
	must(t, err)
	r, err := kept.Commit(t.Context(), CommitOptions{Keep: Retention{Bytes: 1 << 20,
		For: time.Hour}})
	must(t, err)
	must(t, kept.Close())
	if r.State != Committed {
		t.Fatalf("it is %s", r.State)
	}
	// Other limits are those of the new layer.
	spec.Bytes, spec.Resumable = 32<<20, false
	l = f.wake(spec)
	l.wants()
	l.sees("cat made", "first\n")
	l.do("echo second >made")
	l.wants("modified made")
	if info := l.w.Info(); len(info.Commits) != 1 || info.Bytes != 32<<20 {
		t.Errorf("%+v", info)
	}
	l.sleep()
	f.holds("made", "first\n")
}

// What cannot be resumed is left as it is.
func TestResumeRefused(t *testing.T) {
	f := newFixture(t)
	f.write("old")
	settle(t)
	spec, w := f.resumable("r1")
	l := f.liveOn(w)
	l.do("echo tool >made")
	resume := func(spec Spec, want error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		w, err := f.store.Resume(ctx, spec)
		if err == nil {
			w.Close()
		}
		if !errors.Is(err, want) {
			t.Errorf("resume: %v, want %v", err, want)
		}
	}
	// Its own process writes to it.
	resume(spec, ErrActive)
	l.sleep()
	elsewhere := spec
	other := filepath.Join(filepath.Dir(f.real), "elsewhere")
	must(t, os.Mkdir(other, 0o755))
	var err error
	elsewhere.Source, err = os.Open(other)
	must(t, err)
	defer elsewhere.Source.Close()
	resume(elsewhere, ErrConflict)
	small := spec
	small.Bytes = 8 << 20
	resume(small, ErrShape)
	hides := spec
	hides.Hide = []string{"old"}
	resume(hides, ErrShape)
	// A review that is open reads the layer.
	kept, err := f.store.Get("r1")
	must(t, err)
	if _, _, err := kept.Review(t.Context()); err != nil {
		t.Fatal(err)
	}
	resume(spec, ErrBusy)
	must(t, kept.Close())
	// The control: it can be resumed. One that ends for good cannot.
	l = f.wake(spec)
	l.sees("cat made", "tool\n")
	// Of a session that ends while it is committed.
	lock, err := l.w.home.lock()
	must(t, err)
	time.AfterFunc(50*time.Millisecond, func() { lock.Close() })
	must(t, l.w.SetResumable(false))
	l.sleep()
	resume(spec, ErrState)
	missing := spec
	missing.ID = "r2"
	resume(missing, ErrNotFound)
}

// committed prepares a resumable workspace of which all was committed, and nothing is kept.
func (f *fixture) committed(id string) Spec {
	f.t.Helper()
	spec, w := f.resumable(id)
	l := f.liveOn(w)
	l.do("echo first >made")
	l.sleep()
	kept, err := f.store.Get(id)
	must(f.t, err)
	r, err := kept.Commit(f.t.Context(), CommitOptions{})
	must(f.t, err)
	must(f.t, kept.Close())
	if r.State != Committed {
		f.t.Fatalf("it is %s", r.State)
	}
	return spec
}

// Prune leaves the workspace of a session that sleeps, and one that was resumed since it was
// listed.
func TestPruneLeavesResumable(t *testing.T) {
	f := newFixture(t)
	spec := f.committed("r1")
	prune := func(want int) {
		t.Helper()
		removed, err := f.store.Prune(time.Now(), nil)
		if err != nil || len(removed) != want {
			t.Errorf("pruned %v, want %d: %v", removed, want, err)
		}
	}
	prune(0)
	end := func() Info {
		t.Helper()
		w, err := f.store.Get("r1")
		must(t, err)
		defer w.Close()
		must(t, w.SetResumable(false))
		return w.Info()
	}
	before := end()
	l := f.wake(spec)
	if gone, err := f.store.pruneOne(before, time.Now(), nil); gone || !errors.Is(err, ErrBusy) {
		t.Errorf("a live workspace was pruned: %v, %v", gone, err)
	}
	l.do("echo second >made")
	l.commitAll()
	f.holds("made", "second\n")
	l.end()
	must(t, l.w.Freeze())
	must(t, l.w.Keep())
	must(t, l.w.Conclude())
	must(t, l.w.Close())
	// The control: one that has ended for good is forgotten.
	end()
	prune(1)
}

// A workspace is resumed only for the user that it was prepared for.
func TestResumeOfAnotherUser(t *testing.T) {
	f := newFixture(t)
	spec := f.committed("r1")
	other := spec
	other.Caller.UID = 4711
	if _, err := f.store.Resume(t.Context(), other); !errors.Is(err, ErrState) {
		t.Errorf("by another user: %v", err)
	}
	f.wake(spec).sleep()
}

// Resume waits for the process that still has the workspace open which it has just kept.
func TestResumeWaits(t *testing.T) {
	f := newFixture(t)
	spec, w := f.resumable("r1")
	l := f.liveOn(w)
	l.do("echo tool >made")
	l.end()
	must(t, w.Freeze())
	must(t, w.Keep())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := f.store.Resume(ctx, spec); !errors.Is(err, ErrActive) {
		t.Fatalf("resumed while it is open: %v", err)
	}
	type resumed struct {
		w   *Workspace
		err error
	}
	done := make(chan resumed)
	go func() {
		w, err := f.store.Resume(t.Context(), spec)
		done <- resumed{w, err}
	}()
	must(t, w.Close())
	r := <-done
	must(t, r.err)
	l = f.liveOn(r.w)
	l.sees("cat made", "tool\n")
	l.sleep()
}

// A workspace that cannot be mounted is one that any boot can show, as before.
func TestResumeUndone(t *testing.T) {
	f := newFixture(t)
	spec, w := f.resumable("r1")
	l := f.liveOn(w)
	l.do("echo tool >made")
	l.sleep()
	image, err := os.OpenFile(filepath.Join(f.dir, "r1", "upper.img"), os.O_RDWR, 0)
	must(t, err)
	defer image.Close()
	superblock := make([]byte, 1024)
	_, err = image.ReadAt(superblock, 1024)
	must(t, err)
	_, err = image.WriteAt(make([]byte, 1024), 1024)
	must(t, err)
	if _, err := f.store.Resume(t.Context(), spec); !errors.Is(err, ErrRecord) {
		t.Fatalf("resumed without a superblock: %v", err)
	}
	kept, err := f.store.Get("r1")
	must(t, err)
	if m := kept.meta; m.Boot != "" || m.State != Frozen || !m.Resumable {
		t.Errorf("it is %s of boot %q", m.State, m.Boot)
	}
	must(t, kept.Close())
	_, err = image.WriteAt(superblock, 1024)
	must(t, err)
	l = f.wake(spec)
	boot, err := sys.BootID()
	must(t, err)
	if m, err := readJSON[meta](l.w.home.dir, "meta.json"); err != nil || m.Boot != boot {
		t.Errorf("resumed, it is of boot %q: %v", m.Boot, err)
	}
	l.sees("cat made", "tool\n")
	l.sleep()
}

// A jail whose daemon was killed has ended before the kernel releases its layer.
func TestReleaseWaits(t *testing.T) {
	f := newFixture(t)
	must(t, f.prepare("killed").Close())
	image, err := os.Open(filepath.Join(f.dir, "killed", "upper.img"))
	must(t, err)
	defer image.Close()
	must(t, sys.LockWait(image, true))
	released := make(chan error, 1)
	go func() { released <- f.store.Release("killed") }()
	select {
	case err := <-released:
		t.Fatalf("released while the layer is held: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	must(t, image.Close())
	must(t, <-released)
	w, err := f.store.Get("killed")
	must(t, err)
	defer w.Close()
	if state := w.Info().State; state != Frozen {
		t.Errorf("a released layer is %s", state)
	}
}
