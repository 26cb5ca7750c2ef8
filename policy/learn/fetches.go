package learn

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/jail-sandbox/jail/policy"
)

// manyPaths is how many paths of one host are named before all are granted.
const manyPaths = 8

// requests returns a rule for each host of the observed requests, and a sentence for each refused
// one, which a person must grant.
func requests(fetches []Fetch) (items []Item, person []string) {
	type seen struct {
		ports          map[uint16]bool
		methods, paths map[string]bool
		count          int
	}
	hosts := map[string]*seen{}
	refused := map[string]int{}
	for _, f := range fetches {
		if f.Decision != "allowed" {
			refused[fmt.Sprintf("%s %s:%d (%s)", f.Method, f.Host, f.Port, f.Rule)]++
			continue
		}
		h := hosts[f.Host]
		if h == nil {
			h = &seen{map[uint16]bool{}, map[string]bool{}, map[string]bool{}, 0}
			hosts[f.Host] = h
		}
		h.ports[f.Port] = true
		if f.Kind == "tunnel" {
			// The requests inside are recorded, too.
			continue
		}
		h.count++
		h.methods[f.Method] = true
		// Older logs have paths that are not canonical.
		if form, err := policy.CanonicalPath(f.Path); err == nil {
			f.Path = form
		}
		h.paths[f.Path] = true
	}
	for _, host := range slices.Sorted(maps.Keys(hosts)) {
		h := hosts[host]
		r := Rule{Host: host, Ports: slices.Sorted(maps.Keys(h.ports)),
			Methods: slices.Sorted(maps.Keys(h.methods)), Paths: slices.Sorted(maps.Keys(h.paths))}
		why := fmt.Sprintf("requested %s.", times(int64(h.count)))
		if h.count == 0 {
			r.Opaque, r.Methods, r.Paths = true, []string{"*"}, []string{"/**"}
			why = "a tunnel, of which only the name was seen."
		}
		if len(r.Paths) > manyPaths || slices.ContainsFunc(r.Paths,
			func(p string) bool { return !plainPath(p) }) {
			why = strings.TrimSuffix(why, ".") + fmt.Sprintf(", %d paths.", len(r.Paths))
			r.Paths = []string{"/**"}
		}
		items = append(items, Item{Kind: KindFetch, Name: host, Rule: r, Why: why})
	}
	for _, text := range slices.Sorted(maps.Keys(refused)) {
		person = append(person, fmt.Sprintf("%s: refused %s", text, times(int64(refused[text]))))
	}
	return items, person
}

// plainPath reports whether a path, read as a pattern, matches only itself.
func plainPath(p string) bool {
	return strings.HasPrefix(p, "/") && len(p) < 256 && !strings.ContainsFunc(p,
		func(r rune) bool { return !unicode.IsPrint(r) || strings.ContainsRune(`*?[]{}\`, r) })
}
