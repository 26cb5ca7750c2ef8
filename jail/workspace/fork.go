package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

const (
	// maxForkDepth bounds the depth of branches: forks of forks of a workspace that is no branch.
	maxForkDepth = 16
	// MaxBranches is how many branches one workspace may have.
	MaxBranches = 32
)

var (
	// ErrBranches means that a workspace cannot be removed because its branches need its layers.
	ErrBranches = errors.New("it has branches")
	// ErrForks means that a fork would exceed maxForkDepth, MaxBranches or maxLayers.
	ErrForks = errors.New("no more branches")
	// ErrNoBranch means that a workspace to merge is no branch.
	ErrNoBranch = errors.New("the workspace is no branch")
)

// Branches forks and merges workspaces of a store.
type Branches struct{ s *Store }

// BranchesOf returns the Branches of a store.
func BranchesOf(s *Store) Branches { return Branches{s} }

// forking has the steps of a fork or merge on one workspace.
type forking struct{ w *Workspace }

// fork says where a branch comes from.
type fork struct {
	Parent string `json:"parent"`
	Depth  int    `json:"depth"`
	// Since is the time of the fork. A path with this ctime or a later one has changed since.
	Since sys.Time `json:"since"`
	// Base is the number of frozen layers of the branch that were the parent's.
	Base int `json:"base"`
}

// Fork makes the branch id of the frozen workspace parent: a frozen, resumable workspace of the
// same directory with the same content. The parent's layers are shared. Resume makes a new layer
// above them for each of the two. The time does not depend on the size of the workspace. An
// interrupted Fork has made the branch or not, and changes no content of parent.
//
// The error is ErrActive if a jail may write to parent, ErrState if parent is damaged, partly
// discarded, of another user, or of a user's own daemon, and ErrForks beyond a limit.
func (b Branches) Fork(ctx context.Context, parent, id string, as Caller) (Info, error) {
	s := b.s
	if checkID(id) != nil {
		return Info{}, fmt.Errorf("workspace %q: is no id", id)
	}
	w, err := s.Get(parent)
	if err != nil {
		return Info{}, err
	}
	defer w.Close()
	info, err := (forking{w}).fork(ctx, id, as)
	return info, w.wrap("fork", err)
}

func (f forking) fork(ctx context.Context, id string, as Caller) (Info, error) {
	w := f.w
	unlock, err := f.quiesce(ctx, as)
	if err != nil {
		return Info{}, err
	}
	defer unlock()
	depth := 1
	if w.meta.Fork != nil {
		depth = w.meta.Fork.Depth + 1
	}
	branches, err := BranchesOf(w.store).of(w.meta.ID)
	switch {
	case err != nil:
		return Info{}, err
	case depth > maxForkDepth:
		return Info{}, fmt.Errorf("%w: a branch may be %d forks deep: merge branches, or fork one that "+
			"is less deep", ErrForks, maxForkDepth)
	case len(branches) >= MaxBranches:
		return Info{}, fmt.Errorf("%w: a workspace may have %d: discard some", ErrForks, MaxBranches)
	}
	if _, err := sys.LstatAt(w.store.dir, id); !errors.Is(err, fs.ErrNotExist) {
		return Info{}, cmp.Or(err, errExists)
	}
	if err := f.makeRoom(ctx, 1); err != nil {
		return Info{}, err
	}
	if !w.meta.Forked && w.meta.Bare {
		w.meta.Forked = true
		if err := w.save(true); err != nil {
			return Info{}, err
		}
	}
	w.meta.Forked = true
	if err := f.freezeOwn(ctx, nil); err != nil {
		return Info{}, err
	}
	return f.branch(id, depth)
}

// quiesce takes the locks of a frozen workspace, so that nobody resumes, commits or discards it
// until unlock. It returns an error if a jail uses it or it may not be forked.
func (f forking) quiesce(ctx context.Context, as Caller) (unlock func(), err error) {
	w := f.w
	if sys.Rootless() {
		return nil, fmt.Errorf("%w: a user's own daemon keeps layers in memory, and these cannot be "+
			"frozen: use a daemon of root", ErrState)
	}
	if err := (resumption{w}).lockWriter(ctx); err != nil {
		return nil, err
	}
	lock, err := w.home.lock()
	if err != nil {
		return nil, err
	}
	release, err := w.store.hold(false)
	if err == nil {
		err = w.load()
	}
	if err == nil {
		err = w.meta.forkable(as)
	}
	if err != nil {
		lock.Close()
		if release != nil {
			release()
		}
		return nil, err
	}
	return func() { release(); lock.Close() }, nil
}

func (m meta) forkable(as Caller) error {
	boot, err := sys.BootID()
	switch {
	case err != nil:
		return err
	case m.Caller.UID != as.UID:
		return fmt.Errorf("%w: it is another user's", ErrState)
	case m.State != Frozen:
		return m.notFrozen()
	case m.Boot != "" && m.Boot != boot:
		return errLost
	case len(m.Damaged) > 0:
		return fmt.Errorf("%w: a part of it did not reach the disk", ErrState)
	case len(m.Dropped) > 0:
		return fmt.Errorf("%w: a part of it was discarded, so it is kept for a review alone", ErrState)
	}
	return nil
}

