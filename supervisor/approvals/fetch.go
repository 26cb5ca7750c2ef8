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
		a, err = f.awaiting(limited, req, a.ID)
		decided := a.State == Approved || a.State == Applied
		if err != nil || !decided || ctx.Err() != nil {
			return a, err
		}
		// It is this request's, unless another one that is the same was faster.
	}
}

// awaiting is await, and says when the request waits.
func (f Fetches) awaiting(ctx context.Context, req FetchRequest, id string) (Action, error) {
	if req.Waits != nil {
		req.Waits(true)
		defer req.Waits(false)
	}
	return f.await(ctx, id)
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
