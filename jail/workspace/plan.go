package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// op is one primitive change of the real directory. Each has an exact inverse, and the present
// inodes tell whether it was executed; see hand.undo.
type op string

const (
	// Set the permission bits.
	opChmod op = "chmod"
	// Move the path aside, to the step's temporary name.
	opRemove op = "remove"
	// Move staged content from the temporary name to the free path; a directory is empty and 0700.
	opCreate op = "create"
	// Exchange staged content with the content of the path.
	opReplace op = "replace"
)

// step is one op with all data to execute and to undo it. The journal has a list of steps.
type step struct {
	Op   op   `json:"op"`
	Path Name `json:"path"`
	// Old is the inode at the path before, nil for none.
	Old *inode `json:"old,omitempty"`
	// New is the node at the path afterwards.
	New  *Node  `json:"new,omitempty"`
	Mode uint32 `json:"mode,omitempty"`
	// From is the mode before a chmod.
	From uint32 `json:"from,omitempty"`
	// Close: the chmod gives a directory its final mode, which may forbid to write to it. It is
	// executed last; see commit.closeDirs.
	Close bool `json:"close,omitempty"`
	// SameContent: only the mode of a file with other hard links changes. The file is copied and
	// keeps its mtime.
	SameContent bool `json:"same_content,omitempty"`
	// Near is the directory of the step's temporary name. It exists before and after the commit.
	Near Name `json:"near,omitempty"`
	// Staged is the inode number of the staged content: of this step, or, for the chmod of a new
	// directory, of the step that makes it.
	Staged uint64 `json:"staged,omitempty"`
	// Made is the staged inode, and Born its creation time: the commit takes nothing back from a
	// reused inode number, or from a file that somebody has written to since. A journal of an
	// earlier version has neither.
	Made *inode   `json:"made,omitempty"`
	Born sys.Time `json:"born,omitzero"`
	// Below lists the entries of a removed directory, parents first.
	Below []belowEntry `json:"below,omitempty"`
}

// belowEntry is a path relative to a removed directory.
type belowEntry struct {
	Path Name `json:"path"`
	Dir  bool `json:"dir,omitempty"`
}

// inode is the stat of a real path when the commit checked it.
type inode struct {
	Type  Type     `json:"type"`
	Dev   uint64   `json:"dev"`
	Ino   uint64   `json:"ino"`
	Nlink uint64   `json:"nlink"`
	UID   uint32   `json:"uid"`
	GID   uint32   `json:"gid"`
	Mode  uint32   `json:"mode"`
	Size  int64    `json:"size"`
	Mtime sys.Time `json:"mtime"`
	Ctime sys.Time `json:"ctime"`
}

func inodeOf(st sys.Stat) *inode {
	return &inode{typeOf(st), st.Dev, st.Ino, st.Nlink, st.UID, st.GID, st.Perm(), st.Size,
		st.Mtime, st.Ctime}
}

// is reports whether st is of the same inode, unchanged except by this commit. It ignores changes
// of directories, and the ctime of a file with several links.
func (n *inode) is(st sys.Stat) bool {
	same := n.Dev == st.Dev && n.Ino == st.Ino && n.Type == typeOf(st)
	if n.Type == Dir {
		return same
	}
	return same && n.Size == st.Size && n.Mtime == st.Mtime && (n.Nlink > 1 || n.Ctime == st.Ctime)
}

// sameContent reports whether st is of the same inode with the same size and mtime. A move changes
// only the ctime.
func (n *inode) sameContent(st sys.Stat) bool {
	return n.Dev == st.Dev && n.Ino == st.Ino && n.Type == typeOf(st) && (n.Type == Dir ||
		n.Size == st.Size && n.Mtime == st.Mtime)
}

// makePlan turns changes into steps. First, directories are made writable; they get their final
// modes at the end. Then paths that become another type are moved aside, each tree as a whole. Then
// new content is put in place, directories first. Last, deleted paths are moved aside. In this
// order a program that reads a git repository meanwhile finds each object that a ref names; see
// gitRank. closed are directories of the caller that are made writable for the time of the commit.
func makePlan(changes []Change, closed map[Name]sys.Stat) []step {
	p := planner{fresh: map[string]bool{}, gone: map[string]int{}, way: map[Name]bool{},
		rank: map[Name]int{}}
	for path, st := range closed {
		p.chmodDir(Change{Path: path, seen: st}, st.Perm()&0o777)
	}
	for _, c := range changes {
		p.remove(c)
	}
	for _, c := range changes {
		p.rank[c.Path] = gitRank(c)
		p.add(c)
	}
	byRank := func(a, b step) int { return p.rank[a.Path] - p.rank[b.Path] }
	slices.SortStableFunc(p.middle, byRank)
	slices.SortStableFunc(p.removals, func(a, b step) int { return byRank(b, a) })
	var before, after []step
	for _, s := range p.removals {
		if p.way[s.Path] {
			before = append(before, s)
		} else {
			after = append(after, s)
		}
	}
	byPath := func(a, b step) int { return strings.Compare(string(a.Path), string(b.Path)) }
	// Parents before their entries.
	slices.SortFunc(p.first, byPath)
	slices.SortFunc(p.last, byPath)
	slices.Reverse(p.last)
	return slices.Concat(p.first, before, p.middle, after, p.last)
}

