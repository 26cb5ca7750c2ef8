package workspace

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"iter"
	"os"
	"slices"
	"syscall"

	"github.com/jail-sandbox/jail/jail/internal/sys"
	"github.com/jail-sandbox/jail/policy"
)

// maxDepth bounds the depth of directories: each level holds two descriptors and a list of names.
const maxDepth = 1000

// maxHoles bounds the bytes of holes that one review hashes, since a sparse file may have 1 TiB.
const maxHoles = 1 << 30

// changes lists the differences between a frozen shadow and the real directory as it is now,
// directories before their entries and names in byte order. It reads the upper layer, and, with the
// caller's rights, the same paths of the real directory. A copied-up file with the same content is
// no change. The first error ends the list. live is as in CommitOptions.
func (w *Workspace) changes(ctx context.Context, live bool) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		w.mu.Lock()
		err := opening{w}.openFor(live)
		w.mu.Unlock()
		if err == nil {
			err = w.walk(ctx, func(c Change) bool { return yield(c, nil) })
		}
		if err != nil {
			yield(Change{}, w.wrap("changes", err))
		}
	}
}

// Peek is like Review, but of a layer that is not frozen, for the message right after a run:
// freezing takes some 10 ms, in which the kernel waits for readers. The jail's processes must have
// ended. The result may be used to discard the layer, but not to commit it.
func (w *Workspace) Peek(ctx context.Context) (sum Summary, digest string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.layer.mount == nil {
		return sum, "", w.wrap("peek", ErrActive)
	}
	s := newSurvey(w)
	err = opening{w}.openSource(w.meta.Caller)
	if err == nil {
		err = w.walk(ctx, func(c Change) bool { s.add(c); return true })
	}
	if err != nil {
		return Summary{}, "", w.wrap("peek", err)
	}
	return s.sum, s.digest.sum(), nil
}

// Review counts the changes and returns their digest, to pass to Commit.
func (w *Workspace) Review(ctx context.Context) (sum Summary, digest string, err error) {
	s := newSurvey(w)
	for c, err := range w.changes(ctx, false) {
		if err != nil {
			return Summary{}, "", err
		}
		w.basis.add(c)
		s.add(c)
	}
	return s.sum, s.digest.sum(), nil
}

// survey counts changes and computes their digest, one change after the other.
type survey struct {
	w      *Workspace
	sum    Summary
	digest digester
}

func newSurvey(w *Workspace) *survey {
	w.basis, w.reviewed = basis{}, nil
	return &survey{w: w, digest: newDigester()}
}

func (s *survey) add(c Change) {
	if len(s.w.reviewed) < maxReviewed {
		s.w.reviewed = append(s.w.reviewed, c)
	}
	s.sum.add(c)
	s.digest.add(c)
}

// maxReviewed bounds the changes of a review that are kept for its record.
const maxReviewed = 256

// Reviewed returns the first changes of the last Review or Peek, 256 at most.
func (w *Workspace) Reviewed() []Change { return w.reviewed }

var errStop = errors.New("stop")

// walk lists the changes of an open workspace until yield returns false. It looks with the rights
// of the caller who prepared the workspace, so the result never depends on who commits.
func (w *Workspace) walk(ctx context.Context, yield func(Change) bool) error {
	if w.meta.State.recordOnly() {
		return nil
	}
	before, err := w.home.readTaken()
	if err != nil {
		return err
	}
	for _, p := range w.dropping {
		before.add(p)
	}
	return walkWith(ctx, w, before, yield)
}

// listed returns the changes that walk yields.
func (w *Workspace) listed(ctx context.Context) (all []Change, err error) {
	err = w.walk(ctx, func(c Change) bool { all = append(all, c); return true })
	return all, err
}

// walkWith is walk, with the paths that were committed or discarded before.
func walkWith(ctx context.Context, w *Workspace, before taken, yield func(Change) bool) error {
	m := w.meta
	upper, err := w.layer.openUpper()
	if err != nil {
		return err
	}
	defer upper.Close()
	k := &walker{ctx: ctx, as: m.Caller, meta: &m, holes: maxHoles, hide: policy.Hidden(m.Hide),
		taken: before, out: newLeftOut(m, w.layer.damaged), emit: func(c Change) error {
			if !yield(c) {
				return errStop
			}
			return nil
		}}
	for path, d := range before.dropped {
		if d.Shadow == nil {
			k.out.keepAbove(string(path))
		}
	}
	if err := k.root(upper, w.source); !errors.Is(err, errStop) {
		return err
	}
	return nil
}

