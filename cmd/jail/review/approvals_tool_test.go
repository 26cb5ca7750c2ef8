package review_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/approvals"
	"github.com/jail-sandbox/jail/supervisor/message"
)

// askForTool is a policy with a rule for tools, beside what it grants.
func askForTool(grants, tool, mode string) string {
	return "policy = 1\nname = \"asking\"\n" + grants + "[[approve]]\naction = \"tool\"\n" +
		fmt.Sprintf("tool = %q\nmode = %q\n", tool, mode)
}

// coreUtils grants few tools: a script whose commands nobody knows compiles all of them.
const coreUtils = "include = [\"base\"]\n[workspace]\naccess = \"shadow\"\n" +
	"[tools]\nallow = [\"core-utils/*\"]\n"

// toolWaits runs a command that needs an approval and returns the action.
func toolWaits(h *cmdtest.Host, args ...string) approvals.Action {
	h.T.Helper()
	return toolAsked(h, h.Jail(args...))
}

func toolAsked(h *cmdtest.Host, o cmdtest.Outcome) approvals.Action {
	h.T.Helper()
	var res message.Result
	if err := json.Unmarshal([]byte(o.Out), &res); err != nil || o.Code != 126 || res.Error == nil ||
		res.Error.Code != "approval_pending" || res.ExitCode != 126 {
		h.T.Fatalf("%v: %+v", err, o)
	}
	for _, a := range actionsOf(h) {
		if a.ID == res.Error.Approval && a.State == approvals.Pending && a.Tool != nil {
			return a
		}
	}
	h.T.Fatalf("no action %q: %+v", res.Error.Approval, o)
	return approvals.Action{}
}

// A tool that is held back starts once for each approval, with what was shown and nothing else.
func TestApproveTool(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	h.Write(map[string]string{"a": "one two\n",
		"asking.toml": askForTool(coreUtils, "wc", "ask"),
		"native.toml": askForTool("include = [\"build\"]\n", "/usr/bin/env", "ask"),
		"never.toml":  askForTool(coreUtils, "core-utils/*", "never")})
	in := func(policy string, args ...string) []string {
		return append([]string{"run", "--discard", "--json", "--policy",
			filepath.Join(h.Work, policy)}, args...)
	}
	count := in("asking.toml", "--id", "counts", "--", "wc", "-w", "a")
	a := toolWaits(h, count...)
	if again := toolWaits(h, count...); again.ID != a.ID {
		t.Errorf("the same start waits twice: %+v", again)
	}
	if a.Tool.Name != "core-utils/wc" || !strings.HasPrefix(a.Tool.Digest, "sha256:") ||
		strings.Join(a.Tool.Args, " ") != "-w a" || a.Tool.Directory != h.Work || a.Tool.Session {
		t.Errorf("%+v", a.Tool)
	}
	h.Wants(h.Jail("approvals", "approve", "--scope", "session", a.ID), 2, "would not be used")
	h.Wants(h.Jail("approvals", "approve", a.ID), 0, "")
	for _, other := range [][]string{{"--", "wc", "-c", "a"}, {"--env", "A=b", "--", "wc", "-w", "a"}} {
		if o := toolWaits(h, in("asking.toml", other...)...); o.ID == a.ID {
			t.Errorf("%q starts with the approval of another", other)
		}
	}
	h.Says(h.Jail(count...), 0, "2 a")
	if next := toolWaits(h, count...); next.ID == a.ID {
		t.Error("an approval counts twice")
	}
	h.Says(h.Jail(in("asking.toml", "--", "cat", "a")...), 0, "one two")

	var got []string
	for line := range strings.Lines(h.Jail("audit", "query", "--run", "counts", "--json").Out) {
		var r struct{ Type, State string }
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if r.Type == "approval" || r.Type == "run.started" {
			got = append(got, strings.TrimPrefix(r.Type+" "+r.State, "approval "))
		}
	}
	if text := strings.Join(got, ", "); !strings.Contains(text,
		"pending, approved, applied, run.started ") {
		t.Errorf("records %q", text)
	}

	// A script that names the tool, and one whose commands nobody knows before.
	script := func(text string) []string {
		return []string{"sh", "--discard", "--json", "--policy", filepath.Join(h.Work, "asking.toml"),
			"-c", text}
	}
	s := toolWaits(h, script("cat a | wc -w")...)
	if s.Tool.Name != "core-utils/wc" || !strings.Contains(s.Summary, "cat a | wc -w") {
		t.Errorf("%+v", s)
	}
	h.Wants(h.Jail("approvals", "approve", s.ID), 0, "")
	h.Says(h.Jail(script("cat a | wc -w")...), 0, `"stdout":"2`)
	h.Says(h.Jail(script("x=wc; $x -w a || cat a")...), 0, "one two")

	n := toolWaits(h, in("native.toml", "--", "env", "printf", "x%s", "y")...)
	if n.Tool.Name != "/usr/bin/env" {
		t.Errorf("%+v", n)
	}
	h.Wants(h.Jail("approvals", "reject", n.ID), 0, "")
	h.Wants(h.Jail(in("never.toml", "--", "wc", "a")...), 126, "mode never")
}

