package workspace

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// Spec says which workspace to prepare or resume.
type Spec struct {
	// ID is a file name: letters, digits, dots, dashes and underscores, beginning with a letter or
	// digit.
	ID string
	// Source is the real directory, opened with the caller's rights; O_PATH suffices. The caller
	// closes it.
	Source *os.File
	// Bytes bounds the writes to the upper layer; the tables of its file system come on top.
	Bytes int64
	// Inodes bounds the files, directories and deletions in it.
	Inodes int64
	Caller Caller
	// Hide are patterns of names to hide from tools, as in policy.Names. With any, Prepare lists
	// all names in the directory.
	Hide []string
	// Resumable says that Resume may open the workspace for writing again after Freeze.
	Resumable bool
}

// Prepare makes a workspace with an empty upper layer. It does not read the content of the
// directory, so the time does not depend on it.
//
// It refuses (ErrSource) a directory that holds the store itself; one with mounts below it, since
// an overlay does not show them and a tool would see what they cover; and one of another user,
// unless the caller is root: the tool runs with the rights of the directory's owner, so it could
// read for the caller what the caller cannot. ErrNoSpace means that the store's file system has
// less free space than all live layers, with this one, may still take.
func (s *Store) Prepare(spec Spec) (*Workspace, error) {
	if checkID(spec.ID) != nil {
		return nil, fmt.Errorf("workspace %q: is no id", spec.ID)
	}
	w := &Workspace{store: s, meta: meta{ID: spec.ID, State: Prepared,
		Caller: spec.Caller, Hide: spec.Hide, Bytes: spec.Bytes &^ 4095, Inodes: spec.Inodes,
		Resumable: spec.Resumable, Prepared: time.Now().UTC().Format(time.RFC3339Nano)}}
	if err := (preparation{w}).prepare(spec.Source); err != nil {
		return nil, w.wrap("prepare", errors.Join(err, w.Close()))
	}
	return w, nil
}

// preparation has the steps of Store.Prepare.
type preparation struct{ w *Workspace }

func (p preparation) prepare(source *os.File) (err error) {
	if err := p.checkLimits(); err != nil {
		return err
	}
	if p.w.meta.Since, err = sys.CoarseNow(); err != nil {
		return err
	}
	if p.w.meta.Boot, err = sys.BootID(); err != nil {
		return err
	}
	if err := p.takeSource(source); err != nil {
		return err
	}
	if p.w.home.dir, err = p.w.store.makeDir(p.w.meta.ID); err != nil {
		return err
	}
	if err := p.prepareLayer(); err != nil {
		return errors.Join(err, p.w.store.sweep(p.w.meta.ID), p.w.store.unreserve(p.w.meta.ID))
	}
	return nil
}

// makeDir makes a directory in the store and locks it as long as it is open. The lock shows that
// the process lives. The error is errExists if the name exists.
func (s *Store) makeDir(name string) (dir *os.File, err error) {
	release, err := s.hold(false)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := sys.MkdirAt(s.dir, name, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			err = errExists
		}
		return nil, err
	}
	if dir, err = sys.OpenSubdir(s.dir, name); err == nil {
		err = sys.Lock(dir, true)
	}
	if err != nil {
		return nil, errors.Join(err, closeFiles(&dir), s.sweep(name))
	}
	return dir, nil
}

func (p preparation) checkLimits() error {
	m := &p.w.meta
	if m.Bytes < minBytes || m.Inodes < minInodes || m.Inodes > 1<<31 {
		return fmt.Errorf("%w: %s and %d files; the least is %s and %d files", ErrLimits,
			size(m.Bytes), m.Inodes, size(minBytes), minInodes)
	}
	return nil
}

func (p preparation) takeSource(given *os.File) error {
	source, err := sys.Reopen(given, syscall.O_DIRECTORY|sys.OPath)
	if err != nil {
		return err
	}
	p.w.source = source
	st, err := sys.Fstat(source)
	if err != nil {
		return err
	}
	path, err := sys.PathOf(source)
	if err != nil {
		return err
	}
	m := &p.w.meta
	m.Path, m.Dev, m.Ino, m.Mode, m.UID, m.GID, m.DevBoot = path, st.Dev, st.Ino, st.Perm(), st.UID,
		st.GID, m.Boot
	if m.Born, err = sys.Birth(source); err != nil {
		return err
	}
	if m.Caller.UID != 0 && m.Caller.UID != st.UID {
		// A user namespace has no names for other owners.
		if sys.Rootless() {
			return fmt.Errorf("%w: %s belongs to root or to another user, not to uid %d", ErrSource,
				Name(path), m.Caller.UID)
		}
		return fmt.Errorf("%w: %s belongs to uid %d, not to uid %d", ErrSource, Name(path), st.UID,
			m.Caller.UID)
	}
	inside, err := holds(st, p.w.store.dir)
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
		return fmt.Errorf(
			"%w: %s is a mount of its own below it, and a shadow shows one file system: take that "+
				"directory, or unmount it", ErrSource, Name(mounts[0]))
	}
	return nil
}

