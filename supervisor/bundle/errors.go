package bundle

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// NotFoundError is returned for a name that nothing installed has.
type NotFoundError struct {
	// Kind is "tool", "bundle", "pulled bundle" or "publisher".
	Kind string
	Name string
	// Near has up to three similar names, nearest first.
	Near []string
	// Left has the errors of bundles that were left out and may have the name.
	Left []error
}

func (e *NotFoundError) Error() string {
	if e.Kind == pulledBundle && slices.Contains(officialNames, e.Name) {
		return fmt.Sprintf("bundle %s came with jail, and no other of this name was pulled", e.Name)
	}
	text := fmt.Sprintf("%s %.100q: not installed", e.Kind, e.Name)
	if len(e.Near) > 0 {
		text += "; near it: " + strings.Join(e.Near, ", ")
	}
	for _, err := range e.Left {
		text += fmt.Sprintf("; left out: %v", err)
	}
	return text
}

// ambiguousError is returned for a command that more than one bundle has.
type ambiguousError struct {
	Name string
	In   []string // the bundles
}

func (e *ambiguousError) Error() string {
	full := make([]string, len(e.In))
	for i, bundle := range e.In {
		full[i] = bundle + "/" + e.Name
	}
	return fmt.Sprintf("tool %s: more than one bundle has it: %s", e.Name, strings.Join(full, ", "))
}

const (
	maxNear     = 3
	maxDistance = 2
)

func (s *Set) notFound(kind, name string, names []string) error {
	_, short, qualified := strings.Cut(name, "/")
	if !qualified {
		short = name
	}
	names = slices.Clone(names)
	slices.Sort(names)
	names = slices.Compact(names)
	var near []string
	for d := range maxDistance + 1 {
		for _, n := range names {
			// Every short name would be near a name of one or two letters.
			if len(near) < maxNear && 2*d <= len(n) && 2*d < len(short)+1 && distance(short,
				n) == d {
				near = append(near, n)
			}
		}
	}
	return &NotFoundError{Kind: kind, Name: name, Near: near, Left: s.Problems()}
}

// distance returns the edit distance of a and b. It may stop early with a value above maxDistance.
func distance(a, b string) int {
	if len(a) > len(b)+maxDistance || len(b) > len(a)+maxDistance {
		return maxDistance + 1
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			next := min(row[j], row[j+1]) + 1
			if a[i] == b[j] {
				next = min(next, corner)
			} else {
				next = min(next, corner+1)
			}
			corner, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}

// IsMissing reports whether err is a *NotFoundError or an *ambiguousError.
func IsMissing(err error) bool {
	var missing *NotFoundError
	var ambiguous *ambiguousError
	return errors.As(err, &missing) || errors.As(err, &ambiguous)
}
