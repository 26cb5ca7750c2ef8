package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/jail/internal/sys"
	"github.com/jail-sandbox/jail/policy"
)

// Errors of Revert.
var (
	ErrNoCommit = errors.New("there is no commit to revert")
	ErrNotKept  = errors.New("what the commit replaced is not kept")
)

// RevertOptions say what to revert. The zero value reverts the last valid commit, with the rights
// of the caller who prepared the workspace.
type RevertOptions struct {
	// Commit is the id of the commit; "" is the last one, or with Paths the last one that changed
	// one of them. An earlier commit can be reverted as a whole only after the later ones.
	Commit string
	// Paths are the paths of the commit to revert, each with everything beneath it; nil is all.
	// Directories above them that the commit removed are restored, too. A path that the commit did
	// not change and that has a *, ? or [ is a pattern as in CommitOptions.
	Paths []Name
	// As gives the rights for writing the real directory; nil is the caller who prepared the
	// workspace.
	As *Caller
	// Progress receives the number of completed steps; may be nil.
	Progress func(done, total int)
	// Live is as in CommitOptions.
	Live bool
}

// Reverted is the result of a revert.
type Reverted struct {
	Commit string `json:"commit"`
	// Digest of the change set of the reverted commit.
	Digest string `json:"digest"`
	// Changes are those that the revert made in the real directory.
	Changes []Change `json:"changes"`
	// Rest is the number of paths of the commit that are still committed.
	Rest int `json:"rest,omitempty"`
	// State of the workspace: frozen if the shadow still has its layer, committed if a part of the
	// commit is not reverted, else reverted.
	State State    `json:"state"`
	Left  []string `json:"left,omitempty"`
}

// Revert undoes a commit, or the chosen paths of it, all or nothing, with a journal like Commit. If
// a path is not as the commit left it, it returns a ConflictError and writes nothing. It restores
// contents, types, permission bits and link targets, and for replaced or deleted files owners,
// times and attributes, as far as the caller may set them. It does not restore times of directories
// and hard links.
func (w *Workspace) Revert(ctx context.Context, o RevertOptions) (Reverted, error) {
	return locking(w, "revert", func() (Reverted, error) { return reversal{w}.revert(ctx, o) })
}

// reversal has the steps of Workspace.Revert.
type reversal struct{ w *Workspace }

func (r reversal) revert(ctx context.Context, o RevertOptions) (Reverted, error) {
	lock, err := r.w.home.lock()
	if err != nil {
		return Reverted{}, err
	}
	defer lock.Close()
	if err := r.w.load(); err != nil {
		return Reverted{}, err
	}
	if s := r.w.meta.State; s != Committed && s != ChangedBack {
		if err := r.w.meta.reviewable(o.Live); err != nil {
			return Reverted{}, err
		}
	}
	live := r.w.meta.State == Active || r.w.meta.State == Prepared
	target, err := r.target(o)
	if err != nil {
		return Reverted{}, err
	}
	if err := (opening{r.w}).openSource(r.w.meta.Caller); err != nil {
		return Reverted{}, err
	}
	rec, p := target.rec, target.past
	dirLock, err := lockDir(ctx, r.w.source)
	if err != nil {
		return Reverted{}, err
	}
	defer dirLock.Close()
	if err := target.addParents(r.w.source); err != nil {
		return Reverted{}, err
	}
	changes, err := r.back(ctx, target)
	if err != nil {
		return Reverted{}, err
	}
	out := Reverted{Commit: rec.ID, Digest: rec.Digest, Changes: changes}
	c, err := newCommit(ctx, r.w, o.As, journal{ID: randomName(), Digest: rec.Digest,
		Revert: rec.ID, RevertPaths: o.Paths}, changes)
	if err != nil {
		return Reverted{}, err
	}
	c.past, c.progress = p, o.Progress
	c.journal.Back, out.Rest = target.part()
	keeps, err := keepsTaken(r.w, live)
	if err != nil {
		return Reverted{}, err
	}
	if keeps {
		if c.journal.Taken, err = r.takenBack(ctx, p, changes); err != nil {
			return Reverted{}, err
		}
	}
	defer c.release()
	if err := c.run(); err != nil {
		return Reverted{Commit: rec.ID, Digest: rec.Digest}, err
	}
	out.Left = c.finish()
	out.State = r.w.meta.State
	return out, nil
}

