package workspace

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// Freeze makes the upper layer's file system read-only for everyone, whatever mounts of it there still are. It is called when the
// jail's processes are gone; ErrActive says that something still has a file open for writing, and that nothing changed.
func (w *Workspace) Freeze() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.meta.State == Frozen || w.meta.State == Committed:
		return nil
	case w.mount == nil:
		return w.wrap("freeze", fmt.Errorf("%w: it is %s, of another process", ErrState, w.meta.State))
	}
	if err := sys.MakeReadOnly(w.mount); err != nil {
		if errors.Is(err, syscall.EBUSY) {
			err = ErrActive
		}
		return w.wrap("freeze", err)
	}
	w.meta.State = Frozen
	return w.wrap("freeze", errors.Join(sys.Lock(w.image, false), w.save(false)))
}

// Keep makes a frozen workspace outlive a power loss.
func (w *Workspace) Keep() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.meta.State != Frozen {
		return w.wrap("keep", fmt.Errorf("%w: it is %s", ErrState, w.meta.State))
	}
	if w.image == nil {
		return nil // of an earlier process, which kept it
	}
	if w.memory {
		if err := w.keepMemory(); err != nil {
			return w.wrap("keep", err)
		}
	}
	w.meta.Boot = "" // what is on the disk now is whole, in any boot
	return w.wrap("keep", errors.Join(w.saveBases(), w.image.Sync(), w.save(true), w.store.dir.Sync()))
}

// open makes a frozen workspace ready to be read: its upper layer, which is mounted anew, read-only, where an earlier process
// froze it, and the real directory.
func (w *Workspace) open(as Caller) error {
	switch {
	case w.meta.State == Committed:
		return nil
	case w.meta.State == Prepared || w.meta.State == Active:
		return ErrActive
	case w.mount == nil:
		if err := w.mountAgain(); err != nil {
			return err
		}
	}
	return w.openSource(as)
}

// openUpper opens the root of the upper layer of a workspace that is open.
func (w *Workspace) openUpper() (*os.File, error) { return sys.OpenSubdir(w.mount, "upper") }

func (w *Workspace) mountAgain() (err error) {
	if boot, err := sys.BootID(); err != nil || w.meta.Boot != "" && w.meta.Boot != boot {
		return errors.Join(err, ErrLost)
	}
	if w.image, err = sys.OpenBeneath(w.dir, "upper.img", os.O_RDONLY, 0); err != nil {
		return err
	}
	if err := sys.Lock(w.image, false); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = ErrActive
		}
		return err
	}
	if sys.Rootless() {
		return w.readMemory()
	}
	if w.loop, err = sys.AttachLoop(w.image, true); err != nil {
		return err
	}
	w.mount, err = sys.MountExt4(w.loop, true)
	return err
}

// openSource opens the real directory, with the caller's rights where it has to be found again by its path, and makes sure that it is
// the one that was prepared.
func (w *Workspace) openSource(as Caller) error {
	if w.source != nil {
		return nil
	}
	err := as.do(func() (err error) {
		w.source, err = sys.OpenDirPath(w.meta.Path)
		return err
	})
	if err != nil {
		return err
	}
	same, err := w.isSource(w.source)
	if err == nil && !same {
		err = fmt.Errorf("%w: %s is another directory by now", ErrConflict, Name(w.meta.Path))
	}
	if err != nil {
		w.source.Close()
		w.source = nil
	}
	return err
}

// isSource reports whether a directory is the one that was prepared. In another boot its file system may have another device number; then
// the time at which the directory was made stands for it.
func (w *Workspace) isSource(dir *os.File) (bool, error) {
	st, err := sys.Fstat(dir)
	if err != nil || st.Ino != w.meta.Ino {
		return false, err
	}
	if st.Dev == w.meta.Dev {
		return true, nil
	}
	boot, err := sys.BootID()
	if err != nil || w.meta.DevBoot == "" || w.meta.DevBoot == boot {
		return false, err
	}
	born, _, err := sys.Birth(dir)
	return born == w.meta.Born, err
}
