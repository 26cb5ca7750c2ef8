package policy

import (
	"fmt"
	"maps"
	"strings"
)

// Request gathers what the flags of one run ask for. Its Policy starts from Top and only
// ever narrows: a limit larger than the profile's has no effect, a host that the profile
// does not grant is not granted. Flags that cannot be read are errors.
type Request struct {
	policy Policy
	hosts  []FetchRule
	given  map[string]string
}

// NewRequest returns a request that asks for nothing but the profile.
func NewRequest() *Request { return &Request{policy: Top(), given: map[string]string{}} }

// noRequests is the limit that leaves no requests.
const noRequests = "fetch.requests=0"

// Limit narrows one limit, from KEY=VALUE such as "memory=64MiB". The keys are those of
// [limits], and those of [fetch.limits] after "fetch.". fetch.requests=0 is NoFetch.
func (r *Request) Limit(text string) error {
	if text == noRequests {
		r.NoFetch()
		return nil
	}
	name, value, ok := strings.Cut(text, "=")
	if !ok {
		return fmt.Errorf("limit %q is no KEY=VALUE, such as memory=64MiB", text)
	}
	if fetch, ok := strings.CutPrefix(name, "fetch."); ok {
		narrow := TopFetchLimits()
		if err := narrow.Set(fetch, value); err != nil {
			return fmt.Errorf("fetch %w", err)
		}
		r.policy.Fetch.Limits = r.policy.Fetch.Limits.Meet(narrow)
		return nil
	}
	narrow := TopLimits()
	if err := narrow.Set(name, value); err != nil {
		return err
	}
	r.policy.Limits = r.policy.Limits.Meet(narrow)
	return nil
}

// Fetch narrows the hosts to those named so far: to one host pattern more, at the ports
// and by the methods that the profile grants.
func (r *Request) Fetch(host string) error {
	h, err := ParseHost(host)
	if err != nil {
		return err
	}
	rule := TopFetchRule()
	rule.Host = h
	r.hosts = append(r.hosts, rule)
	return nil
}

// NoFetch narrows the hosts to none, whatever Fetch named.
func (r *Request) NoFetch() { r.policy.Fetch = Fetch{} }

// Workspace narrows the access to the workspace.
func (r *Request) Workspace(access WorkspaceAccess) {
	r.policy.Workspace = r.policy.Workspace.Meet(Workspace{Access: access,
		Commit: CommitAuto, Target: TargetSame})
}

// Outer narrows the layers around the jail to one, or to none.
func (r *Request) Outer(layer string) error {
	if err := CheckOuter(layer); err != nil {
		return err
	}
	r.policy.Outer = r.policy.Outer.Meet(OuterOf(layer))
	return nil
}

// Env gives a variable a value, from K=V. It is an input of the run, not part of the
// policy: whether the policy lets a caller give it is for Effective.Decide(EnvVar{K}),
// or for Env.Environ, to say.
func (r *Request) Env(text string) error {
	name, value, ok := strings.Cut(text, "=")
	if !ok {
		return fmt.Errorf("variable %q is no NAME=VALUE", text)
	}
	if err := CheckEnvName(name); err != nil {
		return err
	}
	if err := CheckEnvValue(value); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	r.given[name] = value
	return nil
}

// Given returns the variables that Env has gathered.
func (r *Request) Given() map[string]string { return maps.Clone(r.given) }

// Policy returns what the flags narrow to.
func (r *Request) Policy() Policy {
	p := r.policy.Normal()
	if len(r.hosts) > 0 {
		p.Fetch = p.Fetch.Meet(Fetch{Allow: r.hosts, Limits: TopFetchLimits(), Mode: FetchReport})
	}
	return p
}
