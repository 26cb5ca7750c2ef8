package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// A Result says what a commit did.
type Result struct {
	ID        string   `json:"id"`        // of the commit
	Digest    string   `json:"digest"`    // of the whole change set, before it
	Committed []Change `json:"committed"` // in the order of Changes
	Held      []Held   `json:"held"`      // asked for, and left out
	State     State    `json:"state"`     // committed, or frozen where changes are left
	// Until is how long it can be reverted; NotKept says why it cannot be.
	Until   time.Time `json:"until,omitzero"`
	NotKept string    `json:"not_kept,omitempty"`
	// Left names deleted directories in which someone else put something meanwhile; they are still there, with that.
	Left []string `json:"left,omitempty"`
}

// A CommitError says why a commit stopped, and what could not be put back; nil there means that the real directory is as it was.
type CommitError struct{ Err, Undo error }

func (e *CommitError) Error() string {
	if e.Undo == nil {
		return e.Err.Error() + "; nothing was changed"
	}
	return fmt.Sprintf("%v; and it could not be undone whole: %v", e.Err, e.Undo)
}

// Unwrap gives errors.Is both.
func (e *CommitError) Unwrap() []error { return []error{e.Err, e.Undo} }

const (
	syncEach     = 16               // up to so many files are synced one by one, more with their file system
	lockPatience = 10 * time.Second // for another commit to the same directory
)

// A commit is one commit on its way.
type commit struct {
	hand
	ctx     context.Context
	w       *Workspace
	upper   *os.File
	journal *journal
	texts   map[Name]string // content that is neither side's: chosen hunks, merges
	past    *past           // of a revert: where the content comes from
}

// Commit writes the chosen changes to the real directory, all or none: everything is checked first, then written beside its place and synced,
// then moved into place; if that fails anywhere, all is moved back. A journal in the store says how far it came, for Store.Recover.
//
// Content, holes, type, permission bits and link targets are written; set-id bits, extended attributes, times and hard links within the shadow
// are not: each name becomes a file of its own. A replaced file keeps its owner, its user's attributes and its access control list, and its other
// names keep the old content; a new one belongs to the workspace's owner.
//
// What is replaced or deleted is kept as o.Keep says, for Revert.
//
// ConflictError, ProtectedError, ErrDigest, ErrNoChange, ErrBusy and ErrNoSpace say that nothing was begun.
func (w *Workspace) Commit(ctx context.Context, o CommitOptions) (Result, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r, err := w.commit(ctx, o)
	return r, w.wrap("commit", err)
}

func (w *Workspace) commit(ctx context.Context, o CommitOptions) (Result, error) {
	lock, err := w.lock()
	if err != nil {
		return Result{}, err
	}
	defer lock.Close()
	if err := w.load(); err != nil { // another process may have committed or discarded it
		return Result{}, err
	}
	if w.meta.State != Frozen {
		return Result{}, w.notFrozen()
	}
	as := w.meta.Caller
	if o.As != nil {
		as = *o.As
	}
	if err := w.open(w.meta.Caller); err != nil {
		return Result{}, err
	}
	dirLock, err := lockDir(ctx, w.source)
	if err != nil {
		return Result{}, err
	}
	defer dirLock.Close()
	upper, err := w.openUpper()
	if err != nil {
		return Result{}, err
	}
	defer upper.Close()
	r, texts, all, err := w.decide(ctx, o)
	if err != nil {
		return r, err
	}
	closed, err := closedDirs(w.source, r.Committed, as)
	if err != nil {
		return Result{}, err
	}
	c := &commit{ctx: ctx, w: w, upper: upper, texts: texts, hand: hand{real: w.source, as: as, id: r.ID},
		journal: &journal{ID: r.ID, As: as, Digest: r.Digest, Steps: makePlan(r.Committed, closed), Complete: all, Paths: len(r.Committed)}}
	c.journal.Past, c.journal.NotKept = newPast(r.ID, r.Committed, o.Keep)
	if err := c.run(); err != nil {
		return Result{ID: r.ID, Digest: r.Digest}, err
	}
	r.Left = c.finish()
	r.State = w.meta.State
	rec := c.record()
	r.Until, r.NotKept = rec.Until, rec.NotKept
	return r, nil
}

func (w *Workspace) notFrozen() error {
	switch w.meta.State {
	case Prepared, Active:
		return ErrActive
	case Committing:
		return fmt.Errorf("%w: an earlier commit was cut off and must be recovered first", ErrState)
	}
	return fmt.Errorf("%w: it is %s", ErrState, w.meta.State)
}

