package approvals

import (
	"context"
	"slices"
	"time"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// maxOfRun bounds the actions of one run or session that wait to be approved before they are done.
const maxOfRun = 200

const (
	// maxOfRunBytes bounds their bytes.
	maxOfRunBytes = 256 << 10
	// maxOthers bounds the connections that propose the same action.
	maxOthers = 64
)

// first is how a queue is asked for actions that are approved before they are done.
type first struct{ q *Queue }

// ask asks whether actions may be done that are approved first. If each was approved, or a
// grant covers it, all are Applied and the last is returned. Else none is, and the first one that
// waits is returned: a known one that is the same, or a new one. After the end of ctx no action
// becomes Applied.
func (f first) ask(ctx context.Context, c caller.Caller, all ...Action) (Action, error) {
	var out *stored
	err := f.q.step(func(now time.Time) (done line, err error) {
		for _, a := range all {
			if ctx.Err() != nil {
				if out, _ = f.like(a, c.Connection); out == nil {
					err = context.Cause(ctx)
				}
				return line{}, err
			}
			var l line
			if out, err = f.pass(&l, a, c, now); err != nil || out.State != Applied {
				return l, err
			}
			done.add(l)
		}
		return done, nil
	})
	return actionOf(out), err
}

// pass makes an action Applied that was approved or that a grant covers. Else it returns the one
// that waits.
func (f first) pass(l *line, a Action, c caller.Caller, now time.Time) (*stored, error) {
	s, waiting := f.like(a, c.Connection)
	var err error
	switch {
	case s != nil && s.State == Rejected && grantOf(f.q, a, now) == nil:
		return s, nil
	case s == nil || s.State == Rejected:
		if waiting.n >= maxOfRun || waiting.bytes+(&stored{Action: a}).size() > maxOfRunBytes {
			return nil, problem.New(problem.Busy, "%d actions of %s wait for an approval, %d bytes",
				waiting.n, a.Run, waiting.bytes).WithHint("jail approvals lists them; decide on some")
		}
		if s, err = f.q.add(l, stored{Action: a}, c, now); err != nil {
			return nil, err
		}
	case s.State == Pending:
		// The grant is newer than the action.
		if g := grantOf(f.q, s.Action, now); g != nil {
			s = l.granted(s, g, now)
		} else if c.Connection != "" && !s.proposedBy(c.Connection) {
			also := *s
			also.Others = append(slices.Clone(s.Others), c.Connection)
			s = &also
			l.Actions = append(l.Actions, s)
		}
	}
	if s.State == Approved {
		// It counts once, whatever becomes of what is done.
		s = l.move(s, Applied, now, s.Decision.actor())
	}
	return s, nil
}

// like returns the action that is the same as a and is approved, or else waits, or else was rejected
// in the run of a while that lasts; and the actions of that run that wait. A start of a tool asks
// anew after a rejection.
func (f first) like(a Action, connection string) (found *stored, waiting share) {
	ranks := []State{Rejected, Pending, Approved}
	best := -1
	for _, s := range f.q.actions {
		if s.UID != a.UID || s.Commit != nil || s.task() != nil {
			continue
		}
		if s.State == Pending && s.Run == a.Run {
			waiting = waiting.plus(1, s.size())
		}
		rank := slices.Index(ranks, s.State)
		switch {
		case rank <= best || s.Policy != a.Policy || !s.same(a):
		case s.State == Rejected && (s.Run != a.Run || s.RunEnded || a.Tool != nil):
		case s.State == Pending && len(s.Others) >= maxOthers && !s.proposedBy(connection):
		default:
			found, best = s, rank
		}
	}
	return found, waiting
}

// add appends another line.
func (l *line) add(m line) {
	l.Actions, l.Grants = append(l.Actions, m.Actions...), append(l.Grants, m.Grants...)
	l.Ended, l.Records = append(l.Ended, m.Ended...), append(l.Records, m.Records...)
}

// A FetchRequest proposes a request that a run wants to send.
type FetchRequest struct {
	// Run is the run or session, and Policy the digest of its policy.
	Run, Policy string
	Fetch       Fetch
	// Waits is called when the request begins to wait for a person, and ends to. It may be nil.
	Waits func(begins bool)
}

// Fetches asks about requests, and lets them pass that were approved.
type Fetches struct{ first }

// Fetches returns what the proxies of runs do with the queue.
func (q *Queue) Fetches() Fetches { return Fetches{first{q}} }

// Ask returns once a request may be sent, which is then on record: the action is Applied. It
// waits for a decision until ctx ends, at most for wait. Then the action is Pending, or Approved,
// and the decision is for the next request that is the same. An action that was rejected, or is
// over in another way, is returned as it is. Once ctx has ended, no request is sent.
func (f Fetches) Ask(ctx context.Context, c caller.Caller, req FetchRequest,
	wait time.Duration) (Action, error) {
	limited, stop := context.WithTimeout(ctx, wait)
	defer stop()
	for {
		a, err := f.ask(ctx, c, Action{Type: policy.ActionFetch, UID: c.UID, Run: req.Run,
			Policy: req.Policy, Fetch: &req.Fetch})
		if err != nil || a.State != Pending || wait <= 0 {
			return a, err
		}
		a, err = f.await(limited, req, a.ID)
		decided := a.State == Approved || a.State == Applied
		if err != nil || !decided || ctx.Err() != nil {
			return a, err
		}
		// It is this request's, unless another one that is the same was faster.
	}
}

// await waits until the action of a request is no longer pending, or ctx ends.
func (f Fetches) await(ctx context.Context, req FetchRequest, id string) (Action, error) {
	if req.Waits != nil {
		req.Waits(true)
		defer req.Waits(false)
	}
	return until(ctx, f.q, func(a Action) bool { return a.State != Pending }, func() (Action, error) {
		// Many may wait: a look at what is known costs no step.
		f.q.mu.Lock()
		s := f.q.actions[id]
		known := s != nil && s.State == Pending && !f.q.journal.changed()
		f.q.mu.Unlock()
		if known {
			return s.Action, nil
		}
		return f.Look(id)
	})
}

// Look returns an action as it is now.
func (f Fetches) Look(id string) (Action, error) {
	s, err := f.q.current(id)
	return actionOf(s), err
}

// End ends the grants for the fetches of a run that has ended.
func (f Fetches) End(run string) error {
	return endGrants(f.q, run, func(g *Grant) bool { return g.Type == policy.ActionFetch })
}

// Refused is the error for a request whose action nobody will approve.
func Refused(a Action) *problem.Error {
	hint := "do without, or ask again: that makes another action"
	if a.State == Rejected {
		hint = "do without: the answer is the same for as long as this run or session lasts"
	}
	return problem.New(problem.Refused, "action %s is %s: %s", a.ID, a.State, a.onRecord()).
		WithHint(hint)
}

// Tools asks about tools before they start.
type Tools struct{ first }

// Tools returns what the runs do with the queue.
func (q *Queue) Tools() Tools { return Tools{first{q}} }

// Ask returns nil if the tools of a run or session may start, which is then on record. Else it adds
// the first of them that needs one to the actions that wait for an approval, and the error says so.
// It does not wait: nothing has started that would be lost.
func (t Tools) Ask(ctx context.Context, c caller.Caller, run, digest string, tools ...Tool) error {
	var all []Action
	for _, tool := range tools {
		all = append(all, Action{Type: policy.ActionTool, UID: c.UID, Run: run, Policy: digest,
			Tool: &tool})
	}
	a, err := t.ask(ctx, c, all...)
	switch {
	case err != nil:
		return err
	case a.State == Pending, a.State == Approved:
		return Waits(a)
	case a.State != Applied:
		return Refused(a)
	}
	return nil
}
