package gatekeepers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
	"github.com/jail-sandbox/jail/supervisor/api"
)

// An Asker calls a method of an agent that is a gatekeeper, and returns the JSON that the agent
// returns. It is idempotent: a second call with the same key returns the result of the first.
type Asker func(ctx context.Context, agent, key, method string, args any) (json.RawMessage, error)

// Timeouts of calls to an agent. Calls that carry out an action have no timeout here: only the
// context of the desk bounds them, because the agent may still finish the action.
const (
	maxAsk    = time.Minute
	maxSettle = 10 * time.Second
)

// byAgent is a Gatekeeper implemented by an agent of the same owner. The agent handles the methods
// describe, read, propose, applyAction, rejectAction and revertAction.
type byAgent struct {
	Agent string
	Ask   Asker
}

// ask calls a method of the agent and decodes the result into to.
func (k *byAgent) ask(ctx context.Context, key, method string, args, to any) error {
	text, err := k.Ask(ctx, k.Agent, key, method, args)
	if err != nil {
		return err
	}
	if len(text) > maxAnswer {
		return tooLarge("the answer of agent %q has %d bytes, more than %d", k.Agent, len(text),
			maxAnswer)
	}
	if err := json.Unmarshal(text, to); err != nil {
		return fmt.Errorf("agent %q answers %s with something else than it should: %w", k.Agent, method,
			err)
	}
	return nil
}

func (k *byAgent) Describe(ctx context.Context) (agentapi.Gatekeeper, error) {
	d := agentapi.Gatekeeper{}
	err := k.askSoon(ctx, api.NewKey(), "describe", struct{}{}, &d)
	if err != nil {
		d = agentapi.Gatekeeper{}
	}
	// Clients read lists.
	d.Reads = append([]agentapi.GateMethod{}, d.Reads...)
	d.Actions = append([]agentapi.GateMethod{}, d.Actions...)
	d.Kind, d.Resource, d.Problem = "agent", k.Agent, ""
	return d, err
}

func (k *byAgent) Read(ctx context.Context, method string, args json.RawMessage) (any, error) {
	var out json.RawMessage
	return out, k.askSoon(ctx, api.NewKey(), "read", map[string]any{"method": method, "args": args}, &out)
}

// askSoon is like ask, with a timeout of maxAsk. It is for methods that change nothing.
func (k *byAgent) askSoon(ctx context.Context, key, method string, args, to any) error {
	ctx, cancel := context.WithTimeout(ctx, maxAsk)
	defer cancel()
	return k.ask(ctx, key, method, args, to)
}

// kept is the JSON of an action in calls to a gatekeeper agent.
type kept struct {
	ID       string          `json:"id,omitempty"`
	Action   string          `json:"action"`
	Args     json.RawMessage `json:"args"`
	Resource string          `json:"resource,omitempty"`
	Before   json.RawMessage `json:"before,omitempty"`
	After    json.RawMessage `json:"after,omitempty"`
	Outcome  string          `json:"outcome,omitempty"`
}

func (k *byAgent) Propose(ctx context.Context, action string, args json.RawMessage) (Change, error) {
	var p struct {
		Resource      string
		Reversible    bool
		Before, After json.RawMessage
		Error         string
	}
	err := k.askSoon(ctx, api.NewKey(), "propose", kept{Action: action, Args: args}, &p)
	if err == nil && p.Error != "" {
		err = bad("%.300s", p.Error)
	}
	return Change{Action: action, Resource: k.Agent + "#" + p.Resource, Reversible: p.Reversible, Args: args,
		Before: p.Before, After: p.After}, err
}

// A result is an agent's result for applyAction and revertAction. If the agent did nothing, Changed
// says how the resource has changed since, or Error says what failed.
type result struct {
	Outcome        string
	Changed, Error string
}

func (r result) err() error {
	switch {
	case r.Changed != "":
		return fmt.Errorf("%.300s: %w", r.Changed, errChanged)
	case r.Error != "":
		return errors.New(cut(r.Error))
	}
	return nil
}

func cut(text string) string { return text[:min(len(text), maxSaid)] }

func (k *byAgent) told(id, outcome string, c Change) kept {
	return kept{ID: id, Action: c.Action, Args: c.Args, Resource: c.Resource[min(len(k.Agent)+1,
		len(c.Resource)):], Before: c.Before, After: c.After, Outcome: outcome}
}

// carry calls applyAction or revertAction and returns the outcome. If ctx ends first, the error
// wraps api.ErrUnsettled: the agent may still carry out the action.
func (k *byAgent) carry(ctx context.Context, key, method string, of kept) (string, error) {
	var r result
	err := k.ask(ctx, key, method, of, &r)
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("agent %q has not answered: %w", k.Agent, api.ErrUnsettled)
	case err == nil:
		err = r.err()
	}
	return cut(r.Outcome), err
}

func (k *byAgent) Apply(ctx context.Context, id string, c Change) (string, error) {
	return k.carry(ctx, id+"/apply", "applyAction", k.told(id, "", c))
}

func (k *byAgent) Revert(ctx context.Context, id, outcome string, c Change) error {
	// Each attempt has a new key, so that a reversal that failed can be tried again.
	_, err := k.carry(ctx, id+"/revert/"+api.NewKey(), "revertAction", k.told(id, outcome, c))
	return err
}

// Reject tells the agent that an action will not be carried out.
func (k *byAgent) Reject(ctx context.Context, id string, c Change) error {
	var r json.RawMessage
	return k.askSoon(ctx, id+"/reject", "rejectAction", k.told(id, "", c), &r)
}

// Settle repeats the call of Apply with its key, and so gets the result that the killed process
// missed. It returns an error until the agent has answered. For a reversal known is false, as its
// key is lost: a person has to settle it.
func (k *byAgent) Settle(ctx context.Context, id string, c Change, reverting bool) (Settled, bool,
	error) {
	if reverting {
		return Settled{}, false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, maxSettle)
	defer cancel()
	outcome, err := k.Apply(ctx, id, c)
	if errors.Is(err, api.ErrUnsettled) {
		return Settled{}, false, err
	}
	return Settled{Done: err == nil, Outcome: outcome}, true, nil
}
