package policy

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxGlobBytes    = 4096
	maxGlobSegments = 64
	// Segments such as "lib*", in one glob as it is written.
	maxPartialStars = 2
	// Bytes of such a segment.
	maxBesideStar = 64
)

// Glob is a pattern over names that are separated by slashes.
//
// The grammar is small so that two globs have an exact meet:
//
//   - a segment is text, with at most one star; the star stands for any text
//     without a slash, also none;
//   - at most one segment is **, and stands for any number of segments, also none.
//
// Nothing else has a meaning: ? [ ] { } \ and a second star in a segment are refused,
// not taken literally, so that nobody believes they mean something. Names compare byte
// for byte. A glob that starts with a slash matches only names that do.
//
// The zero Glob matches nothing.
type Glob struct {
	valid bool
	deep  bool // has a **
	// Without **, pre is the whole glob. With it, pre ends and suf starts with a
	// segment that is no free star, and least is the number of segments of the
	// shortest name: "a/*/**" and "a/**/*" are one glob.
	pre, suf []segment
	least    int
}

// ParseGlob reads a glob. The error says what is wrong with it in a sentence.
func ParseGlob(text string) (Glob, error) {
	if err := checkGlobText(text); err != nil {
		return Glob{}, err
	}
	parts := strings.Split(text, "/")
	if len(parts) > maxGlobSegments {
		return Glob{}, fmt.Errorf("pattern %q has more than %d segments", text, maxGlobSegments)
	}
	g := Glob{valid: true}
	partial := 0
	for i, part := range parts {
		switch {
		case part == "**" && g.deep:
			return Glob{}, fmt.Errorf("pattern %q has more than one **", text)
		case part == "**":
			g.deep = true
			continue
		case part == "." || part == "..":
			return Glob{}, fmt.Errorf("pattern %q has a %q segment", text, part)
		case part == "" && i > 0 && i < len(parts)-1:
			return Glob{}, fmt.Errorf("pattern %q has an empty segment", text)
		case strings.Count(part, "*") > 1:
			return Glob{}, fmt.Errorf("pattern %q has more than one * in a segment", text)
		case strings.Contains(part, "*") && part != "*":
			if partial++; partial > maxPartialStars || len(part) > maxBesideStar {
				return Glob{},
					fmt.Errorf("pattern %q is too complex: at most %d segments mix text with a *, "+
						"of at most %d bytes", text, maxPartialStars, maxBesideStar)
			}
		}
		if g.deep {
			g.suf = append(g.suf, parseSegment(part))
		} else {
			g.pre = append(g.pre, parseSegment(part))
		}
	}
	return g.trimmed(), nil
}

// Below returns the glob of every name below the directory dir. Each byte of dir is literal, since
// host paths may have characters that a pattern cannot.
func Below(dir string) Glob {
	g := Glob{valid: true, deep: true}
	for part := range strings.SplitSeq(strings.TrimSuffix(dir, "/"), "/") {
		g.pre = append(g.pre, segment{pre: part})
	}
	return g.trimmed()
}

// MustGlob parses a pattern in code; it panics on an error.
func MustGlob(text string) Glob {
	g, err := ParseGlob(text)
	if err != nil {
		panic(err)
	}
	return g
}

