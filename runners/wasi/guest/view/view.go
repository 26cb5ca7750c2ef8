// Package view is the file system of a WASI guest: the mounts that it was granted, below a virtual
// root directory. Every path is resolved by the kernel beneath a directory descriptor (openat2),
// or, where a path leaves the descriptor that it started from, one component at a time beneath
// descriptors that this package holds. A path of the guest never becomes a path of the jail, and no
// name is checked first and used again later.
//
// A View is for one goroutine, as a guest has one.
package view

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/runners/internal/sys"
)

// Errno is the kernel's error number; zero is success.
type Errno = sys.Errno

// Hidden says which names of a mount do not exist for the guest. Paths are
// relative to the mount, clean, with no leading slash.
type Hidden interface {
	// Match reports whether the name, or a directory that it lies in, is hidden.
	Match(rel string) bool
	// CouldContain reports whether something below the directory could be hidden.
	CouldContain(dir string) bool
}

// Mount is one granted directory.
type Mount struct {
	// In the guest's tree: absolute and clean.
	Path string
	// The directory; New takes it over.
	FD     int
	Write  bool
	Hidden Hidden // nil: nothing is hidden
	// Whole includes what the kernel has mounted below the directory.
	Whole bool
}

// Recorder receives each refusal.
type Recorder interface {
	// Denied receives the refused operation ("read /etc/shadow") and the rule against it.
	Denied(what, rule string)
}

// Rules that a refusal names.
const (
	ruleOutside  = "not in the tool's view"
	ruleEscape   = "leads out of the tool's view"
	RuleReadOnly = "read-only mount"
	ruleHidden   = "hidden"
	ruleSpecial  = "neither a regular file nor a directory"
	ruleAbsolute = "link to an absolute path"
	ruleVirtual  = "part of the view itself"
)

// View is the guest's tree.
type View struct {
	root   *node
	mounts []*mount
	rec    Recorder
	// Open ones, whose place in the tree a rename changes.
	dirs map[*Dir]struct{}
}

// node is a virtual directory of the view, the root of a mount, or a device.
type node struct {
	name     string
	parent   *node
	children []*node
	mount    *mount
	device   *sys.Stat // nil for a directory
}

type mount struct {
	Mount
	node *node
}

// resolve returns how the kernel resolves a path of the mount (openat2(2)).
func (m *mount) resolve() uint64 {
	if m.Whole {
		return sys.ResolveBeneath &^ sys.ResolveNoXDev
	}
	return sys.ResolveBeneath
}

// New makes a view of the mounts, which must not lie inside one another.
func New(mounts []Mount, rec Recorder) (*View, error) {
	v := &View{root: &node{}, rec: rec, dirs: make(map[*Dir]struct{})}
	for _, m := range mounts {
		n, err := v.plant(m.Path)
		if err != nil {
			v.Close()
			return nil, err
		}
		n.mount = &mount{Mount: m, node: n}
		v.mounts = append(v.mounts, n.mount)
	}
	return v, nil
}

// plant makes the nodes of p and its parents, and returns the node of p.
func (v *View) plant(p string) (*node, error) {
	if !path.IsAbs(p) || path.Clean(p) != p {
		return nil, fmt.Errorf("mount %q: not a clean absolute path", p)
	}
	n := v.root
	for name := range strings.SplitSeq(p[1:], "/") {
		if name == "" {
			// The path is "/".
			break
		}
		if n.mount != nil {
			break
		}
		c := n.child(name)
		if c == nil {
			c = &node{name: name, parent: n}
			n.children = append(n.children, c)
		}
		n = c
	}
	if n.mount != nil || len(n.children) > 0 {
		return nil, fmt.Errorf("mount %s: lies inside another mount, or another inside it", p)
	}
	return n, nil
}

func (n *node) child(name string) *node {
	for _, c := range n.children {
		if c.name == name {
			return c
		}
	}
	return nil
}

// path returns the absolute path of n in the guest's tree.
func (n *node) path() string {
	if n.parent == nil {
		return "/"
	}
	return path.Join(n.parent.path(), n.name)
}

// Mounted reports whether p is the path of one of the mounts given to New.
func (v *View) Mounted(p string) bool {
	return slices.ContainsFunc(v.mounts, func(m *mount) bool { return m.Path == p })
}

// Close closes the descriptors of the mounts. Open Dirs have their own.
func (v *View) Close() {
	for _, m := range v.mounts {
		// A directory: nothing is written back.
		_ = sys.Close(m.FD)
	}
	v.mounts = nil
}

// Root opens the root directory of the view.
func (v *View) Root() (*Dir, Errno) {
	o, e := v.top().Open(".", How{Read: true, Directory: true})
	return o.Dir, e
}

// Preopen opens the directory at an absolute path of the guest as one that is
// confined: what is beside its mount cannot be reached through it by "..".
func (v *View) Preopen(p string) (*Dir, Errno) {
	o, e := v.top().Open(cmp.Or(strings.TrimPrefix(p, "/"), "."),
		How{Read: true, Directory: true, Follow: true})
	if e != 0 {
		return nil, e
	}
	o.Dir.confined = true
	return o.Dir, 0
}

// top returns the root of the view as a start for resolution. It must not be closed.
func (v *View) top() *Dir {
	if m := v.root.mount; m != nil {
		return &Dir{v: v, m: m, fd: m.FD}
	}
	return &Dir{v: v, node: v.root, fd: -1}
}
