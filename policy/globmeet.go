package policy

import "slices"

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
	return g.least >= h.least &&
		len(g.pre) >= len(h.pre) && eachBelow(g.pre, h.pre) &&
		len(g.suf) >= len(h.suf) && eachBelow(g.suf[len(g.suf)-len(h.suf):], h.suf)
}

// eachBelow compares as many segments as wide has.
func eachBelow(narrow, wide []segment) bool {
	for i, w := range wide {
		if !narrow[i].below(w) {
			return false
		}
	}
	return true
}

// meet returns globs that together match exactly the names that both match.
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
			// meetLists sees the excess, and grants nothing
			return out
		}
	}
	for _, pre := range meetEach(padRight(g.pre, before), padRight(h.pre, before)) {
		for _, suf := range meetEach(padLeft(g.suf, after), padLeft(h.suf, after)) {
			out = append(out, Glob{valid: true, deep: true, pre: pre, suf: suf,
				least: max(g.least, h.least)}.trimmed())
		}
		if len(out) > maxRules {
			break // as above
		}
	}
	return out
}

// ofLength is the part of a deep glob whose names have n segments.
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

// meetEach meets two sequences of one length, segment by segment. Where a segment meets
// in several, each choice is a sequence of its own.
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
				// meetLists sees the excess, and grants nothing
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
