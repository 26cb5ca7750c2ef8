// Package names keeps the names that users give to their runs and sessions, beside the random ids
// by which the rest of jail knows them.
package names

import (
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/atomicfile"
)

// Store keeps the names that users gave to their runs and sessions. Every run has a random id,
// by which all of jail knows the run; a name is an alias that belongs to one user. So no user can
// find out which names another user has, or take one away.
//
//	names/UID/NAME   symbolic link to the id
//	names/ids/ID     symbolic link to UID/NAME
//
// Links are made and read in one step each, so daemons that share a state directory agree.
type Store struct {
	dir string

	mu sync.Mutex
	// Names that requests under way have taken.
	taken map[Name]*takenName
}

// A Name is a user's name for a run or session.
type Name struct {
	UID  uint32
	Name string
}

type takenName struct {
	id    string
	users int // requests
}

// keepNames is how long a name is kept after its run is gone, so that jail inspect finds the last
// run of that name in the log.
const keepNames = 24 * time.Hour

// Open makes the directory of a store and returns the store.
func Open(dir string) (*Store, error) {
	return At(dir), os.MkdirAll(filepath.Join(dir, "ids"), 0o700)
}

// At returns the store in a directory that may not exist, for looking up names.
func At(dir string) *Store { return &Store{dir: dir, taken: map[Name]*takenName{}} }

func (n *Store) path(u Name) string {
	return filepath.Join(n.dir, strconv.FormatUint(uint64(u.UID), 10), u.Name)
}

// Find returns the id of a user's name, or "" if there is none.
func (n *Store) Find(u Name) string {
	if _, err := jail.ParseID(u.Name); err != nil {
		return ""
	}
	id, err := os.Readlink(n.path(u))
	if err != nil {
		return ""
	}
	return id
}

// NameOf returns the name of an id and the user who gave it, or the zero Name.
func (n *Store) NameOf(id string) (u Name) {
	if _, err := jail.ParseID(id); err != nil {
		return u
	}
	to, err := os.Readlink(filepath.Join(n.dir, "ids", id))
	if err != nil {
		return u
	}
	who, name, _ := strings.Cut(to, "/")
	uid, err := strconv.ParseUint(who, 10, 32)
	if err != nil {
		return u
	}
	return Name{uint32(uid), name}
}

// Link makes a name stand for an id, instead of its former one.
func (n *Store) Link(u Name, id string) error {
	path := n.path(u)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	back := filepath.Join(n.dir, "ids", id)
	if err := os.Symlink(filepath.Join(filepath.Base(filepath.Dir(path)), u.Name),
		back); err != nil {
		return err
	}
	if err := atomicfile.Symlink(id, path); err != nil {
		return errors.Join(err, os.Remove(back))
	}
	return nil
}

// Users returns the users that have names in the store.
func (n *Store) Users() (uids []uint32) {
	entries, err := os.ReadDir(n.dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if uid, err := strconv.ParseUint(e.Name(), 10, 32); err == nil {
			uids = append(uids, uint32(uid))
		}
	}
	return uids
}

// Prune removes the names older than keepNames whose ids isThere reports false for.
func (n *Store) Prune(isThere func(id string) bool) error {
	old, err := os.ReadDir(filepath.Join(n.dir, "ids"))
	if err != nil {
		return err
	}
	for _, e := range old {
		info, infoErr := e.Info()
		if infoErr != nil || time.Since(info.ModTime()) < keepNames || isThere(e.Name()) {
			continue
		}
		back := filepath.Join(n.dir, "ids", e.Name())
		to, readErr := os.Readlink(back)
		if readErr != nil {
			continue
		}
		n.mu.Lock()
		if id, _ := os.Readlink(filepath.Join(n.dir, to)); id == e.Name() {
			err = errors.Join(err, os.Remove(filepath.Join(n.dir, to)))
		}
		err = errors.Join(err, os.Remove(back))
		n.mu.Unlock()
	}
	return err
}

// Take returns the id that all concurrent requests for a name share. The first of them gets it from
// make. done must be called when the request is over or its id is stored elsewhere.
func (n *Store) Take(u Name, make func() (string, error)) (id string, done func(), err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := n.taken[u]
	if t == nil {
		if id, err = make(); err != nil {
			return "", nil, err
		}
		t = &takenName{id: id}
		n.taken[u] = t
	}
	t.users++
	return t.id, sync.OnceFunc(func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(n.taken, u)
		}
	}), nil
}

// GlobalID returns the pattern of the ids that jail makes.
var GlobalID = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\b[0-9a-hj-km-np-tv-z]{26}\b`)
})

// IsGlobal reports whether id has the form of the ids that jail makes.
func IsGlobal(id string) bool { return len(id) == 26 && GlobalID().MatchString(id) }

// UserID returns the uid of a user given by name or number, and false if text is neither.
func UserID(text string) (uint32, bool) {
	if u, err := user.Lookup(text); err == nil {
		text = u.Uid
	}
	uid, err := strconv.ParseUint(text, 10, 32)
	return uint32(uid), err == nil
}
