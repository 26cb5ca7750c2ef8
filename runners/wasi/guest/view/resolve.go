package view

import (
	"strings"
	"syscall"

	"github.com/jail-sandbox/jail/runners/internal/sys"
)

// maxPath is the longest path, in bytes, as in the kernel.
const maxPath = 4095

// base is where the kernel's resolution starts: a directory of a mount.
type base struct {
	m        *mount
	fd       int
	rel      string
	confined bool
}

// fault is an error number, and the rule to record if it is a refusal.
type fault struct {
	errno Errno
	// empty: an ordinary error, not recorded
	rule string
}

var none fault

func plain(e Errno) fault { return fault{errno: e} }

// fail records a fault of an operation on p if it is a refusal, and returns its error number.
func (d *Dir) fail(f fault, verb, p string) Errno {
	if f.rule == "" {
		return f.errno
	}
	return d.refuse(f.errno, verb, p, f.rule)
}

// checkPath refuses invalid paths.
func checkPath(p string) fault {
	switch {
	case p == "":
		return plain(syscall.ENOENT)
	case len(p) > maxPath:
		return plain(syscall.ENAMETOOLONG)
	case strings.IndexByte(p, 0) >= 0:
		return plain(syscall.EINVAL)
	case p[0] == '/':
		// Preview 1 has no absolute paths: libraries make them relative to a
		// preopened directory, so one here is an attempt to leave it.
		return fault{syscall.EPERM, ruleEscape}
	}
	return none
}

// cut takes the first component off p, without its slashes.
func cut(p string) (name, rest string) {
	p = strings.TrimLeft(p, "/")
	i := strings.IndexByte(p, '/')
	if i < 0 {
		return p, ""
	}
	return p[:i], p[i:]
}

// enter walks p through the virtual directories. It returns the node if p ends at one, else a
// directory of a mount and the rest of the path, at least ".".
func (d *Dir) enter(p string) (base, string, *node, fault) {
	if f := checkPath(p); f != none {
		return base{}, "", nil, f
	}
	if d.m != nil {
		for len(p) > 2 && p[:2] == "./" && p[2] != '/' {
			// Saves opening "." to find the name behind it.
			p = p[2:]
		}
		return base{d.m, d.fd, d.rel, d.confined}, p, nil, none
	}
	return enterNode(d.node, p)
}

func enterNode(n *node, p string) (base, string, *node, fault) {
	for {
		if n.device != nil {
			return base{}, "", nil, plain(syscall.ENOTDIR)
		}
		name, rest := cut(p)
		switch name {
		case "", ".":
			if rest == "" && n.mount == nil {
				return base{}, "", n, none
			}
		case "..":
			if n.parent == nil {
				return base{}, "", nil, fault{syscall.EPERM, ruleEscape}
			}
			n = n.parent
		default:
			if n.mount != nil {
				return base{m: n.mount, fd: n.mount.FD}, strings.TrimLeft(p, "/"), nil, none
			}
			if n = n.child(name); n == nil {
				return base{}, "", nil, fault{syscall.EACCES, ruleOutside}
			}
		}
		if p = rest; p == "" {
			if n.mount != nil {
				return base{m: n.mount, fd: n.mount.FD}, ".", nil, none
			}
			return base{}, "", n, none
		}
	}
}

// opened is the result of opening a path: a descriptor and its place, or a directory of the view
// itself, without a descriptor.
type opened struct {
	fd   int
	base base
	node *node
}

// openBeneath opens p and returns its path in the mount. Hidden names are not opened. One
// openat2(2) does it, except for paths that leave their directory by ".." or an absolute link, and
// for links on mounts with hidden names, which are walked.
func (v *View) openBeneath(b base, p string, flags, mode uint64) (opened, fault) {
	resolve := b.m.resolve()
	dotdot := hasDotDot(p)
	if b.m.Hidden != nil {
		if dotdot {
			return v.openWalked(b, p, flags, mode)
		}
		if b.hides(p) {
			return opened{}, hiddenFault(flags)
		}
		resolve |= sys.ResolveNoSymlinks
	}
	fd, err := sys.Openat2(b.fd, p, flags, mode, resolve)
	if err == nil {
		return b.opened(fd, p), none
	}
	e := sys.ErrnoOf(err)
	if e == syscall.EXDEV && dotdot && b.rel != "" && !climbs(p) {
		return opened{}, fault{syscall.EPERM, ruleEscape}
	}
	if e == syscall.EXDEV && dotdot && b.rel != "" {
		// The path may still end in the mount, above where it started.
		whole := joinRel(b.rel, p)
		fd, err = sys.Openat2(b.m.FD, whole, flags, mode, resolve)
		if err == nil {
			return base{b.m, b.m.FD, "", b.confined}.opened(fd, whole), none
		}
		e = sys.ErrnoOf(err)
	}
	if e == syscall.EXDEV || e == syscall.ELOOP && b.m.Hidden != nil {
		return v.openWalked(b, p, flags, mode)
	}
	return opened{}, plain(e)
}

