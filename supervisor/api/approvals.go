package api

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/approvals"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/service"
)

// Paths of the actions that wait for an approval, and of grants.
const (
	pathApprovals = "/v1/approvals"
	pathGrants    = "/v1/grants"
)

// A ProposeRequest proposes an action.
type ProposeRequest = approvals.ProposeRequest

// waiting answers for the actions that wait for an approval.
type waiting struct {
	s *service.Service
	// leaving is done when the daemon ends: nobody waits for it then.
	leaving context.Context
}

func (h waiting) list(ctx context.Context, c caller.Caller, r *http.Request) (any, error) {
	q := r.URL.Query()
	if !q.Has("wait") {
		return h.s.Approvals().List(c, q.Get("all") == "1")
	}
	ctx, stop, err := h.atMost(ctx, q.Get("wait"))
	if err != nil {
		return nil, err
	}
	defer stop()
	return approvals.Changed(ctx, h.s.Approvals(), c, q.Get("seen"))
}

func (h waiting) propose(ctx context.Context, c caller.Caller, _ *http.Request,
	req ProposeRequest) (any, error) {
	if err := policy.CheckApproveAction(req.Type); err != nil {
		return nil, problem.New(problem.Usage, "type: %w", err)
	}
	id, err := h.s.Names().Named(c, req.Run)
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
		return h.s.ProposeCommit(ctx, c, id, req.Words, *req.Commit)
	}
	if req.Commit != nil {
		return nil, problem.New(problem.Usage, "a proposal of the type %s has no commit", req.Type)
	}
	req.Run = id
	return h.s.Propose(c, req)
}

// maxWait bounds how long a client may wait with one request.
const maxWait = 10 * time.Minute

func (h waiting) get(ctx context.Context, c caller.Caller, r *http.Request) (any, error) {
	id, text := r.PathValue("id"), r.URL.Query().Get("wait")
	if text == "" {
		return h.s.Approvals().Get(c, id)
	}
	ctx, stop, err := h.atMost(ctx, text)
	if err != nil {
		return nil, err
	}
	defer stop()
	return h.s.Approvals().Wait(ctx, c, id)
}

// atMost returns a context that ends after the seconds that text has, or when the daemon ends.
func (h waiting) atMost(ctx context.Context, text string) (context.Context, func(), error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || time.Duration(n)*time.Second > maxWait {
		return nil, nil, problem.New(problem.Usage, "wait=%q is no number of seconds up to 600", text)
	}
	ctx, stop := context.WithTimeout(ctx, time.Duration(n)*time.Second)
	unhook := context.AfterFunc(h.leaving, stop)
	return ctx, func() { unhook(); stop() }, nil
}

// A ClaimRequest claims an approved action for its proposer.
type ClaimRequest struct {
	// The key of the proposal.
	Key string `json:"key"`
}

func (h waiting) claim(_ context.Context, c caller.Caller, r *http.Request,
	req ClaimRequest) (any, error) {
	return h.s.Claim(c, r.PathValue("id"), req.Key)
}

func (h waiting) report(_ context.Context, c caller.Caller, r *http.Request,
	req approvals.ReportRequest) (any, error) {
	return h.s.Approvals().Programs().Report(c, r.PathValue("id"), req)
}

func (h waiting) settle(_ context.Context, c caller.Caller, r *http.Request,
	req approvals.SettleRequest) (any, error) {
	return h.s.Approvals().Programs().Settle(c, r.PathValue("id"), req)
}

func (h waiting) revert(ctx context.Context, c caller.Caller, r *http.Request) (any, error) {
	return h.s.RevertAction(ctx, c, r.PathValue("id"))
}

func (h waiting) withdraw(_ context.Context, c caller.Caller, r *http.Request) (any, error) {
	return h.s.Approvals().Withdraw(c, r.PathValue("id"))
}

func (h waiting) revoke(_ context.Context, c caller.Caller, r *http.Request) (any, error) {
	return h.s.Revoke(c, r.PathValue("id"))
}

// Approvals asks a daemon about actions that wait for an approval, and about grants.
type Approvals struct{ link *link }

// Approvals returns what the client can do with actions that wait for an approval.
func (c *Client) Approvals() *Approvals { return &Approvals{&c.link} }

// List lists the actions that wait for an approval, or also the last of those that are over.
func (a *Approvals) List(ctx context.Context, all bool) (as []approvals.Action, err error) {
	path := pathApprovals
	if all {
		path += "?all=1"
	}
	return as, a.link.do(ctx, "GET", path, nil, &as)
}

// Changed lists the actions that wait as soon as their approvals.Mark is not seen, or the time is
// over, which is counted in seconds.
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

// Get asks for an action.
func (a *Approvals) Get(ctx context.Context, id string) (found approvals.Action, err error) {
	return found, a.link.do(ctx, "GET", item(pathApprovals, id), nil, &found)
}

// Await is Get as soon as the action is neither pending nor about to be applied, or the time is
// over, which is counted in seconds.
func (a *Approvals) Await(ctx context.Context, id string,
	atMost time.Duration) (found approvals.Action, err error) {
	q := url.Values{"wait": {strconv.Itoa(int(atMost / time.Second))}}
	return found, a.link.do(ctx, "GET", item(pathApprovals, id)+"?"+q.Encode(), nil, &found)
}

// Decide decides on an action.
func (a *Approvals) Decide(ctx context.Context, id string,
	req approvals.DecideRequest) (decided approvals.Action, err error) {
	return decided, a.link.do(ctx, "POST", item(pathApprovals, id)+"/decide", req, &decided)
}

// Revert undoes an action that was applied.
func (a *Approvals) Revert(ctx context.Context, id string) (reverted approvals.Action, err error) {
	return reverted, a.link.do(ctx, "POST", item(pathApprovals, id)+"/revert", nil, &reverted)
}

// Claim claims an approved action that the caller carries out. It is the caller's once it returns
// without an error, and nobody's a second time.
func (a *Approvals) Claim(ctx context.Context, id, key string) (claimed approvals.Action, err error) {
	return claimed, a.link.do(ctx, "POST", item(pathApprovals, id)+"/claim", ClaimRequest{key},
		&claimed)
}

// Report says how an action ended that the caller claimed.
func (a *Approvals) Report(ctx context.Context, id string,
	req approvals.ReportRequest) (ended approvals.Action, err error) {
	return ended, a.link.do(ctx, "POST", item(pathApprovals, id)+"/report", req, &ended)
}

// Settle says how an action ended whose proposer is gone.
func (a *Approvals) Settle(ctx context.Context, id string,
	req approvals.SettleRequest) (ended approvals.Action, err error) {
	return ended, a.link.do(ctx, "POST", item(pathApprovals, id)+"/settle", req, &ended)
}

// Withdraw takes an action back that was not applied.
func (a *Approvals) Withdraw(ctx context.Context, id string) (gone approvals.Action, err error) {
	return gone, a.link.do(ctx, "DELETE", item(pathApprovals, id), nil, &gone)
}

// Grants lists the grants that allow something.
func (a *Approvals) Grants(ctx context.Context) (all []approvals.Grant, err error) {
	return all, a.link.do(ctx, "GET", pathGrants, nil, &all)
}

// Revoke ends a grant.
func (a *Approvals) Revoke(ctx context.Context, id string) (g approvals.Grant, err error) {
	return g, a.link.do(ctx, "DELETE", item(pathGrants, id), nil, &g)
}
