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
	inheritKey(d, base, "workspace.access", &p.Workspace.Access, q.Workspace.Access)
	inheritKey(d, base, "workspace.commit", &p.Workspace.Commit, q.Workspace.Commit)
	inheritKey(d, base, "workspace.target", &p.Workspace.Target, q.Workspace.Target)
	for _, name := range policy.LimitNames() {
		if n, _, _ := q.Limits.Get(name); d.wants(base, "limits."+name) {
			p.Limits.Put(name, n)
		}
	}
	for _, name := range policy.FetchLimitNames() {
		if n, _, _ := q.Fetch.Limits.Get(name); d.wants(base, "fetch.limits."+name) {
			p.Fetch.Limits.Put(name, n)
		}
	}
	p.Workspace.Hide = unite(q.Workspace.Hide, p.Workspace.Hide)
	p.Workspace.Protect = unite(q.Workspace.Protect, p.Workspace.Protect)
	d.inheritMounts(base)
	p.Tools.Allow = uniteRules(q.Tools.Allow, p.Tools.Allow)
	p.Tools.Modules = uniteRules(q.Tools.Modules, p.Tools.Modules)
	p.Tools.Native = uniteRules(q.Tools.Native, p.Tools.Native)
	p.Tools.Images = uniteRules(q.Tools.Images, p.Tools.Images)
	p.Fetch.Allow = uniteRules(q.Fetch.Allow, p.Fetch.Allow)
	p.Fetch.Deny = uniteRules(q.Fetch.Deny, p.Fetch.Deny)
	p.Approve = uniteRules(q.Approve, p.Approve)
	inheritKey(d, base, "fetch.limits.rate", &p.Fetch.Rate, q.Fetch.Rate)
	inheritKey(d, base, "fetch.mode", &p.Fetch.Mode, q.Fetch.Mode)
	p.Env.Pass = uniteRules(q.Env.Pass, p.Env.Pass)
	p.Env.Allow = uniteRules(q.Env.Allow, p.Env.Allow)
	p.Syscalls.Groups = unite(q.Syscalls.Groups, p.Syscalls.Groups)
	p.Agent.Bindings = unite(q.Agent.Bindings, p.Agent.Bindings)
	inheritKey(d, base, "audit.files", &p.Audit.Files, q.Audit.Files)
	inheritKey(d, base, "session.engine", &p.Session.Engine, q.Session.Engine)
	inheritKey(d, base, "session.loopback", &p.Session.Loopback, q.Session.Loopback)
	inheritKey(d, base, "outer", &p.Outer, q.Outer)
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

func inheritKey[T any](d, base *draft, key string, into *T, from T) {
	if d.wants(base, key) {
		*into = from
	}
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

// open fills what a ceiling or a request leaves out with the top of its part.
func (d *draft) open(kind Kind) {
	p, top := &d.policy, policy.Top()
	openKey(d, "workspace.access", &p.Workspace.Access, top.Workspace.Access)
	openKey(d, "workspace.commit", &p.Workspace.Commit, top.Workspace.Commit)
	openKey(d, "workspace.target", &p.Workspace.Target, top.Workspace.Target)
	for _, name := range policy.LimitNames() {
		if !d.has("limits." + name) {
			p.Limits.Put(name, policy.Unlimited)
		}
	}
	for _, name := range policy.FetchLimitNames() {
		if !d.has("fetch.limits." + name) {
			p.Fetch.Limits.Put(name, policy.Unlimited)
		}
	}
	openKey(d, "mount", &p.Mounts, top.Mounts)
	openKey(d, "tools.allow", &p.Tools.Allow, top.Tools.Allow)
	openKey(d, "tools.modules", &p.Tools.Modules, top.Tools.Modules)
	openKey(d, "tools.native", &p.Tools.Native, top.Tools.Native)
	// A ceiling that bounds the programs of the host may be older than images, of which all programs
	// may run: it has to name those that it grants.
	if kind != Ceiling || !d.has("tools.native") {
		openKey(d, "tools.images", &p.Tools.Images, top.Tools.Images)
	}
	openKey(d, "fetch.allow", &p.Fetch.Allow, top.Fetch.Allow)
	openKey(d, "fetch.mode", &p.Fetch.Mode, top.Fetch.Mode)
	openKey(d, "env.set", &p.Env.Set, top.Env.Set)
	openKey(d, "env.pass", &p.Env.Pass, top.Env.Pass)
	openKey(d, "env.allow", &p.Env.Allow, top.Env.Allow)
	openKey(d, "syscalls.groups", &p.Syscalls, top.Syscalls)
	openKey(d, "agent.bindings", &p.Agent, top.Agent)
	openKey(d, "audit.files", &p.Audit.Files, top.Audit.Files)
	openKey(d, "session.engine", &p.Session.Engine, top.Session.Engine)
	openKey(d, "session.loopback", &p.Session.Loopback, top.Session.Loopback)
	outer := top.Outer
	if kind == Ceiling {
		outer = policy.KeepingOuter()
	}
	openKey(d, "outer", &p.Outer, outer)
}

// openOptional is open for what even a profile may leave out.
func (d *draft) openOptional() {
	for _, name := range policy.OptionalLimits() {
		if !d.has("limits." + name) {
			d.policy.Limits.Put(name, policy.Unlimited)
		}
	}
	openKey(d, "audit.files", &d.policy.Audit.Files, policy.FilesNone)
	openKey(d, "session.engine", &d.policy.Session.Engine, policy.EngineRequest)
	openKey(d, "session.loopback", &d.policy.Session.Loopback, policy.LoopbackOwn)
	openKey(d, "outer", &d.policy.Outer, policy.TopOuter())
}

func openKey[T any](d *draft, key string, into *T, top T) {
	if !d.has(key) {
		*into = top
	}
}
