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

// Sleeps reports whether the session sleeps after its end, because nothing ran in it or its daemon
// ends. It is called after Ended.
func (h *session) Sleeps() bool { return h.end.sleeps }

// maySleep reports whether an end for this cause is one that the session can be woken from. A
// session without a shadow, or of a user's daemon, has nothing that would wait for it, and one that
// was started with --discard leaves nothing behind.
func (h *session) maySleep(c *ending.Cause) bool {
	return h.end.record != nil && c != nil && (c.Limit == ending.LimitIdle || c.Daemon != "") &&
		h.end.fate != message.FateDiscard && h.run.Job().Req.Fate != message.FateDiscard
}

// remember writes the record of a session that can have invocations from now on.
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
		// It works as long as it is open.
		h.runner.Errors.Failed("write the record of the session", string(j.ID), err)
		return
	}
	h.end.record = r
}

// settle makes the record of a session that has ended one of a session that sleeps, or removes it.
func (h *session) settle() {
	if h.run == nil || h.end.record == nil {
		return
	}
	id, res := string(h.run.Job().ID), h.run.Result()
	// What the shadow became decides: an error, of a commit for example, loses no session.
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

// note puts what became of a session on record.
func (h *session) note(j *prepare.Job, e audit.Session) error {
	_, err := h.runner.Log.Append(context.Background(), audit.Entry{Run: string(j.ID),
		Session: j.Session(), Actor: j.Caller.Actor(), Policy: j.Policy.Digest(), Event: e})
	return err
}

// noteWaking puts on record that a session is woken, before its jail is made. The policy is decided
// anew, as for a new session. Where it is another than before, the next invocation says so.
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

// takeNews returns what the next invocation is to be told, once.
func (h *session) takeNews() []string {
	h.end.mu.Lock()
	defer h.end.mu.Unlock()
	news := h.end.news
	h.end.news = nil
	return news
}

// maxWakes bounds how often one request wakes a session that falls asleep again.
const maxWakes = 10

// awake returns a session that takes invocations, and a place in it for one. A session that sleeps
// is woken for it.
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
		// It fell asleep in between.
	}
	return nil, nil, err
}

// mayEnter returns an error if there is no session of that id, open or asleep, in which the caller
// may run tools.
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

// fallen waits until a session of the caller's that is falling asleep sleeps. It returns at once for
// any other.
func (s *Sessions) fallen(ctx context.Context, c caller.Caller, id string) error {
	h, err := s.find(c, id)
	if err != nil || h.asked.uid != c.UID || !h.invocations.rests() {
		return nil
	}
	return lifetime.Await(ctx, h.gone)
}

// reach returns a session that stands, and wakes it if it sleeps.
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

// asleep returns the record of a session that sleeps, for who may see it, or nil.
func (s *Sessions) asleep(c caller.Caller, id string) (*record, error) {
	r, err := s.store.sleeping(id)
	if err != nil || r == nil || !s.permissions(c).Sees(r.UID) {
		return nil, err
	}
	return r, nil
}

// stopAsleep ends a session that sleeps. Its user wakes it for that, so that its shadow has the
// fate that was asked for. One that cannot be woken, or that another user ends, ends as it is, and
// its shadow is kept.
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
