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

// Resume opens a workspace for writing again, whose jails have ended. A resumable frozen one has
// its layer as it was left. One whose layer is gone, because all of it was committed or reverted,
// gets an empty layer, and keeps what its commits replaced.
//
// The limits and the hidden names of spec must be those of the layer (ErrShape), and its directory
// the same (ErrConflict). A layer that is damaged is refused (ErrState): who writes to it again
// would not see what is lost. So is a layer of a user's daemon, which is memory while it is written,
// and a workspace that was prepared for another user than that of spec. Resume waits up to ten
// seconds for a review that has the layer open (ErrBusy), and for the process that wrote to it last
// (ErrActive). After an error the workspace is as it was.
func (s *Store) Resume(ctx context.Context, spec Spec) (*Workspace, error) {
	w, err := s.Get(spec.ID)
	if err != nil {
		return nil, err
	}
	if err := (resumption{w}).resume(ctx, spec); err != nil {
		// A loop device that is still attached keeps the lock of the image.
		return nil, w.wrap("resume", errors.Join(err, w.Close()))
	}
	return w, nil
}

// resumption is the work of Store.Resume, step by step.
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
		// A layer in memory was written down for a review.
		return fmt.Errorf("%w: it is kept for a review, and for nothing else", ErrState)
	}
	return r.again(ctx, spec)
}

// lockWriter takes the lock that says that the process that writes to the layer lives. The process
// that wrote last releases it a moment after the layer is kept, so that lockWriter waits for that.
// The error is ErrActive if a jail may write to the layer.
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
	// lockPatience bounds the wait for what another process, or the kernel, is about to release.
	lockPatience = 10 * time.Second
	// lockPoll is how often it is tried again.
	lockPoll = 5 * time.Millisecond
)

// errRetry is returned to retry by what it tries, if that is worth another try.
var errRetry = errors.New("not yet")

// retry calls try until it returns another error than errRetry. After lockPatience, or when ctx
// ends, the error is late.
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

// takeSource takes the given directory as the real one, if it may have a shadow and is the one that
// the workspace was prepared for.
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

// begin makes an empty layer in place of the one that is gone.
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
		// Those of the layer that is gone. An image may be left where a commit was cut off at its
		// very end.
		for _, name := range []string{takenName, baseIndex, "upper.img"} {
			err = errors.Join(err, removeAt(r.w.home.dir, name))
		}
		if err != nil {
			return err
		}
		return p.prepareLayer()
	})
}

// orAsBefore runs f, which makes an empty layer. If f fails, the workspace is as it was without one.
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

// sinceCommit returns a time that is later than the ctimes that the last commit left, which would
// be changes by others otherwise. It is the clock of the timer tick, so sinceCommit waits for the
// next one, at most 10 ms, if the commit wrote meta.json, its last file, in this one.
func (r resumption) sinceCommit() (sys.Time, error) {
	written, err := sys.LstatAt(r.w.home.dir, "meta.json")
	if err != nil {
		return sys.Time{}, err
	}
	return tickAfter(written.Ctime)
}

// tickAfter waits until the clock of ctimes is later than t, and returns its time: what is written
// from here on has a ctime that is not earlier. A clock that was set back is not waited for.
func tickAfter(t sys.Time) (sys.Time, error) {
	for tries := 0; ; tries++ {
		now, err := sys.CoarseNow()
		if err != nil || now.Compare(t) > 0 || tries == maxTicks {
			return now, err
		}
		time.Sleep(time.Millisecond / 2)
	}
}

// maxTicks bounds how often tickAfter looks at the clock, of which a tick takes 10 ms at most.
const maxTicks = 100

// again opens the layer that is there.
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

// above makes an empty layer above frozen ones.
func (r resumption) above(spec Spec, boot string) error {
	return r.orAsBefore(func() error {
		w := r.w
		// On the disk before anything is written to the layer, as for one that is there.
		w.meta.Boot = boot
		if err := errors.Join(w.save(true), removeAt(w.home.dir, "upper.img")); err != nil {
			return err
		}
		w.meta.State, w.meta.Resumable = Prepared, spec.Resumable
		return preparation{w}.prepareLayer()
	})
}

// undo gives the workspace its meta of before. What was written to the layer since reaches the disk
// before a meta that relies on it in any boot. If it does not, the meta of this boot stays.
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
		// With the reservation and the lock of the image others know what it may take.
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

// writable mounts the layer for writing.
func (r resumption) writable(boot string) error {
	// On the disk before anything is written to the layer: in another boot it is not relied on.
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

// renewWork empties the overlay's work directory. A mark in it forbids to mount the layer again,
// since the overlay does not write to the disk what the tool asks it to ("Volatile mount" in
// Documentation/filesystems/overlayfs.rst). Keep did that, or the host has been up since.
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

// hideDeleted makes whiteouts for files that were committed, and that the tool deleted afterwards:
// the kernel made none in a directory that was the tool's own, and the real directory has the
// committed files.
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

// hidePath makes a whiteout of a path that the layer does not have, in a directory that it has.
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

// SetResumable says whether Resume may open the workspace for writing again once it is frozen. It
// waits up to ten seconds for a commit that is under way (ErrBusy).
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

// lockInTime takes the lock of the workspace. It waits up to ten seconds for a commit that is under
// way, or a note of another part of the daemon (ErrBusy).
func (home folder) lockInTime() (lock *os.File, err error) {
	err = retry(context.Background(), ErrBusy, func() (err error) {
		if lock, err = home.lock(); errors.Is(err, ErrBusy) {
			return errRetry
		}
		return err
	})
	return lock, err
}
