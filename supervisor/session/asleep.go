package session

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
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

// untouchedTime is how long a session sleeps whose tools changed nothing.
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
}

func (s *recordStore) path(id string) string { return filepath.Join(s.dir, id+".json") }

func (s *recordStore) save(r *record, d atomicfile.Durability) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return atomicfile.Write(s.path(r.Request.ID), text, 0o600, d)
}

// remove makes a session one that does not wake again.
func (s *recordStore) remove(id string) error {
	err := os.Remove(s.path(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// sleeping returns the record of a session that sleeps, or nil. A session that no daemon could wake
// is forgotten: its shadow was discarded, or nothing was changed in it for a long time.
func (s *recordStore) sleeping(id string) (*record, error) {
	if _, err := jail.ParseID(id); err != nil || s.dir == "" {
		return nil, nil
	}
	text, err := os.ReadFile(s.path(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	r := &record{}
	if err == nil {
		err = json.Unmarshal(text, r)
	}
	if err == nil && (r.Format != recordFormat || r.Request.ID != id) {
		err = errors.New("is of another version of jail")
	}
	if err != nil {
		return nil, problem.New(problem.Failed, "record of session %s: %w", id, err).
			WithHint("its shadow is kept: jail diff " + id + ", jail commit " + id)
	}
	sleeps := time.Since(r.Used) < untouchedTime
	if !r.Untouched {
		w, err := s.shadow(id)
		if err != nil && !errors.Is(err, workspace.ErrNotFound) {
			return nil, problem.New(problem.Failed, "%w", err)
		}
		if sleeps = err == nil; sleeps {
			info := w.Info()
			w.Close()
			switch info.State {
			case workspace.Prepared, workspace.Active, workspace.Committing:
				// It is open, or a commit is under way.
				return nil, nil
			}
			sleeps = info.Resumable
		}
	}
	if !sleeps {
		return nil, s.remove(id)
	}
	return r, nil
}

// owner returns whose session sleeps without a shadow.
func (s *recordStore) owner(id string) (uid uint32, ok bool) {
	r, err := s.sleeping(id)
	if err != nil || r == nil {
		return 0, false
	}
	return r.UID, true
}

// all returns the records of the sessions that sleep. One that cannot be read hides no other.
func (s *recordStore) all() (all []*record) {
	if s.dir == "" {
		return nil
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok {
			continue
		}
		if r, err := s.sleeping(id); err == nil && r != nil {
			all = append(all, r)
		}
	}
	return all
}
