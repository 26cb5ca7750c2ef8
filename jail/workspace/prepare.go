package workspace

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// A Spec says what to prepare.
type Spec struct {
	ID string // a file name: letters, digits, dots, dashes and underscores, beginning with a letter or digit
	// Source is the real directory, opened with the caller's rights; O_PATH will do. It stays the caller's to close.
	Source *os.File
	Bytes  int64 // size of the upper layer's file system, metadata included: the disk never pays more
	Inodes int64 // how many files, directories and deletions it may hold
	Caller Caller
	// Hide are patterns of names, as in policy.Names, that are not there for the tool. With any, Prepare walks the names of the directory.
	Hide []string
}

// Prepare makes a workspace with an empty upper layer. What it costs does not depend on what is in the directory, with which it does nothing.
//
// Refused are (ErrSource) a directory that holds the store itself, one with mounts below it, since an overlay does not show them and a tool
// would see what they cover, and one of another user: the tool runs with the rights of the directory's owner, so it could
// read for the caller what the caller cannot; root may. ErrNoSpace: the store's file system has less room than Bytes, now;
// several workspaces together may promise more than there is.
func (s *Store) Prepare(spec Spec) (*Workspace, error) {
	if checkID(spec.ID) != nil {
		return nil, fmt.Errorf("workspace %q: is no id", spec.ID)
	}
	w := &Workspace{store: s, meta: meta{ID: spec.ID, State: Prepared, Caller: spec.Caller, Hide: spec.Hide,
		Bytes: spec.Bytes &^ 4095, Inodes: spec.Inodes, Prepared: time.Now().UTC().Format(time.RFC3339Nano)}}
	if err := w.prepare(spec.Source); err != nil {
		return nil, w.wrap("prepare", errors.Join(err, w.close()))
	}
	return w, nil
}

func (w *Workspace) prepare(source *os.File) (err error) {
	if err := w.checkLimits(w.store.dir); err != nil {
		return err
	}
	if w.meta.Since, err = sys.CoarseNow(); err != nil {
		return err
	}
	if w.meta.Boot, err = sys.BootID(); err != nil {
		return err
	}
	if err := w.takeSource(source); err != nil {
		return err
	}
	if err := sys.MkdirAt(w.store.dir, w.meta.ID, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			err = ErrExists
		}
		return err
	}
	if err := w.prepareLayer(); err != nil {
		return errors.Join(err, w.store.sweep(w.meta.ID))
	}
	return nil
}

func (w *Workspace) checkLimits(store *os.File) error {
	m := &w.meta
	if m.Bytes < minBytes || m.Inodes < 1 || m.Inodes > 1<<31 {
		return fmt.Errorf("%w: %d bytes and %d files; the least is %s and 1 file", ErrLimits, m.Bytes, m.Inodes, size(minBytes))
	}
	if tables := (m.Inodes + inodesOfOurs) * inodeSize; tables > m.Bytes/2 {
		return fmt.Errorf("%w: %d files take %s for themselves, more than half of %s", ErrLimits, m.Inodes, size(tables), size(m.Bytes))
	}
	free, err := sys.FreeBytes(store)
	if err != nil {
		return err
	}
	if free < m.Bytes {
		return fmt.Errorf("%w: the state directory %s has %s left, less than the limit of %s", ErrNoSpace, Name(store.Name()), size(free), size(m.Bytes))
	}
	return nil
}

func (w *Workspace) takeSource(given *os.File) error {
	source, err := sys.Reopen(given, syscall.O_DIRECTORY|sys.OPath)
	if err != nil {
		return err
	}
	w.source = source
	st, err := sys.Fstat(source)
	if err != nil {
		return err
	}
	path, err := sys.PathOf(source)
	if err != nil {
		return err
	}
	m := &w.meta
	m.Path, m.Dev, m.Ino, m.Mode, m.UID, m.GID, m.DevBoot = path, st.Dev, st.Ino, st.Perm(), st.UID, st.GID, m.Boot
	if m.Born, _, err = sys.Birth(source); err != nil {
		return err
	}
	if m.Caller.UID != 0 && m.Caller.UID != st.UID {
		return fmt.Errorf("%w: %s belongs to uid %d, not to uid %d", ErrSource, Name(path), st.UID, m.Caller.UID)
	}
	inside, err := holds(st, w.store.dir)
	if err != nil {
		return err
	}
	if inside {
		return fmt.Errorf("%w: %s holds the state directory of jail itself", ErrSource, Name(path))
	}
	mounts, err := sys.MountsBelow(path)
	if err != nil {
		return err
	}
	if len(mounts) > 0 {
		return fmt.Errorf("%w: %s is a mount of its own below it, and a shadow shows one file system: take that directory, or unmount it",
			ErrSource, Name(mounts[0]))
	}
	return nil
}

