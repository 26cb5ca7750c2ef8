package workspace

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

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
	var s selection
	if err := w.walk(ctx, func(c Change) bool {
		s.changes = append(s.changes, c)
		return true
	}); err != nil {
		return gone, left, err
	}
	s.take = make([]bool, len(s.changes))
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
			w.dropping = append(w.dropping, takenPath{Path: c.Path, Dropped: &dropped{c.After}})
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
