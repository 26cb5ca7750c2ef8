package shadows

import (
	"context"
	"errors"
	"fmt"

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
	// Directory is the real one.
	Directory string
	// Changes are all those of the shadow, and Protected the first of the protected names among
	// them.
	Changes   Changes
	Protected []string
	// Request names the change set by its digest.
	Request CommitRequest
	// Words are those of the proposer.
	Words string
	// Reversible says that what the commit replaces is kept for a revert.
	Reversible bool
}

// maxProtected bounds HeldCommit.Protected.
const maxProtected = 20

// hold describes a commit that waits for an approval, of a shadow that nothing writes to.
func (s *Store) hold(ctx context.Context, w *workspace.Workspace, live bool, req CommitRequest,
	t Terms) (HeldCommit, error) {
	info := w.Info()
	h := HeldCommit{UID: info.Caller.UID, Run: info.ID, Policy: t.Policy,
		Directory: string(info.Path), Request: req, Reversible: t.Revert > 0}
	shown, err := w.Show(ctx, workspace.ShowOptions{Live: live}, func(c workspace.Change) error {
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
	h.Request.Digest, h.Changes = shown.Digest, ChangesOf(shown.Summary)
	return h, nil
}

// Hold describes a commit that the caller wants to be approved first. Nothing is written.
func (s *Store) Hold(ctx context.Context, c caller.Caller, id string,
	req CommitRequest) (h HeldCommit, err error) {
	w, t, err := s.toCommit(ctx, c, id)
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
	err = s.still(id, w, func(w *workspace.Workspace, live bool) error {
		h, err = s.hold(ctx, w, live, req, t)
		return err
	})
	return h, err
}

// owner opens a shadow for somebody who has an approval, and returns the shadow's owner.
func (s *Store) owner(ctx context.Context, id string, by audit.Actor) (*workspace.Workspace,
	caller.Caller, error) {
	w, err := s.settled(ctx, id)
	if err != nil {
		return nil, caller.Caller{}, reviewError(id, err)
	}
	as := caller.Caller{PID: by.PID, Exe: by.Exe}
	own := w.Info().Caller
	as.UID, as.GID, as.Groups = own.UID, own.GID, own.Groups
	// The owner of a shadow may have lost the right to change anything.
	if err := s.o.Permissions(as).Change(own.UID, "the shadow of run", id); err != nil {
		w.Close()
		return nil, as, err
	}
	return w, as, nil
}

// CommitApproved is Commit with an approval of by, and with the rights of the shadow's owner. The
// digest of the request says what was approved.
func (s *Store) CommitApproved(ctx context.Context, by audit.Actor, id string,
	req CommitRequest) (workspace.Result, error) {
	if req.Digest == "" {
		return workspace.Result{}, errors.New("bug: a commit was approved without a digest")
	}
	w, as, err := s.owner(ctx, id, by)
	if err != nil {
		return workspace.Result{}, err
	}
	w.Close()
	return s.commitAs(ctx, as, by, true, id, req)
}

// RevertApproved reverts a commit with the rights of the shadow's owner, unless that was done.
func (s *Store) RevertApproved(ctx context.Context, by audit.Actor, id, commit string) error {
	w, as, err := s.owner(ctx, id, by)
	if err != nil {
		return err
	}
	commits := w.Info().Commits
	w.Close()
	for _, c := range commits {
		if c.ID == commit && !c.Reverted.IsZero() {
			return nil
		}
	}
	_, err = s.revertAs(ctx, as, by, id, RevertRequest{Commit: commit})
	return err
}

// Commits returns the commits of a shadow, after those that were cut off are finished or undone.
func (s *Store) Commits(ctx context.Context, id string) ([]workspace.CommitRecord, error) {
	w, err := s.settled(ctx, id)
	if err != nil {
		return nil, reviewError(id, err)
	}
	defer w.Close()
	info := w.Info()
	return info.Commits, cutOff(info)
}