// holds reports whether dir is the directory with the stat st, or is below it.
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
		if above, err := sys.Fstat(at); err != nil || above.Dev == here.Dev &&
			above.Ino == here.Ino {
			// The root is its own parent.
			return false, err
		}
	}
}

func (p preparation) prepareLayer() (err error) {
	var hidden *hiding
	if len(p.w.meta.Hide) > 0 {
		if hidden, err = findHidden(p.w.source, p.w.meta.Hide); err != nil {
			return fmt.Errorf("names to hide: %w", err)
		}
		defer hidden.closeIndexes()
		p.w.meta.Indexes, p.w.warnings = hidden.roots, hidden.warnings()
	}
	bytes, inodes, err := (forking{p.w}).room()
	if err != nil {
		return err
	}
	if err := p.newLayer(bytes+hidden.bytes(), inodes+hidden.inodes()); err != nil {
		return err
	}
	mode := p.w.meta.Mode
	if len(p.w.layer.frozen) > 0 {
		st, err := sys.LstatAt(p.w.layer.frozen[0].mount, "upper")
		if err != nil {
			return err
		}
		mode = st.Perm()
	}
	// The root of an overlay has the owner and mode of the upper layer's root.
	for _, d := range []struct {
		name     string
		mode     uint32
		uid, gid uint32
	}{{"upper", mode, p.w.meta.UID, p.w.meta.GID}, {"work", 0o700, 0, 0}} {
		d.uid, d.gid = ownerOf(d.uid, d.gid)
		if err := sys.MkdirAt(p.w.layer.mount, d.name, 0o700); err != nil && (p.w.layer.memory ||
			!errors.Is(err, fs.ErrExist)) {
			return err
		}
		f, err := sys.OpenSubdirPath(p.w.layer.mount, d.name)
		if err != nil {
			return err
		}
		err = errors.Join(sys.Chown(f, d.uid, d.gid), sys.Chmod(f, d.mode), f.Close())
		if err != nil {
			return err
		}
	}
	if hidden.inodes() > 0 {
		if err := hidden.make(p.w.layer.mount); err != nil {
			return fmt.Errorf("names to hide: %w", err)
		}
	}
	p.w.meta.Bare = false
	return p.w.save(false)
}

// newLayer makes and mounts an empty layer, and locks its image.
func (p preparation) newLayer(bytes, inodes int64) (err error) {
	if err := p.newReservedImage(bytes, inodes); err != nil {
		return err
	}
	if sys.Rootless() {
		return p.w.layer.newMemory(p.w.store.dir, bytes, inodes)
	}
	p.w.made.bytes, p.w.made.inodes = bytes, inodes
	l := &p.w.layer
	if l.root != nil {
		// takeBlank has set a mounted layer.
		return nil
	}
	if err = l.mountImage(); errors.Is(err, ErrRecord) {
		// The template was damaged on the disk, so a new one is made.
		p.w.store.dropTemplates(0)
		if err = p.w.store.format(l.image, bytes, inodes); err == nil {
			err = l.mountImage()
		}
	}
	return err
}

// mountImage mounts the image, writable. It opens the root before anything is written, so that
// syncfs(2) reports all write errors.
func (l *layer) mountImage() (err error) {
	if l.loop, l.mount, err = mountLoop(l.image, false); err != nil {
		return err
	}
	if l.root, err = sys.OpenSubdir(l.mount, "."); err != nil {
		return errors.Join(err, closeFiles(&l.mount, &l.loop))
	}
	return nil
}

// mountLoop mounts an image on a loop device. The error is ErrRecord if the image is no ext4 file
// system or is damaged.
func mountLoop(image *os.File, readOnly bool) (loop, mount *os.File, err error) {
	if loop, err = sys.AttachLoop(image, readOnly); err != nil {
		return nil, nil, err
	}
	if mount, err = sys.MountExt4(loop, readOnly); err != nil {
		if isNoFileSystem(err) {
			err = fmt.Errorf("%w: upper.img: %w", ErrRecord, err)
		}
		return nil, nil, errors.Join(err, loop.Close())
	}
	return loop, mount, nil
}

// isNoFileSystem reports whether err is a mount error of ext4 for an image that is no file system
// or is damaged.
func isNoFileSystem(err error) bool {
	of := []error{syscall.EINVAL, syscall.EUCLEAN, syscall.EBADMSG, syscall.EIO}
	return slices.ContainsFunc(of, func(e error) bool { return errors.Is(err, e) })
}

