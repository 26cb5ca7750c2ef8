package view

import (
	"strings"

	"github.com/jail-sandbox/jail/runners/internal/sys"
)

// Bounds of a walk. maxLinks is the kernel's own.
const (
	maxLinks = 40
	maxSteps = 4096
	linkSize = 4096
)

// walker resolves a path one component at a time, where the kernel's single call cannot: the path
// crosses from one mount to another, or a link has an absolute target, which is a path of the
// guest. It follows links itself and keeps a descriptor of every directory that it went down, so
// that ".." means the directory that it came from, whatever is renamed meanwhile.
type walker struct {
	v *View
	// Steps that ".." may not undo: a confined directory.
	floor int
	steps []step
	links int
	count int
}

// step is one directory on the way: of the view, or of a mount.
type step struct {
	node *node
	base
	owned bool
}

// walk finds the spot of p below b. follow is about a link at the end.
func (v *View) walk(b base, p string, follow bool) (spot, fault) {
	w := walker{v: v}
	defer w.close()
	w.enter(b.m.node)
	if b.confined {
		w.floor = len(w.steps)
	}
	if b.rel != "" {
		p = b.rel + "/" + p
	}
	return w.run(p, follow)
}

func (w *walker) close() {
	for i := range w.steps {
		w.drop(i)
	}
}

func (w *walker) drop(i int) {
	if w.steps[i].owned {
		// O_PATH: nothing is written back
		_ = sys.Close(w.steps[i].fd)
		w.steps[i].owned = false
	}
}

// enter puts the way from the root of the view down to n on the empty stack.
func (w *walker) enter(n *node) {
	if n.parent != nil {
		w.enter(n.parent)
	}
	w.push(n)
}

func (w *walker) push(n *node) {
	s := step{node: n}
	if n.mount != nil {
		s = step{base: base{m: n.mount, fd: n.mount.FD}}
	}
	w.steps = append(w.steps, s)
}

func (w *walker) top() *step { return &w.steps[len(w.steps)-1] }

// run consumes p. A link on the way is put in front of what is left.
func (w *walker) run(p string, follow bool) (spot, fault) {
	slash := false
	for {
		if w.count++; w.count > maxSteps || len(p) > linkSize+maxPath {
			return spot{}, plain(sys.ENAMETOOLONG)
		}
		name, rest := cut(p)
		last := strings.Trim(rest, "/") == ""
		slash = last && rest != ""
		switch name {
		case "", ".":
		case "..":
			if len(w.steps)-1 < max(w.floor, 1) {
				return spot{}, fault{sys.EPERM, ruleEscape}
			}
			w.drop(len(w.steps) - 1)
			w.steps = w.steps[:len(w.steps)-1]
		default:
			s, target, f := w.down(name, last, follow || slash)
			switch {
			case f != none:
				return spot{}, f
			case target != "":
				if target[0] == '/' {
					w.restart()
				}
				p = target + rest
				continue
			case s != nil:
				s.slash = slash
				return *s, none
			}
		}
		if n := w.top().node; n != nil && n.device != nil && (slash || !last) {
			return spot{}, plain(sys.ENOTDIR)
		}
		if last {
			return w.here(), none
		}
		p = rest
	}
}

// restart goes to the root of the view, where absolute links start.
func (w *walker) restart() {
	w.close()
	w.steps, w.floor = w.steps[:0], 0
	w.push(w.v.root)
}

// here is the spot of the directory that the walk has come to.
func (w *walker) here() spot {
	t := w.top()
	if t.node != nil {
		return spot{node: t.node}
	}
	s := spot{base: t.base, name: ".", slash: true, owned: t.owned}
	t.owned = false // now the spot's
	return s
}

// down takes one component. It steps into a directory, or returns the target of
// a link to follow, or, for the last component, its spot.
func (w *walker) down(name string, last, follow bool) (*spot, string, fault) {
	t := w.top()
	if t.node != nil {
		c := t.node.child(name)
		if c == nil {
			return nil, "", fault{sys.EACCES, ruleOutside}
		}
		w.push(c)
		return nil, "", none
	}
	rel := joinRel(t.rel, name)
	if t.m.Hidden != nil && t.m.Hidden.Match(rel) {
		return nil, "", fault{sys.ENOENT, ruleHidden}
	}
	fd, err := sys.Openat2(t.fd, name, sys.OPath|sys.ONofollow, 0, t.m.resolve())
	if err != nil {
		if e := sys.ErrnoOf(err); e != sys.ENOENT || !last {
			return nil, "", plain(escaped(e))
		}
		return w.take(name), "", none // to be created, perhaps
	}
	var st sys.Stat
	if err := sys.Fstat(fd, &st); err != nil {
		_ = sys.Close(fd)
		return nil, "", plain(sys.ErrnoOf(err))
	}
	switch kind := st.Mode & sys.SIFMT; {
	case kind == sys.SIFLNK && (!last || follow):
		target, f := w.readLink(fd)
		_ = sys.Close(fd)
		return nil, target, f
	case kind == sys.SIFDIR && !last:
		w.steps = append(w.steps, step{base: base{m: t.m, fd: fd, rel: rel}, owned: true})
		return nil, "", none
	}
	_ = sys.Close(fd)
	if !last {
		return nil, "", plain(sys.ENOTDIR)
	}
	return w.take(name), "", none
}

// take makes the spot of name in the directory on top, which becomes the spot's.
func (w *walker) take(name string) *spot {
	t := w.top()
	s := &spot{base: t.base, name: name, owned: t.owned}
	t.owned = false
	return s
}

func (w *walker) readLink(fd int) (string, fault) {
	if w.links++; w.links > maxLinks {
		return "", plain(sys.ELOOP)
	}
	var buf [linkSize]byte
	n, err := sys.Readlinkat(fd, "", buf[:])
	if err != nil {
		return "", plain(sys.ErrnoOf(err))
	}
	if n == 0 {
		return "", plain(sys.ENOENT)
	}
	return string(buf[:n]), none
}