// takenBack returns the entries of taken.json for the reverted paths: both sides are as before the
// commit, so that the shadow's content is a change again. It computes the hashes of deleted files,
// which the record of the commit does not have.
func (r reversal) takenBack(ctx context.Context, p *past, changes []Change) ([]takenPath, error) {
	all := takenBy(changes, nil, nil)
	for i, c := range changes {
		n := all[i].Sides.Real
		if n == nil || n.Type != File || n.SHA256 != "" {
			continue
		}
		f, err := sys.OpenBeneath(r.w.home.dir, pastContent(p.Commit, c.pastEntry), os.O_RDONLY, 0)
		if err != nil {
			return nil, err
		}
		back := *n
		back.SHA256, _, err = hashFile(f, n.Size, ctx.Err, nil)
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		all[i].Sides = &sides{Real: &back, Shadow: &back}
	}
	return all, nil
}

// last returns the last commit that is not reverted. If id is not "" and names another commit, the
// error is ErrNoCommit.
func (m *meta) last(id string) (CommitRecord, error) {
	for _, rec := range slices.Backward(m.Commits) {
		switch {
		case !rec.Reverted.IsZero():
			if rec.ID == id {
				return rec, fmt.Errorf("%w: %s is reverted already", ErrNoCommit, id)
			}
			continue
		case id != "" && rec.ID != id:
			return rec, fmt.Errorf("%w: %s is the last commit that was not reverted", ErrNoCommit,
				rec.ID)
		}
		return rec, nil
	}
	return CommitRecord{}, ErrNoCommit
}

// back returns the changes that restore the state before the commit, for the entries that t takes.
// It returns a ConflictError if the real directory is not as the commit left it.
func (r reversal) back(ctx context.Context, t *revertTarget) ([]Change, error) {
	k := &walker{ctx: ctx, as: r.w.meta.Caller, meta: &r.w.meta, holes: maxHoles}
	p, ours := t.past, map[Name]bool{}
	chosen := &past{Since: p.Since}
	for n, e := range p.Entries {
		if t.take[n] {
			ours[e.Path] = true
			chosen.Entries = append(chosen.Entries, e)
		}
	}
	var changes []Change
	conflicts := ConflictError{Conflicts: t.later}
	used, locked, err := k.usedSince(r.w.source, chosen, ours)
	if err != nil {
		return nil, err
	}
	conflicts.Conflicts = append(conflicts.Conflicts, locked...)
	// comes are the directories that the revert restores.
	comes := map[string]bool{}
	for n, e := range p.Entries {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if !t.take[n] || e.addedObject() && used[e.Repo] {
			continue
		}
		now, st, err := k.nodeNow(r.w.source, e.Path)
		if err != nil {
			return nil, err
		}
		if now == nil && e.addedObject() {
			// git has packed it.
			continue
		}
		why := e.differs(now)
		if goes := e.After != nil && e.After.Type == Dir && (e.Before == nil ||
			e.Before.Type != Dir); why == "" && goes {
			why, err = k.foreignIn(r.w.source, e.Path, ours)
		}
		if why == "" && e.Before != nil && e.Before.Type == File &&
			kindOf(e.After, e.Before) != Mode {
			err = errors.Join(err, r.w.home.checkKept(p.Commit, n, e))
		}
		if err != nil {
			return nil, err
		}
		if why == "" && now == nil && e.Before != nil && !comes[parentOf(string(e.Path))] {
			why, err = lostDirectory(r.w.source, parentOf(string(e.Path)))
		}
		if err != nil {
			return nil, err
		}
		if why != "" {
			conflicts.Conflicts = append(conflicts.Conflicts, Conflict{e.Path, why, now, e.After})
			continue
		}
		c := Change{Path: e.Path, Kind: kindOf(now, e.Before), Before: now, After: e.Before,
			pastEntry: n}
		if st != nil {
			c.seen = *st
		}
		if r := e.repository(); r != nil {
			c.repo, c.part = r, policy.GitData
		}
		if e.Before != nil && e.Before.Type == Dir {
			comes[string(c.Path)] = true
		}
		if c.Kind != "" {
			changes = append(changes, c)
		}
	}
	if conflicts.Conflicts != nil {
		return nil, &conflicts
	}
	return changes, nil
}

