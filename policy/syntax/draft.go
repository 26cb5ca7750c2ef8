package syntax

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/policy"
)

// Kind is what a file is used as, which determines the meaning of missing keys.
type Kind uint8

// The kinds. What a ceiling or a request leaves out narrows nothing; what a profile
// leaves out grants nothing.
const (
	Profile Kind = iota
	Ceiling
	Request
)

func (k Kind) String() string { return []string{"profile", "ceiling", "request"}[k] }

// emptyRule returns the defaults of a rule in fetch.allow that names only a host. In a profile it
// grants the least that is useful: to read over HTTPS.
func (k Kind) emptyRule() policy.FetchRule {
	rule := policy.TopFetchRule()
	rule.Host = policy.Host{}
	if k == Profile {
		rule.Ports = policy.OnePort(443)
		rule.Methods = policy.MustGlobs("GET", "HEAD")
		rule.Paths = policy.MustGlobs("/**")
		rule.Credential = ""
		rule.WebSocket, rule.TLS = false, policy.TLSIntercept
	}
	return rule
}

type included struct {
	name string
	pos  Position
}

// draft is a parsed file in which missing keys have no meaning yet.
type draft struct {
	name, about string
	version     int64
	host        Host
	include     []included
	policy      policy.Policy
	// mountAt has the position of each mount in policy.
	mountAt []Position
	// at has the position of each key that the file or an include sets.
	at      map[string]Position
	without []takenOut // of what is inherited
	// tools are the sections of tools, which share at.
	tools []*draft
	// section is set if d is the section of a tool.
	section section
	// over maps each key to the positions that d overrides, so that a file which is included twice
	// does not come back over the file that overrode it.
	over map[string][]Position
}

// A section is the section of the tools that a pattern matches. The keys of the draft begin with
// prefix, which ends with a dot.
type section struct {
	tool   policy.Glob
	prefix string
}

func (d *draft) has(key string) bool { _, ok := d.at[d.section.prefix+key]; return ok }

// clone returns a copy that does not share what inherit and takeOut change.
func (d *draft) clone() *draft {
	c := *d
	c.at, c.over = maps.Clone(d.at), maps.Clone(d.over)
	c.mountAt = slices.Clone(d.mountAt)
	c.policy.Mounts = slices.Clone(d.policy.Mounts)
	c.policy.Env.Set.Values = maps.Clone(d.policy.Env.Set.Values)
	c.tools = nil
	for _, t := range d.tools {
		c.adopt(t)
	}
	return &c
}

// adopt adds a copy of a tool section.
func (d *draft) adopt(t *draft) {
	own := t.clone()
	own.at = d.at
	d.tools = append(d.tools, own)
}

// inheritTools merges base's tool sections into those for the same pattern, and adopts the others.
func (d *draft) inheritTools(base *draft) {
	for _, t := range base.tools {
		i := slices.IndexFunc(d.tools, func(own *draft) bool {
			return own.section.prefix == t.section.prefix
		})
		if i < 0 {
			d.adopt(t)
			continue
		}
		d.tools[i].inheritPolicy(t)
	}
}

// sections returns the tool sections, sorted by pattern.
func (d *draft) sections() []policy.ForTool {
	var out []policy.ForTool
	for _, t := range d.tools {
		out = append(out, policy.ForTool{Tool: t.section.tool, Policy: t.policy.Normal()})
	}
	slices.SortFunc(out, func(a, b policy.ForTool) int {
		return strings.Compare(a.Tool.String(), b.Tool.String())
	})
	return out
}

// inherit merges an included draft into d: lists are united, and other keys that d sets stay.
func (d *draft) inherit(base *draft) {
	// This comes first, while both still know which keys are their own.
	d.inheritTools(base)
	d.inheritPolicy(base)
	for key, pos := range base.at {
		// Items of united lists keep their positions by text, not by number.
		numbered := strings.Contains(key, "[") && !strings.Contains(key, " ")
		if _, own := d.at[key]; !numbered && !own {
			d.at[key] = pos
		}
	}
}

