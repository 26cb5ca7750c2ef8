package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail/internal/sys"
	"github.com/jail-sandbox/jail/jail/tick"
)

// Resume opens a workspace whose jails have ended for writing again. A resumable frozen workspace
// keeps its layer. One whose layer is gone, since all of it was committed or reverted, gets an
// empty layer, and keeps the replaced content of its commits.
//
// The limits and hidden names of spec must be those of the layer (ErrShape), and its directory the
// same (ErrConflict). The error is ErrState for a damaged or partly discarded layer, for a layer of
// a user's own daemon, and for a workspace of another user. Resume waits up to ten seconds for a
// review that has the layer open (ErrBusy), and for the last process that wrote to it (ErrActive).
// After an error the workspace is as before.
func (s *Store) Resume(ctx context.Context, spec Spec) (*Workspace, error) {
	w, err := s.Get(spec.ID)
	if err != nil {
		return nil, err
	}
	if err := (resumption{w}).resume(ctx, spec); err != nil {
		// Close also detaches the loop device, which would keep the lock of the image.
		return nil, w.wrap("resume", errors.Join(err, w.Close()))
	}
	return w, nil
}

// resumption has the steps of Store.Resume.
type resumption struct{ w *Workspace }

func (r resumption) resume(ctx context.Context, spec Spec) error {
	if err := r.lockWriter(ctx); err != nil {
		return err
	}
	lock, err := r.w.home.lock()
	if err != nil {
		return err
	}
	defer lock.Close()
	// Another process may have committed or resumed it.
	if err := r.w.load(); err != nil {
		return err
	}
	if r.w.meta.Caller.UID != spec.Caller.UID {
		return fmt.Errorf("%w: it is another user's", ErrState)
	}
	if err := r.takeSource(spec.Source); err != nil {
		return err
	}
	switch m := r.w.meta; {
	case m.State.recordOnly():
		return r.begin(spec)
	case m.State != Frozen:
		return m.notFrozen()
	case !m.Resumable || len(m.Dropped) > 0 || sys.Rootless():
		// A layer in memory was saved for a review only.
		return fmt.Errorf("%w: it is kept for a review, and for nothing else", ErrState)
	}
	return r.again(ctx, spec)
}

// lockWriter takes the lock of the process that writes to the layer. The last such process releases
// it shortly after Keep, so lockWriter waits for up to ten seconds. The error is ErrActive if a
// jail may write to the layer.
func (r resumption) lockWriter(ctx context.Context) error {
	return retry(ctx, ErrActive, func() error {
		err := sys.Lock(r.w.home.dir, true)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return err
		}
		if err := r.w.load(); err != nil {
			return err
		}
		if r.w.meta.State == Prepared || r.w.meta.State == Active {
			return ErrActive
		}
		return errRetry
	})
}

const (
	// lockPatience bounds the wait for a lock of another process or the kernel.
	lockPatience = 10 * time.Second
	// lockPoll is the time between two attempts.
	lockPoll = 5 * time.Millisecond
)

// errRetry is returned by the function that retry calls, to be called again.
var errRetry = errors.New("not yet")

// retry calls try until it returns nil or another error than errRetry, and returns that. After
// lockPatience, or when ctx ends, it returns late.
func retry(ctx context.Context, late error, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	for {
		err := try()
		if err != errRetry {
			return err
		}
		if !tick.Wait(ctx.Done(), lockPoll) {
			return late
		}
	}
}

// takeSource makes the given directory the real one. It returns an error if the directory may not
// have a shadow (ErrSource) or is not that of the workspace (ErrConflict).
func (r resumption) takeSource(given *os.File) error {
	now := &Workspace{store: r.w.store, meta: meta{ID: r.w.meta.ID, Caller: r.w.meta.Caller}}
	if err := (preparation{now}).takeSource(given); err != nil {
		return errors.Join(err, closeFiles(&now.source))
	}
	r.w.source = now.source
	same, err := r.w.meta.isSource(now.source)
	if err == nil && !same {
		err = fmt.Errorf("%w: %s is another directory by now", ErrConflict, Name(now.meta.Path))
	}
	return err
}

