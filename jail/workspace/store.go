package workspace

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/jail-sandbox/jail/jail/atomicfile"
	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// Store is a directory of workspaces, <store>/<id>/, each with
//
//	meta.json     its state; replaced as a whole
//	lock          held by a commit or discard
//	upper.img     the upper layer's ext4 image; its lock is held while a mount of it lives
//	journal.json  a commit in progress
//	merge-*.json  of a branch: the paths of a merge into its parent; see mergedPath
//	taken.json    the paths that were committed while a jail used the layer; see takenPath
//
// It also has reservations of the disk (see reserve), templates of empty images, empty layers made
// in advance (see blank), and layers of several workspaces (see frozenLayer). Several processes may
// use one store at once.
type Store struct {
	dir *os.File
	// blanks are the empty layers that this process made in advance.
	blanks blanks
	// frozen are the frozen layers that this process has mounted.
	frozen frozenSet
	// fault is called before each action of a commit, if it is not nil: tests end the commit there.
	fault func(at string) error
	// noHandles makes byHandle find nothing, as without root's rights, for tests.
	noHandles bool
}

// Open opens the store at dir, and makes it if it does not exist. dir must be a directory, no
// symbolic link, of this process's user, and with mode 0700: a user who could write to it could
// change what a commit writes.
func Open(dir string) (*Store, error) {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("workspace store: %w", err)
	}
	f, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("workspace store: %w", err)
	}
	st, err := sys.Fstat(f)
	if err == nil && (int(st.UID) != os.Geteuid() || st.Mode&0o077 != 0) {
		err = fmt.Errorf("%s: must belong to uid %d and have mode 0700, has uid %d and mode %04o",
			Name(dir), os.Geteuid(), st.UID, st.Perm())
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("workspace store: %w", err)
	}
	return &Store{dir: f}, nil
}

// Close closes the store. Workspaces of the store stay open.
func (s *Store) Close() error { return errors.Join(s.EndStock(), s.dir.Close()) }

func (s *Store) reach(what string, i int) error {
	if s.fault == nil {
		return nil
	}
	return s.fault(fmt.Sprintf("%s %d", what, i))
}

func checkID(id string) error {
	const letters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	odd := func(r rune) bool { return !strings.ContainsRune(letters+"._-", r) }
	if id == "" || len(id) > 128 || !strings.ContainsRune(letters, rune(id[0])) ||
		strings.ContainsFunc(id, odd) {
		return fmt.Errorf("workspace %q: %w", id, ErrNotFound)
	}
	return nil
}

// Get opens the workspace id. The error is ErrNotFound if there is none.
func (s *Store) Get(id string) (*Workspace, error) {
	w, err := s.open(id)
	if err != nil {
		return nil, err
	}
	if err := w.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("workspace %s: %w", id, err), w.Close())
	}
	return w, nil
}

// open opens the directory of the workspace id, without reading its meta.json.
func (s *Store) open(id string) (*Workspace, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	dir, err := sys.OpenSubdir(s.dir, id)
	if errors.Is(err, fs.ErrNotExist) {
		err = ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("workspace %s: %w", id, err)
	}
	return &Workspace{store: s, home: folder{dir}, meta: meta{ID: id}}, nil
}

// readJSON reads a JSON file that this package wrote. The error is ErrRecord if it is damaged.
func readJSON[T any](dir *os.File, name string) (*T, error) {
	f, err := sys.OpenBeneath(dir, name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	into := new(T)
	if err := json.Unmarshal(content, into); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrRecord, name, err)
	}
	return into, nil
}

// metaFormat is the latest format of a meta that this version reads.
const metaFormat = 1

// load reads meta.json. If that says Prepared or Active, the lock of the image decides whether the
// state is Active or, after the death of the process, Frozen.
func (w *Workspace) load() error {
	m, err := readJSON[meta](w.home.dir, "meta.json")
	if errors.Is(err, fs.ErrNotExist) {
		// Prepare did not complete, or a discard has begun.
		return ErrNotFound
	}
	if err != nil {
		return err
	}
	if m.Format > metaFormat {
		return fmt.Errorf("%w: meta.json: a later version of jail wrote it (format %d, this one reads "+
			"%d): use that version", ErrRecord, m.Format, metaFormat)
	}
	w.meta = *m
	if w.meta.State != Prepared && w.meta.State != Active {
		return nil
	}
	live, err := w.home.live()
	switch {
	case err != nil:
		return err
	case live:
		w.meta.State = Active
	default:
		// This state is not saved: each process finds it out for itself.
		w.meta.State = Frozen
	}
	return nil
}

