package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// A merge compares three states of each path that the branch has touched: the base at the fork, the
// parent's and the branch's. It takes the branch's changes. A path that the parent has changed,
// too, is a conflict. It compares contents, not times.
//
// The taken changes become a new frozen layer above the parent's, written through an overlay that
// only this process sees. The replacement of the parent's meta.json makes the layer a part of the
// parent, so an interrupted merge has happened or not. The layers below are kept as long as the
// merge can be reverted.

// MergeRecord describes one merge of a branch into its parent.
type MergeRecord struct {
	ID     string    `json:"id"`
	Time   time.Time `json:"time"`
	Into   string    `json:"into"`
	Digest string    `json:"digest"`
	// Paths counts the merged paths.
	Paths int `json:"paths"`
	// Layer is the frozen layer with the merged changes. Below are the parent's layers before.
	Layer string   `json:"layer"`
	Below []string `json:"below,omitempty"`
	// Reverted is the time of the revert.
	Reverted time.Time `json:"reverted,omitzero"`
}

// maxMerged bounds the ids of merges that a parent remembers.
const maxMerged = 4 * MaxBranches

// mergedPath is a merged path, as merge-<id>.json of the branch lists it.
type mergedPath struct {
	Path Name `json:"path"`
	// Before and After are the parent's states before and after the merge. Shadow is the branch's.
	Before *Node `json:"before,omitempty"`
	After  *Node `json:"after,omitempty"`
	Shadow *Node `json:"shadow,omitempty"`
}

func mergeName(id string) string { return "merge-" + id + ".json" }

// mergeSides are a branch and its parent, open and locked for a merge.
type mergeSides struct {
	branch, parent *Workspace
	unlock         []func()
	// target is the new layer above the parent's, which gets the merged changes.
	target *newLayer
	// view is the parent's shadow, writable into target.
	view *os.File
	// real is the real directory.
	real *os.File
	// base is the root directory of the layers that both had at the fork.
	base  *upperDir
	since sys.Time
	taken taken
}

// open opens the branch id and its parent for a merge. The caller closes the result.
func (b Branches) open(ctx context.Context, id string, as Caller) (m *mergeSides, err error) {
	s := b.s
	m = &mergeSides{}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.close())
		}
	}()
	if m.branch, err = s.Get(id); err != nil {
		return m, err
	}
	if m.branch.meta.Fork == nil {
		return m, ErrNoBranch
	}
	if m.parent, err = s.Get(m.branch.meta.Fork.Parent); err != nil {
		return m, err
	}
	// The parent is locked first. A fork of the branch takes only the branch's lock.
	for _, w := range []*Workspace{m.parent, m.branch} {
		unlock, err := (forking{w}).quiesce(ctx, as)
		if err != nil {
			return m, w.wrap("merge", err)
		}
		m.unlock = append(m.unlock, unlock)
	}
	if err := (forking{m.parent}).makeRoom(ctx, 2); err != nil {
		return m, err
	}
	for _, w := range []*Workspace{m.parent, m.branch} {
		if err := (opening{w}).open(as); err != nil {
			return m, w.wrap("merge", err)
		}
		if len(w.layer.damaged) > 0 {
			return m, w.wrap("merge", fmt.Errorf("%w: a part of it did not reach the disk", ErrState))
		}
	}
	m.since, m.real = m.branch.meta.Fork.Since, m.parent.source
	if m.base, err = joinRoots(forking{m.branch}.baseLayers()); err != nil {
		return m, err
	}
	if m.taken, err = m.earlier(); err != nil {
		return m, err
	}
	return m, m.openView()
}

// with opens the branch id and its parent, calls f with them, and closes them.
func (b Branches) with(ctx context.Context, id string, as Caller, f func(*mergeSides) error) error {
	m, err := b.open(ctx, id, as)
	if err != nil {
		return err
	}
	return errors.Join(f(m), m.close())
}

// ownLayers returns the frozen layers of a branch that were made after the fork.
func (f forking) ownLayers() []*frozenLayer {
	w := f.w
	return w.layer.frozen[:len(w.layer.frozen)-w.meta.Fork.Base]
}

