package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/audit"
)

// terms are what the policy of a run says about the later commit of its shadow. They are kept beside the workspaces, because the
// profile may have changed by then.
type terms struct {
	Policy  string            `json:"policy"` // digest
	Tool    string            `json:"tool"`
	Protect []string          `json:"protect,omitempty"`
	Commit  policy.CommitRule `json:"commit"`
	// Unfinished is true from the preparation of the shadow until it is kept: where it stays true the run was cut off.
	Unfinished bool `json:"unfinished,omitempty"`
	// Revert and RevertTime are the limits of what a commit keeps; terms of an earlier version keep nothing.
	Revert     int64         `json:"revert,omitempty"`
	RevertTime time.Duration `json:"revert_time,omitempty"`
}

func (s *Supervisor) termsPath(id string) string {
	return filepath.Join(s.config.StateDir, "terms", id+".json")
}

func (s *Supervisor) saveTerms(id string, t terms) error {
	text, err := json.Marshal(t)
	if err != nil {
		return err
	}
	path := s.termsPath(id)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if t.Unfinished {
		return replaceWhole(path, text) // it need not outlive a power loss, which the shadow does not either
	}
	return replaceDurably(path, text)
}

// loadTerms reads the terms of a shadow. Without them nothing may be committed.
func (s *Supervisor) loadTerms(id string) (terms, error) {
	var t terms
	text, err := os.ReadFile(s.termsPath(id))
	if err == nil {
		err = json.Unmarshal(text, &t)
	}
	return t, err
}

func (s *Supervisor) dropTerms(id string) error {
	err := os.Remove(s.termsPath(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// sweepTerms removes the terms of shadows that are gone, where a daemon was killed between the one and the other.
func (s *Supervisor) sweepTerms() error {
	entries, err := os.ReadDir(filepath.Dir(s.termsPath("any")))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return failed(err, "", "terms of shadows: %v", err)
	}
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".json")
		w, getErr := s.workspaces.Get(id)
		if getErr == nil {
			w.Close()
		} else if ok && errors.Is(getErr, workspace.ErrNotFound) {
			err = errors.Join(err, s.dropTerms(id))
		}
	}
	if err != nil {
		return failed(err, "", "terms of shadows: %v", err)
	}
	return nil
}

// A WorkspaceInfo is a shadow that is kept.
type WorkspaceInfo struct {
	workspace.Info
	Disk   int64  `json:"disk"` // bytes that it takes in the store
	Tool   string `json:"tool,omitempty"`
	Policy string `json:"policy,omitempty"`
	Commit string `json:"commit"` // never, ask or auto
	// Unfinished says that the run was cut off: what is in the shadow is what was written by then.
	Unfinished bool `json:"unfinished,omitempty"`
}

// Workspaces lists the shadows that the caller may see, the eldest first.
func (s *Supervisor) Workspaces(c Caller) ([]WorkspaceInfo, error) {
	all, err := s.workspaces.List()
	if err != nil {
		return nil, failed(err, "", "%v", err)
	}
	infos, may := []WorkspaceInfo{}, s.permissionsOf(c)
	for _, w := range all {
		if !may.sees(w.Caller.UID) {
			continue
		}
		info := WorkspaceInfo{Info: w, Commit: policy.CommitNever.String()}
		if t, err := s.loadTerms(w.ID); err == nil {
			info.Tool, info.Policy, info.Commit = t.Tool, t.Policy, t.Commit.String()
			info.Unfinished = t.Unfinished && w.State != workspace.Active && w.State != workspace.Prepared
		}
		if open, err := s.workspaces.Get(w.ID); err == nil {
			info.Disk, _ = open.Disk() // of one that has just gone there is none
			open.Close()
		}
		infos = append(infos, info)
	}
	return infos, nil
}

