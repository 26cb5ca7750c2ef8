//go:build wasip1

package jailagent

import "encoding/json"

// A Gate is the name of a gatekeeper that the manifest names. Its reads are answered at once, its
// actions wait for an approval.
type Gate string

// Gatekeepers returns the descriptions of the gatekeepers that this agent may use, as JSON.
func Gatekeepers() (all []json.RawMessage, err error) { return all, host("gatekeepers", nil, &all) }

// Describe decodes the gatekeeper's description into into: its reads, actions and tables.
func (g Gate) Describe(into any) error {
	var all []json.RawMessage
	if err := host("gatekeepers", map[string]any{"gatekeeper": g}, &all); err != nil {
		return err
	}
	return json.Unmarshal(all[0], into)
}

// Read calls a read, such as rows of a table, and decodes its result into into. args is an object.
func (g Gate) Read(method string, args, into any) error {
	return host("gateRead", map[string]any{"gatekeeper": g, "method": method, "args": args}, into)
}

// A Proposed is an action that waits for an approval.
type Proposed struct {
	ID, State     string
	Reversible    bool
	Before, After json.RawMessage
}

// Propose proposes an action. The outcome comes as an event of the type approval whose reply_to is
// the id. A replay of the current event does not propose it again. words are for those who decide.
func (g Gate) Propose(action string, args any, words string) (p Proposed, err error) {
	return p, host("gatePropose", map[string]any{"gatekeeper": g, "action": action, "args": args,
		"words": words}, &p)
}