type planner struct {
	first, removals, middle, last []step
	// fresh are the directories that the commit makes.
	fresh map[string]bool
	// gone maps each removed directory to its index in removals.
	gone map[string]int
	// way are the removed paths that get another type, so that they are removed first.
	way map[Name]bool
	// rank has the gitRank of each changed path.
	rank map[Name]int
}

func (p *planner) remove(c Change) {
	path := string(c.Path)
	goes := c.Kind == Deleted || c.Kind == Retyped && (c.Before.Type == Dir || c.After.Type == Dir)
	if !goes {
		return
	}
	for dir := parentOf(path); ; dir = parentOf(dir) {
		if i, ok := p.gone[dir]; ok && dir != path {
			below := belowEntry{Name(path[len(dir)+1:]), c.Before.Type == Dir}
			p.removals[i].Below = append(p.removals[i].Below, below)
			return
		}
		if dir == "" {
			break
		}
	}
	if c.Before.Type == Dir {
		p.gone[path] = len(p.removals)
	}
	p.way[c.Path] = c.Kind == Retyped
	p.removals = append(p.removals,
		step{Op: opRemove, Path: c.Path, Old: inodeOf(c.seen), Near: Name(parentOf(path))})
}

func (p *planner) add(c Change) {
	if c.Kind == Deleted {
		return
	}
	path, mode := string(c.Path), c.After.Mode&0o777
	switch {
	case c.After.Type == Dir && c.Kind == Mode:
		p.chmodDir(c, mode)
	case c.After.Type == Dir:
		p.fresh[path] = true
		p.middle = append(p.middle,
			step{Op: opCreate, Path: c.Path, New: c.After, Near: p.near(path)})
		p.last = append(p.last,
			step{Op: opChmod, Path: c.Path, From: 0o700, Mode: mode, Close: true})
	case c.Kind == Mode && c.seen.Nlink == 1:
		p.middle = append(p.middle,
			step{Op: opChmod, Path: c.Path, From: c.seen.Perm(), Mode: mode, Old: inodeOf(c.seen)})
	case c.Kind == Added || c.Before.Type == Dir:
		p.middle = append(p.middle,
			step{Op: opCreate, Path: c.Path, New: c.After, Mode: mode, Near: p.near(path)})
	default:
		p.middle = append(p.middle, step{Op: opReplace, Path: c.Path, New: c.After, Mode: mode,
			Old: inodeOf(c.seen), Near: p.near(path), SameContent: c.Kind == Mode})
	}
}

func (p *planner) chmodDir(c Change, mode uint32) {
	before := c.seen.Perm() & 0o777
	if open := before | 0o700; open != before {
		p.first = append(p.first,
			step{Op: opChmod, Path: c.Path, From: before, Mode: open, Old: inodeOf(c.seen)})
		before = open
	}
	if mode != before {
		p.last = append(p.last, step{Op: opChmod, Path: c.Path, From: before, Mode: mode,
			Old: inodeOf(c.seen), Close: true})
	}
}

// near returns the closest directory above path that exists before and after the commit.
func (p *planner) near(path string) Name {
	dir := parentOf(path)
	for p.fresh[dir] {
		dir = parentOf(dir)
	}
	return Name(dir)
}

// stager writes the new content of a commit to temporary names.
type stager struct{ c *commit }

