package supervisor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/audit"
)

const (
	conflictHint = "look at both sides; then commit other paths by name, take both with --merge, the shadow's with --theirs, or discard"
	maxConflicts = 1000 // in one answer
	maxRecorded  = 256  // files in one record
)

// keepFor and keepBytes are how long and how much of what a commit replaced is kept where the policy has no limits revert_time and revert.
const (
	keepFor   = 7 * 24 * time.Hour
	keepBytes = 1 << 30
)

// retention says what a commit under those limits keeps for a revert.
func retention(bytes int64, during time.Duration) workspace.Retention {
	if bytes == policy.Unlimited {
		bytes = keepBytes
	}
	if during == policy.Unlimited {
		during = keepFor
	}
	return workspace.Retention{For: during, Bytes: bytes}
}

func (req CommitRequest) options() (o workspace.CommitOptions, err error) {
	o = workspace.CommitOptions{IncludeProtected: req.IncludeProtected, Digest: req.Digest, Exact: req.Exact, Theirs: req.Theirs, Merge: req.Merge}
	if req.Theirs && req.Merge {
		return o, usage("theirs and merge exclude each other: one takes one side of a conflict, the other both")
	}
	if req.Exact {
		o.Paths = []workspace.Name{} // none of them is not all
	}
	for _, text := range req.Paths {
		name, err := workspace.ParseName(text)
		if err != nil {
			return o, usage("path %q: %v", text, err)
		}
		o.Paths = append(o.Paths, name)
	}
	for text, hunks := range req.Hunks {
		name, err := workspace.ParseName(text)
		if err != nil {
			return o, usage("path %q: %v", text, err)
		}
		if o.Hunks == nil {
			o.Hunks = map[workspace.Name][]int{}
		}
		o.Hunks[name] = hunks
	}
	for _, text := range req.Classes {
		class := policy.Class(text)
		if class != workspace.Plain && !slices.Contains(workspace.RiskClasses(), class) {
			return o, usage("class %q is none: there are %s and %s", text, classNames(), workspace.Plain)
		}
		o.Classes = append(o.Classes, class)
	}
	return o, nil
}

func classNames() string {
	var names []string
	for _, c := range workspace.RiskClasses() {
		names = append(names, string(c))
	}
	return strings.Join(names, ", ")
}

// counted counts changes as a record has them.
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

// digests lists changes as a record has them: kind, digest of the new content, path.
func digests(changes []workspace.Change) []string {
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

// A RevertRequest says what to revert.
type RevertRequest struct {
	Commit string `json:"commit,omitempty"` // the id of a commit; none: the last one that stands
}

// Revert restores what the last commit of a shadow changed, with the caller's rights, and puts it on record first and last.
func (s *Supervisor) Revert(ctx context.Context, c Caller, id string, req RevertRequest) (workspace.Reverted, error) {
	w, err := s.getWorkspace(ctx, c, id)
	if err != nil {
		return workspace.Reverted{}, err
	}
	defer w.Close()
	t, _ := s.loadTerms(id) // they are for the record only: what was committed was allowed
	info := w.Info()
	record := func(e audit.Event) error {
		if _, err := s.log.Append(context.Background(), audit.Entry{Run: id, Actor: c.actor(), Policy: t.Policy, Event: e}); err != nil {
			return failed(err, "make room for the log; nothing is reverted without it", "audit log: %v", err)
		}
		return nil
	}
	event := audit.WorkspaceReverted{Workspace: string(info.Path), Commit: req.Commit, Begun: true}
	if err := record(event); err != nil {
		return workspace.Reverted{}, err
	}
	as := c.workspace()
	done, err := w.Revert(ctx, workspace.RevertOptions{Commit: req.Commit, As: &as})
	event = audit.WorkspaceReverted{Workspace: string(info.Path), Digest: done.Digest, Commit: done.Commit, Changes: counted(done.Changes), Files: digests(done.Changes)}
	if err != nil {
		event.Error = err.Error()
	}
	if recErr := record(event); recErr != nil {
		return done, errors.Join(recErr, err)
	}
	if err != nil {
		e := reviewError(id, err)
		if known := AsError(e); known.Hint == conflictHint {
			known.Hint = "what was changed since the commit would be lost; move it away, then revert"
		}
		return done, e
	}
	return done, nil
}

// Pruned are shadows that were forgotten.
type Pruned struct {
	IDs []string `json:"ids"`
}

// pruneQuietly is Prune where nobody asked for it: what could not be forgotten is still listed.
func (s *Supervisor) pruneQuietly() { _, _ = s.Prune(context.Background(), Caller{}) }

// Prune forgets what is kept of commits whose time is over, of all users, and the shadows of which nothing is left but that. The caller is told of those that
// the caller may see.
func (s *Supervisor) Prune(_ context.Context, c Caller) (Pruned, error) {
	before, err := s.Workspaces(c)
	if err != nil {
		return Pruned{}, err
	}
	removed, err := s.workspaces.Prune(time.Now())
	for _, id := range removed {
		err = errors.Join(err, s.dropTerms(id))
	}
	removed = slices.DeleteFunc(removed, func(id string) bool {
		return !slices.ContainsFunc(before, func(w WorkspaceInfo) bool { return w.ID == id })
	})
	if err != nil {
		return Pruned{}, failed(err, "", "%v", err)
	}
	return Pruned{append([]string{}, removed...)}, nil
}

// settledEvent says how a commit or revert ended that was cut off.
func settledEvent(w workspace.Settled) audit.Event {
	how := "it was cut off, and has been undone"
	if w.Done {
		how = "" // it was cut off when all was in place, and stands
	}
	if w.Revert {
		return audit.WorkspaceReverted{Workspace: string(w.Path), Commit: w.Commit, Digest: w.Digest, Error: how}
	}
	return audit.WorkspaceCommitted{Workspace: string(w.Path), Commit: w.Commit, Digest: w.Digest, Error: how}
}
