package policy

import (
	"fmt"
	"slices"
	"strings"
)

// Names is a set of patterns over names in a workspace, compiled. It is what hides and
// what protects:
//
//   - a pattern without a slash is a name at any depth: ".env";
//   - a pattern with a slash starts at the root of the workspace, with or without a
//     slash in front: "build/out" and "/build/out"; ** spans directories: "**/*.pem";
//   - whatever a pattern matches, it matches with all that is below it.
//
// The grammar is that of Glob, with any number of **. There is no negation. Names
// compare byte for byte, except in a set that MustHold or Protect made.
type Names struct {
	patterns []namePattern
	fold     bool
}

// maxNameSegments leaves two of 64 bits: for the end of a pattern, and for a ** in front.
const maxNameSegments = 62

type namePattern struct {
	text  string
	parts []namePart
	// itself excludes names below a match.
	itself bool
}

type namePart struct {
	spans bool // **
	segment
}

// Hidden compiles patterns whose names compare byte for byte. A pattern that CheckNames refuses
// hides everything, since to hide less than was asked for would show a secret.
func Hidden(patterns []string) Names { return compileNames(patterns, false) }

// CheckNames returns an error for the first bad pattern, or nil.
func CheckNames(patterns []string) error {
	for _, p := range patterns {
		if err := checkNamePattern(p); err != nil {
			return err
		}
	}
	return nil
}

func checkNamePattern(text string) error {
	if err := checkGlobText(text); err != nil {
		return err
	}
	body := strings.TrimPrefix(text, "/")
	switch {
	case strings.HasPrefix(text, "!"):
		return fmt.Errorf("pattern %q: there is no negation", text)
	case body == "" || strings.HasSuffix(text, "/"):
		return fmt.Errorf(
			"pattern %q ends with a slash: leave it out, a directory is matched with all below it",
			text)
	}
	parts := strings.Split(body, "/")
	if len(parts) > maxNameSegments {
		return fmt.Errorf("pattern %q has more than %d segments", text, maxNameSegments)
	}
	for _, part := range parts {
		switch {
		case part == "" || part == "." || part == "..":
			return fmt.Errorf("pattern %q has an empty or a dot segment", text)
		case part != "**" && strings.Count(part, "*") > 1:
			return fmt.Errorf("pattern %q has more than one * in a segment", text)
		}
	}
	return nil
}

func compileNames(patterns []string, fold bool) Names {
	n := Names{fold: fold}
	for _, text := range patterns {
		if checkNamePattern(text) != nil {
			n.patterns = append(n.patterns,
				namePattern{text: text, parts: []namePart{{spans: true}}})
			continue
		}
		body := strings.TrimPrefix(text, "/")
		if !strings.Contains(text, "/") {
			body = "**/" + body
		}
		var parts []namePart
		for part := range strings.SplitSeq(body, "/") {
			if fold {
				part = FoldName(part)
			}
			parts = append(parts, namePart{part == "**", parseSegment(part)})
		}
		n.patterns = append(n.patterns, namePattern{text: text, parts: parts})
	}
	return n
}

// Match reports whether path, relative to the workspace and with slashes between its
// names, or a directory that it lies in, is in the set. A path that is not clean (an
// empty, "." or ".." name) or that has a NUL is in every set but the empty one.
func (n Names) Match(path string) bool {
	_, ok := n.find(path)
	return ok
}

func (n Names) find(path string) (pattern string, ok bool) {
	names, clean := n.split(path)
	for _, p := range n.patterns {
		if !clean {
			return p.text, true
		}
		if _, whole := p.walk(names); whole {
			return p.text, true
		}
	}
	return "", false
}

// CouldContain reports whether dir is in the set, or some name below dir could be. The
// workspace itself is ".".
func (n Names) CouldContain(dir string) bool {
	if dir == "." || dir == "" {
		return len(n.patterns) > 0
	}
	names, clean := n.split(dir)
	return slices.ContainsFunc(n.patterns, func(p namePattern) bool {
		alive, whole := p.walk(names)
		return !clean || alive || whole
	})
}

func (n Names) split(path string) (names []string, clean bool) {
	names = strings.Split(path, "/")
	for i, name := range names {
		if name == "" || name == "." || name == ".." || strings.ContainsRune(name, 0) {
			return nil, false
		}
		if n.fold {
			names[i] = FoldName(name)
		}
	}
	return names, true
}

// walk matches names against the pattern. alive reports whether something below names could match,
// and whole whether names or a leading part of them match.
//
// It keeps the set of reachable positions as bits, so its time is bounded by the product of both
// lengths, however many ** there are.
func (p namePattern) walk(names []string) (alive, whole bool) {
	end := uint64(1) << len(p.parts)
	at := p.skipSpans(1)
	for _, name := range names {
		var next uint64
		for i, part := range p.parts {
			switch here := uint64(1) << i; {
			case at&here == 0:
			case part.spans:
				next |= here
			case part.matches(name):
				next |= here << 1
			}
		}
		if at = p.skipSpans(next); at&end != 0 && !p.itself {
			return true, true
		}
	}
	return at != 0, at&end != 0
}

// skipSpans adds the positions after each reachable **, which may match nothing.
func (p namePattern) skipSpans(at uint64) uint64 {
	for i, part := range p.parts {
		if part.spans && at&(1<<i) != 0 {
			at |= 1 << (i + 1)
		}
	}
	return at
}
