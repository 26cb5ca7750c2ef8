package jailed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/agents"
	"github.com/jail-sandbox/jail/supervisor/client"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/toolsession"
)

// toolLimits are high limits, so that the policy of the agent decides.
const toolLimits = `wall = "168h"
cpu_time = "168h"
open_files = 65536
output = "1TiB"
workspace = "1TiB"
workspace_files = 10000000
file_size = "1TiB"
`

// maxCommandOutput bounds each of a tool's returned outputs, in bytes.
const maxCommandOutput = 64 << 10

// Command runs a tool of an agent. With a workspace, the tool is an invocation of a session over a
// shadow, which sleeps when the agent does; the owner reviews its changes as those of any session.
// Without a workspace, it is a run that leaves nothing.
func (j *Jaild) Command(ctx context.Context, of agents.Command) (toolsession.Output, error) {
	var o toolsession.Outcome
	err := j.ask(ctx, func(c *client.Client) error {
		req, err := toolRequest(of.Launch)
		if err == nil && of.Conversation != "" {
			err = converse(ctx, c, &req, of.Launch.Instance, of.Conversation)
		}
		if err == nil {
			o, err = runTool(ctx, c, req, of)
		}
		if err == nil && o.Error != nil {
			err = o.Error
		}
		return err
	})
	return o.Output(), err
}

func runTool(ctx context.Context, c *client.Client, req message.SessionRequest,
	of agents.Command) (o toolsession.Outcome, err error) {
	call := toolsession.Call{Tool: of.Argv[0], Args: of.Argv[1:], In: []byte(of.Stdin), Cwd: of.Cwd,
		Env: of.Env, Limits: of.Limits, Most: maxCommandOutput}
	if req.Workspace != "" {
		s, err := toolsession.Open(ctx, c.Client, req)
		if err != nil {
			return o, err
		}
		return s.Run(ctx, call)
	}
	req.Tool, req.Args, req.Env, req.Cwd = call.Tool, runners.Texts(call.Args), call.Env, call.Cwd
	req.Limits = append(req.Limits, call.Limits...)
	o.Out.Most, o.ErrOut.Most = call.Most, call.Most
	o.Result, err = c.Run(ctx, req.Request, strings.NewReader(of.Stdin), &o.Out, &o.ErrOut)
	return o, err
}

// toolRequest returns the session request for an agent's tools. It is the same for all tools of the
// agent, so that they share a session and an approval is for the same policy.
func toolRequest(l agents.Launch) (req message.SessionRequest, err error) {
	m := l.Manifest
	if req.Request, err = bare(l, l.Dir); err != nil {
		return req, err
	}
	access := `"none"`
	if dir := m.Tools.Workspace; dir != "" {
		// The agent's policy decides about commits.
		access = "\"shadow\"\ncommit = \"auto\""
		req.ID, req.Dir, req.Workspace, req.NoWorkspace = l.Instance, dir, dir, false
		req.Fate, req.IdleMS = message.FateKeep, max(m.Wake.Idle.Milliseconds(), 1000)
	}
	// A JSON list of strings is also valid TOML.
	allow, err := json.Marshal(m.Capabilities.Tools)
	req.Narrow = append(req.Narrow, message.Narrow{Name: "tools of " + l.AgentID,
		Policy: fmt.Sprintf(narrowPolicy, access, allow, "") + toolLimits})
	return req, err
}

// EndTools ends the sessions of an instance's tools. Their changes then wait for a review.
func (j *Jaild) EndTools(ctx context.Context, instance string) error {
	return j.ask(ctx, func(c *client.Client) error {
		all, err := conversations(ctx, c, instance)
		for _, id := range append(all, instance) {
			_, stopped := c.StopSession(ctx, id, message.StopRequest{})
			err = errors.Join(err, unlessMissing(stopped))
		}
		return err
	})
}

func unlessMissing(err error) error {
	if e, ok := errors.AsType[*problem.Error](err); ok && e.Code == problem.NotFound {
		return nil
	}
	return err
}
