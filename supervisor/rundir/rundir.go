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

// A Store is the directory that contains the directories of live runs.
type Store struct{ Dir string }

// runFile is the file in the directory of a run that holds its File.
const runFile = "run.json"

// A State describes a live run, as stored in its directory.
type State struct {
	ID        string   `json:"id"`
	Tool      string   `json:"tool"`
	Args      []string `json:"args"`
	Profile   string   `json:"profile"`
	Policy    string   `json:"policy"`
	Workspace string   `json:"workspace,omitempty"` // the real directory
	UID       uint32   `json:"uid"`
	// The PID of jail-init, 0 before it started.
	PID    int    `json:"pid"`
	Cgroup string `json:"cgroup"`
	// The files that it opens or writes are recorded.
	Files bool `json:"files,omitempty"`
	// The session of an invocation; for a jail that holds a session, its own id.
	Session string    `json:"session,omitempty"`
	Started time.Time `json:"started"`
}

// A File is the file in the directory of a run. End is how the run ended, if the log did not take
// the record of the end.
type File struct {
	State
	End *audit.RunFinished `json:"end,omitempty"`
}

// A Dir is the directory of one run, locked by Lock unless nil.
type Dir struct {
	Path  string
	Lock  *os.File
	State State
	// How a dead run ended, as File.End.
	End *audit.RunFinished
}

// Open opens the store in dir and makes the directory if it is missing.
func Open(dir string) (*Store, error) {
	// All users may traverse it to reach mount points, but not list it.
	return &Store{dir}, os.MkdirAll(dir, 0o711)
}

// Add makes and locks the directory of a new run. It is locked before it gets its final name, so
// that no other daemon takes the run for a dead one.
func (s *Store) Add(st State) (*Dir, error) {
	r := &Dir{Path: filepath.Join(s.Dir, newPrefix+st.ID), State: st}
	if err := s.make(r); err != nil {
		return nil, err
	}
	text, err := json.Marshal(st)
	if err == nil {
		// Nobody reads the file before the directory has its final name.
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

// make makes the directory and locks it. It shares the store's lock meanwhile, while Sweep takes it
// exclusively: so an unlocked directory that Sweep finds was left by a dead daemon.
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

// hold waits for the store's lock, with how as in flock(2). Call release to drop the lock.
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

// Sweep removes directories that dead daemons were still making or removing. No process was started
// from them.
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

// Prefixes of directories that are not yet, or no longer, those of a run. An ID never begins with a
// dot.
const (
	newPrefix = ".new-"
	// for a run that has ended
	oldPrefix = ".old-"
)

// InUse returns a usage error if err means that the directory of run id exists, else err.
func InUse(id string, err error) error {
	if errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTEMPTY) {
		return problem.New(problem.Usage, "run id %s is in use", id).WithCause(err)
	}
	return err
}

// claim locks the directory. It fails with EWOULDBLOCK while a daemon holds the lock, and with
// fs.ErrNotExist if the run has ended and its directory is gone.
func (r *Dir) claim() error {
	f, err := flock.Dir(r.Path, syscall.LOCK_EX)
	if err != nil {
		return err
	}
	r.Lock = f
	return nil
}

// Save writes the state of the run to its directory.
func (r *Dir) Save() error {
	// Others read it at any time.
	return atomicfile.WriteJSON(filepath.Join(r.Path, runFile), r.State, 0o600, atomicfile.Volatile)
}

// Remove removes the run's directory.
func (r *Dir) Remove() error { return r.Retire()() }

// Retire renames the run's directory, atomically, so that its rest does not look like a run whose
// daemon was killed. The id is free then. remove deletes the directory; after a killed daemon,
// Sweep does. Nothing is mounted in it: mounts exist only in the jail's mount namespace.
func (r *Dir) Retire() (remove func() error) {
	dir := filepath.Join(filepath.Dir(r.Path), oldPrefix+r.State.ID)
	if err := os.Rename(r.Path, dir); err != nil {
		err := r.remove(r.Path)
		return func() error { return err }
	}
	return func() error { return r.remove(dir) }
}

// How often, and after what pause, a removal is retried while the daemon has no free descriptor.
const shortTries, shortPause = 100, 50 * time.Millisecond

func (r *Dir) remove(dir string) error {
	err := os.RemoveAll(dir)
	if err != nil {
		// The obstacle may be gone.
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

// Leave unlocks the directory of an ended run whose end could not be recorded, so that the next
// daemon records end. The file is overwritten in place, since a full disk takes no new one.
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

// Dead locks and returns the directories of the runs whose daemons have ended.
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

// Live returns the runs that running daemons supervise.
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

// Read returns the stored state of one run, or fs.ErrNotExist.
func (s *Store) Read(id string) (st State, err error) {
	if _, err := jail.ParseID(id); err != nil {
		return st, fs.ErrNotExist
	}
	dir := filepath.Join(s.Dir, id)
	if _, err := os.Lstat(dir); err != nil {
		return st, err
	}
	if err = atomicfile.ReadJSON(filepath.Join(dir, runFile), &st); errors.Is(err, fs.ErrNotExist) {
		// The directory exists, so the error must not be that of a run that does not exist.
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
			// Not the directory of a run.
			continue
		}
		r := &Dir{Path: filepath.Join(s.Dir, e.Name())}
		// A daemon that was killed early left no file or half of one. The name is enough to clear
		// up.
		var file File
		_ = atomicfile.ReadJSON(filepath.Join(r.Path, runFile), &file)
		r.State, r.End = file.State, file.End
		r.State.ID = e.Name()
		f(r)
	}
	return nil
}
