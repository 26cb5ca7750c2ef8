package agent_test

import (
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/message"
)

// TestFaultyGuests: of an event that the guest does not commit, whatever becomes of the guest,
// nothing is left, and the event can come again.
func TestFaultyGuests(t *testing.T) {
	h := cmdtest.NewPolicyHost(t, map[string]string{"agent": profile})
	dir := state(t, h, root)
	req := request(t, root, dir)
	r, _ := wake(t, h, root, req)
	if _, failed := r.event(1, sql("exec", "CREATE TABLE t (a)")); failed != nil {
		t.Fatalf("%+v", failed)
	}
	r.sleep()
	for do, why := range map[string]string{
		"crash":  "the guest has ended with code 2",
		"exit":   "the guest has ended with code 7",
		"forget": "without a checkpoint",
		"eat":    "the guest has ended with code 2",
		"loop":   "has not ended the event within",
	} {
		t.Run(do, func(t *testing.T) {
			req := req
			if do == "loop" {
				a := *req.Agent
				a.DeadlineMS = 2000
				req.Agent = &a
			}
			r, ready := wake(t, h, root, req)
			if ready.Committed != 1 {
				t.Errorf("committed %d", ready.Committed)
			}
			r.send(2, do, sql("exec", "INSERT INTO t VALUES (1)"), sql("query", "SELECT * FROM t"))
			rep := r.report()
			if rep == nil || rep.Failed == nil || rep.Failed.Seq != 2 ||
				!strings.Contains(rep.Failed.Message, why) {
				t.Errorf("%+v: %s%s", rep, r.end(), r.output())
			}
			// No later event overtakes the one that has failed.
			r.send(3, "", sql("exec", "INSERT INTO t VALUES (3)"))
			for rep = r.report(); rep != nil; rep = r.report() {
				if rep.Done != nil {
					t.Errorf("an event after the one that has failed: %+v", rep.Done)
				}
			}
			r.end()
		})
	}
	r, _ = wake(t, h, root, req)
	answers, failed := r.event(2, sql("get", "SELECT count(*) AS n FROM t"))
	if failed != nil || string(answers[0].Result) != `{"n":0}` {
		t.Errorf("%+v, %+v", answers, failed)
	}
	r.sleep()
}

// TestNotGranted: a binding that the manifest does not ask for, or the policy does not grant, is not
// there: a module that imports it is refused by name before anything of it runs, and so is an agent
// without HOST.
func TestNotGranted(t *testing.T) {
	under := func(old, text string) func(*message.Request) {
		return func(r *message.Request) {
			r.Profile, r.PolicyName, r.Policy = "", "other", strings.Replace(profile, old, text, 1)
		}
	}
	h := cmdtest.NewPolicyHost(t, map[string]string{"agent": profile})
	req := request(t, root, state(t, h, root))
	ask := func(change func(*message.Request)) message.Result {
		t.Helper()
		r, a := req, *req.Agent
		r.Agent = &a
		change(&r)
		res, out := h.Start(nil, nil, r)
		if out != "" {
			t.Errorf("something ran: %q", out)
		}
		return res
	}
	for name, c := range map[string]struct {
		change func(*message.Request)
		code   int
		says   string
	}{
		"not in the manifest": {func(r *message.Request) {
			r.Agent.Bindings = []string{agent.Host, agent.PubSub}
		}, 126, "imports jail_agent_storage_v1, and the binding STORAGE is not granted"},
		"storage not in the policy": {under(`"storage", `, ""), 126,
			"imports jail_agent_storage_v1, and the binding STORAGE is not granted"},
		"pubsub not in the policy": {under(`"pubsub", `, ""), 126,
			"imports jail_agent_pubsub_v1, and the binding PUBSUB is not granted"},
		"no agent in the policy": {under(`"pubsub", "storage", "ai", "host"`, ""), 126,
			"the policy does not grant the binding host"},
		"no agent": {func(r *message.Request) { r.Agent = nil }, 126, "only agents have bindings"},
		"another user's": {func(r *message.Request) { r.Agent.ID = "agent:nobody:test" }, 126,
			"is not one of yours"},
		"no directory":     {func(r *message.Request) { r.Agent.State += "x" }, 127, "state of the agent"},
		"another's files":  {func(r *message.Request) { r.Agent.State = h.Work }, 126, "which is no part"},
		"too much storage": {func(r *message.Request) { r.Agent.Storage = 1 << 40 }, 2, "storage of the agent"},
		"no such binding": {func(r *message.Request) { r.Agent.Bindings = []string{"SHELL"} }, 2,
			`binding "SHELL"`},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "another's files" {
				h.Files(map[string]string{"x": "x"})
			}
			res := ask(c.change)
			if res.Error == nil || res.ExitCode != c.code ||
				!strings.Contains(res.Error.Message, c.says) {
				t.Errorf("exit code %d, %+v", res.ExitCode, res.Error)
			}
		})
	}
	// The control: with all bindings it runs.
	r, _ := wake(t, h, root, req)
	r.sleep()
}
