package approvals

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

const key = "a secret of the proposer"

var (
	oldCommit = strings.Repeat("1", 40)
	newCommit = strings.Repeat("2", 40)
)

func push() *Push {
	return &Push{Remote: "https://git.example.com/acme/web.git", Ref: "refs/heads/agent/task-1",
		Commit: newCommit, Credential: "forge"}
}

func gate() *Gate {
	return &Gate{Gatekeeper: "issues", Action: "close", Resource: "https://example.com/issues/1",
		Args: `{"comment":"done"}`, Reversible: true}
}

// other starts a process that lives until the test ends, and returns a caller who is it.
func other(t *testing.T, uid uint32) caller.Caller {
	t.Helper()
	cmd := exec.Command("sleep", "infinity")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(cmd) })
	c := user(uid, fmt.Sprint("of ", cmd.Process.Pid))
	c.PID = cmd.Process.Pid
	return c
}

func end(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

func ask(uid uint32) Rule { return Rule{Mode: policy.ApproveAsk, UID: uid} }

func (d *desk) proposeGate(t *testing.T, c caller.Caller) Action {
	t.Helper()
	a, err := d.Programs().Propose(c, ProposeRequest{Type: policy.ActionGate,
		External: External{Gate: gate()},
		Key:      key, Words: "please"}, ask(c.UID))
	if err != nil || a.State != Pending {
		t.Fatalf("proposed: %+v, %v", a, err)
	}
	return a
}

func (d *desk) claim(c caller.Caller, id string) (Action, error) {
	return d.Programs().Claim(c, id, key, func(Action) error { return nil })
}

func (d *desk) report(c caller.Caller, id string, to State) (Action, error) {
	r := ReportRequest{Key: key, State: to}
	if to == Applied {
		r.Outcome = "#1"
	}
	return d.Programs().Report(c, id, r)
}

// TestExternalLife (T-552): an action is proposed, approved, claimed once, reported, and undone in
// the same way, by its proposer; a person decides. Each step is on record before the next one.
func TestExternalLife(t *testing.T) {
	d, me, agentd := deskIn(t.TempDir()), user(alice, "cli"), other(t, alice)
	a := d.proposeGate(t, agentd)
	_, err := d.claim(agentd, a.ID)
	wantCode(t, "a claim of what waits", err, problem.ApprovalPending)
	_, err = d.approve(agentd, a, "")
	wantCode(t, "the proposer decides", err, problem.Refused)
	again := agentd
	again.Connection = "another"
	_, err = d.approve(again, a, "")
	wantCode(t, "the proposer decides over another connection", err, problem.Refused)
	if a, err = d.approve(me, a, ""); err != nil || a.State != Approved {
		t.Fatalf("approved: %+v, %v", a, err)
	}
	_, err = d.Programs().Claim(agentd, a.ID, key+"?", nil)
	wantCode(t, "another key", err, problem.Refused)
	_, err = d.claim(user(bob, "b"), a.ID)
	wantCode(t, "another user's claim", err, problem.NotFound)
	_, err = d.report(agentd, a.ID, Applied)
	wantCode(t, "a report without a claim", err, problem.Conflict)
	if a, err = d.claim(agentd, a.ID); err != nil || a.State != Applying || a.Claim.Lost {
		t.Fatalf("claimed: %+v, %v", a, err)
	}
	_, err = d.claim(agentd, a.ID)
	wantCode(t, "a second claim", err, problem.Conflict)
	_, err = d.approve(me, a, "")
	wantCode(t, "a decision on what is carried out", err, problem.Conflict)
	_, err = d.Withdraw(me, a.ID)
	wantCode(t, "a withdrawal of what is carried out", err, problem.Conflict)
	_, err = d.Programs().Settle(me, a.ID, SettleRequest{SHA256: a.SHA256, State: Failed})
	wantCode(t, "settled while its proposer lives", err, problem.Conflict)
	_, err = d.report(agentd, a.ID, Reverted)
	wantCode(t, "reverted what is not applied", err, problem.Usage)
	if a, err = d.report(agentd, a.ID, Applied); err != nil || a.State != Applied || a.Outcome != "#1" {
		t.Fatalf("reported: %+v, %v", a, err)
	}
	if _, err = d.report(agentd, a.ID, Applied); err != nil {
		t.Errorf("the same report again: %v", err)
	}
	_, err = d.report(agentd, a.ID, Failed)
	wantCode(t, "another report", err, problem.Conflict)
	_, err = d.claim(agentd, a.ID)
	wantCode(t, "a claim of what is applied", err, problem.Conflict)

	_, err = d.Revert(context.Background(), agentd, a.ID)
	wantCode(t, "the proposer wants it undone", err, problem.Refused)
	_, err = d.Revert(context.Background(), user(bob, "b"), a.ID)
	wantCode(t, "another user wants it undone", err, problem.NotFound)
	if a, err = d.Revert(context.Background(), me, a.ID); err != nil || a.State != Reverting ||
		a.Undo == nil || a.Claim != nil {
		t.Fatalf("reverting: %+v, %v", a, err)
	}
	if _, err = d.claim(agentd, a.ID); err != nil {
		t.Fatal(err)
	}
	_, err = d.claim(agentd, a.ID)
	wantCode(t, "a second claim of the way back", err, problem.Conflict)
	if a, err = d.report(agentd, a.ID, Failed); err != nil || a.State != Applied {
		t.Fatalf("not undone: %+v, %v", a, err)
	}
	if _, err = d.report(agentd, a.ID, Failed); err != nil {
		t.Errorf("the same report again: %v", err)
	}
	if _, err = d.Revert(context.Background(), me, a.ID); err != nil {
		t.Fatal(err)
	}
	if _, err = d.claim(agentd, a.ID); err != nil {
		t.Fatal(err)
	}
	if a, err = d.report(agentd, a.ID, Reverted); err != nil || a.State != Reverted {
		t.Fatalf("undone: %+v, %v", a, err)
	}
	d.wantLog(t, "pending", "approved", "applying", "applied", "reverting", "applied", "reverting",
		"reverted")
}

// wantLog fails unless the log has these states in this order, and no other.
func (d *desk) wantLog(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for _, l := range strings.Split(d.read(t, "log"), "\n") {
		if _, rest, ok := strings.Cut(l, `"state":"`); ok {
			state, _, _ := strings.Cut(rest, `"`)
			got = append(got, state)
		}
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("the log has %v, want %v", got, want)
	}
}

// TestLostClaim: what a process claimed that was killed is visible, is nobody's a second time, and is
// settled by a person, never by the daemon.
func TestLostClaim(t *testing.T) {
	d, me := deskIn(t.TempDir()), user(alice, "cli")
	cmd := exec.Command("sleep", "infinity")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(cmd) })
	agentd := user(alice, "agentd")
	agentd.PID = cmd.Process.Pid
	a := d.proposeGate(t, agentd)
	if _, err := d.approve(me, a, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := d.claim(agentd, a.ID); err != nil {
		t.Fatal(err)
	}
	end(cmd)
	d = deskIn(d.dir) // another daemon
	if err := d.Recover(); err != nil {
		t.Fatal(err)
	}
	all, err := d.List(me, false)
	if err != nil || len(all) != 1 || all[0].State != Applying || !all[0].Claim.Lost {
		t.Fatalf("after the end of its proposer: %+v, %v", all, err)
	}
	successor := other(t, alice)
	_, err = d.claim(successor, a.ID)
	wantCode(t, "a claim of the successor", err, problem.Conflict)
	_, err = d.Programs().Settle(user(bob, "b"), a.ID, SettleRequest{SHA256: a.SHA256, State: Failed})
	wantCode(t, "settled by another user", err, problem.NotFound)
	_, err = d.Programs().Settle(me, a.ID, SettleRequest{SHA256: newCommit, State: Failed})
	wantCode(t, "settled with another digest", err, problem.Conflict)
	_, err = d.Programs().Settle(me, a.ID, SettleRequest{SHA256: a.SHA256, State: Reverted})
	wantCode(t, "settled as reverted", err, problem.Usage)
	if a, err = d.Programs().Settle(me, a.ID, SettleRequest{SHA256: a.SHA256, State: Applied}); err != nil ||
		a.State != Applied || !strings.Contains(a.Error, "settled by uid 1001") {
		t.Fatalf("settled: %+v, %v", a, err)
	}
	_, err = d.report(successor, a.ID, Failed)
	wantCode(t, "a report of what is settled", err, problem.Conflict)
	// That nobody undoes it is settled, too.
	if _, err = d.Revert(context.Background(), me, a.ID); err != nil {
		t.Fatal(err)
	}
	if a, err = d.Programs().Settle(me, a.ID, SettleRequest{SHA256: a.SHA256, State: Failed}); err != nil ||
		a.State != Applied {
		t.Fatalf("given up: %+v, %v", a, err)
	}
}

