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
	// maxWaits bounds how long the requests of a run wait together: the time does not count against
	// the wall time of the run.
	maxWaits = 10 * time.Minute
	// maxApproved bounds the requests of a run that were approved and are not on record yet.
	maxApproved = 1024
)

// held are the requests of a run that its policy holds back. Its methods may be called from several
// goroutines.
type held struct {
	host *Host
	spec Spec

	mu sync.Mutex
	// left is for how long requests may still wait.
	left time.Duration
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
	wait := min(maxWait, h.left)
	h.left -= wait
	h.asked = true
	h.mu.Unlock()
	h.spec.Waits(true)
	defer h.spec.Waits(false)
	begun := time.Now()
	req := h.spec.Asks
	req.Fetch = approvals.Fetch{Kind: q.Kind, Method: q.Method, URL: q.URL, Body: q.Body,
		Size: q.Size, Credential: q.Credential}
	a, err := h.host.Ask(ctx, h.spec.Caller, req, wait)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.left += max(wait-time.Since(begun), 0)
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
	return fetch.Verdict{Code: e.Code, Message: e.Message, Next: e.Hint, Approval: e.Approval}
}

// rule returns the rule of the policy that holds a request back.
func (h *held) rule(w fetch.What) policy.ApproveRule {
	return h.spec.Policy.Policy().Approve.Fetch(fetch.ConnectOf(w))
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
	if !h.asked || h.spec.InSession {
		return nil
	}
	return h.host.EndFetches(h.spec.Asks.Run)
}

// waiting returns the error for the run if one of its requests still waits for an approval, or nil.
func (h *held) waiting() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(h.pending)) {
		return h.pending[id]
	}
	return nil
}

// An Asker returns once somebody has decided on a request, or nobody has within some time.
type Asker func(context.Context, caller.Caller, approvals.FetchRequest,
	time.Duration) (approvals.Action, error)
