package agents

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/agents/store"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// A Command is a tool that an agent runs. It runs in its own jail under the agent's policy, limited
// to the tools in the agent's manifest.
type Command struct {
	// Launch describes the agent.
	Launch Launch
	// Argv is a command of a bundle and its arguments.
	Argv  []string
	Cwd   string
	Stdin string
	// Env are variables, each NAME=VALUE; Limits narrow the policy, each KEY=VALUE.
	Env, Limits []string
	// Conversation selects the shadow of the workspace. If empty, it is the agent's own.
	Conversation string
}

// command runs a tool and returns its result. If the start needs an approval, it returns an error;
// the agent is woken after the decision and calls again.
func (c *calls) command(ctx context.Context, _ agent.Call, p struct {
	Argv         []string          `json:"argv"`
	Cwd          string            `json:"cwd"`
	Env          map[string]string `json:"env"`
	Stdin        string            `json:"stdin"`
	Limits       []string          `json:"limits"`
	Conversation string            `json:"conversation"`
}) (any, error) {
	bad := func(format string, args ...any) error {
		return agent.Errorf(agent.ErrParams, "command: "+format, args...)
	}
	if len(p.Argv) == 0 || p.Argv[0] == "" {
		return nil, bad("argv has no tool")
	}
	if err := c.converses(p.Conversation, p.Conversation != ""); err != nil {
		return nil, err
	}
	run := Command{Launch: c.r.l, Argv: p.Argv, Cwd: p.Cwd, Stdin: p.Stdin, Limits: p.Limits,
		Conversation: p.Conversation}
	for _, name := range slices.Sorted(maps.Keys(p.Env)) {
		if !envName.MatchString(name) || strings.ContainsRune(p.Env[name], 0) {
			return nil, bad("env %.60q: want a name of letters, digits and _, and a text", name)
		}
		run.Env = append(run.Env, name+"="+p.Env[name])
	}
	select {
	case c.tools <- struct{}{}:
		defer func() { <-c.tools }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	// Check here, since jaild counts the actions of each run, and each tool may be a new run.
	if err := store.AsksOf(c.r.a.Store).Room(ctx, c.r.from.ID); err != nil {
		return nil, err
	}
	out, err := c.r.a.o.Jails.Command(ctx, run)
	refused, ok := errors.AsType[*problem.Error](err)
	if !ok || refused.Code != problem.ApprovalPending {
		return out, refusal(ctx, agent.MethodCommand, err)
	}
	if err := c.asked(refused.Approval); err != nil {
		return nil, err
	}
	return nil, agent.Errorf(agent.ErrPending, "command: action %s: %v; an event of the type %s "+
		"says what is decided", refused.Approval, err, agent.TypeApproval)
}

// toolUsers returns m, restricted to agents that have tools.
func toolUsers(m method) method {
	return func(c *calls, ctx context.Context, call agent.Call) (any, error) {
		if len(c.r.m.Capabilities.Tools) == 0 {
			return nil, agent.Errorf(agent.ErrNoMethod, "HOST has no method %s: write the tools that the "+
				"agent may run into [capabilities], as in tools = [\"core-utils/*\"]; facets have none",
				call.Method)
		}
		return m(c, ctx, call)
	}
}

// asked has the agent woken after the decision on an action that jaild carries out.
func (c *calls) asked(action string) error {
	err := store.AsksOf(c.r.a.Store).Tool(c.r.from.ID, action)
	if err == nil {
		nudge(c.r.a.proposals.asked)
	}
	return err
}

// refusal converts an error of jaild for the agent, nil to nil.
func refusal(ctx context.Context, method string, err error) error {
	refused, ok := errors.AsType[*problem.Error](err)
	code := agent.ErrFailed
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case ofHost(err):
		return err
	case !ok:
		code = agent.ErrBusy
	case refused.Code == problem.Usage:
		code = agent.ErrParams
	case refused.Code == problem.Refused, refused.Code == problem.NotFound:
		code = agent.ErrForbidden
	}
	return &agent.Error{Code: code, Message: method + ": " + err.Error()}
}
