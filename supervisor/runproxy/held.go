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
	// maxApproved bounds the approved requests of a run whose intents are not recorded yet.
	maxApproved = 1024
)

// held manages the requests of a run that need an approval by its policy. Its methods are safe for
// concurrent use.
type held struct {
	host   *Host
	policy policy.Effective
	run    Run

	mu sync.Mutex
	// approved has the approved requests whose intents are not recorded yet, by request id.
	approved map[uint64]fetch.What
	// pending has the errors of undecided actions, by action id.
	pending map[string]*problem.Error
	// asked: at least one request needed an approval.
	asked bool
}

// ask requests an approval for q and waits for the decision.
func (h *held) ask(ctx context.Context, q fetch.Question) fetch.Verdict {
	// Untrusted input reaches the proxy: ask people only what the policy holds back.
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
			// Drop the oldest, whose intent never came.
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

// unanswered returns the verdict for an error of the queue. It writes the error to the daemon's log
// only, since the text may concern other users or the host.
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

// rule returns the approval rule of the policy for a request.
func (h *held) rule(w fetch.What) policy.ApproveRule {
	return h.policy.Policy().Approve.Fetch(fetch.ConnectOf(w))
}

// unapproved returns why a request must not be sent, or "" if it needs no approval or has one. The
// daemon checks this itself because it does not trust the proxy.
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

// close ends the run's grants after the run. In a session it keeps them.
func (h *held) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.asked || h.run.InSession {
		return nil
	}
	return h.host.Queue.End(h.run.Asks.Run)
}

// waiting returns an error if one of the run's requests still waits for an approval, else nil.
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
		// The action is decided by now, or the queue no longer has it.
	}
	return nil
}

// A Queue holds actions that wait for an approval.
type Queue interface {
	// Ask adds a request and returns when somebody has decided on it or the time has passed.
	Ask(context.Context, caller.Caller, approvals.FetchRequest, time.Duration) (approvals.Action,
		error)
	// Look returns the current state of an action.
	Look(id string) (approvals.Action, error)
	// End ends the run's grants for requests.
	End(run string) error
}
