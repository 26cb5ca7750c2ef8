package meaning

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
)

// An Origin is a layer and its rule.
type Origin struct {
	Layer string           `json:"layer"`
	Rule  string           `json:"rule"`
	At    *syntax.Position `json:"at,omitempty"`
}

// An Item is one right or bound of a run, with its origin.
type Item struct {
	Key   string `json:"key"`   // of the policy file
	Value string `json:"value"` // what is in force
	// Given is the rule that grants it; Narrowed are the rules of other layers that restrict that
	// rule.
	Given    *Origin  `json:"given,omitempty"`
	Narrowed []Origin `json:"narrowed,omitempty"`
}

// An Explanation is the effective policy of a run with the origin of each item.
type Explanation struct {
	Digest string   `json:"digest"`
	Layers []string `json:"layers"`
	Items  []Item   `json:"items"`
	// Lost are the rules of the profile that are not, or not fully, in force.
	Lost     []Item   `json:"lost,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
}

// Explain returns which layers grant and narrow each item of the effective policy.
func Explain(sources []Source) (Explanation, error) {
	eff, err := resolveAll(sources)
	if err != nil {
		return Explanation{}, err
	}
	p := eff.Policy()
	x := &explainer{sources: sources,
		out: Explanation{Digest: eff.Digest(), Warnings: eff.Warnings()}}
	for _, s := range sources {
		x.out.Layers = append(x.out.Layers, s.Layer.Name+" ("+s.Layer.Source+")")
	}
	x.section(p, "workspace")
	// A value that no layer narrows is attributed to the profile.
	for i := range x.out.Items {
		x.fillProfile(&x.out.Items[i])
	}
	explainList(x, "mount", p, func(p policy.Policy) []policy.Mount { return p.Mounts },
		func(a, b policy.Mount) bool { return policy.Mounts{a}.LessEq(policy.Mounts{b}) })
	x.section(p, "limits")
	x.section(p, "tools")
	explainList(x, "fetch.allow", p, func(p policy.Policy) []policy.FetchRule {
		return p.Fetch.Allow
	}, func(a, b policy.FetchRule) bool {
		f := func(r policy.FetchRule) policy.Fetch {
			return policy.Fetch{Allow: []policy.FetchRule{r}}
		}
		return f(a).LessEq(f(b))
	})
	explainList(x, "fetch.deny", p, func(p policy.Policy) []policy.FetchDeny {
		return p.Fetch.Deny
	}, same)
	x.section(p, "fetch")
	x.section(p, "fetch.limits")
	explainList(x, "env.set", p, func(p policy.Policy) []word { return pairs(p.Env.Set) }, same)
	for _, name := range []string{"env", "syscalls", "audit", "session"} {
		x.section(p, name)
	}
	explainList(x, "outer", p, func(p policy.Policy) []word { return words(p.Outer.Words()) }, same)
	x.section(p, "agent")
	explainList(x, "approve", p, func(p policy.Policy) []policy.ApproveRule { return p.Approve }, same)
	return x.out, nil
}

func same[T fmt.Stringer](a, b T) bool { return a.String() == b.String() }

// section explains the fields of a section.
func (x *explainer) section(p policy.Policy, name string) {
	for _, f := range policy.Fields(name) {
		if f.Void(p) {
			continue
		}
		switch f.At(&p).(type) {
		case *[]string:
			explainList(x, f.Key, p,
				func(p policy.Policy) []word { return words(*f.At(&p).(*[]string)) }, same)
		case *policy.Globs:
			explainList(x, f.Key, p,
				func(p policy.Policy) []policy.Glob { return *f.At(&p).(*policy.Globs) },
				func(a, b policy.Glob) bool { return policy.Globs{a}.LessEq(policy.Globs{b}) })
		case *int64:
			x.limit(f, p)
		case policy.Word:
			x.scalar(f.Key, p,
				func(p policy.Policy) string { return f.At(&p).(policy.Word).String() })
		}
	}
}

// A word is an item that is only a text.
type word string

func (w word) String() string { return string(w) }

func words(texts []string) []word {
	out := make([]word, len(texts))
	for i, t := range texts {
		out[i] = word(t)
	}
	return out
}

func pairs(v policy.Vars) []word {
	var out []word
	for _, name := range slices.Sorted(maps.Keys(v.Values)) {
		out = append(out, word(name+" = "+strconv.Quote(v.Values[name])))
	}
	return out
}

type explainer struct {
	sources []Source
	out     Explanation
}

// explainList finds the rules that cover each item in force, and the rules of the profile that are
// no longer covered.
func explainList[T fmt.Stringer](x *explainer, key string, p policy.Policy,
	of func(policy.Policy) []T, below func(a, b T) bool) {
	top := map[string]bool{}
	for _, t := range of(policy.Top()) {
		top[t.String()] = true
	}
	type from struct {
		origin Origin
		rule   T
	}
	inForce := of(p)
	for _, item := range inForce {
		out := Item{Key: key, Value: item.String()}
		var given T
		var others []from
		for _, s := range x.sources {
			for _, r := range of(s.Layer.Policy) {
				if top[r.String()] && s.File == nil || !below(item, r) {
					continue
				}
				o := Origin{s.Layer.Name, r.String(), s.itemAt(key, r.String())}
				if out.Given != nil && !s.isProfile() {
					others = append(others, from{o, r})
					break
				}
				if out.Given != nil {
					others = append(others, from{*out.Given, given})
				}
				out.Given, given = &o, r
				break
			}
		}
		for _, o := range others {
			if !below(given, o.rule) {
				out.Narrowed = append(out.Narrowed, o.origin)
			}
		}
		x.out.Items = append(x.out.Items, out)
	}
	for _, s := range x.sources {
		if !s.isProfile() {
			continue
		}
		for _, r := range of(s.Layer.Policy) {
			covered := func(item T) bool { return below(r, item) }
			if slices.ContainsFunc(inForce, covered) {
				continue
			}
			lost := Item{Key: key, Value: r.String(),
				Given: &Origin{s.Layer.Name, r.String(), s.itemAt(key, r.String())}}
			for _, o := range x.sources {
				if o.Layer.Name != s.Layer.Name && !slices.ContainsFunc(of(o.Layer.Policy),
					covered) {
					lost.Narrowed = append(lost.Narrowed,
						Origin{Layer: o.Layer.Name, Rule: o.Layer.Source})
				}
			}
			x.out.Lost = append(x.out.Lost, lost)
		}
	}
}

func (s Source) isProfile() bool { return s.File != nil && s.File.Kind == syntax.Profile }

func (s Source) itemAt(key, item string) *syntax.Position {
	if s.File == nil {
		return nil
	}
	name, _, _ := strings.Cut(item, " = ")
	for _, prefix := range s.prefixes() {
		for _, k := range []string{key + " " + strconv.Quote(item), key + "." + name, key} {
			if at, ok := s.File.At[prefix+k]; ok {
				return &at
			}
		}
	}
	return nil
}

// scalar adds an item for which each layer has one value, of which the least is in force.
func (x *explainer) scalar(key string, p policy.Policy, of func(policy.Policy) string) {
	value, top := of(p), of(policy.Top())
	item := Item{Key: key, Value: value}
	for _, s := range x.sources {
		v := of(s.Layer.Policy)
		if v == top {
			continue
		}
		at := s.itemAt(key, "")
		switch o := (Origin{s.Layer.Name, key + " = " + v, at}); {
		case item.Given == nil || s.isProfile():
			if item.Given != nil && v != value {
				item.Narrowed = append(item.Narrowed, *item.Given)
			}
			item.Given = &o
		case v == value && item.Given.Rule != o.Rule:
			item.Narrowed = append(item.Narrowed, o)
		}
	}
	x.out.Items = append(x.out.Items, item)
}

func (x *explainer) fillProfile(item *Item) {
	for _, s := range x.sources {
		if at := s.itemAt(item.Key, ""); item.Given == nil && at != nil {
			item.Given = &Origin{s.Layer.Name, item.Key + " = " + item.Value, at}
		}
	}
}

func (x *explainer) limit(f policy.Field, p policy.Policy) {
	x.scalar(f.Key, p, func(p policy.Policy) string { return f.Unit.Format(f.Amount(p)) })
	if n, byDefault := p.Limits.InForce(f.Name); byDefault {
		x.out.Items[len(x.out.Items)-1].Value = f.Unit.Format(n) + " (default)"
	}
}
