package approvals

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/jail/rootless"
	"github.com/jail-sandbox/jail/jail/tick"
	"github.com/jail-sandbox/jail/jail/workspace"
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

// Decide approves or rejects an action. It applies an approved commit or policy grant before it
// returns. An action that was approved but could not be applied may be decided on again.
func (q *Queue) Decide(ctx context.Context, c caller.Caller, id string,
	req DecideRequest) (Action, error) {
	if !slices.Contains(append(ways, ""), req.Via) {
		return Action{}, problem.New(problem.Usage, "via %q is none of cli, api, console and mcp",
			req.Via)
	}
	req.Via = cmp.Or(req.Via, "api")
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
		if req.Scope == "" && req.Decision == "approve" && req.Via != "mcp" && s.Tool != nil &&
			s.Tool.Session {
			// A tool in a session needs one approval per session.
			req.Scope = "session"
		}
		d := Decision{UID: c.UID, PID: c.PID, Exe: c.Exe, Via: req.Via, Scope: req.Scope, Time: now}
		if req.Decision == "reject" {
			ungrant(q, &l, s, c.Actor())
			rejected := *s
			rejected.Decision = &d
			decided = l.move(&rejected, Rejected, now, c.Actor())
			return l, nil
		}
		if s.PolicyGrant != nil {
			decided, err = q.Programs().applyGrant(&l, s, d, c)
			return l, err
		}
		g, err := grantFor(s.Action, req.Scope, now)
		if err != nil {
			return l, err
		}
		if g != nil {
			if err := grantable(*g, s, req.Via, now); err != nil {
				return l, err
			}
			if err := q.roomForGrant(&l, g.UID, now); err != nil {
				return l, err
			}
			g.ID, g.By = newID(), c.UID
			d.Grant = g.ID
			l.Grants = append(l.Grants, g)
		}
		decided = l.approve(s, d)
		return l, nil
	})
	if owed := (owedError{}); errors.As(err, &owed) && decided != nil {
		return decided.Action, owedDecision(decided.Action, err)
	}
	if err != nil || decided.State != Approved || decided.Commit == nil {
		return actionOf(decided), err
	}
	return q.apply(context.WithoutCancel(ctx), id, true)
}

// owedDecision returns the error for a decision that is valid, but not yet in the audit log.
func owedDecision(a Action, err error) error {
	text := "action %s is decided, and on record once the log has room: %w"
	if a.State == Approved && a.Commit != nil {
		text = "action %s is decided, and applied once the log has room: %w"
	}
	return problem.New(problem.Failed, text, a.ID, err).WithHint("make room for the log")
}

// ungrant revokes the grant made by the approval of s, if s is approved but will not be applied.
func ungrant(q *Queue, l *line, s *stored, by audit.Actor) {
	if s.State != Approved || s.Decision == nil {
		return
	}
	if g := q.grants[s.Decision.Grant]; g != nil && g.Action == s.ID {
		l.revoke(g, by)
	}
}

func actionOf(s *stored) Action {
	if s == nil {
		return Action{}
	}
	return s.shown()
}

