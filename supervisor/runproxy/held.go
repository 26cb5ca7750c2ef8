package runproxy

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/approvals"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/fetch"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

const (
	// maxWait bounds how long a request waits for an approval.
	maxWait = time.Minute
	// maxApproved bounds the requests of a run that were approved and are not on record yet.
	maxApproved = 1024
)

// held are the requests of a run that its policy holds back. Its methods may be called from several
// goroutines.
type held struct {
	host   *Host
	policy policy.Effective
	run    Run

	mu sync.Mutex
	// approved are requests that were approved and are not on record yet.
	approved map[uint64]fetch.What
	// pending are the errors for actions that nobody has decided on, by their ids.
	pending map[string]*problem.Error
	// asked says that a request has waited.
	asked bool
}

// ask asks for an approval of a request, and waits for the decision.
func (h *held) ask(ctx context.Context, q fetch.Question) fetch.Verdict {
	// The proxy talks to strangers: nobody is asked for what the policy does not hold back.
	if rule := h.rule(q.What); rule.Mode != policy.ApproveAsk {
		return fetch.Verdict{Code: problem.Refused, Message: "no approval would let it pass: " +
			rule.String(), Next: "do without, or ask who wrote the policy"}
	}
	h.mu.Lock()
	h.asked = true
	h.mu.Unlock()
	req := h.run.Asks
	req.Fetch = approvals.Fetch{Kind: q.Kind, Method: q.Method, URL: q.URL, Body: q.Body,
		Size: q.Size, Credential: q.Credential}
	a, err := h.host.Queue.Ask(ctx, h.run.Caller, req, min(maxWait, h.run.Left()))
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.pending, a.ID)
	switch {
	case err != nil:
	case a.State == approvals.Applied:
		if len(h.approved) >= maxApproved {
			// The eldest never came.
			delete(h.approved, slices.Min(slices.Collect(maps.Keys(h.approved))))
		}
		h.approved[q.ID] = q.What
		return fetch.Verdict{}
	case !a.State.Over():
		waits := problem.From(approvals.Waits(a))
		h.pending[a.ID], err = waits, waits
	default:
		err = approvals.Refused(a)
	}
	e := problem.From(err)
	if e.Code != problem.ApprovalPending && e.Code != problem.Refused {
		return h.unanswered(ctx, e)
	}
	return fetch.Verdict{Code: e.Code, Message: e.Message, Next: e.Hint, Approval: e.Approval}
}

// unanswered returns the verdict where the queue has none. Its errors name what is the host's and
// other users', so they are for the daemon's log only.
func (h *held) unanswered(ctx context.Context, e *problem.Error) fetch.Verdict {
	if e.Code == problem.Busy {
		return fetch.Verdict{Code: problem.Busy, Message: "too many requests wait for an approval",
			Next: "ask again when some are decided"}
	}
	if ctx.Err() == nil {
		h.host.Errors.Check("ask for the approval of a fetch", e)
	}
	return fetch.Verdict{Code: problem.Failed, Message: "nobody can be asked for an approval now",
		Next: "ask again later"}
}

// rule returns the rule of the policy that holds a request back.
func (h *held) rule(w fetch.What) policy.ApproveRule {
	return h.policy.Policy().Approve.Fetch(fetch.ConnectOf(w))
}

// unapproved returns why a request must not be sent, if the policy holds it back and nobody has
// approved it. It is the proxy that asks, and the daemon that sees to it.
func (h *held) unapproved(w fetch.What) string {
	rule := h.rule(w)
	if rule.Mode == policy.ApproveAuto {
		return ""
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	approved, ok := h.approved[w.ID]
	delete(h.approved, w.ID)
	if ok && rule.Mode == policy.ApproveAsk && approved == w {
		return ""
	}
	return "it is not approved: " + rule.String()
}

// close ends the grants for the requests of a run that has ended.
func (h *held) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.asked || h.run.InSession {
		return nil
	}
	return h.host.Queue.End(h.run.Asks.Run)
}

// waiting returns the error for the run if one of its requests still waits for an approval, or nil.
func (h *held) waiting() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(h.pending)) {
		a, err := h.host.Queue.Look(id)
		switch {
		case err == nil && !a.State.Over():
			return approvals.Waits(a)
		case err != nil && problem.From(err).Code != problem.NotFound:
			return h.pending[id]
		}
		// Somebody has decided meanwhile, or another run was sent for it.
	}
	return nil
}

// A Queue is asked about requests that a policy holds back.
type Queue interface {
	// Ask returns once somebody has decided on a request, or nobody has within some time.
	Ask(context.Context, caller.Caller, approvals.FetchRequest, time.Duration) (approvals.Action,
		error)
	// Look returns an action as it is now.
	Look(id string) (approvals.Action, error)
	// End ends the grants for the requests of a run.
	End(run string) error
}