// baseLayers returns the frozen layers of a branch that its parent had at the fork.
func (f forking) baseLayers() []*frozenLayer {
	w := f.w
	return w.layer.frozen[len(w.layer.frozen)-w.meta.Fork.Base:]
}

// openView makes the empty layer m.target, and mounts the parent's shadow with it as m.view.
func (m *mergeSides) openView() (err error) {
	p := m.parent
	bytes, inodes, err := (forking{p}).roomAbove()
	if err != nil {
		return err
	}
	top, err := p.layer.openUpper()
	if err != nil {
		return err
	}
	root, err := top.stat()
	top.Close()
	if err != nil {
		return err
	}
	if m.target, err = (layerStore{p.store}).newLayer(bytes, inodes, root); err != nil {
		return err
	}
	m.view, err = (forking{p}).mountView(m.target)
	return err
}

// roomAbove returns the limits for one more layer above all layers of the workspace.
func (f forking) roomAbove() (bytes, inodes int64, err error) {
	w := f.w
	if w.layer.mount == nil {
		return f.room()
	}
	bytes, inodes, err = f.limitsOfOwn()
	if err != nil {
		return 0, 0, err
	}
	used, err := usage(w.layer.mount, bytes, inodes)
	if err != nil {
		return 0, 0, err
	}
	own := w.layer.frozen
	defer func() { w.layer.frozen = own }()
	w.layer.frozen = append([]*frozenLayer{{layerMeta: used}}, own...)
	return f.room()
}

// mountView mounts the shadow of a frozen workspace with the new layer above it. Only this process
// can reach the mount.
func (f forking) mountView(above *newLayer) (*os.File, error) {
	w := f.w
	frozen, err := mountsOf(w.layer.frozen)
	if err != nil {
		return nil, err
	}
	defer func() { closeAll(frozen...) }()
	if w.layer.mount != nil {
		own, err := sys.MountExt4(w.layer.loop, true)
		if err != nil {
			return nil, err
		}
		frozen = append([]*os.File{own}, frozen...)
	}
	lower, err := CloneLower(w.source)
	if err != nil {
		return nil, err
	}
	defer lower.Close()
	upper, err := sys.MountExt4(above.layer.loop, false)
	if err != nil {
		return nil, err
	}
	defer upper.Close()
	return mountAlone(Attachment{Lower: lower, Upper: upper, Frozen: frozen,
		Target: w.store.dir.Name()})
}

// earlier returns the paths of earlier merges of the branch that are still in the parent.
func (m *mergeSides) earlier() (t taken, err error) {
	for _, r := range (forking{m.branch}).merged(m.parent.meta) {
		paths, err := (forking{m.branch}).readMerge(r.ID)
		if err != nil {
			return t, err
		}
		for _, p := range paths {
			t.add(takenPath{Path: p.Path, Sides: &sides{Shadow: p.Shadow, Real: p.After}})
		}
	}
	return t, nil
}

func (f forking) readMerge(id string) ([]mergedPath, error) {
	paths, err := readJSON[[]mergedPath](f.w.home.dir, mergeName(id))
	if err != nil {
		return nil, fmt.Errorf("merge %s: %w", id, err)
	}
	return *paths, nil
}

// merged returns the merges of a branch that were completed and not reverted.
func (f forking) merged(parent meta) (all []MergeRecord) {
	for _, r := range f.w.meta.Merges {
		if r.Reverted.IsZero() && slices.Contains(parent.Merged, r.ID) {
			all = append(all, r)
		}
	}
	return all
}

func (m *mergeSides) close() error {
	closeAll(m.view)
	m.base.Close()
	var err error
	if m.target != nil {
		err = m.target.drop()
	}
	for _, unlock := range slices.Backward(m.unlock) {
		unlock()
	}
	for _, w := range []*Workspace{m.branch, m.parent} {
		if w != nil {
			err = errors.Join(err, w.Close())
		}
	}
	return err
}

