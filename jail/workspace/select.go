package workspace

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/jail/gitrepo"
	"github.com/jail-sandbox/jail/policy"
)

// CommitOptions choose the changes to commit. The zero value commits all that are neither protected
// nor refused, with the rights of the caller who prepared the workspace.
type CommitOptions struct {
	// Live commits a workspace that is not frozen and whose layer this process has made. The
	// processes of its jail must be stopped until the commit returns. The layer is not changed: the
	// jail may go on, and sees its own files as before.
	Live bool
	// Progress receives the number of completed steps; may be nil.
	Progress func(done, total int)
	// Paths are the paths to commit, each with everything beneath it; nil is all. New directories
	// above them are included. A path that no change has and that has a *, ? or [ is a pattern: *
	// and ? do not match a slash, ** does.
	Paths []Name
	// Exact takes only Paths themselves, without the paths beneath them, and none as a pattern.
	Exact bool
	// Hunks maps files to the hunks to take, by number from 0. With Hunks, nil Paths mean no
	// further paths, and Digest must be given.
	Hunks map[Name][]int
	// Classes, if not nil, limit the choice to changes with a risk of one of these classes. Plain
	// stands for changes without a risk.
	Classes []policy.Class
	// GitOnly, if not nil, takes only a branch or tag, as git fetch would: the ref and the objects
	// that the real repository lacks. Paths may then name one repository. Git reads it.
	GitOnly *gitrepo.Want
	Git     GitReader
	// Branch is the reviewed result of the function Branch for GitOnly. If the ref differs from it
	// now, nothing is committed. nil accepts any.
	Branch *GitRef
	// Auto takes only changes that need no review: neither protected nor risky nor in conflict. The
	// others are held. It is no error if there are none to take.
	Auto bool
	// Begin is called before the first write of a commit that takes something. If it returns an
	// error, the commit fails with that. It may be nil.
	Begin func() error
	// Theirs takes the shadow's side of conflicts. Merge merges both sides of text that was changed
	// in different places.
	Theirs, Merge bool
	// IncludeProtected allows protected paths that Paths names, themselves or a protected directory
	// above them.
	IncludeProtected bool
	// Protect reports whether a path, or a directory above it, is protected in addition to
	// policy.Protected, and why. It may be nil.
	Protect func(path string) (why string, ok bool)
	// Digest is the digest of the reviewed change set; "" commits the present one.
	Digest string
	// Keep says how much replaced content is kept, and how long.
	Keep Retention
	// As gives the rights for writing the real directory; nil is the caller who prepared the
	// workspace.
	As *Caller

	// gitBusy holds back all data of repositories, since git is running in one.
	gitBusy bool
	// inner: the target is a shadow, so protected names are not held back.
	inner bool
}

// Held is a change that a commit left out, with the reason.
type Held struct {
	Path Name   `json:"path"`
	Why  string `json:"why"`
	// Never: no commit takes such a change.
	Never bool `json:"never,omitempty"`
}

// Conflict is a path that changed on both sides.
type Conflict struct {
	Path Name   `json:"path"`
	Why  string `json:"why"`
	// Real is the present state in the real directory.
	Real *Node `json:"real,omitempty"`
	// Shadow is the tool's state of the path, or for a revert the state that the commit left.
	Shadow *Node `json:"shadow,omitempty"`
}

// ConflictError lists all conflicts among the paths of a commit, merge or revert, which wrote
// nothing. It is an ErrConflict.
type ConflictError struct {
	Conflicts []Conflict
	// Of is the id of the workspace that has changed, "" for the real directory.
	Of string
}

func (e *ConflictError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v:", ErrConflict)
	if e.Of != "" {
		b.Reset()
		fmt.Fprintf(&b, "%s has changed since the fork:", e.Of)
	}
	for i, c := range e.Conflicts {
		if i == 10 {
			fmt.Fprintf(&b, " and %d more;", len(e.Conflicts)-i)
			break
		}
		fmt.Fprintf(&b, " %s: %s;", c.Path, c.Why)
	}
	return strings.TrimSuffix(b.String(), ";")
}

// Is reports whether target is ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// protectedError means that all changes that a commit asked for were held back. It is an
// ErrProtected, and an ErrNever if none of them can ever be committed.
type protectedError struct {
	held  []Held
	never bool
}

func (e *protectedError) Error() string {
	err, first := ErrProtected, e.held[0]
	if e.never {
		err = ErrNever
	} else if i := slices.IndexFunc(e.held, func(h Held) bool { return !h.Never }); i >= 0 {
		first = e.held[i]
	}
	return fmt.Sprintf("%v: %s: %s", err, first.Path, first.Why)
}