// walker compares an upper layer, which it opens as the daemon, with the real directory, which it
// opens as the caller.
type walker struct {
	ctx  context.Context
	as   Caller
	meta *meta
	// holes is the number of bytes of holes that may still be hashed.
	holes int64
	// in is the current directory.
	in *inside
	// repo is the innermost repository of the current directory.
	repo  *repository
	last  lastHashed
	hide  policy.Names
	out   leftOut
	taken taken
	// later are discarded directories above the current one, not emitted yet; see sendLater.
	later []Change
	emit  func(Change) error
}

// lastHashed has the findings in the new content of the change that was hashed last.
type lastHashed struct {
	findings findings
	// tokens are the credentials found in the content.
	tokens *scanner
}

func (k *walker) root(upper *upperDir, real *os.File) error {
	ust, err := upper.stat()
	if err != nil {
		return err
	}
	rst, err := sys.Fstat(real)
	if err != nil {
		return err
	}
	// The upper root is a copy of the real one at the time of Prepare, so only a difference from
	// that is the tool's.
	if !k.out.paths[""] && ust.Perm() != k.meta.Mode && ust.Perm() != rst.Perm() {
		c := Change{Kind: Mode, Before: nodeOf(rst), After: nodeOf(ust), seen: rst}
		s, ok := k.taken.all[""]
		switch {
		case ok:
			c.Conflict = s.since(c.Before)
		case rst.Perm() != k.meta.Mode:
			c.Conflict = "the mode of the real directory has changed"
		}
		if !k.unchanged(real, "", c.After) && !k.discarded("", c.After) {
			if err := k.send(&c); err != nil {
				return err
			}
		}
	}
	if k.repo, err = k.repositoryIn(upper, real, ""); err != nil {
		return err
	}
	return k.dir(upper, real, "", 0)
}

// dir compares the entries of a directory of the upper layer with the real directory below it, or
// with nothing if real is nil.
func (k *walker) dir(upper *upperDir, real *os.File, path string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%w: %d levels at %.100s…", errTooDeep, depth, Name(path))
	}
	names, err := upper.names()
	if err != nil {
		return err
	}
	if real != nil {
		if upper.opaque {
			// Another directory had been deleted before this one was made.
			hidden, err := k.list(real)
			if err != nil {
				return err
			}
			names = append(names, hidden...)
		}
		names = append(names, k.taken.names[path]...)
	}
	slices.Sort(names)
	in := &inside{k: k, upper: upper, real: real, names: names}
	outer := k.in
	k.in = in
	defer func() { k.in = outer }()
	for _, name := range slices.Compact(names) {
		if err := k.ctx.Err(); err != nil {
			return err
		}
		if err := k.entry(upper, real, path, name, depth); err != nil {
			return err
		}
	}
	return nil
}

// lookAs calls f, which reads the directory real, with the caller's rights, and returns its
// results. If the caller owns real but its mode forbids the access, f runs as the daemon: the owner
// could change the mode.
func lookAs[T any](k *walker, real *os.File, f func() (T, error)) (T, error) {
	out, err := doAs(k.as, f)
	if errors.Is(err, fs.ErrPermission) {
		if st, statErr := sys.Fstat(real); statErr == nil && st.UID == k.as.UID {
			return f()
		}
	}
	return out, err
}

func (k *walker) list(real *os.File) ([]string, error) {
	return lookAs(k, real, func() ([]string, error) { return namesIn(real) })
}

// lookup returns the stat of an entry of the real directory, nil if there is none.
func (k *walker) lookup(real *os.File, name string) (*sys.Stat, error) {
	if real == nil {
		return nil, nil
	}
	st, err := lookAs(k, real, func() (sys.Stat, error) {
		// Not a plain stat, which would look across a mount.
		f, err := sys.OpenPath(real, name)
		if err != nil {
			return sys.Stat{}, err
		}
		defer f.Close()
		return sys.Fstat(f)
	})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case errors.Is(err, syscall.EXDEV):
		return nil, fmt.Errorf("%s: has become a mount point", Name(real.Name()+"/"+name))
	case err != nil:
		return nil, err
	}
	return &st, nil
}

