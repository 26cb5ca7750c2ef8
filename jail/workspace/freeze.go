package workspace

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// Freeze makes the upper layer's file system read-only for all its mounts. The jail's processes
// must have ended. After ErrActive, which means that a file is still open for writing, nothing
// changed. After a *DamageError the layer is frozen, and some of its data is lost.
func (w *Workspace) Freeze() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.meta.State == Frozen || w.meta.State.recordOnly():
		return nil
	case w.layer.mount == nil:
		return w.wrap("freeze",
			fmt.Errorf("%w: it is %s, of another process", ErrState, w.meta.State))
	}
	if err := w.layer.sync(); err != nil {
		return w.wrap("freeze", w.freezeDamaged(err))
	}
	if err := sys.MakeReadOnly(w.layer.mount); err != nil {
		if isLost(err) {
			return w.wrap("freeze", w.freezeDamaged(err))
		}
		if errors.Is(err, syscall.EBUSY) {
			err = ErrActive
		}
		return w.wrap("freeze", err)
	}
	if err := w.settled(); err != nil {
		return w.wrap("freeze", err)
	}
	return w.wrap("freeze",
		errors.Join(sys.Lock(w.layer.image, false), w.save(false), w.store.unreserve(w.meta.ID)))
}

// settled gives a workspace that has just been frozen its state. A commit while it was live may
// have been recorded by another of the store's objects, or wait for Recover.
func (w *Workspace) settled() error {
	if w.meta.State == Committing || len(w.meta.Commits) > 0 {
		if err := w.load(); err != nil {
			return err
		}
	}
	if w.meta.State == Committing {
		w.meta.From = Frozen
		return nil
	}
	w.meta.State = Frozen
	return nil
}

// Keep makes a frozen workspace survive a power failure.
func (w *Workspace) Keep() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.meta.State != Frozen && w.meta.State != Committing {
		return w.wrap("keep", fmt.Errorf("%w: it is %s", ErrState, w.meta.State))
	}
	if w.layer.image == nil {
		// Of an earlier process, which kept it.
		return nil
	}
	if w.layer.memory {
		if err := w.layer.keepMemory(); err != nil {
			return w.wrap("keep", err)
		}
	}
	// What is on the disk now is whole, in any boot.
	w.meta.Boot = ""
	return w.wrap("keep",
		errors.Join(w.basis.save(w), w.layer.image.Sync(), w.save(true), w.store.dir.Sync()))
}

// opening opens what a workspace is read from: its layer and its real directory.
type opening struct{ w *Workspace }

// open opens the real directory and the upper layer of a frozen workspace for reading. It mounts a
// layer that an earlier process froze, read-only.
func (o opening) open(as Caller) error {
	switch {
	case o.w.meta.State.recordOnly():
		return nil
	case o.w.meta.State == Prepared || o.w.meta.State == Active:
		return ErrActive
	case o.w.layer.mount == nil && (!o.w.meta.Bare || len(o.w.layer.frozen) == 0):
		if err := o.mountAgain(); err != nil {
			return err
		}
	}
	return o.openSource(as)
}

// openFor is open, or for a live workspace a check that its layer is this process's own.
func (o opening) openFor(live bool) error {
	as := o.w.meta.Caller
	if !live || o.w.meta.State == Frozen {
		return o.open(as)
	}
	if o.w.layer.mount == nil {
		return ErrActive
	}
	return o.openSource(as)
}

// locked is openFor with the lock of the workspace, for one that may be committed. Closing the file
// releases the lock.
func (o opening) locked(live bool) (lock *os.File, err error) {
	if lock, err = o.w.home.lock(); err != nil {
		return nil, err
	}
	// Another process may have committed or discarded it.
	if err = o.w.load(); err == nil {
		err = o.w.meta.reviewable(live)
	}
	if err == nil {
		err = o.openFor(live)
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	return lock, nil
}

// reviewable returns an error if the state of the workspace allows no commit.
func (m meta) reviewable(live bool) error {
	if m.State == Frozen || live && (m.State == Active || m.State == Prepared) {
		return nil
	}
	return m.notFrozen()
}

func (o opening) mountAgain() (err error) {
	if boot, err := sys.BootID(); err != nil || o.w.meta.Boot != "" && o.w.meta.Boot != boot {
		return errors.Join(err, errLost)
	}
	l := &o.w.layer
	if err := o.openLayers(); err != nil || o.w.meta.Bare {
		return err
	}
	if l.image, err = sys.OpenBeneath(o.w.home.dir, "upper.img", os.O_RDONLY, 0); err != nil {
		return err
	}
	if err := lockOr(ErrActive, l.image, false); err != nil {
		return err
	}
	if sys.Rootless() {
		return l.readMemory(o.w.meta.Bytes, o.w.meta.Inodes)
	}
	if l.loop, err = sys.AttachLoop(l.image, true); err != nil {
		return err
	}
	if l.mount, err = sys.MountExt4(l.loop, true); err != nil {
		if isNoFileSystem(err) {
			err = fmt.Errorf("%w: upper.img: %w", ErrRecord, err)
		}
		return err
	}
	return l.lookForDamage(o.w.meta.Damaged)
}

// openSource opens the real directory, with the caller's rights if it must be found by its path,
// and checks that it is the prepared one.
func (o opening) openSource(as Caller) error {
	if o.w.source != nil {
		return nil
	}
	err := as.do(func() (err error) {
		o.w.source, err = sys.OpenDirPath(o.w.meta.Path)
		return err
	})
	if err != nil {
		return err
	}
	same, err := o.w.meta.isSource(o.w.source)
	if err == nil && !same {
		err = fmt.Errorf("%w: %s is another directory by now", ErrConflict, Name(o.w.meta.Path))
	}
	if err != nil {
		o.w.source.Close()
		o.w.source = nil
	}
	return err
}

// isSource reports whether a directory is the prepared one. In another boot its file system may
// have another device number; then the creation time of the directory identifies it.
func (m meta) isSource(dir *os.File) (bool, error) {
	st, err := sys.Fstat(dir)
	if err != nil || st.Ino != m.Ino {
		return false, err
	}
	if st.Dev == m.Dev {
		return true, nil
	}
	boot, err := sys.BootID()
	if err != nil || m.DevBoot == "" || m.DevBoot == boot {
		return false, err
	}
	born, err := sys.Birth(dir)
	return born == m.Born, err
}
