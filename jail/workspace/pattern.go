package workspace

import (
	"fmt"
	"path"
	"strings"
)

// isPattern reports whether a path that no change has may be a pattern.
func isPattern(text string) bool { return strings.ContainsAny(text, "*?[") }

// compilePattern returns a function that reports whether a path, or a directory above it, matches:
// each segment by path.Match, with ** for any number of segments.
func compilePattern(text string) (func(string) bool, error) {
	parts := strings.Split(text, "/")
	for _, p := range parts {
		if _, err := path.Match(p, ""); err != nil {
			return nil, fmt.Errorf("%w %s: a [ has no ] after it", ErrPattern, Name(text))
		}
	}
	return func(name string) bool {
		return matchParts(parts, strings.Split(name, "/"), map[[2]int]bool{})
	}, nil
}

// matchParts reports whether parts match the first of names; failed remembers failed attempts, so
// that many ** take no longer.
func matchParts(parts, names []string, failed map[[2]int]bool) bool {
	if len(parts) == 0 {
		// The rest is beneath it.
		return true
	}
	at := [2]int{len(parts), len(names)}
	if failed[at] {
		return false
	}
	var ok bool
	if parts[0] == "**" {
		ok = matchParts(parts[1:], names, failed) && len(parts) > 1 || len(parts) == 1 &&
			len(names) > 0 || len(names) > 0 && matchParts(parts, names[1:], failed)
	} else if len(names) > 0 {
		// Checked when it was compiled.
		match, _ := path.Match(parts[0], names[0])
		ok = match && matchParts(parts[1:], names[1:], failed)
	}
	failed[at] = !ok
	return ok
}
