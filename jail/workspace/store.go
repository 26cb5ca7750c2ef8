package workspace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// A Store is a directory of workspaces, <store>/<id>/, each with
//
//	meta.json     what is known of it; replaced whole
//	lock          held by a commit or discard
//	upper.img     the upper layer's ext4 image; its lock is held while a mount of it lives
//	journal.json  a commit that is under way
//
// and of templates of empty images. Several processes may use one store at once.
type Store struct {
	dir *os.File
	// fault is called before each action of a commit, for tests to end it there.
	fault func(at string) error
}

// Open opens the store at dir, making it where there is none. It must be a directory, no link, of this process's user
// and closed to everyone else: who can write to it can write what a commit writes.
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
		err = fmt.Errorf("%s: must belong to uid %d and have mode 0700, has uid %d and mode %04o", Name(dir), os.Geteuid(), st.UID, st.Perm())
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("workspace store: %w", err)
	}
	return &Store{dir: f}, nil
}

// Close closes the store. Workspaces that were got from it stay open.
func (s *Store) Close() error { return s.dir.Close() }

func (s *Store) reach(what string, i int) error {
	if s.fault == nil {
		return nil
	}
	return s.fault(fmt.Sprintf("%s %d", what, i))
}

func checkID(id string) error {
	const letters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	if id == "" || len(id) > 128 || !strings.ContainsRune(letters, rune(id[0])) || strings.Trim(id, letters+"._-") != "" {
		return fmt.Errorf("workspace %q: %w", id, ErrNotFound)
	}
	for _, r := range id {
		if !strings.ContainsRune(letters+"._-", r) {
			return fmt.Errorf("workspace %q: %w", id, ErrNotFound)
		}
	}
	return nil
}

// Get opens the workspace of that id. The error is ErrNotFound where there is none.
func (s *Store) Get(id string) (*Workspace, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	dir, err := sys.OpenSubdir(s.dir, id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("workspace %s: %w", id, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("workspace %s: %w", id, err)
	}
	w := &Workspace{store: s, dir: dir}
	if err := w.load(); err != nil {
		dir.Close()
		return nil, fmt.Errorf("workspace %s: %w", id, err)
	}
	return w, nil
}

// load reads the meta and settles in which state a workspace is whose process may have died.
func (w *Workspace) load() error {
	f, err := sys.OpenBeneath(w.dir, "meta.json", os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNotFound // Prepare did not get to the end, or a discard has begun
	}
	if err != nil {
		return err
	}
	defer f.Close()
	content, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	var m meta
	if err := json.Unmarshal(content, &m); err != nil {
		return fmt.Errorf("meta.json: %w", err)
	}
	w.meta = m
	if w.meta.State != Prepared && w.meta.State != Active {
		return nil
	}
	live, err := w.live()
	switch {
	case err != nil:
		return err
	case live:
		w.meta.State = Active
	default:
		w.meta.State = Frozen // in this process's eyes; the next one finds out for itself
	}
	return nil
}

// live reports whether a writable mount of the image lives in any process or namespace.
func (w *Workspace) live() (bool, error) {
	f, err := sys.OpenBeneath(w.dir, "upper.img", os.O_RDONLY, 0)
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

// List describes all workspaces, the eldest first. One that cannot be read does not hide the others: they come beside the error.
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
		if c := a.Prepared.Compare(b.Prepared); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return all, err
}

func (s *Store) names() ([]string, error) {
	dir, err := sys.OpenSubdir(s.dir, ".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.Readdirnames(-1)
}

// stale is for how long something half made may be another process's that is still making it.
const stale = time.Minute

// sweepStale takes away what preparations and discards left half done.
func (s *Store) sweepStale() error {
	names, err := s.names()
	for _, name := range names {
		st, statErr := sys.LstatAt(s.dir, name)
		if statErr != nil || time.Since(time.Unix(st.Mtime.Sec, 0)) < stale {
			continue
		}
		if strings.HasPrefix(name, ".template-") && !strings.HasSuffix(name, ".img") {
			err = errors.Join(err, removeAt(s.dir, name))
		} else if w, getErr := s.Get(name); getErr == nil {
			w.Close()
		} else if checkID(name) == nil && errors.Is(getErr, ErrNotFound) {
			err = errors.Join(err, s.sweep(name))
		}
	}
	return err
}

// save replaces the meta; durable says whether it must survive a power loss from here on.
func (w *Workspace) save(durable bool) error { return w.writeJSON("meta.json", w.meta, durable) }

// writeJSON replaces a file of the workspace's directory in the store.
func (w *Workspace) writeJSON(name string, v any, durable bool) error {
	content, err := json.Marshal(v)
	if err != nil {
		return err
	}
	f, err := sys.OpenBeneath(w.dir, name+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if durable {
		err = errors.Join(err, f.Sync())
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := sys.MoveAt(w.dir, name+".new", w.dir, name, true); err != nil {
		return err
	}
	if durable {
		return w.dir.Sync()
	}
	return nil
}

// lock takes the lock for a commit or discard; closing the file gives it back.
func (w *Workspace) lock() (*os.File, error) {
	f, err := sys.OpenBeneath(w.dir, "lock", os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotFound // discarded meanwhile
	}
	if err != nil {
		return nil, err
	}
	if err := sys.Lock(f, true); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = ErrBusy
		}
		return nil, err
	}
	return f, nil
}

// Discard removes a workspace and what was written in it. A workspace that a live jail of another process uses is ErrActive.
func (s *Store) Discard(id string) error {
	w, err := s.Get(id)
	if err != nil {
		return err
	}
	defer w.Close()
	if w.meta.State == Active {
		return fmt.Errorf("workspace %s: discard: %w", id, ErrActive)
	}
	return w.Discard()
}

// Discard removes the workspace and what was written in it, and closes it. It never fails for what a tool made of the upper layer: that
// goes as one file. The process that prepared it may discard it at any time; a jail that still runs goes on with a layer that has no name.
func (w *Workspace) Discard() error {
	if err := w.Drop(); err != nil {
		return err
	}
	return w.Close()
}

// Drop is the first half of Discard: when it returns, nobody finds the workspace or what was written in it any more. The room that it takes is given
// back by Close, in which the kernel takes some 20 ms to let go of a file system.
func (w *Workspace) Drop() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	lock, err := w.lock()
	if err != nil {
		return w.wrap("discard", err)
	}
	defer lock.Close()
	if w.meta.State == Committing {
		return w.wrap("discard", fmt.Errorf("%w: a commit was cut off and must be recovered first", ErrState))
	}
	// Without a meta it is no workspace any more, whatever happens next.
	err = removeAt(w.dir, "meta.json")
	if err == nil {
		err = w.store.sweep(w.meta.ID)
	}
	return w.wrap("discard", err)
}

// sweep removes the directory of a workspace that has no meta: each file by its name, nothing followed.
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
