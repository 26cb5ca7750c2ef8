//go:build wasip1

package jailagent

import "encoding/json"

// A Gate is a session with the gatekeeper of that name: it reads at once, and what it wants to write
// waits for an approval. The manifest names the gatekeeper.
type Gate string

// Gatekeepers returns, as JSON, what the gatekeepers are that this agent may use.
func Gatekeepers() (all []json.RawMessage, err error) { return all, host("gatekeepers", nil, &all) }

// Describe reads what the gatekeeper reads and does, and its tables.
func (g Gate) Describe(into any) error {
	var all []json.RawMessage
	if err := host("gatekeepers", map[string]any{"gatekeeper": g}, &all); err != nil {
		return err
	}
	return json.Unmarshal(all[0], into)
}

// Read reads, such as rows of a table. args is an object.
func (g Gate) Read(method string, args, into any) error {
	return host("gateRead", map[string]any{"gatekeeper": g, "method": method, "args": args}, into)
}

// A Proposed is an action that waits for an approval.
type Proposed struct {
	ID, State     string
	Reversible    bool
	Before, After json.RawMessage
}

// Propose proposes an action. Its end comes as an event of the type approval, whose reply_to is the
// id. The same event that comes again proposes it once. words are for those who decide.
func (g Gate) Propose(action string, args any, words string) (p Proposed, err error) {
	return p, host("gatePropose", map[string]any{"gatekeeper": g, "action": action, "args": args,
		"words": words}, &p)
}