// stage writes the new content of step i to its temporary name, with its final owner and mode, and
// sets Staged, Made and Born. It never writes to an existing file, which may have other links.
func (t stager) stage(i int) error {
	s := &t.c.journal.Steps[i]
	if s.Op != opCreate && s.Op != opReplace {
		return nil
	}
	// The directory of the temporary name, and that of a replaced path, must be where they were.
	places := []Name{s.Near}
	if s.Op == opReplace {
		places = append(places, Name(parentOf(string(s.Path))))
	}
	if err := t.c.hand.inPlace(places...); err != nil {
		return err
	}
	own, asDaemon, err := t.owner(*s)
	if err != nil {
		return err
	}
	var made *os.File
	// asItWas: the original inode is restored, with its owner.
	asItWas := false
	switch s.New.Type {
	case Dir:
		made, err = t.stageName(i, *s, func(near *os.File) error {
			return sys.MkdirAt(near, t.c.hand.temp(i), 0o700)
		})
	case Link:
		made, err = t.stageName(i, *s, func(near *os.File) error {
			return sys.SymlinkAt(string(s.New.Target), near, t.c.hand.temp(i))
		})
	default:
		if t.c.past != nil {
			made, asItWas, err = t.stageKept(i, *s)
		} else {
			made, err = t.stageFile(i, *s)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", s.Path, err)
	}
	defer made.Close()
	if !asItWas {
		if err := t.own(made, own, asDaemon); err != nil {
			return err
		}
	}
	st, err := sys.Fstat(made)
	if err != nil {
		return err
	}
	s.Staged, s.Made = st.Ino, inodeOf(st)
	if s.Born, err = sys.Birth(made); err != nil || !s.makesDir() {
		return err
	}
	return t.c.holdFresh(s.Path, made)
}

type owner struct{ uid, gid uint32 }

// owner returns the owner for new content: that of the replaced content, else the workspace's
// owner. asDaemon: the daemon may set it for a caller who cannot, since the caller may write to the
// old file. If the caller may not, owner returns EACCES.
func (t stager) owner(s step) (o owner, asDaemon bool, err error) {
	if s.Old != nil {
		o = owner{s.Old.UID, s.Old.GID}
		if s.Old.Type != File || s.Old.UID == t.c.hand.as.UID || t.c.hand.as.UID == 0 {
			return o, s.Old.Type == File, nil
		}
		err = t.c.hand.at(s.Path, func(dir *os.File, name string) error {
			if !sys.MayWrite(dir, name) {
				return &fs.PathError{Op: "commit", Path: s.Path.String(), Err: syscall.EACCES}
			}
			return nil
		})
		return o, true, err
	}
	o = owner{t.c.w.meta.UID, t.c.w.meta.GID}
	near, err := t.c.hand.find(s.Near, ".")
	if err == nil && near != nil && near.Mode&syscall.S_ISGID != 0 {
		o.gid = near.GID
	}
	return o, false, err
}

func (t stager) own(f *os.File, o owner, asDaemon bool) error {
	st, err := sys.Fstat(f)
	if err != nil || st.UID == o.uid && st.GID == o.gid {
		return err
	}
	set := func() error {
		if err := sys.Chown(f, o.uid, o.gid); err != nil || typeOf(st) != File {
			return err
		}
		// chown clears bits.
		return sys.Chmod(f, st.Perm())
	}
	if asDaemon {
		return set()
	}
	// If the caller may not change the owner, the caller stays the owner.
	t.c.hand.as.do(set)
	return nil
}

func (t stager) stageName(i int, s step, make func(near *os.File) error) (f *os.File, err error) {
	err = t.c.hand.in(s.Near, func(near *os.File) error {
		if err := make(near); err != nil {
			return err
		}
		f, err = sys.OpenPath(near, t.c.hand.temp(i))
		return err
	})
	return f, err
}

func (t stager) stageFile(i int, s step) (made *os.File, err error) {
	var content *os.File
	text, rewritten := t.c.texts[s.Path]
	if !rewritten {
		dir, name, err := t.c.upper.at(s.Path)
		if err != nil {
			return nil, err
		}
		defer dir.Close()
		if content, err = openRegular(dir, name); err != nil {
			return nil, err
		}
		defer content.Close()
	}
	err = t.c.hand.in(s.Near, func(near *os.File) error {
		if made, err = newFile(near, t.c.hand.temp(i)); err != nil {
			return err
		}
		if err := t.keepAttributes(made, s); err != nil {
			return err
		}
		if rewritten {
			_, err := made.WriteString(text)
			return errors.Join(err, sys.Chmod(made, s.Mode))
		}
		err = writeContent(made, content, s)
		if err == nil && s.SameContent {
			err = sys.SetMtime(made, s.Old.Mtime)
		}
		return err
	})
	if err == nil {
		err = checkContent(t.c.ctx, made, s.New)
	}
	if err != nil && made != nil {
		made.Close()
		made = nil
	}
	return made, err
}

func writeContent(made, content *os.File, s step) error {
	if err := copyData(made, content, s.New.Size); err != nil {
		return err
	}
	return sys.Chmod(made, s.Mode)
}

// checkContent returns ErrDigest unless the content of f has the hash of n, which was reviewed.
func checkContent(ctx context.Context, f *os.File, n *Node) error {
	sum, _, err := hashFile(f, n.Size, ctx.Err, nil)
	if err == nil && sum != n.SHA256 {
		err = ErrDigest
	}
	return err
}

// keepAttributes copies the extended attributes of a replaced file that kept names, if the caller
// may read it. The mode is set later, so that an ACL does not widen it.
func (t stager) keepAttributes(made *os.File, s step) error {
	if s.Old == nil || s.Old.Type != File {
		return nil
	}
	dir, name := split(string(s.Path))
	d, done, err := t.c.hand.dir(Name(dir))
	if err != nil {
		return err
	}
	defer done()
	old, err := openRegular(d, name)
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	defer old.Close()
	return copyXattrs(made, old, kept)
}
