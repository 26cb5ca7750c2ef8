package workspace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// phase is the progress of a commit. Recovery completes a commit in the last phase and undoes it in
// the others.
type phase string

const (
	// Writing new content under temporary names.
	staging phase = "staging"
	// Moving new content into place.
	applying phase = "applying"
	// Undoing the steps. Some may be undone already.
	undoing phase = "undoing"
	// Everything is in place; the replaced content is still under temporary names.
	done phase = "done"
)

// journal is the record of a commit or revert in progress, saved as JSON before the first change
// that it lists. It has inode numbers, by which recovery can tell whether a step was executed.
type journal struct {
	ID     string `json:"id"`
	Phase  phase  `json:"phase"`
	As     Caller `json:"as"`
	Digest string `json:"digest"`
	Paths  int    `json:"paths"`
	// Complete: no changes are left afterwards.
	Complete bool   `json:"complete"`
	Steps    []step `json:"steps"`
	// Dirs are the directories that the commit changes; a journal of an earlier version has none.
	Dirs []place `json:"dirs,omitempty"`
	// Past describes the replaced content that is kept, NotKept says why none is.
	Past    *past  `json:"past,omitempty"`
	NotKept string `json:"not_kept,omitempty"`
	// Taken are the committed paths to add to taken.json.
	Taken []takenPath `json:"taken,omitempty"`
	// Revert is the id of the commit that this one undoes, "" for none.
	Revert string `json:"revert,omitempty"`
	// Back are the indexes of the entries in the past of that commit that are reverted; none means
	// all. RevertPaths are the paths that the caller named.
	Back        []int  `json:"back,omitempty"`
	RevertPaths []Name `json:"revert_paths,omitempty"`
}

const journalName = "journal.json"

func (c *commit) save(p phase) error {
	c.journal.Phase = p
	return c.w.home.writeJSON(journalName, c.journal, true)
}

// rollback undoes the steps from the last to the first, in the held directories. If the disk fails
// or a directory is not found, it returns an error, and Recover can try again. left describes the
// paths that are not restored, since somebody else changed them meanwhile.
func (c *commit) rollback() (left []string, err error) {
	c.releaseSpare()
	again := c.journal.Phase == undoing
	// The disk may have a journal with phase done, and a crash from here on would finish the
	// commit.
	if phase := c.journal.Phase; phase != "" && !again {
		if err := c.save(undoing); err != nil && phase == done {
			return nil, c.stuck(err)
		}
	}
	var failed []error
	for i, s := range slices.Backward(c.journal.Steps) {
		undone := errors.Join(c.w.store.reach("undo", i), c.undoStep(i, s, again))
		if foreign, ok := errors.AsType[*foreignError](undone); ok {
			left = append(left, foreign.Error())
			// Lost directories are one error each.
		} else if undone != nil && !errors.As(undone, new(*lostError)) {
			failed = append(failed, undone)
		}
	}
	left = append(left, c.removed()...)
	err = errors.Join(c.lost(), someOf(failed))
	if err == nil {
		err = errors.Join(c.sync(), c.touched())
	}
	if err != nil {
		return left, c.stuck(err)
	}
	c.w.meta.settle()
	if err := errors.Join(c.w.save(true), removeAt(c.w.home.dir, journalName)); err != nil {
		return left, fmt.Errorf("%w: %w", ErrIncomplete, err)
	}
	return left, nil
}

