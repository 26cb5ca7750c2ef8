package prepare

import (
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/paths"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/bundle"
	"github.com/jail-sandbox/jail/supervisor/fetch"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// narrowed adds what a pulled bundle asks for as a layer of its own below the others: whatever it
// says, a run of its command has no more than without it. Its workspace and memory to scribble on
// it has in any case.
func narrowed(eff policy.Effective, name string, needs *bundle.Needs) (policy.Effective, error) {
	if needs == nil {
		return eff, nil
	}
	request := policy.NewRequest()
	for _, host := range needs.Hosts {
		if err := request.Fetch(host); err != nil {
			return eff, err
		}
	}
	p := request.Policy()
	if len(needs.Hosts) == 0 {
		p.Fetch = p.Fetch.Meet(policy.Fetch{Limits: policy.TopFetchLimits(),
			Mode: policy.FetchReport})
	}
	p.Mounts = nil
	for _, m := range eff.Policy().Mounts {
		if m.Access == policy.Tmpfs || needed(needs, m.Target) {
			p.Mounts = append(p.Mounts, m)
		}
	}
	return policy.Resolve(append(eff.Layers(), policy.Layer{Name: "bundle " + name,
		Source: bundle.ManifestFile, Policy: p})...)
}

// needed reports whether a bundle asks for a mount: for its place, for one above it, or for
// something in it.
func needed(needs *bundle.Needs, target string) bool {
	return slices.ContainsFunc(needs.Mounts, func(path string) bool {
		return paths.Within(path, target) || paths.Within(target, path)
	})
}

// narrow gives each command of a script no more than it would have in a run of its own: the
// commands share the script's jail and what that may have, and each is kept to what its own bundle
// asks for of it. The proxy outside decides on the hosts; which command asks, and what it sees of
// the mounts, is said by the process that the commands run in.
func (sc *Script) narrow(eff policy.Effective) error {
	scopes := map[string]int{}
	for name, c := range sc.commands {
		needs := sc.needs[name]
		if needs == nil {
			continue
		}
		program := sc.programs[name]
		owner, _, _ := strings.Cut(program, "/")
		own, err := narrowed(eff, owner, needs)
		if err != nil {
			return problem.New(problem.Failed, "tool %s: %w", program, err)
		}
		layers := own.Layers()
		layer := layers[len(layers)-1]
		c.Scope = runners.NoFetch
		if len(own.Policy().Fetch.Allow) > 0 {
			if scopes[owner] == 0 {
				sc.Scopes = append(sc.Scopes, fetch.SetupLayer{Name: layer.Name,
					Source: layer.Source, Fetch: layer.Policy.Fetch})
				scopes[owner] = len(sc.Scopes)
			}
			c.Scope = scopes[owner]
		}
		for _, m := range eff.Policy().Mounts {
			if m.Access != policy.Tmpfs && !needed(needs, m.Target) {
				c.Unseen = append(c.Unseen, m.Target)
			}
		}
		sc.commands[name] = c
	}
	return nil
}

// kept says for a plan what a command of a pulled bundle is kept to; nil: to nothing but the
// script's policy.
func (sc *Script) kept(name string) *jail.ScriptNeeds {
	needs := sc.needs[name]
	if needs == nil {
		return nil
	}
	return &jail.ScriptNeeds{Hosts: append([]string{}, needs.Hosts...), Mounts: append([]string{},
		needs.Mounts...)}
}