// getWorkspace opens a shadow for who may change it.
func (s *Supervisor) getWorkspace(ctx context.Context, c Caller, id string) (*workspace.Workspace, error) {
	w, err := s.seeWorkspace(ctx, c, id)
	if err != nil {
		return nil, err
	}
	if err := s.permissionsOf(c).change(w.Info().Caller.UID, "the shadow of run", id); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// seeWorkspace opens a shadow for who may look at it.
func (s *Supervisor) seeWorkspace(ctx context.Context, c Caller, id string) (*workspace.Workspace, error) {
	w, err := s.workspaces.Get(id)
	if err == nil && w.Info().State == workspace.Committing { // a disk that failed then may work by now
		w.Close()
		if err := s.settleCommits(ctx); err != nil {
			return nil, err
		}
		w, err = s.workspaces.Get(id)
	}
	if err == nil && !s.maySee(c, w.Info().Caller.UID) {
		w.Close()
		err = workspace.ErrNotFound
	}
	if err != nil {
		return nil, reviewError(id, err)
	}
	return w, nil
}

func reviewError(id string, err error) error {
	switch {
	case errors.Is(err, workspace.ErrNotFound):
		return notFound("jail workspaces lists the shadows that are kept", "no shadow is kept for run %q", id)
	case errors.Is(err, workspace.ErrConflict):
		e := &Error{Code: CodeConflict, Message: err.Error(), Err: err, Hint: conflictHint}
		if c := (*workspace.ConflictError)(nil); errors.As(err, &c) {
			e.Conflicts = c.Conflicts[:min(len(c.Conflicts), maxConflicts)]
		}
		return e
	case errors.Is(err, workspace.ErrProtected):
		return &Error{Code: CodeRefused, Message: err.Error(), Err: err, Hint: "name them, with --include-protected, if you have read them"}
	case errors.Is(err, workspace.ErrActive), errors.Is(err, workspace.ErrBusy):
		return &Error{Code: CodeBusy, Message: err.Error(), Err: err, Hint: "try again when it has ended"}
	case errors.Is(err, workspace.ErrDigest):
		return &Error{Code: CodeConflict, Message: err.Error(), Err: err, Hint: "jail diff " + id + " shows what there is now"}
	case errors.Is(err, workspace.ErrState):
		return &Error{Code: CodeConflict, Message: err.Error(), Err: err, Hint: "jail workspaces says in which state it is"}
	case errors.Is(err, workspace.ErrNoSpace), errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return failed(err, "make room on the disk of the directory, or commit a part of it", "%v", err)
	case errors.Is(err, syscall.EROFS):
		return failed(err, "the directory is on a file system that is mounted read-only", "%v", err)
	case errors.Is(err, workspace.ErrNoCommit), errors.Is(err, workspace.ErrNotKept):
		return &Error{Code: CodeConflict, Message: err.Error(), Err: err, Hint: "jail workspaces lists what can be reverted, and until when"}
	case errors.Is(err, workspace.ErrNoChange):
		return notFound("jail diff "+id+" lists the changes", "%v", err)
	case errors.Is(err, fs.ErrPermission):
		return &Error{Code: CodeRefused, Message: err.Error(), Err: err, Hint: "a commit is made with your own rights"}
	}
	return failed(err, "", "%v", err)
}

// A Review is what a shadow would change.
type Review struct {
	Info WorkspaceInfo
	// Show is one pass over the changes, in which everything that is asked for is of the same moment.
	Show  func(o workspace.ShowOptions, emit func(workspace.Change) error) (workspace.Shown, error)
	Held  func(path string) (why string, ok bool)
	close func() error
}

// Close lets go of the shadow.
func (r *Review) Close() error { return r.close() }

// Review opens a shadow for review. Its changes are read while they are shown; nothing of the host is executed for that.
func (s *Supervisor) Review(ctx context.Context, c Caller, id string) (*Review, error) {
	w, err := s.seeWorkspace(ctx, c, id)
	if err != nil {
		return nil, err
	}
	t, err := s.loadTerms(id)
	if err != nil {
		w.Close()
		return nil, failed(err, "jail discard "+id+" throws it away", "shadow %s has no terms: %v", id, err)
	}
	disk, err := w.Disk()
	if err != nil {
		w.Close()
		return nil, failed(err, "", "%v", err)
	}
	return &Review{
		Info: WorkspaceInfo{Info: w.Info(), Disk: disk, Tool: t.Tool, Policy: t.Policy, Commit: t.Commit.String(), Unfinished: t.Unfinished},
		Show: func(o workspace.ShowOptions, emit func(workspace.Change) error) (workspace.Shown, error) {
			return w.Show(ctx, o, emit)
		},
		Held:  t.held,
		close: w.Close,
	}, nil
}

func (t terms) held(path string) (string, bool) {
	risk, ok := policy.Workspace{Access: policy.WorkspaceShadow, Protect: t.Protect}.HeldBack(path)
	return risk.Reason, ok
}

// A CommitRequest says what to commit.
type CommitRequest struct {
	Paths            []string `json:"paths,omitempty"` // none: all
	IncludeProtected bool     `json:"include_protected,omitempty"`
	Digest           string   `json:"digest,omitempty"`
	Exact            bool     `json:"exact,omitempty"` // each path is that path alone, without what is beneath it
	// Hunks are files of which only these hunks are taken, by number from 0 as a review with hunks has them; Digest must be given.
	Hunks map[string][]int `json:"hunks,omitempty"`
	// Classes narrow the choice to changes with a risk of one of these classes; "plain" are those without any.
	Classes []string `json:"classes,omitempty"`
	Theirs  bool     `json:"theirs,omitempty"` // take the shadow's side of conflicts
	Merge   bool     `json:"merge,omitempty"`  // take both sides of conflicts in text where that is clean
}

// Commit writes changes of a shadow to the real directory, with the caller's rights, and puts it on record first and last.
func (s *Supervisor) Commit(ctx context.Context, c Caller, id string, req CommitRequest) (workspace.Result, error) {
	w, err := s.getWorkspace(ctx, c, id)
	if err != nil {
		return workspace.Result{}, err
	}
	defer w.Close()
	t, err := s.loadTerms(id)
	if err != nil {
		return workspace.Result{}, failed(err, "jail discard "+id+" throws it away", "shadow %s has no terms: %v", id, err)
	}
	record := func(e audit.Event) error {
		if _, err := s.log.Append(context.Background(), audit.Entry{Run: id, Actor: c.actor(), Policy: t.Policy, Event: e}); err != nil {
			return failed(err, "make room for the log; nothing is committed without it", "audit log: %v", err)
		}
		return nil
	}
	return s.commit(ctx, c, w, req, policy.Workspace{Access: policy.WorkspaceShadow, Protect: t.Protect, Commit: t.Commit}, retention(t.Revert, t.RevertTime), record)
}

func (s *Supervisor) commit(ctx context.Context, c Caller, w *workspace.Workspace, req CommitRequest, rules policy.Workspace, keep workspace.Retention, record func(audit.Event) error) (workspace.Result, error) {
	info := w.Info()
	if rules.Commit == policy.CommitNever {
		return workspace.Result{}, refused(nil, "run it again with a profile that allows a commit", `commit of %s: workspace.commit is "never"`, info.ID)
	}
	as := c.workspace()
	opts, err := req.options()
	if err != nil {
		return workspace.Result{}, err
	}
	opts.As, opts.Protect, opts.Keep = &as, terms{Protect: rules.Protect}.held, keep
	begun := audit.WorkspaceCommitted{Workspace: string(info.Path), Digest: req.Digest, Paths: req.Paths, Protected: req.IncludeProtected, Begun: true}
	if err := record(begun); err != nil {
		return workspace.Result{}, err
	}
	done, err := w.Commit(ctx, opts)
	event := committed(info, done, req)
	if err != nil {
		event.Error = err.Error()
	}
	if recErr := record(event); recErr != nil {
		return done, errors.Join(recErr, err)
	}
	if err != nil {
		return done, reviewError(info.ID, err)
	}
	s.later(s.pruneQuietly)
	return done, nil
}

func committed(info workspace.Info, done workspace.Result, req CommitRequest) audit.WorkspaceCommitted {
	e := audit.WorkspaceCommitted{Workspace: string(info.Path), Digest: done.Digest, Paths: req.Paths, Protected: req.IncludeProtected}
	e.Commit, e.Changes, e.Files = done.ID, counted(done.Committed), digests(done.Committed)
	for _, h := range done.Held {
		e.Held = append(e.Held, string(h.Path))
	}
	return e
}

// Discard throws a shadow away.
func (s *Supervisor) Discard(ctx context.Context, c Caller, id string) error {
	w, err := s.getWorkspace(ctx, c, id)
	if err != nil {
		return err
	}
	defer w.Close()
	info := w.Info()
	event := audit.WorkspaceDiscarded{Workspace: string(info.Path)}
	if sum, digest, err := w.Review(ctx); err == nil {
		event.Digest = digest
		event.Changes = audit.Changes{Added: int64(sum.Added), Modified: int64(sum.Modified), Deleted: int64(sum.Deleted)}
	}
	if _, err := s.log.Append(ctx, audit.Entry{Run: id, Actor: c.actor(), Event: event}); err != nil {
		return failed(err, "make room for the log", "audit log: %v", err)
	}
	if err := w.Discard(); err != nil {
		return reviewError(id, err)
	}
	if err := s.dropTerms(id); err != nil {
		return fmt.Errorf("terms of %s: %w", id, err)
	}
	return nil
}
