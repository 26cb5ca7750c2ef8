package shadows

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jail-sandbox/jail/jail/rootless"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// A HeldCommit is a commit that waits for an approval.
type HeldCommit struct {
	// UID owns the shadow of Run. Policy is the digest of the run's policy.
	UID         uint32
	Run, Policy string
	// Directory is the escaped path of the real directory.
	Directory string
	// Prepared is when the shadow was prepared or last resumed. It distinguishes the shadow from a
	// later one with the same id.
	Prepared time.Time
	// Session: the shadow belongs to a session that has not ended for good.
	Session bool
	// Changes counts all changes of the shadow. Protected has the first protected names among them,
	// maxProtected at most.
	Changes   Changes
	Protected []string
	// Request names the change set by its digest.
	Request CommitRequest
	// Branch is the git ref that a request with GitOnly changes, and nil for other requests.
	Branch *workspace.GitRef
	// Words are the proposer's comment.
	Words string
	// Reversible: the replaced content is kept for a revert.
	Reversible bool
}

// maxProtected bounds HeldCommit.Protected.
const maxProtected = 20

// ErrOther means that the shadow with this id is not the one for which the commit was approved, or
// that its policy has changed.
var ErrOther = errors.New("the shadow is not the one that was proposed")

// IsShadow returns an error that wraps ErrOther unless info describes the shadow of h. A session
// that was resumed since the proposal counts as another shadow.
func (h HeldCommit) IsShadow(info workspace.Info) error {
	what := ""
	switch {
	case info.ID != h.Run:
		what = "its run"
	case info.Path.String() != h.Directory:
		what = "its directory"
	case info.Caller.UID != h.UID:
		what = "its owner"
	case !info.Prepared.Equal(h.Prepared):
		what = "the time at which it was prepared"
	default:
		return nil
	}
	return problem.New(problem.Conflict, "shadow %s: %w: %s differs", h.Run, ErrOther, what).
		WithHint("jail diff " + h.Run + " shows what there is now")
}

// isUnder is like IsShadow, and also returns ErrOther if the policy in t is another.
func (h HeldCommit) isUnder(info workspace.Info, t Terms) error {
	if err := h.IsShadow(info); err != nil || t.Policy == h.Policy {
		return err
	}
	return problem.New(problem.Conflict, "shadow %s: %w: its policy differs", h.Run, ErrOther).
		WithHint("jail diff " + h.Run + " shows what there is now")
}

// Approvals describes commits that need an approval, and makes approved ones.
type Approvals struct{ s *Store }

// Approvals returns the methods that the queue of approvals calls.
func (s *Store) Approvals() Approvals { return Approvals{s} }

// SessionEnded calls EndSession and logs its error.
func (a Approvals) SessionEnded(id string) {
	if a.s.o.Ended != nil {
		a.s.o.Check("end the grants of a session", a.EndSession(id))
	}
}

// EndSession calls Options.Ended for a session that has ended for good or whose shadow is gone.
func (a Approvals) EndSession(id string) error {
	if a.s.o.Ended == nil {
		return nil
	}
	return a.s.o.Ended(id)
}

// hold describes the commit req of w for the queue of approvals. Nothing may write to w meanwhile.
// It returns an error if there is nothing to commit or the digest differs.
func (a Approvals) hold(ctx context.Context, w *workspace.Workspace, live bool, req CommitRequest,
	t Terms) (HeldCommit, error) {
	info := w.Info()
	h := HeldCommit{UID: info.Caller.UID, Run: info.ID, Policy: t.Policy,
		Directory: info.Path.String(), Prepared: info.Prepared, Session: info.Resumable,
		Request: req, Reversible: t.Revert > 0}
	some := false
	shown, err := w.Show(ctx, workspace.ShowOptions{Live: live}, func(c workspace.Change) error {
		some = some || c.Refused == ""
		if _, held := t.held(string(c.Path)); held && len(h.Protected) < maxProtected {
			h.Protected = append(h.Protected, c.Path.String())
		}
		return nil
	})
	if err != nil {
		return h, reviewError(info.ID, err)
	}
	if req.Digest != "" && req.Digest != shown.Digest {
		return h, reviewError(info.ID, fmt.Errorf("commit of %s: %w", info.ID, workspace.ErrDigest))
	}
	if shown.Total() == 0 {
		return h, problem.New(problem.Usage, "commit of %s: nothing changed", info.ID)
	}
	if !some {
		return h, problem.New(problem.Usage, "commit of %s: %w", info.ID, workspace.ErrNever).
			WithHint("jail diff " + info.ID + " lists the changes, and says which a commit refuses")
	}
	h.Request.Digest, h.Changes = shown.Digest, ChangesOf(shown.Summary)
	if req.GitOnly == "" {
		return h, nil
	}
	o, err := h.Request.options()
	if err != nil {
		return h, err
	}
	o.Protect, o.Live, o.Git = t.held, live, a.s.o.Git
	branch, err := workspace.Branch(ctx, w, o)
	if err != nil {
		return h, reviewError(info.ID, err)
	}
	h.Branch = &branch
	return h, nil
}

