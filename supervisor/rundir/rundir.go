// Package rundir keeps a directory for each live run, so that other daemons and `jail ps` see the
// run, and a later daemon clears up after one that was killed. The daemon that supervises a run
// holds a lock on the run's directory (flock(2)). The kernel releases the lock when that daemon
// ends.
package rundir

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/atomicfile"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/flock"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// A Store is a directory with the directories of runs.
type Store struct{ Dir string }

// runFile is the file in the directory of a run that holds its File.
const runFile = "run.json"

// A State is what the directory of a live run says.
type State struct {
	ID        string   `json:"id"`
	Tool      string   `json:"tool"`
	Args      []string `json:"args"`
	Profile   string   `json:"profile"`
	Policy    string   `json:"policy"`
	Workspace string   `json:"workspace,omitempty"` // the real directory
	UID       uint32   `json:"uid"`
	// Of jail-init, 0 before it started.
	PID    int    `json:"pid"`
	Cgroup string `json:"cgroup"`
	// What it does with files is put on record.
	Files bool `json:"files,omitempty"`
	// Of an invocation the session that it is in, of the jail that holds a session its own id.
	Session string    `json:"session,omitempty"`
	Started time.Time `json:"started"`
}

// A File is the file in the directory of a run. End is how the run ended, if the log did not take
// the record of the end.
type File struct {
	State
	End *audit.RunFinished `json:"end,omitempty"`
}

// A Dir is the directory of one run.
type Dir struct {
	Path  string
	Lock  *os.File
	State State
	// Of a dead run, as runFile.End.
	End *audit.RunFinished
}

// Open opens the store in dir and makes the directory if it is missing.
func Open(dir string) (*Store, error) {
	// Everybody may walk through to the mount points; nobody may list them.
	return &Store{dir}, os.MkdirAll(dir, 0o711)
}

// Add makes the directory of a new run. It is locked before it gets its name, so that no other
// daemon takes it for a dead one.
func (s *Store) Add(st State) (*Dir, error) {
	r := &Dir{Path: filepath.Join(s.Dir, newPrefix+st.ID), State: st}
	if err := s.make(r); err != nil {
		return nil, err
	}
	text, err := json.Marshal(st)
	if err == nil {
		// Nobody reads it before the directory has its name.
		err = os.WriteFile(filepath.Join(r.Path, runFile), text, 0o600)
	}
	if err != nil {
		return nil, errors.Join(err, r.Remove())
	}
	final := filepath.Join(s.Dir, st.ID)
	if err := os.Rename(r.Path, final); err != nil {
		return nil, errors.Join(InUse(st.ID, err), r.Remove())
	}
	r.Path = final
	return r, nil
}

// make makes the directory and locks it. Who does that shares the store's lock meanwhile, and sweep
// has it alone: a directory that sweep finds without a lock is nobody's any more.
func (s *Store) make(r *Dir) error {
	release, err := s.hold(syscall.LOCK_SH)
	if err != nil {
		return err
	}
	defer release()
	if err := os.Mkdir(r.Path, 0o711); err != nil {
		return InUse(r.State.ID, err)
	}
	if err := r.claim(); err != nil {
		return errors.Join(err, r.Remove())
	}
	return nil
}

// hold takes the store's lock, waiting for it, and returns what gives it back.
func (s *Store) hold(how int) (release func(), err error) {
	dir, err := os.Open(s.Dir)
	if err != nil {
		return nil, err
	}
	if err := flock.Apply(dir, how); err != nil {
		dir.Close()
		return nil, err
	}
	return func() { dir.Close() }, nil
}

// Sweep removes what was half made, or half removed, by daemons that have ended. Nothing was
// started from it.
func (s *Store) Sweep() error {
	release, err := s.hold(syscall.LOCK_EX)
	if err != nil {
		return err
	}
	defer release()
	entries, err := os.ReadDir(s.Dir)
	for _, e := range entries {
		path := filepath.Join(s.Dir, e.Name())
		switch r := (&Dir{Path: path}); {
		case strings.HasPrefix(e.Name(), oldPrefix):
			err = errors.Join(err, os.RemoveAll(path))
		case strings.HasPrefix(e.Name(), newPrefix) && r.claim() == nil:
			err = errors.Join(err, os.RemoveAll(path), r.Lock.Close())
		}
	}
	return err
}

// Prefixes of directories that are no run's yet, or no more; an ID never begins with a dot.
const (
	newPrefix = ".new-"
	// Of a run that has ended.
	oldPrefix = ".old-"
)

