package workspace

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/policy"
)

// CommitOptions say what to commit. The zero value commits everything that is neither protected nor refused, with the
// rights of the caller who prepared the workspace.
type CommitOptions struct {
	// Paths are the paths to commit, each with all beneath it; nil: all. New directories above them come along. A path that no change has
	// and that has a *, ? or [ is a pattern: * and ? span no slash, ** does.
	Paths []Name
	// Exact makes each of Paths that path alone, without what is beneath it, and none of them a pattern.
	Exact bool
	// Hunks are files of which only some hunks are taken, by number from 0. With them nil Paths are none, and Digest must be given.
	Hunks map[Name][]int
	// Classes narrow the choice to changes with a risk of one of these classes; Plain are those without any.
	Classes []policy.Class
	// Theirs takes the shadow's side of conflicts. Merge takes both sides, of text that was changed in different places.
	Theirs, Merge bool
	// IncludeProtected lets protected names pass that Paths names, themselves or a protected directory above them.
	IncludeProtected bool
	// Protect adds names to those of policy.Protected, with the reason. It is asked for a whole path and answers for the directories
	// above it, too.
	Protect func(path string) (why string, ok bool)
	// Digest is the digest of the change set that was reviewed; "" commits what there is.
	Digest string
	// Keep says what is kept of what is replaced.
	Keep Retention
	// As is with whose rights the real directory is written; nil: those of the caller who prepared the workspace.
	As *Caller
}

// A Held is a change that a commit left out, and why.
type Held struct {
	Path Name   `json:"path"`
	Why  string `json:"why"`
}

// A Conflict is a path that changed on both sides.
type Conflict struct {
	Path   Name   `json:"path"`
	Why    string `json:"why"`
	Real   *Node  `json:"real,omitempty"`   // what is in the real directory now
	Shadow *Node  `json:"shadow,omitempty"` // what the tool made of it
}

// A ConflictError lists every conflict among the paths of a commit, which wrote nothing. It is an ErrConflict.
type ConflictError struct{ Conflicts []Conflict }

func (e *ConflictError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v:", ErrConflict)
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

// A ProtectedError says that all that a commit asked for was held back. It is an ErrProtected.
type ProtectedError struct{ Held []Held }

func (e *ProtectedError) Error() string {
	return fmt.Sprintf("%v: %s: %s", ErrProtected, e.Held[0].Path, e.Held[0].Why)
}

// Is makes the error an ErrProtected.
func (e *ProtectedError) Is(target error) bool { return target == ErrProtected }

// A selection is which changes a commit takes. Changes are in the order of Workspace.Changes.
type selection struct {
	changes []Change
	take    []bool
	why     []string // for those held back although asked for
}

func choose(changes []Change, o CommitOptions) (selection, error) {
	s := selection{changes, make([]bool, len(changes)), make([]string, len(changes))}
	if err := s.match(o); err != nil {
		return s, err
	}
	s.addParents()
	for i, c := range changes {
		if s.take[i] {
			s.why[i] = holdBack(c, o)
		}
	}
	s.holdBelowHeld()
	s.holdNotEmpty()
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
		if s.take[i] && o.Classes != nil && !slices.ContainsFunc(o.Classes, c.Has) {
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
	var err error
	for _, p := range o.Paths {
		path := strings.TrimSuffix(string(p), "/")
		found := false
		for i, c := range s.changes {
			if string(c.Path) == path || !o.Exact && below(string(c.Path), path) {
				s.take[i], found = true, true
			}
		}
		if !found && !o.Exact && isPattern(path) {
			matches, bad := compilePattern(path)
			if bad != nil {
				return bad
			}
			for i, c := range s.changes {
				if matches(string(c.Path)) {
					s.take[i], found = true, true
				}
			}
		}
		if !found {
			err = errors.Join(err, fmt.Errorf("%s: %w", p, ErrNoChange))
		}
	}
	return err
}

// addParents takes the new directories above what is taken.
func (s *selection) addParents() {
	needed := map[string]bool{}
	for i, c := range slices.Backward(s.changes) {
		if needed[string(c.Path)] && becomesDir(c) {
			s.take[i] = true
		}
		if s.take[i] && c.After != nil {
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

// holdBack says why a change is not committed, or "".
func holdBack(c Change, o CommitOptions) string {
	if c.Refused != "" {
		return c.Refused
	}
	why, on := protected(string(c.Path), o)
	for _, r := range c.Risks {
		if on == "" && r.Hold && c.Kind != Deleted {
			why, on = r.Why, string(c.Path)
		}
	}
	if on == "" {
		return ""
	}
	named := slices.AppendSeq(slices.Clone(o.Paths), maps.Keys(o.Hunks))
	if o.IncludeProtected && slices.ContainsFunc(named, func(p Name) bool {
		named := strings.TrimSuffix(string(p), "/")
		return below(string(c.Path), named) && below(named, on)
	}) {
		return ""
	}
	return why
}

// protected says why a path is protected, and on which of it and the directories above it that reason stands.
func protected(path string, o CommitOptions) (why, on string) {
	check := func(path string) (policy.Risk, bool) {
		if path == "" { // the workspace itself has no name in it
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
	return risk.Reason, on
}

// holdBelowHeld holds what lies in a new directory that is held.
func (s *selection) holdBelowHeld() {
	held := map[string]bool{}
	for i, c := range s.changes {
		if parent := parentOf(string(c.Path)); s.take[i] && s.why[i] == "" && c.After != nil && held[parent] {
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
	s.holdBelowHeld() // a directory that does not become something else
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

// taken returns the changes to commit, and the ones that were asked for and held back.
func (s *selection) taken() (taken []Change, held []Held) {
	for i, c := range s.changes {
		switch {
		case !s.take[i]:
		case s.why[i] != "":
			held = append(held, Held{c.Path, s.why[i]})
		default:
			taken = append(taken, c)
		}
	}
	return taken, held
}
