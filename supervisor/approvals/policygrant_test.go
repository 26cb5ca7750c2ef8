package approvals

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

func widens() *PolicyGrant {
	return &PolicyGrant{Profile: "agent", Fetch: []GrantedFetch{{Host: "api.example.com",
		Methods: []string{"POST"}, Paths: []string{"/v1/**"}}}, Tools: []string{"core-utils/wc"},
		For: "8h"}
}

// TestPolicyGrant (T-553): a policy grant counts from its approval until it is revoked, for one user, one
// profile and one agent. Neither a policy nor another grant approves it, and MCP does not.
func TestPolicyGrant(t *testing.T) {
	d, agentd, me := deskIn(t.TempDir()), other(t, alice), user(alice, "cli")
	const agent = "agent:1001:one"
	p := ProposeRequest{Type: policy.ActionPolicyGrant, External: External{PolicyGrant: widens()},
		Agent: agent, Key: key}
	a, err := d.Programs().Propose(agentd, p, Rule{Mode: policy.ApproveAuto, UID: alice})
	if err != nil || a.State != Pending {
		t.Fatalf("proposed: %+v, %v", a, err)
	}
	for _, words := range []string{"profile agent", "POST to api.example.com", "/v1/**", "core-utils/wc",
		"8h"} {
		if !strings.Contains(a.Summary, words) {
			t.Errorf("%q is not in the words for people: %s", words, a.Summary)
		}
	}
	_, err = d.approve(agentd, a, "")
	wantCode(t, "the proposer decides", err, problem.Refused)
	_, err = d.approve(me, a, "uses=2")
	wantCode(t, "a scope", err, problem.Usage)
	_, err = d.Decide(context.Background(), me, a.ID, DecideRequest{Decision: "approve",
		SHA256: a.SHA256, Via: "mcp"})
	wantCode(t, "by mcp", err, problem.Refused)
	_, err = d.claim(agentd, a.ID)
	wantCode(t, "a claim", err, problem.Usage)
	if a, err = d.approve(me, a, ""); err != nil || a.State != Applied || a.Outcome == "" {
		t.Fatalf("approved: %+v, %v", a, err)
	}
	d.wantLog(t, "pending", "approved", "applied")
	id := a.Outcome
	w, err := deskIn(d.dir).Programs().Widening(alice, id, "agent", agent)
	if err != nil || len(w.Fetch) != 1 || len(w.Tools) != 1 {
		t.Fatalf("granted: %+v, %v", w, err)
	}
	for what, err := range map[string]error{
		"another user":    second(d.Programs().Widening(bob, id, "agent", agent)),
		"another profile": second(d.Programs().Widening(alice, id, "default", agent)),
		"another agent":   second(d.Programs().Widening(alice, id, "agent", "agent:1001:two")),
		"no agent":        second(d.Programs().Widening(alice, id, "agent", "")),
		"no grant":        second(d.Programs().Widening(alice, a.ID, "agent", agent)),
	} {
		wantCode(t, what, err, problem.Refused)
	}
	p.Key += "2"
	if b, err := d.Programs().Propose(agentd, p, Rule{Mode: policy.ApproveAuto, UID: alice}); err != nil ||
		b.State != Pending {
		t.Errorf("the same again: %+v, %v", b, err)
	}
	if g := d.grants[id]; g == nil || !g.over(time.Now().Add(8*time.Hour)) {
		t.Errorf("the grant has no end: %+v", g)
	}
	if a, err = d.Revert(context.Background(), me, a.ID); err != nil || a.State != Reverted {
		t.Fatalf("reverted: %+v, %v", a, err)
	}
	wantCode(t, "what was reverted", second(d.Programs().Widening(alice, id, "agent", agent)), problem.Refused)
}

// TestPolicyGrantRevoked: to revoke what a policy grant gave is to revert it.
func TestPolicyGrantRevoked(t *testing.T) {
	d, me := deskIn(t.TempDir()), user(alice, "cli")
	a, err := d.Programs().Propose(other(t, alice), ProposeRequest{Type: policy.ActionPolicyGrant,
		External: External{PolicyGrant: widens()}, Key: key}, ask(alice))
	if err != nil {
		t.Fatal(err)
	}
	if a, err = d.approve(me, a, ""); err != nil {
		t.Fatal(err)
	}
	_, err = d.Revoke(user(bob, "b"), a.Outcome)
	wantCode(t, "another user", err, problem.NotFound)
	if _, err := d.Revoke(me, a.Outcome); err != nil {
		t.Fatal(err)
	}
	if a, err = d.Get(me, a.ID); err != nil || a.State != Reverted {
		t.Errorf("revoked: %+v, %v", a, err)
	}
	wantCode(t, "what was revoked", second(d.Programs().Widening(alice, a.Outcome, "agent", "")),
		problem.Refused)
}

func second[T any](_ T, err error) error { return err }