// undoStep undoes a step, and retries if somebody is changing the same names.
func (c *commit) undoStep(i int, s step, again bool) (err error) {
	for range 5 {
		err = c.hand.undo(i, s, again)
		if !missing(err) && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return err
}

// undone calls rollback for a failed commit. Its error, an ErrIncomplete, says what was not
// restored; nil if the real directory is as it was.
func (c *commit) undone() error {
	left, err := c.rollback()
	if len(left) > 0 {
		err = errors.Join(err, fmt.Errorf("%w: %s", ErrIncomplete, listed(left)))
	}
	return err
}

// listed joins the first maxNamed sentences and the number of the others.
func listed(all []string) string {
	if more := len(all) - maxNamed; more > 0 {
		all = append(slices.Clone(all[:maxNamed]), fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, "; ")
}

// removed describes the held directories that somebody has removed.
func (c *commit) removed() (left []string) {
	there, _ := c.journal.dirs()
	for _, path := range there {
		if dir := c.hand.held[path]; dir != nil {
			if st, err := sys.Fstat(dir); err == nil && st.Nlink == 0 {
				left = append(left, (&foreignError{path: path, how: "removed"}).Error())
			}
		}
	}
	return left
}

// stuck saves why a commit can be neither finished nor undone, and returns why as an ErrIncomplete.
func (c *commit) stuck(why error) error {
	c.w.meta.Stuck = strings.ReplaceAll(why.Error(), "\n", "; ")
	err := fmt.Errorf("%w: %w", ErrIncomplete, why)
	return errors.Join(err, c.w.save(true))
}

// finish ends a successful commit: it keeps or removes the replaced content, and records the commit
// in the store. left describes what could not be removed. After a disk error the state stays
// Committing, until Recover succeeds.
func (c *commit) finish() (left []string) {
	if err := c.keep(); err != nil {
		return []string{err.Error()}
	}
	failed := false
	for i, s := range c.journal.Steps {
		if err := errors.Join(c.w.store.reach("clean", i),
			c.hand.clean(i, s, c.w.meta.touch)); err != nil {
			left = append(left, err.Error())
			failed = failed || !errors.As(err, new(*leftError))
		}
		c.done(2*len(c.journal.Steps) + i)
	}
	// After a failure temporary names may be left: the journal stays, and Recover tries again.
	if !failed {
		// If this fails, the commit is valid all the same, and Recover tries again.
		if err := c.conclude(); err != nil {
			left = append(left, err.Error())
			failed = true
		}
	}
	// An error of the store is no further failure.
	if failed {
		_ = c.stuck(errors.New(listed(left)))
	}
	return left
}

// conclude ends a commit whose steps are executed and cleaned: it sets the final modes of
// directories, saves meta.json and removes the journal.
func (c *commit) conclude() error {
	if err := c.closeDirs(); err != nil {
		return err
	}
	// Before touched saves the ctimes: this changes the ctimes of files that are linked back.
	var rest *past
	if c.journal.Revert != "" {
		var err error
		if rest, err = c.w.home.dropBack(c.journal.Revert, c.journal.Back); err != nil {
			return err
		}
	}
	// On the disk before the journal is gone.
	if err := errors.Join(c.sync(), c.touched(), c.w.home.addTaken(c.journal.Taken)); err != nil {
		return err
	}
	m := c.w.meta
	layered := len(m.Layers) > 0
	m.Stuck = ""
	if m.Commits = slices.Clone(m.Commits); c.journal.Revert != "" {
		m.finishRevert(c.journal, rest)
	} else {
		m.Commits = append(m.Commits, c.record())
		m.settle()
		if c.journal.Complete {
			m.commit()
		}
	}
	m.Untold = &untold{Commit: c.journal.ID, Digest: c.journal.Digest}
	if c.journal.Revert != "" {
		m.Untold.Commit, m.Untold.Revert = c.journal.Revert, true
		m.Untold.Paths = c.journal.RevertPaths
	}
	if m.State != Frozen && m.State != Active {
		m.Touched = nil
	}
	if err := c.w.home.writeJSON("meta.json", m, true); err != nil {
		return err
	}
	c.w.meta = m
	// A journal that is not removed is ignored from here on.
	err := removeAt(c.w.home.dir, journalName)
	if m.State == Committed {
		err = errors.Join(err, dropLayer(c.w, layered))
	}
	return err
}

// closeDirs gives directories their final modes. It may run again after a crash.
func (c *commit) closeDirs() error {
	for i, s := range c.journal.Steps {
		if !s.Close {
			continue
		}
		if err := c.w.store.reach("close", i); err != nil {
			return err
		}
		err := c.hand.chmod(s, s.Mode)
		// Somebody else may have replaced the directory.
		if err != nil && !missing(err) && !errors.Is(err, ErrConflict) && !errors.Is(err,
			fs.ErrPermission) {
			return err
		}
	}
	return nil
}

// keep moves the replaced content to the store. If that fails, the commit is valid all the same,
// and cannot be reverted.
func (c *commit) keep() error {
	j := c.journal
	if j.Past == nil {
		return nil
	}
	err := errors.Join(c.w.store.reach("keep", 0), c.keepPast())
	if err == nil {
		return nil
	}
	j.NotKept = fmt.Sprintf("it could not be: %v", err)
	// Without Past, Recover does not try again.
	j.Past = nil
	return errors.Join(c.w.home.dropPast(j.ID), c.save(done))
}

func (c *commit) record() CommitRecord {
	j := c.journal
	rec := CommitRecord{ID: j.ID, Time: time.Now().UTC(), Caller: j.As, Digest: j.Digest,
		Paths: j.Paths, NotKept: j.NotKept}
	if j.Past != nil {
		rec.Until, rec.Bytes = j.Past.Until, j.Past.Bytes
	}
	return rec
}

// touched saves the ctimes that the commit, or its rollback, left on existing inodes, so that they
// are no conflicts for the next commit.
func (c *commit) touched() error {
	for _, s := range c.journal.Steps {
		for _, dir := range []Name{s.Near, Name(parentOf(string(s.Path))), s.Path} {
			st, err := c.hand.find(dir, ".")
			if err != nil && !missing(err) && !errors.Is(err, fs.ErrPermission) {
				return err
			}
			if err == nil && st != nil && typeOf(*st) == Dir {
				c.w.meta.touch(*st)
			}
		}
		dir, name := split(string(s.Path))
		st, err := c.hand.find(Name(dir), name)
		if err != nil && !missing(err) && !errors.Is(err, fs.ErrPermission) {
			return err
		}
		if err != nil || st == nil || typeOf(*st) == Dir {
			continue
		}
		ours := s.Op != opChmod && s.Staged != 0 && s.Staged == st.Ino
		if ours || s.Old != nil && s.Old.Ino == st.Ino && s.Old.Size == st.Size &&
			s.Old.Mtime == st.Mtime {
			c.w.meta.touch(*st)
		}
	}
	return nil
}

// settle sets the state back to the one before the commit or revert.
func (m *meta) settle() {
	m.Stuck = ""
	if m.State = Frozen; m.From != "" {
		m.State = m.From
	}
}

func (m *meta) touch(st sys.Stat) {
	if m.Touched == nil {
		m.Touched = map[uint64]sys.Time{}
	}
	m.Touched[st.Ino] = st.Ctime
}

// Told records that the audit log has the end of the last commit or revert, and of those that dead
// processes had begun. Without that, Recover returns the commit again, so that a process that was
// killed before it wrote the log loses no record.
func (w *Workspace) Told() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	lock, err := w.home.lockInTime()
	if err != nil {
		return w.wrap("told", err)
	}
	defer lock.Close()
	// The notes go first: a note without Untold means that nothing was changed.
	if _, err := w.home.begun(true); err != nil {
		return w.wrap("told", err)
	}
	if err := w.load(); err != nil || w.meta.Untold == nil {
		return w.wrap("told", err)
	}
	w.meta.Untold = nil
	return w.wrap("told", w.save(false))
}

// Settled describes an interrupted commit or revert that Recover completed or undid.
type Settled struct {
	// Info of the workspace after Recover.
	Info
	// Commit is the id of the commit, or of the commit to revert; "" for a commit with Nothing.
	Commit string
	// Digest of the change set.
	Digest string
	Revert bool
	// Paths are the reverted paths, if only a part of the commit is reverted.
	Paths []Name
	// Done: it was finished; otherwise it was undone.
	Done bool
	// Nothing: its process ended before it changed anything, or after it had failed.
	Nothing bool
	// Left describes paths that were not restored, since somebody else changed them meanwhile.
	Left []string
}

// Recover finishes or undoes interrupted commits and reverts, and removes the rests of interrupted
// Prepare and Discard calls. It returns the commits that it finished or undid, completed ones for
// which Told was not called, and those that changed nothing after Begin. Call it before the store
// is used. It does not touch commits of live processes.
func (s *Store) Recover(ctx context.Context) (settled []Settled, err error) {
	all, err := s.List()
	err = errors.Join(err, s.Sweep())
	for _, info := range all {
		if info.State != Committing && !info.untold && !s.isBegun(info.ID) {
			continue
		}
		now, recoverErr := s.recoverOne(ctx, info.ID)
		if errors.Is(recoverErr, ErrBusy) {
			continue
		}
		if recoverErr != nil {
			err = errors.Join(err, fmt.Errorf("workspace %s: recover: %w", info.ID, recoverErr))
			continue
		}
		settled = append(settled, now)
	}
	return settled, err
}

func (s *Store) recoverOne(ctx context.Context, id string) (now Settled, err error) {
	w, err := s.Get(id)
	if err != nil {
		return now, err
	}
	defer w.Close()
	lock, err := w.home.lock()
	if err != nil {
		return now, err
	}
	defer lock.Close()
	if err := w.load(); err != nil {
		return now, err
	}
	if u := w.meta.Untold; u != nil && w.meta.State != Committing {
		return Settled{Info: w.meta.info(), Commit: u.Commit, Digest: u.Digest, Revert: u.Revert,
			Paths: u.Paths, Done: true}, nil
	}
	b, err := w.home.begun(false)
	if err != nil {
		return now, err
	}
	if w.meta.State != Committing && b == nil {
		// The process of the commit lives, or another process has just settled it.
		return now, ErrBusy
	}
	var j *journal
	if w.meta.State == Committing {
		j, err = w.home.readJournal()
	}
	if errors.Is(err, fs.ErrNotExist) {
		w.meta.settle()
		err = w.save(true)
	}
	if err == nil && j == nil {
		now = Settled{Info: w.meta.info(), Nothing: true}
		if b != nil {
			now.Revert, now.Commit, now.Paths = b.Revert, b.Commit, b.Paths
		}
		return now, nil
	}
	if err != nil {
		return now, err
	}
	c := &commit{ctx: ctx, w: w, journal: j, hand: hand{as: j.As, id: j.ID}}
	defer c.release()
	if err := c.findAgain(); err != nil {
		return now, c.stuck(err)
	}
	dirLock, err := lockDir(ctx, w.source)
	if err != nil {
		return now, err
	}
	defer dirLock.Close()
	now = Settled{Commit: j.ID, Digest: j.Digest, Revert: j.Revert != "", Paths: j.RevertPaths,
		Done: j.Phase == done}
	if now.Revert {
		now.Commit = j.Revert
	}
	if now.Done {
		err = c.finishAgain()
	} else {
		now.Left, err = c.rollback()
	}
	now.Info = w.meta.info()
	return now, err
}

// finishAgain finishes a commit that was interrupted when everything was in place.
func (c *commit) finishAgain() error {
	if err := c.lost(); err != nil {
		return c.stuck(err)
	}
	if left := c.finish(); c.w.meta.State == Committing {
		return fmt.Errorf("%w: %s", ErrIncomplete, listed(left))
	}
	return nil
}

func (home folder) readJournal() (*journal, error) {
	return readJSON[journal](home.dir, journalName)
}

// Begun is a note in the store that the audit log has or will have the start of a commit or revert.
type Begun struct {
	Revert bool `json:"revert,omitempty"`
	// Commit is the id of the commit that is to be reverted, if the caller named one.
	Commit string `json:"commit,omitempty"`
	// Paths are the reverted paths, if only a part of the commit is reverted.
	Paths []Name `json:"paths,omitempty"`

	name string
	home folder
	// lock is the note's file. The process of the commit holds its lock.
	lock *os.File
}

// beginning is the prefix of the names of Begin's notes.
const beginning = "begun-"

// Begin saves a note in the store before the beginning of a commit or revert of w is written to the
// audit log. If this process is killed before Told or Drop, Recover of the next one returns the
// note as Settled, so that the log gets an end. w must stay open until Told or Drop.
func Begin(w *Workspace, b Begun) (*Begun, error) {
	text, err := json.Marshal(b)
	if err != nil {
		return nil, w.wrap("begin", err)
	}
	root, err := sys.OpenRoot(w.home.dir)
	if err != nil {
		return nil, w.wrap("begin", err)
	}
	defer root.Close()
	b.home, b.name = w.home, beginning+randomName()
	// Recover must not find the note before its lock is held.
	fresh := ".new-" + b.name
	b.lock, err = root.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		_, err = b.lock.Write(text)
	}
	if err == nil {
		err = sys.Lock(b.lock, true)
	}
	if err == nil {
		err = root.Rename(fresh, b.name)
	}
	if err != nil {
		return nil, w.wrap("begin", errors.Join(err, closeFiles(&b.lock), removeAt(w.home.dir, fresh)))
	}
	return &b, nil
}

