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

// rule is what a list is made of: a partial order, and a name by which to sort.
type rule[T any] interface {
	below(T) bool
	String() string
}

// meeting is a rule of lists that meet by their pairs, and not by union.
type meeting[T any] interface {
	rule[T]
	meet(T) []T
}

// normalList sorts rules by name and leaves out each that lies below another.
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

// named is a rule with its name, which takes long to make.
type named[T any] struct {
	name string
	rule T
}

// meetLists returns the rules that lie below both lists.
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

// listString shows a list in brackets, and an empty one as the empty set.
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

// Named is something that a policy grants by its name.
type Named struct{ Name, About string }

// NamesOf returns the names of all.
func NamesOf(all []Named) (names []string) {
	for _, n := range all {
		names = append(names, n.Name)
	}
	return names
}

// checkKnown returns an error that names what there is of a kind, if name is none of it.
func checkKnown(kind string, known []string, name string) error {
	if !slices.Contains(known, name) {
		return fmt.Errorf("no %s is called %q: there are %s", kind, name, strings.Join(known, ", "))
	}
	return nil
}

// unionStrings returns both sets as one, sorted, or nil for none.
func unionStrings(a, b []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(a, b))))
}

// meetStrings returns the members of a that b holds, too.
func meetStrings(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return !slices.Contains(b, s) })
}

// subsetStrings reports whether b holds every member of a.
func subsetStrings(a, b []string) bool {
	return !slices.ContainsFunc(a, func(s string) bool { return !slices.Contains(b, s) })
}
