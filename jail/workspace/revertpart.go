package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"
)

// A revertTarget is the commit to revert, with the entries of it that are taken back.
type revertTarget struct {
	rec  CommitRecord
	past *past
	take []bool
	// later are the chosen paths that a later commit changed again.
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

// pastOf returns what is kept of a commit that can be reverted.
func (home folder) pastOf(rec CommitRecord) (*past, error) {
	if err := rec.revertible(); err != nil {
		return nil, err
	}
	p, err := home.readPast(rec.ID)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: it is gone from the store", ErrNotKept)
	}
	return p, err
}

// revertible returns why nothing is kept of a commit, or nil.
func (r CommitRecord) revertible() error {
	switch {
	case r.NotKept != "":
		return fmt.Errorf("%w: %s", ErrNotKept, r.NotKept)
	case time.Now().After(r.Until):
		return fmt.Errorf("%w: it was, until %s", ErrNotKept, r.Until.Format(time.RFC3339))
	}
	return nil
}

// partTarget is target for a revert of a part. Later commits may stand if they did not change the
// same paths: then the content of each chosen path is what decides, as for the last commit.
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

// match takes the entries that the paths name. It returns the first path that names none.
func (t *revertTarget) match(paths []Name) (missing string, err error) {
	t.take = make([]bool, len(t.past.Entries))
	for _, p := range paths {
		path, found := strings.TrimSuffix(string(p), "/"), false
		takeIf := func(matches func(path string) bool) {
			for n, e := range t.past.Entries {
				if !e.Back && matches(string(e.Path)) {
					t.take[n], found = true, true
				}
			}
		}
		takeIf(func(entry string) bool { return within(path, entry) })
		if !found && isPattern(path) {
			matches, err := compilePattern(path)
			if err != nil {
				return "", err
			}
			takeIf(matches)
		}
		if !found && missing == "" {
			missing = string(p)
		}
	}
	// A directory that goes takes what the commit put into it.
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

// apart returns an error if some data of a repository is taken back, and some is not.
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

// addParents adds to the selection the directories that the commit removed and that hold a selected
// path.
func (t *revertTarget) addParents(real *os.File) error {
	needed := map[string]bool{}
	for n, e := range slices.Backward(t.past.Entries) {
		path := string(e.Path)
		if needed[path] && !t.take[n] && !e.Back && e.Before != nil && e.Before.Type == Dir &&
			(e.After == nil || e.After.Type != Dir) {
			dir, err := openDir(real, path)
			if err == nil {
				// Somebody has made it again.
				dir.Close()
				continue
			}
			if !missing(err) {
				return err
			}
			t.take[n] = true
		}
		if t.take[n] && e.Before != nil && path != "" {
			needed[parentOf(path)] = true
		}
	}
	return nil
}

// part returns the entries that are taken back, none if these are all that are left, and the number
// of the others.
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
