package syntax

import (
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
	include     []included
	policy      policy.Policy
	mountAt     []Position          // of each mount in policy
	at          map[string]Position // of each key that is there
}

func (d *draft) has(key string) bool { _, ok := d.at[key]; return ok }

// inherit joins what an included draft says into d: lists are united, and keys that d
// says itself stay as they are.
func (d *draft) inherit(base *draft) {
	p, q := &d.policy, base.policy
	inheritKey(d, base, "workspace.access", &p.Workspace.Access, q.Workspace.Access)
	inheritKey(d, base, "workspace.commit", &p.Workspace.Commit, q.Workspace.Commit)
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
	p.Tools.Allow = append(slices.Clone(q.Tools.Allow), p.Tools.Allow...)
	p.Tools.Modules = append(slices.Clone(q.Tools.Modules), p.Tools.Modules...)
	p.Tools.Native = append(slices.Clone(q.Tools.Native), p.Tools.Native...)
	p.Fetch.Allow = append(slices.Clone(q.Fetch.Allow), p.Fetch.Allow...)
	p.Fetch.Deny = append(slices.Clone(q.Fetch.Deny), p.Fetch.Deny...)
	inheritKey(d, base, "fetch.limits.rate", &p.Fetch.Rate, q.Fetch.Rate)
	inheritKey(d, base, "fetch.mode", &p.Fetch.Mode, q.Fetch.Mode)
	p.Env.Pass = append(slices.Clone(q.Env.Pass), p.Env.Pass...)
	p.Env.Allow = append(slices.Clone(q.Env.Allow), p.Env.Allow...)
	p.Syscalls.Groups = unite(q.Syscalls.Groups, p.Syscalls.Groups)
	values := maps.Clone(q.Env.Set.Values)
	if values == nil {
		values = map[string]string{}
	}
	maps.Copy(values, p.Env.Set.Values)
	p.Env.Set.Values = values
	for key, pos := range base.at {
		// Items of united lists keep their places by what they say, not by number.
		numbered := strings.Contains(key, "[") && !strings.Contains(key, " ")
		if !numbered && !d.has(key) {
			d.at[key] = pos
		}
	}
}

func (d *draft) wants(base *draft, key string) bool { return !d.has(key) && base.has(key) }

func inheritKey[T any](d, base *draft, key string, into *T, from T) {
	if d.wants(base, key) {
		*into = from
	}
}

// inheritMounts takes over each mount whose target d does not use itself.
func (d *draft) inheritMounts(base *draft) {
	for i, m := range base.policy.Mounts {
		same := func(own policy.Mount) bool { return m.Target != "" && own.Target == m.Target || own == m }
		if !slices.ContainsFunc(d.policy.Mounts, same) {
			d.policy.Mounts = append(d.policy.Mounts, m)
			d.mountAt = append(d.mountAt, base.mountAt[i])
		}
	}
}

func unite(base, own []string) []string {
	out := slices.Clone(base)
	for _, s := range own {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// open fills what a ceiling or a request leaves out with the top of its part.
func (d *draft) open() {
	p, top := &d.policy, policy.Top()
	openKey(d, "workspace.access", &p.Workspace.Access, top.Workspace.Access)
	openKey(d, "workspace.commit", &p.Workspace.Commit, top.Workspace.Commit)
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
	openKey(d, "fetch.allow", &p.Fetch.Allow, top.Fetch.Allow)
	openKey(d, "fetch.mode", &p.Fetch.Mode, top.Fetch.Mode)
	openKey(d, "env.set", &p.Env.Set, top.Env.Set)
	openKey(d, "env.pass", &p.Env.Pass, top.Env.Pass)
	openKey(d, "env.allow", &p.Env.Allow, top.Env.Allow)
	openKey(d, "syscalls.groups", &p.Syscalls, top.Syscalls)
}

// openOptional is open for what even a profile may leave out.
func (d *draft) openOptional() {
	for _, name := range policy.OptionalLimits() {
		if !d.has("limits." + name) {
			d.policy.Limits.Put(name, policy.Unlimited)
		}
	}
}

func openKey[T any](d *draft, key string, into *T, top T) {
	if !d.has(key) {
		*into = top
	}
}