// newReservedImage reserves disk space, then makes and locks the layer's image. The error is
// ErrNoSpace if there is too little space.
func (p preparation) newReservedImage(bytes, inodes int64) error {
	// A layer in memory needs space when it is kept.
	need := p.w.meta.Bytes
	if !sys.Rootless() {
		need = imageSize(bytes, inodes)
	}
	unlock, err := p.w.store.reserve(p.w.meta.ID, need, p.w.meta.Bytes, 0)
	if err != nil {
		return err
	}
	defer unlock()
	if sys.Rootless() {
		if p.w.layer.image, err = newFile(p.w.home.dir, "upper.img"); err == nil {
			err = sys.Lock(p.w.layer.image, true)
		}
	} else if !p.takeBlank(bytes, inodes) {
		p.w.layer.image, err = p.w.store.newImage(p.w.home.dir, bytes, inodes)
	}
	return err
}

// Lower returns a detached read-only mount of the real directory, for Attach in a jail's mount
// namespace. Call it in the mount namespace in which Source was opened. The caller closes it.
func (w *Workspace) Lower() (*os.File, error) {
	return locking(w, "lower layer", func() (*os.File, error) {
		if err := w.activate(); err != nil {
			return nil, err
		}
		return CloneLower(w.source)
	})
}

// CloneLower returns a detached read-only mount of a directory, as Lower does, without a workspace.
func CloneLower(source *os.File) (*os.File, error) { return sys.CloneMount(source) }

// Upper returns a detached mount of the upper layer for Attach. The caller closes it once it is
// attached: while it is open, Freeze may fail.
func (w *Workspace) Upper() (*os.File, error) {
	return locking(w, "upper layer", func() (*os.File, error) {
		if err := w.activate(); err != nil {
			return nil, err
		}
		if w.layer.memory {
			return sys.CloneOf(w.layer.mount)
		}
		return sys.MountExt4(w.layer.loop, false)
	})
}

func (w *Workspace) activate() error {
	switch {
	case w.layer.loop == nil && !w.layer.memory || w.meta.State != Prepared &&
		w.meta.State != Active:
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

// size formats a number of bytes for people, "1.5 MiB" for example.
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

// Freeze makes the upper layer's file system read-only for all its mounts. The jail's processes
// must have ended. ErrActive means that a file is still open for writing and nothing changed. After
// a *DamageError the layer is frozen, and some of its data is lost.
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

// settled sets the state of a workspace that has just been frozen. It first loads the meta.json, in
// which another Workspace object may have recorded a commit.
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

// Keep makes a frozen workspace durable, so that it survives a power failure.
func (w *Workspace) Keep() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.meta.State != Frozen && w.meta.State != Committing {
		return w.wrap("keep", fmt.Errorf("%w: it is %s", ErrState, w.meta.State))
	}
	if w.layer.image == nil {
		// An earlier process has kept the layer.
		return nil
	}
	if w.layer.memory {
		if err := w.layer.keepMemory(); err != nil {
			return w.wrap("keep", err)
		}
	}
	// The image is complete on the disk, so it can be used in any boot.
	w.meta.Boot = ""
	return w.wrap("keep",
		errors.Join(w.basis.save(w), w.layer.image.Sync(), w.save(true), w.store.dir.Sync()))
}

// opening has the methods that open the layer and the real directory of a workspace.
type opening struct{ w *Workspace }

// open opens the real directory and the layers of a frozen workspace for reading. If this process
// has not mounted the layer, it mounts it read-only. The error is ErrActive for a live workspace.
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

// openFor is open, or, for a live workspace, opens the real directory and returns ErrActive unless
// this process has made the layer.
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

// locked locks the workspace and calls openFor. It returns an error if the state allows no commit.
// Closing the file releases the lock.
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
	if l.loop, l.mount, err = mountLoop(l.image, true); err != nil {
		return err
	}
	return l.lookForDamage(o.w.meta.Damaged)
}

// openSource opens the real directory by its path, with the caller's rights, unless it is open. The
// error is ErrConflict if the path is another directory now.
func (o opening) openSource(as Caller) (err error) {
	if o.w.source != nil {
		return nil
	}
	o.w.source, err = doAs(as, func() (*os.File, error) { return sys.OpenDirPath(o.w.meta.Path) })
	if err != nil {
		return err
	}
	same, err := o.w.meta.isSource(o.w.source)
	if err == nil && !same {
		err = fmt.Errorf("%w: %s is another directory by now", ErrConflict, Name(o.w.meta.Path))
	}
	if err != nil {
		_ = closeFiles(&o.w.source)
	}
	return err
}

// isSource reports whether dir is the directory of the workspace, by its device and inode number.
// In another boot the device number may differ; then the creation time decides.
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
