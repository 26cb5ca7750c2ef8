package review_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/approvals"
)

// pushing is a policy under which a push waits, a pull request is refused, and a gatekeeper acts
// without an approval.
const pushing = "policy = 1\nname = \"pushing\"\ninclude = [\"default\"]\n" +
	"[[approve]]\naction = \"git.push\"\nmode = \"ask\"\n" +
	"[[approve]]\naction = \"pr.create\"\nmode = \"never\"\n"

// TestExternalActions: a program outside of any jail proposes actions, people decide by jail
// approvals, and the program carries each out once.
func TestExternalActions(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	h.Write(map[string]string{"a": "mine\n", "pushing.toml": pushing})
	session := h.Session("--policy", filepath.Join(h.Work, "pushing.toml"))
	c, err := api.Dial(t.Context(), filepath.Join(h.State, "jail.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	queue := c.Approvals()
	commit := strings.Repeat("2", 40)
	push := approvals.External{Push: &approvals.Push{Remote: "https://git.example.com/acme/web.git",
		Ref: "refs/heads/agent/task-1", Commit: commit}}

	t.Run("push", func(t *testing.T) {
		key := api.NewKey()
		req := api.ProposeRequest{Type: policy.ActionPush, Run: session, External: push, Key: key,
			Words: "trust me"}
		a, err := queue.Propose(t.Context(), req)
		if err != nil || a.State != approvals.Pending || a.Run != session {
			t.Fatalf("proposed: %+v, %v", a, err)
		}
		if again, err := queue.Propose(t.Context(), req); err != nil || again.ID != a.ID {
			t.Errorf("proposed again: %+v, %v", again, err)
		}
		_, err = queue.Decide(t.Context(), a.ID, approvals.DecideRequest{Decision: "approve",
			SHA256: a.SHA256})
		if err == nil {
			t.Error("the proposer has approved its own action")
		}
		nothing := func(approvals.Action) (string, error) {
			t.Error("it is done without an approval")
			return "", nil
		}
		if _, err := queue.Carry(t.Context(), a.ID, key, nothing); err == nil {
			t.Error("an action is claimed that waits")
		}
		show := h.Jail("approvals", "show", a.ID)
		for _, text := range []string{"state:     pending", "push commit " + commit,
			"it may be wrong: trust me", "it cannot be reverted"} {
			if !strings.Contains(show.Out, text) {
				t.Errorf("show has no %q: %s", text, show.Out)
			}
		}
		h.Wants(h.Jail("approvals", "approve", a.ID), 0, "")
		if a, err = queue.Wait(t.Context(), a.ID); err != nil || a.State != approvals.Approved {
			t.Fatalf("waited: %+v, %v", a, err)
		}
		done := 0
		a, err = queue.Carry(t.Context(), a.ID, key, func(a approvals.Action) (string, error) {
			done++
			h.Wants(h.Jail("approvals", "settle", a.ID, "failed"), 126, "lives: it says how that ends")
			return "pushed", nil
		})
		if err != nil || done != 1 || a.State != approvals.Applied || a.Outcome != "pushed" {
			t.Errorf("carried out %d times: %+v, %v", done, a, err)
		}
		if _, err := queue.Carry(t.Context(), a.ID, key, nothing); err == nil {
			t.Error("it is claimed twice")
		}
		h.Wants(h.Jail("approvals", "revert", a.ID), 126, "cannot be reverted")
	})
	t.Run("never", func(t *testing.T) {
		_, err := queue.Propose(t.Context(), api.ProposeRequest{Type: policy.ActionPullRequest,
			Run: session, Key: api.NewKey(), External: approvals.External{
				PullRequest: &approvals.PullRequest{Repository: "https://git.example.com/acme/web",
					Head: "agent/task-1", Base: "main", Commit: commit, Title: "A page"}}})
		if err == nil || !strings.Contains(err.Error(), "the policy lets nobody approve it") {
			t.Errorf("a pull request: %v", err)
		}
	})
	t.Run("gate", func(t *testing.T) {
		key := api.NewKey()
		gate := api.ProposeRequest{Type: policy.ActionGate, Run: session, Key: key,
			External: approvals.External{Gate: &approvals.Gate{Gatekeeper: "issues", Action: "close",
				Resource: "https://example.com/issues/1", Reversible: true}}}
		a, err := queue.Propose(t.Context(), gate)
		if err != nil || a.State != approvals.Approved || a.Decision.Via != "policy" {
			t.Fatalf("proposed: %+v, %v", a, err)
		}
		changed := func(approvals.Action) (string, error) { return "closed", nil }
		if a, err = queue.Carry(t.Context(), a.ID, key, changed); err != nil {
			t.Fatal(err)
		}
		h.Wants(h.Jail("approvals", "revert", a.ID), 0, "")
		a, err = queue.Carry(t.Context(), a.ID, key, func(a approvals.Action) (string, error) {
			if a.State != approvals.Reverting || a.Undo == nil {
				t.Errorf("to be undone: %+v", a)
			}
			return "", nil
		})
		if err != nil || a.State != approvals.Reverted {
			t.Errorf("undone: %+v, %v", a, err)
		}
		// What has changed is stale.
		gate.Key = api.NewKey()
		if a, err = queue.Propose(t.Context(), gate); err != nil {
			t.Fatal(err)
		}
		a, err = queue.Carry(t.Context(), a.ID, gate.Key, func(approvals.Action) (string, error) {
			return "", api.ErrChanged
		})
		if !errors.Is(err, api.ErrChanged) || a.State != approvals.Stale {
			t.Errorf("what has changed: %+v, %v", a, err)
		}
		// Without a run a person is asked.
		gate.Run, gate.Key = "", api.NewKey()
		if a, err = queue.Propose(t.Context(), gate); err != nil || a.State != approvals.Pending {
			t.Errorf("of no run: %+v, %v", a, err)
		}
		gate.Run, gate.Key = "gone", api.NewKey()
		if _, err = queue.Propose(t.Context(), gate); err == nil {
			t.Error("of a run that is not there")
		}
		h.Wants(h.Jail("approvals", "reject", a.ID), 0, "")
	})
	h.StopSession(session, 0)
	var states []string
	for _, r := range h.Records("", "approval") {
		states = append(states, r.State)
	}
	want := "pending approved applying applied pending approved applying applied reverting reverted " +
		"pending approved applying stale pending rejected"
	if got := strings.Join(states, " "); got != want {
		t.Errorf("the log has %s, want %s", got, want)
	}
}

// TestPolicyGrant: a run has what a grant gives to its profile, while the grant lasts, and no other
// run has it.
func TestPolicyGrant(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	c, err := api.Dial(t.Context(), filepath.Join(h.State, "jail.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	propose := func(profile string) (approvals.Action, error) {
		return c.Approvals().Propose(t.Context(), api.ProposeRequest{Type: policy.ActionPolicyGrant,
			Key: api.NewKey(), External: approvals.External{PolicyGrant: &approvals.PolicyGrant{
				Profile: profile, Tools: []string{"core-utils/echo"}, For: "1h"}}})
	}
	if _, err := propose("none"); err == nil {
		t.Error("a grant for a profile that is not there")
	}
	a, err := propose("strict")
	if err != nil {
		t.Fatal(err)
	}
	echo := []string{"run", "--profile", "strict", "--", "echo", "hello"}
	with := func(id string) []string {
		return append([]string{"run", "--profile", "strict", "--grant", id}, echo[3:]...)
	}
	h.Wants(h.Jail(echo...), 126, "core-utils/echo is not allowed")
	h.Wants(h.Jail(with(a.ID)...), 126, "or is over")
	h.Wants(h.Jail("approvals", "approve", a.ID), 0, "")
	if a, err = c.Approvals().Get(t.Context(), a.ID); err != nil || a.State != approvals.Applied {
		t.Fatalf("approved: %+v, %v", a, err)
	}
	if o := h.Jail(with(a.Outcome)...); o.Code != 0 || o.Out != "hello\n" {
		t.Errorf("with the grant: %+v", o)
	}
	h.Wants(h.Jail(echo...), 126, "core-utils/echo is not allowed")
	h.Wants(h.Jail("run", "--profile", "readonly", "--grant", a.Outcome, "--", "echo"), 126,
		"is for runs of the profile strict")
	session := h.Session("--profile", "strict", "--grant", a.Outcome)
	h.Wants(h.Exec(session, "echo", "hello"), 0, "")
	h.Wants(h.Jail("approvals", "grants"), 0, "")
	h.Wants(h.Jail("approvals", "revert", a.ID), 0, "")
	h.Wants(h.Jail(with(a.Outcome)...), 126, "or is over")
	cmdtest.Eventually(t, "the session ends with the grant", func() bool {
		return len(h.Records(session, "run.finished")) > 0 && len(h.Sessions()) == 0
	})
	if f := h.Finished(session); f.Signal != "SIGKILL" {
		t.Errorf("the session of a grant that is over: %+v", f)
	}
}
