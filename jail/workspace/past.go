package workspace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// Retention says what a commit keeps of what it replaces, so that it can be reverted. The zero value keeps nothing.
type Retention struct {
	For   time.Duration // how long
	Bytes int64         // how much content at most; a commit that replaces more cannot be reverted
}

// A past is what one commit replaced, as the store keeps it in past-<commit>.json; the content of entry n is in past-<commit>-<n>. Where store
// and directory are on one file system that is the very inode, which costs nothing and comes back with all that it was.
type past struct {
	Commit  string      `json:"commit"`
	Until   time.Time   `json:"until"`
	Bytes   int64       `json:"bytes"` // of content
	Entries []pastEntry `json:"entries"`
}

type pastEntry struct {
	Path   Name   `json:"path"`
	Before *Node  `json:"before,omitempty"` // nil: there was nothing
	After  *Node  `json:"after,omitempty"`  // nil: it was deleted
	Was    *inode `json:"was,omitempty"`    // what Before was
	Lost   string `json:"lost,omitempty"`   // why its content could not be kept
}

const pastPrefix = "past-"

func pastName(commit string) string { return pastPrefix + commit + ".json" }

func pastContent(commit string, n int) string { return pastPrefix + commit + "-" + strconv.Itoa(n) }

// newPast says what a commit of those changes would keep; why is set where it keeps nothing.
func newPast(commit string, changes []Change, r Retention) (p *past, why string) {
	p = &past{Commit: commit, Until: time.Now().Add(r.For).UTC()}
	for _, c := range changes {
		e := pastEntry{Path: c.Path, Before: c.Before, After: c.After}
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
		return nil, fmt.Sprintf("it replaced %s, and %s are kept for a revert at most", size(p.Bytes), size(r.Bytes))
	}
	return p, ""
}

// keepPast takes what the commit put aside into the store, before it is removed. It may be done again after a crash.
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
		aside := Name(join(string(s.Near), c.temp(i)))
		if n, ok := index[s.Path]; ok {
			if err := c.keepOne(aside, n); err != nil {
				return err
			}
		}
		if s.Old.Type == Dir {
			c.openUp(aside)
		}
		for _, b := range s.Below {
			if b.Dir {
				c.openUp(aside + "/" + b.Path)
			}
			n, ok := index[Name(join(string(s.Path), string(b.Path)))]
			if !ok {
				continue
			}
			if err := errors.Join(c.w.store.reach("keep", i), c.keepOne(aside+"/"+b.Path, n)); err != nil {
				return err
			}
		}
	}
	if err := c.w.syncStore(); err != nil {
		return err
	}
	return c.w.writeJSON(pastName(p.Commit), p, true)
}

// keepOne keeps the content of entry n, which is aside now. Content that the caller may not read is not kept for him.
func (c *commit) keepOne(aside Name, n int) error {
	e := &c.journal.Past.Entries[n]
	var at, content *os.File
	err := c.as.do(func() (err error) {
		if at, err = c.open(aside); err != nil {
			return err
		}
		content, err = sys.Reopen(at, os.O_RDONLY|syscall.O_NONBLOCK)
		return err
	})
	if at != nil {
		defer at.Close()
	}
	if e.Was != nil && errors.Is(err, fs.ErrPermission) && at != nil && e.Was.UID == c.as.UID {
		content, err = reopenOwn(at, e.Was.Ino) // closed to its own owner, who could open it up
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // it was kept and removed before a crash
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
	if err := removeAt(c.w.dir, name); err != nil {
		return err
	}
	// Not one that has other names: through those it can still be written to.
	if st.Nlink == 1 && sys.LinkInode(at, c.w.dir, name) == nil {
		return nil
	}
	return c.w.keepCopy(content, st, name)
}

func reopenOwn(at *os.File, ino uint64) (*os.File, error) {
	if st, err := sys.Fstat(at); err != nil || st.Ino != ino || typeOf(st) != File {
		return nil, errors.Join(err, fs.ErrPermission)
	}
	return sys.Reopen(at, os.O_RDONLY)
}

func (w *Workspace) keepCopy(content *os.File, st sys.Stat, name string) error {
	f, err := sys.OpenBeneath(w.dir, name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(st.Size); err != nil {
		return err
	}
	if err := copyData(f, content); err != nil {
		return err
	}
	copyAttributes(f, content) // the store may not take them, and then they are not kept
	return errors.Join(sys.Chmod(f, st.Perm()), sys.SetMtime(f, st.Mtime))
}

// syncStore makes what is kept durable, whatever its number.
func (w *Workspace) syncStore() error { return sys.Syncfs(w.dir) }

// kept are the extended attributes that a file keeps when its content is replaced: the user's own and the access control list. All others go,
// security.capability first of them, since they speak of the old content.
func kept(name string) bool {
	return strings.HasPrefix(name, "user.") || name == "system.posix_acl_access"
}

// copyAttributes gives to the attributes of from that are kept.
func copyAttributes(to, from *os.File) error {
	names, err := sys.Xattrs(from)
	for _, name := range names {
		if !kept(name) {
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

func (w *Workspace) readPast(commit string) (*past, error) {
	f, err := sys.OpenBeneath(w.dir, pastName(commit), os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	p := &past{}
	if err := json.Unmarshal(content, p); err != nil {
		return nil, fmt.Errorf("%s: %w", pastName(commit), err)
	}
	return p, nil
}

// dropPast forgets what was kept of a commit.
func (w *Workspace) dropPast(commit string) error {
	dir, err := sys.OpenSubdir(w.dir, ".")
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	for _, name := range names {
		if name == pastName(commit) || strings.HasPrefix(name, pastPrefix+commit+"-") {
			err = errors.Join(err, removeAt(w.dir, name))
		}
	}
	return err
}
