package workspace

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// Begun is a commit or revert of which the audit log has the beginning, or is about to.
type Begun struct {
	Revert bool `json:"revert,omitempty"`
	// Commit is the id of the commit that is to be reverted, if the caller named one.
	Commit string `json:"commit,omitempty"`
	// Paths are those of a revert of a part.
	Paths []Name `json:"paths,omitempty"`

	name string
	home folder
	// lock is held while the process of the commit lives.
	lock *os.File
}

// beginning is how the names of the notes of Begin begin.
const beginning = "begun-"

// Begin notes in the store that the audit log is about to have the beginning of a commit or revert
// of w. If this process is killed before Told or Drop, Recover of the next one returns the note as
// Settled, so that the log gets an end. w must stay open until then.
func Begin(w *Workspace, b Begun) (*Begun, error) {
	text, err := json.Marshal(b)
	if err != nil {
		return nil, w.wrap("begin", err)
	}
	root, err := sys.OpenRoot(w.home.dir)
	if err != nil {
		return nil, w.wrap("begin", err)
	}
	defer root.Close()
	b.home, b.name = w.home, beginning+randomName()
	// Recover must not find the note before its lock is held.
	fresh := ".new-" + b.name
	b.lock, err = root.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		_, err = b.lock.Write(text)
	}
	if err == nil {
		err = sys.Lock(b.lock, true)
	}
	if err == nil {
		err = root.Rename(fresh, b.name)
	}
	if err != nil {
		return nil, w.wrap("begin", errors.Join(err, closeFiles(&b.lock), removeAt(w.home.dir, fresh)))
	}
	return &b, nil
}

// Told removes the note, since the log has the end of the commit or revert.
func (b *Begun) Told() error { return errors.Join(removeAt(b.home.dir, b.name), b.Drop()) }

// Drop leaves the note to the next Recover, unless it is gone. b may be nil.
func (b *Begun) Drop() error {
	if b == nil {
		return nil
	}
	return closeFiles(&b.lock)
}

// begun returns the last note of a process that has ended, nil if there is none. forget removes all
// of them.
func (home folder) begun(forget bool) (last *Begun, err error) {
	names, err := namesIn(home.dir)
	for _, name := range names {
		if !strings.HasPrefix(name, beginning) {
			continue
		}
		f, openErr := sys.OpenBeneath(home.dir, name, os.O_RDONLY, 0)
		if errors.Is(openErr, fs.ErrNotExist) {
			continue
		}
		if openErr != nil {
			err = errors.Join(err, openErr)
			continue
		}
		lockErr := sys.Lock(f, true)
		if lockErr == nil && forget {
			err = errors.Join(err, removeAt(home.dir, name))
		} else if lockErr == nil {
			var readErr error
			last, readErr = readJSON[Begun](home.dir, name)
			err = errors.Join(err, readErr)
		} else if !errors.Is(lockErr, syscall.EWOULDBLOCK) {
			err = errors.Join(err, lockErr)
		}
		f.Close()
	}
	return last, err
}

// isBegun reports whether a workspace has a note of Begin.
func (s *Store) isBegun(id string) bool {
	dir, err := sys.OpenSubdir(s.dir, id)
	if err != nil {
		return false
	}
	defer dir.Close()
	names, err := namesIn(dir)
	return err == nil && slices.ContainsFunc(names,
		func(name string) bool { return strings.HasPrefix(name, beginning) })
}