// TestClaimedOnce (T-551): of many claims at one time, in two daemons, one is given.
func TestClaimedOnce(t *testing.T) {
	d, agentd := deskIn(t.TempDir()), other(t, alice)
	a := d.proposeGate(t, agentd)
	if _, err := d.approve(user(alice, "cli"), a, ""); err != nil {
		t.Fatal(err)
	}
	desks := []*desk{d, deskIn(d.dir)}
	const claims = 16
	given := make(chan error, claims)
	var all sync.WaitGroup
	for n := range claims {
		all.Go(func() {
			_, err := desks[n%2].claim(agentd, a.ID)
			given <- err
		})
	}
	all.Wait()
	close(given)
	n := 0
	for err := range given {
		if err == nil {
			n++
		} else {
			wantCode(t, "another claim", err, problem.Conflict)
		}
	}
	if n != 1 {
		t.Errorf("claimed %d times", n)
	}
}

// TestProposedAgain: the same proposal with the same key is the same action, and another one is none.
func TestProposedAgain(t *testing.T) {
	d, agentd := deskIn(t.TempDir()), other(t, alice)
	a := d.proposeGate(t, agentd)
	if b := d.proposeGate(t, other(t, alice)); b.ID != a.ID {
		t.Errorf("the same proposal is %s and %s", a.ID, b.ID)
	}
	changed := gate()
	changed.Resource += "1"
	_, err := d.Programs().Propose(agentd, ProposeRequest{Type: policy.ActionGate,
		External: External{Gate: changed},
		Key:      key, Words: "please"}, ask(alice))
	wantCode(t, "another proposal with the key", err, problem.Conflict)
	b, err := d.Programs().Propose(other(t, bob), ProposeRequest{Type: policy.ActionGate,
		External: External{Gate: gate()}, Key: key, Words: "please"}, ask(bob))
	if err != nil || b.ID == a.ID {
		t.Errorf("another user's proposal with that key: %+v, %v", b, err)
	}
}

