package workspace

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail/internal/sys"
	"github.com/jail-sandbox/jail/policy"
)

// Retention says how much replaced content a commit keeps, so that it can be reverted. The zero
// value keeps none.
type Retention struct {
	// For is how long the content is kept.
	For time.Duration
	// Bytes bounds the content; a commit that replaces more cannot be reverted.
	Bytes int64
}

// past lists the paths that one commit replaced, in the store as past-<commit>.json. The replaced
// content of entry n is in past-<commit>-<n>. If store and directory are on one file system, that
// is the original inode with all its attributes.
type past struct {
	Commit string    `json:"commit"`
	Until  time.Time `json:"until"`
	// Bytes of content.
	Bytes int64 `json:"bytes"`
	// Since is the time at which the commit began, on the clock of ctimes.
	Since   sys.Time    `json:"since,omitzero"`
	Entries []pastEntry `json:"entries"`
}

type pastEntry struct {
	Path Name `json:"path"`
	// Before is nil if there was nothing.
	Before *Node `json:"before,omitempty"`
	// After is nil if the commit deleted the path.
	After *Node `json:"after,omitempty"`
	// Was is the inode of Before.
	Was *inode `json:"was,omitempty"`
	// Lost says why the content could not be kept, "" if it was.
	Lost string `json:"lost,omitempty"`
	// Repo is the git directory if the path is data of a git repository; "." is the workspace.
	Repo string `json:"repo,omitempty"`
	// Back: a revert of a part has restored the path. Its content is not kept any more.
	Back bool `json:"back,omitempty"`
}

const pastPrefix = "past-"

func pastName(commit string) string { return pastPrefix + commit + ".json" }

func pastContent(commit string, n int) string { return pastPrefix + commit + "-" + strconv.Itoa(n) }

// newPast returns the past of a commit of changes. If it keeps nothing, p is nil and why says so.
func newPast(commit string, changes []Change, r Retention, since sys.Time) (p *past, why string) {
	p = &past{Commit: commit, Until: time.Now().Add(r.For).UTC(), Since: since}
	for _, c := range changes {
		e := pastEntry{Path: c.Path, Before: c.Before, After: c.After}
		if c.part == policy.GitData {
			e.Repo = cmp.Or(c.repo.path, ".")
		}
		if c.Before != nil {
			e.Was = inodeOf(c.seen)
			p.Bytes += c.Before.Size
		}
		p.Entries = append(p.Entries, e)
	}
	switch {
	case r.For <= 0 || r.Bytes <= 0:
		return nil, "the policy keeps nothing for a revert"
	case p.Bytes > r.Bytes:
		return nil, fmt.Sprintf("it replaced %s, and %s are kept for a revert at most",
			size(p.Bytes), size(r.Bytes))
	}
	return p, ""
}

// keepPast moves the content that was put aside into the store. It may run again after a crash.
func (c *commit) keepPast() error {
	p := c.journal.Past
	index := map[Name]int{}
	for n, e := range p.Entries {
		if e.Before != nil && e.Before.Type == File {
			index[e.Path] = n
		}
	}
	for i, s := range c.journal.Steps {
		if s.Op != opRemove && s.Op != opReplace {
			continue
		}
		aside := Name(join(string(s.Near), c.hand.temp(i)))
		if n, ok := index[s.Path]; ok {
			if err := c.keepOne(aside, n); err != nil {
				return err
			}
		}
		if s.Old.Type == Dir {
			c.hand.openUp(aside)
		}
		for _, b := range s.Below {
			if b.Dir {
				c.hand.openUp(aside + "/" + b.Path)
			}
			n, ok := index[Name(join(string(s.Path), string(b.Path)))]
			if !ok {
				continue
			}
			if err := errors.Join(c.w.store.reach("keep", i),
				c.keepOne(aside+"/"+b.Path, n)); err != nil {
				return err
			}
		}
	}
	// One call makes all kept files durable.
	if err := sys.Syncfs(c.w.home.dir); err != nil {
		return err
	}
	return c.w.home.writeJSON(pastName(p.Commit), p, true)
}