// holds reports whether dir is the directory that st describes or beneath it.
func holds(st sys.Stat, dir *os.File) (bool, error) {
	at, err := sys.Reopen(dir, syscall.O_DIRECTORY|sys.OPath)
	if err != nil {
		return false, err
	}
	defer func() { at.Close() }()
	for {
		here, err := sys.Fstat(at)
		if err != nil {
			return false, err
		}
		if here.Dev == st.Dev && here.Ino == st.Ino {
			return true, nil
		}
		up, err := sys.OpenParent(at)
		if err != nil {
			return false, err
		}
		at.Close()
		at = up
		if above, err := sys.Fstat(at); err != nil || above.Dev == here.Dev && above.Ino == here.Ino {
			return false, err // the root is its own parent
		}
	}
}

func (w *Workspace) prepareLayer() (err error) {
	if w.dir, err = sys.OpenSubdir(w.store.dir, w.meta.ID); err != nil {
		return err
	}
	var hidden *hiding
	if len(w.meta.Hide) > 0 {
		if hidden, err = findHidden(w.source, w.meta.Hide); err != nil {
			return fmt.Errorf("names to hide: %w", err)
		}
	}
	if err := w.newLayer(w.meta.Inodes + hidden.inodes()); err != nil {
		return err
	}
	// An overlay's root has the owner and mode of the upper layer's, whatever the lower one has.
	for _, d := range []struct {
		name     string
		mode     uint32
		uid, gid uint32
	}{{"upper", w.meta.Mode, w.meta.UID, w.meta.GID}, {"work", 0o700, 0, 0}} {
		d.uid, d.gid = ownerOf(d.uid, d.gid)
		if err := sys.MkdirAt(w.mount, d.name, 0o700); err != nil {
			return err
		}
		f, err := sys.OpenSubdirPath(w.mount, d.name)
		if err != nil {
			return err
		}
		err = errors.Join(sys.Chown(f, d.uid, d.gid), sys.Chmod(f, d.mode), f.Close())
		if err != nil {
			return err
		}
	}
	if hidden.inodes() > 0 {
		if err := hidden.make(w.mount); err != nil {
			return fmt.Errorf("names to hide: %w", err)
		}
	}
	return w.save(false)
}

// newLayer makes the file system of an empty layer, and holds the lock that says that this process uses it.
func (w *Workspace) newLayer(inodes int64) (err error) {
	if sys.Rootless() {
		if w.image, err = sys.OpenBeneath(w.dir, "upper.img", os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
			return err
		}
		if err := sys.Lock(w.image, true); err != nil {
			return err
		}
		return w.newMemory(inodes)
	}
	if w.image, err = w.store.newImage(w.dir, w.meta.Bytes, inodes); err != nil {
		return err
	}
	if err := sys.Lock(w.image, true); err != nil {
		return err
	}
	if w.loop, err = sys.AttachLoop(w.image, false); err != nil {
		return err
	}
	w.mount, err = sys.MountExt4(w.loop, false)
	return err
}

// Lower returns a detached read-only mount of the real directory, for Attach in a jail's mount namespace. It must be called in the
// mount namespace in which Source was opened. The caller closes it.
func (w *Workspace) Lower() (*os.File, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.activate(); err != nil {
		return nil, w.wrap("lower layer", err)
	}
	f, err := CloneLower(w.source)
	return f, w.wrap("lower layer", err)
}

// CloneLower is Lower for a directory that is to be read and has no workspace.
func CloneLower(source *os.File) (*os.File, error) { return sys.CloneMount(source) }

// Upper returns a detached mount of the upper layer for Attach. The caller closes it as soon as the jail's starter has it: while it is
// open the layer does not freeze for sure.
func (w *Workspace) Upper() (*os.File, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.activate(); err != nil {
		return nil, w.wrap("upper layer", err)
	}
	if w.memory {
		f, err := sys.CloneOf(w.mount)
		return f, w.wrap("upper layer", err)
	}
	f, err := sys.MountExt4(w.loop, false)
	return f, w.wrap("upper layer", err)
}

func (w *Workspace) activate() error {
	switch {
	case w.loop == nil && !w.memory || w.meta.State != Prepared && w.meta.State != Active:
		return fmt.Errorf("%w: it is %s", ErrState, w.meta.State)
	case w.meta.State == Active:
		return nil
	}
	w.meta.State = Active
	return w.save(false)
}

func randomName() string {
	var b [8]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// size formats a number of bytes for a sentence.
func size(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	v, i := float64(n)/1024, 0
	for ; v >= 1024; i++ {
		v /= 1024
	}
	return fmt.Sprintf("%.1f %ciB", v, units[i])
}
