package view

import (
	"strings"
	"syscall"

	"github.com/jail-sandbox/jail/runners/internal/sys"
)

// simple reports whether p is one plain component, which needs no resolution.
func simple(p string) bool {
	return p != "" && p != "." && p != ".." && strings.IndexByte(p, '/') < 0
}

// Stat returns the attributes of the file at p. follow is for a link at the end.
func (d *Dir) Stat(p string, follow bool) (sys.Stat, Errno) {
	b, rest, n, f := d.enter(p)
	if f != none {
		return sys.Stat{}, d.fail(f, "read", p)
	}
	if n != nil {
		return n.stat(), 0
	}
	var st sys.Stat
	if simple(rest) && (b.m.Hidden == nil || !b.m.Hidden.Match(joinRel(b.rel, rest))) {
		// One call for nearly all: only a link has to be looked at again.
		err := sys.Lstatat(b.fd, rest, &st)
		if err != nil || !follow || st.Mode&syscall.S_IFMT != syscall.S_IFLNK {
			return st, sys.ErrnoOf(err)
		}
	}
	o, f := d.v.openBeneath(b, rest, pathFlags(follow), 0)
	switch {
	case f != none:
		return sys.Stat{}, escaped(d.fail(f, "read", p))
	case o.node != nil:
		return o.node.stat(), 0
	}
	err := sys.Fstat(o.fd, &st)
	_ = sys.Close(o.fd)
	return st, sys.ErrnoOf(err)
}

// pathFlags returns the flags to open any file with O_PATH.
func pathFlags(follow bool) uint64 {
	if follow {
		return sys.OPath
	}
	return sys.OPath | syscall.O_NOFOLLOW
}

// SetTimes sets the times of the file at p.
func (d *Dir) SetTimes(p string, follow bool, ts *[2]sys.Timespec) Errno {
	b, rest, n, f := d.enter(p)
	if f == none && n == nil {
		var o opened
		if o, f = d.v.openBeneath(b, rest, pathFlags(follow), 0); f == none {
			if n = o.node; n == nil {
				defer sys.Close(o.fd)
				if !o.base.m.Write {
					return d.refuse(syscall.EROFS, "write", p, RuleReadOnly)
				}
				return sys.ErrnoOf(sys.UtimensPath(o.fd, ts))
			}
		}
	}
	if f != none {
		return escaped(d.fail(f, "write", p))
	}
	return d.refuse(syscall.EACCES, "write", p, ruleVirtual)
}

// change finds the spot that an operation changes, on a mount that allows it.
// The caller closes the spot.
func (d *Dir) change(p string) (spot, Errno) {
	s, f := d.spot(p)
	switch {
	case f.rule == ruleHidden:
		return s, d.refuse(syscall.EPERM, "write", p, ruleHidden)
	case f != none:
		return s, escaped(d.fail(f, "write", p))
	case s.node != nil:
		// Each operation has its own error for it.
		return s, 0
	case !s.m.Write:
		s.close()
		return s, d.refuse(syscall.EROFS, "write", p, RuleReadOnly)
	}
	return s, 0
}

// Mkdir makes a directory.
func (d *Dir) Mkdir(p string) Errno {
	// mkdir -p needs EEXIST for an existing directory, also on a read-only mount.
	if s, f := d.spot(p); f == none {
		defer s.close()
		if s.node != nil || s.name == "." {
			return syscall.EEXIST
		}
		var st sys.Stat
		if !s.m.Write && sys.Lstatat(s.fd, s.name, &st) == nil {
			return syscall.EEXIST
		}
		if s.m.Write {
			return sys.ErrnoOf(sys.Mkdirat(s.fd, s.name, dirMode))
		}
	}
	s, e := d.change(p)
	if e == 0 {
		s.close()
		e = syscall.EEXIST
	}
	return e
}

// Unlink removes a file or a link.
func (d *Dir) Unlink(p string) Errno {
	s, e := d.remove(p)
	if e != 0 {
		return e
	}
	defer s.close()
	if s.name == "." {
		return syscall.EISDIR
	}
	if s.slash {
		if isDir, e := s.isDir(); e != 0 {
			return e
		} else if isDir {
			return syscall.EISDIR
		}
		return syscall.ENOTDIR
	}
	return sys.ErrnoOf(sys.Unlinkat(s.fd, s.name))
}

