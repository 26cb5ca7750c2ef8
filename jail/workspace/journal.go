package workspace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// A phase is how far a commit came. What a crash leaves is undone in the first two and finished in the last.
type phase string

const (
	staging  phase = "staging"  // writing beside
	applying phase = "applying" // moving into place
	done     phase = "done"     // all in place; what it replaced is still aside
)

// A journal is a commit as it stands in the store, as JSON. It is on the disk before the first change that it speaks of. It names inodes, so that
// whatever part of the commit a crash lets through, each step can be told to have been carried out or not.
type journal struct {
	ID       string `json:"id"`
	Phase    phase  `json:"phase"`
	As       Caller `json:"as"`
	Digest   string `json:"digest"`
	Paths    int    `json:"paths"`
	Complete bool   `json:"complete"` // nothing is left to commit afterwards
	Steps    []step `json:"steps"`
	// Past is what is to be kept of what the commit replaces, NotKept why nothing is.
	Past    *past  `json:"past,omitempty"`
	NotKept string `json:"not_kept,omitempty"`
	Revert  string `json:"revert,omitempty"` // the commit that this one undoes
}

const journalName = "journal.json"

func (c *commit) save(p phase) error {
	c.journal.Phase = p
	return c.w.writeJSON(journalName, c.journal, true)
}

// rollback undoes the steps from the last to the first. Where the disk does not let it, journal and state stay, and Recover tries again; what someone
// else changed meanwhile is left alone for good, and named.
func (c *commit) rollback() error {
	var err, left error
	if c.journal.Phase == done { // what says so may be on the disk, and a crash from here on would have it finished
		if err := c.save(applying); err != nil {
			return fmt.Errorf("%w: %w", ErrIncomplete, err)
		}
	}
	for i, s := range slices.Backward(c.journal.Steps) {
		undone := c.undo(i, s)
		if foreign := (*foreignError)(nil); errors.As(undone, &foreign) {
			left = errors.Join(left, undone)
		} else {
			err = errors.Join(err, undone)
		}
	}
	err = errors.Join(err, c.sync())
	if err == nil {
		err = c.touched()
	}
	if err == nil {
		c.w.meta.settle()
		err = errors.Join(c.w.save(true), removeAt(c.w.dir, journalName))
	}
	if err = errors.Join(err, left); err != nil {
		err = fmt.Errorf("%w: %w", ErrIncomplete, err)
	}
	return err
}

// finish ends a commit that stands: what it replaced is removed, and the store remembers it. It returns what could not be removed. Where the disk is why,
// the state stays Committing until Recover gets it done.
func (c *commit) finish() (left []string) {
	if err := c.keep(); err != nil {
		return []string{err.Error()}
	}
	failed := false
	for i, s := range c.journal.Steps {
		if err := errors.Join(c.w.store.reach("clean", i), c.clean(i, s, c.w.meta.touch)); err != nil {
			left = append(left, err.Error())
			failed = failed || !errors.As(err, new(*leftError))
		}
	}
	if !failed { // otherwise names of ours may be there: journal and state stay, and Recover does this again
		if err := c.conclude(); err != nil { // the commit stands, and Recover does this again
			left = append(left, err.Error())
		}
	}
	return left
}

// conclude ends a commit whose steps are done, and of which nothing is aside any more.
func (c *commit) conclude() error {
	if err := c.closeDirs(); err != nil {
		return err
	}
	if c.journal.Revert != "" { // before the ctimes are noted: it changes that of what was linked back
		if err := c.w.dropPast(c.journal.Revert); err != nil {
			return err
		}
	}
	if err := errors.Join(c.sync(), c.touched()); err != nil { // on the disk before the journal is gone
		return err
	}
	m := c.w.meta
	if m.Commits = slices.Clone(m.Commits); c.journal.Revert != "" {
		m.finishRevert(c.journal)
	} else {
		m.Commits = append(m.Commits, c.record())
		m.State = Frozen
		if c.journal.Complete {
			m.State = Committed
		}
	}
	if m.State != Frozen {
		m.Touched = nil
	}
	if err := c.w.writeJSON("meta.json", m, true); err != nil {
		return err
	}
	c.w.meta = m
	err := removeAt(c.w.dir, journalName) // what stays of it means nothing, from here on
	if m.State == Committed {
		err = errors.Join(err, removeAt(c.w.dir, "upper.img"))
	}
	return err
}