func checkGlobText(text string) error {
	switch {
	case text == "":
		return fmt.Errorf("pattern is empty")
	case len(text) > maxGlobBytes:
		return fmt.Errorf("pattern is longer than %d bytes", maxGlobBytes)
	case !utf8.ValidString(text):
		return fmt.Errorf("pattern %q is not UTF-8", text)
	case strings.ContainsAny(text, `?[]{}\`):
		return fmt.Errorf(
			`pattern %q has one of ? [ ] { } \, which have no meaning here: use * and **`, text)
	case strings.ContainsFunc(text, unicode.IsControl):
		return fmt.Errorf("pattern %q has a control character", text)
	}
	return nil
}

// trimmed moves free stars next to ** into least.
func (g Glob) trimmed() Glob {
	if !g.deep {
		return g
	}
	// A name has at least one segment, so "**" and "*/**" are one glob.
	g.least = max(g.least, len(g.pre)+len(g.suf), 1)
	for len(g.pre) > 0 && g.pre[len(g.pre)-1] == free {
		g.pre = g.pre[:len(g.pre)-1]
	}
	for len(g.suf) > 0 && g.suf[0] == free {
		g.suf = g.suf[1:]
	}
	return g
}

// String returns the glob as it would be written; globs that match the same names
// have the same string.
func (g Glob) String() string {
	if !g.valid {
		return "∅"
	}
	segments := slices.Clone(g.pre)
	if g.deep {
		// ** alone has one segment already, and so has a/**
		if g.least > 1 {
			segments = padRight(segments, g.least-len(g.suf))
		}
	}
	if g.deep {
		segments = append(append(segments, segment{pre: "**"}), g.suf...)
	}
	texts := make([]string, len(segments))
	for i, s := range segments {
		texts[i] = s.String()
	}
	return strings.Join(texts, "/")
}

// Match reports whether name matches.
func (g Glob) Match(name string) bool {
	// At least one, and the zero Glob has none.
	parts := strings.Split(name, "/")
	if !g.deep {
		return len(parts) == len(g.pre) && matchEach(g.pre, parts)
	}
	return len(parts) >= g.least && matchEach(g.pre, parts) && matchEach(g.suf,
		parts[len(parts)-len(g.suf):])
}

func matchEach(segments []segment, parts []string) bool {
	for i, s := range segments {
		if !s.matches(parts[i]) {
			return false
		}
	}
	return true
}

// Literal reports whether the glob stands for one name only.
func (g Glob) Literal() bool {
	return g.valid && !g.deep && !slices.ContainsFunc(g.pre, func(s segment) bool { return s.star })
}

// MarshalText returns the glob as its string.
func (g Glob) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText parses a glob as ParseGlob does.
func (g *Glob) UnmarshalText(text []byte) error {
	parsed, err := ParseGlob(string(text))
	if err != nil {
		return err
	}
	*g = parsed
	return nil
}

// Globs is the union of its globs. An empty list matches no name.
type Globs []Glob

// MustGlobs parses patterns in code; it panics on an error.
func MustGlobs(texts ...string) Globs {
	var out Globs
	for _, t := range texts {
		out = append(out, MustGlob(t))
	}
	return out
}

// Meet returns the names in both sets.
func (g Globs) Meet(h Globs) Globs { return meetLists(g, h) }

// LessEq reports whether each name of g is in h. Neither has to be in normal form.
func (g Globs) LessEq(h Globs) bool {
	return !slices.ContainsFunc(g, func(x Glob) bool {
		return x.valid && !slices.ContainsFunc(h, func(y Glob) bool { return y.valid && x.below(y) })
	})
}

// Normal leaves out globs that another covers, and sorts the rest.
func (g Globs) Normal() Globs {
	return normalList(slices.DeleteFunc(slices.Clone(g), func(x Glob) bool { return !x.valid }))
}

func (g Globs) String() string { return listString(g.Normal()) }

// Match reports whether a glob of the set matches name.
func (g Globs) Match(name string) bool {
	_, ok := g.find(name)
	return ok
}

// find returns the first glob that matches name.
func (g Globs) find(name string) (Glob, bool) {
	for _, x := range g {
		if x.Match(name) {
			return x, true
		}
	}
	return Glob{}, false
}

// Strings returns the text of each glob.
func (g Globs) Strings() []string {
	out := make([]string, len(g))
	for i, x := range g {
		out[i] = x.String()
	}
	return out
}

// below reports whether h matches every name that g matches.
//
// Neither is the one that matches nothing: lists leave that out. It is exact. Where h has a **, the
// segment next to it is no free star, so a name long enough to fill the ** of g with unfit text
// would miss it unless g fixes that segment too.
func (g Glob) below(h Glob) bool {
	switch {
	case !h.deep:
		return !g.deep && len(g.pre) == len(h.pre) && eachBelow(g.pre, h.pre)
	case !g.deep:
		return len(g.pre) >= h.least && eachBelow(g.pre, h.pre) &&
			eachBelow(g.pre[len(g.pre)-len(h.suf):], h.suf)
	}
	return g.least >= h.least && len(g.pre) >= len(h.pre) && eachBelow(g.pre, h.pre) &&
		len(g.suf) >= len(h.suf) && eachBelow(g.suf[len(g.suf)-len(h.suf):], h.suf)
}

// eachBelow reports whether each segment of wide is above the one of narrow at its place.
func eachBelow(narrow, wide []segment) bool {
	for i, w := range wide {
		if !narrow[i].below(w) {
			return false
		}
	}
	return true
}

// meet returns globs that together match the names that both match.
func (g Glob) meet(h Glob) []Glob {
	switch {
	case !g.valid || !h.valid:
		return nil
	case !g.deep && !h.deep:
		if len(g.pre) != len(h.pre) {
			return nil
		}
		return fixedGlobs(meetEach(g.pre, h.pre))
	case !g.deep:
		return g.meet(h.ofLength(len(g.pre)))
	case !h.deep:
		return h.meet(g)
	}
	// Names so short that the text before the ** of one overlaps the text after the
	// ** of the other are met length by length; all longer ones in one glob.
	before, after := max(len(g.pre), len(h.pre)), max(len(g.suf), len(h.suf))
	var out []Glob
	for n := max(g.least, h.least); n < before+after; n++ {
		out = append(out, g.ofLength(n).meet(h.ofLength(n))...)
		if len(out) > maxRules {
			// meetLists notices the excess and grants nothing.
			return out
		}
	}
	for _, pre := range meetEach(padRight(g.pre, before), padRight(h.pre, before)) {
		for _, suf := range meetEach(padLeft(g.suf, after), padLeft(h.suf, after)) {
			out = append(out, Glob{valid: true, deep: true, pre: pre, suf: suf,
				least: max(g.least, h.least)}.trimmed())
		}
		if len(out) > maxRules {
			break
		}
	}
	return out
}

// ofLength returns the glob of the names with n segments that a glob with ** matches.
func (g Glob) ofLength(n int) Glob {
	if n < g.least {
		return Glob{}
	}
	return Glob{valid: true, pre: append(padRight(g.pre, n-len(g.suf)), g.suf...)}
}

func padRight(segments []segment, n int) []segment {
	return slices.Concat(segments, slices.Repeat([]segment{free}, max(0, n-len(segments))))
}

func padLeft(segments []segment, n int) []segment {
	return slices.Concat(slices.Repeat([]segment{free}, n-len(segments)), segments)
}

// meetEach meets two sequences of the same length, segment by segment. If a segment meets in
// several, each choice gives a sequence.
func meetEach(a, b []segment) [][]segment {
	out := [][]segment{nil}
	for i := range a {
		choices := a[i].meet(b[i])
		var next [][]segment
		for _, done := range out {
			for _, c := range choices {
				next = append(next, append(done[:len(done):len(done)], c))
			}
			if len(next) > maxRules {
				// meetLists notices the excess and grants nothing.
				break
			}
		}
		out = next
	}
	return out
}

func fixedGlobs(sequences [][]segment) []Glob {
	out := make([]Glob, len(sequences))
	for i, s := range sequences {
		out[i] = Glob{valid: true, pre: s}
	}
	return out
}