// live reports whether any process or namespace has a writable mount of the image.
func (home folder) live() (bool, error) {
	f, err := sys.OpenBeneath(home.dir, "upper.img", os.O_RDONLY, 0)
	if err != nil {
		return false, err
	}
	defer f.Close()
	err = sys.Lock(f, false)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

// List describes all workspaces, the oldest first. With an error it returns those that can be read.
func (s *Store) List() ([]Info, error) {
	names, err := s.names()
	if err != nil {
		return nil, err
	}
	var all []Info
	for _, name := range names {
		w, getErr := s.Get(name)
		if getErr != nil {
			if !errors.Is(getErr, ErrNotFound) {
				err = errors.Join(err, getErr)
			}
			continue
		}
		all = append(all, w.Info())
		w.Close()
	}
	slices.SortFunc(all, func(a, b Info) int {
		return cmp.Or(a.Prepared.Compare(b.Prepared), strings.Compare(a.ID, b.ID))
	})
	return all, err
}

func (s *Store) names() ([]string, error) { return namesIn(s.dir) }

func namesIn(dir *os.File) ([]string, error) {
	f, err := sys.OpenSubdir(dir, ".")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}

// hold takes the store's lock. A process that makes a workspace or a template shares it until the
// new object has its own lock or final name. Sweep takes it exclusively, so that all unfinished
// objects that it finds are abandoned.
func (s *Store) hold(exclusive bool) (release func(), err error) {
	dir, err := sys.OpenSubdir(s.dir, ".")
	if err != nil {
		return nil, err
	}
	if err := sys.LockWait(dir, exclusive); err != nil {
		dir.Close()
		return nil, err
	}
	return func() { dir.Close() }, nil
}

// Sweep removes what interrupted Prepare, Discard and similar calls of dead processes have left,
// and frozen layers that no workspace uses.
func (s *Store) Sweep() error {
	// Before the store's lock: who makes an image takes the lock of the reservations first.
	liveErr := s.sweepLive()
	release, err := s.hold(true)
	if err != nil {
		return errors.Join(liveErr, err)
	}
	defer release()
	names, err := s.names()
	err = errors.Join(err, liveErr)
	for _, name := range names {
		if strings.HasPrefix(name, ".template-") && !strings.HasSuffix(name, ".img") ||
			strings.HasPrefix(name, oldTemplatePrefix) {
			err = errors.Join(err, removeAt(s.dir, name))
		} else if strings.HasPrefix(name, blankPrefix) {
			err = errors.Join(err, s.sweepDead(name))
		} else if w, getErr := s.Get(name); getErr == nil {
			w.Close()
		} else if checkID(name) == nil && errors.Is(getErr, ErrNotFound) {
			err = errors.Join(err, s.sweepDead(name))
		}
	}
	return errors.Join(err, (layerStore{s}).dropLayers())
}

// sweepDead calls sweep, unless a live process makes or discards the workspace, or made the blank.
func (s *Store) sweepDead(id string) error {
	dir, err := sys.OpenSubdir(s.dir, id)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := sys.Lock(dir, true); errors.Is(err, syscall.EWOULDBLOCK) {
		return nil
	} else if err != nil {
		return err
	}
	return s.sweep(id)
}

// save writes meta.json. durable: it must survive a power failure once save has returned.
func (w *Workspace) save(durable bool) error {
	return w.home.writeJSON("meta.json", w.meta, durable)
}

// writeJSON atomically replaces a file in the folder by v as JSON. durable is as in save.
func (home folder) writeJSON(name string, v any, durable bool) error {
	content, err := json.Marshal(v)
	if err != nil {
		return err
	}
	root, err := sys.OpenRoot(home.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return atomicfile.WriteIn(root, name, content, 0o600, atomicfile.Durability(durable))
}

// lock takes the lock for a commit or discard. Closing the file releases it. The error is ErrBusy
// if another has it, ErrNotFound if the workspace is gone.
func (home folder) lock() (*os.File, error) {
	f, err := lockFile(home.dir, "lock", func(f *os.File) error { return lockOr(ErrBusy, f, true) })
	if errors.Is(err, fs.ErrNotExist) {
		// Discarded meanwhile.
		return nil, ErrNotFound
	}
	return f, err
}

// lockFile opens or makes a lock file and calls take, which locks it.
func lockFile(dir *os.File, name string, take func(*os.File) error) (*os.File, error) {
	f, err := sys.OpenBeneath(dir, name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := take(f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// waitLock takes an exclusive lock. It waits until nobody else has it.
func waitLock(f *os.File) error { return sys.LockWait(f, true) }

// lockOr is sys.Lock, but returns busy if another open file description has a conflicting lock.
func lockOr(busy error, f *os.File, exclusive bool) error {
	err := sys.Lock(f, exclusive)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = busy
	}
	return err
}

// Discard removes the workspace with its layer, and closes it. The content of the upper layer,
// which is one file, cannot make it fail. The process that prepared the workspace may discard it at
// any time; a jail that still runs keeps the unlinked layer until it ends.
func (w *Workspace) Discard() error {
	if err := w.Drop(); err != nil {
		return err
	}
	return w.Close()
}

// Drop is the first half of Discard: it removes the workspace and its layer from the store. Close
// then frees the disk space, which takes the kernel some 20 ms.
func (w *Workspace) Drop() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wrap("discard", w.drop(func() error {
		if w.meta.State == Committing {
			return fmt.Errorf("%w: a commit was cut off and must be recovered first", ErrState)
		}
		return nil
	}))
}

func (w *Workspace) drop(check func() error) error {
	lock, err := w.home.lock()
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := check(); err != nil {
		return err
	}
	// Another object of the store may have forked it.
	now, err := readJSON[meta](w.home.dir, "meta.json")
	if err != nil {
		// A damaged workspace is discarded without its record.
		now = &w.meta
	}
	if now.Forked {
		if err := BranchesOf(w.store).none(w.meta.ID); err != nil {
			return err
		}
	}
	// If the process that made the workspace lives, it holds this lock, which is as good.
	if err := sys.Lock(w.home.dir, true); err != nil && !errors.Is(err, syscall.EWOULDBLOCK) {
		return w.wrap("discard", err)
	}
	// meta.json goes first: without it, the rest is swept after a crash.
	if err := removeAt(w.home.dir, "meta.json"); err != nil {
		return err
	}
	if err := w.store.reach("discard", 0); err != nil {
		return err
	}
	if err := w.store.sweep(w.meta.ID); err != nil {
		return err
	}
	err = w.store.unreserve(w.meta.ID)
	if len(now.layersInUse()) > 0 {
		err = errors.Join(err, w.store.reach("discard", 1), (layerStore{w.store}).sweepUnused())
	}
	return err
}

// GiveUp discards a workspace with an interrupted commit that Recover could neither finish nor
// undo. The real directory stays as it is, with a part of the commit. GiveUp first calls record
// with a description of what is left behind, and discards nothing if that returns an error.
func (w *Workspace) GiveUp(record func(left string) error) error {
	w.mu.Lock()
	err := w.drop(func() error {
		if err := w.load(); err != nil {
			return err
		}
		if w.meta.State != Committing {
			return fmt.Errorf("%w: there is no commit to give up", ErrState)
		}
		left := "a commit was cut off: " + w.meta.Stuck
		if j, err := w.home.readJournal(); err == nil {
			left = fmt.Sprintf(
				"commit %s was cut off when it was %s: %s; what it put aside has names that begin "+
					"with .jail-%s-",
				j.ID, j.Phase, cmp.Or(w.meta.Stuck, "nobody has tried to undo it"), j.ID)
		}
		return record(left)
	})
	w.mu.Unlock()
	if err != nil {
		return w.wrap("give up", err)
	}
	return w.Close()
}

// DiscardDamaged removes a workspace whose record cannot be read (ErrRecord), so that its owner and
// its directory are unknown. It returns an error for a workspace whose record can be read.
func (s *Store) DiscardDamaged(id string) error {
	w, err := s.open(id)
	if err != nil {
		return err
	}
	defer w.Close()
	// The process that made the workspace holds this lock while its jail lives.
	if err := lockOr(ErrActive, w.home.dir, true); err != nil {
		return w.wrap("discard", err)
	}
	return w.wrap("discard", w.drop(func() error {
		err := w.load()
		if errors.Is(err, ErrRecord) {
			return nil
		}
		return cmp.Or(err, fmt.Errorf("%w: it is not damaged", ErrState))
	}))
}

// sweep removes a directory of the store with the files in it. It follows no links.
func (s *Store) sweep(id string) error {
	dir, err := sys.OpenSubdir(s.dir, id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	for _, name := range names {
		err = errors.Join(err, removeAt(dir, name))
	}
	if err != nil {
		return err
	}
	return sys.RmdirAt(s.dir, id)
}

func removeAt(dir *os.File, name string) error {
	err := sys.UnlinkAt(dir, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// folder is the directory of one workspace in the store, <store>/<id>; see Store.
type folder struct{ dir *os.File }