// freezeOwn turns the workspace's own layer into a frozen one, and puts the frozen layers above on
// top of it. One replacement of meta.json makes the change.
func (f forking) freezeOwn(ctx context.Context, above []string) error {
	w := f.w
	m := w.meta
	layers := m.Layers
	if !m.Bare {
		id, err := f.linkOwn(ctx)
		if err != nil {
			return err
		}
		layers = append([]string{id}, layers...)
	} else if len(above) == 0 {
		return nil
	}
	w.meta.Layers, w.meta.Bare, w.meta.Boot = slices.Concat(above, layers), true, ""
	w.meta.Format = metaFormat
	if err := errors.Join(w.store.dir.Sync(), w.store.reach("freeze", 1)); err != nil {
		w.meta = m
		return err
	}
	if err := w.save(true); err != nil {
		w.meta = m
		return err
	}
	if err := w.store.reach("freeze", 2); err != nil {
		return err
	}
	return errors.Join(w.layer.close(), removeAt(w.home.dir, "upper.img"))
}

// linkOwn makes a hard link to the workspace's image as a new frozen layer, and returns its id.
func (f forking) linkOwn(ctx context.Context) (id string, err error) {
	w := f.w
	if err := f.settleOwn(ctx); err != nil {
		return "", err
	}
	if err := (opening{w}).mountAgain(); err != nil {
		return "", err
	}
	if len(w.layer.damaged) > 0 {
		return "", fmt.Errorf("%w: a part of it did not reach the disk", ErrState)
	}
	bytes, inodes, err := f.limitsOfOwn()
	if err != nil {
		return "", err
	}
	used, err := usage(w.layer.mount, bytes, inodes)
	if err != nil {
		return "", err
	}
	if w.meta.Boot != "" {
		if err := w.layer.image.Sync(); err != nil {
			return "", err
		}
	}
	id = randomName()
	dir, err := w.store.makeDir(layerPrefix + id)
	if err != nil {
		return "", err
	}
	defer dir.Close()
	err = sys.LinkInode(w.layer.image, dir, "upper.img")
	if err == nil {
		err = folder{dir}.writeJSON(layerRecord, used, true)
	}
	if err == nil {
		err = w.store.reach("freeze", 0)
	}
	if err != nil {
		return "", errors.Join(err, w.store.sweep(layerPrefix+id))
	}
	return id, nil
}

// limitsOfOwn returns the limits for which the workspace's own layer was made.
func (f forking) limitsOfOwn() (bytes, inodes int64, err error) {
	bytes, inodes, err = f.room()
	if errors.Is(err, ErrLimits) {
		err = nil
	}
	return bytes, inodes, err
}

// settleOwn makes the whiteouts that Resume would make, since the layer is not resumed any more.
func (f forking) settleOwn(ctx context.Context) error {
	w := f.w
	t, err := w.home.readTaken()
	if err != nil || len(t.all) == 0 {
		return err
	}
	boot, err := sys.BootID()
	if err != nil {
		return err
	}
	r, before := resumption{w}, w.meta
	if err := r.lockImage(ctx); err != nil {
		return err
	}
	err = r.writable(boot)
	err = errors.Join(err, r.undo(before), w.store.unreserve(before.ID))
	return errors.Join(err, w.layer.close())
}

// branch makes the directory of the branch id in the store. The write of its meta.json, which is
// last, makes it a workspace.
func (f forking) branch(id string, depth int) (Info, error) {
	w := f.w
	// All writes of before have an older ctime.
	since, err := sys.CoarseNow()
	if err == nil {
		since, err = tickAfter(since)
	}
	if err != nil {
		return Info{}, err
	}
	b := &Workspace{store: w.store, meta: w.meta}
	b.meta.ID, b.meta.Resumable = id, true
	b.meta.Prepared = time.Now().UTC().Format(time.RFC3339Nano)
	b.meta.Forked, b.meta.Merged = false, nil
	b.meta.Commits, b.meta.Merges, b.meta.Untold = nil, nil, nil
	b.meta.Fork = &fork{Parent: w.meta.ID, Depth: depth, Since: since, Base: len(w.meta.Layers)}
	if b.home.dir, err = w.store.makeDir(id); err != nil {
		return Info{}, err
	}
	defer b.Close()
	for _, name := range []string{takenName, baseIndex, baseContent} {
		if err == nil {
			err = copyRecord(b.home.dir, w.home.dir, name)
		}
	}
	if err == nil {
		err = w.store.reach("fork", 0)
	}
	if err == nil {
		err = b.save(true)
	}
	if err != nil {
		return Info{}, errors.Join(err, removeAt(b.home.dir, "meta.json"), w.store.sweep(id))
	}
	return b.meta.info(), errors.Join(w.store.dir.Sync(), w.store.reach("fork", 1))
}

// copyRecord copies a small file of one workspace's directory to another's, if there is one.
func copyRecord(to, from *os.File, name string) error {
	old, err := sys.OpenBeneath(from, name, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer old.Close()
	f, err := newFile(to, name)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, old)
	return errors.Join(err, f.Sync(), f.Close())
}

// Of returns the ids of the branches of a workspace, sorted.
func (Branches) Of(w *Workspace) ([]string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	// Another object of the store may have forked it.
	m, err := readJSON[meta](w.home.dir, "meta.json")
	if err != nil || !m.Forked {
		return nil, err
	}
	return BranchesOf(w.store).of(m.ID)
}

func (b Branches) of(id string) ([]string, error) {
	s := b.s
	all, err := s.List()
	if err != nil {
		return nil, err
	}
	var found []string
	for _, info := range all {
		if info.Parent == id {
			found = append(found, info.ID)
		}
	}
	slices.Sort(found)
	return found, nil
}

// none returns an ErrBranches that names the branches of a workspace, nil if there are none.
func (b Branches) none(id string) error {
	found, err := b.of(id)
	if err == nil && len(found) > 0 {
		err = fmt.Errorf("%w: discard or merge them first: %s", ErrBranches,
			strings.Join(found, ", "))
	}
	return err
}