// mayDecide returns an error unless the caller may make this decision on the action.
func (q *Queue) mayDecide(c caller.Caller, s *stored, req DecideRequest) error {
	refused := func(format string, args ...any) error {
		return problem.New(problem.Refused, format, args...).
			WithHint("decide by jail approvals or the console")
	}
	switch {
	case req.Decision != "approve" && req.Decision != "reject":
		return problem.New(problem.Usage, "decision %q is neither approve nor reject", req.Decision)
	case req.Decision == "reject" && req.Scope != "":
		return problem.New(problem.Usage, "a rejection has no scope")
	case c.Connection != "" && s.proposedBy(c.Connection):
		return refused("action %s was proposed over this connection, which cannot decide on it", s.ID)
	case s.Process.is(c.PID):
		return refused("action %s was proposed by this process, which cannot decide on it", s.ID)
	case req.Via == "mcp" && q.o.NoMCP:
		return refused("the operator of this host lets nobody decide by mcp")
	case req.Via == "mcp" && req.Decision == "approve" &&
		(s.Commit != nil && s.Commit.Request.IncludeProtected ||
			s.Push != nil && len(s.Push.Protected) > 0):
		return refused("action %s takes protected names, and cannot be approved by mcp", s.ID)
	case req.Via == "mcp" && req.Decision == "approve" && s.PolicyGrant != nil:
		return refused("action %s widens a policy, and cannot be approved by mcp", s.ID)
	}
	if err := errors.Join(outside(c), q.o.Permissions(c).Approve(s.UID)); err != nil {
		return err
	}
	if err := s.undecided(req.Decision == "approve"); err != nil {
		return err
	}
	if req.SHA256 != s.SHA256 || s.digest() != s.SHA256 {
		return problem.New(problem.Conflict, "the digest %.64q is not that of action %s", req.SHA256,
			s.ID).WithHint("jail approvals show " + s.ID + " shows the action as it is")
	}
	return nil
}

// proposedBy reports whether the action was proposed over the connection with this id.
func (s *stored) proposedBy(connection string) bool {
	return s.Connection == connection || slices.Contains(s.Others, connection)
}

// undecided returns an error for an action that is over or that its proposer carries out. An action
// that jail is applying is an error unless again is true.
func (s *stored) undecided(again bool) error {
	switch {
	case s.State.Over():
		return problem.New(problem.Conflict, "action %s is %s: nothing is decided any more", s.ID,
			s.State)
	case s.State.claimable():
		return problem.New(problem.Conflict, "action %s is %s: its proposer says how that ends", s.ID,
			s.State).WithHint("jail approvals settle " + s.ID + " says it if the proposer is gone")
	case s.Applying && !again:
		return problem.New(problem.Conflict, "action %s is being applied", s.ID)
	}
	return nil
}

// grantable returns an error for a useless grant, one that does not cover a, and any via mcp.
func grantable(g Grant, a *stored, via string, now time.Time) error {
	if via == "mcp" {
		return problem.New(problem.Refused, "a decision by mcp counts once").
			WithHint("give a grant by jail approvals approve --scope")
	}
	if g.Run != "" && (a.RunEnded || a.Tool != nil && !a.Tool.Session) {
		hint := "leave --scope out, or give until=TIME or uses=N"
		if a.Tool != nil && a.Tool.Session {
			// An approval without a scope is for the session, too.
			hint = "give --scope until=TIME or uses=N, this one included"
		}
		return problem.New(problem.Usage, "run %s has ended: a grant for it would not be used",
			g.Run).WithHint(hint)
	}
	if !g.covers(a.Action, now) {
		return problem.New(problem.Usage,
			"action %s can be approved once only: protected names, branches of git, and what was "+
				"changed on both sides need a decision each time",
			a.ID).WithHint("leave --scope out")
	}
	return nil
}

// Withdraw withdraws an action that has not been applied.
func (q *Queue) Withdraw(c caller.Caller, id string) (Action, error) {
	return one(q, func(l *line, now time.Time) (*stored, error) {
		s, err := q.find(c, id)
		if err != nil {
			return nil, err
		}
		if !c.MayControl(s.UID) {
			return nil, problem.New(problem.Refused, "action %s is another user's", id)
		}
		if err := s.undecided(false); err != nil {
			return nil, err
		}
		ungrant(q, l, s, c.Actor())
		return l.move(s, Withdrawn, now, c.Actor()), nil
	})
}

// errStale is the error for an action whose target has changed since the proposal.
var errStale = errors.New("it has changed since it was proposed")