// begin makes an empty layer for a workspace whose layer is gone.
func (r resumption) begin(spec Spec) error {
	return r.orAsBefore(func() (err error) {
		m := &r.w.meta
		m.Bytes, m.Inodes, m.Hide = spec.Bytes&^4095, spec.Inodes, spec.Hide
		m.Resumable, m.State, m.From = spec.Resumable, Prepared, ""
		m.Touched, m.Dropped, m.Damaged, m.Indexes = nil, nil, nil, nil
		m.Prepared = time.Now().UTC().Format(time.RFC3339Nano)
		p := preparation{r.w}
		if err := p.checkLimits(); err != nil {
			return err
		}
		if m.Since, err = r.sinceCommit(); err != nil {
			return err
		}
		if m.Boot, err = sys.BootID(); err != nil {
			return err
		}
		// These files belong to the old layer. An interrupted commit may have left the image.
		for _, name := range []string{takenName, baseIndex, "upper.img"} {
			err = errors.Join(err, removeAt(r.w.home.dir, name))
		}
		if err != nil {
			return err
		}
		return p.prepareLayer()
	})
}

// orAsBefore calls f, which makes a layer. If f fails, it removes the layer and restores meta.json.
func (r resumption) orAsBefore(f func() error) error {
	w, before := r.w, r.w.meta
	err := f()
	if err != nil {
		w.meta = before
		err = errors.Join(err, w.save(true), removeAt(w.home.dir, "upper.img"),
			w.store.unreserve(w.meta.ID))
	}
	return err
}

// sinceCommit returns a time later than all ctimes that the last commit left, so that these do not
// count as changes by others. The clock of ctimes has the resolution of the timer tick, so
// sinceCommit may wait for the next tick, at most 10 ms.
func (r resumption) sinceCommit() (sys.Time, error) {
	written, err := sys.LstatAt(r.w.home.dir, "meta.json")
	if err != nil {
		return sys.Time{}, err
	}
	return tickAfter(written.Ctime)
}

// tickAfter waits until the clock of ctimes is later than t, and returns its time. Later writes
// have no earlier ctime. It waits only for maxTicks attempts, since the clock may have been set
// back.
func tickAfter(t sys.Time) (sys.Time, error) {
	for tries := 0; ; tries++ {
		now, err := sys.CoarseNow()
		if err != nil || now.Compare(t) > 0 || tries == maxTicks {
			return now, err
		}
		time.Sleep(time.Millisecond / 2)
	}
}

// maxTicks bounds how often tickAfter reads the clock, 0.5 ms apart. A tick takes 10 ms at most.
const maxTicks = 100

// again opens the existing layer of the workspace for writing.
func (r resumption) again(ctx context.Context, spec Spec) error {
	w := r.w
	m := w.meta
	if m.Bytes != spec.Bytes&^4095 || m.Inodes != spec.Inodes || !slices.Equal(m.Hide, spec.Hide) {
		return ErrShape
	}
	boot, err := sys.BootID()
	if err != nil || m.Boot != "" && m.Boot != boot {
		return errors.Join(err, errLost)
	}
	if err := (opening{w}).openLayers(); err != nil {
		return err
	}
	if m.Bare {
		return r.above(spec, boot)
	}
	if err := r.lockImage(ctx); err != nil {
		return err
	}
	st, err := sys.Fstat(w.layer.image)
	if err == nil && (st.Perm() == damagedMode || len(m.Damaged) > 0) {
		err = fmt.Errorf("%w: a part of it did not reach the disk", ErrState)
	}
	if err != nil {
		return errors.Join(err, w.store.unreserve(m.ID))
	}
	if err = r.writable(boot); err == nil {
		w.meta.State, w.meta.Resumable = Prepared, spec.Resumable
		err = w.save(false)
	}
	if err != nil {
		err = errors.Join(err, r.undo(m), w.store.unreserve(m.ID))
	}
	return err
}

// above makes an empty layer above the frozen ones.
func (r resumption) above(spec Spec, boot string) error {
	return r.orAsBefore(func() error {
		w := r.w
		// The boot id is on the disk before anything is written to the layer.
		w.meta.Boot = boot
		if err := errors.Join(w.save(true), removeAt(w.home.dir, "upper.img")); err != nil {
			return err
		}
		w.meta.State, w.meta.Resumable = Prepared, spec.Resumable
		return preparation{w}.prepareLayer()
	})
}

// undo restores the meta.json of before. If that says that the layer is valid in any boot, undo
// first syncs the layer to the disk. If that fails, the meta.json keeps the id of this boot.
func (r resumption) undo(before meta) error {
	w := r.w
	boot := w.meta.Boot
	w.meta = before
	var err error
	if before.Boot == "" {
		if w.layer.mount != nil {
			err = errors.Join(w.layer.sync(), sys.MakeReadOnly(w.layer.mount))
		}
		if err = errors.Join(err, w.layer.image.Sync()); err != nil {
			w.meta.Boot = boot
		}
	}
	return errors.Join(err, w.save(true))
}

