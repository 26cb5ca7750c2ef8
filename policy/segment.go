package policy

import "strings"

// segment is one part of a glob between slashes: a literal, or a literal with one star
// in it. pre and suf are the text before and after the star; a literal has no suf.
type segment struct {
	star     bool
	pre, suf string
}

// free is the segment that is a star alone.
var free = segment{star: true}

func parseSegment(s string) segment {
	pre, suf, star := strings.Cut(s, "*")
	return segment{star: star, pre: pre, suf: suf}
}

func (s segment) String() string {
	if s.star {
		return s.pre + "*" + s.suf
	}
	return s.pre
}

// matches reports whether name is one of the names that s stands for. A star stands
// for any text without a slash, also none.
func (s segment) matches(name string) bool {
	if !s.star {
		return s.pre == name
	}
	return len(name) >= len(s.pre)+len(s.suf) &&
		strings.HasPrefix(name, s.pre) && strings.HasSuffix(name, s.suf)
}

// below reports whether t stands for every name that s stands for.
func (s segment) below(t segment) bool {
	if !s.star {
		return t.matches(s.pre)
	}
	return t.star && strings.HasPrefix(s.pre, t.pre) && strings.HasSuffix(s.suf, t.suf)
}

// meet returns segments that together stand for exactly the names of both.
//
// Two stars meet in the longer text before and the longer text after, and in the names too short
// for both to stand side by side: "ab*" and "*bc" meet in "ab*bc" and in "abc".
func (s segment) meet(t segment) []segment {
	if !s.star || !t.star {
		switch {
		case s.below(t):
			return []segment{s}
		case t.below(s):
			return []segment{t}
		}
		return nil
	}
	pre, ok := longerPrefix(s.pre, t.pre)
	if !ok {
		return nil
	}
	suf, ok := longerSuffix(s.suf, t.suf)
	if !ok {
		return nil
	}
	out := []segment{{star: true, pre: pre, suf: suf}}
	least := max(len(s.pre)+len(s.suf), len(t.pre)+len(t.suf), len(pre), len(suf))
	for n := least; n < len(pre)+len(suf); n++ {
		shared := len(pre) + len(suf) - n
		if pre[len(pre)-shared:] == suf[:shared] {
			out = append(out, segment{pre: pre + suf[shared:]})
		}
	}
	return out
}

func longerPrefix(a, b string) (string, bool) {
	if len(a) < len(b) {
		a, b = b, a
	}
	return a, strings.HasPrefix(a, b)
}

func longerSuffix(a, b string) (string, bool) {
	if len(a) < len(b) {
		a, b = b, a
	}
	return a, strings.HasSuffix(a, b)
}