func (k *walker) entry(upper *upperDir, real *os.File, path, name string, depth int) error {
	path = join(path, name)
	if k.out.damaged[path] {
		k.repo.damage(path)
		// The tool's result is not known.
		return nil
	}
	if k.out.paths[path] {
		return nil
	}
	before, err := k.lookup(real, name)
	if err != nil {
		return err
	}
	at, after, err := upper.find(name)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && whiteout(after):
		if before == nil {
			// Deleted on both sides.
			return nil
		}
		if k.unchanged(real, path, nil) {
			// The commit deleted the path, and somebody has made it again.
			return nil
		}
		return k.deleted(real, name, path, *before, depth)
	case err != nil:
		return err
	case before != nil && typeOf(*before) == Dir && typeOf(after) != Dir && k.out.above[path]:
		// The directory stays, so nothing can take its place.
		return nil
	}
	c, err := k.compare(at, real, name, path, before, after)
	if err != nil {
		return err
	}
	later := false
	if c != nil && (k.unchanged(real, path, c.After) || k.discarded(path, c.After)) {
		switch {
		case typeOf(after) != Dir:
			return nil
		case before != nil && typeOf(*before) == Dir:
			// Its mode is all that differs.
			c = nil
		default:
			later = k.discarded(path, c.After)
		}
	}
	sub, realSub, err := k.openBoth(upper, real, name, before, after)
	if err != nil {
		return err
	}
	defer sub.Close()
	defer closeAll(realSub)
	outer := k.repo
	defer func() { k.repo = outer }()
	if sub != nil {
		if k.repo, err = k.repositoryIn(sub, realSub, path); err != nil {
			return err
		}
	}
	if c != nil {
		if err := k.in.risks(c, name); err != nil {
			return err
		}
		if later {
			defer k.sendLater(c)()
		} else if err := k.send(c); err != nil {
			return err
		}
	}
	if sub != nil {
		return k.dir(sub, realSub, path, depth+1)
	}
	if before != nil && typeOf(*before) == Dir {
		return k.deletedBelow(real, name, path, depth)
	}
	return nil
}