// nodeNow returns the present Node of a path below the directory real, with its hash or link
// target, and its stat; nil if it does not exist.
func (k *walker) nodeNow(real *os.File, path Name) (*Node, *sys.Stat, error) {
	if path == "" {
		st, err := sys.Fstat(real)
		return nodeOf(st), &st, err
	}
	dir, name := split(string(path))
	d, err := openDir(real, dir)
	if missing(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer d.Close()
	return k.nodeIn(d, name)
}

// nodeIn is nodeNow for an entry of an open directory.
func (k *walker) nodeIn(d *os.File, name string) (*Node, *sys.Stat, error) {
	st, err := k.lookup(d, name)
	if err != nil || st == nil {
		return nil, nil, err
	}
	n := nodeOf(*st)
	switch n.Type {
	case Link:
		n.Target, err = k.readlink(d, name)
	case File:
		c := Change{Before: n, seen: *st}
		err = k.hashReal(&c, d, name)
	}
	return n, st, err
}

// differs returns how a path, of which now is the present state, differs from what the commit left,
// "" if it does not.
func (e pastEntry) differs(now *Node) string {
	switch {
	case now == nil && e.After == nil:
		return ""
	case now == nil:
		return fmt.Sprintf("the %s was removed since the commit", e.After.Type)
	case e.After == nil && now.Type == Dir && e.Before.Type == Dir:
		// The commit left the directory, since somebody else had put something into it.
		return ""
	case e.After == nil:
		return fmt.Sprintf("a %s was put there since the commit", now.Type)
	case now.Type != e.After.Type:
		return fmt.Sprintf("it became a %s since the commit", now.Type)
	case now.Type == Link && now.Target != e.After.Target:
		return "the link was changed since the commit"
	case now.Type == File && (now.SHA256 != e.After.SHA256 || now.SHA256 == ""):
		return "the file was changed since the commit"
	case now.Type != Link && now.Mode&0o777 != e.After.Mode&0o777:
		return "its mode was changed since the commit"
	}
	return ""
}

// lostDirectory returns a reason for a conflict if the directory at path is gone, else "".
func lostDirectory(real *os.File, path string) (string, error) {
	_, err := statDir(real, path)
	if missing(err) {
		return fmt.Sprintf("its directory %s was removed since the commit", Name(path)), nil
	}
	return "", err
}

// foreignIn returns a reason for a conflict if the directory at path, which is to be removed, has
// an entry that is not in ours, else "".
func (k *walker) foreignIn(real *os.File, path Name, ours map[Name]bool) (string, error) {
	d, err := openDir(real, string(path))
	if err != nil {
		return "", err
	}
	defer d.Close()
	names, err := k.list(d)
	for _, name := range names {
		if in := Name(join(string(path), name)); !ours[in] {
			return fmt.Sprintf("%s was put into it since the commit", in), nil
		}
	}
	return "", err
}

// checkKept returns ErrNotKept unless the kept content of entry n is there and unchanged.
func (home folder) checkKept(commit string, n int, e pastEntry) error {
	if e.Lost != "" {
		return fmt.Errorf("%w: %s: %s", ErrNotKept, e.Path, e.Lost)
	}
	st, err := sys.LstatAt(home.dir, pastContent(commit, n))
	if err == nil && (st.Size != e.Was.Size || st.Mtime != e.Was.Mtime) {
		err = fmt.Errorf("%w: %s was still open, and was written to after the commit", ErrNotKept,
			e.Path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: the content of %s is gone from the store", ErrNotKept, e.Path)
	}
	return err
}

// stageKept restores kept content to a temporary name: it links the original inode if that is
// possible (linked is true then), else it makes a copy.
func (t stager) stageKept(i int, s step) (made *os.File, linked bool, err error) {
	n := slices.IndexFunc(t.c.past.Entries, func(e pastEntry) bool { return e.Path == s.Path })
	e := t.c.past.Entries[n]
	content, err := sys.OpenBeneath(t.c.w.home.dir, pastContent(t.c.past.Commit, n), os.O_RDONLY, 0)
	if err != nil {
		return nil, false, err
	}
	defer content.Close()
	st, err := sys.Fstat(content)
	if err != nil {
		return nil, false, err
	}
	err = t.c.hand.in(s.Near, func(near *os.File) error {
		if st.Ino == e.Was.Ino && st.Nlink == 1 && st.Perm()&0o777 == s.Mode && sys.LinkOwn(content,
			near, t.c.hand.temp(i)) == nil {
			linked = true
			made, err = sys.OpenPath(near, t.c.hand.temp(i))
			return err
		}
		if made, err = newFile(near, t.c.hand.temp(i)); err != nil {
			return err
		}
		// Attributes that the file system does not support are left out.
		copyXattrs(made, content, kept)
		return errors.Join(writeContent(made, content, s), sys.SetMtime(made, e.Was.Mtime))
	})
	if err == nil && e.Before.SHA256 != "" {
		if err = checkContent(t.c.ctx, content, e.Before); err == ErrDigest {
			err = fmt.Errorf("%w: %s: the kept content is not what it was", ErrNotKept, e.Path)
		}
	}
	if err != nil && made != nil {
		made.Close()
		made = nil
	}
	return made, linked, err
}

// finishRevert records in m that a commit was reverted. After a revert of a part, rest has the
// entries of the commit, else it is nil.
func (m *meta) finishRevert(j *journal, rest *past) {
	m.settle()
	if rest == nil && m.State == Committed {
		m.State = ChangedBack
	}
	for i := range m.Commits {
		rec := &m.Commits[i]
		switch {
		case rec.ID != j.Revert:
		case rest == nil:
			rec.Reverted, rec.Bytes = time.Now().UTC(), 0
		default:
			rec.Back, rec.Bytes = rest.count()
		}
	}
}

// Prune removes the expired replaced content of commits, and the workspaces that are committed or
// reverted as a whole and have nothing left to revert. It keeps workspaces for which needed, which
// may be nil, returns true. It returns the ids of the removed workspaces.
func (s *Store) Prune(now time.Time, needed func(id string) bool) (removed []string, err error) {
	all, err := s.List()
	for _, info := range all {
		gone, pruneErr := s.pruneOne(info, now, needed)
		if pruneErr != nil && !errors.Is(pruneErr, ErrBusy) &&
			!errors.Is(pruneErr, ErrBranches) && !errors.Is(pruneErr, ErrNotFound) {
			err = errors.Join(err, pruneErr)
		}
		if gone {
			removed = append(removed, info.ID)
		}
	}
	return removed, err
}

// keptContent reports whether a commit has kept content that is expired, and whether one has
// content that is not.
func keptContent(commits []CommitRecord, now time.Time) (expired, held bool) {
	for _, rec := range commits {
		switch {
		case !rec.kept():
		case now.After(rec.Until):
			expired = true
		default:
			held = true
		}
	}
	return expired, held
}

// forgettable reports whether a workspace has only its record left, so that Prune may remove it. A
// resumable workspace is not forgettable.
func forgettable(i Info, now time.Time) bool {
	_, held := keptContent(i.Commits, now)
	return i.State.recordOnly() && !held && !i.Resumable
}

// pruneOne prunes one workspace and reports whether it was removed. It checks again under the lock,
// since info may be outdated: Resume may have opened the workspace.
func (s *Store) pruneOne(info Info, now time.Time, needed func(id string) bool) (gone bool,
	err error) {
	expired, _ := keptContent(info.Commits, now)
	if !expired && !forgettable(info, now) || needed != nil && needed(info.ID) {
		return false, nil
	}
	w, err := s.Get(info.ID)
	if err != nil {
		return false, err
	}
	defer w.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	if forgettable(info, now) {
		err := w.drop(func() error {
			if err := w.load(); err != nil {
				return err
			}
			if !forgettable(w.meta.info(), now) {
				return ErrBusy
			}
			return nil
		})
		return err == nil, err
	}
	lock, err := w.home.lock()
	if err != nil {
		return false, err
	}
	defer lock.Close()
	if err := w.load(); err != nil || w.meta.State == Committing {
		return false, err
	}
	for i := range w.meta.Commits {
		rec := &w.meta.Commits[i]
		if rec.kept() && now.After(rec.Until) {
			rec.NotKept, rec.Bytes = "it was, until "+rec.Until.Format(time.RFC3339), 0
			err = errors.Join(err, w.home.dropPast(rec.ID))
		}
	}
	return false, errors.Join(err, w.save(false))
}

func (r CommitRecord) kept() bool {
	return r.NotKept == "" && r.Reverted.IsZero() && !r.Until.IsZero()
}

// Disk returns how many bytes the workspace takes on the store's disk, without frozen layers.
func (w *Workspace) Disk() (int64, error) {
	names, err := namesIn(w.home.dir)
	total := int64(0)
	for _, name := range names {
		if st, err := sys.LstatAt(w.home.dir, name); err == nil && !strings.HasPrefix(name, ".") {
			total += st.Blocks * 512
		}
	}
	return total, err
}

// A revertTarget is the commit to revert. take marks the entries of its past to revert.
type revertTarget struct {
	rec  CommitRecord
	past *past
	take []bool
	// later are conflicts: chosen paths that a later commit changed again.
	later []Conflict
}

// target finds the commit and the entries that the options choose.
func (r reversal) target(o RevertOptions) (*revertTarget, error) {
	if o.Paths != nil {
		return r.partTarget(o)
	}
	rec, err := r.w.meta.last(o.Commit)
	if err != nil {
		return nil, err
	}
	t := &revertTarget{rec: rec}
	if t.past, err = r.w.home.pastOf(rec); err != nil {
		return nil, err
	}
	t.take = make([]bool, len(t.past.Entries))
	for n, e := range t.past.Entries {
		t.take[n] = !e.Back
	}
	return t, nil
}

// pastOf returns the past of a commit. The error is ErrNotKept if it is expired or was not kept.
func (home folder) pastOf(rec CommitRecord) (*past, error) {
	switch {
	case rec.NotKept != "":
		return nil, fmt.Errorf("%w: %s", ErrNotKept, rec.NotKept)
	case time.Now().After(rec.Until):
		return nil, fmt.Errorf("%w: it was, until %s", ErrNotKept, rec.Until.Format(time.RFC3339))
	}
	p, err := home.readPast(rec.ID)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: it is gone from the store", ErrNotKept)
	}
	return p, err
}

// partTarget is target for a revert with Paths. Later commits need not be reverted first if they
// did not change the same paths.
func (r reversal) partTarget(o RevertOptions) (*revertTarget, error) {
	later, standing := map[Name]string{}, false
	for _, rec := range slices.Backward(r.w.meta.Commits) {
		if !rec.Reverted.IsZero() {
			if rec.ID == o.Commit {
				return nil, fmt.Errorf("%w: %s is reverted already", ErrNoCommit, rec.ID)
			}
			continue
		}
		standing = true
		p, err := r.w.home.pastOf(rec)
		if err != nil && (rec.ID == o.Commit || !errors.Is(err, ErrNotKept)) {
			return nil, err
		}
		if err != nil {
			continue
		}
		t := &revertTarget{rec: rec, past: p}
		missing, err := t.match(o.Paths)
		if err != nil {
			return nil, err
		}
		switch {
		case o.Commit == "" && slices.Contains(t.take, true), rec.ID == o.Commit:
			if missing != "" {
				return nil, fmt.Errorf("%s: %w in commit %s", Name(missing), ErrNoChange, rec.ID)
			}
			for n, e := range p.Entries {
				if by, again := later[e.Path]; t.take[n] && again {
					t.later = append(t.later, Conflict{Path: e.Path, Shadow: e.After,
						Why: "commit " + by + " changed it again, and has to be reverted first"})
				}
			}
			return t, t.apart()
		}
		for _, e := range p.Entries {
			if _, known := later[e.Path]; !known && !e.Back {
				later[e.Path] = rec.ID
			}
		}
	}
	if o.Commit != "" || !standing {
		return nil, ErrNoCommit
	}
	return nil, fmt.Errorf("%s: %w in a commit that can be reverted", o.Paths[0], ErrNoChange)
}

// match marks in t.take the entries that the paths name. missing is the first path that names none,
// "" if all do.
func (t *revertTarget) match(paths []Name) (missing string, err error) {
	t.take = make([]bool, len(t.past.Entries))
	for _, p := range paths {
		found, err := takeNamed(p, false, func(matches func(string) bool) (found bool) {
			for n, e := range t.past.Entries {
				if !e.Back && matches(string(e.Path)) {
					t.take[n], found = true, true
				}
			}
			return found
		})
		if err != nil {
			return "", err
		}
		if !found && missing == "" {
			missing = string(p)
		}
	}
	// With a directory that the revert removes, all that the commit put into it is reverted.
	goes := map[string]bool{}
	for n, e := range t.past.Entries {
		if goes[parentOf(string(e.Path))] && e.Path != "" && !e.Back {
			t.take[n] = true
		}
		if t.take[n] && e.After != nil && e.After.Type == Dir &&
			(e.Before == nil || e.Before.Type != Dir) {
			goes[string(e.Path)] = true
		}
	}
	return missing, nil
}

// apart returns ErrApart if only a part of the data of a git repository is to be reverted.
func (t *revertTarget) apart() error {
	taken := map[string]bool{}
	for n, e := range t.past.Entries {
		taken[e.Repo] = taken[e.Repo] || t.take[n]
	}
	for n, e := range t.past.Entries {
		if e.Repo != "" && taken[e.Repo] && !t.take[n] && !e.Back {
			return fmt.Errorf("%w: %s was committed with it", ErrApart, e.Path)
		}
	}
	return nil
}

// addParents marks in t.take the directories above marked paths that the commit removed and that do
// not exist now.
func (t *revertTarget) addParents(real *os.File) error {
	needed := map[string]bool{}
	for n, e := range slices.Backward(t.past.Entries) {
		path := string(e.Path)
		if needed[path] && !t.take[n] && !e.Back && e.Before != nil && e.Before.Type == Dir &&
			(e.After == nil || e.After.Type != Dir) {
			_, err := statDir(real, path)
			if err != nil && !missing(err) {
				return err
			}
			// Somebody may have made it again.
			t.take[n] = err != nil
		}
		if t.take[n] && e.Before != nil && path != "" {
			needed[parentOf(path)] = true
		}
	}
	return nil
}

// part returns the indexes of the entries to revert, and the number of entries that stay committed.
// If none stay, back is nil.
func (t *revertTarget) part() (back []int, rest int) {
	for n, e := range t.past.Entries {
		switch {
		case t.take[n]:
			back = append(back, n)
		case !e.Back:
			rest++
		}
	}
	if rest == 0 {
		return nil, 0
	}
	return back, rest
}
