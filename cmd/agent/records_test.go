package agent_test

import (
	"errors"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// TestRecordAgents: steps of an agent are on record with the caller that the kernel names; those of
// another user's agent, and unknown ones, are refused, and then none of the request is on record.
func TestRecordAgents(t *testing.T) {
	h := cmdtest.New(t)
	d := h.Daemon()
	defer d.Stop()
	c, err := api.Dial(t.Context(), h.State+"/jail.sock")
	if err != nil {
		t.Fatal(err)
	}
	step := audit.AgentStep{ID: "agent:root:triage", Instance: "agent-triage-team",
		Step: audit.AgentWoken, Reason: "alarm"}
	recorded, err := api.RecordSteps(t.Context(), c, step, step)
	if err != nil || recorded.Last != recorded.First+1 {
		t.Fatalf("%+v, %v", recorded, err)
	}
	for name, bad := range map[string]audit.AgentStep{
		"another user's": {ID: "agent:nobody:triage", Step: audit.AgentWoken},
		"no agent":       {ID: "triage", Step: audit.AgentWoken},
		"no step":        {ID: "agent:root:triage", Step: "danced"},
	} {
		e := (*problem.Error)(nil)
		if _, err := api.RecordSteps(t.Context(), c, step, bad); !errors.As(err, &e) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var found []audit.Record
	for r, err := range audit.Scan(h.State+"/audit", audit.Filter{Types: []audit.Type{
		audit.TypeAgent}}) {
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, r)
	}
	if len(found) != 2 || found[0].Actor.UID != 0 || found[0].Actor.PID == 0 {
		t.Errorf("records %+v", found)
	}
}
