package meaning

import (
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/policy"
)

// maxCells bounds the states of the product of all patterns. With more, the search ends, names for
// each pattern alone are added, and the answer is marked as not exact.
const maxCells = 1 << 14

// A shape is the form of the names that are searched.
type shape uint8

const (
	shapePath shape = iota // clean absolute paths
	shapeName              // clean relative paths
	// request paths, which are absolute and may end with a slash
	shapeURL
	// one segment: the name of a variable
	shapeWord
	// two segments: a bundle and a command
	shapePair
)

// A pattern is a glob, or a pattern of workspace names, as a state machine over bytes.
type pattern struct {
	parts []part
	// fold makes letters compare without regard to case.
	fold bool
}

type part struct {
	spans    bool // **
	star     bool
	pre, suf string
}

func globPattern(g policy.Glob) pattern { return pattern{parts: splitParts(g.String())} }

// namePattern returns a pattern of workspace.hide or, with fold, of workspace.protect.
func namePattern(text string, fold, itself bool) pattern {
	body := strings.TrimPrefix(text, "/")
	if !strings.Contains(text, "/") {
		body = "**/" + body
	}
	p := pattern{fold: fold}
	for _, x := range strings.Split(body, "/") {
		if fold {
			x = policy.FoldName(x)
		}
		p.parts = append(p.parts, splitParts(x)...)
	}
	if !itself {
		p.parts = append(p.parts, part{spans: true})
	}
	return p
}

// treePattern returns the pattern of a path and everything below it.
func treePattern(path string) pattern {
	p := pattern{}
	for _, x := range strings.Split(path, "/") {
		p.parts = append(p.parts, part{pre: x})
	}
	return pattern{parts: append(p.parts, part{spans: true})}
}

func splitParts(text string) []part {
	var out []part
	for _, x := range strings.Split(text, "/") {
		pre, suf, star := strings.Cut(x, "*")
		if x == "**" {
			out = append(out, part{spans: true})
			continue
		}
		out = append(out, part{star: star, pre: pre, suf: suf})
	}
	return out
}

// at is a position in a pattern: before the byte off of part i, where a star counts as a byte. In a
// ** part off stays 0 until the segment ends.
type at struct{ i, off int }

type machine struct {
	patterns []pattern
	form     shape
	// the bytes that differ for the patterns; the last one stands for all others
	bytes []byte
}

// state is the positions in all patterns, and the form of the name so far.
type state struct {
	places [][]at
	look   look
}

// look is what the shape checks about the name so far.
type look struct {
	segments int // begun, up to 3
	// the dots if a segment has only dots, up to 3; -1 if it has other bytes
	dots  int
	empty bool
}

// cells returns one name for each set of patterns that some name matches exactly. exact is false if
// there were more than maxCells states.
func cells(form shape, patterns []pattern) (names []string, exact bool) {
	return cellsWith(form, patterns, func(string) bool { return true })
}

// cellsWith is cells, but prefers names for which good returns true.
func cellsWith(form shape, patterns []pattern, good func(string) bool) (names []string,
	exact bool) {
	m := machine{patterns: patterns, form: form, bytes: alphabet(patterns)}
	start := state{places: make([][]at, len(patterns)), look: look{segments: 1, empty: true}}
	for i, p := range patterns {
		start.places[i] = p.begin(nil, 0)
	}
	type queued struct {
		state
		name string
	}
	queue, seen, found := []queued{{start, ""}}, map[string]bool{start.key(): true},
		map[string]int{}
	for len(queue) > 0 {
		q := queue[0]
		queue = queue[1:]
		if m.whole(q.state) {
			v := m.verdict(q.state)
			if i, ok := found[v]; !ok {
				found[v] = len(names)
				names = append(names, q.name)
			} else if !good(names[i]) && good(q.name) {
				names[i] = q.name
			}
		}
		for _, c := range m.bytes {
			next, ok := m.step(q.state, c)
			if !ok {
				continue
			}
			if k := next.key(); !seen[k] {
				if len(seen) >= maxCells {
					return append(names, examples(form, patterns)...), false
				}
				seen[k] = true
				queue = append(queue, queued{next, q.name + string([]byte{c})})
			}
		}
	}
	return names, true
}

// examples returns names for each pattern alone.
func examples(form shape, patterns []pattern) []string {
	var out []string
	for _, p := range patterns {
		names, _ := cells(form, []pattern{p})
		out = append(out, names...)
	}
	return out
}

// alphabet returns a slash, the bytes in the patterns, and one byte that is in none.
func alphabet(patterns []pattern) []byte {
	out := []byte{'/'}
	for _, p := range patterns {
		for _, x := range p.parts {
			for _, c := range []byte(x.pre + x.suf) {
				if !slices.Contains(out, c) {
					out = append(out, c)
				}
			}
		}
	}
	slices.Sort(out)
	for _, other := range []byte(
		"xyzwvuqkjXYZWVUQKJ_0123456789abcdefghilmnoprstABCDEFGHILMNOPRST") {
		lower := other | 0x20
		if !slices.Contains(out, other) && !slices.Contains(out, lower) {
			return append(out, other)
		}
	}
	return out
}

