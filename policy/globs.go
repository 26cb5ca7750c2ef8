package policy

import "slices"

// Globs is a set of names, as the union of its globs. Empty means no name.
type Globs []Glob

// MustGlobs returns the set of patterns that stand in code; it panics on a bad one.
func MustGlobs(texts ...string) Globs {
	var out Globs
	for _, t := range texts {
		out = append(out, MustGlob(t))
	}
	return out
}

// Meet returns the names in both sets.
func (g Globs) Meet(h Globs) Globs { return meetLists(g, h) }

// LessEq reports whether each name of g is in h.
//
// Neither set has to be in normal form: what that leaves out lies below what it keeps.
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

// Strings returns each glob as it would be written.
func (g Globs) Strings() []string {
	out := make([]string, len(g))
	for i, x := range g {
		out[i] = x.String()
	}
	return out
}
