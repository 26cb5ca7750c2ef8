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

// A Committer applies commits. by is who decided; everything is done with the rights of the owner.
type Committer interface {
	// Before returns what Settled needs to know of how things are before Apply.
	Before(ctx context.Context, a Action) (string, error)
	// Apply applies an action and returns what it made. An error that is errStale says that
	// nothing was done because something has changed.
	Apply(ctx context.Context, a Action, by audit.Actor) (outcome string, err error)
	// Settled finds out whether an Apply that was killed has been done.
	Settled(ctx context.Context, a Action, before string) (outcome string, done bool, err error)
	Revert(ctx context.Context, a Action, by audit.Actor) error
}

// ProposeCommit adds a commit that the store of shadows holds back. A grant may approve it: then
// the commit has been made when ProposeCommit returns, or the error says why not.
func (q *Queue) ProposeCommit(ctx context.Context, c caller.Caller,
	held shadows.HeldCommit) (Action, error) {
	a := Action{Type: policy.ActionCommit, UID: held.UID, Run: held.Run, Policy: held.Policy,
		Words: held.Words, Reversible: held.Reversible,
		Commit: &Commit{Directory: held.Directory, Prepared: held.Prepared, Session: held.Session,
			Changes: held.Changes, Protected: held.Protected, Request: held.Request,
			Auto: held.Request.Auto, Branch: held.Branch}}
	// It has a field of its own, which is in the digest.
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

// AskCommit is ProposeCommit for who wants the commit and no action: unless a grant let it be made,
// the error says that it waits.
func (q *Queue) AskCommit(ctx context.Context, c caller.Caller,
	held shadows.HeldCommit) (commit string, err error) {
	a, err := q.ProposeCommit(ctx, c, held)
	if err == nil && !a.State.Over() {
		err = Waits(a)
	}
	return a.Outcome, err
}

// Waits is the error for a command whose action waits for an approval.
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

// Commits applies commits by a store of shadows.
type Commits struct{ Store *shadows.Store }

// noCommit is Before where there was no commit.
const noCommit = "none"

// Before returns the last commit of the shadow.
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

// unknown is the error for an action that was begun, and of which nobody can tell any more whether
// it was done.
func unknown(err error) error {
	return problem.New(problem.Failed, "its outcome is unknown: %w", err).
		WithHint("look at the directory; jail audit show --run names what was committed")
}

// Settled looks for a commit of the very change set after the last one before.
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

// settledIn is Settled in the shadow that has the id of the run now.
func settledIn(info workspace.Info, a Action, before string) (string, bool, error) {
	after := before == noCommit
	known := slices.ContainsFunc(info.Commits, func(c workspace.CommitRecord) bool {
		return c.ID == before
	})
	// The id of a commit is in one shadow only, which may be a session's that was resumed.
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

// Apply commits what was approved, if it is still the same.
func (k Commits) Apply(ctx context.Context, a Action, by audit.Actor) (string, error) {
	done, err := k.Store.Approvals().Commit(ctx, by, a.held())
	if err != nil {
		return "", stale(err)
	}
	return done.ID, nil
}

// Revert undoes the commit.
func (k Commits) Revert(ctx context.Context, a Action, by audit.Actor) error {
	return k.Store.Approvals().Revert(ctx, by, a.held(), a.Outcome)
}

// stale marks errors that say that the shadow or the directory is not as it was.
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
