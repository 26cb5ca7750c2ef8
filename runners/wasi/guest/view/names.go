package view

import "strings"

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

// climbs reports whether p starts with ".." and has it nowhere else. That is how
// a tool goes back up from a directory that it opened, and is allowed inside the
// mount. A path that goes down first and then up beyond its start is refused, as
// WASI wants all of them to be.
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
	if !strings.Contains(p, "/") { // nearly always
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
