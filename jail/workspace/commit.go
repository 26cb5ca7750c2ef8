package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// Result is the result of a commit.
type Result struct {
	// ID of the commit.
	ID string `json:"id"`
	// Digest of the whole change set, before the commit.
	Digest string `json:"digest"`
	// Committed changes, in the order of Changes.
	Committed []Change `json:"committed"`
	// Held are changes that were asked for and left out.
	Held []Held `json:"held"`
	// Git describes the ref that a commit with GitOnly took.
	Git string `json:"git,omitempty"`
	// State is committed, or frozen if changes are left.
	State State `json:"state"`
	// Until is the time until which the commit can be reverted.
	Until time.Time `json:"until,omitzero"`
	// NotKept says why the commit cannot be reverted.
	NotKept string `json:"not_kept,omitempty"`
	// Left describes deleted directories that still exist, since someone else put something into
	// them meanwhile.
	Left []string `json:"left,omitempty"`
}

// commitError says why a commit failed, and what could not be undone. undo is nil if the real
// directory is as it was.
type commitError struct{ err, undo error }

func (e *commitError) Error() string {
	if e.undo == nil {
		return e.err.Error() + "; nothing was changed"
	}
	return fmt.Sprintf("%v; and it could not be undone whole: %v", e.err, e.undo)
}

// Unwrap gives errors.Is both errors.
func (e *commitError) Unwrap() []error { return []error{e.err, e.undo} }

// syncEach is the number of steps up to which files are synced one by one, instead of by syncfs(2).
const syncEach = 16

// commit is a commit in progress.
type commit struct {
	hand    hand
	ctx     context.Context
	w       *Workspace
	upper   *upperDir
	journal *journal
	// texts are contents that neither side has: chosen hunks and merges.
	texts map[Name]string
	// past is the source of the content of a revert.
	past *past
	// spare are descriptors in reserve; see hold.
	spare []*os.File
	// progress receives the number of completed actions: each step is staged, applied and cleaned
	// up.
	progress func(done, total int)
}

// Commit writes the chosen changes to the real directory, all or none. It first checks all changes,
// then writes and syncs new content under temporary names, then moves it into place. If an action
// fails, it moves everything back. A journal in the store has the progress, for Store.Recover.
//
// It writes content, holes, type, permission bits and link targets. It does not write set-id bits,
// extended attributes, times and hard links within the shadow: each name becomes a file of its own.
// A replaced file keeps its owner, its user attributes and its ACL, and its other links keep the
// old content. A new file belongs to the workspace's owner.
//
// It keeps replaced and deleted content for Revert, as o.Keep says.
//
// After ConflictError, protectedError, ErrDigest, ErrNoChange, ErrBusy and ErrNoSpace nothing has
// changed.
func (w *Workspace) Commit(ctx context.Context, o CommitOptions) (Result, error) {
	return locking(w, "commit", func() (Result, error) { return w.commit(ctx, o) })
}

func (w *Workspace) commit(ctx context.Context, o CommitOptions) (Result, error) {
	lock, err := opening{w}.locked(o.Live)
	if err != nil {
		return Result{}, err
	}
	defer lock.Close()
	live := w.meta.State != Frozen
	dirLock, err := lockDir(ctx, w.source)
	if err != nil {
		return Result{}, err
	}
	defer dirLock.Close()
	upper, err := w.layer.openUpper()
	if err != nil {
		return Result{}, err
	}
	defer upper.Close()
	before, err := w.home.readTaken()
	if err != nil {
		return Result{}, err
	}
	d, err := decision{w: w, taken: before}.decide(ctx, o)
	r := d.result
	if err != nil {
		return r, err
	}
	if len(r.Committed) == 0 && (live || len(r.Held) > 0 || o.Auto || len(w.meta.Commits) > 0) {
		// The commit is not recorded, or the next revert would undo this empty commit.
		r.ID = ""
		if d.all && !live {
			err = w.conclude()
		}
		r.State = w.meta.State
		return r, err
	}
	keeps, err := keepsTaken(w, live)
	if err != nil {
		return Result{}, err
	}
	c, err := newCommit(ctx, w, o.As, journal{ID: r.ID, Digest: r.Digest,
		Complete: d.all && !live}, r.Committed)
	if err != nil {
		return Result{}, err
	}
	c.upper, c.texts, c.progress = upper, d.texts, o.Progress
	if keeps {
		taken := r.Committed
		if o.GitOnly != nil {
			taken = d.ofShadow(taken)
		}
		c.journal.Taken = takenBy(taken, d.shadow, o.Hunks)
	}
	since, err := sys.CoarseNow()
	if err != nil {
		return Result{}, err
	}
	c.journal.Past, c.journal.NotKept = newPast(r.ID, r.Committed, o.Keep, since)
	defer c.release()
	if live {
		if err := c.saveCommitted(); err != nil {
			return Result{}, err
		}
	}
	if o.Begin != nil {
		if err := o.Begin(); err != nil {
			return Result{}, err
		}
	}
	if err := c.run(); err != nil {
		return Result{ID: r.ID, Digest: r.Digest}, err
	}
	r.Left = c.finish()
	r.State = w.meta.State
	rec := c.record()
	r.Until, r.NotKept = rec.Until, rec.NotKept
	return r, nil
}