// TestExternalRules: the policy refuses, asks or approves; a claim asks once more.
func TestExternalRules(t *testing.T) {
	d, agentd := deskIn(t.TempDir()), other(t, alice)
	p := ProposeRequest{Type: policy.ActionPush, External: External{Push: push()}, Key: key}
	_, err := d.Programs().Propose(agentd, p, Rule{Mode: policy.ApproveNever, UID: alice})
	wantCode(t, "never", err, problem.Refused)
	a, err := d.Programs().Propose(agentd, p, Rule{Mode: policy.ApproveAuto, UID: alice})
	if err != nil || a.State != Approved || a.Decision.Via != "policy" {
		t.Fatalf("auto: %+v, %v", a, err)
	}
	d.wantLog(t, "pending", "approved")
	_, err = d.Programs().Claim(agentd, a.ID, key, func(Action) error {
		return problem.New(problem.Refused, "the ceiling has changed")
	})
	wantCode(t, "a claim under another policy", err, problem.Refused)
	if a, err = d.claim(agentd, a.ID); err != nil || a.State != Applying {
		t.Fatalf("%+v, %v", a, err)
	}
	if a, err = d.report(agentd, a.ID, Stale); err != nil || a.State != Stale {
		t.Fatalf("%+v, %v", a, err)
	}
	_, err = d.Revert(context.Background(), user(alice, "cli"), a.ID)
	wantCode(t, "reverted what was not done", err, problem.Conflict)
	p.Key, p.Ask = key+"2", true
	a, err = d.Programs().Propose(agentd, p, Rule{Mode: policy.ApproveAuto, UID: alice})
	if err != nil || a.State != Pending {
		t.Errorf("auto, and its proposer wants a person to be asked: %+v, %v", a, err)
	}
	p.Key = key + "3"
	_, err = d.Programs().Propose(agentd, p, Rule{Mode: policy.ApproveNever, UID: alice})
	wantCode(t, "never, and its proposer wants a person to be asked", err, problem.Refused)
}

