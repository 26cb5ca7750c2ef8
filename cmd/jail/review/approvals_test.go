package review_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/supervisor/approvals"
)

// asking is a policy under which a commit waits for an approval.
const asking = "policy = 1\nname = \"asking\"\ninclude = [\"default\"]\n" +
	"[[approve]]\naction = \"workspace.commit\"\nmode = \"ask\"\n"

// actions returns what jail approvals prints.
func actionsOf(h *cmdtest.Host, flags ...string) (all []approvals.Action) {
	h.T.Helper()
	o := h.Jail(append([]string{"approvals", "list", "--json"}, flags...)...)
	if err := json.Unmarshal([]byte(o.Out), &all); err != nil || o.Code != 0 {
		h.T.Fatalf("approvals: %v, %+v", err, o)
	}
	return all
}

// waitingCommit makes a shadow with a change of the file a and proposes its commit.
func waitingCommit(h *cmdtest.Host, id, policy string, flags ...string) approvals.Action {
	h.T.Helper()
	o := h.Jail("run", "--policy", policy, "--id", id, "--keep", "--quiet", "--", "tee", "a")
	h.Wants(o, 0, "")
	h.Wants(h.Jail(append([]string{"commit", id}, flags...)...), 126,
		"waits for an approval: write 0 added, 1 modified and 0 deleted paths to ")
	all := actionsOf(h)
	if len(all) != 1 || all[0].Run != id || all[0].State != approvals.Pending {
		h.T.Fatalf("waiting: %+v", all)
	}
	return all[0]
}

func wantA(h *cmdtest.Host, text string) {
	h.T.Helper()
	if got, err := os.ReadFile(filepath.Join(h.Work, "a")); err != nil || string(got) != text {
		h.T.Errorf("a is %q, %v, want %q", got, err, text)
	}
}

