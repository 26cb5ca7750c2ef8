package api

import (
	"context"
	"crypto/rand"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/jail-sandbox/jail/jail/tick"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/approvals"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// Paths of the actions that wait for an approval, and of grants.
const (
	pathApprovals = "/v1/approvals"
	pathGrants    = "/v1/grants"
)

// A ProposeRequest proposes an action.
type ProposeRequest = approvals.ProposeRequest

// actions lists the actions that wait for an approval. With ?wait= it waits until the list changes.
func (srv *Server) actions(q call) (any, error) {
	query := q.URL.Query()
	if !query.Has("wait") {
		return srv.s.Approvals().List(q.caller, query.Get("all") == "1")
	}
	ctx, stop, err := srv.atMost(q.Context(), query.Get("wait"))
	if err != nil {
		return nil, err
	}
	defer stop()
	return approvals.Changed(ctx, srv.s.Approvals(), q.caller, query.Get("seen"))
}

func (srv *Server) propose(q call, req ProposeRequest) (any, error) {
	if err := policy.CheckApproveAction(req.Type); err != nil {
		return nil, problem.New(problem.Usage, "type: %w", err)
	}
	id, err := srv.s.Names().Named(q.caller, req.Run)
	if err != nil {
		return nil, err
	}
	switch req.Type {
	case policy.ActionFetch, policy.ActionTool:
		return nil, problem.New(problem.Usage, "type: only a run itself proposes %s", req.Type)
	case policy.ActionCommit:
		if req.Commit == nil || req.Agent != "" || req.Key != "" || req.Ask || req.Changed != nil ||
			req.External != (approvals.External{}) {
			return nil, problem.New(problem.Usage, "a proposal of the type %s has run, commit and words",
				req.Type)
		}
		return srv.s.ProposeCommit(q.Context(), q.caller, id, req.Words, *req.Commit)
	}
	if req.Commit != nil {
		return nil, problem.New(problem.Usage, "a proposal of the type %s has no commit", req.Type)
	}
	req.Run = id
	return srv.s.Propose(q.caller, req)
}

// maxWait bounds how long one request of a client may wait.
const maxWait = 10 * time.Minute

func (srv *Server) action(q call) (any, error) {
	text := q.URL.Query().Get("wait")
	if text == "" {
		return srv.s.Approvals().Get(q.caller, q.id)
	}
	ctx, stop, err := srv.atMost(q.Context(), text)
	if err != nil {
		return nil, err
	}
	defer stop()
	return srv.s.Approvals().Wait(ctx, q.caller, q.id)
}

// atMost returns a context that ends after text seconds, or when the daemon ends. It returns an
// error for more than maxWait. Call the function to release the context.
func (srv *Server) atMost(ctx context.Context, text string) (context.Context, func(), error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || time.Duration(n)*time.Second > maxWait {
		return nil, nil, problem.New(problem.Usage, "wait=%q is no number of seconds up to 600", text)
	}
	ctx, stop := context.WithTimeout(ctx, time.Duration(n)*time.Second)
	unhook := context.AfterFunc(srv.leaving, stop)
	return ctx, func() { unhook(); stop() }, nil
}

// A ClaimRequest claims an approved action for its proposer.
type ClaimRequest struct {
	// The key of the proposal.
	Key string `json:"key"`
}

// Approvals has the requests of a client about actions that wait for an approval, and about grants.
type Approvals struct{ link *link }

// Approvals returns the client's requests about approvals.
func (c *Client) Approvals() *Approvals { return &Approvals{&c.link} }

// List returns the actions that wait for an approval, and with all also the last ones that are
// over.
func (a *Approvals) List(ctx context.Context, all bool) (as []approvals.Action, err error) {
	path := pathApprovals
	if all {
		path += "?all=1"
	}
	return as, a.link.do(ctx, "GET", path, nil, &as)
}

// Changed waits until the approvals.Mark of the waiting actions differs from seen, for at most
// atMost in whole seconds, and returns the actions.
func (a *Approvals) Changed(ctx context.Context, seen string,
	atMost time.Duration) (as []approvals.Action, err error) {
	q := url.Values{"seen": {seen}, "wait": {strconv.Itoa(int(atMost / time.Second))}}
	return as, a.link.do(ctx, "GET", pathApprovals+"?"+q.Encode(), nil, &as)
}

// Propose proposes an action.
func (a *Approvals) Propose(ctx context.Context, req ProposeRequest) (p approvals.Action,
	err error) {
	return p, a.link.do(ctx, "POST", pathApprovals, req, &p)
}

// Get returns an action.
func (a *Approvals) Get(ctx context.Context, id string) (found approvals.Action, err error) {
	return found, a.link.do(ctx, "GET", item(pathApprovals, id), nil, &found)
}

// Await waits until an action is neither pending nor about to be applied, for at most atMost in
// whole seconds, and returns it.
func (a *Approvals) Await(ctx context.Context, id string,
	atMost time.Duration) (found approvals.Action, err error) {
	q := url.Values{"wait": {strconv.Itoa(int(atMost / time.Second))}}
	return found, a.link.do(ctx, "GET", item(pathApprovals, id)+"?"+q.Encode(), nil, &found)
}

// Decide approves or rejects an action.
func (a *Approvals) Decide(ctx context.Context, id string,
	req approvals.DecideRequest) (decided approvals.Action, err error) {
	return decided, a.link.do(ctx, "POST", item(pathApprovals, id)+"/decide", req, &decided)
}

// Revert undoes an action that was applied.
func (a *Approvals) Revert(ctx context.Context, id string) (reverted approvals.Action, err error) {
	return reverted, a.link.do(ctx, "POST", item(pathApprovals, id)+"/revert", nil, &reverted)
}

// Claim claims an approved action that the caller carries out. An action can be claimed only once.
func (a *Approvals) Claim(ctx context.Context, id, key string) (claimed approvals.Action, err error) {
	return claimed, a.link.do(ctx, "POST", item(pathApprovals, id)+"/claim", ClaimRequest{key},
		&claimed)
}

// Report reports how an action ended that the caller claimed.
func (a *Approvals) Report(ctx context.Context, id string,
	req approvals.ReportRequest) (ended approvals.Action, err error) {
	return ended, a.link.do(ctx, "POST", item(pathApprovals, id)+"/report", req, &ended)
}

// Settle reports how an action ended whose proposer is gone.
func (a *Approvals) Settle(ctx context.Context, id string,
	req approvals.SettleRequest) (ended approvals.Action, err error) {
	return ended, a.link.do(ctx, "POST", item(pathApprovals, id)+"/settle", req, &ended)
}

// Withdraw withdraws an action that was not applied.
func (a *Approvals) Withdraw(ctx context.Context, id string) (gone approvals.Action, err error) {
	return gone, a.link.do(ctx, "DELETE", item(pathApprovals, id), nil, &gone)
}

// Grants returns the grants that are in force.
func (a *Approvals) Grants(ctx context.Context) (all []approvals.Grant, err error) {
	return all, a.link.do(ctx, "GET", pathGrants, nil, &all)
}

// Revoke ends a grant.
func (a *Approvals) Revoke(ctx context.Context, id string) (g approvals.Grant, err error) {
	return g, a.link.do(ctx, "DELETE", item(pathGrants, id), nil, &g)
}

// NewKey returns a secret for proposing an action that the caller carries out.
func NewKey() string { return rand.Text() }

// ErrChanged means that the object of an approved action has changed since the proposal, and
// nothing was done.
var ErrChanged = errors.New("it has changed since it was proposed")

// ErrUnsettled is wrapped by the error of the function do of Carry if the action may still be
// carried out.
var ErrUnsettled = errors.New("nobody knows yet how it ended")

// Wait waits until an action is no longer pending, and returns it. If ctx ends first, the action
// stays pending: that is no refusal.
func (a *Approvals) Wait(ctx context.Context, id string) (approvals.Action, error) {
	for {
		found, err := a.Await(ctx, id, time.Minute)
		if err != nil || found.State != approvals.Pending {
			return found, err
		}
	}
}

// Carry claims an approved action, calls do, and reports how it ended. do returns the outcome to
// show people. An error that wraps ErrChanged makes the action stale, one that wraps ErrUnsettled
// leaves it applying until the caller reports its end, and any other makes it failed.
//
// do is called at most once for an action, by any process, after the claim is recorded. If the
// caller is killed in do, the action stays applying until a person settles it. Do not give an
// action to Carry twice.
func (a *Approvals) Carry(ctx context.Context, id, key string,
	do func(approvals.Action) (outcome string, err error)) (approvals.Action, error) {
	claimed, err := a.Claim(ctx, id, key)
	var answer *problem.Error
	if err != nil && !errors.As(err, &answer) {
		// The daemon may have recorded the claim although its answer was lost.
		_, lost := a.report(ctx, id, approvals.ReportRequest{Key: key, State: approvals.Failed,
			Error: "the answer to the claim was lost, and nothing was done"})
		return claimed, errors.Join(err, lost)
	}
	if err != nil {
		return claimed, err
	}
	outcome, failed := do(claimed)
	if errors.Is(failed, ErrUnsettled) {
		return claimed, failed
	}
	r := approvals.ReportRequest{Key: key, State: approvals.Applied,
		Outcome: strings.ReplaceAll(reportable(outcome), "\n", " ")}
	if claimed.State == approvals.Reverting {
		r.State, r.Outcome = approvals.Reverted, ""
	}
	if failed != nil {
		r.State, r.Outcome, r.Error = approvals.Failed, "", reportable(failed.Error())
		if errors.Is(failed, ErrChanged) && claimed.State != approvals.Reverting {
			r.State = approvals.Stale
		}
	}
	ended, err := a.report(ctx, id, r)
	return ended, errors.Join(failed, err)
}

// report repeats Report until a daemon answers, for at most patience. Equal reports do no harm. It
// continues after ctx ends, since the action was carried out.
func (a *Approvals) report(ctx context.Context, id string,
	r approvals.ReportRequest) (approvals.Action, error) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer stop()
	for {
		ended, err := a.Report(ctx, id, r)
		var answer *problem.Error
		if err == nil || errors.As(err, &answer) {
			return ended, err
		}
		if !tick.Wait(ctx.Done(), 100*time.Millisecond) {
			return ended, err
		}
	}
}

// reportable returns text bounded and without invisible characters, as a report must have it. The
// text may come from a remote host, and a refused report would leave the action applying.
func reportable(text string) string {
	return runners.Cut(strings.Map(func(r rune) rune {
		if r != '\n' && !unicode.IsGraphic(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?")), maxReported)
}

// maxReported bounds a reported text, in bytes, below the daemon's own bound.
const maxReported = 1000
