package session

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/atomicfile"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// recordFormat is the version of a record. One of another version is refused.
const recordFormat = 1

// untouchedTime is how long a session sleeps that left nothing to review.
const untouchedTime = 7 * 24 * time.Hour

// A record is all that wakes a session, in a file of the state directory. It is there from the
// moment that the session can have invocations until the session ends for good, so that a daemon
// that is killed leaves it, too. Values of --env are in it, as in the request.
type record struct {
	Format int `json:"format"`
	// Request is what the session was asked for, without the caller's own environment.
	Request message.SessionRequest `json:"request"`
	UID     uint32                 `json:"uid"`
	// Digest is of the request, Policy of the policy that was in force last.
	Digest string `json:"digest"`
	Policy string `json:"policy"`
	// Workspace is the path of the real directory.
	Workspace string    `json:"workspace"`
	Profile   string    `json:"profile"`
	Started   time.Time `json:"started"`
	Used      time.Time `json:"used"`
	// LeftMS is how long the session may still be awake.
	LeftMS      int64 `json:"left_ms"`
	Invocations int64 `json:"invocations"`
	// Untouched says that the session sleeps without a shadow, because nothing was changed.
	Untouched bool `json:"untouched,omitempty"`
}

func (r *record) info() message.SessionInfo {
	idle, total, _ := r.Request.Times()
	return message.SessionInfo{ID: r.Request.ID, Profile: r.Profile, Policy: r.Policy,
		Workspace: r.Workspace, UID: r.UID, Started: r.Started, Used: r.Used,
		IdleMS: idle.Milliseconds(), TimeMS: total.Milliseconds(), Invocations: r.Invocations,
		State: message.SessionSleeping}
}

// A recordStore has the records of sessions that can sleep. Several daemons may use one directory.
type recordStore struct {
	// dir is "" where sessions do not sleep.
	dir string
	// shadow returns the shadow that is kept of a session, or workspace.ErrNotFound.
	shadow func(id string) (*workspace.Workspace, error)
	// shadows describes all shadows.
	shadows func() ([]workspace.Info, error)
	// ended ends what was granted to the session.
	ended func(id string) error
}

// A recordName is what the name of a record's file says: whose session it is of, and of which.
type recordName struct {
	uid uint32
	id  string
}

func (n recordName) String() string { return fmt.Sprintf("%d.%s.json", n.uid, n.id) }

func parseRecordName(file string) (n recordName, ok bool) {
	name, ok := strings.CutSuffix(file, ".json")
	if !ok {
		return n, false
	}
	uid, id, _ := strings.Cut(name, ".")
	number, err := strconv.ParseUint(uid, 10, 32)
	if err == nil {
		_, err = jail.ParseID(id)
	}
	return recordName{uint32(number), id}, err == nil
}

func (r *record) name() recordName { return recordName{r.UID, r.Request.ID} }

func (s *recordStore) path(n recordName) string { return filepath.Join(s.dir, n.String()) }

func (s *recordStore) save(r *record, d atomicfile.Durability) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	return atomicfile.WriteJSON(s.path(r.name()), r, 0o600, d)
}

// names returns the names of all records for which want returns true.
func (s *recordStore) names(want func(recordName) bool) (all []recordName, err error) {
	if s.dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if n, ok := parseRecordName(e.Name()); ok && want(n) {
			all = append(all, n)
		}
	}
	return all, err
}