// decide lists the changes and chooses; all says that nothing will be left.
func (w *Workspace) decide(ctx context.Context, o CommitOptions) (r Result, texts map[Name]string, all bool, err error) {
	if len(o.Hunks) > 0 && o.Digest == "" {
		return r, nil, false, fmt.Errorf("%w: hunks are named by number, and need the digest of the review in which they had it", ErrDigest)
	}
	var changes []Change
	d := newDigester()
	if err := w.walk(ctx, func(c Change) bool {
		changes = append(changes, c)
		d.add(c)
		return true
	}); err != nil {
		return r, nil, false, err
	}
	r = Result{ID: randomName(), Digest: d.sum()}
	if o.Digest != "" && o.Digest != r.Digest {
		return r, nil, false, fmt.Errorf("%w: %s was reviewed, there is %s", ErrDigest, o.Digest, r.Digest)
	}
	texts, parts, err := w.rewrite(changes, o)
	if err != nil {
		return r, nil, false, err
	}
	chosen, err := choose(changes, o)
	if err != nil {
		return r, nil, false, err
	}
	r.Committed, r.Held = chosen.taken()
	if len(r.Committed) == 0 && len(r.Held) > 0 {
		return r, nil, false, &ProtectedError{r.Held}
	}
	return r, texts, len(r.Committed) == len(changes) && parts == 0, enoughRoom(w.source, r.Committed)
}

// rewrite makes of the changes that hunks are chosen of, and of conflicts that are to be merged, changes to other contents than the shadow's: texts. parts is of how
// many files some hunks are left.
func (w *Workspace) rewrite(changes []Change, o CommitOptions) (texts map[Name]string, parts int, err error) {
	texts = map[Name]string{}
	found := 0
	for i, c := range changes {
		take, some := o.Hunks[c.Path]
		if some {
			found++
			part, text, whole, err := w.takeHunks(c, take)
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
		merged, text, why, err := w.merge(c)
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

// closedDirs finds the directories above the changes that are closed to the caller although they are his, as the mode 0555 is. The tool opened and closed
// them again, or an earlier commit of a part closed them.
func closedDirs(real *os.File, changes []Change, as Caller) (map[Name]sys.Stat, error) {
	closed := map[Name]sys.Stat{}
	seen := map[string]bool{}
	changesMode := map[Name]bool{}
	for _, c := range changes {
		changesMode[c.Path] = c.Kind == Mode || leavesDir(c) // or goes as a whole
	}
	for _, c := range changes {
		for dir := parentOf(string(c.Path)); as.UID != 0 && !seen[dir]; dir = parentOf(dir) {
			seen[dir] = true
			if changesMode[Name(dir)] {
				continue
			}
			f, err := openDir(real, dir)
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) {
				continue // it comes with the commit
			}
			if err != nil {
				return nil, err
			}
			st, err := sys.Fstat(f)
			f.Close()
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
		err = fmt.Errorf("%w: the changes need %s beside what they replace, %s has %s left", ErrNoSpace, size(need), Name(dir.Name()), size(free))
	}
	return err
}

// lockDir takes the lock that keeps commits to one directory apart. It is the daemon's, so that it does not need the right to list it.
func lockDir(ctx context.Context, dir *os.File) (*os.File, error) {
	f, err := sys.Reopen(dir, os.O_RDONLY|syscall.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	for {
		err := sys.Lock(f, true)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			f.Close()
			return nil, err
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("%w: of the same directory", ErrBusy)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// run carries the plan out. On error the real directory is as it was, or CommitError says what is not.
func (c *commit) run() error {
	if err := removeAt(c.w.dir, journalName); err != nil { // of a commit that is over
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
		return &CommitError{err, c.rollback()}
	}
	if err := c.write(); err != nil {
		return &CommitError{err, c.rollback()}
	}
	return nil
}

func (c *commit) write() error {
	steps := c.journal.Steps
	opened := 0 // the directories that are opened up, so that there can be staged in them
	for opened < len(steps) && steps[opened].Op == opChmod && steps[opened].Mode&0o700 == 0o700 {
		if err := c.w.store.reach("open up", opened); err != nil {
			return err
		}
		if err := c.apply(opened, steps[opened]); err != nil {
			return err
		}
		opened++
	}
	for i := range steps {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		if err := c.w.store.reach("stage", i); err != nil {
			return err
		}
		if err := c.stage(i); err != nil {
			return err
		}
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
		if err := c.apply(i, steps[i]); err != nil {
			return err
		}
	}
	if err := errors.Join(c.w.store.reach("done", 0), c.sync()); err != nil {
		return err
	}
	return c.save(done)
}

// linkChmods tells the steps that set the mode of a new directory which inode that is.
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
