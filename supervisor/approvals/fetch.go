package approvals

import (
	"context"
	"time"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// A FetchRequest proposes a request that a run wants to send.
type FetchRequest struct {
	// Run is the run or session, and Policy the digest of its policy.
	Run, Policy string
	Fetch       Fetch
}

// Fetches asks about requests, and lets them pass that were approved.
type Fetches struct{ q *Queue }

// Fetches returns what the proxies of runs do with the queue.
func (q *Queue) Fetches() Fetches { return Fetches{q} }

// Ask returns once a request may be sent, which is then on record: the action is Applied. It
// waits for a decision until ctx ends, at most for wait. Then the action is Pending, and a decision
// is for the next request that is the same. An action that was rejected, or is over in another way,
// is returned as it is.
func (f Fetches) Ask(ctx context.Context, c caller.Caller, req FetchRequest,
	wait time.Duration) (Action, error) {
	ctx, stop := context.WithTimeout(ctx, wait)
	defer stop()
	for {
		a, err := f.claim(c, req)
		if err != nil || a.State != Pending {
			return a, err
		}
		waited, err := f.await(ctx, a.ID)
		switch {
		case err != nil || waited.State == Pending:
			return waited, err
		case waited.State != Approved && waited.State != Applied:
			return waited, nil
		}
		// It is this request's, unless another one that is the same was faster.
	}
}

// await waits until an action is no longer pending, or ctx ends.
func (f Fetches) await(ctx context.Context, id string) (Action, error) {
	return until(ctx, f.q, func(s State) bool { return s != Pending }, func() (Action, error) {
		s, err := f.q.current(id)
		return actionOf(s), err
	})
}

// End ends the grants for the fetches of a run that has ended.
func (f Fetches) End(run string) error {
	return endGrants(f.q, func(g *Grant) bool {
		return g.Run == run && g.Type == policy.ActionFetch
	})
}

// claim takes an approval that there is for a request, or adds an action that waits for one.
func (f Fetches) claim(c caller.Caller, req FetchRequest) (Action, error) {
	a := Action{Type: policy.ActionFetch, UID: c.UID, Run: req.Run, Policy: req.Policy,
		Fetch: &req.Fetch}
	var out *stored
	err := f.q.step(func(now time.Time) (l line, err error) {
		if out = f.find(a); out != nil && out.State == Pending {
			return l, nil
		}
		if out == nil {
			if out, err = f.q.add(&l, a, c, now); err != nil {
				return l, err
			}
		}
		if out.State == Approved {
			// It counts once, whatever becomes of the request.
			out = l.move(out, Applied, now, out.Decision.actor())
		}
		return l, nil
	})
	return actionOf(out), err
}

// find returns the action that waits for the same request as a, or was approved for it.
func (f Fetches) find(a Action) (found *stored) {
	for _, s := range f.q.actions {
		if s.Fetch == nil || s.State.Over() || s.UID != a.UID || s.Policy != a.Policy ||
			*s.Fetch != *a.Fetch {
			continue
		}
		if found == nil || s.State == Approved {
			found = s
		}
	}
	return found
}

// Refused is the error for a request whose action nobody will approve.
func Refused(a Action) *problem.Error {
	return problem.New(problem.Refused, "action %s is %s: %s", a.ID, a.State, a.Summary).
		WithHint("do without, or ask again: that makes another action")
}