// openWalked is openBeneath for a path that the kernel does not resolve.
func (v *View) openWalked(b base, p string, flags, mode uint64) (opened, fault) {
	const create = syscall.O_CREAT | syscall.O_EXCL
	s, f := v.walk(b, p, flags&syscall.O_NOFOLLOW == 0 && flags&create != create)
	if f != none {
		if f.rule == ruleHidden {
			f = hiddenFault(flags)
		}
		return opened{}, f
	}
	defer s.close()
	if s.node != nil {
		return opened{node: s.node}, none
	}
	if s.slash {
		if flags&syscall.O_CREAT != 0 {
			return opened{}, plain(syscall.EISDIR)
		}
		flags |= syscall.O_DIRECTORY
	}
	// The walk may have come here from a mount that can be changed.
	if !s.m.Write {
		if flags&(syscall.O_WRONLY|syscall.O_RDWR|syscall.O_TRUNC|syscall.O_APPEND) != 0 {
			return opened{}, fault{syscall.EROFS, RuleReadOnly}
		}
		flags, mode = flags&^(syscall.O_CREAT|syscall.O_EXCL), 0
	}
	fd, err := sys.Openat2(s.fd, s.name, flags|syscall.O_NOFOLLOW, mode, s.m.resolve())
	if err != nil {
		return opened{}, plain(escaped(sys.ErrnoOf(err)))
	}
	return s.opened(fd, s.name), none
}

// opened returns fd, opened at p below b.
func (b base) opened(fd int, p string) opened {
	return opened{fd: fd, base: base{b.m, fd, joinRel(b.rel, p), b.confined}}
}

func hiddenFault(flags uint64) fault {
	if flags&syscall.O_CREAT != 0 {
		return fault{syscall.EPERM, ruleHidden}
	}
	return fault{syscall.ENOENT, ruleHidden}
}

// escaped returns EPERM to the guest if the kernel says that a path leaves its mount; EXDEV would
// look like a rename between file systems.
func escaped(e Errno) Errno {
	if e == syscall.EXDEV {
		return syscall.EPERM
	}
	return e
}

// spot is one name in a real directory, the directory itself (name "."), or a
// directory of the view (node).
type spot struct {
	base
	name string
	// A directory was asked for, by a trailing slash or dot.
	slash bool
	// fd is for close to give back
	owned bool
	node  *node
}

func (s *spot) close() {
	if s.owned {
		// O_PATH: nothing is written back
		_ = sys.Close(s.fd)
		s.owned = false
	}
}

// rel of the thing itself.
func (s *spot) path() string { return joinRel(s.rel, s.name) }

// spot finds the name that p ends in, and opens the directory that holds it. A
// link at the end is not followed.
func (d *Dir) spot(p string) (spot, fault) {
	b, p, n, f := d.enter(p)
	if f != none {
		return spot{}, f
	}
	if n != nil {
		return spot{node: n}, none
	}
	dir, name, slash := splitLast(p)
	if name == "." || name == ".." {
		o, f := d.v.openBeneath(b, p, sys.OPath|syscall.O_DIRECTORY, 0)
		if f != none || o.node != nil {
			return spot{node: o.node}, f
		}
		return spot{base: o.base, name: ".", slash: true, owned: true}, none
	}
	s := spot{base: b, name: name, slash: slash}
	if dir != "" {
		o, f := d.v.openBeneath(b, dir, sys.OPath|syscall.O_DIRECTORY, 0)
		if f != none {
			return spot{}, f
		}
		if o.node != nil {
			return d.v.below(o.node, name, slash)
		}
		s.base, s.owned = o.base, true
	}
	if s.m.Hidden != nil && s.m.Hidden.Match(s.path()) {
		s.close()
		return spot{}, fault{syscall.ENOENT, ruleHidden}
	}
	return s, none
}

// below returns the spot of a name in a virtual directory.
func (v *View) below(n *node, name string, slash bool) (spot, fault) {
	b, p, n, f := enterNode(n, name)
	if f != none || n != nil {
		return spot{node: n}, f
	}
	return spot{base: b, name: p, slash: slash}, none
}

// hasDotDot reports whether a component of p is "..".
func hasDotDot(p string) bool {
	for i := strings.Index(p, ".."); i >= 0; {
		before := i == 0 || p[i-1] == '/'
		after := i+2 == len(p) || p[i+2] == '/'
		if before && after {
			return true
		}
		j := strings.Index(p[i+1:], "..")
		if j < 0 {
			return false
		}
		i += 1 + j
	}
	return false
}

// climbs reports whether p starts with ".." and has it nowhere else. That is how a tool goes back
// up from a directory that it opened, and is allowed inside the mount. A path that goes down first
// and then up beyond its start is refused, as WASI wants all of them to be.
func climbs(p string) bool {
	for {
		name, rest := cut(p)
		if name != ".." {
			return !hasDotDot(p)
		}
		p = rest
	}
}

