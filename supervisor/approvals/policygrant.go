package approvals

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// A PolicyGrant widens a profile for later runs, for a limited time. When it is approved it becomes
// a grant that runs name in their request. It is bounded by the ceiling, and can only grant
// requests without a credential and tools of bundles.
type PolicyGrant struct {
	// The profile that is widened.
	Profile string `json:"profile"`
	// Requests, at most 20 rules.
	Fetch []GrantedFetch `json:"fetch,omitempty"`
	// Tools of bundles, as bundle/command, at most 20.
	Tools []string `json:"tools,omitempty"`
	// How long it is valid after its approval, at most 720h, such as 8h.
	For string `json:"for"`
}

// GrantedFetch are requests that a policy grant allows.
type GrantedFetch struct {
	// A host name, or *. and a name.
	Host string `json:"host"`
	// Ports; 443 if none is named.
	Ports []string `json:"ports,omitempty"`
	// Methods in upper case; GET and HEAD if none is named.
	Methods []string `json:"methods,omitempty"`
	// Patterns of paths, which begin with a slash; all if none is named.
	Paths []string `json:"paths,omitempty"`
}

// maxGranted bounds each list of a policy grant.
const maxGranted = 20

func (*PolicyGrant) kind() string { return policy.ActionPolicyGrant }

func (g *PolicyGrant) check() error {
	_, err := g.widening()
	_, forErr := g.lasts()
	if len(g.Fetch)+len(g.Tools) == 0 {
		err = errors.Join(err, errors.New("policy_grant: it grants nothing: fetch and tools are missing"))
	}
	return errors.Join(checkName("policy_grant.profile", g.Profile, profileName()), err, forErr)
}

func (g *PolicyGrant) lasts() (time.Duration, error) {
	d, err := time.ParseDuration(g.For)
	if err != nil || d <= 0 || d > maxUntil || len(g.For) > maxScope {
		return 0, fmt.Errorf("policy_grant.for: %.80q is no time of at most 720h, such as 8h", g.For)
	}
	return d, nil
}

func (g *PolicyGrant) widening() (w policy.Widening, err error) {
	if len(g.Fetch) > maxGranted || len(g.Tools) > maxGranted {
		return w, fmt.Errorf("policy_grant: at most %d rules for fetches and %d tools", maxGranted,
			maxGranted)
	}
	for i, f := range g.Fetch {
		r, err := f.rule()
		if err != nil {
			return w, fmt.Errorf("policy_grant.fetch[%d]: %w", i, err)
		}
		w.Fetch = append(w.Fetch, r)
	}
	for _, name := range g.Tools {
		tool, err := policy.ParseGlob(name)
		if err != nil || strings.ContainsAny(name, "*?[{") || strings.Count(name, "/") != 1 {
			return w, fmt.Errorf("policy_grant.tools: %.80q is no bundle/command", name)
		}
		if err := errors.Join(checkLine("policy_grant.tools", name, maxName, true),
			policy.CheckToolGlob(tool)); err != nil {
			return w, err
		}
		w.Tools = append(w.Tools, tool)
	}
	return w, nil
}

func (f GrantedFetch) rule() (r policy.FetchRule, err error) {
	if len(f.Ports) > maxGranted || len(f.Methods) > maxGranted || len(f.Paths) > maxGranted {
		return r, fmt.Errorf("at most %d ports, methods and paths", maxGranted)
	}
	if r.Host, err = policy.ParseHost(f.Host); err != nil {
		return r, err
	}
	if r.Host == policy.AnyHost {
		return r, errors.New("host: every host is not granted in this way; name them")
	}
	for _, text := range f.ports() {
		ports, err := policy.ParsePorts(text)
		if err != nil {
			return r, err
		}
		r.Ports = append(r.Ports, ports...)
	}
	if r.Methods, err = globs(f.methods()); err != nil {
		return r, err
	}
	if r.Paths, err = globs(f.paths()); err != nil {
		return r, err
	}
	// Policy.Check checks the rest of the rule.
	return r, errors.Join(policy.Policy{Fetch: policy.Fetch{Allow: []policy.FetchRule{r},
		Limits: policy.TopFetchLimits()}}.Check(), checkLine("host", f.Host, maxURL, true),
		checkLine("methods", strings.Join(f.Methods, " "), maxURL, false),
		checkLine("paths", strings.Join(f.Paths, " "), maxURL, false))
}

func globs(texts []string) (out policy.Globs, err error) {
	for _, text := range texts {
		g, err := policy.ParseGlob(text)
		if err != nil {
			return nil, err
		}
		out = append(out, g)
	}
	return out, nil
}

func or(list []string, others ...string) []string {
	if len(list) == 0 {
		return others
	}
	return list
}

