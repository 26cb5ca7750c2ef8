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

// CommitOptions say what to commit. The zero value commits everything that is neither protected nor
// refused, with the rights of the caller who prepared the workspace.
type CommitOptions struct {
	// Live commits a workspace that is not frozen, of which this process made the layer. The
	// processes of its jail must be stopped, and stay so until the commit returns. The layer is
	// left as it is: the jail may go on, and sees its own files as before.
	Live bool
	// Progress receives the number of completed steps; may be nil.
	Progress func(done, total int)
	// Paths are the paths to commit, each with everything beneath it; nil is all. New directories
	// above them are included. A path that no change has and that has a *, ? or [ is a pattern: *
	// and ? do not match a slash, ** does.
	Paths []Name
	// Exact takes each of Paths alone, without what is beneath it, and none as a pattern.
	Exact bool
	// Hunks are files of which only some hunks are taken, by number from 0. With Hunks, nil Paths
	// are none, and Digest must be given.
	Hunks map[Name][]int
	// Classes narrow the choice to changes with a risk of one of these classes; Plain are those
	// without any.
	Classes []policy.Class
	// GitOnly takes a branch as git fetch would, and nothing else of the change set: the ref and
	// the objects that the real repository lacks. Paths may then name one repository. Git reads it.
	GitOnly *gitrepo.Want
	Git     GitReader
	// Branch is what the function Branch said of GitOnly; if the ref is another now, nothing is
	// committed. nil accepts the present one.
	Branch *GitRef
	// Auto takes what needs no person: changes that are neither protected nor risky nor in conflict.
	// The others are held. Nothing to take is no error.
	Auto bool
	// Begin is called before the first change of a commit that has something to take, and may refuse
	// it; may be nil.
	Begin func() error
	// Theirs takes the shadow's side of conflicts. Merge takes both sides, of text that was changed
	// in different places.
	Theirs, Merge bool
	// IncludeProtected allows protected paths that Paths names, themselves or a protected directory
	// above them.
	IncludeProtected bool
	// Protect adds names to those of policy.Protected, with the reason. It gets a whole path and
	// also answers for the directories above it.
	Protect func(path string) (why string, ok bool)
	// Digest is the digest of the reviewed change set; "" commits the present one.
	Digest string
	// Keep says what is kept of the replaced content.
	Keep Retention
	// As gives the rights for writing the real directory; nil is the caller who prepared the
	// workspace.
	As *Caller

	// gitBusy holds the data of repositories, since git is at work in one.
	gitBusy bool
	// inner: the target is a shadow, whose own commit holds protected names back.
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
	// What the tool made of it, or the commit left.
	Shadow *Node `json:"shadow,omitempty"`
}

// ConflictError lists every conflict among the paths of a commit, which wrote nothing. It is an
// ErrConflict.
type ConflictError struct {
	Conflicts []Conflict
	// Of is the workspace that has changed, "" for the real directory.
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

// Is makes the error an ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// protectedError says that everything that a commit asked for was held back. It is an ErrProtected,
// and an ErrNever if no commit takes any of that.
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

// Is makes the error an ErrProtected, and perhaps an ErrNever.
func (e *protectedError) Is(target error) bool {
	return target == ErrProtected || e.never && target == ErrNever
}

// selection marks the changes that a commit takes, in the order of Workspace.Changes.
type selection struct {
	changes []Change
	take    []bool
	// why has the reasons for those held back although asked for.
	why []string
	// apart: held because another change of the same repository is.
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

// takeNamed has take mark the paths that name means: the path itself and, unless exact, what is
// beneath it, or, if there is neither, what name matches as a pattern. take reports whether it
// marked one.
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

// addParents takes the new directories above taken changes.
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

// needsPerson says why a commit without a person leaves a change, or "".
func needsPerson(c Change) string {
	if c.Conflict != "" {
		return "conflict: " + c.Conflict
	}
	if len(c.Risks) > 0 {
		return fmt.Sprintf("%s: %s", c.Risks[0].Class, c.Risks[0].Why)
	}
	return ""
}

// holdBack says why a change is not committed, or "".
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

// protected returns why a change's path is protected, and the path or the directory above it that
// has this reason: naming that path allows the change. For what git obeys it is the git directory.
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

// holdBelowHeld holds the entries of a new directory that is held.
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

// holdNotEmpty holds the deletion of a directory in which something stays.
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
	// A directory that does not become something else.
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

// taken returns the changes to commit, and those that were asked for and held back.
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

// isPattern reports whether a path that no change has may be a pattern.
func isPattern(text string) bool { return strings.ContainsAny(text, "*?[") }

// compilePattern returns a function that reports whether a path, or a directory above it, matches:
// each segment by path.Match, with ** for any number of segments.
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

// matchParts reports whether parts match the first of names; failed remembers failed attempts, so
// that many ** take no longer.
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

// leftOut are the parts of a layer that are no changes: damaged or discarded paths, with everything
// beneath them. The path "" is only the mode of the workspace's own directory.
type leftOut struct {
	damaged map[string]bool
	// paths that were discarded.
	paths map[string]bool
	// above are the directories above discarded paths: an undeleted path keeps its directories.
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

// keepAbove keeps the directories above a path.
func (out leftOut) keepAbove(path string) {
	for up := parentOf(path); up != ""; up = parentOf(up) {
		out.above[up] = true
	}
}

// discarded reports whether a path, or a directory above it, was discarded.
func (l leftOut) discarded(path string) bool { return covering(l.paths, path) != "" }

// covering returns the first of path and the directories above it that is in the set, "" for none.
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
// In a live workspace (see CommitOptions.Live), and in a resumable one, the layer stays as it is: what is discarded is no
// change until the tool changes it again, and the tool sees it as before.
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

// wholeRepository refuses to discard a part of a git repository that the rest needs: the rest would
// name missing objects.
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