// asReal returns a workspace for the walk of a merge: its real directory is the parent's shadow,
// and its layers are those that only the branch has.
func (m *mergeSides) asReal() (*Workspace, error) {
	b := m.branch
	w := &Workspace{store: b.store, home: b.home, meta: m.parent.meta, source: m.view}
	w.meta.ID, w.meta.State, w.meta.Since = b.meta.ID, Frozen, m.since
	w.meta.Touched, w.meta.Indexes = nil, nil
	w.layer.mount, w.layer.frozen = b.layer.mount, (forking{b}).ownLayers()
	// The root's mode is a change only if the tool has changed it.
	st, err := m.base.stat()
	w.meta.Mode = st.Perm()
	return w, err
}

// changes lists the branch's changes since the fork, as changes to m.view. w is from asReal.
func (m *mergeSides) changes(ctx context.Context, w *Workspace) (all []Change, err error) {
	if w.layer.mount == nil && len(w.layer.frozen) == 0 {
		return nil, nil
	}
	var found []Change
	var kept []bool
	k := &walker{ctx: ctx, as: w.meta.Caller, meta: &w.meta, holes: maxHoles}
	var walkErr error
	err = walkWith(ctx, w, m.taken, func(c Change) bool {
		var keep bool
		keep, walkErr = m.settle(k, &c)
		found, kept = append(found, c), append(kept, keep)
		return walkErr == nil
	})
	if err = cmp.Or(walkErr, err); err != nil {
		return nil, err
	}
	// New entries of the branch need their directories.
	addParents(found, kept)
	gone := map[string]bool{}
	for i, c := range found {
		if kept[i] && (c.Kind == Deleted || leavesDir(c)) {
			gone[string(c.Path)] = true
		} else if !kept[i] && c.Kind == Deleted && gone[parentOf(string(c.Path))] {
			kept[i] = true
			gone[string(c.Path)] = true
			found[i].Conflict = fmt.Sprintf("the parent made the %s since the fork, and the branch "+
				"deleted the directory", c.Before.Type)
		}
		if kept[i] {
			all = append(all, found[i])
		}
	}
	return all, nil
}

// settle reports whether the branch made a difference between branch and parent. It sets c.Conflict
// if the parent changed the path, too.
func (m *mergeSides) settle(k *walker, c *Change) (keep bool, err error) {
	if b := c.Before; b != nil && b.Type == File && b.SHA256 == "" {
		// A revert of the merge needs the hash.
		if c.Before, _, err = k.nodeNow(m.view, c.Path); err != nil {
			return false, err
		}
	}
	if _, merged := m.taken.all[c.Path]; merged || c.Path == "" {
		// The walk's texts name the real directory and a commit instead of the parent and a merge.
		c.Conflict = strings.NewReplacer("the real ", "the parent's ", "last commit", "last merge").
			Replace(c.Conflict)
		return true, nil
	}
	base, known, err := m.baseNode(k, c)
	if err != nil {
		return false, err
	}
	if !known {
		c.Conflict = "the real directory changed there since the fork"
		return true, nil
	}
	if base.same(c.After) {
		return false, nil
	}
	theirs := c.Before
	switch {
	case base.same(theirs):
		c.Conflict = ""
	case base == nil:
		c.Conflict = fmt.Sprintf("the parent made the %s since the fork", theirs.Type)
	case theirs == nil:
		c.Conflict = fmt.Sprintf("the parent deleted or moved the %s since the fork", base.Type)
	default:
		c.Conflict = fmt.Sprintf("the parent changed the %s since the fork", base.Type)
	}
	return true, nil
}