// TestPushHasNoWayBack: what its type says is irreversible stays.
func TestPushHasNoWayBack(t *testing.T) {
	d, agentd := deskIn(t.TempDir()), other(t, alice)
	a, err := d.Programs().Propose(agentd, ProposeRequest{Type: policy.ActionPush,
		External: External{Push: push()},
		Key:      key}, Rule{Mode: policy.ApproveAuto, UID: alice})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.claim(agentd, a.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := d.report(agentd, a.ID, Applied); err != nil {
		t.Fatal(err)
	}
	_, err = d.Revert(context.Background(), user(alice, "cli"), a.ID)
	wantCode(t, "a push is reverted", err, problem.Conflict)
}

// TestExternalGrants: a grant is for the same target, on behalf of the same agent.
func TestExternalGrants(t *testing.T) {
	d, agentd, me := deskIn(t.TempDir()), other(t, alice), user(alice, "cli")
	n := 0
	propose := func(p *Push, agent, run string) Action {
		t.Helper()
		n++
		a, err := d.Programs().Propose(agentd, ProposeRequest{Type: policy.ActionPush,
			External: External{Push: p},
			Agent:    agent, Run: run, Key: fmt.Sprint(key, n)}, ask(alice))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	a := propose(push(), "agent:1001:one", "run1")
	if _, err := d.approve(me, a, "session"); err != nil {
		t.Fatal(err)
	}
	later := push()
	later.Commit, later.Was = oldCommit, newCommit
	if got := propose(later, "agent:1001:one", "run1"); got.State != Approved ||
		got.Decision.Via != "grant" {
		t.Errorf("the next push: %+v", got)
	}
	elsewhere, withAnother := push(), push()
	elsewhere.Ref += "1"
	withAnother.Credential = "admin"
	for what, got := range map[string]Action{
		"another branch":     propose(elsewhere, "agent:1001:one", "run1"),
		"another credential": propose(withAnother, "agent:1001:one", "run1"),
		"another agent":      propose(push(), "agent:1001:two", "run1"),
		"no agent":           propose(push(), "", "run1"),
		"another run":        propose(push(), "agent:1001:one", "run2"),
	} {
		if got.State != Pending {
			t.Errorf("%s: %+v", what, got)
		}
	}
	_, err := d.approve(me, propose(push(), "", ""), "session")
	wantCode(t, "a grant for no session", err, problem.Usage)
}

// TestExternalBounds: one agent with its facets has so many actions that are not over, and leaves room
// for others.
func TestExternalBounds(t *testing.T) {
	d, agentd := deskIn(t.TempDir()), other(t, alice)
	propose := func(n int, agent string) error {
		_, err := d.Programs().Propose(agentd, ProposeRequest{Type: policy.ActionGate,
			External: External{Gate: gate()},
			Agent:    agent, Key: fmt.Sprint(key, agent, n)}, ask(alice))
		return err
	}
	for n := range maxOfRun {
		if err := propose(n, []string{"agent:1001:one", "agent:1001:one/facet"}[n%2]); err != nil {
			t.Fatalf("proposal %d: %v", n, err)
		}
	}
	for _, agent := range []string{"agent:1001:one", "agent:1001:one/facet", "agent:1001:one/more/facets"} {
		wantCode(t, "one more", propose(maxOfRun, agent), problem.Busy)
	}
	if err := propose(0, "agent:1001:two"); err != nil {
		t.Errorf("another agent: %v", err)
	}
	if err := propose(0, ""); err != nil {
		t.Errorf("no agent: %v", err)
	}
}

// TestForgedProposals (T-550): a proposal that people could misread, or that is none, is refused.
func TestForgedProposals(t *testing.T) {
	d, agentd := deskIn(t.TempDir()), other(t, alice)
	with := func(f func(*ProposeRequest)) ProposeRequest {
		p := ProposeRequest{Type: policy.ActionGate, External: External{Gate: gate()}, Key: key}
		f(&p)
		return p
	}
	pushed := func(f func(*Push)) ProposeRequest {
		p := push()
		f(p)
		return ProposeRequest{Type: policy.ActionPush, External: External{Push: p}, Key: key}
	}
	request := func(f func(*PullRequest)) ProposeRequest {
		r := &PullRequest{Repository: "https://git.example.com/acme/web", Head: "agent/task-1",
			Base: "main", Commit: newCommit, Title: "Add a page", Body: "It was\n\tmissing."}
		f(r)
		return ProposeRequest{Type: policy.ActionPullRequest, External: External{PullRequest: r}, Key: key}
	}
	granted := func(f func(*PolicyGrant)) ProposeRequest {
		g := widens()
		f(g)
		return ProposeRequest{Type: policy.ActionPolicyGrant, External: External{PolicyGrant: g}, Key: key}
	}
	for what, p := range map[string]ProposeRequest{
		"nothing":           {Type: policy.ActionGate, Key: key},
		"a commit":          with(func(p *ProposeRequest) { p.Type = policy.ActionCommit }),
		"a fetch":           with(func(p *ProposeRequest) { p.Type = policy.ActionFetch }),
		"another type":      with(func(p *ProposeRequest) { p.Type = policy.ActionPush }),
		"two of them":       with(func(p *ProposeRequest) { p.Push = push() }),
		"no key":            with(func(p *ProposeRequest) { p.Key = "" }),
		"a short key":       with(func(p *ProposeRequest) { p.Key = "123" }),
		"a long key":        with(func(p *ProposeRequest) { p.Key = strings.Repeat("1", maxKey+1) }),
		"another's agent":   with(func(p *ProposeRequest) { p.Agent = "agent:1002:one" }),
		"no agent's name":   with(func(p *ProposeRequest) { p.Agent = "agent:1001:../x" }),
		"long words":        with(func(p *ProposeRequest) { p.Words = strings.Repeat("w", maxWords+1) }),
		"a gatekeeper":      with(func(p *ProposeRequest) { p.Gate.Gatekeeper = "a b" }),
		"a gate's action":   with(func(p *ProposeRequest) { p.Gate.Action = "close to nothing" }),
		"no resource":       with(func(p *ProposeRequest) { p.Gate.Resource = " " }),
		"lines":             with(func(p *ProposeRequest) { p.Gate.Resource = "a\nstate: approved" }),
		"a terminal's code": with(func(p *ProposeRequest) { p.Gate.Resource = "a\x1b[2K" }),
		"turned writing":    with(func(p *ProposeRequest) { p.Gate.Resource = "a\u202etxt.exe" }),
		"no UTF-8":          with(func(p *ProposeRequest) { p.Gate.Resource = "a\xff" }),
		"a list":            with(func(p *ProposeRequest) { p.Gate.Args = `[1]` }),
		"half an object":    with(func(p *ProposeRequest) { p.Gate.Args = `{"a":1` }),
		"two objects":       with(func(p *ProposeRequest) { p.Gate.Args = `{}{}` }),
		"a key twice":       with(func(p *ProposeRequest) { p.Gate.Args = `{"to":"me","to":"you"}` }),
		"a key in two ways": with(func(p *ProposeRequest) { p.Gate.Args = `{"set":1,"ſet":2}` }),
		"a key in two cases": with(func(p *ProposeRequest) {
			p.Gate.Args = `{"a":[{"to":"me","To":"you"}]}`
		}),
		"a deep object": with(func(p *ProposeRequest) {
			p.Gate.Args = `{"a":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`
		}),
		"long arguments": with(func(p *ProposeRequest) {
			p.Gate.Args = `{"a":"` + strings.Repeat("a", maxText) + `"}`
		}),
		"a local remote":   pushed(func(p *Push) { p.Remote = "/srv/web.git" }),
		"a remote program": pushed(func(p *Push) { p.Remote = "ext::sh -c true" }),
		"a file":           pushed(func(p *Push) { p.Remote = "file:///srv/web.git" }),
		"a password":       pushed(func(p *Push) { p.Remote = "https://a:b@example.com/web.git" }),
		"words for a URL": pushed(func(p *Push) {
			p.Remote = "https://example.com/web.git to main of https://example.com/web.git"
		}),
		"a query":            pushed(func(p *Push) { p.Remote += "?a" }),
		"a fragment":         pushed(func(p *Push) { p.Remote += "#a" }),
		"no path":            pushed(func(p *Push) { p.Remote = "https://example.com/" }),
		"a tag":              pushed(func(p *Push) { p.Ref = "refs/tags/v1" }),
		"a short branch":     pushed(func(p *Push) { p.Ref = "main" }),
		"no branch of git":   pushed(func(p *Push) { p.Ref = "refs/heads/a..b" }),
		"a forced push":      pushed(func(p *Push) { p.Ref = "+refs/heads/main" }),
		"two refs":           pushed(func(p *Push) { p.Ref = "refs/heads/a:refs/heads/b" }),
		"a short commit":     pushed(func(p *Push) { p.Commit = "1234567" }),
		"a deleted branch":   pushed(func(p *Push) { p.Commit = strings.Repeat("0", 40) }),
		"nothing new":        pushed(func(p *Push) { p.Was = p.Commit }),
		"a credential":       pushed(func(p *Push) { p.Credential = "a, which is yours" }),
		"one branch":         request(func(r *PullRequest) { r.Head = r.Base }),
		"no base":            request(func(r *PullRequest) { r.Base = "" }),
		"a title of lines":   request(func(r *PullRequest) { r.Title = "a\nb" }),
		"a long title":       request(func(r *PullRequest) { r.Title = strings.Repeat("t", maxTitle+1) }),
		"a body with codes":  request(func(r *PullRequest) { r.Body = "a\x1b[2J" }),
		"no commit":          request(func(r *PullRequest) { r.Commit = "" }),
		"a grant of nothing": granted(func(g *PolicyGrant) { g.Fetch, g.Tools = nil, nil }),
		"a profile's path":   granted(func(g *PolicyGrant) { g.Profile = "../x" }),
		"no time":            granted(func(g *PolicyGrant) { g.For = "" }),
		"no end":             granted(func(g *PolicyGrant) { g.For = "9000h" }),
		"every host":         granted(func(g *PolicyGrant) { g.Fetch[0].Host = "*" }),
		"no host":            granted(func(g *PolicyGrant) { g.Fetch[0].Host = "a b" }),
		"a port":             granted(func(g *PolicyGrant) { g.Fetch[0].Ports = []string{"99999"} }),
		"a method":           granted(func(g *PolicyGrant) { g.Fetch[0].Methods = []string{"get it"} }),
		"every tool":         granted(func(g *PolicyGrant) { g.Tools = []string{"**"} }),
		"a native tool":      granted(func(g *PolicyGrant) { g.Tools = []string{"/bin/sh"} }),
		"many tools":         granted(func(g *PolicyGrant) { g.Tools = make([]string, maxGranted+1) }),
		"another repository": request(func(r *PullRequest) { r.Repository = "acme/web" }),
	} {
		if a, err := d.Programs().Propose(agentd, p, ask(alice)); err == nil {
			t.Errorf("%s: %+v", what, a)
		} else {
			wantCode(t, what, err, problem.Usage)
		}
	}
	if all, err := d.List(user(alice, "cli"), true); err != nil || len(all) > 0 {
		t.Errorf("there are %v, %v", all, err)
	}
	// The control: the same without what is wrong.
	for n, p := range []ProposeRequest{with(func(*ProposeRequest) {}), pushed(func(*Push) {}),
		request(func(*PullRequest) {}), granted(func(*PolicyGrant) {})} {
		p.Key = fmt.Sprint(key, n)
		if _, err := d.Programs().Propose(agentd, p, ask(alice)); err != nil {
			t.Errorf("%s: %v", p.Type, err)
		}
	}
	gone := agentd
	gone.PID = 0
	_, err := d.Programs().Propose(gone, with(func(*ProposeRequest) {}), ask(alice))
	wantCode(t, "a process that cannot be seen", err, problem.Refused)
}

// TestExternalExpires: an action that is carried out does not expire, and one that nobody claims does.
func TestExternalExpires(t *testing.T) {
	d, agentd, me := deskIn(t.TempDir()), other(t, alice), user(alice, "cli")
	a := d.proposeGate(t, agentd)
	b, err := d.Programs().Propose(agentd, ProposeRequest{Type: policy.ActionPush,
		External: External{Push: push()},
		Key:      key + "b"}, Rule{Mode: policy.ApproveAuto, UID: alice})
	if _, e := d.approve(me, a, ""); err != nil || e != nil {
		t.Fatal(err, e)
	}
	if _, err := d.claim(agentd, a.ID); err != nil {
		t.Fatal(err)
	}
	later := d.expired(time.Now().Add(lifetime + time.Minute))
	if len(later.Actions) != 1 || later.Actions[0].ID != b.ID || later.Actions[0].State != Expired {
		t.Errorf("expired: %+v", later.Actions)
	}
}

// TestExternalWait: a wait ends when the action is approved, and not before.
func TestExternalWait(t *testing.T) {
	d, agentd := deskIn(t.TempDir()), other(t, alice)
	a := d.proposeGate(t, agentd)
	ctx, stop := context.WithTimeoutCause(context.Background(), time.Minute,
		errors.New("the wait does not end"))
	defer stop()
	got := make(chan Action, 1)
	go func() {
		waited, _ := d.Wait(ctx, agentd, a.ID)
		got <- waited
	}()
	if _, err := deskIn(d.dir).approve(user(alice, "cli"), a, ""); err != nil {
		t.Fatal(err)
	}
	if waited := <-got; waited.State != Approved {
		t.Errorf("waited for %+v", waited)
	}
}

// TestUndoneWhole: the proposer of a large action gets all of it again when it is to undo the action.
func TestUndoneWhole(t *testing.T) {
	d, agentd, me := deskIn(t.TempDir()), other(t, alice), user(alice, "cli")
	large := gate()
	large.Args = `{"comment":"` + strings.Repeat("c", maxOverSize) + `"}`
	a, err := d.Programs().Propose(agentd, ProposeRequest{Type: policy.ActionGate,
		External: External{Gate: large}, Key: key}, ask(alice))
	if err == nil {
		_, err = d.approve(me, a, "")
	}
	if err == nil {
		_, err = d.claim(agentd, a.ID)
	}
	if err == nil {
		_, err = d.report(agentd, a.ID, Applied)
	}
	if err == nil {
		_, err = d.Revert(context.Background(), me, a.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	if a, err = d.claim(agentd, a.ID); err != nil || a.Gate.Args != large.Args {
		t.Errorf("claimed to be undone: %+v, %v", a, err)
	}
	if a, err = d.report(agentd, a.ID, Reverted); err != nil || a.State != Reverted {
		t.Errorf("undone: %+v, %v", a, err)
	}
}

// TestPushOfProtected: a push that changes a name which the policy protects waits for a person,
// whatever the policy says of pushes, and each time. Control: one that changes no such name is
// approved by the policy.
func TestPushOfProtected(t *testing.T) {
	d, me, worker := deskIn(t.TempDir()), user(alice, "cli"), other(t, alice)
	rule := Rule{Mode: policy.ApproveAuto, UID: alice,
		Protected: func(name string) bool { return name == "Makefile" }}
	propose := func(key string, changed ...string) (Action, error) {
		return d.Programs().Propose(worker, ProposeRequest{Type: policy.ActionPush, Key: key, Changed: changed,
			External: External{Push: push()}}, rule)
	}
	if a, err := propose(key, "a", "b"); err != nil || a.State != Approved || a.Push.Protected != nil {
		t.Errorf("control: %+v, %v", a, err)
	}
	a, err := propose(key+"2", "a", "Makefile")
	if err != nil || a.State != Pending || !strings.HasSuffix(a.Summary,
		"protected names are changed: Makefile, with the credential forge") {
		t.Fatalf("protected: %+v, %v", a, err)
	}
	_, err = d.Decide(t.Context(), me, a.ID, DecideRequest{Decision: "approve", SHA256: a.SHA256,
		Via: "mcp"})
	wantCode(t, "approved by mcp", err, problem.Refused)
	_, err = d.approve(me, a, "uses=2")
	wantCode(t, "a grant", err, problem.Usage)
	if a, err = d.approve(me, a, ""); err != nil || a.State != Approved {
		t.Errorf("approved: %+v, %v", a, err)
	}
	rule.Mode = policy.ApproveNever
	_, err = propose(key+"3", "Makefile")
	wantCode(t, "where nobody may push", err, problem.Refused)
	made := push()
	made.Protected = []string{}
	_, err = d.Programs().Propose(worker, ProposeRequest{Type: policy.ActionPush, Key: key + "4",
		External: External{Push: made}}, rule)
	wantCode(t, "what the daemon alone says", err, problem.Usage)
}