// A tool that is held back asks once in a session; after the grant is revoked it asks again, and so
// does another session.
func TestApproveToolOfSession(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	h.Write(map[string]string{"a": "one two\n",
		"asking.toml": askForTool(coreUtils, "wc", "ask")})
	policy := filepath.Join(h.Work, "asking.toml")
	one, two := h.Session("--policy", policy), h.Session("--policy", policy)
	exec := func(id string, args ...string) []string {
		return append([]string{"session", "exec", "--json", id, "--", "wc"}, args...)
	}
	a := toolWaits(h, exec(one, "-w", "a")...)
	if !a.Tool.Session || a.Run != h.GlobalID(one) {
		t.Errorf("%+v", a)
	}
	h.Wants(h.Jail("approvals", "approve", a.ID), 0, "")
	h.Says(h.Jail(exec(one, "-w", "a")...), 0, "2 a")
	h.Says(h.Jail(exec(one, "-c", "a")...), 0, "8 a")
	b := toolWaits(h, exec(two, "-w", "a")...)
	h.Wants(h.Jail("approvals", "approve", "--scope", "once", b.ID), 0, "")
	h.Says(h.Jail(exec(two, "-w", "a")...), 0, "2 a")
	toolWaits(h, exec(two, "-w", "a")...)

	var grants []approvals.Grant
	o := h.Jail("approvals", "grants", "--json")
	if err := json.Unmarshal([]byte(o.Out), &grants); err != nil || len(grants) != 1 ||
		grants[0].Tool != "core-utils/wc" || grants[0].Scope != "session" {
		t.Fatalf("%v: %+v", err, o)
	}
	h.Wants(h.Jail("approvals", "revoke", grants[0].ID), 0, "")
	toolWaits(h, exec(one, "-w", "a")...)
	for _, id := range []string{one, two} {
		h.StopSession(id, 0)
	}
}

// The operator's program is started as the owner of an action, with the action and nothing else;
// with mcp = false nobody decides by mcp, and with a mistake in the file no daemon starts.
func TestApprovalSettings(t *testing.T) {
	h := cmdtest.New(t)
	told := filepath.Join(h.Root, "told")
	if err := errors.Join(os.Mkdir(told, 0o777), os.Chmod(told, 0o777)); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(h.Root, "tell")
	script := "#!/bin/sh\nexec > " + told + "/new\n" +
		"echo \"$(id -u) $(id -g) $1 $PWD $(env | grep -c JAIL)\"\ncat\n" +
		"mv " + told + "/new " + told + "/$(id -u)\n"
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	settings := filepath.Join(h.State, "approvals.toml")
	for _, text := range []string{"mcp = 1\n", "mpc = false\n", "notify = [\"tell\"]\n"} {
		if err := os.WriteFile(settings, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		h.Wants(h.Jail("run", "--no-workspace", "--", "true"), 2, "approvals.toml:1:")
		h.Says(h.Jail("doctor"), 1, "approvals.toml:1:")
	}
	if err := os.WriteFile(settings, fmt.Appendf(nil, "mcp = false\nnotify = [%q, \"-q\"]\n",
		program), 0o600); err != nil {
		t.Fatal(err)
	}
	h.Daemon().Admit()
	h.Write(map[string]string{"a": "one\n",
		"asking.toml": askForTool(coreUtils, "wc", "ask")})
	policy := filepath.Join(h.Work, "asking.toml")
	run := h.Command("run", "--json", "--no-workspace", "--policy", policy, "--", "wc", "a")
	notified(h, told, toolAsked(h, h.Run(cmdtest.As(run, 1))))
	a := toolWaits(h, "run", "--json", "--policy", policy, "--", "wc", "a")
	notified(h, told, a)
	c, err := api.Dial(t.Context(), filepath.Join(h.State, "jail.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, decision := range []string{"approve", "reject"} {
		if _, err := c.Approvals().Decide(t.Context(), a.ID, approvals.DecideRequest{
			Decision: decision, SHA256: a.SHA256, Via: "mcp"}); err == nil ||
			!strings.Contains(err.Error(), "lets nobody decide by mcp") {
			t.Errorf("%s by mcp: %v", decision, err)
		}
	}
	h.Wants(h.Jail("approvals", "reject", a.ID), 0, "")
}

// notified waits until the operator's program has written what it got.
func notified(h *cmdtest.Host, dir string, a approvals.Action) {
	h.T.Helper()
	var text []byte
	cmdtest.Eventually(h.T, "the program is started", func() (ok bool) {
		var err error
		text, err = os.ReadFile(filepath.Join(dir, fmt.Sprint(a.UID)))
		return err == nil
	})
	first, rest, _ := strings.Cut(string(text), "\n")
	if want := fmt.Sprintf("%d %[1]d -q / 0", a.UID); first != want {
		h.T.Errorf("the program says %q, want %q", first, want)
	}
	var said approvals.Action
	if err := json.Unmarshal([]byte(rest), &said); err != nil || said.ID != a.ID ||
		said.SHA256 != a.SHA256 {
		h.T.Errorf("%v: %q", err, rest)
	}
}