// apply applies an approved commit, unless it was applied already. If wait is false and somebody
// else is applying it, apply returns the zero Action.
func (q *Queue) apply(ctx context.Context, id string, wait bool) (a Action, err error) {
	release, ok, err := q.journal.applying(id, wait)
	if err != nil {
		return Action{}, broken(err)
	}
	if !ok {
		return Action{}, nil
	}
	// No other daemon or goroutine applies the action meanwhile.
	defer func() { err = errors.Join(err, release()) }()
	s, fresh, err := q.begin(ctx, id)
	switch {
	case err != nil:
		return actionOf(s), err
	case s.State == Failed || s.State == Stale:
		// Somebody else has tried to apply it meanwhile.
		return s.Action, outcomeError(s.Action)
	case s.State != Approved:
		return s.Action, nil
	}
	if !fresh {
		outcome, done, err := q.o.Commits.Settled(ctx, s.Action, s.Before)
		if err != nil && isBusy(err) {
			// Keep Before until the store can tell whether the commit was made.
			return s.Action, err
		}
		if err != nil || done {
			return q.end(id, outcome, err)
		}
	}
	outcome, err := q.o.Commits.Apply(ctx, s.Action, s.Decision.actor())
	if err == nil && outcome == "" {
		err = staleError{errors.New("nothing was left to be done")}
	}
	if err != nil && !errors.Is(err, errStale) {
		// Apply may have failed after the commit was made, for example at its audit record.
		if made, done, lookErr := q.o.Commits.Settled(ctx, s.Action, s.Before); lookErr == nil &&
			done {
			outcome, err = made, nil
		}
	}
	return q.end(id, outcome, err)
}

// isBusy reports whether applying an action again later may succeed, as the host is only busy.
func isBusy(err error) bool {
	return problem.From(err).Code == problem.Busy && !errors.Is(err, workspace.ErrManyDirs)
}

// unset is the value of stored.Before until an action is being applied.
const unset = ""

// begin marks the action in the journal as being applied, and returns it. fresh is false if it was
// marked before, by a daemon that was killed, or if it is not approved.
func (q *Queue) begin(ctx context.Context, id string) (s *stored, fresh bool, err error) {
	s, err = q.current(id)
	if err != nil || s.State != Approved || s.Applying {
		return s, false, err
	}
	before, err := q.o.Commits.Before(ctx, s.Action)
	if err != nil {
		a, err := q.end(id, "", err)
		return &stored{Action: a}, false, err
	}
	err = q.step(func(time.Time) (l line, err error) {
		now, err := q.known(id)
		if err != nil {
			return l, err
		}
		begun := *now
		s = &begun
		if begun.State != Approved || begun.Applying {
			return l, nil
		}
		fresh = true
		begun.Applying, begun.Before = true, before
		l.Actions = []*stored{s}
		return l, nil
	})
	return s, fresh, err
}

// known returns the action with this id, or an error if it has been removed.
func (q *Queue) known(id string) (*stored, error) {
	if s := q.actions[id]; s != nil {
		return s, nil
	}
	return nil, problem.New(problem.NotFound, "action %q is gone", id)
}

// current is known, after reading what other daemons have written.
func (q *Queue) current(id string) (s *stored, err error) {
	err = q.look(func() (err error) {
		s, err = q.known(id)
		return err
	})
	return s, err
}

