package shadows

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// Branches forks, merges and lists branches of shadows.
type Branches struct{ s *Store }

// BranchesOf returns the Branches of a store.
func BranchesOf(s *Store) Branches { return Branches{s} }

// A BranchInfo describes a branch of a shadow.
type BranchInfo struct {
	ID       string `json:"id"`
	GlobalID string `json:"global_id,omitempty"`
	// Parent is the session or run whose shadow was forked.
	Parent string `json:"parent"`
	// Depth is 1 for a fork of a shadow that is no branch, 2 for a fork of that, and so on.
	Depth int             `json:"depth"`
	UID   uint32          `json:"uid"`
	State workspace.State `json:"state"`
	// Workspace is the real directory.
	Workspace string    `json:"workspace"`
	Forked    time.Time `json:"forked"`
	// Disk is how many bytes the branch takes in the store, without layers shared with others.
	Disk   int64                   `json:"disk"`
	Merges []workspace.MergeRecord `json:"merges,omitempty"`
}

// List lists the branches that the caller may see, the oldest first.
func (b Branches) List(c caller.Caller) ([]BranchInfo, error) {
	all, err := b.s.List(c)
	if err != nil {
		return nil, err
	}
	branches := []BranchInfo{}
	for _, w := range all {
		if w.Parent != "" {
			branches = append(branches, branchOf(w.Info, w.Disk))
		}
	}
	return branches, nil
}

func branchOf(w workspace.Info, disk int64) BranchInfo {
	return BranchInfo{ID: w.ID, Parent: w.Parent, Depth: w.Depth, UID: w.Caller.UID,
		State: w.State, Workspace: string(w.Path), Forked: w.Prepared, Disk: disk, Merges: w.Merges}
}

// Fork makes the branch id of the shadow parent, with the same terms. No jail may use parent.
func (b Branches) Fork(ctx context.Context, c caller.Caller, parent, id string) (BranchInfo, error) {
	s := b.s
	w, t, err := s.withTerms(s.getWorkspace(ctx, c, parent))
	if err != nil {
		return BranchInfo{}, err
	}
	info := w.Info()
	w.Close()
	t.Unfinished = false
	// The terms are saved first: SweepTerms removes terms without a shadow, but a shadow without
	// terms could never be committed.
	if err := s.SaveTerms(id, t); err != nil {
		return BranchInfo{}, problem.New(problem.Failed, "%w", err)
	}
	made, err := workspace.BranchesOf(s.Kept).Fork(ctx, parent, id, info.Caller)
	if err != nil {
		return BranchInfo{}, errors.Join(reviewError(parent, err), s.DropTerms(id))
	}
	return branchOf(made, 0), b.record(c, parent, t, audit.WorkspaceForked{
		Workspace: string(info.Path), Branch: id, Depth: int64(made.Depth)})
}

func (b Branches) record(c caller.Caller, id string, t Terms, e audit.Event) error {
	return b.s.record(context.Background(),
		audit.Entry{Run: id, Actor: c.Actor(), Policy: t.Policy, Event: e})
}

// branch returns the Info of a branch. It returns an error if the caller may not change it, or if
// the shadow is no branch.
func (b Branches) branch(ctx context.Context, c caller.Caller, id string) (workspace.Info, error) {
	w, err := b.s.getWorkspace(ctx, c, id)
	if err != nil {
		return workspace.Info{}, err
	}
	defer w.Close()
	info := w.Info()
	if info.Parent == "" {
		return info, reviewError(id, workspace.ErrNoBranch)
	}
	return info, cutOff(info)
}

// Parent returns the session or run that a branch was forked from.
func (b Branches) Parent(ctx context.Context, c caller.Caller, id string) (string, error) {
	info, err := b.branch(ctx, c, id)
	return info.Parent, err
}

// PreviewMerge lists what a merge of a branch would take. No jail may use the branch or its parent.
func (b Branches) PreviewMerge(ctx context.Context, c caller.Caller,
	id string) (workspace.MergePreview, error) {
	info, err := b.branch(ctx, c, id)
	if err != nil {
		return workspace.MergePreview{}, err
	}
	p, err := workspace.BranchesOf(b.s.Kept).PreviewMerge(ctx, id, info.Caller)
	return p, reviewError(id, err)
}

// A MergeRequest selects the changes of a branch to merge.
type MergeRequest struct {
	// Paths with all beneath them; patterns as in a commit. None is all.
	Paths []string `json:"paths,omitempty"`
	// Digest of the preview. If the changes differ from it, nothing is merged.
	Digest string `json:"digest,omitempty"`
	// Theirs takes the branch's side of conflicts, Merge both sides of text that was changed in
	// different places.
	Theirs bool `json:"theirs,omitempty"`
	Merge  bool `json:"merge,omitempty"`
}

