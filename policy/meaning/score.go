package meaning

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/paths"
)

// A Part is the contribution of one kind of exposure to a score.
type Part struct {
	Name   string   `json:"name"`
	Points int      `json:"points"`
	Max    int      `json:"max"`
	Why    []string `json:"why"`
}

// A Score is how much of a host a policy exposes to a tool, from 0 (nothing) to 100.
type Score struct {
	Points int    `json:"points"`
	Parts  []Part `json:"parts"`
}

// Calls are the number of system calls that a run's filters allow, and of all in the kernel.
type Calls struct{ Reachable, All int }

// Measure returns the score of a policy, by the formula in docs/policy.md.
func Measure(p policy.Policy, calls Calls) Score {
	p = p.Normal()
	var s Score
	for _, part := range []Part{scoreCalls(calls), scoreExec(p), scoreFiles(p), scoreNetwork(p),
		scoreSecrets(p), scoreLimits(p)} {
		part.Points = min(part.Points, part.Max)
		s.Points += part.Points
		s.Parts = append(s.Parts, part)
	}
	return s
}

func (p *Part) add(points int, format string, args ...any) {
	p.Points += points
	p.Why = append(p.Why, fmt.Sprintf("%d: "+format, append([]any{points}, args...)...))
}

func newPart(name string, most int) Part { return Part{Name: name, Max: most, Why: []string{}} }

func scoreCalls(c Calls) Part {
	p := newPart("system calls", 20)
	if c.All > 0 && c.Reachable > 0 {
		p.add((c.Reachable*20+c.All-1)/c.All, "%d of %d system calls can be reached", c.Reachable,
			c.All)
	}
	return p
}

func scoreExec(pol policy.Policy) Part {
	p := newPart("writable and executable", 15)
	for _, m := range pol.Mounts {
		if (policy.Write | policy.Exec).SubsetOf(m.Access) {
			p.add(8, "mount %s can be written, and what is in it may run", m.Target)
		}
		if m.Access == policy.Cache && pol.Tools.Native.Match(m.Target+"/a") {
			p.add(5, "what is written to cache %s may run, also later", m.Name)
		}
		if m.Access == policy.Tmpfs && pol.Tools.Native.Match(m.Target+"/a") {
			p.add(3, "what is written to %s may run", m.Target)
		}
	}
	if pol.Workspace.Access == policy.WorkspaceShadow && pol.Tools.Native.Match(policy.WorkspaceDir+
		"/a") {
		p.add(4, "what is written to the workspace may run")
	}
	for _, g := range pol.Tools.Native {
		if !g.Literal() {
			p.add(1, "tools.native %q stands for any program", g)
		}
	}
	for _, g := range pol.Tools.Images {
		p.add(1, "tools.images %q: what an image holds may run, and what is written to its root", g)
	}
	return p
}

func scoreFiles(pol policy.Policy) Part {
	p := newPart("files", 15)
	switch pol.Workspace.Access {
	case policy.WorkspaceRead:
		p.add(1, "the workspace can be read")
	case policy.WorkspaceShadow:
		p.add(2, "the workspace can be read, and written in a shadow")
		if pol.Workspace.Commit == policy.CommitAuto {
			p.add(5, "changes become real without anyone's yes")
		}
	}
	settings := 0
	for _, m := range pol.Mounts {
		switch {
		case m.Source == "":
		case m.Setting():
			settings++
		case policy.Write.SubsetOf(m.Access):
			p.add(6, "%s itself is written to", m.Source)
		case m.Source == "/":
			p.add(10, "the whole host can be read")
		case slices.ContainsFunc([]string{"/usr", "/bin", "/sbin", "/lib"},
			func(dir string) bool { return strings.HasPrefix(m.Source, dir) }):
		default:
			p.add(1, "%s can be read", m.Source)
		}
	}
	if settings > 0 {
		p.add(1, "settings of the host can be read (%d)", settings)
	}
	return p
}

func scoreNetwork(pol policy.Policy) Part {
	p := newPart("network", 25)
	for _, r := range pol.Fetch.Allow {
		switch host := r.Host.String(); {
		case host == "*":
			p.add(15, "any public host can be reached")
		case strings.HasPrefix(host, "**."):
			p.add(6, "every name below %s can be reached", host[3:])
		case strings.HasPrefix(host, "*."):
			p.add(4, "every name in %s can be reached", host[2:])
		default:
			p.add(2, "%s can be reached", host)
		}
		reading := func(g policy.Glob) bool {
			return slices.Contains([]string{"GET", "HEAD", "OPTIONS"}, g.String())
		}
		if slices.ContainsFunc(r.Methods, func(g policy.Glob) bool { return !reading(g) }) {
			p.add(3, "methods %s change things at %s", r.Methods, r.Host)
		}
		if r.TLS == policy.TLSOpaque || r.WebSocket {
			p.add(3, "what passes to %s is not seen request by request", r.Host)
		}
	}
	if pol.Fetch.Mode == policy.FetchReport && len(pol.Fetch.Allow) > 0 {
		p.add(10, "what no rule grants is sent all the same")
	}
	return p
}

// secretWords are parts of the names of variables and files that hold secrets.
var secretWords = []string{"SECRET", "TOKEN", "PASSWORD", "PASSWD", "CREDENTIAL", "API_KEY",
	"PRIVATE_KEY", "ACCESS_KEY", "AUTH_SOCK"}

var secretDirs = []string{".ssh", ".gnupg", ".aws", ".kube", ".docker", ".netrc", ".config"}

func scoreSecrets(pol policy.Policy) Part {
	p := newPart("secrets", 15)
	if pol.Env.Pass.Match("ANY_NAME_AT_ALL") {
		p.add(10, "every variable of the caller is passed on")
	} else {
		for _, g := range pol.Env.Pass {
			if slices.ContainsFunc(secretWords,
				func(w string) bool { return strings.Contains(strings.ToUpper(g.String()), w) }) {
				p.add(4, "the caller's variable %s is passed on", g)
			}
		}
	}
	for _, name := range pol.Fetch.Credentials() {
		p.add(3, "the credential %s is used for the tool", name)
	}
	for _, m := range pol.Mounts {
		for _, dir := range secretDirs {
			if slices.Contains(strings.Split(m.Source, "/"), dir) {
				p.add(8, "%s holds keys or credentials", m.Source)
			}
		}
		for _, dir := range []string{"/run", "/var/run"} {
			if paths.Within(dir, m.Source) {
				p.add(8, "%s holds sockets of services", m.Source)
			}
		}
		if m.Source == "/home" || m.Source == "/root" || strings.Count(m.Source, "/") == 2 &&
			strings.HasPrefix(m.Source, "/home/") {
			p.add(8, "%s is a home directory, with all that is in it", m.Source)
		}
	}
	return p
}

func scoreLimits(pol policy.Policy) Part {
	p := newPart("missing limits", 10)
	for _, name := range policy.LimitNames() {
		n, _, _ := pol.Limits.Get(name)
		if n == policy.Unlimited && !slices.Contains(policy.OptionalLimits(), name) {
			p.add(1, "%s has no limit", name)
		}
	}
	return p
}
