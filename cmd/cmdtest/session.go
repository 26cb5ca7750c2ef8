package cmdtest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/supervisor/message"
)

// EngineOf returns the shared engine that the record of a run's start names, or "".
func (h *Host) EngineOf(id string) string {
	h.T.Helper()
	o := h.Jail("audit", "query", "--json", "--run", id, "--type", "run.started")
	var r struct{ Start, Engine string }
	if err := json.Unmarshal([]byte(strings.SplitN(o.Out, "\n", 2)[0]), &r); err != nil {
		h.T.Fatalf("%s: %v: %+v", id, err, o)
	}
	if (r.Engine != "") != (r.Start == "shared") {
		h.T.Errorf("run %s: start %q, engine %q", id, r.Start, r.Engine)
	}
	return r.Engine
}

// Session opens a session and returns its id.
func (h *Host) Session(flags ...string) string {
	h.T.Helper()
	o := h.Jail(append([]string{"session", "start"}, flags...)...)
	id := strings.TrimSpace(o.Out)
	if o.Code != 0 || id == "" {
		h.T.Fatalf("session start %q: %+v", flags, o)
	}
	return id
}

// Exec executes a tool in a session.
func (h *Host) Exec(id string, args ...string) Outcome {
	h.T.Helper()
	return h.Jail(append([]string{"session", "exec", id}, args...)...)
}

// ObjectOf runs a command with --json.
func (h *Host) ObjectOf(args ...string) message.Result {
	h.T.Helper()
	o := h.Jail(args...)
	var r message.Result
	if err := json.Unmarshal([]byte(o.Out), &r); err != nil {
		h.T.Fatalf("%q: %v: %+v", args, err, o)
	}
	return r
}

// StopSession ends it and wants the given number of changed files.
func (h *Host) StopSession(id string, changed int64, flags ...string) message.Result {
	h.T.Helper()
	r := h.ObjectOf(append([]string{"session", "stop", "--json", id}, flags...)...)
	if c := r.Changes; r.Error != nil || r.ExitCode != 0 ||
		c.Added+c.Modified+c.Deleted != changed {
		h.T.Errorf("stop of the session: %+v, %v", r, r.Error)
	}
	return r
}

// Sessions returns those that live.
func (h *Host) Sessions() (all []message.SessionInfo) {
	h.T.Helper()
	o := h.Jail("session", "list", "--json")
	if err := json.Unmarshal([]byte(o.Out), &all); err != nil || o.Code != 0 {
		h.T.Fatalf("session list: %v: %+v", err, o)
	}
	return all
}

// PlanOf reads the plan of a live run's jail.
func PlanOf(h *Host, id string) (p jail.Plan) {
	h.T.Helper()
	var j struct{ Plan jail.Plan }
	text, err := os.ReadFile(filepath.Join(h.State, "state", "runs", h.GlobalID(id), "jail.json"))
	if err == nil {
		err = json.Unmarshal(text, &j)
	}
	if err != nil {
		h.T.Fatal(err)
	}
	return j.Plan
}