// openBoth opens both sides of an entry that is a directory in the shadow. sub is nil if it is not
// one there, realSub if it is not one in the real directory.
func (k *walker) openBoth(upper *upperDir, real *os.File, name string, before *sys.Stat,
	after sys.Stat) (sub *upperDir, realSub *os.File, err error) {
	if typeOf(after) != Dir {
		return nil, nil, nil
	}
	if sub, err = upper.sub(name); err != nil {
		return nil, nil, err
	}
	if before != nil && typeOf(*before) == Dir {
		if realSub, err = k.openDir(real, name); err != nil {
			sub.Close()
			return nil, nil, err
		}
	}
	return sub, realSub, nil
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

func (k *walker) openDir(real *os.File, name string) (*os.File, error) {
	return lookAs(k, real, func() (*os.File, error) { return sys.OpenSubdirPath(real, name) })
}

// deleted emits the deletion of a path and of everything beneath it in the real directory.
func (k *walker) deleted(real *os.File, name, path string, st sys.Stat, depth int) error {
	if k.out.paths[path] || k.discarded(path, nil) {
		return nil
	}
	if k.out.above[path] && typeOf(st) == Dir {
		return k.deletedBelow(real, name, path, depth)
	}
	c := Change{Path: Name(path), Kind: Deleted, Before: nodeOf(st), seen: st}
	var err error
	if c.Before.Type == Link {
		if c.Before.Target, err = k.readlink(real, name); err != nil {
			return err
		}
	}
	if c.Conflict, err = k.conflictAt(path, real, st, c.Before); err != nil {
		return err
	}
	if err := k.send(&c); err != nil || c.Before.Type != Dir {
		return err
	}
	return k.deletedBelow(real, name, path, depth)
}

func (k *walker) deletedBelow(real *os.File, name, path string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%w: %d levels at %.100s…", errTooDeep, depth, Name(path))
	}
	sub, err := k.openDir(real, name)
	if err != nil {
		return err
	}
	defer sub.Close()
	outer := k.repo
	defer func() { k.repo = outer }()
	if k.repo, err = k.repositoryIn(nil, sub, path); err != nil {
		return err
	}
	names, err := k.list(sub)
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		if err := k.ctx.Err(); err != nil {
			return err
		}
		st, err := k.lookup(sub, name)
		if err != nil || st == nil {
			if err != nil {
				return err
			}
			continue
		}
		if err := k.deleted(sub, name, join(path, name), *st, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// conflict says that the real path changed since Prepare, "" if it did not. It compares the ctime,
// which only the kernel sets. That clock has the resolution of the timer tick, so a change of the
// last few milliseconds before Prepare counts as a later one.
func (k *walker) conflict(st sys.Stat) string {
	if st.Ctime.Compare(k.meta.Since) < 0 || k.meta.Touched[st.Ino] == st.Ctime {
		return ""
	}
	return fmt.Sprintf("the real %s was changed since the run began", typeOf(st))
}

// inside has the names in one directory of the shadow, to find names that some file systems take
// for the same. It is computed on demand.
type inside struct {
	k     *walker
	upper *upperDir
	real  *os.File
	// names are those in the upper layer.
	names []string
	// all are the names of both layers.
	all    []string
	byFold map[uint64]int32
}

var foldSeed = maphash.MakeSeed()

// risks adds to c the risk that another name in the directory is the same for some file systems.
func (in *inside) risks(c *Change, name string) error {
	if c.Kind == Added || becomesDir(*c) {
		other, err := in.foldsOnto(name)
		if err != nil {
			return err
		}
		if other != "" {
			c.risk(Folds, false, "some file systems take it for %s", Name(other))
		}
	}
	return nil
}

// foldsOnto returns another name in the directory that some file systems take for the same, or "".
func (in *inside) foldsOnto(name string) (string, error) {
	if in.byFold == nil {
		in.all = in.names
		if in.real != nil {
			real, err := in.k.list(in.real)
			if err != nil && !errors.Is(err, fs.ErrPermission) {
				return "", err
			}
			if len(real) > 0 {
				in.all = slices.Concat(in.names, real)
			}
		}
		in.byFold = make(map[uint64]int32, len(in.all))
		for i, n := range in.all {
			key := maphash.String(foldSeed, foldKey(n))
			if j, ok := in.byFold[key]; !ok {
				in.byFold[key] = int32(i)
			} else if j < 0 || in.all[j] != n {
				// -1 is several.
				in.byFold[key] = -1
			}
		}
	}
	i, ok := in.byFold[maphash.String(foldSeed, foldKey(name))]
	if !ok || i >= 0 && in.all[i] == name {
		return "", nil
	}
	return in.otherThan(name)
}

// otherThan returns another existing name in the directory with the same foldKey, or "".
func (in *inside) otherThan(name string) (string, error) {
	key := foldKey(name)
	for _, n := range in.all {
		if n == name || foldKey(n) != key {
			continue
		}
		there, err := in.has(n)
		if err != nil || there {
			return n, err
		}
	}
	return "", nil
}

// has reports whether the directory of the shadow has an entry of this name.
func (in *inside) has(name string) (bool, error) {
	_, st, err := in.upper.find(name)
	if err == nil {
		return !whiteout(st), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if in.upper.opaque {
		return false, nil
	}
	real, err := in.k.lookup(in.real, name)
	return real != nil, err
}

// send completes a change and emits it, after the directories of sendLater.
func (k *walker) send(c *Change) error {
	k.finish(c)
	for _, dir := range k.later {
		if err := k.emit(dir); err != nil {
			return err
		}
	}
	k.later = nil
	return k.emit(*c)
}

// sendLater has a discarded directory emitted only if there is a change in it, since a commit of
// that change needs the directory. The caller calls done when it leaves the directory.
func (k *walker) sendLater(c *Change) (done func()) {
	k.finish(c)
	n := len(k.later)
	k.later = append(k.later, *c)
	return func() { k.later = k.later[:min(n, len(k.later))] }
}

// finish sets the repository of a change, and adds the risks of its name and place.
func (k *walker) finish(c *Change) {
	c.repo = k.repo
	c.nameRisks()
	c.gitRisks()
	if c.Path != "" && k.hide.Match(string(c.Path)) {
		c.Refused, c.hidden = "the policy hides this name from the tool", true
	}
	slices.SortStableFunc(c.Risks, func(a, b Risk) int {
		switch {
		case a.Hold == b.Hold:
			return 0
		case a.Hold:
			return -1
		}
		return 1
	})
}
