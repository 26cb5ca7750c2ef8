package view

import (
	"strings"

	"github.com/jail-sandbox/jail/runners/internal/sys"
)

// simple reports whether p is one plain component, which needs no resolution.
func simple(p string) bool {
	return p != "" && p != "." && p != ".." && strings.IndexByte(p, '/') < 0
}

// Stat describes the file at p.
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
		if err != nil || !follow || st.Mode&sys.SIFMT != sys.SIFLNK {
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

// pathFlags open anything at all, as a mere place.
func pathFlags(follow bool) uint64 {
	if follow {
		return sys.OPath
	}
	return sys.OPath | sys.ONofollow
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
					return d.refuse(sys.EROFS, "write", p, RuleReadOnly)
				}
				return sys.ErrnoOf(sys.UtimensPath(o.fd, ts))
			}
		}
	}
	if f != none {
		return escaped(d.fail(f, "write", p))
	}
	return d.refuse(sys.EACCES, "write", p, ruleVirtual)
}

// change finds the spot that an operation changes, on a mount that allows it.
// The caller closes the spot.
func (d *Dir) change(p string) (spot, Errno) {
	s, f := d.spot(p)
	switch {
	case f.rule == ruleHidden:
		return s, d.refuse(sys.EPERM, "write", p, ruleHidden)
	case f != none:
		return s, escaped(d.fail(f, "write", p))
	case s.node != nil:
		// Each operation has its own error for it.
		return s, 0
	case !s.m.Write:
		s.close()
		return s, d.refuse(sys.EROFS, "write", p, RuleReadOnly)
	}
	return s, 0
}

// Mkdir makes a directory.
func (d *Dir) Mkdir(p string) Errno {
	// That it is there already is the answer to mkdir -p, on any mount.
	if s, f := d.spot(p); f == none {
		defer s.close()
		if s.node != nil || s.name == "." {
			return sys.EEXIST
		}
		var st sys.Stat
		if !s.m.Write && sys.Lstatat(s.fd, s.name, &st) == nil {
			return sys.EEXIST
		}
		if s.m.Write {
			return sys.ErrnoOf(sys.Mkdirat(s.fd, s.name, dirMode))
		}
	}
	s, e := d.change(p)
	if e == 0 {
		s.close()
		e = sys.EEXIST
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
		return sys.EISDIR
	}
	if s.slash {
		if isDir, e := s.isDir(); e != 0 {
			return e
		} else if isDir {
			return sys.EISDIR
		}
		return sys.ENOTDIR
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
		return sys.EINVAL
	}
	return sys.ErrnoOf(sys.Rmdirat(s.fd, s.name))
}

// remove is change for a name that has to exist: a hidden one does not.
func (d *Dir) remove(p string) (spot, Errno) {
	s, f := d.spot(p)
	if f.rule == ruleHidden {
		return s, d.refuse(sys.ENOENT, "write", p, ruleHidden)
	}
	if f == none {
		if s.node != nil {
			return s, d.refuse(sys.EBUSY, "write", p, ruleVirtual)
		}
		if s.m.Write {
			return s, 0
		}
		s.close()
		return s, d.refuse(sys.EROFS, "write", p, RuleReadOnly)
	}
	return s, escaped(d.fail(f, "write", p))
}

// isDir reports whether the spot's name is a directory, not a link to one.
func (s *spot) isDir() (bool, Errno) {
	var st sys.Stat
	err := sys.Lstatat(s.fd, s.name, &st)
	return st.Mode&sys.SIFMT == sys.SIFDIR, sys.ErrnoOf(err)
}

// Symlink makes a link at p that holds target. An absolute target is refused, as
// by every WASI runtime: to the guest it would mean a path of its view, and to
// the host, once the link is committed, one of the host. A relative one is only
// data, however many ".." it has, since links are followed only inside the view.
func (d *Dir) Symlink(target, p string) Errno {
	switch {
	case target == "":
		return sys.ENOENT
	case len(target) > maxPath:
		return sys.ENAMETOOLONG
	case strings.IndexByte(target, 0) >= 0:
		return sys.EINVAL
	case target[0] == '/':
		return d.refuse(sys.EPERM, "link", p, ruleAbsolute)
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
		return s, sys.EEXIST
	}
	if s.slash {
		defer s.close()
		isDir, e := s.isDir()
		switch {
		case e != 0:
			return s, e
		case isDir:
			return s, sys.EEXIST
		}
		return s, sys.ENOTDIR
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
		return 0, sys.EINVAL
	}
	if len(buf) == 0 {
		return 0, 0
	}
	n, err := sys.Readlinkat(s.fd, s.name, buf)
	return n, sys.ErrnoOf(err)
}