func (f GrantedFetch) ports() []string   { return or(f.Ports, "443") }
func (f GrantedFetch) methods() []string { return or(f.Methods, "GET", "HEAD") }
func (f GrantedFetch) paths() []string   { return or(f.Paths, "/**") }

func (g *PolicyGrant) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "for %s, let runs with the profile %s that name this grant also", g.For, g.Profile)
	for i, f := range g.Fetch {
		if i > 0 {
			b.WriteString(";")
		}
		fmt.Fprintf(&b, " send %s to %s, port %s, paths %s", strings.Join(f.methods(), ", "), f.Host,
			strings.Join(f.ports(), ", "), strings.Join(f.paths(), " "))
	}
	if len(g.Tools) > 0 {
		if len(g.Fetch) > 0 {
			b.WriteString(";")
		}
		b.WriteString(" start " + strings.Join(g.Tools, ", "))
	}
	return runners.Printable(b.String(), maxStored)
}

// target returns an empty text: no grant covers a policy grant.
func (g *PolicyGrant) target() string { return "" }

func (g *PolicyGrant) size() int {
	n := 2 * len(g.String())
	for _, f := range g.Fetch {
		n += 32 * (len(f.Ports) + len(f.Methods) + len(f.Paths))
	}
	return n
}

// Widening returns the rules that a proposed policy grant would add to a policy.
func (p ProposeRequest) Widening() (policy.Widening, error) {
	w, err := p.PolicyGrant.widening()
	if err != nil {
		err = problem.New(problem.Usage, "%w", err)
	}
	return w, err
}

// applyGrant approves and applies a policy grant in one step.
func (p Programs) applyGrant(l *line, s *stored, d Decision, c caller.Caller) (*stored, error) {
	if d.Scope != "" && d.Scope != "once" {
		return nil, problem.New(problem.Usage, "scope %q: a policy grant has its own time", d.Scope).
			WithHint("leave --scope out")
	}
	lasts, err := s.PolicyGrant.lasts()
	if err != nil {
		return nil, problem.New(problem.Failed, "%w", err)
	}
	if err := p.q.roomForGrant(l, s.UID, d.Time); err != nil {
		return nil, err
	}
	g := &Grant{ID: newID(), Type: s.Type, UID: s.UID, Agent: s.Agent, Widens: s.PolicyGrant,
		Scope: "until=" + s.PolicyGrant.For, Action: s.ID, Given: d.Time, By: c.UID,
		Until: d.Time.Add(lasts)}
	l.Grants = append(l.Grants, g)
	d.Grant = g.ID
	approved := l.approve(s, d)
	// The journal gets one state of the action, and the audit log gets both.
	l.Actions = slices.DeleteFunc(l.Actions, func(a *stored) bool { return a == approved })
	done := *approved
	done.Outcome = g.ID
	return l.move(&done, Applied, d.Time, d.actor()), nil
}

// takeGrant revokes the grant that a policy grant made, and moves the action to Reverted.
func (p Programs) takeGrant(l *line, s *stored, now time.Time, by audit.Actor) *stored {
	if g := p.q.grants[s.Outcome]; g != nil && !slices.Contains(l.Ended, g.ID) {
		l.revoke(g, by)
	}
	return l.move(s, Reverted, now, by)
}

// Widening returns the rules that the grant with this id adds for runs of a user with a profile, on
// behalf of an agent (empty for none). It returns an error if the grant is over or for other runs,
// or if its giver may no longer approve it.
func (p Programs) Widening(uid uint32, id, profile, agent string) (w policy.Widening, err error) {
	var g *Grant
	if err := p.q.look(func() error { g = p.q.grants[id]; return nil }); err != nil {
		return w, err
	}
	if g == nil || g.UID != uid || g.Widens == nil || g.over(time.Now()) {
		return w, problem.New(problem.Refused, "grant %.64q is none of uid %d for a policy, or is over",
			id, uid).WithHint("jail approvals grants lists those there are")
	}
	if g.Widens.Profile != profile || g.Agent != agent {
		what := "of no agent"
		if g.Agent != "" {
			what = "of " + g.Agent
		}
		return w, problem.New(problem.Refused,
			"grant %s is for runs of the profile %s, %s, and not for this one", id, g.Widens.Profile,
			what).WithHint("jail approvals grants lists the others")
	}
	giver, _ := caller.Of(g.By)
	if err := p.q.o.Permissions(giver).Approve(g.UID); err != nil {
		return w, problem.New(problem.Refused, "grant %s: uid %d, who gave it, may not do so any more", id,
			g.By).WithHint("have it approved anew")
	}
	w, err = g.Widens.widening()
	if err != nil {
		return w, problem.New(problem.Failed, "grant %s: %w", id, err)
	}
	return w, nil
}