// newCommit returns a commit, or revert, of the changes with the rights of as. If as is nil, it
// uses the rights of the caller who prepared the workspace.
func newCommit(ctx context.Context, w *Workspace, as *Caller, j journal, changes []Change) (*commit,
	error) {
	j.As, j.Paths = w.meta.Caller, len(changes)
	if as != nil {
		j.As = *as
	}
	closed, err := closedDirs(w.source, changes, j.As)
	if err != nil {
		return nil, err
	}
	j.Steps = makePlan(changes, closed)
	return &commit{ctx: ctx, w: w, journal: &j, hand: hand{real: w.source, as: j.As, id: j.ID}}, nil
}

// Conclude sets the state of a frozen workspace to Committed after all its changes were committed
// while it was live. It removes the layer, and keeps the replaced content for Revert.
func (w *Workspace) Conclude() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	lock, err := w.home.lock()
	if err != nil {
		return w.wrap("conclude", err)
	}
	defer lock.Close()
	if err = w.load(); err == nil && w.meta.State != Frozen {
		err = w.meta.notFrozen()
	}
	if err == nil {
		err = w.conclude()
	}
	return w.wrap("conclude", err)
}

func (w *Workspace) conclude() error {
	layered := len(w.meta.Layers) > 0
	w.meta.commit()
	return errors.Join(w.save(true), dropLayer(w, layered))
}

// dropLayer removes the layer of a Committed workspace. layered: it had frozen layers, so unused
// ones are swept.
func dropLayer(w *Workspace, layered bool) error {
	err := removeAt(w.home.dir, "upper.img")
	if layered {
		// The commit is made. A layer that is not removed now is swept later.
		_ = (layerStore{w.store}).sweepUnused()
	}
	return err
}

// commit sets the state to Committed and forgets the layers.
func (m *meta) commit() {
	m.State, m.Touched = Committed, nil
	m.Format, m.Layers, m.Bare = 0, nil, false
}

// notFrozen returns the error for a workspace that is not frozen, but has to be.
func (m meta) notFrozen() error {
	switch m.State {
	case Prepared, Active:
		return ErrActive
	case Committing:
		return fmt.Errorf("%w: an earlier commit was cut off and must be recovered first", ErrState)
	}
	return fmt.Errorf("%w: it is %s", ErrState, m.State)
}

// decision chooses the changes of a commit or merge, and their content.
type decision struct {
	w     *Workspace
	taken taken
	// into has the branch and the parent of a merge; nil for a commit.
	into *mergeSides
}

// changes lists the changes to choose from.
func (d decision) changes(ctx context.Context) ([]Change, error) {
	if d.into != nil {
		return d.into.changes(ctx, d.w)
	}
	return d.w.listed(ctx)
}

// decided is the result of decision.decide.
type decided struct {
	result Result
	// texts are contents that neither side has.
	texts map[Name]string
	// shadow has the tool's sides of all changes.
	shadow map[Name]*Node
	// all is true if no change will be left.
	all bool
	// branch is the ref that a commit with GitOnly changes.
	branch GitRef
}