// forget makes a session one that does not wake again. What is kept of its shadow stays.
func (s *recordStore) forget(n recordName) error {
	if s.ended != nil {
		// First: as long as a record is left, the sweep tries again.
		if err := s.ended(n.id); err != nil {
			return err
		}
	}
	if s.dir != "" {
		if err := s.drop(n); err != nil {
			return err
		}
	}
	w, err := s.shadow(n.id)
	if errors.Is(err, workspace.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if w.Info().Caller.UID == n.uid {
		err = w.SetResumable(false)
	}
	return errors.Join(err, w.Close())
}

// drop removes a record.
func (s *recordStore) drop(n recordName) error {
	err := os.Remove(s.path(n))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// read returns a record, or nil if there is none. wakes says that its session sleeps, and dead that
// no daemon can wake it: its shadow was discarded, or nothing was changed in it for a long time.
func (s *recordStore) read(n recordName) (r *record, wakes, dead bool, err error) {
	fail := func(err error) (*record, bool, bool, error) {
		return nil, false, false, problem.New(problem.Failed, "record of session %s: %w", n.id,
			err).WithHint("its shadow is kept: jail diff " + n.id + ", jail commit " + n.id)
	}
	r = &record{}
	err = atomicfile.ReadJSON(s.path(n), r)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, false, nil
	}
	if err != nil {
		return fail(err)
	}
	if r.Format != recordFormat || r.name() != n {
		return fail(errors.New("is of another version of jail"))
	}
	recent := time.Since(r.Used) < untouchedTime
	if r.Untouched {
		return r, recent, !recent, nil
	}
	w, err := s.shadow(n.id)
	if errors.Is(err, workspace.ErrNotFound) {
		return r, false, true, nil
	}
	if err != nil {
		return nil, false, false, problem.New(problem.Failed, "%w", err)
	}
	defer w.Close()
	info := w.Info()
	if info.Caller.UID != n.uid {
		// The shadow is another user's, of a run of the same id.
		return r, false, true, nil
	}
	switch info.State {
	case workspace.Prepared, workspace.Active, workspace.Committing:
		// It is open, or a commit is under way.
		return r, false, false, nil
	case workspace.Committed, workspace.ChangedBack:
		// Nothing is left to review.
		wakes = info.Resumable && recent
	default:
		wakes = info.Resumable
	}
	return r, wakes, !wakes, nil
}

// sleeping returns the record of a session that sleeps, or nil.
func (s *recordStore) sleeping(id string) (*record, error) {
	names, err := s.names(func(n recordName) bool { return n.id == id })
	if err != nil {
		return nil, problem.New(problem.Failed, "records of sessions: %w", err)
	}
	for _, n := range names {
		r, wakes, _, err := s.read(n)
		if err != nil {
			return nil, err
		}
		if wakes {
			return r, nil
		}
	}
	return nil, nil
}

// owner returns whose session sleeps without a shadow.
func (s *recordStore) owner(id string) (uid uint32, ok bool) {
	r, err := s.sleeping(id)
	if err != nil || r == nil {
		return 0, false
	}
	return r.UID, true
}

// all returns the records of the sessions that sleep, of the users that may be seen. One that cannot
// be read hides no other.
func (s *recordStore) all(sees func(uid uint32) bool) (all []*record) {
	names, _ := s.names(func(n recordName) bool { return sees(n.uid) })
	for _, n := range names {
		if r, wakes, _, err := s.read(n); err == nil && wakes {
			all = append(all, r)
		}
	}
	return all
}

// sweepOne forgets a session if no daemon can wake it.
func (s *recordStore) sweepOne(n recordName) (gone bool, err error) {
	if _, _, dead, err := s.read(n); err != nil || !dead {
		return false, err
	}
	err = s.forget(n)
	return err == nil, err
}

// Sweep forgets the sessions that no daemon can wake any more, so that their records and what is
// left of their shadows do not stay.
func (s *Sessions) Sweep() error {
	all, err := s.store.names(func(recordName) bool { return true })
	if err != nil {
		// Without the list each session would count as one that has no record.
		return problem.New(problem.Failed, "records of sessions: %w", err)
	}
	has := map[recordName]bool{}
	for _, n := range all {
		has[n] = true
		err = errors.Join(err, s.unlessOpen(n.id, func() error {
			_, err := s.store.sweepOne(n)
			return err
		}))
	}
	shadows, listErr := s.store.shadows()
	for _, info := range shadows {
		n := recordName{info.Caller.UID, info.ID}
		switch info.State {
		case workspace.Prepared, workspace.Active, workspace.Committing:
			continue
		}
		if info.Resumable && !has[n] {
			// Its daemon was killed before there was a record, or is one whose sessions do not sleep.
			err = errors.Join(err, s.unlessOpen(n.id, func() error { return s.store.forget(n) }))
		}
	}
	if err = errors.Join(err, listErr); err != nil {
		return problem.New(problem.Failed, "records of sessions: %w", err)
	}
	return nil
}

// unlessOpen calls f unless a session of that id is open, is being opened or ends.
func (s *Sessions) unlessOpen(id string, f func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[id] != nil {
		return nil
	}
	return f()
}

// Forget forgets the session of a user whose shadow was discarded.
func (s *Sessions) Forget(id string, uid uint32) error {
	return s.unlessOpen(id, func() error { return s.store.forget(recordName{uid, id}) })
}

// asleepBeside returns how many sessions of a user sleep, beside that of an id. s.mu is held.
func (s *Sessions) asleepBeside(uid uint32, id string) (int, error) {
	all, err := s.store.names(func(n recordName) bool {
		return n.uid == uid && n.id != id && s.open[n.id] == nil
	})
	if len(all) < maxUserAsleep {
		return len(all), err
	}
	count := 0
	for _, n := range all {
		// One that cannot be read is there all the same.
		if gone, _ := s.store.sweepOne(n); !gone {
			count++
		}
	}
	return count, err
}
