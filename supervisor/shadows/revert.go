package shadows

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/jail/gitrepo"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

const (
	conflictHint = "look at both sides; then commit other paths by name, take both with --merge, " +
		"the shadow's with --theirs, or discard"
	maxConflicts = 1000 // in one answer
	maxRecorded  = 256  // files in one record
)

// retention returns for how long, and how many bytes of, replaced content a commit keeps.
func (t Terms) retention() workspace.Retention {
	l := policy.Limits{Revert: t.Revert, RevertTime: t.RevertTime}
	bytes, _ := l.InForce("revert")
	n, _ := l.InForce("revert_time")
	return workspace.Retention{For: time.Duration(n), Bytes: bytes}
}

func (req CommitRequest) options() (o workspace.CommitOptions, err error) {
	o = workspace.CommitOptions{IncludeProtected: req.IncludeProtected, Digest: req.Digest,
		Exact: req.Exact, Theirs: req.Theirs, Merge: req.Merge, Auto: req.Auto}
	if req.GitOnly != "" {
		want, err := gitrepo.ParseWant(req.GitOnly)
		if err != nil {
			return o, problem.New(problem.Usage, "git_only: %v", err)
		}
		if req.Theirs || req.Merge || req.Exact || len(req.Hunks)+len(req.Classes) > 0 ||
			len(req.Paths) > 1 {
			return o, problem.New(problem.Usage,
				"git_only takes a branch and nothing else: only one path may name the repository")
		}
		o.GitOnly = &want
	}
	if req.Theirs && req.Merge {
		return o, problem.New(problem.Usage,
			"theirs and merge exclude each other: one takes one side of a conflict, the other both")
	}
	if o.Paths, err = namesOf(req.Paths); err != nil {
		return o, err
	}
	if req.Exact && o.Paths == nil {
		// nil would mean all paths.
		o.Paths = []workspace.Name{}
	}
	for text, hunks := range req.Hunks {
		names, err := namesOf([]string{text})
		if err != nil {
			return o, err
		}
		if o.Hunks == nil {
			o.Hunks = map[workspace.Name][]int{}
		}
		o.Hunks[names[0]] = hunks
	}
	for _, text := range req.Classes {
		class := policy.Class(text)
		if class != workspace.Plain && !slices.Contains(workspace.RiskClasses(), class) {
			return o, problem.New(problem.Usage, "class %q is none: there are %s and %s", text,
				classNames(), workspace.Plain)
		}
		o.Classes = append(o.Classes, class)
	}
	return o, nil
}

// namesOf parses the escaped paths of a request.
func namesOf(paths []string) (names []workspace.Name, err error) {
	for _, text := range paths {
		name, err := workspace.ParseName(text)
		if err != nil {
			return nil, problem.New(problem.Usage, "path %q: %v", text, err)
		}
		names = append(names, name)
	}
	return names, nil
}

func classNames() string {
	var names []string
	for _, c := range workspace.RiskClasses() {
		names = append(names, string(c))
	}
	return strings.Join(names, ", ")
}

// counted counts changes for an audit event.
func counted(changes []workspace.Change) (n audit.Changes) {
	for _, c := range changes {
		switch c.Kind {
		case workspace.Added:
			n.Added++
		case workspace.Deleted:
			n.Deleted++
		default:
			n.Modified++
		}
	}
	return n
}

// Digests returns the first 256 changes for an audit event, each as "KIND DIGEST PATH" with the
// digest of the new content, or "-" if there is none.
func Digests(changes []workspace.Change) []string {
	var out []string
	for _, c := range changes[:min(len(changes), maxRecorded)] {
		sum := "-"
		if c.After != nil && c.After.SHA256 != "" {
			sum = "sha256:" + c.After.SHA256
		}
		out = append(out, fmt.Sprintf("%s %s %s", c.Kind, sum, c.Path))
	}
	return out
}

// A RevertRequest selects the commit, or the paths of it, to revert.
type RevertRequest struct {
	// The id of a commit; none is the last one that is not reverted, or with paths the last one
	// that changed one of them.
	Commit string `json:"commit,omitempty"`
	// Which paths of the commit, each with all beneath it; none is all. A path that the commit did
	// not change is a pattern.
	Paths []string `json:"paths,omitempty"`
}

// Revert undoes a commit of a shadow, or the named paths of it, with the caller's rights. It
// records the beginning and the end.
func (s *Store) Revert(ctx context.Context, c caller.Caller, id string,
	req RevertRequest) (workspace.Reverted, error) {
	return s.revertAs(ctx, c, c.Actor(), id, req)
}

