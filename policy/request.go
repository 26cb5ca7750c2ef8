package policy

import (
	"fmt"
	"maps"
	"strings"
)

// Request collects what the flags of one run ask for. Its Policy starts from Top and only narrows:
// a limit above the profile's has no effect, and a host that the profile does not grant stays
// refused. Flags that cannot be parsed are errors.
type Request struct {
	policy Policy
	hosts  []FetchRule
	given  map[string]string
}

// NewRequest returns a request without flags, which narrows nothing.
func NewRequest() *Request { return &Request{policy: Top(), given: map[string]string{}} }

// noRequests is the value of --limit that allows no requests.
const noRequests = "fetch.requests=0"

// Limit narrows one limit, from KEY=VALUE such as "memory=64MiB". Keys of [fetch.limits] begin with
// "fetch.". fetch.requests=0 calls NoFetch.
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

// Fetch narrows the hosts to the patterns given so far, host included, with the ports and methods
// that the profile grants.
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

// NoFetch narrows the hosts to none, regardless of Fetch.
func (r *Request) NoFetch() { r.policy.Fetch = Fetch{} }

// Workspace narrows the access to the workspace.
func (r *Request) Workspace(access WorkspaceAccess) {
	r.policy.Workspace = r.policy.Workspace.Meet(Workspace{Access: access,
		Commit: CommitAuto, Target: TargetSame})
}

// Outer narrows the layers around the jail to one, or with OuterNone to none.
func (r *Request) Outer(layer string) error {
	if err := CheckOuter(layer); err != nil {
		return err
	}
	r.policy.Outer = r.policy.Outer.Meet(OuterOf(layer))
	return nil
}

// Env sets a variable, from K=V. It is an input of the run and not part of the policy;
// Effective.Decide(EnvVar{K}) or Env.Environ tell whether the policy allows it.
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

// Given returns the variables that Env has set.
func (r *Request) Given() map[string]string { return maps.Clone(r.given) }

// Policy returns the policy that the flags narrow to.
func (r *Request) Policy() Policy {
	p := r.policy.Normal()
	if len(r.hosts) > 0 {
		p.Fetch = p.Fetch.Meet(Fetch{Allow: r.hosts, Limits: TopFetchLimits(), Mode: FetchReport})
	}
	return p
}
