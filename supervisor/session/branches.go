package session

import (
	"context"
	"errors"
	"time"

	"github.com/jail-sandbox/jail/jail/atomicfile"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/ending"
	"github.com/jail-sandbox/jail/supervisor/lifetime"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// Branches manages branches of the shadows of sessions and runs. A branch is a sleeping session
// that wakes when a tool is run in it. A shadow must not be mounted while it is forked or merged,
// so its open session is put to sleep.
type Branches struct{ sessions *Sessions }

// Branches returns the manager of the daemon's branches.
func (s *Sessions) Branches() Branches { return Branches{s} }

func (b Branches) shadows() shadows.Branches { return shadows.BranchesOf(b.sessions.runner.Shadows) }

// Fork makes a branch of the shadow of session or run parent. For a run, the request of describes
// the branch's session; a branch of a session is like that session. Fork returns an error while an
// invocation runs.
func (b Branches) Fork(ctx context.Context, c caller.Caller, parent, id string,
	of *message.SessionRequest) (made shadows.BranchInfo, err error) {
	s := b.sessions
	if s.private || s.store.dir == "" {
		return made, problem.New(problem.Refused,
			"a branch is a session that sleeps, and a user's own daemon or one that ends with its "+
				"command has no such sessions").
			WithHint("start jaild as a service, or with sudo")
	}
	r, err := b.record(ctx, c, parent, of)
	if err != nil {
		return made, err
	}
	idle, total, err := r.Request.Times()
	if err != nil {
		return made, err
	}
	r.Request.ID = id
	r.Digest = r.Request.Digest()
	r.Started, r.Used, r.LeftMS = time.Now().UTC(), time.Now().UTC(), total.Milliseconds()
	r.Invocations, r.Untouched = 0, false
	// The open entry reserves the id, and Sweep skips the record before there is a shadow.
	h := s.newSession(id, asked{uid: c.UID, digest: r.Digest, request: r.Request, idle: idle,
		total: total})
	defer h.Close()
	open, err := s.admit(c, r.Request, h)
	if err == nil && (open != nil || b.taken(id)) {
		err = problem.New(problem.Usage, "id %s is in use", id).WithHint("take another --id")
	}
	if err != nil {
		return made, err
	}
	if err := s.store.save(r, atomicfile.Durable); err != nil {
		return made, problem.New(problem.Failed, "record of the branch: %w", err)
	}
	made, err = b.shadows().Fork(ctx, c, parent, id)
	if err != nil && made.ID == "" {
		s.runner.Errors.Failed("remove the record of a branch", id, s.store.drop(r.name()))
	}
	return made, err
}

// taken reports whether a sleeping session or a shadow has this id.
func (b Branches) taken(id string) bool {
	names, err := b.sessions.store.names(func(n recordName) bool { return n.id == id })
	if err != nil || len(names) > 0 {
		return true
	}
	w, err := b.sessions.runner.Shadows.Kept.Get(id)
	if err == nil {
		w.Close()
	}
	return !errors.Is(err, workspace.ErrNotFound)
}

// record returns the record from which a branch of parent starts: the parent session's record, or a
// new one from the request of for the shadow of a run.
func (b Branches) record(ctx context.Context, c caller.Caller, parent string,
	of *message.SessionRequest) (*record, error) {
	s := b.sessions
	r, err := b.rest(ctx, c, parent)
	if err != nil {
		return nil, err
	}
	if r != nil {
		if r.UID != c.UID {
			return nil, notYours(parent, r.UID)
		}
		return r, nil
	}
	w, err := s.runner.Shadows.Kept.Get(parent)
	if err != nil || !s.permissions(c).Sees(w.Info().Caller.UID) {
		if err == nil {
			w.Close()
		}
		return nil, problem.New(problem.NotFound, "no session or shadow %q", parent).
			WithHint("jail session list and jail workspaces show yours")
	}
	defer w.Close()
	info := w.Info()
	if info.Caller.UID != c.UID {
		return nil, problem.New(problem.Refused,
			"the shadow of run %s is of user %d, and only that user may work in a branch of it", parent,
			info.Caller.UID)
	}
	if of == nil {
		return nil, problem.New(problem.Usage,
			"run %s is no session, so the request for a branch of its shadow says which session the "+
				"branch is", parent).WithHint("jail branch fork --profile PROFILE " + parent)
	}
	req := *of
	req.Workspace, req.Inherit = string(info.Path), nil
	if req.Tool != "" || len(req.Args) > 0 || req.Script != nil || req.Terminal != nil ||
		req.Learn || req.NoWorkspace || req.Fate == message.FateDiscard {
		return nil, problem.New(problem.Usage, "a branch is a session with a shadow and without a tool")
	}
	return &record{Format: recordFormat, Request: req, UID: c.UID, Workspace: string(info.Path),
		Profile: req.Profile}, nil
}

// rest puts the session with this id to sleep, with a shadow, and returns its record. It returns
// nil if no session has this id.
func (b Branches) rest(ctx context.Context, c caller.Caller, id string) (*record, error) {
	s := b.sessions
	h, err := s.find(c, id)
	if err != nil && problem.From(err).Code != problem.NotFound {
		return nil, err
	}
	if err == nil {
		if err := b.restOpen(ctx, h); err != nil {
			return nil, err
		}
	}
	r, err := s.asleep(c, id)
	if err != nil || r == nil || !r.Untouched || r.UID != c.UID {
		return r, err
	}
	// It slept without a shadow, since nothing was changed. Waking it makes one.
	if _, err := s.begin(ctx, c, r.Request, true); err != nil {
		return nil, err
	}
	if h, err = s.standing(c, id); err != nil {
		return nil, err
	}
	if err := b.restOpen(ctx, h); err != nil {
		return nil, err
	}
	return s.asleep(c, id)
}

// restOpen puts an open session to sleep, with its shadow kept as it is.
func (b Branches) restOpen(ctx context.Context, h *session) error {
	id := h.asked.request.ID
	if err := h.begun(ctx); err != nil {
		return err
	}
	if !h.ended() {
		if h.shadow == nil || h.end.record == nil || h.run.Job().Req.Fate == message.FateDiscard {
			return problem.New(problem.Refused, "session %s has no shadow that outlives it", id).
				WithHint("start it without --discard and --no-workspace")
		}
		if !h.invocations.sleep(func() { h.end.fate = message.FateKeep }) && !h.ended() {
			return problem.New(problem.Busy,
				"an invocation runs in session %s, and may write to its shadow", id).
				WithCause(workspace.ErrActive).WithHint("try again when it has ended")
		}
		h.run.End(ending.Cause{Limit: ending.LimitIdle, Allowed: h.asked.idle.Milliseconds()})
	}
	return lifetime.Await(ctx, h.gone)
}

// both puts the session of a branch and the session of its parent to sleep.
func (b Branches) both(ctx context.Context, c caller.Caller, id string) error {
	if _, err := b.rest(ctx, c, id); err != nil {
		return err
	}
	parent, err := b.shadows().Parent(ctx, c, id)
	if err == nil {
		_, err = b.rest(ctx, c, parent)
	}
	return err
}

// Preview returns the changes that a merge of a branch would make to its parent.
func (b Branches) Preview(ctx context.Context, c caller.Caller,
	id string) (workspace.MergePreview, error) {
	if err := b.both(ctx, c, id); err != nil {
		return workspace.MergePreview{}, err
	}
	return b.shadows().PreviewMerge(ctx, c, id)
}

// Merge applies the changes of a branch to the shadow that it was forked from.
func (b Branches) Merge(ctx context.Context, c caller.Caller, id string,
	req shadows.MergeRequest) (workspace.Result, error) {
	if err := b.both(ctx, c, id); err != nil {
		return workspace.Result{}, err
	}
	return b.shadows().Merge(ctx, c, id, req)
}

// Revert undoes the last merge of a branch.
func (b Branches) Revert(ctx context.Context, c caller.Caller,
	id string) (workspace.MergeRecord, error) {
	if err := b.both(ctx, c, id); err != nil {
		return workspace.MergeRecord{}, err
	}
	return b.shadows().RevertMerge(ctx, c, id)
}

// Discard ends the session of a branch and deletes its shadow.
func (b Branches) Discard(ctx context.Context, c caller.Caller, id string) error {
	if _, err := b.shadows().Parent(ctx, c, id); err != nil {
		return err
	}
	return b.sessions.runner.Shadows.Discard(ctx, c, id, true)
}
