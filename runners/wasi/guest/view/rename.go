package view

import (
	"strings"

	"github.com/jail-sandbox/jail/runners/internal/sys"
)

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
		return sys.EPERM
	case old.slash:
		if isDir, e := old.isDir(); e != 0 || !isDir {
			return firstError(e, sys.ENOTDIR)
		}
		return sys.EPERM
	case old.m != s.m:
		return sys.EXDEV
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
		return to.refuse(sys.EBUSY, "write", newP, ruleVirtual)
	case old.name == "." || s.name == ".":
		return sys.EBUSY
	case old.m != s.m:
		return sys.EXDEV
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
		return firstError(e, sys.ENOTDIR)
	}
	if s.slash {
		if isDir, e := s.isDir(); e == 0 && !isDir {
			return sys.ENOTDIR
		}
	}
	return 0
}

// moved tells open directories that the one at from, with all below, is at to.
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

// maxMoveScan bounds the names that a rename looks at.
const maxMoveScan = 20_000

// checkHiddenMove refuses to move a directory if that hides or shows a name
// below it. A directory that is too large to look through is refused as well.
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
		return d.refuse(sys.EPERM, "write", p, ruleHidden)
	}
	return 0
}

type moveScan struct {
	h    Hidden
	left int
}

// same reports whether every name below the directory stays as hidden, or as visible, as it is.
func (c *moveScan) same(parent int, name, from, to string) bool {
	fd, err := sys.Openat2(parent, name, sys.ORdonly|sys.ODirectory|sys.ONofollow, 0,
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
		if st.Mode&sys.SIFMT != sys.SIFDIR {
			return true
		}
	}
	return c.same(fd, string(e.Name), from, to)
}
