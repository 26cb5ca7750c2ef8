package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail"
)

// runStore keeps a directory for each live run, so that other daemons and `jail ps` see it, and a later daemon clears up after one that
// was killed. The directory is locked (flock(2)) by the daemon that supervises the run; the kernel lets go when that daemon ends.
type runStore struct{ dir string }

// runState is what a live run's directory says.
type runState struct {
	ID        string    `json:"id"`
	Tool      string    `json:"tool"`
	Args      []string  `json:"args"`
	Profile   string    `json:"profile"`
	Policy    string    `json:"policy"`
	Workspace string    `json:"workspace,omitempty"` // the real directory
	UID       uint32    `json:"uid"`
	PID       int       `json:"pid"` // of jail-init, 0 before it started
	Cgroup    string    `json:"cgroup"`
	Files     bool      `json:"files,omitempty"`   // what it does with files is put on record
	Session   string    `json:"session,omitempty"` // that it is an invocation of, or its own
	Started   time.Time `json:"started"`
}

type runDir struct {
	path  string
	lock  *os.File
	state runState
}

func openRunStore(dir string) (*runStore, error) {
	// Everybody may walk through to the mount points; nobody may list them.
	return &runStore{dir}, os.MkdirAll(dir, 0o711)
}

// add makes the directory of a new run. It is locked before it gets its name, so that no other daemon takes it for a dead one.
func (s *runStore) add(st runState) (*runDir, error) {
	r := &runDir{path: filepath.Join(s.dir, newPrefix+st.ID), state: st}
	if err := os.Mkdir(r.path, 0o711); err != nil {
		return nil, inUse(st.ID, err)
	}
	if err := errors.Join(r.claim(), r.save()); err != nil {
		return nil, errors.Join(err, r.remove())
	}
	final := filepath.Join(s.dir, st.ID)
	if err := os.Rename(r.path, final); err != nil {
		return nil, errors.Join(inUse(st.ID, err), r.remove())
	}
	r.path = final
	return r, nil
}

// newPrefix marks a directory that has no lock yet, for at most newAge; an ID never begins with a dot.
const (
	newPrefix = ".new-"
	oldPrefix = ".old-" // of a run that has ended
	newAge    = time.Minute
)

func inUse(id string, err error) error {
	if errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTEMPTY) {
		return &Error{Code: CodeUsage, Message: fmt.Sprintf("run id %s is in use", id), Err: err}
	}
	return err
}

// claim takes the lock; it fails with EWOULDBLOCK while a daemon holds it.
func (r *runDir) claim() error {
	f, err := os.Open(r.path)
	if err != nil {
		return err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return &fs.PathError{Op: "flock", Path: r.path, Err: err}
	}
	// The run may have ended, and its directory gone, between the two steps.
	if !isStill(f, r.path) {
		f.Close()
		return &fs.PathError{Op: "flock", Path: r.path, Err: fs.ErrNotExist}
	}
	r.lock = f
	return nil
}

// isStill reports whether path is the file that f has open.
func isStill(f *os.File, path string) bool {
	opened, err := f.Stat()
	if err != nil {
		return false
	}
	now, err := os.Lstat(path)
	return err == nil && os.SameFile(opened, now)
}

func (r *runDir) save() error {
	text, err := json.Marshal(r.state)
	if err != nil {
		return err
	}
	// Whole or not at all: others read it at any time.
	fresh := filepath.Join(r.path, "run.json.new")
	if err := os.WriteFile(fresh, text, 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, filepath.Join(r.path, "run.json"))
}

// remove takes the run's directory away. Nothing is mounted in it: a jail's mounts are its own. It loses its name first, in one step: what stays
// of it must not look like a run whose daemon was killed.
func (r *runDir) remove() error {
	dir := filepath.Join(filepath.Dir(r.path), oldPrefix+r.state.ID)
	err := os.Rename(r.path, dir)
	if err != nil {
		dir = r.path
	}
	if err = os.RemoveAll(dir); err != nil {
		err = os.RemoveAll(dir) // what stopped it may have gone by
	}
	if r.lock != nil {
		err = errors.Join(err, r.lock.Close())
	}
	return err
}

// dead claims the runs whose daemon is gone.
func (s *runStore) dead() ([]*runDir, error) {
	var all []*runDir
	err := s.each(func(r *runDir) {
		if r.claim() != nil {
			return // alive, or gone meanwhile
		}
		all = append(all, r)
	})
	return all, err
}

// live returns the runs that some daemon supervises.
func (s *runStore) live() ([]runState, error) {
	var all []runState
	err := s.each(func(r *runDir) {
		if err := r.claim(); errors.Is(err, syscall.EWOULDBLOCK) && r.state.Tool != "" {
			all = append(all, r.state)
		} else if err == nil {
			r.lock.Close()
		}
	})
	return all, err
}

func (s *runStore) each(f func(*runDir)) error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), newPrefix) {
			if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > newAge {
				_ = os.RemoveAll(filepath.Join(s.dir, e.Name())) // nothing was started from it; the next daemon tries again
			}
			continue
		}
		if strings.HasPrefix(e.Name(), oldPrefix) {
			_ = os.RemoveAll(filepath.Join(s.dir, e.Name())) // the next daemon tries again
			continue
		}
		if _, err := jail.ParseID(e.Name()); err != nil || !e.IsDir() {
			continue // nothing of ours has such a name
		}
		r := &runDir{path: filepath.Join(s.dir, e.Name())}
		// A daemon that was killed early left no file, or half of one: its name is enough to clear up by.
		if text, err := os.ReadFile(filepath.Join(r.path, "run.json")); err == nil {
			_ = json.Unmarshal(text, &r.state)
		}
		r.state.ID = e.Name()
		f(r)
	}
	return nil
}