// InUse returns the error for a run id that another run has.
func InUse(id string, err error) error {
	if errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTEMPTY) {
		return problem.New(problem.Usage, "run id %s is in use", id).WithCause(err)
	}
	return err
}

// claim takes the lock. It fails with EWOULDBLOCK while a daemon holds it, and with fs.ErrNotExist if
// the run has ended and its directory is gone.
func (r *Dir) claim() error {
	f, err := flock.Dir(r.Path, syscall.LOCK_EX)
	if err != nil {
		return err
	}
	r.Lock = f
	return nil
}

// Save writes the state of the run.
func (r *Dir) Save() error {
	// Others read it at any time.
	return atomicfile.WriteJSON(filepath.Join(r.Path, runFile), r.State, 0o600, atomicfile.Volatile)
}

// Remove removes the run's directory.
func (r *Dir) Remove() error { return r.Retire()() }

// Retire takes the name from the run's directory, in one step: what stays of it must not look like
// a run whose daemon was killed. The id is free for another run then. remove removes the directory,
// and Sweep does so after a daemon that was killed before it. Nothing is mounted in the directory:
// a jail's mounts are its own.
func (r *Dir) Retire() (remove func() error) {
	dir := filepath.Join(filepath.Dir(r.Path), oldPrefix+r.State.ID)
	if err := os.Rename(r.Path, dir); err != nil {
		err := r.remove(r.Path)
		return func() error { return err }
	}
	return func() error { return r.remove(dir) }
}

// How often a removal is tried again while the daemon has no free descriptor, and how long after.
const shortTries, shortPause = 100, 50 * time.Millisecond

func (r *Dir) remove(dir string) error {
	err := os.RemoveAll(dir)
	if err != nil {
		// What stopped it may have gone by.
		err = os.RemoveAll(dir)
	}
	// Other runs return their descriptors when they end.
	for n := 0; n < shortTries && problem.IsShort(err); n++ {
		time.Sleep(shortPause)
		err = os.RemoveAll(dir)
	}
	if r.Lock != nil {
		err = errors.Join(err, r.Lock.Close())
	}
	return err
}

// Leave unlocks the directory of a run that has ended and whose end the log did not take: the next
// daemon records end. The file is overwritten in place, since a disk that is full takes
// no new one.
func (r *Dir) Leave(end audit.RunFinished) error {
	defer r.Lock.Close()
	text, err := json.Marshal(File{r.State, &end})
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(r.Path, runFile), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(text, 0)
	return errors.Join(err, f.Truncate(int64(len(text))), f.Close())
}

// Dead claims the runs whose daemon is gone.
func (s *Store) Dead() ([]*Dir, error) {
	var all []*Dir
	err := s.each(func(r *Dir) {
		if r.claim() != nil {
			// The daemon is alive, or its directory is gone meanwhile.
			return
		}
		all = append(all, r)
	})
	return all, err
}

// Live returns the runs that some daemon supervises.
func (s *Store) Live() ([]State, error) {
	var all []State
	err := s.each(func(r *Dir) {
		if err := r.claim(); errors.Is(err, syscall.EWOULDBLOCK) && r.State.Tool != "" {
			all = append(all, r.State)
		} else if err == nil {
			r.Lock.Close()
		}
	})
	return all, err
}

// Read returns what the directory of one run says.
func (s *Store) Read(id string) (st State, err error) {
	if _, err := jail.ParseID(id); err != nil {
		return st, fs.ErrNotExist
	}
	dir := filepath.Join(s.Dir, id)
	if _, err := os.Lstat(dir); err != nil {
		return st, err
	}
	if err = atomicfile.ReadJSON(filepath.Join(dir, runFile), &st); errors.Is(err, fs.ErrNotExist) {
		// The directory is there, whosever it is.
		err = fs.ErrInvalid
	}
	return st, err
}

func (s *Store) each(f func(*Dir)) error {
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if _, err := jail.ParseID(e.Name()); err != nil || !e.IsDir() {
			// Nothing of ours has such a name.
			continue
		}
		r := &Dir{Path: filepath.Join(s.Dir, e.Name())}
		// A daemon that was killed early left no file, or half of one: its name is enough to clear
		// up by.
		var file File
		_ = atomicfile.ReadJSON(filepath.Join(r.Path, runFile), &file)
		r.State, r.End = file.State, file.End
		r.State.ID = e.Name()
		f(r)
	}
	return nil
}