// Is reports whether target is ErrProtected, or ErrNever if no change can be committed.
func (e *protectedError) Is(target error) bool {
	return target == ErrProtected || e.never && target == ErrNever
}

// selection marks which of changes were asked for (take), and of these which are held back (why).
type selection struct {
	changes []Change
	take    []bool
	// why has the reasons for changes that are held back, "" for the others.
	why []string
	// apart: held back because another change of the same repository is.
	apart []bool
}

func choose(changes []Change, o CommitOptions) (selection, error) {
	s := selection{changes, make([]bool, len(changes)), make([]string, len(changes)),
		make([]bool, len(changes))}
	if err := s.match(o); err != nil {
		return s, err
	}
	addParents(changes, s.take)
	for i, c := range changes {
		if s.take[i] {
			s.why[i] = holdBack(c, o)
			if o.Auto && s.why[i] == "" {
				s.why[i] = needsPerson(c)
			}
			if o.gitBusy && s.why[i] == "" && c.inGitGroup() {
				s.why[i] = gitAtWork
			}
		}
	}
	s.holdBelowHeld()
	s.holdNotEmpty()
	for groups := s.gitGroups(); s.holdTogether(groups); {
		s.holdBelowHeld()
		s.holdNotEmpty()
	}
	for i, c := range changes {
		if s.take[i] && s.why[i] == "" && c.Conflict != "" && !o.Theirs {
			return s, s.conflicts()
		}
	}
	return s, nil
}

func (s *selection) match(o CommitOptions) error {
	err := s.matchPaths(o)
	for i, c := range s.changes {
		if _, ok := o.Hunks[c.Path]; ok {
			s.take[i] = true
		}
		if s.take[i] && o.Classes != nil && !slices.ContainsFunc(o.Classes, c.has) {
			s.take[i] = false
		}
	}
	return err
}

func (s *selection) matchPaths(o CommitOptions) error {
	if o.Paths == nil {
		for i := range s.take {
			s.take[i] = o.Hunks == nil
		}
		return nil
	}
	var missed error
	for _, p := range o.Paths {
		found, err := takeNamed(p, o.Exact, func(matches func(string) bool) (found bool) {
			for i, c := range s.changes {
				if matches(string(c.Path)) {
					s.take[i], found = true, true
				}
			}
			return found
		})
		if err != nil {
			return err
		}
		if !found {
			missed = errors.Join(missed, fmt.Errorf("%s: %w", p, ErrNoChange))
		}
	}
	return missed
}

// takeNamed calls take with a function that reports whether a path is name or, unless exact,
// beneath it. If take returns false, takeNamed calls it again with name as a pattern. take marks
// the matching paths and reports whether there was one, which takeNamed returns.
func takeNamed(name Name, exact bool, take func(matches func(string) bool) bool) (bool, error) {
	path := strings.TrimSuffix(string(name), "/")
	if take(func(p string) bool { return p == path || !exact && within(path, p) }) {
		return true, nil
	}
	if exact || !isPattern(path) {
		return false, nil
	}
	matches, err := compilePattern(path)
	return err == nil && take(matches), err
}

// addParents marks in take the new directories above marked changes.
func addParents(changes []Change, take []bool) {
	needed := map[string]bool{}
	for i, c := range slices.Backward(changes) {
		if needed[string(c.Path)] && becomesDir(c) {
			take[i] = true
		}
		if take[i] && c.After != nil {
			needed[parentOf(string(c.Path))] = true
		}
	}
}

func becomesDir(c Change) bool {
	return c.After != nil && c.After.Type == Dir && (c.Kind == Added || c.Kind == Retyped)
}

func leavesDir(c Change) bool {
	return c.Before != nil && c.Before.Type == Dir && (c.Kind == Deleted || c.Kind == Retyped)
}

// needsPerson returns why a commit with Auto leaves a change, or "".
func needsPerson(c Change) string {
	if c.Conflict != "" {
		return "conflict: " + c.Conflict
	}
	if len(c.Risks) > 0 {
		return fmt.Sprintf("%s: %s", c.Risks[0].Class, c.Risks[0].Why)
	}
	return ""
}

// holdBack returns why a change is not committed, or "". It does not look at conflicts.
func holdBack(c Change, o CommitOptions) string {
	if c.Refused != "" || o.inner {
		return c.Refused
	}
	why, on, held := protected(c, o)
	for _, r := range c.Risks {
		if !held && r.Hold && c.Kind != Deleted {
			why, on, held = r.Why, string(c.Path), true
			if c.repo != nil && r.Class == policy.Hooks {
				on = c.repo.outermost().path
			}
		}
	}
	if !held {
		return ""
	}
	named := slices.AppendSeq(slices.Clone(o.Paths), maps.Keys(o.Hunks))
	if o.IncludeProtected && slices.ContainsFunc(named, func(p Name) bool {
		named := strings.TrimSuffix(string(p), "/")
		return within(named, string(c.Path)) && within(on, named)
	}) {
		return ""
	}
	return why
}

