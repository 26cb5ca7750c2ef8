package approvals

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/jail/asuser"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// fileLog is an audit log of approvals alone.
type fileLog struct {
	path string
	fail error
}

func (l *fileLog) Append(_ context.Context, e audit.Entry) (uint64, error) {
	if l.fail != nil {
		return 0, l.fail
	}
	text, err := json.Marshal(e.Event)
	if err != nil {
		return 0, err
	}
	return 1, appendTo(l.path, string(text)+"\n")
}

func appendTo(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// fileCommits notes the commits in a file. gone says that the shadow has changed.
type fileCommits struct {
	path    string
	changed error
	// failAfter is the error of an Apply that has done the commit; empty has Apply do nothing.
	failAfter error
	empty     bool
	// tries counts the calls of Apply.
	tries int
}

func (k *fileCommits) Before(context.Context, Action) (string, error) { return noCommit, nil }

func (k *fileCommits) Apply(_ context.Context, a Action, _ audit.Actor) (string, error) {
	k.tries++
	if k.changed != nil {
		return "", stale(k.changed)
	}
	if k.empty {
		return "", nil
	}
	return "c-" + a.ID, errors.Join(appendTo(k.path, a.ID+"\n"), k.failAfter)
}

func (k *fileCommits) Settled(_ context.Context, a Action, _ string) (string, bool, error) {
	text, err := os.ReadFile(k.path)
	if err != nil && !os.IsNotExist(err) {
		return "", false, err
	}
	return "c-" + a.ID, strings.Contains(string(text), a.ID+"\n"), nil
}

func (k *fileCommits) Revert(context.Context, Action, audit.Actor) error { return nil }

// A desk is a queue with a log and commits below one directory.
type desk struct {
	*Queue
	dir     string
	log     *fileLog
	commits *fileCommits
	rules   syntax.Host
}

func deskIn(dir string) *desk {
	d := &desk{dir: dir, log: &fileLog{path: filepath.Join(dir, "log")},
		commits: &fileCommits{path: filepath.Join(dir, "applied")}}
	d.Queue = New(Options{Dir: filepath.Join(dir, "approvals"), Log: d.log, Commits: d.commits,
		Permissions: func(c caller.Caller) caller.Permissions {
			return caller.PermissionsOf(d.rules, c)
		}})
	return d
}

func user(uid uint32, connection string) caller.Caller {
	return caller.Caller{Caller: asuser.Caller{UID: uid, GID: uid}, PID: os.Getpid(),
		Connection: connection}
}

const alice, bob, carol = 1001, 1002, 1003

func held(uid uint32, n int) shadows.HeldCommit {
	return shadows.HeldCommit{UID: uid, Run: fmt.Sprintf("run%d", n), Directory: "/srv/project",
		Prepared: time.Unix(int64(n), 0).UTC(), Changes: shadows.Changes{Added: 1}, Reversible: true,
		Request: shadows.CommitRequest{Digest: "sha256:00"}}
}

func (d *desk) propose(t *testing.T, h shadows.HeldCommit) Action {
	t.Helper()
	a, err := d.ProposeCommit(context.Background(), user(h.UID, "proposer"), h)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (d *desk) approve(c caller.Caller, a Action, scope string) (Action, error) {
	return d.Decide(context.Background(), c, a.ID, DecideRequest{Decision: "approve",
		SHA256: a.SHA256, Scope: scope, Via: "cli"})
}

func (d *desk) read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(d.dir, name))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(text)
}