// baseNode returns the state of a path at the fork, nil if it did not exist. known is false if the
// real directory shows through there and has changed since.
func (m *mergeSides) baseNode(k *walker, c *Change) (n *Node, known bool, err error) {
	dir, name := split(string(c.Path))
	at, real, _, err := m.base.through(dir)
	if errors.Is(err, fs.ErrNotExist) {
		// A whiteout, or a file: nothing is below it.
		return nil, true, nil
	}
	if err != nil {
		return nil, false, err
	}
	if at != nil {
		defer at.Close()
		found, st, err := at.find(name)
		switch {
		case err == nil && whiteout(st):
			return nil, true, nil
		case err == nil:
			n, err = nodeAt(k, found, name, st)
			return n, true, err
		case !errors.Is(err, fs.ErrNotExist):
			return nil, false, err
		}
	}
	if !real {
		return nil, true, nil
	}
	return m.realNode(k, c, dir, name)
}

// realNode is baseNode for a path that no layer has.
func (m *mergeSides) realNode(k *walker, c *Change, dir, name string) (n *Node, known bool, err error) {
	at, err := openDir(m.real, dir)
	if missing(err) {
		return nil, c.Before == nil || c.Kind == Deleted, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer at.Close()
	n, st, err := k.nodeIn(at, name)
	if err != nil {
		return nil, false, err
	}
	if st == nil {
		// Somebody may have deleted it since.
		above, err := sys.Fstat(at)
		return nil, above.Ctime.Compare(m.since) < 0 || c.After == nil || c.Before == nil, err
	}
	fresh := st.Ctime.Compare(m.since) >= 0
	if n.Type == Dir {
		// The ctime of a directory also changes with its entries.
		return n, !fresh || c.Kind != Mode, nil
	}
	return n, !fresh, nil
}

// nodeAt returns the Node of an entry of a layer, with its link target or hash.
func nodeAt(k *walker, dir *os.File, name string, st sys.Stat) (*Node, error) {
	n := nodeOf(st)
	switch n.Type {
	case Link:
		target, err := sys.ReadlinkAt(dir, name)
		n.Target = Name(target)
		return n, err
	case File:
		f, err := openRegular(dir, name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		n.SHA256, _, err = hashFile(f, n.Size, k.ctx.Err, nil)
		return n, err
	}
	return n, nil
}

// baseText returns the text and mode of a file at the fork, for a merge by lines. ok is false if
// they are not known.
func (m *mergeSides) baseText(c Change) (text string, mode uint32, ok bool, err error) {
	if _, merged := m.taken.all[c.Path]; merged {
		return "", 0, false, nil
	}
	k := &walker{ctx: context.Background(), as: m.branch.meta.Caller, meta: &m.branch.meta}
	n, known, err := m.baseNode(k, &c)
	if err != nil || !known || n == nil || n.Type != File || n.Size > maxPatched {
		return "", 0, false, err
	}
	dir, name, err := m.base.at(c.Path)
	if err == nil {
		defer dir.Close()
		text, err = readRegular(dir, name, n.Size)
	} else if missing(err) {
		text, err = (&patcher{w: m.parent}).readReal(c.Path, n.Size)
	}
	if errors.Is(err, errNoText) {
		return "", 0, false, nil
	}
	return text, n.Mode, err == nil && textNode(text, 0).SHA256 == n.SHA256, err
}

// A MergePreview lists the changes that a merge of a branch would take.
type MergePreview struct {
	Parent  string   `json:"parent"`
	Changes []Change `json:"changes"`
	Digest  string   `json:"digest"`
}

// PreviewMerge lists the branch's changes since the fork, as changes to its parent, with their
// digest for Merge. No jail may use the branch or its parent (ErrActive).
func (b Branches) PreviewMerge(ctx context.Context, id string, as Caller) (p MergePreview, err error) {
	err = b.with(ctx, id, as, func(m *mergeSides) error {
		w, err := m.asReal()
		if err != nil {
			return err
		}
		if p.Changes, err = m.changes(ctx, w); err != nil {
			return w.wrap("merge", err)
		}
		p.Parent, p.Digest = m.parent.meta.ID, digestOf(p.Changes)
		return nil
	})
	return p, err
}

// Merge writes a branch's changes since the fork to its parent, all or none of those that o
// chooses. It uses only Paths, Exact, Digest, Theirs, Merge and Begin of o. It takes protected
// names, too: a commit of the parent holds them back. The branch stays as it is. No jail may use
// the branch or its parent (ErrActive).
func (b Branches) Merge(ctx context.Context, id string, as Caller, o CommitOptions) (r Result,
	err error) {
	err = b.with(ctx, id, as, func(m *mergeSides) error {
		w, err := m.asReal()
		if err == nil {
			r, err = m.merge(ctx, w, o)
			err = w.wrap("merge", err)
		}
		return err
	})
	return r, err
}

func (m *mergeSides) merge(ctx context.Context, w *Workspace, o CommitOptions) (Result, error) {
	o.inner, o.Live, o.GitOnly, o.Auto, o.Hunks, o.Classes = true, false, nil, false, nil, nil
	d, err := decision{w: w, taken: m.taken, into: m}.decide(ctx, o)
	if err != nil {
		if c, ok := errors.AsType[*ConflictError](err); ok {
			c.Of = m.parent.meta.ID
		}
		return d.result, err
	}
	r := d.result
	if len(r.Committed) == 0 {
		r.ID, r.State = "", Frozen
		return r, nil
	}
	if o.Begin != nil {
		if err := o.Begin(); err != nil {
			return Result{}, err
		}
	}
	upper, err := w.layer.openUpper()
	if err != nil {
		return r, err
	}
	defer upper.Close()
	a := applier{ctx: ctx, root: m.view, texts: d.texts, content: upper.at}
	if err := a.apply(r.Committed); err != nil {
		return r, err
	}
	var paths []mergedPath
	for _, c := range r.Committed {
		paths = append(paths, mergedPath{c.Path, c.Before, c.After, d.shadow[c.Path]})
	}
	return r, m.settleMerge(ctx, MergeRecord{ID: r.ID, Time: time.Now().UTC(),
		Into: m.parent.meta.ID, Digest: r.Digest, Paths: len(paths)}, paths, &r)
}

// settleMerge makes the new layer a part of the parent. It first saves the record in the branch,
// which is ignored until the parent's meta.json has its id.
func (m *mergeSides) settleMerge(ctx context.Context, rec MergeRecord, paths []mergedPath,
	r *Result) error {
	b, p := m.branch, m.parent
	if err := m.seal(); err != nil {
		return err
	}
	if err := b.home.writeJSON(mergeName(rec.ID), paths, true); err != nil {
		return err
	}
	rec.Layer, rec.Below = m.target.id, slices.Clone(p.meta.Layers)
	if !p.meta.Bare {
		// The parent's own layer is frozen first, so that the record names it.
		if err := (forking{p}).freezeOwn(ctx, nil); err != nil {
			return err
		}
		rec.Below = slices.Clone(p.meta.Layers)
	}
	before := b.meta.Merges
	// Records of interrupted merges are removed.
	b.meta.Merges = append(slices.DeleteFunc(slices.Clone(before), func(r MergeRecord) bool {
		return !slices.Contains(p.meta.Merged, r.ID) && r.Reverted.IsZero()
	}), rec)
	if err := errors.Join(b.save(true), b.store.reach("merge", 1)); err != nil {
		b.meta.Merges = before
		return err
	}
	p.meta.Merged = append(p.meta.Merged, rec.ID)
	p.meta.Merged = p.meta.Merged[max(0, len(p.meta.Merged)-maxMerged):]
	m.target.offer()
	if err := (forking{p}).freezeOwn(ctx, []string{m.target.id}); err != nil {
		return err
	}
	r.State = Frozen
	return b.store.reach("merge", 2)
}

// seal unmounts m.view, and makes the new layer durable and read-only.
func (m *mergeSides) seal() error {
	err := m.view.Close()
	m.view = nil
	return errors.Join(err, m.target.seal(), m.branch.store.reach("merge", 0))
}

// RevertMerge undoes the last merge of a branch that was not reverted: it restores all paths of the
// merge in the parent. If the parent has changed one of them since, it returns a ConflictError and
// reverts nothing.
func (b Branches) RevertMerge(ctx context.Context, id string, as Caller) (rec MergeRecord, err error) {
	err = b.with(ctx, id, as, func(m *mergeSides) error {
		all := (forking{m.branch}).merged(m.parent.meta)
		if len(all) == 0 {
			return m.branch.wrap("revert", fmt.Errorf("%w: it has no merge to revert", ErrState))
		}
		rec = all[len(all)-1]
		return m.branch.wrap("revert", m.revert(ctx, rec))
	})
	return rec, err
}

func (m *mergeSides) revert(ctx context.Context, rec MergeRecord) error {
	p := m.parent
	only := p.meta.Bare && len(p.meta.Layers) > 0 && p.meta.Layers[0] == rec.Layer &&
		slices.Equal(p.meta.Layers[1:], rec.Below)
	var above []string
	if !only {
		if err := m.undo(ctx, rec); err != nil {
			return err
		}
		if err := m.seal(); err != nil {
			return err
		}
		above = []string{m.target.id}
	}
	p.meta.Merged = slices.DeleteFunc(slices.Clone(p.meta.Merged),
		func(id string) bool { return id == rec.ID })
	if only {
		p.meta.Layers = rec.Below
		if err := p.save(true); err != nil {
			return err
		}
	} else {
		m.target.offer()
		if err := (forking{p}).freezeOwn(ctx, above); err != nil {
			return err
		}
	}
	if err := p.store.reach("revert", 0); err != nil {
		return err
	}
	b := m.branch
	for i := range b.meta.Merges {
		if b.meta.Merges[i].ID == rec.ID {
			b.meta.Merges[i].Reverted = time.Now().UTC()
		}
	}
	return errors.Join(b.save(true), removeAt(b.home.dir, mergeName(rec.ID)))
}

// undo restores the paths of a merge in the parent's shadow, to m.target.
func (m *mergeSides) undo(ctx context.Context, rec MergeRecord) error {
	paths, err := (forking{m.branch}).readMerge(rec.ID)
	if err != nil {
		return err
	}
	layers, err := (layerStore{m.parent.store}).openStack(rec.Below)
	if err != nil {
		return err
	}
	defer releaseAll(layers)
	below, err := joinRoots(layers)
	if err != nil {
		return err
	}
	defer below.Close()
	k := &walker{ctx: ctx, as: m.parent.meta.Caller, meta: &m.parent.meta, holes: maxHoles}
	conflicts := ConflictError{Of: m.parent.meta.ID}
	var back []Change
	for _, p := range paths {
		now, err := m.nodeInView(k, p.Path)
		if err != nil {
			return err
		}
		if !now.same(p.After) {
			conflicts.Conflicts = append(conflicts.Conflicts, Conflict{p.Path,
				"it was changed since the merge", now, p.After})
			continue
		}
		back = append(back, Change{Path: p.Path, Kind: cmp.Or(kindOf(p.After, p.Before), Mode),
			Before: p.After, After: p.Before})
	}
	if len(conflicts.Conflicts) > 0 {
		return &conflicts
	}
	a := applier{ctx: ctx, root: m.view, content: func(path Name) (*os.File, string, error) {
		dir, name, err := below.at(path)
		if missing(err) {
			parent, name := split(string(path))
			dir, err := openDir(m.real, parent)
			return dir, name, err
		}
		return dir, name, err
	}}
	return a.apply(back)
}

// nodeInView returns the Node of a path in the parent's shadow, nil if it does not exist. It reads
// as the daemon, since a merge also takes directories that the caller cannot read.
func (m *mergeSides) nodeInView(k *walker, path Name) (*Node, error) {
	if path == "" {
		st, err := sys.Fstat(m.view)
		return nodeOf(st), err
	}
	n, err := inDir(m.view, path, func(dir *os.File, name string) (*Node, error) {
		st, err := sys.LstatAt(dir, name)
		if err != nil {
			return nil, err
		}
		return nodeAt(k, dir, name, st)
	})
	if missing(err) {
		return nil, nil
	}
	return n, err
}
