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
	// maxWait bounds how long one request waits for an approval.
	maxWait = time.Minute
	// maxApproved bounds how many approved requests of a run may wait to be sent.
	maxApproved = 1024
)

// held tracks the requests of a run for which its policy demands an approval. Its methods may be
// called from several goroutines.
type held struct {
	host   *Host
	policy policy.Effective
	run    Run

	mu sync.Mutex
	// approved are the approved requests that were not sent yet, by id.
	approved map[uint64]fetch.What
	// pending has the errors of undecided actions, by action id.
	pending map[string]*problem.Error
	// asked says that an approval was ever asked for.
	asked bool
}

// ask asks for the approval of a request and waits for the decision.
func (h *held) ask(ctx context.Context, q fetch.Question) fetch.Verdict {
	// The proxy may be compromised, so people are asked only about requests that the policy holds
	// back.
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
			// The oldest was never sent.
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

// unanswered returns the verdict if the queue fails with e. The text of e may be about other users,
// so it goes only to the daemon's log.
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

// rule returns the rule of the policy on approvals of a request.
func (h *held) rule(w fetch.What) policy.ApproveRule {
	return h.policy.Policy().Approve.Fetch(fetch.ConnectOf(w))
}

// unapproved returns why a request must not be sent, or "" if it may. The proxy asks for approvals,
// but the daemon checks them here.
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

// close ends the grants that approvals made for a run, unless they belong to its session.
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
		// It was decided meanwhile.
	}
	return nil
}

// A Queue holds requests until somebody approves or refuses them.
type Queue interface {
	// Ask waits until somebody decides on a request, at most for the duration, and returns the
	// action.
	Ask(context.Context, caller.Caller, approvals.FetchRequest, time.Duration) (approvals.Action,
		error)
	// Look returns the current state of an action.
	Look(id string) (approvals.Action, error)
	// End ends the grants of a run.
	End(run string) error
}