// begin adds the positions at the start of a segment, from part i on.
func (p pattern) begin(to []at, i int) []at {
	for ; i < len(p.parts); i++ {
		to = p.put(to, at{i, 0})
		if !p.parts[i].spans {
			break
		}
	}
	return to
}

// put adds a position, and the one after a star, which may match nothing.
func (p pattern) put(to []at, a at) []at {
	if !slices.Contains(to, a) {
		to = append(to, a)
	}
	if x := p.parts[a.i]; x.star && a.off == len(x.pre) {
		return p.put(to, at{a.i, a.off + 1})
	}
	return to
}

func (x part) length() int {
	if x.star {
		return len(x.pre) + 1 + len(x.suf)
	}
	return len(x.pre)
}

func (p pattern) step(from []at, c byte) []at {
	var to []at
	for _, a := range from {
		x := p.parts[a.i]
		switch {
		case c == '/' && x.spans:
			to = p.begin(to, a.i)
		case c == '/':
			if a.off == x.length() {
				to = p.begin(to, a.i+1)
			}
		case x.spans:
			to = p.put(to, a)
		case x.star && a.off == len(x.pre):
			to = p.put(to, a)
		case a.off < x.length() && p.same(x.byteAt(a.off), c):
			to = p.put(to, at{a.i, a.off + 1})
		}
	}
	slices.SortFunc(to, func(a, b at) int { return (a.i-b.i)<<16 + a.off - b.off })
	return to
}

func (x part) byteAt(off int) byte {
	if off < len(x.pre) {
		return x.pre[off]
	}
	return x.suf[off-len(x.pre)-1]
}

func (p pattern) same(a, b byte) bool {
	if p.fold && 'A' <= b && b <= 'Z' {
		b |= 0x20
	}
	return a == b
}

// done reports whether the whole pattern has matched at one of the positions.
func (p pattern) done(places []at) bool {
	return slices.ContainsFunc(places, func(a at) bool {
		if x := p.parts[a.i]; !x.spans && a.off != x.length() {
			return false
		}
		return !slices.ContainsFunc(p.parts[a.i+1:], func(x part) bool { return !x.spans })
	})
}

func (m machine) step(s state, c byte) (state, bool) {
	next := state{places: make([][]at, len(s.places)), look: s.look}
	l := &next.look
	if c == '/' {
		first := l.segments == 1 && l.empty
		rooted := m.form == shapePath || m.form == shapeURL
		if l.dots > 0 || l.empty && (!first || !rooted) || !first && rooted && l.segments == 1 ||
			m.form == shapeWord || m.form == shapePair && l.segments == 2 {
			return next, false
		}
		l.segments, l.dots, l.empty = min(l.segments+1, 3), 0, true
	} else {
		if l.segments == 1 && (m.form == shapePath || m.form == shapeURL) {
			return next, false
		}
		if c == '.' && l.dots >= 0 && l.dots < 2 {
			l.dots++
		} else {
			l.dots = -1
		}
		l.empty = false
	}
	for i, p := range m.patterns {
		next.places[i] = p.step(s.places[i], c)
	}
	return next, true
}

// whole reports whether the name so far has the shape.
func (m machine) whole(s state) bool {
	l := s.look
	switch {
	case l.dots > 0:
		return false
	case m.form == shapeURL:
		return l.segments > 1
	case m.form == shapePair:
		return l.segments == 2 && !l.empty
	case m.form == shapePath:
		return l.segments > 1 && !l.empty
	}
	return !l.empty
}

func (m machine) verdict(s state) string {
	out := make([]byte, len(m.patterns))
	for i, p := range m.patterns {
		if p.done(s.places[i]) {
			out[i] = 1
		}
	}
	return string(out)
}

func (s state) key() string {
	out := []byte{byte(s.look.segments), byte(s.look.dots + 1), 0}
	if s.look.empty {
		out[2] = 1
	}
	for _, places := range s.places {
		for _, a := range places {
			out = append(out, byte(a.i), byte(a.off), byte(a.off>>8))
		}
		out = append(out, 0xff)
	}
	return string(out)
}

// globPatterns returns the patterns of all globs, without duplicates.
func globPatterns(lists ...policy.Globs) []pattern {
	var out []pattern
	seen := map[string]bool{}
	for _, list := range lists {
		for _, g := range list {
			if text := g.String(); !seen[text] {
				seen[text] = true
				out = append(out, globPattern(g))
			}
		}
	}
	return out
}
