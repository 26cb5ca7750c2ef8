package approvals

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

func newID() string { return string(jail.NewID()) }

// A Committer applies and reverts commits with the owner's rights. by is the user who decided.
type Committer interface {
	// Before returns the state before Apply, such as the last commit. It is passed to Settled.
	Before(ctx context.Context, a Action) (string, error)
	// Apply applies an action and returns the id of the commit. The error is errStale if nothing
	// was done because the target has changed.
	Apply(ctx context.Context, a Action, by audit.Actor) (outcome string, err error)
	// Settled reports whether an Apply that was killed made its commit, and the commit's id.
	Settled(ctx context.Context, a Action, before string) (outcome string, done bool, err error)
	Revert(ctx context.Context, a Action, by audit.Actor) error
}

// ProposeCommit adds an action for a commit that needs an approval. If a grant covers it,
// ProposeCommit also makes the commit, and the error says why that failed.
func (q *Queue) ProposeCommit(ctx context.Context, c caller.Caller,
	held shadows.HeldCommit) (Action, error) {
	a := Action{Type: policy.ActionCommit, UID: held.UID, Run: held.Run, Policy: held.Policy,
		Words: held.Words, Reversible: held.Reversible,
		Commit: &Commit{Directory: held.Directory, Prepared: held.Prepared, Session: held.Session,
			Changes: held.Changes, Protected: held.Protected, Request: held.Request,
			Auto: held.Request.Auto, Branch: held.Branch}}
	// The field Commit.Auto holds it, and is covered by the digest.
	a.Commit.Request.Auto = false
	var s *stored
	err := q.step(func(now time.Time) (l line, err error) {
		s, err = q.add(&l, stored{Action: a}, c, now)
		return l, err
	})
	if err != nil || s.State != Approved {
		return actionOf(s), err
	}
	return q.apply(context.WithoutCancel(ctx), s.ID, true)
}

// AskCommit is like ProposeCommit, but returns the id of the commit. If no grant covers the commit,
// the error is the one of Waits.
func (q *Queue) AskCommit(ctx context.Context, c caller.Caller,
	held shadows.HeldCommit) (commit string, err error) {
	a, err := q.ProposeCommit(ctx, c, held)
	if err == nil && !a.State.Over() {
		err = Waits(a)
	}
	return a.Outcome, err
}

// Waits returns the error for a command whose action waits for an approval.
func Waits(a Action) error {
	e := problem.New(problem.ApprovalPending, "it waits for an approval: %s", a.onRecord()).
		WithHint("jail approvals approve " + a.ID + " approves it, jail approvals show " + a.ID +
			" shows it")
	if a.State == Approved {
		e = problem.New(problem.ApprovalPending, "action %s was approved too late: %s", a.ID,
			a.onRecord()).WithHint("run it again")
	}
	e.Approval = a.ID
	return e
}

// Commits is a Committer that uses a store of shadows.
type Commits struct{ Store *shadows.Store }

// noCommit is the result of Before for a shadow without commits.
const noCommit = "none"

// Before returns the id of the last commit of the shadow, or noCommit.
func (k Commits) Before(ctx context.Context, a Action) (string, error) {
	info, err := k.Store.Approvals().Commits(ctx, a.Run)
	if err == nil {
		err = a.held().IsShadow(info)
	}
	if err != nil {
		return "", stale(err)
	}
	if len(info.Commits) == 0 {
		return noCommit, nil
	}
	return info.Commits[len(info.Commits)-1].ID, nil
}

// unknown returns the error for an interrupted action for which nobody can tell whether it was
// applied.
func unknown(err error) error {
	return problem.New(problem.Failed, "its outcome is unknown: %w", err).
		WithHint("look at the directory; jail audit show --run names what was committed")
}

// Settled looks for a commit with the digest of the action's change set after the commit before.
func (k Commits) Settled(ctx context.Context, a Action, before string) (string, bool, error) {
	info, err := k.Store.Approvals().Commits(ctx, a.Run)
	if err != nil {
		if problem.From(err).Code == problem.NotFound {
			err = unknown(err)
		}
		return "", false, err
	}
	return settledIn(info, a, before)
}

// settledIn is Settled for the shadow that now has the id of the run. It may be another shadow.
func settledIn(info workspace.Info, a Action, before string) (string, bool, error) {
	after := before == noCommit
	known := slices.ContainsFunc(info.Commits, func(c workspace.CommitRecord) bool {
		return c.ID == before
	})
	// Ids of commits are unique, so a shadow with that commit is the same, perhaps resumed.
	if err := a.held().IsShadow(info); err != nil && !known {
		return "", false, unknown(err)
	}
	if !after && !known {
		return "", false, unknown(errors.New("the shadow has other commits now"))
	}
	for _, c := range info.Commits {
		if after && c.Digest == a.Commit.Request.Digest {
			return c.ID, true, nil
		}
		after = after || c.ID == before
	}
	return "", false, nil
}

// Apply makes the approved commit. The error is errStale if shadow or directory have changed.
func (k Commits) Apply(ctx context.Context, a Action, by audit.Actor) (string, error) {
	done, err := k.Store.Approvals().Commit(ctx, by, a.held())
	if err != nil {
		return "", stale(err)
	}
	return done.ID, nil
}

// Revert undoes the commit of the action.
func (k Commits) Revert(ctx context.Context, a Action, by audit.Actor) error {
	return k.Store.Approvals().Revert(ctx, by, a.held(), a.Outcome)
}

// stale turns errors about a changed shadow or directory into errStale.
func stale(err error) error {
	changed := []error{workspace.ErrDigest, workspace.ErrConflict, workspace.ErrNoChange,
		shadows.ErrOther}
	if problem.From(err).Code == problem.NotFound ||
		slices.ContainsFunc(changed, func(e error) bool { return errors.Is(err, e) }) {
		return staleError{err}
	}
	return err
}

type staleError struct{ error }

func (e staleError) Is(target error) bool { return target == errStale }
func (e staleError) Unwrap() error        { return e.error }
