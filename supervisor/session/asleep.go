package session

import (
	"cmp"
	"context"
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
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/ending"
	"github.com/jail-sandbox/jail/supervisor/lifetime"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/prepare"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// recordFormat is the version of a record file. Records of other versions are refused.
const recordFormat = 1

// untouchedTime is how long a session can sleep that left nothing to review.
const untouchedTime = 7 * 24 * time.Hour

// A record is the file from which a sleeping session is woken. It exists from the time that the
// session can have invocations until the session ends for good, so it survives a killed daemon. It
// contains the values of --env.
type record struct {
	Format int `json:"format"`
	// Request is the request for the session, without the caller's own environment.
	Request message.SessionRequest `json:"request"`
	UID     uint32                 `json:"uid"`
	// Digest is the digest of the request, Policy of the policy that was in force last.
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

// A recordStore stores the records of sessions that can sleep. Several daemons may use one
// directory.
type recordStore struct {
	// dir is the directory of the records, "" if sessions do not sleep.
	dir string
	// shadow returns the kept shadow of a session, or workspace.ErrNotFound.
	shadow func(id string) (*workspace.Workspace, error)
	// shadows describes all shadows.
	shadows func() ([]workspace.Info, error)
	// ended ends the grants of the session.
	ended func(id string) error
}

// A recordName is the file name of a record: user and session.
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

// names returns the names of the records for which want returns true.
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

// forget ends a sleeping session for good, with its grants. Its shadow stays, but can no longer be
// resumed.
func (s *recordStore) forget(n recordName) error {
	if s.ended != nil {
		// First, so that after an error the record is still there and Sweep tries again.
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

// drop removes the file of a record. It is no error if there is none.
func (s *recordStore) drop(n recordName) error {
	err := os.Remove(s.path(n))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// read returns a record, or nil if there is none. wakes reports whether the session sleeps and can
// be woken. dead reports whether no daemon can ever wake it: its shadow was discarded, or it was
// unused for too long with nothing left to review.
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
		// The session is open, or a commit is under way.
		return r, false, false, nil
	case workspace.Committed, workspace.ChangedBack:
		// Nothing is left to review.
		wakes = info.Resumable && recent
	default:
		wakes = info.Resumable
	}
	return r, wakes, !wakes, nil
}

// sleeping returns the record of the sleeping session with this id, or nil.
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

// owner returns the user of a sleeping session. ok is false if none has this id.
func (s *recordStore) owner(id string) (uid uint32, ok bool) {
	r, err := s.sleeping(id)
	if err != nil || r == nil {
		return 0, false
	}
	return r.UID, true
}

// all returns the records of the sleeping sessions of the users for which sees returns true. It
// skips records that cannot be read.
func (s *recordStore) all(sees func(uid uint32) bool) (all []*record) {
	names, _ := s.names(func(n recordName) bool { return sees(n.uid) })
	for _, n := range names {
		if r, wakes, _, err := s.read(n); err == nil && wakes {
			all = append(all, r)
		}
	}
	return all
}

// sweepOne forgets a session if no daemon can wake it, and reports whether it did.
func (s *recordStore) sweepOne(n recordName) (gone bool, err error) {
	if _, _, dead, err := s.read(n); err != nil || !dead {
		return false, err
	}
	err = s.forget(n)
	return err == nil, err
}

// Sweep forgets the sessions that no daemon can wake any more, with their records.
func (s *Sessions) Sweep() error {
	all, err := s.store.names(func(recordName) bool { return true })
	if err != nil {
		// Without the list, each session would look like one without a record.
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
			// Its daemon was killed before it wrote a record, or does not let sessions sleep.
			err = errors.Join(err, s.unlessOpen(n.id, func() error { return s.store.forget(n) }))
		}
	}
	if err = errors.Join(err, listErr); err != nil {
		return problem.New(problem.Failed, "records of sessions: %w", err)
	}
	return nil
}

// unlessOpen calls f unless a session with that id is open, starting or ending.
func (s *Sessions) unlessOpen(id string, f func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[id] != nil {
		return nil
	}
	return f()
}

// Forget forgets a user's session whose shadow was discarded.
func (s *Sessions) Forget(id string, uid uint32) error {
	return s.unlessOpen(id, func() error { return s.store.forget(recordName{uid, id}) })
}

// asleepBeside returns how many sessions of a user sleep, not counting id. s.mu is held.
func (s *Sessions) asleepBeside(uid uint32, id string) (int, error) {
	all, err := s.store.names(func(n recordName) bool {
		return n.uid == uid && n.id != id && s.open[n.id] == nil
	})
	if len(all) < maxUserAsleep {
		return len(all), err
	}
	count := 0
	for _, n := range all {
		// Count records that cannot be read, too.
		if gone, _ := s.store.sweepOne(n); !gone {
			count++
		}
	}
	return count, err
}

// Sleeps reports whether the session sleeps after the end of its jail, because it was idle or its
// daemon ends. It is called after Ended.
func (h *session) Sleeps() bool { return h.end.sleeps }

// maySleep reports whether the session can be woken after an end with this cause: it was idle, or
// its daemon ends. A session with no record, or one whose shadow is to be discarded, cannot.
func (h *session) maySleep(c *ending.Cause) bool {
	return h.end.record != nil && c != nil && (c.Limit == ending.LimitIdle || c.Daemon != "") &&
		h.end.fate != message.FateDiscard && h.run.Job().Req.Fate != message.FateDiscard
}

// remember writes the record of a session that can now have invocations. Without a shadow or a
// store it writes none.
func (h *session) remember() {
	j := h.run.Job()
	if h.end.store.dir == "" || h.shadow == nil {
		return
	}
	r := &record{Format: recordFormat, Request: h.asked.request, UID: h.asked.uid,
		Digest: h.asked.digest, Policy: h.state.Policy, Workspace: h.state.Workspace,
		Profile: h.state.Profile, Started: h.state.Started, Used: time.Now().UTC(),
		LeftMS: j.Holds.For.Milliseconds()}
	if h.end.woken != nil {
		r.Started, r.Invocations = h.end.woken.Started, h.end.woken.Invocations
	}
	r.Request.Inherit = nil
	if err := h.end.store.save(r, atomicfile.Volatile); err != nil {
		// Without a record the session works, but cannot sleep.
		h.runner.Errors.Failed("write the record of the session", string(j.ID), err)
		return
	}
	h.end.record = r
}

// settle saves the record of an ended session that sleeps now, or removes the record of one that
// does not.
func (h *session) settle() {
	if h.run == nil || h.end.record == nil {
		return
	}
	id, res := string(h.run.Job().ID), h.run.Result()
	// The state of the shadow decides: an error, such as a failed commit, must not lose the
	// session.
	sleeps := h.end.sleeps
	switch res.Workspace {
	case "kept", "committed":
	case "discarded":
		h.end.record.Untouched = true
	default:
		sleeps = false
	}
	var err error
	if sleeps {
		used := h.invocations.now()
		h.end.record.Used = time.Now().UTC()
		h.end.record.Invocations += used.count
		left := h.end.record.LeftMS - time.Since(h.end.stood).Milliseconds()
		h.end.record.LeftMS = max(left, time.Second.Milliseconds())
		if err = h.end.store.save(h.end.record, atomicfile.Durable); err == nil {
			err = h.note(h.run.Job(), audit.Session{Event: audit.SessionSlept})
		}
	} else {
		err = h.end.store.forget(h.end.record.name())
	}
	h.runner.Errors.Failed("keep the session", id, err)
}

// note records an event of the session in the audit log.
func (h *session) note(j *prepare.Job, e audit.Session) error {
	_, err := h.runner.Log.Append(context.Background(), audit.Entry{Run: string(j.ID),
		Session: j.Session(), Actor: j.Caller.Actor(), Policy: j.Policy.Digest(), Event: e})
	return err
}

// noteWaking records that a session is woken, before its jail is made. If the policy has changed
// since it slept, the next invocation gets a warning.
func (h *session) noteWaking(j *prepare.Job) error {
	if h.end.woken == nil {
		return nil
	}
	e := audit.Session{Event: audit.SessionWoken}
	if now := j.Policy.Digest(); now != h.end.woken.Policy {
		e.Was = h.end.woken.Policy
		h.end.news = append(h.end.news, fmt.Sprintf(
			"the policy changed while the session slept: from now on %s is in force, not %s", now,
			h.end.woken.Policy))
	}
	if err := h.note(j, e); err != nil {
		return problem.New(problem.Failed, "audit log: %w", err)
	}
	return nil
}

// takeNews returns the warnings for the next invocation, and clears them.
func (h *session) takeNews() []string {
	h.end.mu.Lock()
	defer h.end.mu.Unlock()
	news := h.end.news
	h.end.news = nil
	return news
}

// maxWakes bounds how often one request wakes a session that falls asleep again at once.
const maxWakes = 10

// awake returns a session that takes invocations, woken if it sleeps, and a place for one
// invocation in it. Call leave to give back the place.
func (s *Sessions) awake(ctx context.Context, c caller.Caller, id string) (h *session,
	leave func(), err error) {
	for range maxWakes {
		if h, err = s.reach(ctx, c, id); err != nil {
			return nil, nil, err
		}
		leave, err = h.invocations.enter(ctx)
		if err == nil || !h.invocations.rests() {
			return h, leave, err
		}
		// The session fell asleep meanwhile.
	}
	return nil, nil, err
}

// mayEnter returns an error unless the caller may run tools in the session with this id, which is
// open or sleeps.
func (s *Sessions) mayEnter(c caller.Caller, id string) error {
	h, err := s.find(c, id)
	switch {
	case err == nil && h.asked.uid != c.UID:
		return notYours(id, h.asked.uid)
	case err == nil && (h.end.wakes || h.invocations.rests()):
		return nil
	}
	_, err = s.standing(c, id)
	if err == nil || problem.From(err).Code != problem.NotFound {
		return err
	}
	r, findErr := s.asleep(c, id)
	switch {
	case findErr != nil:
		return findErr
	case r == nil:
		return err
	case r.UID != c.UID:
		return notYours(id, r.UID)
	}
	return nil
}

// fallen waits while the caller's session with this id is falling asleep. It returns at once for
// any other session.
func (s *Sessions) fallen(ctx context.Context, c caller.Caller, id string) error {
	h, err := s.find(c, id)
	if err != nil || h.asked.uid != c.UID || !h.invocations.rests() {
		return nil
	}
	return lifetime.Await(ctx, h.gone)
}

// reach returns an open session with this id. It wakes the session if it sleeps.
func (s *Sessions) reach(ctx context.Context, c caller.Caller, id string) (*session, error) {
	if err := s.fallen(ctx, c, id); err != nil {
		return nil, err
	}
	h, err := s.find(c, id)
	if err == nil && h.asked.uid == c.UID && h.end.wakes && !h.ended() && !closed(h.stands) {
		if _, err := s.await(ctx, h, nil); err != nil {
			return nil, err
		}
	}
	h, err = s.standing(c, id)
	if err == nil && h.asked.uid != c.UID {
		return nil, notYours(id, h.asked.uid)
	}
	if err == nil || problem.From(err).Code != problem.NotFound {
		return h, err
	}
	r, findErr := s.asleep(c, id)
	if findErr != nil || r == nil {
		return nil, cmp.Or(findErr, err)
	}
	if r.UID != c.UID {
		return nil, notYours(id, r.UID)
	}
	if _, err := s.begin(ctx, c, r.Request, true); err != nil {
		return nil, err
	}
	return s.standing(c, id)
}

func notYours(id string, uid uint32) error {
	return problem.New(problem.Refused,
		"session %s is of user %d, and only that user may run tools in it", id, uid)
}

// asleep returns the record of a sleeping session, or nil if there is none that the caller may see.
func (s *Sessions) asleep(c caller.Caller, id string) (*record, error) {
	r, err := s.store.sleeping(id)
	if err != nil || r == nil || !s.permissions(c).Sees(r.UID) {
		return nil, err
	}
	return r, nil
}

// stopAsleep ends a sleeping session. If the caller is its user, the session is woken first, so
// that the requested fate applies to its shadow. Otherwise, or if waking fails, its shadow is kept,
// and a request to commit or discard it is an error. So is a session that is busy when it is woken.
func (s *Sessions) stopAsleep(ctx context.Context, c caller.Caller, r *record,
	req message.StopRequest) (message.Result, error) {
	id := r.Request.ID
	if err := s.permissions(c).Change(r.UID, "session", id); err != nil {
		return message.Result{}, err
	}
	var wakeErr error
	if r.UID == c.UID {
		if _, wakeErr = s.begin(ctx, c, r.Request, true); wakeErr == nil {
			return s.Stop(ctx, c, id, req)
		}
		if problem.From(wakeErr).Code == problem.Busy {
			return message.Result{}, wakeErr
		}
	}
	if req.Fate == message.FateDiscard || req.Fate == message.FateCommit {
		return message.Result{}, problem.New(problem.Refused,
			"session %s sleeps and cannot be woken, so its shadow cannot be %sed with its end", id,
			req.Fate).WithCause(wakeErr).WithHint("jail session stop " + id +
			", and then jail diff, commit or discard " + id)
	}
	res := message.Result{ID: id, Session: id, Policy: r.Policy, Workspace: "kept"}
	if r.Untouched {
		res.Workspace = "discarded"
	}
	if wakeErr != nil {
		res.Warnings = append(res.Warnings, "the session could not be woken, and ended as it was: "+
			problem.Describe(wakeErr))
	}
	if _, err := s.runner.Log.Append(ctx, audit.Entry{Run: id, Session: id, Actor: c.Actor(),
		Policy: r.Policy, Event: audit.Session{Event: audit.SessionEnded}}); err != nil {
		return message.Result{}, problem.New(problem.Failed, "audit log: %w", err)
	}
	if err := s.store.forget(r.name()); err != nil {
		return message.Result{}, problem.New(problem.Failed, "%w", err)
	}
	return res, nil
}
