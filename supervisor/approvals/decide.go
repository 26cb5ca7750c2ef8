package approvals

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/jail/rootless"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// A DecideRequest is a decision on an action.
type DecideRequest struct {
	// approve or reject.
	Decision string `json:"decision"`
	// The digest of the action, as it was shown to who decides.
	SHA256 string `json:"sha256"`
	// What else the approval allows: once (or empty), session, until=TIME or uses=N.
	Scope string `json:"scope,omitempty"`
	// How the decision came: cli, api (or empty), console or mcp.
	Via string `json:"via,omitempty"`
}

// alone reports whether the daemon serves one user only.
func (o Options) alone() bool { return rootless.User() != nil }

// outside returns an error for a caller in a jail or in another container than the daemon: a jailed
// process must not decide on its own actions, whatever a policy shows it.
func outside(c caller.Caller) error {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(c.PID) + "/status")
	if c.PID > 0 && err == nil {
		for l := range strings.Lines(string(text)) {
			// One number for each process namespace that the process is in.
			if ids, ok := strings.CutPrefix(l, "NSpid:"); ok && len(strings.Fields(ids)) == 1 {
				return nil
			}
		}
	}
	return problem.New(problem.Refused,
		"process %d cannot decide: it is in a jail or another container, or has ended", c.PID).
		WithHint("decide from a terminal of the host")
}

// Decide decides on an action. An approved action is applied before Decide returns. An action that
// was approved before and could not be applied then is applied now.
func (q *Queue) Decide(ctx context.Context, c caller.Caller, id string,
	req DecideRequest) (Action, error) {
	if !slices.Contains(append(ways, ""), req.Via) {
		return Action{}, problem.New(problem.Usage, "via %q is none of cli, api, console and mcp",
			req.Via)
	}
	if req.Via == "" {
		req.Via = "api"
	}
	if err := q.Recover(); err != nil {
		return Action{}, err
	}
	var decided *stored
	err := q.step(func(now time.Time) (l line, err error) {
		s, err := q.find(c, id)
		if err != nil {
			return l, err
		}
		if err := q.mayDecide(c, s, req); err != nil {
			return l, err
		}
		if s.State == Approved && req.Decision == "approve" {
			decided = s
			return l, nil
		}
		if s.State != Pending {
			return l, problem.New(problem.Conflict, "action %s is %s: nothing is decided any more", id,
				s.State)
		}
		d := Decision{UID: c.UID, PID: c.PID, Exe: c.Exe, Via: req.Via, Scope: req.Scope, Time: now}
		if req.Decision == "reject" {
			rejected := *s
			rejected.Decision = &d
			decided = l.move(&rejected, Rejected, now, c.Actor())
			return l, nil
		}
		g, err := grantFor(s.Action, req.Scope, now)
		if err != nil {
			return l, err
		}
		if g != nil {
			if err := grantable(*g, s.Action, req.Via, now); err != nil {
				return l, err
			}
			g.ID, g.By = newID(), c.UID
			d.Grant = g.ID
			l.Grants = append(l.Grants, g)
		}
		decided = l.approve(s, d, now)
		return l, nil
	})
	if err != nil || decided.State != Approved {
		return actionOf(decided), err
	}
	return q.apply(context.WithoutCancel(ctx), id, true)
}

func actionOf(s *stored) Action {
	if s == nil {
		return Action{}
	}
	return s.Action
}

// mayDecide returns an error unless the caller may decide on an action in this way.
func (q *Queue) mayDecide(c caller.Caller, s *stored, req DecideRequest) error {
	switch {
	case req.Decision != "approve" && req.Decision != "reject":
		return problem.New(problem.Usage, "decision %q is neither approve nor reject", req.Decision)
	case req.Decision == "reject" && req.Scope != "":
		return problem.New(problem.Usage, "a rejection has no scope")
	case s.Connection != "" && s.Connection == c.Connection:
		return problem.New(problem.Refused,
			"action %s was proposed over this connection, which cannot decide on it", s.ID).
			WithHint("decide by jail approvals or the console")
	}
	if err := errors.Join(outside(c), q.o.Permissions(c).Approve(s.UID)); err != nil {
		return err
	}
	if req.SHA256 != s.SHA256 || s.digest() != s.SHA256 {
		return problem.New(problem.Conflict, "the digest %.64q is not that of action %s", req.SHA256,
			s.ID).WithHint("jail approvals show " + s.ID + " shows the action as it is")
	}
	return nil
}