// protected reports whether a change's path is protected, and why. on is the topmost directory with
// the same reason, or the git directory for files that git obeys. IncludeProtected allows the
// change if Paths or Hunks name it, or a directory above it that is on or below on.
func protected(c Change, o CommitOptions) (why, on string, ok bool) {
	path := string(c.Path)
	if r := c.freshRepository(); r != nil && c.Kind != Deleted {
		return r.freshReason(), c.repo.outermost().path, true
	}
	check := func(path string) (policy.Risk, bool) {
		// The workspace itself has no name.
		if path == "" {
			return policy.Risk{}, false
		}
		risk, ok := policy.Protected(path)
		if !ok && o.Protect != nil {
			risk.Reason, ok = o.Protect(path)
		}
		return risk, ok
	}
	risk, ok := check(path)
	for dir := path; ok && dir != ""; dir = parentOf(dir) {
		if above, also := check(dir); also && above == risk {
			on = dir
		}
	}
	if dir, in := policy.GitDir(path); ok && in && risk.Class == policy.Hooks {
		on = dir
	}
	return risk.Reason, on, ok
}

// holdBelowHeld holds back the entries of a new directory that is not committed.
func (s *selection) holdBelowHeld() {
	held := map[string]bool{}
	for i, c := range s.changes {
		if parent := parentOf(string(c.Path)); s.take[i] && s.why[i] == "" && c.After != nil &&
			held[parent] {
			s.why[i] = fmt.Sprintf("its directory %s is held back", Name(parent))
		}
		if becomesDir(c) && (!s.take[i] || s.why[i] != "") {
			held[string(c.Path)] = true
		}
	}
}

// holdNotEmpty holds back the deletion of a directory in which an entry stays.
func (s *selection) holdNotEmpty() {
	stays := map[string]string{}
	for i, c := range slices.Backward(s.changes) {
		if c.Kind != Deleted && !leavesDir(c) {
			continue
		}
		if kept, ok := stays[string(c.Path)]; ok && s.take[i] && s.why[i] == "" {
			s.why[i] = fmt.Sprintf("%s in it is kept", Name(kept))
		}
		if !s.take[i] || s.why[i] != "" {
			stays[parentOf(string(c.Path))] = string(c.Path)
		}
	}
	// New entries of a path that stays as it is are held back, too.
	s.holdBelowHeld()
}

func (s *selection) conflicts() error {
	var e ConflictError
	for i, c := range s.changes {
		if s.take[i] && s.why[i] == "" && c.Conflict != "" {
			e.Conflicts = append(e.Conflicts, Conflict{c.Path, c.Conflict, c.Before, c.After})
		}
	}
	return &e
}

// taken returns the changes to commit, and those that were asked for but are held back.
func (s *selection) taken() (taken []Change, held []Held) {
	listed := map[Held]bool{}
	for i, c := range s.changes {
		switch {
		case !s.take[i]:
		case s.why[i] != "":
			if h := s.heldAs(i); !listed[h] {
				held = append(held, h)
				listed[h] = true
			}
		default:
			taken = append(taken, c)
		}
	}
	return taken, held
}

// isPattern reports whether text has a *, ? or [.
func isPattern(text string) bool { return strings.ContainsAny(text, "*?[") }

// compilePattern returns a function that reports whether a path, or a directory above it, matches
// the pattern text: each segment by path.Match, and ** any number of segments. The error is
// ErrPattern for a malformed pattern.
func compilePattern(text string) (func(string) bool, error) {
	parts := strings.Split(text, "/")
	for _, p := range parts {
		if _, err := path.Match(p, ""); err != nil {
			return nil, fmt.Errorf("%w %s: a [ has no ] after it", ErrPattern, Name(text))
		}
	}
	return func(name string) bool {
		return matchParts(parts, strings.Split(name, "/"), map[[2]int]bool{})
	}, nil
}

// matchParts reports whether parts match the first names. failed has the failed attempts, by number
// of remaining parts and names, so that several ** take no exponential time.
func matchParts(parts, names []string, failed map[[2]int]bool) bool {
	if len(parts) == 0 {
		// The rest is beneath it.
		return true
	}
	at := [2]int{len(parts), len(names)}
	if failed[at] {
		return false
	}
	var ok bool
	if parts[0] == "**" {
		ok = matchParts(parts[1:], names, failed) && len(parts) > 1 || len(parts) == 1 &&
			len(names) > 0 || len(names) > 0 && matchParts(parts, names[1:], failed)
	} else if len(names) > 0 {
		// Checked when it was compiled.
		match, _ := path.Match(parts[0], names[0])
		ok = match && matchParts(parts[1:], names[1:], failed)
	}
	failed[at] = !ok
	return ok
}