// keepOne moves the content of entry n from the path aside into the store. If the caller may not
// read it, keepOne sets Lost instead.
func (c *commit) keepOne(aside Name, n int) error {
	e := &c.journal.Past.Entries[n]
	var at, content *os.File
	err := c.hand.as.do(func() (err error) {
		if at, err = c.hand.open(aside); err != nil {
			return err
		}
		content, err = sys.Reopen(at, os.O_RDONLY|syscall.O_NONBLOCK)
		return err
	})
	if at != nil {
		defer at.Close()
	}
	if e.Was != nil && errors.Is(err, fs.ErrPermission) && at != nil && e.Was.UID == c.hand.as.UID {
		// The caller owns the file, and could make it readable.
		content, err = reopenOwn(at, e.Was.Ino)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// It was kept and removed before a crash.
		return nil
	case errors.Is(err, fs.ErrPermission):
		e.Lost = "its content was not yours to read"
		return nil
	case err != nil:
		return err
	}
	defer content.Close()
	st, err := sys.Fstat(content)
	if err != nil {
		return err
	}
	name := pastContent(c.journal.Past.Commit, n)
	if e.Was == nil || st.Ino != e.Was.Ino || typeOf(st) != File {
		e.Lost = "someone else changed it during the commit"
		return nil
	}
	if err := removeAt(c.w.home.dir, name); err != nil {
		return err
	}
	// A file with other links is copied, since it can still be written to by these.
	if st.Nlink == 1 && sys.LinkInode(at, c.w.home.dir, name) == nil {
		return nil
	}
	return c.w.home.keepCopy(content, st, name)
}

func reopenOwn(at *os.File, ino uint64) (*os.File, error) {
	if st, err := sys.Fstat(at); err != nil || st.Ino != ino || typeOf(st) != File {
		return nil, errors.Join(err, fs.ErrPermission)
	}
	return sys.Reopen(at, os.O_RDONLY)
}

func (home folder) keepCopy(content *os.File, st sys.Stat, name string) error {
	f, err := newFile(home.dir, name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := copyData(f, content, st.Size); err != nil {
		return err
	}
	// Attributes that the store's file system does not support are not kept.
	copyXattrs(f, content, kept)
	return errors.Join(sys.Chmod(f, st.Perm()), sys.SetMtime(f, st.Mtime))
}

// kept reports whether a file keeps an extended attribute when its content is replaced: user
// attributes and the ACL. All others, security.capability first of them, describe the old content.
func kept(name string) bool {
	return strings.HasPrefix(name, "user.") || name == "system.posix_acl_access"
}

// copyXattrs copies the extended attributes of from for whose names keep returns true.
func copyXattrs(to, from *os.File, keep func(name string) bool) error {
	names, err := sys.Xattrs(from)
	for _, name := range names {
		if !keep(name) {
			continue
		}
		value, getErr := sys.Xattr(from, name)
		if getErr == nil && value != nil {
			getErr = sys.SetXattr(to, name, value)
		}
		err = errors.Join(err, getErr)
	}
	return err
}

func (home folder) readPast(commit string) (*past, error) {
	return readJSON[past](home.dir, pastName(commit))
}

// count returns the number of reverted paths, and the bytes of kept content of the others.
func (p *past) count() (back int, bytes int64) {
	for _, e := range p.Entries {
		switch {
		case e.Back:
			back++
		case e.Before != nil:
			bytes += e.Before.Size
		}
	}
	return back, bytes
}

// dropBack removes the kept content of the reverted entries of a commit, and returns the past with
// these marked. If back is empty, it removes all and returns nil. It may run again after a crash.
func (home folder) dropBack(commit string, back []int) (rest *past, err error) {
	if len(back) == 0 {
		return nil, home.dropPast(commit)
	}
	if rest, err = home.readPast(commit); err != nil {
		return nil, err
	}
	for _, n := range back {
		if n >= len(rest.Entries) {
			return nil, fmt.Errorf("%w: %s", ErrRecord, pastName(commit))
		}
		rest.Entries[n].Back = true
		err = errors.Join(err, removeAt(home.dir, pastContent(commit, n)))
	}
	return rest, errors.Join(err, home.writeJSON(pastName(commit), rest, true))
}

// dropPast removes all kept content of a commit.
func (home folder) dropPast(commit string) error {
	names, err := namesIn(home.dir)
	for _, name := range names {
		if name == pastName(commit) || strings.HasPrefix(name, pastPrefix+commit+"-") {
			err = errors.Join(err, removeAt(home.dir, name))
		}
	}
	return err
}
