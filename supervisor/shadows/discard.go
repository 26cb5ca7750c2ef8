package shadows

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// A DiscardRequest selects the changes of a shadow to discard.
type DiscardRequest struct {
	// With all beneath them; patterns as in a commit.
	Paths []string `json:"paths"`
}

// Discarded counts the changes that were discarded and those that are left.
type Discarded struct {
	Discarded Changes `json:"discarded"`
	Left      Changes `json:"left"`
}

// Discard removes a shadow. If its session is open or its run is live, Discard returns an error, or
// ends it first if force is set. force also removes a shadow whose interrupted commit can be
// neither finished nor undone.
func (s *Store) Discard(ctx context.Context, c caller.Caller, id string, force bool) error {
	w, err := s.getWorkspace(ctx, c, id)
	if errors.Is(err, workspace.ErrRecord) && force && c.UID == 0 {
		return s.discardDamaged(ctx, c, id)
	}
	if err != nil {
		return err
	}
	defer w.Close()
	switch r := s.o.Live(id); {
	case written(w) && !force:
		return isAlive(id, r)
	case written(w):
		if err := s.endFor(ctx, id); err != nil {
			return err
		}
		return s.discardEnded(ctx, c, id, true)
	case r != nil:
		// The jail has ended, and the run's end is being recorded.
		if err := r.Wait(ctx); err != nil {
			return err
		}
		return s.discardEnded(ctx, c, id, force)
	}
	return s.discard(ctx, c, id, w, force)
}

// written reports whether a jail of this or another daemon may write to the shadow.
func written(w *workspace.Workspace) bool {
	state := w.Info().State
	return state == workspace.Prepared || state == workspace.Active
}

// isAlive returns the error for the shadow of a live run. r is nil for a run of another daemon.
func isAlive(id string, r Live) error {
	e := problem.New(problem.Conflict, "run %s is alive, and writes to its shadow", id).
		WithCause(workspace.ErrActive).
		WithHint("jail discard --force " + id + " ends it and throws its shadow away")
	if r != nil && r.IsSession() {
		e.Message = fmt.Sprintf("session %s is open, and its tools write to its shadow", id)
	}
	return e
}

// endFor kills a run or session of this daemon, so that its shadow can be discarded, and waits
// until its jail is gone.
func (s *Store) endFor(ctx context.Context, id string) error {
	r := s.o.Live(id)
	if r == nil {
		return elsewhere(id)
	}
	r.Kill()
	return r.Wait(ctx)
}

// discardEnded discards the shadow of a run that has just ended, unless the run's end removed it.
func (s *Store) discardEnded(ctx context.Context, c caller.Caller, id string, force bool) error {
	w, err := s.getWorkspace(ctx, c, id)
	if e := problem.From(err); err != nil && e.Code == problem.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	defer w.Close()
	return s.discard(ctx, c, id, w, force)
}

func (s *Store) discard(ctx context.Context, c caller.Caller, id string, w *workspace.Workspace,
	force bool) error {
	info := w.Info()
	event := audit.WorkspaceDiscarded{Workspace: string(info.Path)}
	if err := cutOff(info); err != nil {
		if !force {
			return err
		}
		return s.giveUp(c, w, event)
	}
	branches, err := workspace.BranchesOf(s.Kept).Of(w)
	if err == nil && len(branches) > 0 {
		err = fmt.Errorf("%w: discard or merge them first: %s", workspace.ErrBranches,
			strings.Join(branches, ", "))
	}
	if err != nil {
		return reviewError(id, err)
	}
	if sum, digest, err := w.Review(ctx); err == nil {
		event.Digest, event.Changes = digest, audit.Changes(ChangesOf(sum))
	}
	if err := s.recordDiscard(ctx, c, id, event); err != nil {
		return err
	}
	if err := w.Discard(); err != nil {
		return reviewError(id, err)
	}
	return s.dropRest(info)
}

// discardDamaged discards a shadow whose record cannot be read. The caller must be root, since the
// owner is unknown.
func (s *Store) discardDamaged(ctx context.Context, c caller.Caller, id string) error {
	if err := s.recordDiscard(ctx, c, id, audit.WorkspaceDiscarded{}); err != nil {
		return err
	}
	if err := s.Kept.DiscardDamaged(id); err != nil {
		return reviewError(id, err)
	}
	s.Approvals().SessionEnded(id)
	if err := s.DropTerms(id); err != nil {
		return fmt.Errorf("terms of %s: %w", id, err)
	}
	return nil
}

func (s *Store) recordDiscard(ctx context.Context, c caller.Caller, id string,
	event audit.WorkspaceDiscarded) error {
	return s.record(ctx, audit.Entry{Run: id, Actor: c.Actor(), Event: event})
}

// DiscardPaths discards the named changes in a shadow. The tools of an open session or a live run
// still see their own content at these paths. It counts as a change again once a tool writes to it.
func (s *Store) DiscardPaths(ctx context.Context, c caller.Caller, id string,
	req DiscardRequest) (Discarded, error) {
	// This check comes first, so that a caller who may not see the shadow learns nothing about it.
	w, err := s.getWorkspace(ctx, c, id)
	if err != nil {
		return Discarded{}, err
	}
	defer w.Close()
	if len(req.Paths) == 0 {
		return Discarded{}, problem.New(problem.Usage, "discard of a part: no path is given")
	}
	paths, err := namesOf(req.Paths)
	if err != nil {
		return Discarded{}, err
	}
	var gone, left workspace.Summary
	info := w.Info()
	err = s.still(id, w, func(w *workspace.Workspace, live bool) error {
		shown, err := w.Show(ctx, workspace.ShowOptions{Live: live},
			func(workspace.Change) error { return nil })
		if err != nil {
			return err
		}
		gone, left, err = w.DiscardPaths(ctx, paths, live, func(gone, _ workspace.Summary) error {
			return s.recordDiscard(ctx, c, id, audit.WorkspaceDiscarded{
				Workspace: string(info.Path), Digest: shown.Digest,
				Changes: audit.Changes(ChangesOf(gone)), Paths: req.Paths})
		})
		return err
	})
	if err != nil {
		return Discarded{}, reviewError(id, err)
	}
	return Discarded{ChangesOf(gone), ChangesOf(left)}, nil
}

// ChangesOf converts a summary to Changes.
func ChangesOf(sum workspace.Summary) Changes {
	return Changes{int64(sum.Added), int64(sum.Modified), int64(sum.Deleted)}
}

// giveUp discards a shadow of which an interrupted commit wrote a part to the real directory. It
// records which part.
func (s *Store) giveUp(c caller.Caller, w *workspace.Workspace,
	event audit.WorkspaceDiscarded) error {
	info := w.Info()
	id := info.ID
	err := w.GiveUp(func(left string) error {
		event.GaveUp = left
		return s.recordDiscard(context.Background(), c, id, event)
	})
	if err != nil {
		return reviewError(id, err)
	}
	return s.dropRest(info)
}