// leftOut are the paths of a layer that are no changes: damaged or discarded ones, with everything
// beneath them. The path "" stands only for the mode of the workspace's own directory.
type leftOut struct {
	damaged map[string]bool
	// paths are the discarded paths.
	paths map[string]bool
	// above are the directories above discarded paths. Their deletion is no change, either.
	above map[string]bool
}

func newLeftOut(m meta, damaged map[string]bool) leftOut {
	out := leftOut{damaged: damaged, paths: map[string]bool{}, above: map[string]bool{}}
	for _, p := range m.Dropped {
		out.paths[string(p)] = true
		out.keepAbove(string(p))
	}
	return out
}

// keepAbove adds the directories above a path to above.
func (out leftOut) keepAbove(path string) {
	for up := parentOf(path); up != ""; up = parentOf(up) {
		out.above[up] = true
	}
}

// discarded reports whether a path, or a directory above it, was discarded.
func (l leftOut) discarded(path string) bool { return covering(l.paths, path) != "" }

// covering returns path, or the closest directory above it, that is in set, "" if none is.
func covering(set map[string]bool, path string) string {
	for path != "" && !set[path] {
		path = parentOf(path)
	}
	return path
}

// DiscardPaths removes the changes at paths, and beneath them, from a frozen workspace for good,
// and returns the counts of removed and remaining changes. A path that no change has and that has a
// *, ? or [ is a pattern, as in CommitOptions. A directory that the tool deleted or replaced stays
// if something below it is discarded. DiscardPaths passes both counts to record first and does
// nothing if record returns an error.
//
// In a live workspace (see CommitOptions.Live), and in a resumable one, the layer is not changed:
// the tool sees its own content as before, but a discarded path is no change until the tool changes
// it again.
func (w *Workspace) DiscardPaths(ctx context.Context, paths []Name, live bool,
	record func(gone, left Summary) error) (gone, left Summary, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	gone, left, err = w.discardPaths(ctx, paths, live, record)
	return gone, left, w.wrap("discard", err)
}

func (w *Workspace) discardPaths(ctx context.Context, paths []Name, live bool,
	record func(gone, left Summary) error) (gone, left Summary, err error) {
	lock, err := opening{w}.locked(live)
	if err != nil {
		return gone, left, err
	}
	defer lock.Close()
	changes, err := w.listed(ctx)
	if err != nil {
		return gone, left, err
	}
	s := selection{changes: changes, take: make([]bool, len(changes))}
	if err := s.matchPaths(CommitOptions{Paths: paths}); err != nil {
		return gone, left, err
	}
	// The tool of a resumable one may change the paths again.
	stays := w.meta.State != Frozen || w.meta.Resumable
	before := w.meta.Dropped
	for i, c := range s.changes {
		gone.add(c)
		if !s.take[i] || slices.ContainsFunc(w.meta.Dropped, func(p Name) bool {
			return p != "" && within(string(p), string(c.Path))
		}) {
			continue
		}
		if err := wholeRepository(c); err != nil {
			return Summary{}, left, err
		}
		if stays {
			w.dropping = append(w.dropping, takenPath{Path: c.Path, Dropped: &sides{Shadow: c.After}})
			continue
		}
		w.meta.Dropped = append(slices.Clip(w.meta.Dropped), c.Path)
	}
	defer func() { w.dropping = nil }()
	err = w.walk(ctx, func(c Change) bool { left.add(c); return true })
	gone.Added, gone.Modified, gone.Deleted = gone.Added-left.Added, gone.Modified-left.Modified,
		gone.Deleted-left.Deleted
	gone.Bytes -= left.Bytes
	if err == nil {
		err = record(gone, left)
	}
	if err == nil && stays {
		err = w.home.addTaken(w.dropping)
	} else if err == nil {
		err = w.save(true)
	}
	if err != nil {
		w.meta.Dropped = before
		return Summary{}, Summary{}, err
	}
	return gone, left, nil
}

// wholeRepository returns an error for a change in a git directory, except hooks, info and config:
// without it, the rest of the repository might name missing objects.
func wholeRepository(c Change) error {
	parts := strings.Split(string(c.Path), "/")
	i := slices.Index(parts, ".git")
	if i < 0 || i == len(parts)-1 || slices.Contains([]string{"hooks", "info", "config"},
		parts[i+1]) {
		return nil
	}
	return fmt.Errorf(
		"%w: %s is a part of a git repository, which is discarded as a whole: name %s", ErrState,
		c.Path, Name(strings.Join(parts[:i+1], "/")))
}
