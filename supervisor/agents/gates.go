package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/agents/store"
	"github.com/jail-sandbox/jail/supervisor/approvals"
	"github.com/jail-sandbox/jail/supervisor/gatekeepers"
)

// A gateCall is the parameters of the gatekeeper methods of HOST.
type gateCall struct {
	Gatekeeper string          `json:"gatekeeper"`
	Method     string          `json:"method"`
	Action     string          `json:"action"`
	Args       json.RawMessage `json:"args"`
	Words      string          `json:"words"`
}

// gate answers an agent's call of a gatekeeper.
func (c *calls) gate(ctx context.Context, call agent.Call, p gateCall) (any, error) {
	desk := c.r.a.o.Gates
	if desk == nil || len(c.r.m.Capabilities.Gatekeepers) == 0 {
		return nil, agent.Errorf(agent.ErrNoBinding, "there are no gatekeepers: name them in "+
			"gatekeepers of [capabilities], and in gatekeepers of a facet")
	}
	who := gatekeepers.Caller{Agent: c.r.from.Agent,
		ID: c.r.a.Store.AgentID(store.PathOf(c.r.from)), Instance: c.r.from.ID,
		Allowed: c.r.m.Capabilities.Gatekeepers}
	if len(p.Args) == 0 {
		p.Args = json.RawMessage("{}")
	}
	switch call.Method {
	case "gatekeepers":
		return desk.Describe(ctx, who, p.Gatekeeper)
	case "gateRead":
		return desk.Read(ctx, who, p.Gatekeeper, p.Method, p.Args)
	}
	if call.Key == "" {
		return nil, agent.Errorf(agent.ErrNoEvent, "there is no event: an action belongs to one, "+
			"so that the same event proposes it once")
	}
	who.Run = c.r.a.o.RunOf(c.r.from.Name)
	return desk.Propose(ctx, who, gatekeepers.Proposal{Gatekeeper: p.Gatekeeper, Action: p.Action,
		Args: p.Args, Words: p.Words, Ref: fmt.Sprintf("%d %s", c.r.from.ID, call.Key)})
}

// gates tells agents the outcome of their actions at gatekeepers.
type gates struct{ a *Agents }

// tell sends an instance the state of its action in an approval event.
func (g gates) tell(e gatekeepers.Entry, of approvals.Action) error {
	decision := Approved
	switch of.State {
	case approvals.Rejected, approvals.Expired, approvals.Withdrawn:
		decision = string(approvals.Rejected)
	}
	data, err := json.Marshal(struct {
		ID         string `json:"id"`
		Decision   string `json:"decision"`
		State      string `json:"state"`
		Gatekeeper string `json:"gatekeeper"`
		Action     string `json:"action"`
		Outcome    string `json:"outcome,omitempty"`
		Error      string `json:"error,omitempty"`
	}{of.ID, decision, string(of.State), of.Gate.Gatekeeper, of.Gate.Action, of.Outcome, of.Error})
	if err != nil {
		return err
	}
	_, err = g.a.Send(e.Instance, agent.Event{ID: of.ID + "/" + string(of.State), Source: "user",
		Type: agent.TypeApproval, ReplyTo: of.ID, Data: data})
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrDeleting) {
		// The agent is deleted.
		return nil
	}
	return err
}

// AskGatekeeper calls a method of a gatekeeper agent for its owner and returns the result. Calls
// with the same key are done once.
func AskGatekeeper(ctx context.Context, a *Agents, name, key, method string,
	args any) (json.RawMessage, error) {
	all, err := a.Of(ctx, name)
	if err != nil {
		return nil, err
	}
	for _, i := range all {
		if i.Parent != 0 {
			continue
		}
		m, _, err := a.manifest(name, i.Channel)
		if err != nil {
			return nil, err
		}
		if !m.Capabilities.Gatekeeper {
			return nil, fmt.Errorf("agent %q is no gatekeeper: write gatekeeper = true into "+
				"[capabilities] of its manifest", name)
		}
		return asked(ctx, a, i, agent.Event{ID: "gate " + key, Source: "user", Channel: i.Channel},
			map[string]any{"method": method, "args": args})
	}
	return nil, fmt.Errorf("there is no agent %q: jail agent list names those that there are", name)
}

// GatesOf returns the gatekeepers of the agents' owner, or nil.
func GatesOf(a *Agents) *gatekeepers.Desk { return a.o.Gates }