// grantable returns an error for a grant that would not cover the action that it is given for.
func grantable(g Grant, a Action, via string, now time.Time) error {
	if via == "mcp" {
		return problem.New(problem.Refused, "a decision by mcp counts once").
			WithHint("give a grant by jail approvals approve --scope")
	}
	if !g.covers(a, now) {
		return problem.New(problem.Usage,
			"action %s can be approved once only: protected names, and conflicts, need a decision each time",
			a.ID).WithHint("leave --scope out")
	}
	return nil
}

// Withdraw takes an action back that was not decided.
func (q *Queue) Withdraw(c caller.Caller, id string) (Action, error) {
	var gone *stored
	err := q.step(func(now time.Time) (l line, err error) {
		s, err := q.find(c, id)
		if err != nil {
			return l, err
		}
		if !c.MayControl(s.UID) {
			return l, problem.New(problem.Refused, "action %s is another user's", id)
		}
		if s.State != Pending {
			return l, problem.New(problem.Conflict, "action %s is %s", id, s.State)
		}
		gone = l.move(s, Withdrawn, now, c.Actor())
		return l, nil
	})
	return actionOf(gone), err
}

// errStale says that something has changed since the action was proposed.
var errStale = errors.New("it has changed since it was proposed")

// apply applies an approved action, unless that was done. Without wait it leaves an action alone
// that somebody else applies now.
func (q *Queue) apply(ctx context.Context, id string, wait bool) (Action, error) {
	release, ok, err := q.journal.applying(id, wait)
	if err != nil {
		return Action{}, broken(err)
	}
	if !ok {
		return Action{}, nil
	}
	a, err := q.applyAlone(ctx, id)
	return a, errors.Join(err, release())
}

// applyAlone is apply while no other daemon or goroutine applies the action.
func (q *Queue) applyAlone(ctx context.Context, id string) (Action, error) {
	s, err := q.begin(ctx, id)
	switch {
	case err != nil:
		return actionOf(s), err
	case s.State == Failed || s.State == Stale:
		// Somebody else has tried to apply it meanwhile.
		return s.Action, outcomeError(s.Action)
	case s.State != Approved:
		return s.Action, nil
	}
	outcome, done := "", false
	if s.Before != unset {
		outcome, done, err = q.o.Commits.Settled(ctx, s.Action, s.Before)
	}
	if err == nil && !done {
		outcome, err = q.o.Commits.Apply(ctx, s.Action, s.Decision.actor())
	}
	return q.end(id, outcome, err)
}

// unset is Before of an action that nobody has begun to apply.
const unset = ""

// begin makes durable that the action is going to be applied, and returns it. Before says what was
// there if the action was begun by a daemon that was killed.
func (q *Queue) begin(ctx context.Context, id string) (*stored, error) {
	now, err := q.current(id)
	if err != nil || now.State != Approved || now.Applying {
		return now, err
	}
	before, err := q.o.Commits.Before(ctx, now.Action)
	if err != nil {
		a, err := q.end(id, "", err)
		return &stored{Action: a}, err
	}
	err = q.step(func(time.Time) (l line, err error) {
		begun := *q.actions[id]
		begun.Applying, begun.Before = true, before
		l.Actions = []*stored{&begun}
		return l, nil
	})
	// What was there before matters only to the next daemon.
	out := *now
	out.Before = unset
	return &out, err
}

