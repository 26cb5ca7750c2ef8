package syntax

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/policy"
)

// Kind says what a file is used as, and so what a key means that is left out.
type Kind uint8

// The kinds. What a ceiling or a request leaves out narrows nothing; what a profile
// leaves out grants nothing.
const (
	Profile Kind = iota
	Ceiling
	Request
)

func (k Kind) String() string { return []string{"profile", "ceiling", "request"}[k] }

// emptyRule is what a rule of fetch.allow says that names only a host: in a profile the
// least that is of use, to read over HTTPS.
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

// draft is a file that has been read, before what it leaves out has a meaning.
type draft struct {
	name, about string
	version     int64
	host        Host
	include     []included
	policy      policy.Policy
	// Of each mount in policy.
	mountAt []Position
	// Of each key that is there.
	at      map[string]Position
	without []takenOut // of what is inherited
	// sections of single tools, which share at
	tools []*draft
	// section says which of them d is, if it is one.
	section section
	// over says of each key where it was said by those that d overrides, so that a file
	// that is included twice does not come back over who included and overrode it.
	over map[string][]Position
}

// A section is that of the tools of one pattern. The keys of the draft begin with prefix, which
// ends with a dot.
type section struct {
	tool   policy.Glob
	prefix string
}

func (d *draft) has(key string) bool { _, ok := d.at[d.section.prefix+key]; return ok }

// clone returns a copy that shares nothing that inherit or takeOut change.
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

// adopt takes over a copy of a section of a tool.
func (d *draft) adopt(t *draft) {
	own := t.clone()
	own.at = d.at
	d.tools = append(d.tools, own)
}

// inheritTools joins the sections for one pattern, and takes over the others.
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

// sections returns the sections of single tools by their patterns.
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

// inherit joins what an included draft says into d: lists are united, and keys that d
// says itself stay as they are.
func (d *draft) inherit(base *draft) {
	// While both still say which keys are their own.
	d.inheritTools(base)
	d.inheritPolicy(base)
	for key, pos := range base.at {
		// Items of united lists keep their places by what they say, not by number.
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

// wants reports whether d takes over what base says of a key, and notes it.
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

// yields reports whether of one key, said at two places, that of base counts.
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

// inheritMounts takes over each mount whose target d does not use itself.
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

// uniteRules is unite for rules, which are one where they say the same.
func uniteRules[L ~[]T, T fmt.Stringer](base, own L) L {
	return uniteBy(base, own, func(x T) string { return x.String() })
}

func unite[T comparable](base, own []T) []T { return uniteBy(base, own, func(x T) T { return x }) }

// uniteBy returns base and what own adds to it. Two items of one key are one.
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

// unsaid is the policy of a file that says nothing.
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

// fill gives meaning to what a file of a kind leaves out.
func (d *draft) fill(kind Kind) {
	p, unsaid := &d.policy, kind.unsaid()
	// A ceiling that bounds the programs of the host may be older than images, of which all programs
	// may run: it has to name those that it grants.
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