// Rmdir removes an empty directory.
func (d *Dir) Rmdir(p string) Errno {
	s, e := d.remove(p)
	if e != 0 {
		return e
	}
	defer s.close()
	if s.name == "." {
		return syscall.EINVAL
	}
	return sys.ErrnoOf(sys.Rmdirat(s.fd, s.name))
}

// remove is change for a name that must exist. A hidden name does not exist.
func (d *Dir) remove(p string) (spot, Errno) {
	s, f := d.spot(p)
	if f.rule == ruleHidden {
		return s, d.refuse(syscall.ENOENT, "write", p, ruleHidden)
	}
	if f == none {
		if s.node != nil {
			return s, d.refuse(syscall.EBUSY, "write", p, ruleVirtual)
		}
		if s.m.Write {
			return s, 0
		}
		s.close()
		return s, d.refuse(syscall.EROFS, "write", p, RuleReadOnly)
	}
	return s, escaped(d.fail(f, "write", p))
}

// isDir reports whether the spot's name is a directory, not a link to one.
func (s *spot) isDir() (bool, Errno) {
	var st sys.Stat
	err := sys.Lstatat(s.fd, s.name, &st)
	return st.Mode&syscall.S_IFMT == syscall.S_IFDIR, sys.ErrnoOf(err)
}

// Symlink makes a link at p that holds target. An absolute target is refused, as
// by every WASI runtime: to the guest it would mean a path of its view, and to
// the host, once the link is committed, one of the host. A relative one is only
// data, however many ".." it has, since links are followed only inside the view.
func (d *Dir) Symlink(target, p string) Errno {
	switch {
	case target == "":
		return syscall.ENOENT
	case len(target) > maxPath:
		return syscall.ENAMETOOLONG
	case strings.IndexByte(target, 0) >= 0:
		return syscall.EINVAL
	case target[0] == '/':
		return d.refuse(syscall.EPERM, "link", p, ruleAbsolute)
	}
	s, e := d.create(p)
	if e != 0 {
		return e
	}
	defer s.close()
	return sys.ErrnoOf(sys.Symlinkat(target, s.fd, s.name))
}

// create is change for a name that must not exist and will not be a directory.
func (d *Dir) create(p string) (spot, Errno) {
	s, e := d.change(p)
	if e != 0 {
		return s, e
	}
	if s.node != nil || s.name == "." {
		s.close()
		return s, syscall.EEXIST
	}
	if s.slash {
		defer s.close()
		isDir, e := s.isDir()
		switch {
		case e != 0:
			return s, e
		case isDir:
			return s, syscall.EEXIST
		}
		return s, syscall.ENOTDIR
	}
	return s, 0
}

// Readlink reads the link at p into buf, as much of it as fits.
func (d *Dir) Readlink(p string, buf []byte) (int, Errno) {
	s, f := d.spot(p)
	if f != none {
		return 0, escaped(d.fail(f, "read", p))
	}
	defer s.close()
	if s.node != nil || s.name == "." || s.slash {
		return 0, syscall.EINVAL
	}
	if len(buf) == 0 {
		return 0, 0
	}
	n, err := sys.Readlinkat(s.fd, s.name, buf)
	return n, sys.ErrnoOf(err)
}

// Link makes a hard link at newP to the file at p; a link at p is linked itself.
func (d *Dir) Link(p string, to *Dir, newP string) Errno {
	old, e := d.remove(p)
	if e != 0 {
		return e
	}
	defer old.close()
	s, e := to.create(newP)
	if e != 0 {
		return e
	}
	defer s.close()
	switch {
	case old.name == ".":
		return syscall.EPERM
	case old.slash:
		if isDir, e := old.isDir(); e != 0 || !isDir {
			return firstError(e, syscall.ENOTDIR)
		}
		return syscall.EPERM
	case old.m != s.m:
		return syscall.EXDEV
	}
	return sys.ErrnoOf(sys.Linkat(old.fd, old.name, s.fd, s.name))
}

// firstError returns a, or b where a is no error.
func firstError(a, b Errno) Errno {
	if a != 0 {
		return a
	}
	return b
}