// Merge writes the changes of a branch to its parent shadow. It records the beginning and the end.
// No jail may use the branch or its parent.
func (b Branches) Merge(ctx context.Context, c caller.Caller, id string,
	req MergeRequest) (workspace.Result, error) {
	s := b.s
	info, err := b.branch(ctx, c, id)
	if err != nil {
		return workspace.Result{}, err
	}
	o, err := CommitRequest{Paths: req.Paths, Digest: req.Digest, Theirs: req.Theirs,
		Merge: req.Merge}.options()
	if err != nil {
		return workspace.Result{}, err
	}
	t, _ := s.LoadTerms(id)
	event := audit.WorkspaceMerged{Workspace: string(info.Path), Into: info.Parent,
		Digest: req.Digest, Paths: req.Paths}
	begun := event
	begun.Begun = true
	began := false
	o.Begin = func() error {
		began = true
		return b.record(c, id, t, begun)
	}
	done, err := workspace.BranchesOf(s.Kept).Merge(ctx, id, info.Caller, o)
	event.Digest, event.Merge, event.Changes, event.Files = done.Digest, done.ID,
		counted(done.Committed), Digests(done.Committed)
	if err != nil {
		event.Error, event.Merge = err.Error(), ""
	}
	if began || err != nil {
		if recErr := b.record(c, id, t, event); recErr != nil {
			return done, errors.Join(recErr, err)
		}
	}
	return done, reviewError(id, err)
}

// RevertMerge undoes the last merge of a branch.
func (b Branches) RevertMerge(ctx context.Context, c caller.Caller,
	id string) (workspace.MergeRecord, error) {
	s := b.s
	info, err := b.branch(ctx, c, id)
	if err != nil {
		return workspace.MergeRecord{}, err
	}
	t, _ := s.LoadTerms(id)
	event := audit.WorkspaceReverted{Workspace: string(info.Path), Into: info.Parent, Begun: true}
	if err := b.record(c, id, t, event); err != nil {
		return workspace.MergeRecord{}, err
	}
	done, err := workspace.BranchesOf(s.Kept).RevertMerge(ctx, id, info.Caller)
	event.Begun, event.Commit, event.Digest = false, done.ID, done.Digest
	event.Changes.Modified = int64(done.Paths)
	if err != nil {
		event.Error = err.Error()
	}
	if recErr := b.record(c, id, t, event); recErr != nil {
		return done, errors.Join(recErr, err)
	}
	return done, reviewError(id, err)
}

// A Comparison has the differences between two shadows of one directory.
type Comparison struct {
	A           string                 `json:"a"`
	B           string                 `json:"b"`
	Differences []workspace.Difference `json:"differences"`
	// Patch turns a into b. It covers text files only.
	Patch string `json:"patch,omitempty"`
	// Cut: the patch was too long and is left out.
	Cut bool `json:"cut,omitempty"`
}

const (
	maxDifferences = 100_000
	maxComparison  = 4 << 20
)

// Compare compares two shadows of one directory. Their runs may be live.
func (all Branches) Compare(ctx context.Context, c caller.Caller, a, b string) (Comparison, error) {
	r := Comparison{A: a, B: b, Differences: []workspace.Difference{}}
	var of [2]workspace.Info
	var changes [2][]workspace.Change
	for i, id := range []string{a, b} {
		err := all.seen(ctx, c, id, func(w *workspace.Workspace, live bool) (err error) {
			of[i] = w.Info()
			changes[i], err = workspace.List(ctx, w, live)
			return err
		})
		if err != nil {
			return r, err
		}
	}
	if of[0].Path != of[1].Path || of[0].Caller.UID != of[1].Caller.UID {
		return r, problem.New(problem.Usage, "%s and %s are shadows of two directories, %s and %s", a, b,
			of[0].Path, of[1].Path)
	}
	r.Differences = append(r.Differences, workspace.Differences(changes[0], changes[1])...)
	if len(r.Differences) > maxDifferences {
		return r, problem.New(problem.Failed, "%d paths differ, more than one answer has room for",
			len(r.Differences)).WithHint("jail diff ID shows the changes of each")
	}
	var texts [2]workspace.Texts
	for i, id := range []string{a, b} {
		nodes := map[workspace.Name]*workspace.Node{}
		for _, d := range r.Differences {
			nodes[d.Path] = [2]*workspace.Node{d.A, d.B}[i]
		}
		err := all.seen(ctx, c, id, func(w *workspace.Workspace, live bool) (err error) {
			texts[i], err = workspace.TextsOf(ctx, w, live, nodes)
			return err
		})
		if err != nil {
			return r, err
		}
	}
	var patch bytes.Buffer
	if err := workspace.WriteDifferences(&patch, r.Differences, texts[0], texts[1],
		false); err != nil {
		return r, problem.New(problem.Failed, "%w", err)
	}
	if r.Cut = patch.Len() > maxComparison; !r.Cut {
		r.Patch = patch.String()
	}
	return r, nil
}

// seen calls f with a shadow while nothing writes to it. It returns an error if the caller may not
// see the shadow. live is as in Store.still.
func (b Branches) seen(ctx context.Context, c caller.Caller, id string,
	f func(w *workspace.Workspace, live bool) error) error {
	w, err := b.s.seeWorkspace(ctx, c, id)
	if err != nil {
		return err
	}
	defer w.Close()
	return reviewError(id, b.s.still(id, w, f))
}