// A commit waits for an approval, is made once, and is reverted; the log says so in order. It needs
// no daemon that lives meanwhile.
func TestApproveCommit(t *testing.T) {
	h := cmdtest.New(t)
	h.Write(map[string]string{"a": "mine\n", "asking.toml": asking})
	policy := filepath.Join(h.Work, "asking.toml")
	a := waitingCommit(h, "waits", policy)
	wantA(h, "mine\n")
	shown := h.Jail("approvals", "show", a.ID)
	h.Wants(shown, 0, "")
	for _, text := range []string{a.SHA256, "run:       waits", "state:     pending"} {
		if !strings.Contains(shown.Out, text) {
			t.Errorf("show has no %q: %s", text, shown.Out)
		}
	}
	h.Wants(h.Jail("approvals", "approve", "--sha256", strings.Repeat("0", 64), a.ID), 126,
		"is not that of action")
	h.Wants(h.Jail("approvals", "approve", "none"), 127, `no action "none"`)
	h.Wants(h.Jail("approvals", "approve", a.ID), 0, "")
	wantA(h, "")
	h.Wants(h.Jail("approvals", "approve", a.ID), 126, "is applied: nothing is decided any more")
	h.Wants(h.Jail("approvals", "revert", a.ID), 0, "")
	wantA(h, "mine\n")
	if all := actionsOf(h, "--all"); len(all) != 1 || all[0].State != approvals.Reverted {
		t.Errorf("at last: %+v", all)
	}
	var got []string
	query := h.Jail("audit", "query", "--run", "waits", "--json")
	for line := range strings.Lines(query.Out) {
		var r struct {
			Type, State, Via string
			Begun            bool
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		switch {
		case r.Type == "approval":
			got = append(got, strings.TrimSpace(r.State+" "+r.Via))
		case strings.HasPrefix(r.Type, "workspace.") && r.Begun:
			got = append(got, r.Type)
		}
	}
	want := "pending, approved cli, workspace.committed, applied cli, workspace.reverted, reverted cli"
	if strings.Join(got, ", ") != want {
		t.Errorf("records %q, want %q", strings.Join(got, ", "), want)
	}
	h.Discard("waits")
}

// What changed since it was shown is stale, and nothing is written.
func TestStaleCommit(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	h.Write(map[string]string{"a": "mine\n", "asking.toml": asking})
	policy := filepath.Join(h.Work, "asking.toml")
	t.Run("the shadow", func(t *testing.T) {
		a := waitingCommit(h, "shadow", policy)
		h.Wants(h.Jail("discard", "shadow", "a"), 0, "")
		h.Wants(h.Jail("approvals", "approve", a.ID), 126, "is stale, and nothing was done")
		wantA(h, "mine\n")
	})
	t.Run("the directory", func(t *testing.T) {
		a := waitingCommit(h, "real", policy)
		h.Write(map[string]string{"a": "mine again\n"})
		h.Wants(h.Jail("approvals", "approve", a.ID), 126, "is stale, and nothing was done")
		wantA(h, "mine again\n")
	})
	if all := actionsOf(h, "--all"); len(all) != 2 || all[0].State != approvals.Stale ||
		all[1].State != approvals.Stale {
		t.Errorf("actions: %+v", all)
	}
	h.Discard("shadow", "real")
}

// --propose asks where no policy does, the words of the proposer stand apart, and nothing gets past
// the queue: neither --commit nor workspace.commit = "auto".
func TestProposeCommit(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	h.Write(map[string]string{"a": "mine\n", "asking.toml": asking,
		"auto.toml": strings.Replace(asking, "[[", "[workspace]\ncommit = \"auto\"\n[[", 1)})
	h.Wants(h.Jail("run", "--id", "plain", "--keep", "--quiet", "--", "tee", "a"), 0, "")
	o := h.Jail("commit", "--propose", "--words", "trust \x1b[31mme", "plain")
	h.Wants(o, 0, "")
	id := strings.TrimSpace(o.Out)
	shown := h.Jail("approvals", "show", id)
	if !strings.Contains(shown.Out, "the proposer says, and it may be wrong: trust \\x1b[31mme\n") {
		t.Errorf("show: %s", shown.Out)
	}
	h.Wants(h.Jail("approvals", "reject", id), 0, "")
	h.Wants(h.Jail("approvals", "approve", id), 126, "is rejected")
	wantA(h, "mine\n")
	h.Wants(h.Jail("discard", "plain"), 0, "")

	for id, args := range map[string][]string{
		"flag": {"--commit", "--policy", filepath.Join(h.Work, "asking.toml")},
		"auto": {"--policy", filepath.Join(h.Work, "auto.toml")}} {
		o := h.Jail(append(append([]string{"run", "--id", id, "--quiet", "--json"}, args...), "--",
			"tee", "a")...)
		var r struct {
			Error struct{ Code, Approval string }
		}
		if err := json.Unmarshal([]byte(o.Out), &r); err != nil || o.Code != 126 ||
			r.Error.Code != "approval_pending" || r.Error.Approval == "" {
			t.Fatalf("%s: %v, %+v", id, err, o)
		}
		wantA(h, "mine\n")
		h.Wants(h.Jail("approvals", "approve", r.Error.Approval), 0, "")
		wantA(h, "")
		h.Wants(h.Jail("approvals", "revert", r.Error.Approval), 0, "")
		wantA(h, "mine\n")
		h.Discard(id)
	}
	// A session asks once, at its end.
	id = h.Session("--policy", filepath.Join(h.Work, "auto.toml"))
	for range 2 {
		h.Wants(h.Jail("session", "exec", id, "--", "tee", "a"), 0, "")
	}
	if o := h.Jail("approvals", "--json"); strings.TrimSpace(o.Out) != "[]" {
		t.Errorf("an open session has proposed %+v", o)
	}
	h.Wants(h.Jail("session", "stop", id), 126, "")
	wantA(h, "mine\n")
	h.Discard(id)
}

// A grant lets commits of a session pass until it is revoked.
func TestGrantCommits(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	h.Write(map[string]string{"a": "mine\n", "asking.toml": asking})
	id := h.Session("--policy", filepath.Join(h.Work, "asking.toml"))
	change := func(text string) {
		t.Helper()
		h.Wants(h.Jail("session", "exec", id, "--", "cp", text, "a"), 0, "")
	}
	h.Write(map[string]string{"one": "1\n", "two": "2\n", "three": "3\n"})
	change("one")
	h.Wants(h.Jail("commit", id), 126, "waits for an approval")
	waiting := actionsOf(h)
	if len(waiting) != 1 {
		t.Fatalf("waiting: %+v", waiting)
	}
	h.Wants(h.Jail("approvals", "approve", "--scope", "session", waiting[0].ID), 0, "")
	wantA(h, "1\n")
	change("two")
	h.Wants(h.Jail("commit", id), 0, "")
	wantA(h, "2\n")
	var grants []approvals.Grant
	o := h.Jail("approvals", "grants", "--json")
	if err := json.Unmarshal([]byte(o.Out), &grants); err != nil || len(grants) != 1 ||
		grants[0].Run != id {
		t.Fatalf("grants: %v, %+v", err, o)
	}
	h.Wants(h.Jail("approvals", "revoke", grants[0].ID), 0, "")
	change("three")
	h.Wants(h.Jail("commit", id), 126, "waits for an approval")
	wantA(h, "2\n")
	h.Wants(h.Jail("session", "stop", "--discard", id), 0, "")
}

// A policy that forbids commits by approve lets nobody approve one.
func TestApproveNever(t *testing.T) {
	h := cmdtest.New(t)
	h.Write(map[string]string{"a": "mine\n",
		"never.toml": strings.Replace(asking, `"ask"`, `"never"`, 1)})
	h.Wants(h.Jail("run", "--policy", filepath.Join(h.Work, "never.toml"), "--id", "never",
		"--keep", "--quiet", "--", "tee", "a"), 0, "")
	h.Wants(h.Jail("commit", "never"), 126, "never")
	h.Wants(h.Jail("commit", "--propose", "never"), 126, "never")
	if all := actionsOf(h, "--all"); len(all) != 0 {
		t.Errorf("actions: %+v", all)
	}
	h.Discard("never")
}
