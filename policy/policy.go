package policy

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
)

// Policy is what a jail may do. The zero value grants nothing.
//
// A Policy is a value: methods neither change it nor return memory that they share with it.
type Policy struct {
	Workspace Workspace `json:"workspace"`
	Mounts    Mounts    `json:"mounts"`
	Limits    Limits    `json:"limits"`
	Tools     Tools     `json:"tools"`
	Fetch     Fetch     `json:"fetch"`
	Env       Env       `json:"env"`
	Syscalls  Syscalls  `json:"syscalls"`
	Audit     Audit     `json:"audit"`
	Session   Session   `json:"session,omitzero"`
	Approve   Approve   `json:"approve,omitempty"`
	Agent     Agents    `json:"agent,omitzero"`
	Outer     Outer     `json:"outer,omitzero"`
}

// Top grants everything.
func Top() Policy {
	return Policy{
		Workspace: topWorkspace(),
		Mounts:    TopMounts(),
		Limits:    TopLimits(),
		Tools:     TopTools(),
		Fetch:     TopFetch(),
		Env:       TopEnv(),
		Syscalls:  TopSyscalls(),
		Audit:     TopAudit(),
		Session:   TopSession(),
		Agent:     TopAgents(),
		Outer:     TopOuter(),
	}
}

// Meet returns the policy that grants what both grant.
func (p Policy) Meet(q Policy) Policy {
	return Policy{
		Workspace: p.Workspace.Meet(q.Workspace),
		Mounts:    p.Mounts.Meet(q.Mounts),
		Limits:    p.Limits.Meet(q.Limits),
		Tools:     p.Tools.Meet(q.Tools),
		Fetch:     p.Fetch.Meet(q.Fetch),
		Env:       p.Env.Meet(q.Env),
		Syscalls:  p.Syscalls.Meet(q.Syscalls),
		Audit:     p.Audit.Meet(q.Audit),
		Session:   p.Session.Meet(q.Session),
		Approve:   p.Approve.Meet(q.Approve),
		Agent:     p.Agent.Meet(q.Agent),
		Outer:     p.Outer.Meet(q.Outer),
	}.Normal()
}

// LessEq reports whether q grants all that p grants. It agrees with Meet: p lies below q
// exactly where their meet is p.
func (p Policy) LessEq(q Policy) bool {
	return p.Workspace.LessEq(q.Workspace) && p.Mounts.LessEq(q.Mounts) &&
		p.Limits.LessEq(q.Limits) && p.Tools.LessEq(q.Tools) && p.Fetch.LessEq(q.Fetch) &&
		p.Env.LessEq(q.Env) && p.Syscalls.LessEq(q.Syscalls) && p.Audit.LessEq(q.Audit) &&
		p.Session.LessEq(q.Session) && p.Approve.LessEq(q.Approve.of(p)) &&
		p.Agent.LessEq(q.Agent) && p.Outer.of(p).LessEq(q.Outer.of(p))
}

// Normal returns the normal form: it is the same for all policies that grant the same.
func (p Policy) Normal() Policy {
	n := Policy{
		Workspace: p.Workspace.Normal(),
		Mounts:    p.Mounts.Normal(),
		Limits:    p.Limits.Normal(),
		Tools:     p.Tools.Normal(),
		Fetch:     p.Fetch.Normal(),
		Env:       p.Env.Normal(),
		Syscalls:  p.Syscalls.Normal(),
		Audit:     p.Audit.Normal(),
		Session:   p.Session.Normal(),
		Agent:     p.Agent.Normal(),
	}
	n.Approve, n.Outer = p.Approve.of(n).Normal(), p.Outer.of(n)
	return n
}

// String returns one line for each part. Approval rules, agent bindings and outer layers have a
// line only if there are any.
func (p Policy) String() string {
	text := fmt.Sprintf("workspace: %s\nmounts: %s\nlimits: %s\ntools: %s\nfetch: %s\n"+
		"env: %s\nsyscalls: %s\naudit: %s\nsession: %s\n",
		p.Workspace, p.Mounts, p.Limits, p.Tools, p.Fetch, p.Env, p.Syscalls, p.Audit, p.Session)
	if len(p.Approve.Normal()) > 0 {
		text += "approve: " + p.Approve.String() + "\n"
	}
	if len(p.Agent.Normal().Bindings) > 0 {
		text += "agent: " + p.Agent.String() + "\n"
	}
	if words := p.Outer.Words(); !slices.Equal(words, []string{OuterNone}) {
		text += "outer: " + p.Outer.String() + "\n"
	}
	return text
}

// Digest returns "sha256:" and the hex SHA-256 of the JSON of the normal form, so
// policies that grant the same have the same digest however they were written.
func (p Policy) Digest() string {
	text, err := json.Marshal(p.Normal())
	if err != nil {
		// Every field is a string, a number or marshals by a method that does not fail.
		panic("policy: bug: " + err.Error())
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(text))
}
