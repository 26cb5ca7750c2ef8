package console

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/approvals"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// Approvals has the actions that wait for an approval and that the reviewer may see. An
// *api.Approvals is one.
type Approvals interface {
	List(ctx context.Context, all bool) ([]approvals.Action, error)
	Get(ctx context.Context, id string) (approvals.Action, error)
	Decide(ctx context.Context, id string, req approvals.DecideRequest) (approvals.Action, error)
}

// maxOver is how many of the last decided actions the page lists.
const maxOver = 20

// An action is an action as the page Waiting lists it.
type action struct {
	approvals.Action
	// Mark is its state.
	Mark mark
	// When and How it was decided.
	When time.Time
	How  string
	// Undecided says that it can still be decided.
	Undecided bool
}

// waiting is the body of the page with all waiting actions.
type waiting struct {
	Actions, Over []action
	// The number of actions that are not listed.
	Skipped int
	Paused  bool
}

// shownAction returns an action for a page, with the CSS class of its state and how it was decided.
func shownAction(a approvals.Action) action {
	s := action{Action: a, Mark: mark{"wait", text(string(a.State))}, When: a.Ended,
		Undecided: a.State == approvals.Pending || a.State == approvals.Approved}
	switch a.State {
	case approvals.Applied:
		s.Mark.Class = "good"
	case approvals.Failed, approvals.Stale:
		s.Mark.Class = "bad"
	}
	if d := a.Decision; d != nil {
		s.When, s.How = d.Time, "via "+text(d.Via)
	}
	return s
}

// approvals answers with the list of waiting actions, oldest first, and of those decided lately.
func (c *Console) approvals(r *http.Request, s *session) (answer, error) {
	all, err := c.Approvals.List(r.Context(), true)
	if err != nil {
		return answer{}, err
	}
	body := waiting{Paused: r.URL.Query().Get("live") == "no"}
	for _, a := range all {
		if a.State.Over() {
			body.Over = append(body.Over, shownAction(a))
		} else {
			body.Actions = append(body.Actions, shownAction(a))
		}
	}
	slices.SortFunc(body.Over, func(a, b action) int { return b.Ended.Compare(a.Ended) })
	body.Over = body.Over[:min(len(body.Over), maxOver)]
	body.Actions, body.Skipped = clip(body.Actions, maxRows)
	p := s.page("Waiting", "waiting", body)
	if !body.Paused {
		p.Again = liveEvery
	}
	return answer{http.StatusOK, "waiting.html", p}, nil
}

// proposal is the body of the page of one action.
type proposal struct {
	action
	// Review has the changes that the commit would write; nil for other actions or one that is
	// over.
	Review *review
	// Part names the risk classes to whose changes the commit is limited, or "".
	Part string
	// Changed says why an approval would write nothing, or "".
	Changed string
	// Prev and Next are the ids of the actions beside this one.
	Prev, Next string
}

// proposal answers with the page of one action, for a commit with its differences.
func (c *Console) proposal(r *http.Request, s *session) (answer, error) {
	a, err := c.Approvals.Get(r.Context(), r.PathValue("action"))
	if err != nil {
		return answer{}, err
	}
	body := proposal{action: shownAction(a)}
	if !a.State.Over() && a.Commit != nil {
		body.Part = text(strings.Join(a.Commit.Request.Classes, ", "))
		if err = c.reviewProposal(r, a, &body); err != nil {
			return answer{}, err
		}
	}
	if body.Prev, body.Next, err = c.beside(r.Context(), a); err != nil {
		return answer{}, err
	}
	return answer{http.StatusOK, "proposal.html", s.page("Waiting: "+text(a.Type), "waiting", body)}, nil
}

// beside returns the ids of the waiting actions before and after a, or "".
func (c *Console) beside(ctx context.Context, a approvals.Action) (prev, next string, err error) {
	all, err := c.Approvals.List(ctx, false)
	for _, b := range all {
		switch order := cmp.Or(b.Proposed.Compare(a.Proposed), strings.Compare(b.ID, a.ID)); {
		case order < 0:
			prev = b.ID
		case order > 0 && next == "":
			next = b.ID
		}
	}
	return prev, next, err
}