// Rename moves the file at p to newP, replacing what is there.
func (d *Dir) Rename(p string, to *Dir, newP string) Errno {
	old, e := d.remove(p)
	if e != 0 {
		return e
	}
	defer old.close()
	s, e := to.change(newP)
	if e != 0 {
		return e
	}
	defer s.close()
	switch {
	case s.node != nil:
		return to.refuse(syscall.EBUSY, "write", newP, ruleVirtual)
	case old.name == "." || s.name == ".":
		return syscall.EBUSY
	case old.m != s.m:
		return syscall.EXDEV
	}
	if e := checkSlashes(&old, &s); e != 0 {
		return e
	}
	if e := d.checkHiddenMove(p, &old, &s); e != 0 {
		return e
	}
	if err := sys.Renameat(old.fd, old.name, s.fd, s.name); err != nil {
		return sys.ErrnoOf(err)
	}
	d.v.moved(old.m, old.path(), s.path())
	return 0
}

// checkSlashes gives a trailing slash its meaning: that is a directory. The
// kernel never sees the slash, since it would follow a link for it.
func checkSlashes(old, s *spot) Errno {
	if !old.slash && !s.slash {
		return 0
	}
	isDir, e := old.isDir()
	if e != 0 || !isDir {
		return firstError(e, syscall.ENOTDIR)
	}
	if s.slash {
		if isDir, e := s.isDir(); e == 0 && !isDir {
			return syscall.ENOTDIR
		}
	}
	return 0
}

// moved updates the paths of open directories after a rename of from to to.
func (v *View) moved(m *mount, from, to string) {
	for d := range v.dirs {
		if d.m != m {
			continue
		}
		if d.rel == from {
			d.rel = to
		} else if rest, ok := strings.CutPrefix(d.rel, from+"/"); ok {
			d.rel = to + "/" + rest
		}
	}
}

// maxMoveScan is the maximum number of names that checkHiddenMove looks at.
const maxMoveScan = 20_000

// checkHiddenMove returns an error if the move of a directory would hide or show a name below it,
// or if the directory is too large to check.
func (d *Dir) checkHiddenMove(p string, old, s *spot) Errno {
	h := old.m.Hidden
	if h == nil || !h.CouldContain(old.path()) && !h.CouldContain(s.path()) {
		return 0
	}
	if isDir, e := old.isDir(); e != 0 || !isDir {
		return e
	}
	scan := moveScan{h: h, left: maxMoveScan}
	if !scan.same(old.fd, old.name, old.path(), s.path()) {
		return d.refuse(syscall.EPERM, "write", p, ruleHidden)
	}
	return 0
}

type moveScan struct {
	h    Hidden
	left int
}

// same reports whether every name below the directory is hidden at to if and only if it is at from.
func (c *moveScan) same(parent int, name, from, to string) bool {
	fd, err := sys.Openat2(parent, name, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0,
		sys.ResolveBeneath)
	if err != nil {
		return false
	}
	defer sys.Close(fd)
	buf := make([]byte, 8<<10)
	for {
		n, err := sys.Getdents(fd, buf)
		if err != nil || n == 0 {
			return err == nil
		}
		for raw := buf[:n]; len(raw) > 0; {
			e, size := parseEntry(raw)
			if size == 0 {
				return false
			}
			raw = raw[size:]
			if string(e.Name) == "." || string(e.Name) == ".." {
				continue
			}
			if c.left--; c.left < 0 {
				return false
			}
			a, b := joinRel(from, string(e.Name)), joinRel(to, string(e.Name))
			hidden := c.h.Match(a)
			if hidden != c.h.Match(b) {
				return false
			}
			mayHold := c.h.CouldContain(a) || c.h.CouldContain(b)
			if !hidden && mayHold && (e.Type == typeDir || e.Type == typeUnknown) &&
				!c.sub(fd, e, a, b) {
				return false
			}
		}
	}
}

func (c *moveScan) sub(fd int, e Entry, from, to string) bool {
	if e.Type == typeUnknown {
		var st sys.Stat
		if sys.Lstatat(fd, string(e.Name), &st) != nil {
			return false
		}
		if st.Mode&syscall.S_IFMT != syscall.S_IFDIR {
			return true
		}
	}
	return c.same(fd, string(e.Name), from, to)
}