// Told removes the note. Call it when the log has the end of the commit or revert.
func (b *Begun) Told() error { return errors.Join(removeAt(b.home.dir, b.name), b.Drop()) }

// Drop closes the note. Unless Told has removed it, the next Recover finds it. b may be nil.
func (b *Begun) Drop() error {
	if b == nil {
		return nil
	}
	return closeFiles(&b.lock)
}

// begun returns the last note of a dead process, nil if there is none. With forget it removes these
// notes and returns nil.
func (home folder) begun(forget bool) (last *Begun, err error) {
	names, err := home.notes()
	for _, name := range names {
		f, openErr := sys.OpenBeneath(home.dir, name, os.O_RDONLY, 0)
		if errors.Is(openErr, fs.ErrNotExist) {
			continue
		}
		if openErr != nil {
			err = errors.Join(err, openErr)
			continue
		}
		lockErr := sys.Lock(f, true)
		if lockErr == nil && forget {
			err = errors.Join(err, removeAt(home.dir, name))
		} else if lockErr == nil {
			var readErr error
			last, readErr = readJSON[Begun](home.dir, name)
			err = errors.Join(err, readErr)
		} else if !errors.Is(lockErr, syscall.EWOULDBLOCK) {
			err = errors.Join(err, lockErr)
		}
		f.Close()
	}
	return last, err
}

// isBegun reports whether a workspace has a note of Begin.
func (s *Store) isBegun(id string) bool {
	dir, err := sys.OpenSubdir(s.dir, id)
	if err != nil {
		return false
	}
	defer dir.Close()
	names, err := folder{dir}.notes()
	return err == nil && len(names) > 0
}

// notes returns the names of the notes of Begin.
func (home folder) notes() ([]string, error) {
	names, err := namesIn(home.dir)
	return slices.DeleteFunc(names, func(name string) bool {
		return !strings.HasPrefix(name, beginning)
	}), err
}