func (d *draft) inheritPolicy(base *draft) {
	p, q := &d.policy, base.policy
	for _, f := range policy.Fields() {
		switch own, theirs := f.At(p), f.At(&q); own := own.(type) {
		case *[]string:
			*own = unite(*theirs.(*[]string), *own)
		case *policy.Globs:
			*own = uniteRules(*theirs.(*policy.Globs), *own)
		default:
			if d.wants(base, f.Key) {
				f.Copy(p, q)
			}
		}
	}
	d.inheritMounts(base)
	p.Fetch.Allow = uniteRules(q.Fetch.Allow, p.Fetch.Allow)
	p.Fetch.Deny = uniteRules(q.Fetch.Deny, p.Fetch.Deny)
	p.Approve = uniteRules(q.Approve, p.Approve)
	if d.wants(base, "outer") {
		p.Outer = q.Outer
	}
	values := maps.Clone(p.Env.Set.Values)
	if values == nil {
		values = map[string]string{}
	}
	for name, value := range q.Env.Set.Values {
		if d.wants(base, "env.set."+name) {
			values[name] = value
		}
	}
	p.Env.Set.Values = values
}

// wants reports whether d inherits base's value for a key. If so, it takes over the position.
func (d *draft) wants(base *draft, key string) bool {
	k := d.section.prefix + key
	theirs, ok := base.at[k]
	if !ok {
		return false
	}
	own, said := d.at[k]
	if d.yields(base, k, own, said, theirs) {
		if said {
			d.at[k] = theirs
		}
		return true
	}
	return false
}

// yields reports whether base's value for a key wins over that of d. said is set if d has one.
func (d *draft) yields(base *draft, k string, own Position, said bool, theirs Position) bool {
	if d.over == nil {
		d.over = map[string][]Position{}
	}
	if !said || own != theirs && slices.Contains(base.over[k], own) {
		d.over[k] = base.over[k]
		return true
	}
	d.over[k] = unite(d.over[k], base.over[k])
	if own != theirs {
		d.over[k] = unite(d.over[k], []Position{theirs})
	}
	return false
}

// inheritMounts adds the mounts of base, except those whose target d mounts itself.
func (d *draft) inheritMounts(base *draft) {
	for i, m := range base.policy.Mounts {
		same := func(own policy.Mount) bool {
			return m.Target != "" && own.Target == m.Target || own == m
		}
		at, j := base.mountAt[i], slices.IndexFunc(d.policy.Mounts, same)
		var own Position
		if j >= 0 {
			own = d.mountAt[j]
		}
		switch yields := d.yields(base, d.section.prefix+"mount "+m.Target, own, j >= 0, at); {
		case j < 0:
			d.policy.Mounts = append(d.policy.Mounts, m)
			d.mountAt = append(d.mountAt, at)
		case yields:
			d.policy.Mounts[j], d.mountAt[j] = m, at
		}
	}
}

// uniteRules returns the union of two lists of rules, which are equal if their texts are.
func uniteRules[L ~[]T, T fmt.Stringer](base, own L) L {
	return uniteBy(base, own, func(x T) string { return x.String() })
}

func unite[T comparable](base, own []T) []T { return uniteBy(base, own, func(x T) T { return x }) }

// uniteBy returns base followed by the items of own whose key is not in it yet.
func uniteBy[L ~[]T, T any, K comparable](base, own L, key func(T) K) L {
	out, seen := slices.Clone(base), map[K]bool{}
	for _, x := range base {
		seen[key(x)] = true
	}
	for _, x := range own {
		if k := key(x); !seen[k] {
			seen[k] = true
			out = append(out, x)
		}
	}
	return out
}

// unsaid returns the policy of a file without keys.
func (k Kind) unsaid() policy.Policy {
	p := policy.Top()
	switch k {
	case Ceiling:
		p.Outer = policy.KeepingOuter()
	case Profile:
		p = policy.Policy{Audit: p.Audit, Session: policy.Session{Engine: policy.EngineRequest},
			Outer: p.Outer}
		for _, name := range policy.OptionalLimits() {
			p.Limits.Put(name, policy.Unlimited)
		}
	}
	return p
}

// fill sets the keys that a file leaves out to the defaults of its kind.
func (d *draft) fill(kind Kind) {
	p, unsaid := &d.policy, kind.unsaid()
	// A ceiling that limits host programs may be older than images, of which all programs may run.
	// It grants only the images that it names.
	if kind == Ceiling && d.has("tools.native") {
		unsaid.Tools.Images = nil
	}
	for _, f := range policy.Fields() {
		if !d.has(f.Key) {
			f.Copy(p, unsaid)
		}
	}
	if !d.has("mount") {
		p.Mounts = unsaid.Mounts
	}
	if !d.has("fetch.allow") {
		p.Fetch.Allow = unsaid.Fetch.Allow
	}
	if !d.has("env.set") {
		p.Env.Set = unsaid.Env.Set
	}
	if !d.has("outer") {
		p.Outer = unsaid.Outer
	}
}
