// Package shadows keeps the shadow workspaces of runs until their users have reviewed them, and
// commits, discards and reverts them with the caller's rights. The audit log has a record of the
// beginning and of the end of each such action.
package shadows

import (
	"bufio"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail/atomicfile"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// A Store keeps the shadows of runs until their users commit or discard them. Its methods may be
// called from several goroutines.
type Store struct {
	// Kept stores the shadows. It does not check the rights of callers.
	Kept *workspace.Store
	o    Options

	// writing maps the id of a shadow to the Progress of its commit or revert in progress.
	writing sync.Map
}

// Options are what a Store needs from the daemon.
type Options struct {
	// Terms is the directory in which the Terms of shadows are stored.
	Terms string
	// Log appends a record and returns once the record is on disk.
	Log interface {
		Append(context.Context, audit.Entry) (uint64, error)
	}
	// Permissions returns what the policy ceiling in force allows a caller to do.
	Permissions func(caller.Caller) caller.Permissions
	// Live returns the run or session with this id, or nil if this daemon has no live one.
	Live func(id string) Live
	// Discarded is called after a shadow was discarded, with its owner's uid. It may be nil.
	Discarded func(id string, uid uint32) error
	// Ask puts a commit into the queue of approvals. It returns the error for the requester, or, if
	// a grant approved the commit at once, the id of the commit that was made.
	Ask func(context.Context, caller.Caller, HeldCommit) (commit string, err error)
	// Approved reports whether an approved action on a shadow is not applied yet. Prune keeps such
	// a shadow. A nil Approved means that there is none.
	Approved func(id string) bool
	// Ended is called when a session has ended for good or its shadow was discarded. It may be nil.
	Ended func(id string) error
	// PruneNames removes the names that users gave to runs which no longer exist.
	PruneNames func() error
	// Check logs err, unless it is nil, for a task whose error no caller receives.
	Check func(what string, err error)
	// Git reads repositories for reviews. If it is nil, reviews say nothing about repositories.
	Git workspace.GitReader
	// Background runs a function without waiting for it.
	Background func(func())
}

// Live is a run or session that the daemon has not ended.
type Live interface {
	IsSession() bool
	// Kill ends the run or session. Wait returns after its cleanup, or when ctx ends.
	Kill()
	Wait(ctx context.Context) error
	// Paused calls f with the shadow of the run or session while all processes that may write to
	// the shadow are stopped. ok is false, and f is not called, if there is no such shadow now.
	Paused(f func(*workspace.Workspace) error) (ok bool, err error)
}

// New returns a Store for the shadows in w.
func New(w *workspace.Store, o Options) *Store { return &Store{Kept: w, o: o} }

// Terms are the rules of a run's policy for a later commit of its shadow. They are saved with the
// shadow, because the profile may change before the commit.
type Terms struct {
	// Policy is the digest of the policy.
	Policy  string            `json:"policy"`
	Tool    string            `json:"tool"`
	Protect []string          `json:"protect,omitempty"`
	Commit  policy.CommitRule `json:"commit"`
	// Unfinished is true from the preparation of the shadow until the run has ended. If it stays
	// true, the run was interrupted.
	Unfinished bool `json:"unfinished,omitempty"`
	// Ask: a commit needs an approval.
	Ask bool `json:"ask,omitempty"`
	// Revert (bytes) and RevertTime limit the replaced content that a commit keeps for a revert.
	// They are 0 in terms of an earlier version, which keep nothing.
	Revert     int64         `json:"revert,omitempty"`
	RevertTime time.Duration `json:"revert_time,omitempty"`
}

func (s *Store) termsPath(id string) string { return filepath.Join(s.o.Terms, id+".json") }

// SaveTerms writes the terms of a shadow.
func (s *Store) SaveTerms(id string, t Terms) error {
	path := s.termsPath(id)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	// Terms of a running run need not survive a power loss: its shadow does not, either.
	return atomicfile.WriteJSON(path, t, 0o600, atomicfile.Durability(!t.Unfinished))
}

// LoadTerms reads the terms of a shadow. A shadow without terms cannot be committed.
func (s *Store) LoadTerms(id string) (t Terms, err error) {
	err = atomicfile.ReadJSON(s.termsPath(id), &t)
	return t, err
}

// DropTerms removes the terms of a shadow, if there are any.
func (s *Store) DropTerms(id string) error {
	err := os.Remove(s.termsPath(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// dropRest removes the terms of a discarded shadow, and calls Options.Ended and Options.Discarded.
func (s *Store) dropRest(info workspace.Info) error {
	s.Approvals().SessionEnded(info.ID)
	err := s.DropTerms(info.ID)
	if err != nil {
		err = fmt.Errorf("terms of %s: %w", info.ID, err)
	}
	if s.o.Discarded != nil {
		err = errors.Join(err, s.o.Discarded(info.ID, info.Caller.UID))
	}
	return err
}

// SweepTerms removes the terms of shadows that are gone: a daemon may be killed after it removed a
// shadow and before it removed its terms.
func (s *Store) SweepTerms() error {
	entries, err := os.ReadDir(filepath.Dir(s.termsPath("any")))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return problem.New(problem.Failed, "terms of shadows: %w", err)
	}
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".json")
		w, getErr := s.Kept.Get(id)
		if getErr == nil {
			w.Close()
		} else if ok && errors.Is(getErr, workspace.ErrNotFound) {
			err = errors.Join(err, s.DropTerms(id))
		}
	}
	if err != nil {
		return problem.New(problem.Failed, "terms of shadows: %w", err)
	}
	return nil
}

// A WorkspaceInfo describes a stored shadow.
type WorkspaceInfo struct {
	workspace.Info
	// GlobalID is unique among all runs. `id` is the name that the user gave to the run, if any.
	GlobalID string `json:"global_id,omitempty"`
	// Disk is how many bytes the shadow takes in the store.
	Disk   int64  `json:"disk"`
	Tool   string `json:"tool,omitempty"`
	Policy string `json:"policy,omitempty"`
	// Commit is the commit rule of the run's policy: never, ask or auto.
	Commit string `json:"commit"`
	// Unfinished: the run was interrupted. The shadow has what was written by then.
	Unfinished bool `json:"unfinished,omitempty"`
	// Progress of a commit or revert in progress, nil if there is none.
	Progress *Progress `json:"progress,omitempty"`
}

// A Progress counts the completed steps of a commit or revert.
type Progress struct {
	Done  int `json:"done"` // steps
	Total int `json:"total"`
}

// isUnfinished reports whether the run of a shadow was interrupted. It is false for a live run.
func (s *Store) isUnfinished(t Terms, w workspace.Info) bool {
	return t.Unfinished && w.State != workspace.Active && w.State != workspace.Prepared &&
		s.o.Live(w.ID) == nil
}

// progressOf returns a function that stores the progress of a shadow's commit or revert, and one
// that removes it at the end.
func (s *Store) progressOf(id string) (tell func(done, total int), end func()) {
	return func(done, total int) { s.writing.Store(id, Progress{done, total}) },
		func() { s.writing.Delete(id) }
}

// List returns the shadows that the caller may see, the eldest first.
func (s *Store) List(c caller.Caller) ([]WorkspaceInfo, error) {
	all, err := s.Kept.List()
	// The owner of a damaged shadow is unknown. It is logged, and the others are listed.
	damaged := errors.Is(err, workspace.ErrRecord)
	if damaged || err == nil {
		s.o.Check("list the shadows", err)
	}
	if err != nil && !damaged {
		return nil, problem.New(problem.Failed, "%w", err)
	}
	infos, may := []WorkspaceInfo{}, s.o.Permissions(c)
	for _, w := range all {
		if !may.Sees(w.Caller.UID) {
			continue
		}
		info := WorkspaceInfo{Info: w, Commit: policy.CommitNever.String()}
		if t, err := s.LoadTerms(w.ID); err == nil {
			info.Tool, info.Policy, info.Commit = t.Tool, t.Policy, t.Commit.String()
			info.Unfinished = s.isUnfinished(t, w)
		}
		if open, err := s.Kept.Get(w.ID); err == nil {
			// The size is unknown if the shadow has just been removed.
			info.Disk, _ = open.Disk()
			open.Close()
		}
		if p, ok := s.writing.Load(w.ID); ok {
			p := p.(Progress)
			info.Progress = &p
		}
		infos = append(infos, info)
	}
	return infos, nil
}

// getWorkspace opens a shadow. It returns an error unless the caller may change the shadow.
func (s *Store) getWorkspace(ctx context.Context, c caller.Caller, id string) (*workspace.Workspace,
	error) {
	w, err := s.seeWorkspace(ctx, c, id)
	if err != nil {
		return nil, err
	}
	if err := s.o.Permissions(c).Change(w.Info().Caller.UID, "the shadow of run", id); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// seeWorkspace opens a shadow. To a caller who may not see it, the shadow does not exist.
func (s *Store) seeWorkspace(ctx context.Context, c caller.Caller, id string) (*workspace.Workspace,
	error) {
	w, err := s.settled(ctx, id)
	if err == nil && !s.o.Permissions(c).Sees(w.Info().Caller.UID) {
		w.Close()
		err = workspace.ErrNotFound
	}
	if err != nil {
		return nil, reviewError(id, err)
	}
	return w, nil
}

// settled opens a shadow. It first finishes or undoes an interrupted commit of the shadow.
func (s *Store) settled(ctx context.Context, id string) (*workspace.Workspace, error) {
	w, err := s.Kept.Get(id)
	// A disk that failed at startup may work again.
	if err == nil && w.Info().State == workspace.Committing {
		w.Close()
		if err := s.Settle(ctx); err != nil {
			return nil, err
		}
		w, err = s.Kept.Get(id)
	}
	return w, err
}

// cutOff returns an error if an interrupted commit of the shadow can be neither finished nor
// undone, and nil otherwise.
func cutOff(info workspace.Info) error {
	if info.State != workspace.Committing || info.Stuck == "" {
		return nil
	}
	return problem.New(problem.Conflict,
		"a commit of run %s to %s was cut off, and is not undone yet: %s", info.ID, info.Path,
		info.Stuck).
		WithHint("put back what is named, then ask again; jail discard --force " + info.ID +
			" gives it up, and leaves the directory as it is")
}

// A meaning is the code and hint with which a request is answered after one of these errors of
// package workspace. {id} in the hint stands for the id of the shadow.
type meaning struct {
	of         []error
	code, hint string
}

// meanings are tried in order. The first that has the error is used.
var meanings = []meaning{
	{[]error{workspace.ErrBranches}, problem.Conflict, "jail branch list shows them"},
	{[]error{workspace.ErrForks}, problem.Refused,
		"jail branch list shows them, jail branch discard ID throws one away"},
	{[]error{workspace.ErrIncomplete}, problem.Failed, "look at the paths that are named; " +
		"jail workspaces says whether a part of it is still to be undone"},
	{[]error{workspace.ErrManyDirs}, problem.Busy, "commit a part of it by PATH, or raise the " +
		"daemon's limit of open files (LimitNOFILE=)"},
	{[]error{workspace.ErrConflict}, problem.Conflict, conflictHint},
	{[]error{workspace.ErrNever}, problem.Refused,
		"jail diff {id} lists the changes, and says which a commit refuses"},
	{[]error{workspace.ErrProtected}, problem.Refused,
		"name them, with --include-protected, if you have read them"},
	{[]error{workspace.ErrApart}, problem.Refused,
		"name the directory of the repository, .git for example, to take it whole"},
	{[]error{workspace.ErrGitOnly}, problem.Refused,
		"jail diff {id} says what the run did to its repositories"},
	{[]error{workspace.ErrActive, workspace.ErrBusy}, problem.Busy, "try again when it has ended"},
	{[]error{workspace.ErrDigest}, problem.Conflict, "jail diff {id} shows what there is now"},
	{[]error{workspace.ErrState}, problem.Conflict, "jail workspaces says in which state it is"},
	{[]error{workspace.ErrNoSpace, syscall.ENOSPC, syscall.EDQUOT}, problem.Failed,
		"make room on the disk of the directory, or commit a part of it"},
	{[]error{syscall.EROFS}, problem.Failed,
		"the directory is on a file system that is mounted read-only"},
	{[]error{workspace.ErrRecord}, problem.Failed, "look at the disk of jail's state directory; " +
		"the shadow cannot be used any more, and the others can; root removes it with " +
		"jail discard --force {id}"},
	{[]error{workspace.ErrNoCommit, workspace.ErrNotKept}, problem.Conflict,
		"jail workspaces lists what can be reverted, and until when"},
	{[]error{workspace.ErrPattern}, problem.Usage,
		"[ begins a set, as in [ab]; a backslash before it stands for itself"},
	{[]error{workspace.ErrNoChange}, problem.NotFound, "jail diff {id} lists the changes"},
	{[]error{fs.ErrPermission}, problem.Refused, "a commit is made with your own rights"},
}

// reviewError returns err as a *problem.Error with a hint for the user, according to meanings. It
// returns a *problem.Error, and nil, unchanged.
func reviewError(id string, err error) error {
	is := func(target error) bool { return errors.Is(err, target) }
	switch known := (*problem.Error)(nil); {
	case err == nil, errors.As(err, &known):
		return err
	case is(workspace.ErrNotFound):
		return problem.New(problem.NotFound, "no shadow is kept for run %q", id).
			WithHint("jail workspaces lists the shadows that are kept")
	case is(workspace.ErrNoBranch):
		return problem.New(problem.Usage, "run %s is no branch: jail branch fork makes one", id).
			WithHint("jail commit " + id + " takes its changes into the directory")
	}
	for _, m := range meanings {
		if !slices.ContainsFunc(m.of, is) {
			continue
		}
		e := problem.New(m.code, "%w", err).WithHint(strings.ReplaceAll(m.hint, "{id}", id))
		if c, ok := errors.AsType[*workspace.ConflictError](err); ok && m.hint == conflictHint {
			e.Conflicts = c.Conflicts[:min(len(c.Conflicts), maxConflicts)]
		}
		return e
	}
	return problem.New(problem.Failed, "%w", err)
}

// A Review shows the changes in an open shadow. The caller closes it.
type Review struct {
	Info WorkspaceInfo
	// Show calls emit with each change, and writes the patch and hunks that o asks for. All are of
	// one state of the shadow, in one pass.
	Show  func(o workspace.ShowOptions, emit func(workspace.Change) error) (workspace.Shown, error)
	Held  func(path string) (why string, ok bool)
	close func() error
}

// Close closes the shadow.
func (r *Review) Close() error { return r.close() }

// Review opens a shadow for review. Its changes are read by Show. Nothing in it is executed.
func (s *Store) Review(ctx context.Context, c caller.Caller, id string) (*Review, error) {
	w, t, err := s.withTerms(s.seeWorkspace(ctx, c, id))
	if err != nil {
		return nil, err
	}
	disk, err := w.Disk()
	if err != nil {
		w.Close()
		return nil, problem.New(problem.Failed, "%w", err)
	}
	return &Review{
		Info: WorkspaceInfo{Info: w.Info(), Disk: disk, Tool: t.Tool, Policy: t.Policy,
			Commit: t.Commit.String(), Unfinished: s.isUnfinished(t, w.Info())},
		Show: func(o workspace.ShowOptions,
			emit func(workspace.Change) error) (shown workspace.Shown, err error) {
			o.Git = s.o.Git
			if written(w) || s.o.Live(id) != nil {
				shown, err = s.showLive(ctx, w, id, o, emit)
			} else {
				shown, err = w.Show(ctx, o, emit)
			}
			if errors.Is(err, workspace.ErrNoChange) || errors.Is(err, workspace.ErrPattern) {
				err = reviewError(id, err)
			}
			return shown, err
		},
		Held:  t.held,
		close: w.Close,
	}, nil
}

func (t Terms) held(path string) (string, bool) {
	risk, ok := policy.Workspace{Access: policy.WorkspaceShadow, Protect: t.Protect}.HeldBack(path)
	return risk.Reason, ok
}

// A CommitRequest selects the changes to commit.
type CommitRequest struct {
	// Which changes, each with all beneath it; none is all. A path that no change has is a
	// pattern.
	Paths []string `json:"paths,omitempty"`
	// Commit protected names too.
	IncludeProtected bool `json:"include_protected,omitempty"`
	// The digest of the review. If the changes differ from it, nothing is committed.
	Digest string `json:"digest,omitempty"`
	// Take only the named paths themselves, without the paths beneath them.
	Exact bool `json:"exact,omitempty"`
	// Take only these hunks of these files, by number from 0; digest must be given.
	Hunks map[string][]int `json:"hunks,omitempty"`
	// Classes limit the choice to changes with a risk of these classes; "plain" means no risk.
	Classes []string `json:"classes,omitempty"`
	// Take the shadow's side of conflicts.
	Theirs bool `json:"theirs,omitempty"`
	// Take both sides of conflicts in text where that is clean.
	Merge bool `json:"merge,omitempty"`
	// Take this branch or tag as git fetch would, and nothing else: [+]REF[:NAME]. One path may
	// name the repository.
	GitOnly string `json:"git_only,omitempty"`
	// Auto takes only changes that need no review, also if there are none. Clients cannot set it.
	Auto bool `json:"-"`
}

// Commit writes changes of a shadow to the real directory, with the caller's rights. It records
// the beginning and the end. If the commit needs an approval, it is put into the queue instead.
func (s *Store) Commit(ctx context.Context, c caller.Caller, id string,
	req CommitRequest) (workspace.Result, error) {
	done, err := s.commitAs(ctx, c, c.Actor(), nil, id, req)
	return s.propose(ctx, c, done, err)
}

// A heldError means that a commit was not made because it needs an approval.
type heldError struct{ held HeldCommit }

func (heldError) Error() string { return "the commit waits for an approval" }

// propose puts a commit into the queue of approvals if err is a heldError. Otherwise it returns
// done and err.
func (s *Store) propose(ctx context.Context, c caller.Caller, done workspace.Result,
	err error) (workspace.Result, error) {
	if e := (heldError{}); errors.As(err, &e) {
		done = workspace.Result{Digest: e.held.Request.Digest}
		done.ID, err = s.o.Ask(ctx, c, e.held)
	}
	return done, err
}

// withTerms returns w, which was opened with err, and its terms. If the shadow has no terms or
// its commit was interrupted, withTerms closes w and returns an error.
func (s *Store) withTerms(w *workspace.Workspace, err error) (*workspace.Workspace, Terms, error) {
	if err != nil {
		return nil, Terms{}, err
	}
	info, t := w.Info(), Terms{}
	if err = cutOff(info); err == nil {
		if t, err = s.LoadTerms(info.ID); err == nil {
			return w, t, nil
		}
		err = problem.New(problem.Failed, "shadow %s has no terms: %w", info.ID, err).
			WithHint("jail discard " + info.ID + " throws it away")
	}
	w.Close()
	return nil, t, err
}

// record appends an entry to the audit log and returns once it is on disk.
func (s *Store) record(ctx context.Context, entry audit.Entry) error {
	if _, err := s.o.Log.Append(ctx, entry); err != nil {
		return problem.New(problem.Failed, "audit log: %w", err).
			WithHint("make room for the log; nothing begins without it")
	}
	return nil
}

// commitAs commits with the rights of c and records by as the actor. If the commit needs an
// approval and approved is nil, the error is a heldError.
func (s *Store) commitAs(ctx context.Context, c caller.Caller, by audit.Actor,
	approved *HeldCommit, id string, req CommitRequest) (workspace.Result, error) {
	w, t, err := s.withTerms(s.getWorkspace(ctx, c, id))
	if err != nil {
		return workspace.Result{}, err
	}
	defer w.Close()
	record := func(e audit.Event) error {
		return s.record(context.Background(),
			audit.Entry{Run: id, Actor: by, Policy: t.Policy, Event: e})
	}
	var done workspace.Result
	err = s.still(id, w, func(w *workspace.Workspace, live bool) error {
		done, err = s.commit(ctx, c, w, live, approved, req, t, record)
		return err
	})
	return done, err
}

// CommitShadow commits the open shadow w under the terms t. It calls record at the beginning and
// at the end. If the commit needs an approval, it is put into the queue instead.
func (s *Store) CommitShadow(ctx context.Context, c caller.Caller, w *workspace.Workspace,
	req CommitRequest, t Terms, record func(audit.Event) error) (workspace.Result, error) {
	done, err := s.commit(ctx, c, w, false, nil, req, t, record)
	return s.propose(ctx, c, done, err)
}

// mayCommit returns an error if the terms allow no commit.
func (t Terms) mayCommit(id string) error {
	if t.Commit != policy.CommitNever {
		return nil
	}
	return problem.New(problem.Refused, `commit of %s: workspace.commit is "never"`, id).
		WithHint("run it again with a profile that allows a commit")
}

// commit commits a shadow. If live is true, the shadow's processes are stopped. The error is a
// heldError if the commit needs an approval first, and ErrOther if approved was proposed for
// another shadow than w.
func (s *Store) commit(ctx context.Context, c caller.Caller, w *workspace.Workspace, live bool,
	approved *HeldCommit, req CommitRequest, t Terms,
	record func(audit.Event) error) (workspace.Result, error) {
	info := w.Info()
	if err := t.mayCommit(info.ID); err != nil {
		return workspace.Result{}, err
	}
	if t.Ask && approved == nil {
		if _, err := req.options(); err != nil {
			return workspace.Result{}, err
		}
		held, err := s.Approvals().hold(ctx, w, live, req, t)
		if err == nil {
			err = heldError{held}
		}
		return workspace.Result{}, err
	}
	as := c.Workspace()
	opts, err := req.options()
	if err != nil {
		return workspace.Result{}, err
	}
	opts.As, opts.Protect, opts.Keep, opts.Live = &as, t.held, t.retention(), live
	opts.Git = s.o.Git
	if approved != nil {
		if err := approved.isUnder(info, t); err != nil {
			return workspace.Result{}, err
		}
		opts.Branch = approved.Branch
	}
	begun := audit.WorkspaceCommitted{Workspace: string(info.Path), Digest: req.Digest,
		Paths: req.Paths, Protected: req.IncludeProtected, Git: req.GitOnly, Begun: true}
	var note *workspace.Begun
	defer func() { s.o.Check("close the note of a commit", note.Drop()) }()
	begin := func() (err error) {
		if note, err = workspace.Begin(w, workspace.Begun{}); err != nil {
			return problem.New(problem.Failed, "%w", err)
		}
		return record(begun)
	}
	if req.Auto {
		opts.Begin = begin
	} else if err := begin(); err != nil {
		return workspace.Result{}, err
	}
	tell, end := s.progressOf(info.ID)
	defer end()
	opts.Progress = tell
	done, err := w.Commit(ctx, opts)
	if note == nil {
		return done, reviewError(info.ID, err)
	}
	event := committed(info, done, req)
	if err != nil {
		event.Error = err.Error()
	}
	if recErr := record(event); recErr != nil {
		return done, errors.Join(recErr, err)
	}
	s.told(info.ID, note)
	if err != nil {
		return done, reviewError(info.ID, err)
	}
	s.o.Background(s.ForgetOld)
	return done, nil
}

func committed(info workspace.Info, done workspace.Result,
	req CommitRequest) audit.WorkspaceCommitted {
	e := audit.WorkspaceCommitted{Workspace: string(info.Path), Digest: done.Digest,
		Paths: req.Paths, Protected: req.IncludeProtected}
	if e.Git = done.Git; e.Git == "" {
		e.Git = req.GitOnly
	}
	e.Commit, e.Changes, e.Files = done.ID, counted(done.Committed), Digests(done.Committed)
	for _, h := range done.Held {
		e.Held = append(e.Held, string(h.Path))
	}
	return e
}

// Changes counts the paths that a run added, modified and deleted in its workspace.
type Changes struct {
	Added    int64 `json:"added"`
	Modified int64 `json:"modified"`
	Deleted  int64 `json:"deleted"`
}

// Any reports whether something changed.
func (c Changes) Any() bool { return c != Changes{} }

// An AutoCommit is the commit after an invocation of a session whose policy has commit = "auto".
type AutoCommit struct {
	// Id of the commit; none if there was nothing to take.
	ID      string  `json:"id,omitempty"`
	Changes Changes `json:"changes"`
	// The first 100 changes that need a review and that no earlier invocation of the session named.
	Left []workspace.Held `json:"left,omitempty"`
	// Other invocations of the session run, so nothing was taken: their files may be half written.
	// The end of the last of them takes the changes.
	Waits bool `json:"waits,omitempty"`
	// Why nothing could be taken.
	Error string `json:"error,omitempty"`
}

// TakePlain commits the changes of a live shadow that need no review: those that are neither
// protected nor risky nor in conflict. The others are left, with the reasons. The beginning and
// the end are recorded, unless there is nothing to commit.
func (s *Store) TakePlain(ctx context.Context, c caller.Caller, id string) AutoCommit {
	done, err := s.Commit(ctx, c, id, CommitRequest{Auto: true})
	a := AutoCommit{ID: done.ID, Changes: Changes(counted(done.Committed)), Left: done.Held}
	if err != nil {
		a = AutoCommit{Error: err.Error()}
	}
	return a
}

// still calls f with the shadow of id while nothing writes to it. If the run or session is live,
// its processes are stopped during f, and live is true. Otherwise f gets kept, the stored shadow.
func (s *Store) still(id string, kept *workspace.Workspace,
	f func(w *workspace.Workspace, live bool) error) error {
	r := s.o.Live(id)
	if r != nil {
		ok, err := r.Paused(func(w *workspace.Workspace) error { return f(w, true) })
		if ok {
			return err
		}
	}
	if !written(kept) {
		return f(kept, false)
	}
	if r == nil {
		return elsewhere(id)
	}
	return problem.New(problem.Busy, "run %s is just starting or ending", id).
		WithCause(workspace.ErrActive).WithHint("try again")
}

// elsewhere returns the error for a shadow to which a jail of another daemon writes.
func elsewhere(id string) error {
	return problem.New(problem.Busy, "run %s is another jaild's, or its jail is just ending", id).
		WithCause(workspace.ErrActive).WithHint("try again when it has ended")
}

// A shownPart is one piece of Show's output in the spool file. One of the fields is set. They are
// exported for gob.
type shownPart struct {
	Change *workspace.Change
	Patch  []byte
	Hunks  *workspace.FileHunks
}

// showLive shows a live shadow. It spools the output to a file while the processes are stopped, and
// passes it on when they run again, so that a slow reader does not keep them stopped.
func (s *Store) showLive(ctx context.Context, w *workspace.Workspace, id string,
	o workspace.ShowOptions, emit func(workspace.Change) error) (workspace.Shown, error) {
	file, err := os.CreateTemp(filepath.Dir(s.o.Terms), ".review-")
	if err != nil {
		return workspace.Shown{}, problem.New(problem.Failed, "%w", err)
	}
	defer file.Close()
	// The file is used by descriptor only, and is gone if the daemon is killed.
	if err := os.Remove(file.Name()); err != nil {
		return workspace.Shown{}, problem.New(problem.Failed, "%w", err)
	}
	var shown workspace.Shown
	err = s.still(id, w, func(w *workspace.Workspace, live bool) error {
		// The buffer keeps the number of writes low.
		buffer := bufio.NewWriterSize(file, 1<<20)
		out := gob.NewEncoder(buffer)
		spool := workspace.ShowOptions{Options: o.Options, Git: o.Git, Live: live}
		if o.Patch != nil {
			spool.Patch = patchSpool{out}
		}
		if o.Hunks != nil {
			spool.Hunks = func(h workspace.FileHunks) error {
				return out.Encode(shownPart{Hunks: &h})
			}
		}
		var err error
		shown, err = w.Show(ctx, spool, func(c workspace.Change) error {
			return out.Encode(shownPart{Change: &c})
		})
		return errors.Join(err, buffer.Flush())
	})
	if known := (*problem.Error)(nil); errors.Is(err, workspace.ErrActive) &&
		!errors.As(err, &known) {
		err = reviewError(id, err)
	}
	if err != nil {
		return workspace.Shown{}, err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return workspace.Shown{}, problem.New(problem.Failed, "%w", err)
	}
	return shown, passOn(gob.NewDecoder(bufio.NewReader(file)), o, emit)
}

// passOn passes the spooled parts to emit, o.Hunks and o.Patch.
func passOn(in *gob.Decoder, o workspace.ShowOptions, emit func(workspace.Change) error) error {
	for {
		var p shownPart
		err := in.Decode(&p)
		if errors.Is(err, io.EOF) {
			return nil
		}
		switch {
		case err != nil:
			return problem.New(problem.Failed, "read the review again: %w", err)
		case p.Change != nil:
			err = emit(*p.Change)
		case p.Hunks != nil:
			err = o.Hunks(*p.Hunks)
		default:
			_, err = o.Patch.Write(p.Patch)
		}
		if err != nil {
			return err
		}
	}
}

// patchSpool is a writer that spools a patch as shownParts.
type patchSpool struct{ out *gob.Encoder }

func (p patchSpool) Write(text []byte) (int, error) {
	if err := p.out.Encode(shownPart{Patch: text}); err != nil {
		return 0, err
	}
	return len(text), nil
}