// splitLast splits off the last component. slash tells that slashes followed it.
func splitLast(p string) (dir, name string, slash bool) {
	trimmed := strings.TrimRight(p, "/")
	slash = len(trimmed) < len(p)
	i := strings.LastIndexByte(trimmed, '/')
	if i < 0 {
		return "", trimmed, slash
	}
	return trimmed[:i], trimmed[i+1:], slash
}

// joinRel appends the path p to rel, leaving out empty and "." components; ".."
// stays, because what is before it may be a link. A result too long for the
// kernel is still a path, one that every call refuses.
func joinRel(rel, p string) string {
	// Most paths are a single name.
	if !strings.Contains(p, "/") {
		switch {
		case p == "" || p == ".":
			return rel
		case rel == "":
			return p
		}
	}
	var b strings.Builder
	b.Grow(len(rel) + 1 + len(p))
	b.WriteString(rel)
	for name := range strings.SplitSeq(p, "/") {
		if name == "" || name == "." {
			continue
		}
		if b.Len() > maxPath {
			break
		}
		if b.Len() > 0 {
			b.WriteByte('/')
		}
		b.WriteString(name)
	}
	return b.String()
}

// hides reports whether p, which has no ".." and leads through no link, is
// hidden, or lies in a directory that is.
func (b base) hides(p string) bool {
	rel := joinRel(b.rel, p)
	return rel != "" && b.m.Hidden.Match(rel)
}

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

// run resolves p. It replaces a link by its target in the rest of the path.
func (w *walker) run(p string, follow bool) (spot, fault) {
	slash := false
	for {
		if w.count++; w.count > maxSteps || len(p) > linkSize+maxPath {
			return spot{}, plain(syscall.ENAMETOOLONG)
		}
		name, rest := cut(p)
		last := strings.Trim(rest, "/") == ""
		slash = last && rest != ""
		switch name {
		case "", ".":
		case "..":
			if len(w.steps)-1 < max(w.floor, 1) {
				return spot{}, fault{syscall.EPERM, ruleEscape}
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
			return spot{}, plain(syscall.ENOTDIR)
		}
		if last {
			return w.here(), none
		}
		p = rest
	}
}

// restart moves the walk to the root of the view, where absolute links start.
func (w *walker) restart() {
	w.close()
	w.steps, w.floor = w.steps[:0], 0
	w.push(w.v.root)
}

// here returns the spot of the directory that the walk has reached.
func (w *walker) here() spot {
	t := w.top()
	if t.node != nil {
		return spot{node: t.node}
	}
	s := spot{base: t.base, name: ".", slash: true, owned: t.owned}
	// The spot owns the directory now.
	t.owned = false
	return s
}

// down resolves one component. It steps into a directory, or returns the target of a link to
// follow, or, for the last component, its spot.
func (w *walker) down(name string, last, follow bool) (*spot, string, fault) {
	t := w.top()
	if t.node != nil {
		c := t.node.child(name)
		if c == nil {
			return nil, "", fault{syscall.EACCES, ruleOutside}
		}
		w.push(c)
		return nil, "", none
	}
	rel := joinRel(t.rel, name)
	if t.m.Hidden != nil && t.m.Hidden.Match(rel) {
		return nil, "", fault{syscall.ENOENT, ruleHidden}
	}
	fd, err := sys.Openat2(t.fd, name, sys.OPath|syscall.O_NOFOLLOW, 0, t.m.resolve())
	if err != nil {
		if e := sys.ErrnoOf(err); e != syscall.ENOENT || !last {
			return nil, "", plain(escaped(e))
		}
		// The name may be created.
		return w.take(name), "", none
	}
	var st sys.Stat
	if err := sys.Fstat(fd, &st); err != nil {
		_ = sys.Close(fd)
		return nil, "", plain(sys.ErrnoOf(err))
	}
	switch kind := st.Mode & syscall.S_IFMT; {
	case kind == syscall.S_IFLNK && (!last || follow):
		target, f := w.readLink(fd)
		_ = sys.Close(fd)
		return nil, target, f
	case kind == syscall.S_IFDIR && !last:
		w.steps = append(w.steps, step{base: base{m: t.m, fd: fd, rel: rel}, owned: true})
		return nil, "", none
	}
	_ = sys.Close(fd)
	if !last {
		return nil, "", plain(syscall.ENOTDIR)
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
		return "", plain(syscall.ELOOP)
	}
	var buf [linkSize]byte
	n, err := sys.Readlinkat(fd, "", buf[:])
	if err != nil {
		return "", plain(sys.ErrnoOf(err))
	}
	if n == 0 {
		return "", plain(syscall.ENOENT)
	}
	return string(buf[:n]), none
}