func (d *desk) applied(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(d.commits.path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Fields(string(text))
}

// wantCode fails unless err is a problem with the code.
func wantCode(t *testing.T, what string, err error, code string) {
	t.Helper()
	if err == nil || problem.From(err).Code != code {
		t.Errorf("%s: %v, want %s", what, err, code)
	}
}

func TestApproveAppliesOnce(t *testing.T) {
	d := deskIn(t.TempDir())
	a := d.propose(t, held(alice, 1))
	if a.State != Pending || len(d.applied(t)) != 0 {
		t.Fatalf("proposed: %+v, applied %v", a, d.applied(t))
	}
	done, err := d.approve(user(alice, "cli"), a, "")
	if err != nil || done.State != Applied || done.Outcome != "c-"+a.ID {
		t.Fatalf("approved: %+v, %v", done, err)
	}
	_, err = d.approve(user(alice, "cli"), a, "")
	wantCode(t, "approved again", err, problem.Conflict)
	if got := d.applied(t); len(got) != 1 {
		t.Errorf("applied %v", got)
	}
	if _, err := d.Revert(context.Background(), user(alice, "cli"), a.ID); err != nil {
		t.Error(err)
	}
	// Another daemon reads the same.
	again, err := deskIn(d.dir).Get(user(alice, "x"), a.ID)
	if err != nil || again.State != Reverted {
		t.Errorf("another daemon: %+v, %v", again, err)
	}
	log, err := os.ReadFile(d.log.path)
	if err != nil {
		t.Fatal(err)
	}
	at := -1
	for _, state := range []string{"pending", "approved", "applied", "reverted"} {
		next := strings.Index(string(log), `"state":"`+state+`"`)
		if next <= at {
			t.Errorf("%s has no place in the log: %s", state, log)
		}
		at = next
	}
}

func TestWhoDecides(t *testing.T) {
	d := deskIn(t.TempDir())
	a := d.propose(t, held(alice, 1))
	_, err := d.approve(user(bob, "cli"), a, "")
	wantCode(t, "another user", err, problem.NotFound)
	if all, err := d.List(user(bob, "cli"), true); err != nil || len(all) != 0 {
		t.Errorf("another user sees %v, %v", all, err)
	}
	_, err = d.approve(user(alice, "proposer"), a, "")
	wantCode(t, "the proposer's connection", err, problem.Refused)
	gone := user(alice, "cli")
	gone.PID = 0
	_, err = d.approve(gone, a, "")
	wantCode(t, "a process that cannot be seen", err, problem.Refused)
	wrong := a
	wrong.SHA256 = strings.Repeat("0", 64)
	_, err = d.approve(user(alice, "cli"), wrong, "")
	wantCode(t, "another digest", err, problem.Conflict)

	d.rules.Approve = &syntax.Audience{Users: []string{fmt.Sprint(carol)}}
	_, err = d.approve(user(alice, "cli"), a, "")
	wantCode(t, "an owner whom the ceiling leaves out", err, problem.Refused)
	_, err = d.approve(user(bob, "cli"), a, "")
	wantCode(t, "another user", err, problem.NotFound)
	if len(d.applied(t)) != 0 {
		t.Fatalf("applied %v", d.applied(t))
	}
	if done, err := d.approve(user(carol, "cli"), a, ""); err != nil || done.State != Applied {
		t.Errorf("whom the ceiling names: %+v, %v", done, err)
	}
}

func TestStale(t *testing.T) {
	d := deskIn(t.TempDir())
	a := d.propose(t, held(alice, 1))
	d.commits.changed = workspace.ErrDigest
	_, err := d.approve(user(alice, "cli"), a, "")
	wantCode(t, "a shadow that changed", err, problem.Conflict)
	if a, err = d.Get(user(alice, "cli"), a.ID); err != nil || a.State != Stale {
		t.Errorf("%+v, %v", a, err)
	}
	d.commits.changed = nil
	_, err = d.approve(user(alice, "cli"), a, "")
	wantCode(t, "a stale action", err, problem.Conflict)
	if got := d.applied(t); len(got) != 0 {
		t.Errorf("applied %v", got)
	}
}

func TestRejectAndWithdraw(t *testing.T) {
	d := deskIn(t.TempDir())
	a, b := d.propose(t, held(alice, 1)), d.propose(t, held(alice, 2))
	r, err := d.Decide(context.Background(), user(alice, "cli"), a.ID,
		DecideRequest{Decision: "reject", SHA256: a.SHA256})
	if err != nil || r.State != Rejected {
		t.Errorf("%+v, %v", r, err)
	}
	_, err = d.Withdraw(user(bob, "cli"), b.ID)
	wantCode(t, "another user", err, problem.NotFound)
	if w, err := d.Withdraw(user(alice, "proposer"), b.ID); err != nil || w.State != Withdrawn {
		t.Errorf("%+v, %v", w, err)
	}
	for _, over := range []Action{a, b} {
		_, err = d.approve(user(alice, "cli"), over, "")
		wantCode(t, "what is over", err, problem.Conflict)
	}
	if all, err := d.List(user(alice, "cli"), false); err != nil || len(all) != 0 {
		t.Errorf("still waiting: %v, %v", all, err)
	}
}

func TestGrants(t *testing.T) {
	d := deskIn(t.TempDir())
	me := user(alice, "cli")
	a := d.propose(t, held(alice, 1))
	for _, scope := range []string{"always", "uses=0", "uses=x", "until=-1h", "until=2000h", "once=1",
		"session=1"} {
		_, err := d.approve(me, a, scope)
		wantCode(t, scope, err, problem.Usage)
	}
	if _, err := d.approve(me, a, "uses=2"); err != nil {
		t.Fatal(err)
	}
	if b := d.propose(t, held(alice, 2)); b.State != Applied {
		t.Errorf("the second of two uses: %+v", b)
	}
	c := d.propose(t, held(alice, 3))
	if c.State != Pending {
		t.Errorf("the third of two uses: %+v", c)
	}
	if _, err := d.approve(me, c, "session"); err != nil {
		t.Fatal(err)
	}
	same := held(alice, 3)
	if got := d.propose(t, same); got.State != Applied {
		t.Errorf("the same run: %+v", got)
	}
	for what, h := range map[string]shadows.HeldCommit{
		"another run":       held(alice, 4),
		"another user":      held(bob, 3),
		"another directory": {UID: alice, Run: "run3", Directory: "/srv/other"},
		"protected names":   with(same, shadows.CommitRequest{IncludeProtected: true}),
		"both sides":        with(same, shadows.CommitRequest{Merge: true}),
		"one side":          with(same, shadows.CommitRequest{Theirs: true}),
		"a branch":          with(same, shadows.CommitRequest{GitOnly: "main"}),
		"another shadow": {UID: alice, Run: "run3", Directory: "/srv/project",
			Prepared: time.Unix(99, 0).UTC()},
	} {
		if got := d.propose(t, h); got.State != Pending {
			t.Errorf("%s: %+v", what, got)
		}
	}
	all, err := d.Grants(me)
	if err != nil || len(all) != 1 {
		t.Fatalf("%v, %v", all, err)
	}
	_, err = d.Revoke(user(bob, "cli"), all[0].ID)
	wantCode(t, "another user", err, problem.NotFound)
	if _, err := d.Revoke(me, all[0].ID); err != nil {
		t.Error(err)
	}
	if got := d.propose(t, same); got.State != Pending {
		t.Errorf("after the grant: %+v", got)
	}
	// Protected names, and a decision by MCP, make no grant.
	p := held(alice, 9)
	p.Request.IncludeProtected = true
	_, err = d.approve(me, d.propose(t, p), "session")
	wantCode(t, "a grant for protected names", err, problem.Usage)
	m := d.propose(t, held(alice, 10))
	_, err = d.Decide(context.Background(), me, m.ID, DecideRequest{Decision: "approve",
		SHA256: m.SHA256, Scope: "session", Via: "mcp"})
	wantCode(t, "a grant by mcp", err, problem.Refused)
}

func with(h shadows.HeldCommit, r shadows.CommitRequest) shadows.HeldCommit {
	h.Request = r
	return h
}

// A grant for a session ends with the session, one of a giver who may no longer decide counts no
// more, and there are only so many.
func TestGrantsEnd(t *testing.T) {
	d := deskIn(t.TempDir())
	me := user(alice, "cli")
	h := held(alice, 1)
	h.Session = true
	if _, err := d.approve(me, d.propose(t, h), "session"); err != nil {
		t.Fatal(err)
	}
	// It was woken meanwhile.
	h.Prepared = time.Unix(50, 0).UTC()
	if a := d.propose(t, h); a.State != Applied {
		t.Errorf("the same session: %+v", a)
	}
	last := h
	last.Session = false
	if a := d.propose(t, last); a.State != Pending {
		t.Errorf("after the session: %+v", a)
	}
	d.rules.Approve = &syntax.Audience{Users: []string{fmt.Sprint(carol)}}
	if a := d.propose(t, h); a.State != Pending {
		t.Errorf("of a giver who may not decide: %+v", a)
	}
	d.rules.Approve = nil
	if a := d.propose(t, h); a.State != Applied {
		t.Errorf("of a giver who may decide again: %+v", a)
	}
	if err := d.EndRun(h.Run); err != nil {
		t.Error(err)
	}
	if a := d.propose(t, h); a.State != Pending {
		t.Errorf("of a session that has ended: %+v", a)
	}
	for n := range maxGrants {
		if _, err := d.approve(me, d.propose(t, held(alice, 100+n)), "session"); err != nil {
			t.Fatal(err)
		}
	}
	one := d.propose(t, held(alice, 99))
	_, err := d.approve(me, one, "session")
	wantCode(t, "one grant more", err, problem.Busy)
	_, err = d.approve(me, one, "until="+strings.Repeat("0", maxScope)+"1h")
	wantCode(t, "a long scope", err, problem.Usage)
	if _, err := d.approve(me, one, ""); err != nil {
		t.Error(err)
	}
}

// What a busy host did not apply is applied later, by no read, and can be rejected, withdrawn and
// expire meanwhile.
func TestBusy(t *testing.T) {
	d := deskIn(t.TempDir())
	me := user(alice, "cli")
	busy := problem.New(problem.Busy, "a session is open")
	d.commits.changed = busy
	var all []Action
	for n := range 4 {
		a := d.propose(t, held(alice, n))
		left, err := d.approve(me, a, "session")
		wantCode(t, "a busy host", err, problem.Busy)
		if left.State != Approved {
			t.Fatalf("%+v", left)
		}
		all = append(all, a)
	}
	tries, lines := d.commits.tries, d.journal.lines
	over, stop := context.WithCancel(context.Background())
	stop()
	for range 3 {
		_, listErr := d.List(me, true)
		_, getErr := d.Get(me, all[0].ID)
		_, grantsErr := d.Grants(me)
		_, waitErr := d.Wait(over, me, all[0].ID)
		if err := errors.Join(listErr, getErr, grantsErr, waitErr); err != nil {
			t.Error(err)
		}
	}
	_, err := d.Revert(over, me, all[0].ID)
	wantCode(t, "revert", err, problem.Conflict)
	if d.commits.tries != tries || d.journal.lines != lines {
		t.Errorf("reads applied: %d tries, were %d; %d lines, were %d", d.commits.tries, tries,
			d.journal.lines, lines)
	}
	if d.tally.all.n != 4 || d.tally.own[alice].bytes == 0 || !d.Applies("run0") ||
		d.Applies("run9") {
		t.Errorf("%+v", d.tally)
	}
	if r, err := d.Decide(context.Background(), me, all[0].ID, DecideRequest{Decision: "reject",
		SHA256: all[0].SHA256}); err != nil || r.State != Rejected {
		t.Errorf("reject: %+v, %v", r, err)
	}
	if w, err := d.Withdraw(me, all[1].ID); err != nil || w.State != Withdrawn {
		t.Errorf("withdraw: %+v, %v", w, err)
	}
	if gs, err := d.Grants(me); err != nil || len(gs) != 2 {
		t.Errorf("grants of what was not applied: %v, %v", gs, err)
	}
	d.expire(t, all[2].ID)
	if a, err := d.Get(me, all[2].ID); err != nil || a.State != Expired {
		t.Errorf("expire: %+v, %v", a, err)
	}
	if left, err := d.recover(); err != nil || left != 1 {
		t.Errorf("still busy: %d left, %v", left, err)
	}
	d.commits.changed = nil
	if left, err := d.recover(); err != nil || left != 0 || len(d.applied(t)) != 1 {
		t.Errorf("%d left, applied %v, %v", left, d.applied(t), err)
	}
	many := d.propose(t, held(alice, 9))
	d.commits.changed = problem.New(problem.Busy, "%w", workspace.ErrManyDirs)
	_, err = d.approve(me, many, "")
	wantCode(t, "too many directories", err, problem.Busy)
	if a, err := d.Get(me, many.ID); err != nil || a.State != Failed {
		t.Errorf("too many directories: %+v, %v", a, err)
	}
	if nextTry(retryFirst, false) != 2*retryFirst || nextTry(retryMost, false) != retryMost ||
		nextTry(retryMost, true) != retryFirst {
		t.Error("no back-off")
	}
}

// expire makes the time of an action over.
func (d *desk) expire(t *testing.T, id string) {
	t.Helper()
	if err := d.step(func(time.Time) (l line, err error) {
		s := *d.actions[id]
		s.Expires = s.Proposed
		l.Actions = []*stored{&s}
		return l, nil
	}); err != nil {
		t.Fatal(err)
	}
}

// An action that is done is applied, whatever fails after it; one that did nothing is stale, and
// what has no outcome is not reverted.
func TestOutcome(t *testing.T) {
	d := deskIn(t.TempDir())
	me := user(alice, "cli")
	d.commits.failAfter = problem.New(problem.Failed, "audit log: no room")
	a, err := d.approve(me, d.propose(t, held(alice, 1)), "")
	if err != nil || a.State != Applied || a.Outcome != "c-"+a.ID {
		t.Errorf("failed after the commit: %+v, %v", a, err)
	}
	d.commits.failAfter, d.commits.empty = nil, true
	b, err := d.approve(me, d.propose(t, held(alice, 2)), "")
	wantCode(t, "nothing to do", err, problem.Conflict)
	if b.State != Stale {
		t.Errorf("nothing to do: %+v", b)
	}
	// A journal of an earlier version may have one.
	if err := d.step(func(time.Time) (l line, err error) {
		s := *d.actions[a.ID]
		s.Outcome = ""
		l.Actions = []*stored{&s}
		return l, nil
	}); err != nil {
		t.Fatal(err)
	}
	_, err = d.Revert(context.Background(), me, a.ID)
	wantCode(t, "no outcome", err, problem.Conflict)
	if err := (Commits{}).Revert(context.Background(), Action{Commit: &Commit{}},
		audit.Actor{}); err == nil {
		t.Error("a revert of no commit")
	}
}

// What a proposal is about is in its digest, and survives the journal.
func TestDigest(t *testing.T) {
	d := deskIn(t.TempDir())
	h := held(alice, 1)
	h.Request.Auto = true
	h.Branch = &workspace.GitRef{Ref: "refs/heads/a", Before: "1", After: "2"}
	a := d.propose(t, h)
	if a.Commit.Request.Auto || !a.held().Request.Auto ||
		!strings.Contains(a.Summary, "only what needs no person") ||
		!strings.Contains(a.Summary, "refs/heads/a from 1 to 2") {
		t.Errorf("%+v", a)
	}
	again, err := deskIn(d.dir).Get(user(alice, "x"), a.ID)
	if err != nil || again.digest() != a.SHA256 || !again.held().Request.Auto ||
		*again.held().Branch != *h.Branch || !again.held().Prepared.Equal(h.Prepared) {
		t.Errorf("from the journal: %+v, %v", again, err)
	}
	seen := map[string]string{a.digest(): "as it was"}
	for what, change := range map[string]func(*Commit){
		"auto":      func(c *Commit) { c.Auto = false },
		"ref":       func(c *Commit) { c.Branch = &workspace.GitRef{Ref: "refs/heads/a", Before: "3"} },
		"shadow":    func(c *Commit) { c.Prepared = time.Unix(99, 0) },
		"directory": func(c *Commit) { c.Directory = "/srv/other" },
	} {
		other, commit := a, *a.Commit
		change(&commit)
		other.Commit = &commit
		if was, ok := seen[other.digest()]; ok {
			t.Errorf("%s has the digest of %s", what, was)
		}
		seen[other.digest()] = what
	}
}

// An approval is for one shadow: another that has the id of the run is stale, and of an action that
// was begun nobody knows the outcome.
func TestAnotherShadow(t *testing.T) {
	h := held(alice, 1)
	h.Directory = workspace.Name("/srv/a\xff").String()
	a := Action{UID: h.UID, Run: h.Run, Policy: "p", Commit: &Commit{Directory: h.Directory,
		Prepared: h.Prepared, Request: h.Request}}
	info := workspace.Info{ID: h.Run, Path: "/srv/a\xff", Prepared: h.Prepared,
		Commits: []workspace.CommitRecord{{ID: "1", Digest: "other"},
			{ID: "2", Digest: h.Request.Digest}}}
	info.Caller.UID = h.UID
	if err := a.held().IsShadow(info); err != nil {
		t.Errorf("the same: %v", err)
	}
	for what, change := range map[string]func(*workspace.Info){
		"directory": func(i *workspace.Info) { i.Path = "/srv/b" },
		"owner":     func(i *workspace.Info) { i.Caller.UID = bob },
		"time":      func(i *workspace.Info) { i.Prepared = i.Prepared.Add(1) },
		"id":        func(i *workspace.Info) { i.ID = "other" },
	} {
		other := info
		change(&other)
		if err := a.held().IsShadow(other); !errors.Is(stale(err), errStale) {
			t.Errorf("another %s: %v", what, err)
		}
		_, _, err := settledIn(other, a, noCommit)
		if wantCode(t, "another "+what, err, problem.Failed); !strings.Contains(fmt.Sprint(err),
			"outcome is unknown") {
			t.Errorf("another %s: %v", what, err)
		}
	}
	for before, want := range map[string]string{noCommit: "2", "1": "2", "2": ""} {
		if id, done, err := settledIn(info, a, before); err != nil || id != want ||
			done != (want != "") {
			t.Errorf("after %s: %q, %v, %v", before, id, done, err)
		}
	}
	_, _, err := settledIn(info, a, "3")
	wantCode(t, "other commits", err, problem.Failed)
}

// Protected names are not approved by way of mcp.
func TestByMCP(t *testing.T) {
	d := deskIn(t.TempDir())
	h := held(alice, 1)
	h.Request.IncludeProtected = true
	a := d.propose(t, h)
	by := func(decision string) error {
		_, err := d.Decide(context.Background(), user(alice, "mcp"), a.ID,
			DecideRequest{Decision: decision, SHA256: a.SHA256, Via: "mcp"})
		return err
	}
	wantCode(t, "approve", by("approve"), problem.Refused)
	if err := by("reject"); err != nil {
		t.Error(err)
	}
}

// One user has so many bytes, and one whose actions are over loses the lists of them first.
func TestBounds(t *testing.T) {
	d := deskIn(t.TempDir())
	h := held(alice, 1)
	for range 1000 {
		h.Request.Paths = append(h.Request.Paths, strings.Repeat("p", 30))
	}
	var last Action
	for n := 0; ; n++ {
		a, err := d.ProposeCommit(context.Background(), user(alice, "p"), h)
		if err != nil {
			wantCode(t, "more bytes", err, problem.Busy)
			break
		}
		if n > maxOwnBytes/30_000 {
			t.Fatalf("%d actions of %d bytes", n, d.actions[a.ID].size())
		}
		last = a
	}
	if b := d.propose(t, held(bob, 1)); b.State != Pending {
		t.Errorf("another user: %+v", b)
	}
	w, err := d.Withdraw(user(alice, "p"), last.ID)
	if err != nil || !w.Trimmed || len(w.Commit.Request.Paths) != 0 || w.SHA256 != last.SHA256 ||
		len(last.Commit.Request.Paths) != 1000 {
		t.Errorf("over: %v, %v", w.Trimmed, err)
	}
}

// Nothing is decided or applied without a record; what was decided meanwhile is applied later.
func TestLogFails(t *testing.T) {
	d := deskIn(t.TempDir())
	a := d.propose(t, held(alice, 1))
	d.log.fail = errors.New("no room")
	_, err := d.approve(user(alice, "cli"), a, "")
	wantCode(t, "approve", err, problem.Failed)
	if !strings.Contains(fmt.Sprint(err), "is decided, and applied once the log has room") {
		t.Errorf("approve: %v", err)
	}
	_, err = d.List(user(alice, "cli"), true)
	wantCode(t, "list", err, problem.Failed)
	if got := d.applied(t); len(got) != 0 {
		t.Fatalf("applied without a record: %v", got)
	}
	d.log.fail = nil
	if err := d.Recover(); err != nil {
		t.Error(err)
	}
	if a, err = d.Get(user(alice, "cli"), a.ID); err != nil || a.State != Applied {
		t.Errorf("%+v, %v", a, err)
	}
	if got := d.applied(t); len(got) != 1 {
		t.Errorf("applied %v", got)
	}
}

func TestDamagedJournal(t *testing.T) {
	d := deskIn(t.TempDir())
	a, b := d.propose(t, held(alice, 1)), d.propose(t, held(alice, 2))
	path := d.journal.path()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// A line that was cut is no step.
	for cut := 1; cut < 40; cut++ {
		if err := os.WriteFile(path, append(whole, whole[:cut]...), 0o600); err != nil {
			t.Fatal(err)
		}
		if all, err := deskIn(d.dir).List(user(alice, "cli"), true); err != nil || len(all) != 2 ||
			all[0].ID != a.ID || all[1].ID != b.ID {
			t.Fatalf("cut at %d: %v, %v", cut, all, err)
		}
	}
	// A whole line of another version is damage, and stays.
	body := `{"actions":[{"id":7}]}`
	foreign := fmt.Appendf(whole[:len(whole):len(whole)], "%08x %s\n",
		crc32.Checksum([]byte(body), castagnoli), body)
	if err := os.WriteFile(path, foreign, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err = deskIn(d.dir).List(user(alice, "cli"), true); !errors.Is(err, errDamaged) {
		t.Errorf("another version: %v", err)
	}
	if now, err := os.ReadFile(path); err != nil || string(now) != string(foreign) {
		t.Errorf("another version was cut off: %v", err)
	}
	changed := append([]byte(strings.Replace(string(whole), "pending", "applied", 1)), whole...)
	if err := os.WriteFile(path, changed, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = deskIn(d.dir).List(user(alice, "cli"), true)
	if wantCode(t, "changed", err, problem.Failed); !errors.Is(err, errDamaged) {
		t.Errorf("changed: %v", err)
	}
}

// Several daemons decide on the same actions at one time, and each is applied once.
func TestManyDaemons(t *testing.T) {
	dir := t.TempDir()
	first := deskIn(dir)
	var all []Action
	for n := range 10 {
		all = append(all, first.propose(t, held(alice, n)))
	}
	var wg sync.WaitGroup
	for n := range 4 {
		d := deskIn(dir)
		wg.Go(func() {
			for _, a := range all {
				if _, err := d.approve(user(alice, fmt.Sprint(n)), a, ""); err != nil &&
					problem.From(err).Code != problem.Conflict {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := first.applied(t); len(got) != len(all) {
		t.Errorf("applied %v", got)
	}
	if left, err := first.List(user(alice, "cli"), false); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// A decision of another daemon ends Wait.
func TestWait(t *testing.T) {
	d := deskIn(t.TempDir())
	a := d.propose(t, held(alice, 1))
	got := make(chan Action, 1)
	go func() {
		w, err := d.Wait(context.Background(), user(alice, "waits"), a.ID)
		if err != nil {
			t.Error(err)
		}
		got <- w
	}()
	if _, err := deskIn(d.dir).approve(user(alice, "cli"), a, ""); err != nil {
		t.Error(err)
	}
	if w := <-got; w.State != Applied {
		t.Errorf("%+v", w)
	}
	over, stop := context.WithCancel(context.Background())
	stop()
	b := d.propose(t, held(alice, 2))
	if w, err := d.Wait(over, user(alice, "waits"), b.ID); err != nil || w.State != Pending {
		t.Errorf("nobody decided: %+v, %v", w, err)
	}
	// The list is waited for in the same way after a change by another daemon.
	seen, err := d.List(user(alice, "waits"), false)
	if err != nil || len(seen) != 1 {
		t.Fatalf("%+v, %v", seen, err)
	}
	if same, err := Changed(over, d.Queue, user(alice, "waits"), Mark(seen)); err != nil ||
		len(same) != 1 {
		t.Errorf("nothing has changed: %+v, %v", same, err)
	}
	lists := make(chan []Action, 1)
	go func() {
		now, err := Changed(context.Background(), d.Queue, user(alice, "waits"), Mark(seen))
		if err != nil {
			t.Error(err)
		}
		lists <- now
	}()
	if _, err := deskIn(d.dir).Withdraw(user(alice, "cli"), b.ID); err != nil {
		t.Error(err)
	}
	if now := <-lists; len(now) != 0 {
		t.Errorf("%+v", now)
	}
}

// The time of an action ends, and the journal becomes short again with the same content.
func TestExpireAndTidy(t *testing.T) {
	d := deskIn(t.TempDir())
	old := d.propose(t, held(alice, 1))
	keep := d.propose(t, held(alice, 2))
	d.expire(t, old.ID)
	if a, err := d.Get(user(alice, "cli"), old.ID); err != nil || a.State != Expired {
		t.Errorf("%+v, %v", a, err)
	}
	_, err := d.approve(user(alice, "cli"), old, "")
	wantCode(t, "expired", err, problem.Conflict)
	most, replaced := 0, 0
	for n := range maxOver + 400 {
		a := d.propose(t, held(alice, n))
		if _, err := d.Withdraw(user(alice, "cli"), a.ID); err != nil {
			t.Fatal(err)
		}
		if d.journal.lines < most {
			replaced++
		}
		most = d.journal.lines
	}
	// Not at each step: 900 actions take 3,600 lines, and half of them may be past.
	if replaced < 1 || replaced > 2 || d.journal.lines > spareLines+2*(maxOver+10) {
		t.Errorf("the journal was replaced %d times, and has %d lines", replaced, d.journal.lines)
	}
	all, err := deskIn(d.dir).List(user(alice, "cli"), true)
	if err != nil || len(all) < maxOver || len(all) > maxOver+100 {
		t.Errorf("%d actions, %v", len(all), err)
	}
	if a, err := deskIn(d.dir).Get(user(alice, "cli"), keep.ID); err != nil ||
		a.SHA256 != keep.SHA256 {
		t.Errorf("%+v, %v", a, err)
	}
}

// 10,000 pending actions take at most 20 MiB, and then there is room for none.
func TestManyPending(t *testing.T) {
	d := deskIn(t.TempDir())
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for n := range maxPending / 100 {
		if err := d.step(func(now time.Time) (l line, err error) {
			for i := range 100 {
				h := held(0, 100*n+i)
				if _, err := d.add(&l, stored{Action: Action{Type: "workspace.commit",
					Run: h.Run, Words: strings.Repeat("w", 100),
					Commit: &Commit{Directory: h.Directory, Request: h.Request}}}, user(0, "c"), now); err != nil {
					return l, err
				}
			}
			return l, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if took := int64(after.HeapAlloc) - int64(before.HeapAlloc); took > 20<<20 {
		t.Errorf("%d pending actions take %d KiB", len(d.actions), took>>10)
	} else {
		t.Logf("%d pending actions take %d KiB", len(d.actions), took>>10)
	}
	_, err := d.ProposeCommit(context.Background(), user(0, "c"), held(0, 0))
	wantCode(t, "one more", err, problem.Busy)
	runtime.KeepAlive(d)
}

func BenchmarkPropose(b *testing.B) {
	d := deskIn(b.TempDir())
	n := 0
	for b.Loop() {
		if n++; n%9000 == 0 {
			d = deskIn(b.TempDir())
		}
		if _, err := d.ProposeCommit(context.Background(), user(0, "p"), held(0, n)); err != nil {
			b.Fatal(err)
		}
	}
}