// decide lists the changes and chooses those to commit. It returns an error if none may be.
func (d decision) decide(ctx context.Context, o CommitOptions) (out decided, err error) {
	if len(o.Hunks) > 0 && o.Digest == "" {
		return out, fmt.Errorf("%w: hunk numbers need the digest of the review that listed them",
			ErrDigest)
	}
	changes, err := d.changes(ctx)
	if err != nil {
		return out, err
	}
	out.shadow = map[Name]*Node{}
	for _, c := range changes {
		out.shadow[c.Path] = c.After
	}
	out.result = Result{ID: randomName(), Digest: digestOf(changes)}
	r := &out.result
	if o.Digest != "" && o.Digest != r.Digest {
		return out, fmt.Errorf("%w: %s was reviewed, there is %s", ErrDigest, o.Digest, r.Digest)
	}
	if o.GitOnly != nil {
		err := d.decideGit(ctx, &out, changes, o)
		return out, err
	}
	parts := 0
	if out.texts, parts, err = d.rewrite(changes, o); err != nil {
		return out, err
	}
	chosen, err := choose(changes, o)
	if err != nil {
		return out, err
	}
	r.Committed, r.Held = chosen.taken()
	if len(r.Committed) == 0 && len(r.Held) > 0 && !o.Auto {
		if err := chosen.nothingTaken(r.Held, o); err != nil {
			return out, err
		}
	}
	if !o.Theirs {
		locked, err := d.gitConflicts(ctx, r.Committed)
		if err == nil && locked != nil && o.Auto {
			o.gitBusy = true
			if chosen, err = choose(changes, o); err == nil {
				r.Committed, r.Held = chosen.taken()
			}
		} else if err == nil && locked != nil {
			err = &ConflictError{Conflicts: locked}
		}
		if err != nil {
			return out, err
		}
	}
	out.all = len(r.Committed) == len(changes) && parts == 0
	return out, enoughRoom(d.w.source, r.Committed)
}

// rewrite replaces, in changes, files with chosen hunks and conflicts to merge by changes to new
// contents, which it returns as texts. parts counts the files of which some hunks are left.
func (d decision) rewrite(changes []Change, o CommitOptions) (texts map[Name]string, parts int,
	err error) {
	texts = map[Name]string{}
	if err := d.clearIndexes(changes, texts); err != nil {
		return nil, 0, err
	}
	found := 0
	for i, c := range changes {
		take, some := o.Hunks[c.Path]
		if some {
			found++
			part, text, whole, err := d.takeHunks(c, take)
			if err != nil {
				return nil, 0, err
			}
			if !whole {
				texts[c.Path] = text
				parts++
			}
			changes[i] = part
		}
		if c.Conflict == "" || !o.Merge || some {
			continue
		}
		merged, text, why, err := d.merge(c)
		if err != nil {
			return nil, 0, err
		}
		if why != "" {
			changes[i].Conflict += "; " + why
			continue
		}
		texts[c.Path], changes[i] = text, merged
	}
	if found < len(o.Hunks) {
		for path := range o.Hunks {
			if !slices.ContainsFunc(changes, func(c Change) bool { return c.Path == path }) {
				return nil, 0, fmt.Errorf("%s: %w", path, ErrNoChange)
			}
		}
	}
	return texts, parts, nil
}

// closedDirs returns the directories above the changes that the caller owns but cannot write to,
// with mode 0555 for example. The tool made them writable and read-only again, or an earlier commit
// of a part gave them that mode.
func closedDirs(real *os.File, changes []Change, as Caller) (map[Name]sys.Stat, error) {
	closed := map[Name]sys.Stat{}
	seen := map[string]bool{}
	changesMode := map[Name]bool{}
	for _, c := range changes {
		// The step for such a path sets the mode itself, or removes the directory.
		changesMode[c.Path] = c.Kind == Mode || leavesDir(c)
	}
	for _, c := range changes {
		for dir := parentOf(string(c.Path)); as.UID != 0 && !seen[dir]; dir = parentOf(dir) {
			seen[dir] = true
			if changesMode[Name(dir)] {
				continue
			}
			st, err := statDir(real, dir)
			if missing(err) {
				// The commit makes it.
				continue
			}
			if err != nil {
				return nil, err
			}
			if st.UID == as.UID && st.Mode&0o300 != 0o300 {
				closed[Name(dir)] = st
			}
		}
	}
	return closed, nil
}

func enoughRoom(dir *os.File, changes []Change) error {
	var need int64
	for _, c := range changes {
		if c.After != nil && c.After.Type == File {
			need += c.After.Size
		}
	}
	free, err := sys.FreeBytes(dir)
	if err == nil && need > free {
		err = fmt.Errorf("%w: the changes need %s beside the replaced content, %s has %s left",
			ErrNoSpace, size(need), Name(dir.Name()), size(free))
	}
	return err
}