// current returns the action as it is now.
func (q *Queue) current(id string) (s *stored, err error) {
	err = q.step(func(time.Time) (line, error) {
		known := q.actions[id]
		if known == nil {
			return line{}, problem.New(problem.NotFound, "action %q is gone", id)
		}
		found := *known
		s = &found
		return line{}, nil
	})
	return s, err
}

// end makes durable how the application of an action ended. A host that is busy leaves it approved.
func (q *Queue) end(id, outcome string, failed error) (Action, error) {
	var ended *stored
	err := q.step(func(now time.Time) (l line, err error) {
		s := *q.actions[id]
		state := Applied
		s.Outcome = outcome
		if failed != nil {
			state, s.Outcome, s.Error = Failed, "", failed.Error()
			if errors.Is(failed, errStale) {
				state = Stale
			}
			if problem.From(failed).Code == problem.Busy {
				s.Applying, s.Before, s.Error = false, unset, ""
				l.Actions = []*stored{&s}
				ended = &s
				return l, nil
			}
		}
		actor := audit.Actor{}
		if s.Decision != nil {
			actor = s.Decision.actor()
		}
		ended = l.move(&s, state, now, actor)
		return l, nil
	})
	switch {
	case err != nil || failed == nil:
		return actionOf(ended), err
	case ended.State == Stale:
		e := outcomeError(ended.Action)
		e.Conflicts = problem.From(failed).Conflicts
		return ended.Action, e
	}
	return ended.Action, failed
}

// outcomeError is the error for an approval whose action failed or is stale.
func outcomeError(a Action) *problem.Error {
	if a.State == Stale {
		return problem.New(problem.Conflict, "action %s is stale, and nothing was done: %s", a.ID,
			a.Error).WithHint("look at what there is now, and propose it again")
	}
	return problem.New(problem.Failed, "action %s failed: %s", a.ID, a.Error).
		WithHint("jail approvals show " + a.ID + " shows it")
}

// Recover applies what was approved and not applied by a daemon that is gone. A failure is in the
// state of the action.
func (q *Queue) Recover() error {
	var left []string
	if err := q.step(func(time.Time) (line, error) {
		if q.tally.approved == 0 {
			return line{}, nil
		}
		for id, a := range q.actions {
			if a.State == Approved {
				left = append(left, id)
			}
		}
		return line{}, nil
	}); err != nil {
		return err
	}
	for _, id := range left {
		if a, err := q.apply(context.Background(), id, false); err != nil && a.ID == "" {
			return err
		}
	}
	return nil
}

// Revert undoes an action that was applied.
func (q *Queue) Revert(ctx context.Context, c caller.Caller, id string) (Action, error) {
	if err := q.Recover(); err != nil {
		return Action{}, err
	}
	var s *stored
	if err := q.step(func(time.Time) (line, error) {
		found, err := q.find(c, id)
		if err != nil {
			return line{}, err
		}
		s = found
		return line{}, errors.Join(outside(c), q.o.Permissions(c).Approve(s.UID))
	}); err != nil {
		return Action{}, err
	}
	if s.State != Applied {
		return s.Action, problem.New(problem.Conflict, "action %s is %s, and cannot be reverted", id,
			s.State)
	}
	release, _, err := q.journal.applying(id, true)
	if err != nil {
		return Action{}, broken(err)
	}
	reverted, err := q.revert(context.WithoutCancel(ctx), c, id)
	return reverted, errors.Join(err, release())
}

func (q *Queue) revert(ctx context.Context, c caller.Caller, id string) (Action, error) {
	s, err := q.current(id)
	if err != nil || s.State == Reverted {
		return actionOf(s), err
	}
	if err := q.o.Commits.Revert(ctx, s.Action, c.Actor()); err != nil {
		return s.Action, err
	}
	var done *stored
	err = q.step(func(now time.Time) (l line, err error) {
		done = l.move(q.actions[id], Reverted, now, c.Actor())
		return l, nil
	})
	return actionOf(done), err
}