// reviewProposal sets the review of the changes that a commit would take, or why they are not those
// that were proposed.
func (c *Console) reviewProposal(r *http.Request, a approvals.Action, body *proposal) error {
	req := a.Commit.Request
	list := reading{run: a.Run, all: r.URL.Query().Get("all") == "1" || r.URL.Query().Has("path")}
	if !req.Exact && len(req.Hunks) == 0 && req.GitOnly == "" {
		for _, p := range req.Paths {
			n, err := workspace.ParseName(p)
			if err != nil {
				return err
			}
			list.paths = append(list.paths, string(n))
		}
	} else {
		list.takes = func(ch api.Change) (bool, []int) { return partOf(a, ch) }
	}
	b, err := c.build(r, list)
	var known *problem.Error
	if errors.As(err, &known) && (known.Code == problem.NotFound || known.Code == problem.Usage) {
		body.Changed = "its changes are gone: " + text(known.Message)
		return nil
	}
	if err != nil {
		return err
	}
	rv := b.finish()
	rv.Never = true
	switch i := rv.Info; {
	case rv.Summary.Digest != req.Digest:
		body.Changed = "the changes are not those that were proposed"
	case i.Path.String() != a.Commit.Directory || i.Caller.UID != a.UID ||
		!i.Prepared.Equal(a.Commit.Prepared):
		body.Changed = "the shadow is not the one that was proposed"
	default:
		body.Review = &rv
	}
	return nil
}

// partOf reports whether a commit of single paths, hunks or a branch may take a change, and the
// numbers of the hunks that it takes; nil means all.
func partOf(a approvals.Action, c api.Change) (bool, []int) {
	req, name := a.Commit.Request, string(c.Path)
	if req.GitOnly != "" {
		return false, nil
	}
	for _, p := range req.Paths {
		n, err := workspace.ParseName(p)
		// For a commit, "" is the workspace. A pattern may match any change.
		path := strings.TrimSuffix(string(n), "/")
		if err != nil || path == "" || path == name || !req.Exact &&
			(strings.HasPrefix(name, path+"/") || strings.ContainsAny(p, "*?[")) {
			return true, nil
		}
	}
	for p, hunks := range req.Hunks {
		if n, err := workspace.ParseName(p); err == nil && string(n) == name {
			return true, hunks
		}
	}
	// New parent directories are committed too.
	return c.After != nil && c.After.Type == workspace.Dir, nil
}

// decided is the body of the page after a decision.
type decided struct {
	action
	// Next is the path of the next waiting action, or of the list.
	Next string
}

// decide approves or rejects an action, if its digest is still that of the form.
func (c *Console) decide(r *http.Request, s *session) (answer, error) {
	id, form := r.PathValue("action"), r.PostForm
	list := s.path() + "/waiting"
	if why := undecided(form); why != "" {
		return s.undone(why, list+"/"+segment(id), "Back")
	}
	a, err := c.Approvals.Decide(r.Context(), id, approvals.DecideRequest{
		Decision: form.Get("decision"), SHA256: form.Get("sha256"), Via: "console"})
	if err != nil {
		status, p, _ := explain(err, true)
		p.Next, p.NextText = list, "What waits"
		return s.said(status, p), nil
	}
	body := decided{action: shownAction(a), Next: list}
	if _, next, err := c.beside(r.Context(), a); err == nil && next != "" {
		body.Next += "/" + segment(next)
	}
	return answer{http.StatusOK, "decided.html", s.page("Decided", "waiting", body)}, nil
}

// undecided returns why a form is no valid decision, or "".
func undecided(form url.Values) string {
	switch d := form.Get("decision"); {
	case d != "approve" && d != "reject":
		return "The form is no decision."
	case d == "approve" && form.Get("pages") != "1" && form.Get("sure") != "yes":
		return "Some of the changes stand on other pages, or not in full on this one. To approve all " +
			"of them, tick that you mean those, too."
	}
	return ""
}
