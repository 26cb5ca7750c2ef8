package workspace

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// A commit or revert of a live workspace leaves the upper layer as it is: the kernel forbids to
// change a mounted one from outside (Documentation/filesystems/overlayfs.rst, "Changes to
// underlying filesystems"). So the store remembers both sides of each path that was committed, and
// the walker compares with these:
//
//   - A shadow's side that is as it was at the commit is no change, whatever somebody made of the
//     real path since.
//   - Another one is a change, and a conflict if the real side is not as the commit left it. The
//     content decides, not the ctime, which does not tell two writes of one timer tick apart.
//   - A path that the layer no longer has was deleted by the tool. The kernel makes no whiteout in
//     a directory that was the tool's own when the tool first saw it, although the commit has made
//     that directory in the real one.
const takenName = "taken.json"

// sides are the two sides of a path when it was last committed or reverted; nil for a path that
// does not exist on that side.
type sides struct {
	Shadow *Node `json:"shadow,omitempty"`
	Real   *Node `json:"real,omitempty"`
}

// takenPath is one entry of taken.json, which is sorted by path. A path may have been committed
// and, in a later state, discarded.
type takenPath struct {
	Path  Name   `json:"path"`
	Sides *sides `json:"sides,omitempty"`
	// Dropped has the tool's side of a path that was discarded while the workspace was live. The
	// path is no change as long as the layer has this side. Dropped.Shadow is nil for a path that
	// the tool deleted.
	Dropped *sides `json:"dropped,omitempty"`
}

// taken has the paths that were committed (all) or discarded (dropped) while the workspace was
// live. The zero value has none.
type taken struct {
	all, dropped map[Name]sides
	// names has the names of the committed paths that exist in the shadow, by directory.
	names map[string][]string
}

// add adds a path.
func (t *taken) add(p takenPath) {
	if t.all == nil {
		*t = taken{map[Name]sides{}, map[Name]sides{}, map[string][]string{}}
	}
	if p.Dropped != nil {
		t.dropped[p.Path] = *p.Dropped
	}
	if p.Sides == nil {
		return
	}
	if t.all[p.Path].Shadow == nil && p.Sides.Shadow != nil && p.Path != "" {
		dir, name := split(string(p.Path))
		t.names[dir] = append(t.names[dir], name)
	}
	t.all[p.Path] = *p.Sides
}

// takenPaths reads taken.json, and returns nil if there is none.
func (home folder) takenPaths() ([]takenPath, error) {
	list, err := readJSON[[]takenPath](home.dir, takenName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return *list, nil
}

// readTaken returns the taken paths of a workspace.
func (home folder) readTaken() (t taken, err error) {
	list, err := home.takenPaths()
	for _, p := range list {
		t.add(p)
	}
	return t, err
}

// addTaken adds paths to taken.json. A path that is committed is no longer discarded. It may run
// again after a crash.
func (home folder) addTaken(more []takenPath) error {
	if len(more) == 0 {
		return nil
	}
	list, err := home.takenPaths()
	if err != nil {
		return err
	}
	all := map[Name]takenPath{}
	for _, p := range slices.Concat(list, more) {
		if p.Sides == nil {
			p.Sides = all[p.Path].Sides
		}
		all[p.Path] = p
	}
	list = slices.SortedFunc(maps.Values(all), func(a, b takenPath) int {
		return cmp.Compare(a.Path, b.Path)
	})
	return home.writeJSON(takenName, list, true)
}

// keepsTaken reports whether a commit of the workspace has to add its paths to taken.json.
func keepsTaken(w *Workspace, live bool) (bool, error) {
	if live || w.meta.Resumable {
		return true, nil
	}
	t, err := w.home.readTaken()
	return len(t.all) > 0, err
}

// takenBy returns the entries of taken.json for a commit of these changes. shadow has the tool's
// sides before chosen hunks and merges replaced them. A file of which only hunks are taken must
// stay a change, so its Shadow is what the commit writes.
func takenBy(changes []Change, shadow map[Name]*Node, hunks map[Name][]int) []takenPath {
	var all []takenPath
	for _, c := range changes {
		var s sides
		if c.Kind != Deleted {
			s.Real, s.Shadow = c.After, shadow[c.Path]
		}
		if _, part := hunks[c.Path]; part || s.Shadow == nil {
			s.Shadow = s.Real
		}
		all = append(all, takenPath{Path: c.Path, Sides: &s})
	}
	return all
}

// same reports whether two sides of a path are equal in all that a commit writes. Both may be nil.
func (n *Node) same(other *Node) bool {
	if n == nil || other == nil {
		return n == other
	}
	a, b := *n, *other
	a.Mode, b.Mode = a.Mode&0o777, b.Mode&0o777
	return kindOf(&a, &b) == ""
}

// since returns how now, the real side of a committed path, differs from what the commit left, ""
// if it does not.
func (s sides) since(now *Node) string {
	switch {
	case s.Real.same(now):
		return ""
	case now == nil:
		return fmt.Sprintf("the real %s was deleted or moved since the last commit", s.Real.Type)
	case s.Real == nil:
		return fmt.Sprintf("the real %s was made since the last commit", now.Type)
	case s.Real.Type != now.Type:
		return fmt.Sprintf("the real %s became a %s since the last commit", s.Real.Type, now.Type)
	}
	return fmt.Sprintf("the real %s was changed since the last commit", now.Type)
}

// conflictAt is conflict, but compares a path that was committed before with what the commit left.
// now is the real side, with the hash of a file if that is known.
func (k *walker) conflictAt(path string, real *os.File, st sys.Stat, now *Node) (string, error) {
	s, ok := k.taken.all[Name(path)]
	if !ok {
		return k.conflict(st), nil
	}
	if s.Real != nil && s.Real.Type == File && now.Type == File && now.SHA256 == "" &&
		s.Real.Size == now.Size {
		var err error
		if now, err = k.hashed(real, path, st); err != nil {
			return "", err
		}
	}
	why := s.since(now)
	if why == "" && s.Shadow != nil && !s.Shadow.same(s.Real) {
		// The tool continues with its own side, which lacks the changes of others.
		why = fmt.Sprintf("the real %s has both sides' changes since the last commit", now.Type)
	}
	return why, nil
}

// hashed returns the Node of a real file with its hash, which is "" if the caller cannot read it.
func (k *walker) hashed(real *os.File, path string, st sys.Stat) (*Node, error) {
	_, name := split(path)
	c := Change{Before: nodeOf(st), seen: st}
	// A second walker keeps the findings of k in the shadow's content.
	other := &walker{ctx: k.ctx, as: k.as, meta: k.meta, holes: k.holes}
	err := other.hashReal(&c, real, name)
	return c.Before, err
}

// unchanged reports whether the tool's side of a path is as at the last commit of the path. It
// returns false if real, the real parent directory, is nil: then only the tool's side is left.
func (k *walker) unchanged(real *os.File, path string, after *Node) bool {
	s, ok := k.taken.all[Name(path)]
	return ok && real != nil && s.Shadow.same(after)
}

// discarded reports whether the path was discarded and the tool's side is still the same.
func (k *walker) discarded(path string, after *Node) bool {
	d, ok := k.taken.dropped[Name(path)]
	return ok && d.Shadow.same(after)
}