// Hold describes a commit that the caller wants to be approved. It commits nothing.
func (a Approvals) Hold(ctx context.Context, c caller.Caller, id string,
	req CommitRequest) (h HeldCommit, err error) {
	w, t, err := a.s.withTerms(a.s.getWorkspace(ctx, c, id))
	if err != nil {
		return h, err
	}
	defer w.Close()
	if err := t.mayCommit(id); err != nil {
		return h, err
	}
	if _, err := req.options(); err != nil {
		return h, err
	}
	err = a.s.still(id, w, func(w *workspace.Workspace, live bool) error {
		h, err = a.hold(ctx, w, live, req, t)
		return err
	})
	return h, err
}

// owner opens the shadow of h and returns its owner, with the owner's present groups and the
// process of by. It returns an error if the owner may not change the shadow any more.
func (a Approvals) owner(ctx context.Context, h HeldCommit, by audit.Actor) (*workspace.Workspace,
	caller.Caller, error) {
	w, err := a.s.settled(ctx, h.Run)
	if err != nil {
		return nil, caller.Caller{}, reviewError(h.Run, err)
	}
	as := ownerNow(w.Info().Caller)
	as.PID, as.Exe = by.PID, by.Exe
	// The owner of a shadow may have lost the right to change anything.
	if err := a.s.o.Permissions(as).Change(as.UID, "the shadow of run", h.Run); err != nil {
		w.Close()
		return nil, as, err
	}
	return w, as, nil
}

// ownerNow returns the owner of a shadow without the groups that the owner has left since the run.
// The primary group of a user who is not in the host's user database is kept.
func ownerNow(own workspace.Caller) caller.Caller {
	var as caller.Caller
	as.UID, as.GID, as.Groups = own.UID, own.GID, own.Groups
	if rootless.User() != nil {
		// The user's own daemon has no other groups than the user.
		return as
	}
	now, known := caller.Of(own.UID)
	in := func(gid uint32) bool { return gid == now.GID || slices.Contains(now.Groups, gid) }
	as.Groups = slices.DeleteFunc(slices.Clone(own.Groups), func(gid uint32) bool {
		return !in(gid)
	})
	if known && !in(own.GID) {
		as.GID = now.GID
	}
	return as
}

// Commit commits h with the rights of the shadow's owner, and records by as the actor. It commits
// nothing if the changes differ from the digest of h.Request.
func (a Approvals) Commit(ctx context.Context, by audit.Actor, h HeldCommit) (workspace.Result,
	error) {
	if h.Request.Digest == "" {
		return workspace.Result{}, errors.New("bug: a commit was approved without a digest")
	}
	w, as, err := a.owner(ctx, h, by)
	if err != nil {
		return workspace.Result{}, err
	}
	w.Close()
	return a.s.commitAs(ctx, as, by, &h, h.Run, h.Request)
}

// Revert reverts a commit with the rights of the shadow's owner, and records by as the actor. It
// returns nil if the commit is reverted already.
func (a Approvals) Revert(ctx context.Context, by audit.Actor, h HeldCommit, commit string) error {
	if commit == "" {
		return errors.New("bug: the revert of an action names no commit")
	}
	w, as, err := a.owner(ctx, h, by)
	if err != nil {
		return err
	}
	info := w.Info()
	w.Close()
	// Prepared may differ, since the session may have been resumed. The id of the commit is unique.
	if info.Path.String() != h.Directory || info.Caller.UID != h.UID {
		return h.IsShadow(info)
	}
	for _, c := range info.Commits {
		if c.ID == commit && !c.Reverted.IsZero() {
			return nil
		}
	}
	_, err = a.s.revertAs(ctx, as, by, h.Run, RevertRequest{Commit: commit})
	return err
}

// Commits returns the Info of a shadow with its commits. It first finishes or undoes an interrupted
// commit, and returns an error if that is not possible.
func (a Approvals) Commits(ctx context.Context, id string) (workspace.Info, error) {
	w, err := a.s.settled(ctx, id)
	if err != nil {
		return workspace.Info{}, reviewError(id, err)
	}
	defer w.Close()
	info := w.Info()
	return info, cutOff(info)
}
