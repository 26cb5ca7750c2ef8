package approvals

import (
	"context"
	"slices"
	"time"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// maxOfRun bounds the pending fetches and tools of a run, and the external actions of an agent.
const maxOfRun = 200

const (
	// maxOfRunBytes bounds the total size of the pending fetches and tools of a run.
	maxOfRunBytes = 256 << 10
	// maxOthers bounds the connections in stored.Others.
	maxOthers = 64
)

// first handles fetches and tools, which are approved first and then done by a run.
type first struct{ q *Queue }

// ask asks whether all these actions may be done. If each was approved or is covered by a grant,
// all become Applied and the last is returned. Otherwise none does, and the first that was not
// approved is returned: an existing action that is the same, or a new one. No action becomes
// Applied after ctx ends.
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

// pass makes a Applied if it was approved or a grant covers it. Otherwise it returns the pending or
// rejected action that is the same as a, which it adds if there is none.
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
		// A grant may have been made after the action.
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
		// An approval is used once, even if the fetch or tool fails.
		s = l.move(s, Applied, now, s.Decision.actor())
	}
	return s, nil
}

// like returns the action that is the same as a, preferring approved to pending to rejected.
// Rejected fetches count only while the same run lasts, rejected tools never. waiting is the number
// and size of the pending actions of the run.
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

// add appends the items of line m.
func (l *line) add(m line) {
	l.Actions, l.Grants = append(l.Actions, m.Actions...), append(l.Grants, m.Grants...)
	l.Ended, l.Records = append(l.Ended, m.Ended...), append(l.Records, m.Records...)
}

// A FetchRequest asks for permission for an HTTP request of a run.
type FetchRequest struct {
	// Run is the run or session, and Policy the digest of its policy.
	Run, Policy string
	Fetch       Fetch
	// Waits, unless nil, is called with true before waiting for a decision and with false after it.
	Waits func(begins bool)
}

// Fetches asks the queue for permission for HTTP requests of runs.
type Fetches struct{ first }

// Fetches returns the interface of the queue for the fetch proxies of runs.
func (q *Queue) Fetches() Fetches { return Fetches{first{q}} }

// Ask waits for a decision until ctx ends, at most for wait. If the returned action is Applied, the
// request may be sent, and the audit log has a record of it. If it is Pending or Approved, the time
// is over, and the decision counts for the next request that is the same. In other states, and
// after the end of ctx, the request must not be sent.
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
		// Ask again: another request that is the same may have used the approval.
	}
}

// await waits until the action of a request is no longer pending, or ctx ends.
func (f Fetches) await(ctx context.Context, req FetchRequest, id string) (Action, error) {
	if req.Waits != nil {
		req.Waits(true)
		defer req.Waits(false)
	}
	return until(ctx, f.q, func(a Action) bool { return a.State != Pending }, func() (Action, error) {
		// Many requests may wait, so avoid a step of the queue if nothing has changed.
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

// Look returns the current value of an action.
func (f Fetches) Look(id string) (Action, error) {
	s, err := f.q.current(id)
	return actionOf(s), err
}

// End revokes the grants for fetches of a run that has ended.
func (f Fetches) End(run string) error {
	return endGrants(f.q, run, func(g *Grant) bool { return g.Type == policy.ActionFetch })
}

// Refused returns the error for a fetch or tool whose action was rejected or is over.
func Refused(a Action) *problem.Error {
	hint := "do without, or ask again: that makes another action"
	if a.State == Rejected {
		hint = "do without: the answer is the same for as long as this run or session lasts"
	}
	return problem.New(problem.Refused, "action %s is %s: %s", a.ID, a.State, a.onRecord()).
		WithHint(hint)
}

// Tools asks the queue for permission to start tools.
type Tools struct{ first }

// Tools returns the interface of the queue for runs that start tools.
func (q *Queue) Tools() Tools { return Tools{first{q}} }

// Ask returns nil if all these tools may start, and then the audit log has a record. Otherwise the
// first tool without an approval becomes a pending action, which the error names. Ask does not wait
// for the decision, since nothing has started yet.
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