// lockImage opens the image for writing, takes its lock, and reserves the disk that the layer may
// still take.
func (r resumption) lockImage(ctx context.Context) error {
	w := r.w
	late := fmt.Errorf("%w: a review has its layer open", ErrBusy)
	return retry(ctx, late, func() error {
		dir, unlock, err := w.store.lockLive()
		if err != nil {
			return err
		}
		err = r.tryImage(dir)
		// The reservation and the lock of the image are enough for other processes.
		unlock()
		if err != nil {
			err = errors.Join(err, closeFiles(&w.layer.image))
		}
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return errRetry
		}
		return err
	})
}

func (r resumption) tryImage(live *os.File) (err error) {
	w := r.w
	if w.layer.image, err = sys.OpenBeneath(w.home.dir, "upper.img", os.O_RDWR, 0); err != nil {
		return err
	}
	if err := sys.Lock(w.layer.image, true); err != nil {
		return err
	}
	st, err := sys.Fstat(w.layer.image)
	if err != nil {
		return err
	}
	err = w.store.promise(live, w.meta.ID, st.Size, w.meta.Bytes, st.Blocks*512)
	if err != nil {
		err = errors.Join(err, w.store.unreserve(w.meta.ID))
	}
	return err
}

// writable mounts the layer for writing, after it has saved the boot id.
func (r resumption) writable(boot string) error {
	// The boot id is on the disk before anything is written: in another boot the layer is invalid.
	r.w.meta.Boot = boot
	if err := r.w.save(true); err != nil {
		return err
	}
	if err := r.w.layer.mountImage(); err != nil {
		return err
	}
	if err := r.w.layer.renewWork(); err != nil {
		return err
	}
	return r.hideDeleted()
}

// renewWork empties the overlay's work directory. In it a volatile mount leaves a mark that forbids
// to mount the layer again, since writes may not be on the disk ("Volatile mount" in
// Documentation/filesystems/overlayfs.rst). Keep has synced them, or the host was not restarted.
func (l *layer) renewWork() error {
	root, err := sys.OpenRoot(l.mount)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.RemoveAll("work"); err != nil {
		return err
	}
	return sys.MkdirAt(l.mount, "work", 0o700)
}

// hideDeleted makes whiteouts for files that were committed and then deleted by the tool. The
// kernel made none in a directory that the tool itself had made, but the real directory has the
// files.
func (r resumption) hideDeleted() error {
	t, err := r.w.home.readTaken()
	if err != nil || len(t.all) == 0 {
		return err
	}
	upper, err := r.w.layer.openOwn()
	if err != nil {
		return err
	}
	defer upper.Close()
	paths := make([]string, 0, len(t.all))
	for path, s := range t.all {
		if path != "" && s.Shadow != nil && s.Real != nil {
			paths = append(paths, string(path))
		}
	}
	slices.Sort(paths)
	for _, path := range paths {
		if err := hidePath(upper, path); err != nil {
			return fmt.Errorf("%s: %w", Name(path), err)
		}
	}
	return nil
}

// hidePath makes a whiteout at a path, if the layer has the parent directory but not the path.
func hidePath(upper *os.File, path string) error {
	parent, name := split(path)
	dir, err := openDir(upper, parent)
	if missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	if _, err = sys.LstatAt(dir, name); errors.Is(err, fs.ErrNotExist) {
		err = sys.WhiteoutAt(dir, name)
	}
	return err
}

// SetResumable sets whether Resume may open the frozen workspace for writing again. It waits up to
// ten seconds for a commit in progress (ErrBusy).
func (w *Workspace) SetResumable(yes bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	lock, err := w.home.lockInTime()
	if err != nil {
		return w.wrap("keep", err)
	}
	defer lock.Close()
	if err := w.load(); err != nil || w.meta.Resumable == yes {
		return w.wrap("keep", err)
	}
	w.meta.Resumable = yes
	return w.wrap("keep", w.save(true))
}

// lockInTime takes the lock of the workspace. It waits up to ten seconds for it (ErrBusy).
func (home folder) lockInTime() (lock *os.File, err error) {
	err = retry(context.Background(), ErrBusy, func() (err error) {
		if lock, err = home.lock(); errors.Is(err, ErrBusy) {
			return errRetry
		}
		return err
	})
	return lock, err
}
