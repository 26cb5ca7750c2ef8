package policy

import (
	"slices"
)

// The bindings. Each is a set of calls by which an agent reaches something outside of it. The
// policy only grants them; other packages implement them.
const (
	BindingAI      = "ai"
	BindingHost    = "host"
	BindingPubSub  = "pubsub"
	BindingStorage = "storage"
)

var bindings = []Named{
	{BindingAI, "ask language models, by the roles of the agent's manifest"},
	{BindingHost, "wait for events, commit them, log, and set alarms"},
	{BindingPubSub, "send messages to the channels of the agent's manifest, and call the tools there"},
	{BindingStorage, "use a database of the agent's own"},
}

// AllBindings returns all bindings, sorted by name.
func AllBindings() []Named { return slices.Clone(bindings) }

// Agents is what a run may do as an agent. Without a binding it cannot be one.
type Agents struct {
	// Bindings are the granted bindings, a set.
	Bindings []string `json:"bindings"`
}

// TopAgents grants every binding.
func TopAgents() Agents { return Agents{NamesOf(bindings)} }

// Meet grants the bindings in both.
func (a Agents) Meet(b Agents) Agents {
	return Agents{meetStrings(a.Bindings, b.Bindings)}.Normal()
}

// LessEq reports whether b has every binding of a.
func (a Agents) LessEq(b Agents) bool {
	return subsetStrings(a.Normal().Bindings, b.Normal().Bindings)
}

// Normal sorts the bindings, and drops names that are no binding.
func (a Agents) Normal() Agents {
	return Agents{unionStrings(meetStrings(a.Bindings, TopAgents().Bindings), nil)}
}

// Has reports whether a binding is granted.
func (a Agents) Has(binding string) bool { return slices.Contains(a.Normal().Bindings, binding) }

func (a Agents) String() string { return setString(a.Normal().Bindings) }

// CheckBinding returns an error that names the bindings there are, if name is none.
func CheckBinding(name string) error { return checkKnown("binding", TopAgents().Bindings, name) }