// end stores the result of applying an action. If the host was busy, it stays approved.
func (q *Queue) end(id, outcome string, failed error) (Action, error) {
	var ended *stored
	err := q.step(func(now time.Time) (l line, err error) {
		known, err := q.known(id)
		if err != nil {
			return l, err
		}
		s := *known
		ended = &s
		if s.State != Approved {
			return l, nil
		}
		if failed != nil && isBusy(failed) {
			if s.Applying {
				s.Applying, s.Before = false, unset
				l.Actions = []*stored{&s}
			}
			return l, nil
		}
		state := Applied
		s.Outcome = outcome
		if failed != nil {
			state, s.Outcome, s.Error = Failed, "", failed.Error()
			if errors.Is(failed, errStale) {
				state = Stale
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

// outcomeError returns the error for an action that failed or is stale.
func outcomeError(a Action) *problem.Error {
	if a.State == Stale {
		return problem.New(problem.Conflict, "action %s is stale, and nothing was done: %s", a.ID,
			a.Error).WithHint("look at what there is now, and propose it again")
	}
	return problem.New(problem.Failed, "action %s failed: %s", a.ID, a.Error).
		WithHint("jail approvals show " + a.ID + " shows it")
}

// Recover applies approved commits that were not applied because the daemon was killed or the host
// was busy. A commit that fails is not an error: its action gets the state Failed or Stale.
func (q *Queue) Recover() error {
	_, err := q.recover()
	return err
}

// recover is Recover. It also returns how many actions remain to be applied.
func (q *Queue) recover() (left int, err error) {
	if q.unused() {
		return 0, nil
	}
	var ids []string
	if err := q.look(func() error {
		if q.tally.approved == 0 {
			return nil
		}
		for id, a := range q.actions {
			if a.State == Approved && a.Commit != nil {
				ids = append(ids, id)
			}
		}
		return nil
	}); err != nil {
		return 0, err
	}
	for _, id := range ids {
		a, applyErr := q.apply(context.Background(), id, false)
		if a.ID == "" || a.State == Approved {
			left++
		}
		if a.ID == "" {
			err = errors.Join(err, applyErr)
		}
	}
	return left, err
}

// Delays between two attempts of Keep: the first and the longest.
const (
	retryFirst = 5 * time.Second
	retryMost  = 10 * time.Minute
)

// Keep calls recover repeatedly until done is closed, with exponential backoff while actions cannot
// be applied. It passes the result of each call, which may be nil, to failed.
func (q *Queue) Keep(done <-chan struct{}, failed func(error)) {
	wait := retryFirst
	for tick.Wait(done, wait) {
		left, err := q.recover()
		failed(err)
		wait = nextTry(wait, left == 0 && err == nil)
	}
}

// nextTry returns the delay before the next attempt.
func nextTry(waited time.Duration, allApplied bool) time.Duration {
	if allApplied {
		return retryFirst
	}
	return min(2*waited, retryMost)
}

// Revert undoes a commit or policy grant, and asks the proposer to undo other external actions.
func (q *Queue) Revert(ctx context.Context, c caller.Caller, id string) (a Action, err error) {
	if err := q.look(func() error {
		s, err := q.find(c, id)
		if err != nil {
			return err
		}
		return errors.Join(outside(c), q.o.Permissions(c).Approve(s.UID))
	}); err != nil {
		return Action{}, err
	}
	// With this lock nobody else applies or reverts the action meanwhile.
	release, _, err := q.journal.applying(id, true)
	if err != nil {
		return Action{}, broken(err)
	}
	defer func() { err = errors.Join(err, release()) }()
	s, err := q.current(id)
	switch {
	case err != nil:
		return actionOf(s), err
	case s.State != Applied:
		return s.Action, problem.New(problem.Conflict, "action %s is %s, and cannot be reverted", id,
			s.State)
	case s.PolicyGrant != nil:
		var gone *stored
		err := q.step(func(now time.Time) (l line, err error) {
			s, err := q.known(id)
			if err == nil && s.State == Applied {
				gone = q.Programs().takeGrant(&l, s, now, c.Actor())
			}
			return l, err
		})
		return actionOf(gone), err
	case s.task() != nil:
		return q.Programs().askUndo(c, id)
	case s.Outcome == "":
		return s.Action, problem.New(problem.Conflict, "action %s made nothing that could be reverted",
			id)
	}
	if err := q.o.Commits.Revert(context.WithoutCancel(ctx), s.Action, c.Actor()); err != nil {
		return s.Action, err
	}
	var done *stored
	err = q.step(func(now time.Time) (l line, err error) {
		s, err := q.known(id)
		if err == nil {
			done = l.move(s, Reverted, now, c.Actor())
		}
		return l, err
	})
	return actionOf(done), err
}
