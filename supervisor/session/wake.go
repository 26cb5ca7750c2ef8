package session

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jail-sandbox/jail/jail/atomicfile"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/ending"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/prepare"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// Sleeps reports whether the session sleeps after its end, because nothing ran in it or its daemon
// ends. It is called after Ended.
func (h *session) Sleeps() bool { return h.end.sleeps }

// maySleep reports whether an end for this cause is one that the session can be woken from. A
// session without a shadow, or of a user's daemon, has nothing that would wait for it, and one that was started with
// --discard leaves nothing behind.
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
	select {
	case <-h.gone:
		return nil
	case <-ctx.Done():
		return problem.New(problem.Failed, "the caller went away").WithCause(ctx.Err())
	}
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
