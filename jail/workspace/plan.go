package workspace

import (
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// An op is one primitive change of the real directory. Each has an exact inverse, and by the inodes that are found one
// can tell whether it was carried out; see Workspace.undo.
type op string

const (
	opChmod   op = "chmod"   // set the permission bits
	opRemove  op = "remove"  // move the path aside, to the step's temporary name
	opCreate  op = "create"  // move what was staged below the temporary name to the path, which is free; a directory is empty and 0700
	opReplace op = "replace" // exchange what was staged with what has the path
)

// A step is one op with all that is needed to carry it out and to undo it. The journal is a list of them.
type step struct {
	Op   op     `json:"op"`
	Path Name   `json:"path"`
	Old  *inode `json:"old,omitempty"` // what has the path before
	New  *Node  `json:"new,omitempty"` // what is to have it
	Mode uint32 `json:"mode,omitempty"`
	From uint32 `json:"from,omitempty"` // of a chmod: the mode before
	// Close is a chmod that can take the right to write in a directory away, and comes when nothing is left to do in it; see commit.finish.
	Close bool `json:"close,omitempty"`
	// SameContent: a file that gets another mode becomes a file of its own, since it has other names, and keeps its time.
	SameContent bool `json:"same_content,omitempty"`
	// Near is the directory, there before and after, in which the temporary name is.
	Near Name `json:"near,omitempty"`
	// Staged is the inode number of what was staged: by this step, or, for the chmod of a new directory, by the one that makes it.
	Staged uint64 `json:"staged,omitempty"`
	// Below lists what is in a removed directory, each before what is in it.
	Below []belowEntry `json:"below,omitempty"`
}

// A belowEntry is a path relative to a removed directory.
type belowEntry struct {
	Path Name `json:"path"`
	Dir  bool `json:"dir,omitempty"`
}

// An inode is what the real path was when it was checked.
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
	return &inode{typeOf(st), st.Dev, st.Ino, st.Nlink, st.UID, st.GID, st.Perm(), st.Size, st.Mtime, st.Ctime}
}

// is reports whether st is the same inode, unchanged as far as this commit does not change it itself: directories change with their
// entries, and the ctime of a file with several names with each of those.
func (n *inode) is(st sys.Stat) bool {
	same := n.Dev == st.Dev && n.Ino == st.Ino && n.Type == typeOf(st)
	if n.Type == Dir {
		return same
	}
	return same && n.Size == st.Size && n.Mtime == st.Mtime && (n.Nlink > 1 || n.Ctime == st.Ctime)
}

// makePlan turns changes into steps: directories are opened up that are to be written in and get their mode at the end, after
// what was moved aside is gone; in between what goes is moved aside, each tree as a whole, and then what comes is put in place, directories first.
// closed are directories that are there already and that the caller, who owns them, has to open for the time of the commit.
func makePlan(changes []Change, closed map[Name]sys.Stat) []step {
	p := planner{fresh: map[string]bool{}, gone: map[string]int{}}
	for path, st := range closed {
		p.chmodDir(Change{Path: path, seen: st}, st.Perm()&0o777)
	}
	for _, c := range changes {
		p.remove(c)
	}
	for _, c := range changes {
		p.add(c)
	}
	byPath := func(a, b step) int { return strings.Compare(string(a.Path), string(b.Path)) }
	slices.SortFunc(p.first, byPath) // each directory before what is in it
	slices.SortFunc(p.last, byPath)
	slices.Reverse(p.last)
	return slices.Concat(p.first, p.removals, p.middle, p.last)
}

type planner struct {
	first, removals, middle, last []step
	fresh                         map[string]bool // directories that come
	gone                          map[string]int  // directories that go, by their removal
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
	p.removals = append(p.removals, step{Op: opRemove, Path: c.Path, Old: inodeOf(c.seen), Near: Name(parentOf(path))})
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
		p.middle = append(p.middle, step{Op: opCreate, Path: c.Path, New: c.After, Near: p.near(path)})
		p.last = append(p.last, step{Op: opChmod, Path: c.Path, From: 0o700, Mode: mode, Close: true})
	case c.Kind == Mode && c.seen.Nlink == 1:
		p.middle = append(p.middle, step{Op: opChmod, Path: c.Path, From: c.seen.Perm(), Mode: mode, Old: inodeOf(c.seen)})
	case c.Kind == Added || c.Before.Type == Dir:
		p.middle = append(p.middle, step{Op: opCreate, Path: c.Path, New: c.After, Mode: mode, Near: p.near(path)})
	default:
		p.middle = append(p.middle, step{Op: opReplace, Path: c.Path, New: c.After, Mode: mode, Old: inodeOf(c.seen), Near: p.near(path), SameContent: c.Kind == Mode})
	}
}

func (p *planner) chmodDir(c Change, mode uint32) {
	before := c.seen.Perm() & 0o777
	if open := before | 0o700; open != before {
		p.first = append(p.first, step{Op: opChmod, Path: c.Path, From: before, Mode: open, Old: inodeOf(c.seen)})
		before = open
	}
	if mode != before {
		p.last = append(p.last, step{Op: opChmod, Path: c.Path, From: before, Mode: mode, Old: inodeOf(c.seen), Close: true})
	}
}

// near finds the closest directory above path that is there from beginning to end.
func (p *planner) near(path string) Name {
	dir := parentOf(path)
	for p.fresh[dir] {
		dir = parentOf(dir)
	}
	return Name(dir)
}