// revertAs reverts with the rights of c and records by as the actor.
func (s *Store) revertAs(ctx context.Context, c caller.Caller, by audit.Actor, id string,
	req RevertRequest) (workspace.Reverted, error) {
	w, err := s.getWorkspace(ctx, c, id)
	if err != nil {
		return workspace.Reverted{}, err
	}
	defer w.Close()
	if err := cutOff(w.Info()); err != nil {
		return workspace.Reverted{}, err
	}
	opts := workspace.RevertOptions{Commit: req.Commit}
	if opts.Paths, err = namesOf(req.Paths); err != nil {
		return workspace.Reverted{}, err
	}
	// The terms are for the record only: the commit was allowed.
	t, _ := s.LoadTerms(id)
	info := w.Info()
	record := func(e audit.Event) error {
		return s.record(context.Background(),
			audit.Entry{Run: id, Actor: by, Policy: t.Policy, Event: e})
	}
	event := audit.WorkspaceReverted{Workspace: string(info.Path), Commit: req.Commit,
		Paths: req.Paths, Begun: true}
	note, err := workspace.Begin(w, workspace.Begun{Revert: true, Commit: opts.Commit,
		Paths: opts.Paths})
	if err != nil {
		return workspace.Reverted{}, problem.New(problem.Failed, "%w", err)
	}
	defer func() { s.o.Check("close the note of a revert", note.Drop()) }()
	if err := record(event); err != nil {
		return workspace.Reverted{}, err
	}
	as := c.Workspace()
	tell, end := s.progressOf(id)
	defer end()
	var done workspace.Reverted
	opts.As, opts.Progress = &as, tell
	err = s.still(id, w, func(w *workspace.Workspace, live bool) (err error) {
		opts.Live = live
		done, err = w.Revert(ctx, opts)
		return err
	})
	event = audit.WorkspaceReverted{Workspace: string(info.Path), Digest: done.Digest,
		Commit: done.Commit, Paths: req.Paths, Changes: counted(done.Changes),
		Files: Digests(done.Changes)}
	if err != nil {
		event.Error = err.Error()
	}
	if recErr := record(event); recErr != nil {
		return done, errors.Join(recErr, err)
	}
	s.told(id, note)
	if err != nil {
		e := reviewError(id, err)
		if known := problem.From(e); known.Hint == conflictHint {
			known.Hint = "what was changed since the commit would be lost; move it away, then " +
				"revert"
		}
		if errors.Is(err, workspace.ErrNoChange) {
			problem.From(e).Hint = "jail audit show --run " + id + " lists what was committed"
		}
		return done, e
	}
	return done, nil
}

// Pruned are the shadows that Prune removed.
type Pruned struct {
	IDs []string `json:"ids"`
}

// ForgetOld calls Prune for all users and logs its error.
func (s *Store) ForgetOld() {
	_, err := s.Prune(context.Background(), caller.Caller{})
	s.o.Check("forget commits whose time to revert is over", err)
}

// Prune removes the replaced content of all users' commits whose time to revert is over, and the
// shadows of which nothing else is left. It returns the removed shadows that the caller may see.
func (s *Store) Prune(_ context.Context, c caller.Caller) (Pruned, error) {
	before, err := s.List(c)
	if err != nil {
		return Pruned{}, err
	}
	removed, err := s.Kept.Prune(time.Now(), s.o.Approved)
	err = errors.Join(err, s.o.PruneNames())
	for _, id := range removed {
		err = errors.Join(err, s.DropTerms(id))
		s.Approvals().SessionEnded(id)
	}
	removed = slices.DeleteFunc(removed, func(id string) bool {
		return !slices.ContainsFunc(before, func(w WorkspaceInfo) bool { return w.ID == id })
	})
	if err != nil {
		return Pruned{}, problem.New(problem.Failed, "%w", err)
	}
	return Pruned{append([]string{}, removed...)}, nil
}

// Settle finishes or undoes the commits and reverts that a dead daemon left unfinished, and records
// that. If it cannot, requests for that shadow get an error until a later Settle succeeds.
func (s *Store) Settle(ctx context.Context) error {
	settled, err := s.Kept.Recover(ctx)
	s.o.Check("settle commits that were cut off", err)
	for _, w := range settled {
		if err := s.record(ctx, audit.Entry{Run: w.ID, Event: settledEvent(w)}); err != nil {
			return err
		}
		s.told(w.ID, nil)
	}
	return nil
}

// told notes in the store that the audit log has the end of a shadow's last commit or revert. note
// is the note of the beginning, nil if another daemon made it. If told fails and the daemon is
// killed, the end is recorded twice.
func (s *Store) told(id string, note *workspace.Begun) {
	var err error
	if note != nil {
		err = note.Told()
	}
	w, getErr := s.Kept.Get(id)
	err = errors.Join(err, getErr)
	if getErr == nil {
		err = errors.Join(err, w.Told(), w.Close())
	}
	if !errors.Is(err, workspace.ErrNotFound) {
		s.o.Check("note what is on record", err)
	}
}

// settledEvent returns the audit event for the end of an interrupted commit or revert.
func settledEvent(w workspace.Settled) audit.Event {
	how := "it was cut off, and has been undone"
	switch {
	case w.Nothing:
		how = "it was cut off before anything was changed"
	case w.Done:
		// All changes were in place, so it stands and has no error.
		how = ""
	case len(w.Left) > 0:
		how = "it was cut off, and could not be undone whole: " +
			strings.Join(w.Left[:min(len(w.Left), maxRecorded)], "; ")
	}
	if w.Revert {
		e := audit.WorkspaceReverted{Workspace: string(w.Path), Commit: w.Commit,
			Digest: w.Digest, Error: how}
		for _, path := range w.Paths {
			e.Paths = append(e.Paths, path.String())
		}
		return e
	}
	return audit.WorkspaceCommitted{Workspace: string(w.Path), Commit: w.Commit, Digest: w.Digest,
		Error: how}
}
