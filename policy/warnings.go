package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Warnings returns a sentence for each rule in the policy of a run that weakens the jail, so that
// nobody grants one unknowingly.
func (e Effective) Warnings() []string { return e.Policy().Warnings() }

// Warnings returns a sentence for each grant that weakens a jail. It is of no use for a ceiling,
// which is wide by nature.
func (p Policy) Warnings() []string {
	var out []string
	for _, w := range p.Weaknesses() {
		out = append(out, w.Text)
	}
	return out
}

// A Weakness is something that a policy grants and that weakens a jail.
type Weakness struct {
	// the rule as a Decision names it: the key and, for a list, the item
	Rule string
	Text string // a sentence
}

// Weaknesses returns the warnings, each with its rule.
func (p Policy) Weaknesses() []Weakness {
	var out []Weakness
	rule := ""
	warn := func(format string, args ...any) {
		out = append(out, Weakness{rule, fmt.Sprintf(format, args...)})
	}
	p = p.Normal()
	rule = "workspace.commit"
	if p.Workspace.Access == WorkspaceShadow && p.Workspace.Commit == CommitAuto {
		warn("workspace.commit = \"auto\": changes become real without anyone having seen them")
	}
	rule = "session.engine"
	if p.Session.Engine == EngineShared {
		warn("session.engine = \"shared\": WebAssembly invocations of a session share one process")
	}
	for _, m := range p.Mounts {
		rule = "mount " + strconv.Quote(m.String())
		warnMount(m, warn)
		warnExecutable(p, m, warn)
	}
	for _, r := range p.Fetch.Allow {
		rule = "fetch.allow " + strconv.Quote(r.String())
		warnFetch(r, warn)
	}
	rule = "fetch.mode"
	if p.Fetch.Mode == FetchReport && len(p.Fetch.Allow) > 0 {
		warn("fetch.mode = \"report\": requests that no rule grants are sent all the same, and " +
			"only recorded")
	}
	for _, g := range p.Tools.Native {
		rule = "tools.native " + strconv.Quote(g.String())
		if !g.Literal() {
			warn("tools.native %q: any program that the pattern matches, now or later, may run", g)
		}
	}
	for _, g := range p.Tools.Images {
		rule = "tools.images " + strconv.Quote(g.String())
		if !g.Literal() {
			warn("tools.images %q: any image that the pattern matches, now or later, may be a root, "+
				"and all its programs may run", g)
		}
	}
	rule = "env.pass"
	if p.Env.Pass.Match("ANY_NAME_AT_ALL") {
		warn("env.pass = %q: every variable of the caller, secrets included, is handed to the tool",
			p.Env.Pass.Strings())
	}
	return out
}

// warnExecutable warns of a file that can be written at one path and run at another.
func warnExecutable(p Policy, m Mount, warn func(string, ...any)) {
	if !Write.SubsetOf(m.Access) || Exec.SubsetOf(m.Access) || m.Source == "" {
		return
	}
	for _, other := range p.Mounts {
		if other.Source == "" || !Exec.SubsetOf(other.Access) {
			continue
		}
		_, inside := beneath(other.Source, m.Source)
		if _, above := beneath(m.Source, other.Source); inside || above {
			warn("mount %s: what the tool writes to %s, it may run at %s", m.Target, m.Source,
				other.Target)
		}
	}
}

// socketDirs hold sockets of services, which a jail that reaches them could use.
var socketDirs = []string{"/run", "/var/run", "/tmp"}

func warnMount(m Mount, warn func(string, ...any)) {
	switch {
	case m.Access == Cache:
		warn("mount %s: what a run leaves in cache %q, later runs of the profile read", m.Target,
			m.Name)
		return
	case m.Access.SubsetOf(Tmpfs):
		return
	case Write.SubsetOf(m.Access):
		warn("mount %s: the tool writes to %s itself, not to a shadow of it", m.Target, m.Source)
		if Exec.SubsetOf(m.Access) {
			warn("mount %s: what the tool writes to %s, it may run", m.Target, m.Source)
		}
	}
	if m.Source == "/" {
		warn("mount %s: the whole host can be read", m.Target)
	}
	if slices.Contains(strings.Split(m.Source, "/"), ".ssh") {
		warn("mount %s: %s holds keys", m.Target, m.Source)
	}
	for _, dir := range socketDirs {
		_, inside := beneath(dir, m.Source)
		if _, above := beneath(m.Source, dir); inside || above && m.Source != "/" {
			warn("mount %s: %s holds sockets of services of the host", m.Target, m.Source)
		}
	}
}

// registrySuffixes are labels below which, in country domains, anyone may register a name.
var registrySuffixes = []string{"ac", "co", "com", "edu", "gov", "net", "org", "or", "ne", "gob",
	"go"}

func warnFetch(r FetchRule, warn func(string, ...any)) {
	switch r.Host.depth {
	case hostAny:
		warn("fetch.allow \"*\": the tool may send what it reads to any public host")
	case hostChild, hostBelow:
		first, country, _ := strings.Cut(r.Host.name, ".")
		if len(country) == 2 && slices.Contains(registrySuffixes, first) {
			warn("fetch.allow %q: anyone may register a name below %s", r.Host, r.Host.name)
		}
		if r.Host.depth == hostBelow {
			warn("fetch.allow %q: a tool may put what it reads into the names that it asks for",
				r.Host)
		}
	}
	if r.TLS == TLSOpaque && r.everyRequest() {
		warn("fetch.allow %q: tls = \"opaque\" lets the tool send what nobody sees or records",
			r.Host)
	}
	if strings.HasPrefix(r.Host.name, "xn--") || strings.Contains(r.Host.name, ".xn--") {
		warn("fetch.allow %q: the name is written in another script, and may look like one that "+
			"it is not", r.Host)
	}
	if r.Credential != "" && r.Credential != AnyCredential && r.Ports.Has(80) {
		warn("fetch.allow %q: credential %q would be sent over plain HTTP on port 80", r.Host,
			r.Credential)
	}
	writes := func(g Glob) bool {
		return !slices.Contains([]string{"GET", "HEAD", "OPTIONS"}, g.String())
	}
	if r.Host.depth == hostAny && slices.ContainsFunc(r.Methods, writes) {
		warn("fetch.allow \"*\": methods %s let the tool change things at any public host",
			r.Methods)
	}
}
