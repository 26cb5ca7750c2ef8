package policy

import (
	"fmt"
	"slices"
	"strings"
)

// maxRules bounds a list of rules after a meet. A meet of two long lists of globs can
// in theory grow with the product of their lengths; a list that would pass this bound
// grants nothing instead, because a slow answer to a hostile request is a denial of
// service and a shortened one could be wrong.
const maxRules = 2048

// rule is an item of a list: it has a partial order, and a name to sort by.
type rule[T any] interface {
	below(T) bool
	String() string
}

// meeting is a rule whose lists meet pairwise, and not by union.
type meeting[T any] interface {
	rule[T]
	meet(T) []T
}

// normalList sorts rules by name and drops those that lie below another.
func normalList[T rule[T]](rules []T) []T {
	if len(rules) == 0 {
		return nil
	}
	sorted := make([]named[T], len(rules))
	for i, r := range rules {
		sorted[i] = named[T]{r.String(), r}
	}
	slices.SortStableFunc(sorted, func(a, b named[T]) int {
		return strings.Compare(a.name, b.name)
	})
	sorted = slices.CompactFunc(sorted, func(a, b named[T]) bool { return a.name == b.name })
	var out []T
	for i, r := range sorted {
		covered := false
		for j, other := range sorted {
			// Of two that lie below each other, the first by name stays.
			if i != j && r.rule.below(other.rule) && (j < i || !other.rule.below(r.rule)) {
				covered = true
				break
			}
		}
		if !covered {
			out = append(out, r.rule)
		}
	}
	return out
}

// named is a rule with its name, which is costly to compute.
type named[T any] struct {
	name string
	rule T
}

// meetLists returns the pairwise meets of two lists, in normal form. If there are more than
// maxRules, it returns nil, which grants nothing.
func meetLists[T meeting[T]](a, b []T) []T {
	var out []T
	for _, x := range a {
		for _, y := range b {
			out = append(out, x.meet(y)...)
			if len(out) > maxRules {
				return nil
			}
		}
	}
	return normalList(out)
}

// listBelow reports whether each rule of a lies below some rule of b.
func listBelow[T rule[T]](a, b []T) bool {
	return !slices.ContainsFunc(a, func(x T) bool { return !slices.ContainsFunc(b, x.below) })
}

// listString returns a list as text in brackets, or ∅ if it is empty.
func listString[T rule[T]](rules []T) string {
	texts := make([]string, len(rules))
	for i, r := range rules {
		texts[i] = r.String()
	}
	return setString(texts)
}

func setString(texts []string) string {
	if len(texts) == 0 {
		return "∅"
	}
	return "[" + strings.Join(texts, " ") + "]"
}

// Named is the name and description of something that a policy grants by name.
type Named struct{ Name, About string }

// NamesOf returns the names of all items.
func NamesOf(all []Named) (names []string) {
	for _, n := range all {
		names = append(names, n.Name)
	}
	return names
}

// checkKnown returns an error if name is not in known. The error lists the known names.
func checkKnown(kind string, known []string, name string) error {
	if !slices.Contains(known, name) {
		return fmt.Errorf("no %s is called %q: there are %s", kind, name, strings.Join(known, ", "))
	}
	return nil
}

// unionStrings returns the union of two sets, sorted, or nil if it is empty.
func unionStrings(a, b []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(a, b))))
}

// meetStrings returns the members of a that are also in b.
func meetStrings(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return !slices.Contains(b, s) })
}

// subsetStrings reports whether every member of a is in b.
func subsetStrings(a, b []string) bool {
	return !slices.ContainsFunc(a, func(s string) bool { return !slices.Contains(b, s) })
}
