package api

import (
	"context"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

const pathAgentRecords = "/v1/agents/records"

// Bounds of one request to record agent steps.
const (
	maxAgentRecords = 100
	maxAgentText    = 4 << 10 // bytes
	maxQuoted       = 100     // bytes of a caller's in a message
)

// AgentRecords are steps of the caller's agents to record.
type AgentRecords struct {
	Records []audit.AgentStep `json:"records"`
}

// AgentRecorded has the numbers of the first and the last new record.
type AgentRecorded struct {
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
}

// recordAgents records steps of the caller's agents.
func (srv *Server) recordAgents(q call, req AgentRecords) (any, error) {
	if n := len(req.Records); n < 1 || n > maxAgentRecords {
		return nil, problem.New(problem.Usage, "%d records of agents: want 1 to %d", n,
			maxAgentRecords)
	}
	entries := make([]audit.Entry, 0, len(req.Records))
	for _, e := range req.Records {
		if err := checkAgent(q.caller, e); err != nil {
			return nil, err
		}
		entries = append(entries, audit.Entry{Actor: q.caller.Actor(), Event: e})
	}
	first, last, err := srv.s.RecordAgents(entries)
	if err != nil {
		return nil, problem.New(problem.Failed, "audit log: %w", err)
	}
	return AgentRecorded{First: first, Last: last}, nil
}

// checkAgent returns an error if the agent is not the caller's, the step is unknown, or a text is
// too long.
func checkAgent(c caller.Caller, e audit.AgentStep) error {
	if !c.OwnsAgent(e.ID) {
		return problem.New(problem.Refused, "agent id %q is not one of yours: want agent:USER:NAME",
			runners.Cut(e.ID, maxQuoted))
	}
	if !slices.Contains(audit.AgentSteps(), e.Step) {
		return problem.New(problem.Usage, "step %q of an agent: there are %s", runners.Cut(e.Step, maxQuoted),
			strings.Join(audit.AgentSteps(), ", "))
	}
	for _, text := range []string{e.Instance, e.Digest, e.Reason, e.Role, e.Error} {
		if len(text) > maxAgentText {
			return problem.New(problem.Usage, "a text of a record of an agent has %d bytes: at most %d",
				len(text), maxAgentText)
		}
	}
	return nil
}

// RecordSteps records steps of the caller's agents, all of them or none, and returns the numbers of
// the records.
func RecordSteps(ctx context.Context, c *Client, steps ...audit.AgentStep) (r AgentRecorded,
	err error) {
	return r, c.link.do(ctx, "POST", pathAgentRecords, AgentRecords{steps}, &r)
}