// closeDirs gives directories the modes that they are to have. It may be done again after a crash.
func (c *commit) closeDirs() error {
	for i, s := range c.journal.Steps {
		if !s.Close {
			continue
		}
		if err := c.w.store.reach("close", i); err != nil {
			return err
		}
		err := c.chmod(s, s.Mode)
		if err != nil && !missing(err) && !errors.Is(err, ErrConflict) && !errors.Is(err, fs.ErrPermission) { // it is someone else's by now
			return err
		}
	}
	return nil
}

// keep keeps what the commit replaced. Where there is no room for that the commit stands all the same, and cannot be reverted.
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
	return errors.Join(c.w.dropPast(j.ID), c.dropPlan())
}

// dropPlan takes the past out of the journal, so that a recovery does not try again what the record says was not done.
func (c *commit) dropPlan() error {
	c.journal.Past = nil
	return c.save(done)
}

func (c *commit) record() CommitRecord {
	j := c.journal
	rec := CommitRecord{ID: j.ID, Time: time.Now().UTC(), Caller: j.As, Digest: j.Digest, Paths: j.Paths, NotKept: j.NotKept}
	if j.Past != nil {
		rec.Until, rec.Bytes = j.Past.Until, j.Past.Bytes
	}
	return rec
}

// touched remembers the ctimes that a commit, or its undoing, left on what was there before, so that they are no conflicts for the next one.
func (c *commit) touched() error {
	for _, s := range c.journal.Steps {
		for _, dir := range []Name{s.Near, Name(parentOf(string(s.Path))), s.Path} {
			st, err := c.find(dir, ".")
			if err != nil && !missing(err) && !errors.Is(err, fs.ErrPermission) {
				return err
			}
			if err == nil && st != nil && typeOf(*st) == Dir {
				c.w.meta.touch(*st)
			}
		}
		dir, name := split(string(s.Path))
		st, err := c.find(Name(dir), name)
		if err != nil && !missing(err) && !errors.Is(err, fs.ErrPermission) {
			return err
		}
		if err != nil || st == nil || typeOf(*st) == Dir {
			continue
		}
		ours := s.Op != opChmod && s.Staged != 0 && s.Staged == st.Ino
		if ours || s.Old != nil && s.Old.Ino == st.Ino && s.Old.Size == st.Size && s.Old.Mtime == st.Mtime {
			c.w.meta.touch(*st)
		}
	}
	return nil
}

// settle says that a commit or revert came to nothing.
func (m *meta) settle() {
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

// Settled is a commit or revert that was cut off, and that Recover brought to an end.
type Settled struct {
	Info          // of its workspace, as it is now
	Commit string // its id, or the id of the commit that was to be reverted; "" where nothing was begun
	Digest string // of the change set
	Revert bool
	Done   bool // it was finished; otherwise it was undone
}

// Recover finishes or undoes the commits that a crash cut off, and takes away what preparations and discards left half done more than a minute ago. It
// returns the commits that it settled. It is called before the store is used; commits of live processes it leaves alone.
func (s *Store) Recover(ctx context.Context) (settled []Settled, err error) {
	all, err := s.List()
	err = errors.Join(err, s.sweepStale())
	for _, info := range all {
		if info.State != Committing {
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
	lock, err := w.lock()
	if err != nil {
		return now, err
	}
	defer lock.Close()
	if err := w.load(); err != nil {
		return now, err
	}
	if w.meta.State != Committing {
		return now, ErrBusy // another process has just settled it
	}
	j, err := w.readJournal()
	if errors.Is(err, fs.ErrNotExist) { // nothing was begun
		w.meta.settle()
		return Settled{Info: w.meta.info()}, w.save(true)
	}
	if err != nil {
		return now, err
	}
	if err := w.openSource(w.meta.Caller); err != nil {
		return now, err
	}
	dirLock, err := lockDir(ctx, w.source)
	if err != nil {
		return now, err
	}
	defer dirLock.Close()
	c := &commit{ctx: ctx, w: w, journal: j, hand: hand{real: w.source, as: j.As, id: j.ID}}
	finishing := j.Phase == done
	if !finishing {
		err = c.rollback()
	} else if left := c.finish(); w.meta.State == Committing {
		err = fmt.Errorf("%w: %q", ErrIncomplete, left)
	}
	now = Settled{Info: w.meta.info(), Commit: j.ID, Digest: j.Digest, Revert: j.Revert != "", Done: finishing}
	if now.Revert {
		now.Commit = j.Revert
	}
	return now, err
}

func (w *Workspace) readJournal() (*journal, error) {
	f, err := sys.OpenBeneath(w.dir, journalName, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	j := &journal{}
	if err := json.Unmarshal(content, j); err != nil {
		return nil, fmt.Errorf("%s: %w", journalName, err)
	}
	return j, nil
}