// lockDir takes the lock that serializes commits to one directory. It opens the directory as the
// daemon, since the caller may have no right to list it.
func lockDir(ctx context.Context, dir *os.File) (*os.File, error) {
	f, err := sys.Reopen(dir, os.O_RDONLY|syscall.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	err = retry(ctx, fmt.Errorf("%w: of the same directory", ErrBusy), func() error {
		return lockOr(errRetry, f, true)
	})
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// run executes the steps. After an error the real directory is as it was, unless a commitError says
// what could not be undone.
func (c *commit) run() error {
	if err := c.hold(); err != nil {
		return err
	}
	// The journal of an earlier commit may be left.
	if err := removeAt(c.w.home.dir, journalName); err != nil {
		return err
	}
	c.w.meta.From, c.w.meta.State = c.w.meta.State, Committing
	err := c.w.save(true)
	if err == nil {
		err = c.w.store.reach("begin", 0)
	}
	if err == nil {
		err = c.save(staging)
	}
	if err != nil {
		return &commitError{err, c.undone()}
	}
	if err := c.write(); err != nil {
		return &commitError{err, c.undone()}
	}
	return nil
}

func (c *commit) write() error {
	steps := c.journal.Steps
	// opened counts the directories that are made writable for staging.
	opened := 0
	for opened < len(steps) && steps[opened].Op == opChmod && steps[opened].Mode&0o700 == 0o700 {
		if err := c.w.store.reach("open up", opened); err != nil {
			return err
		}
		if err := c.hand.apply(opened, steps[opened]); err != nil {
			return err
		}
		opened++
	}
	if err := c.holdRest(); err != nil {
		return err
	}
	for i := range steps {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		if err := c.w.store.reach("stage", i); err != nil {
			return err
		}
		if err := (stager{c}).stage(i); err != nil {
			return err
		}
		c.done(i)
	}
	c.linkChmods()
	if err := c.sync(); err != nil {
		return err
	}
	if err := c.save(applying); err != nil {
		return err
	}
	for i := opened; i < len(steps) && !steps[i].Close; i++ {
		if err := c.w.store.reach("apply", i); err != nil {
			return err
		}
		if err := c.hand.apply(i, steps[i]); err != nil {
			return err
		}
		c.done(len(steps) + i)
	}
	if err := errors.Join(c.w.store.reach("done", 0), c.sync(),
		c.hand.inPlace(slices.Collect(maps.Keys(c.hand.held))...)); err != nil {
		return err
	}
	return c.save(done)
}

// done reports to progress that action i is complete.
func (c *commit) done(i int) {
	if c.progress != nil {
		c.progress(i+1, 3*len(c.journal.Steps))
	}
}

// linkChmods sets, in each step that sets the mode of a new directory, the inode of the directory.
func (c *commit) linkChmods() {
	made := map[Name]uint64{}
	for i := range c.journal.Steps {
		s := &c.journal.Steps[i]
		if s.Op == opCreate {
			made[s.Path] = s.Staged
		} else if s.Op == opChmod && s.Old == nil {
			s.Staged = made[s.Path]
		}
	}
}

// sync writes the changed directories to the disk, and while staging also the new content.
func (c *commit) sync() error {
	if len(c.journal.Steps) > syncEach {
		return c.syncAll()
	}
	paths := map[Name]bool{}
	for i, s := range c.journal.Steps {
		paths[s.Near], paths[Name(parentOf(string(s.Path)))] = true, true
		if c.journal.Phase == staging && (s.Op == opCreate || s.Op == opReplace) {
			paths[Name(join(string(s.Near), c.hand.temp(i)))] = true
		}
	}
	var err error
	for path := range paths {
		err = errors.Join(err, c.syncPath(path))
	}
	return err
}

// syncPath syncs a file or directory, as the daemon, if it exists.
func (c *commit) syncPath(path Name) error {
	at, err := c.hand.open(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	if err != nil {
		return err
	}
	defer at.Close()
	st, err := sys.Fstat(at)
	if err != nil || typeOf(st) != File && typeOf(st) != Dir {
		return err
	}
	f, err := sys.Reopen(at, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

func (c *commit) syncAll() error {
	f, err := sys.Reopen(c.hand.real, os.O_RDONLY|syscall.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer f.Close()
	return sys.Syncfs(f)
}
