package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/agents/store"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// A Command is a tool that an agent runs: in a jail of its own, under the policy of the agent and
// with no more than the tools of its manifest.
type Command struct {
	// Launch is that of the agent.
	Launch Launch
	// Argv is a command of a bundle, and its arguments.
	Argv  []string
	Cwd   string
	Stdin string
	// Env are variables, each NAME=VALUE; Limits narrow the policy, each KEY=VALUE.
	Env, Limits []string
}

// command runs a tool, and returns how it ended. Where its start needs an approval, it does not
// start: the agent is woken when somebody has decided, and calls again.
func (c *calls) command(ctx context.Context, params json.RawMessage) (any, error) {
	m := c.r.m
	if len(m.Capabilities.Tools) == 0 {
		return nil, &agent.Error{Code: agent.ErrNoMethod, Message: "HOST has no method command: " +
			"write the tools that the agent may run into [capabilities], as in tools = " +
			`["core-utils/*"]; facets have none`}
	}
	var p struct {
		Argv   []string          `json:"argv"`
		Cwd    string            `json:"cwd"`
		Env    map[string]string `json:"env"`
		Stdin  string            `json:"stdin"`
		Limits []string          `json:"limits"`
	}
	if err := strict(params, &p); err != nil {
		return nil, err
	}
	bad := func(format string, args ...any) error {
		return &agent.Error{Code: agent.ErrParams, Message: "command: " + fmt.Sprintf(format, args...)}
	}
	if len(p.Argv) == 0 || p.Argv[0] == "" {
		return nil, bad("argv has no tool")
	}
	run := Command{Launch: c.r.l, Argv: p.Argv, Cwd: p.Cwd, Stdin: p.Stdin, Limits: p.Limits}
	for _, name := range slices.Sorted(maps.Keys(p.Env)) {
		if !envName.MatchString(name) || strings.ContainsRune(p.Env[name], 0) {
			return nil, bad("env %.60q: want a name of letters, digits and _, and a text", name)
		}
		run.Env = append(run.Env, name+"="+p.Env[name])
	}
	// jaild counts the actions of each run, and each tool may be a run of its own.
	if err := store.AsksOf(c.r.a.Store).Room(ctx, c.r.from.ID); err != nil {
		return nil, err
	}
	out, err := c.r.a.o.Jails.Command(ctx, run)
	refused, ok := errors.AsType[*problem.Error](err)
	switch {
	case err == nil:
		return out, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case !ok || errors.Is(err, ErrNoJail):
		return nil, &agent.Error{Code: agent.ErrBusy, Message: "command: " + err.Error()}
	case refused.Code == problem.ApprovalPending:
		if err := store.AsksOf(c.r.a.Store).Tool(c.r.from.ID, refused.Approval); err != nil {
			return nil, err
		}
		c.r.a.proposals.look()
		return nil, &agent.Error{Code: agent.ErrPending, Message: fmt.Sprintf("command: action %s: "+
			"%v; an event of the type %s says what is decided", refused.Approval, err,
			agent.TypeApproval)}
	case refused.Code == problem.Usage:
		return nil, bad("%v", err)
	case refused.Code == problem.Refused, refused.Code == problem.NotFound:
		return nil, &agent.Error{Code: agent.ErrForbidden, Message: "command: " + err.Error()}
	}
	return nil, &agent.Error{Code: agent.ErrFailed, Message: "command: " + err.Error()}
}
