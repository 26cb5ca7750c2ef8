package agent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
	"github.com/jail-sandbox/jail/supervisor/approvals"
)

// toolPolicy is what the profile agent grants, a workspace, and a question before sort starts.
const toolPolicy = `policy = 1
name = "tools"
include = ["agent"]
[workspace]
access = "shadow"
commit = "ask"
[limits]
workspace = "16MiB"
workspace_files = 100
[[approve]]
action = "tool"
tool = "core-utils/sort"
mode = "ask"
`

// command is a call of a tool.
func command(argv ...string) call {
	return call{"HOST", "command", map[string]any{"argv": argv, "stdin": "b\na\n"}}
}

// TestAgentTools: an agent runs the tools of its manifest over a shadow, and no others that its policy
// grants. A tool that needs an approval, and what the agent proposes, wait in jaild's queue, also
// while jail-agentd is killed, and the decision wakes the agent.
func TestAgentTools(t *testing.T) {
	h := cmdtest.New(t)
	cmdtest.CompiledBundles(h, "core-utils")
	a := startAgentd(t, h)
	site := filepath.Join(h.Work, "site")
	dir := filepath.Join(h.Work, "tools")
	for _, d := range []string{site, dir} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	compiled(t, h, cmdtest.Must(guest())(t))
	module, err := os.ReadFile(cmdtest.Must(guest())(t))
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{filepath.Join(site, "a.txt"): "one\n",
		filepath.Join(dir, "agent.wasm"): string(module), filepath.Join(dir, "policy.toml"): toolPolicy,
		filepath.Join(dir, "agent.toml"): fmt.Sprintf("agent = 1\ntype = \"agent\"\nname = \"tools\"\n"+
			"module = \"agent.wasm\"\npolicy = \"policy.toml\"\n[capabilities]\nstorage = true\n"+
			"tools = [\"core-utils/*\"]\n[tools]\nworkspace = %q\n", site)} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.Add(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	ask := func(calls ...call) string {
		t.Helper()
		sent := a.send("tools", "", cmdtest.Bound, map[string]any{"calls": calls})
		if sent.State != agentapi.Committed || len(sent.Published) != 1 {
			t.Fatalf("%+v", sent)
		}
		return string(sent.Published[0].Data)
	}
	wants := func(what, got string, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if !strings.Contains(got, part) {
				t.Errorf("%s: no %s in\n%s", what, part, got)
			}
		}
	}
	wants("tools", ask(command("wc", "-l"), command("cp", "a.txt", "b.txt"), command("ls", "none")),
		`"exitCode":0,"stdout":"2\n"`, `"exitCode":1,"stdout":""`)
	wants("the shadow is kept between events", ask(command("cat", "b.txt")), `"stdout":"one\n"`)
	if _, err := os.Stat(filepath.Join(site, "b.txt")); err == nil {
		t.Error("the real directory has what a tool wrote")
	}
	wants("the review", h.Jail("diff", "agent-tools-main").Out, "b.txt")
	inConversation := func(conversation string, argv ...string) call {
		c := command(argv...)
		c.Params["conversation"] = conversation
		return c
	}
	propose := func(conversation, words string) call {
		return call{"HOST", "proposeChanges",
			map[string]any{"conversation": conversation, "words": words}}
	}
	wants("conversations see the directory, and not each other",
		ask(inConversation("one", "cp", "a.txt", "c.txt"), inConversation("two", "ls")),
		`"stdout":"a.txt\n"`)
	wants("a proposal", ask(propose("one", "a first draft")), `"state":"pending","added":1`)
	draft := waiting(h)
	wants("another one", ask(inConversation("one", "cp", "a.txt", "d.txt"),
		propose("one", "it is better")), `"state":"pending","added":2`)
	better := waiting(h)
	if better.ID == draft.ID || better.Words != "it is better" {
		t.Errorf("%+v after %+v", better, draft)
	}
	wants("the preview", h.Jail("diff", "agent-tools-main.C-one").Out, "c.txt", "d.txt")
	h.Wants(h.Jail("approvals", "approve", better.ID), 0, "")
	there := func(want string) {
		t.Helper()
		entries, err := os.ReadDir(site)
		if got := fmt.Sprint(entries); err != nil || got != want {
			t.Errorf("the directory has %s, want %s, %v", got, want, err)
		}
	}
	there("[- a.txt - c.txt - d.txt]")
	h.Wants(h.Jail("approvals", "revert", better.ID), 0, "")
	there("[- a.txt]")
	wants("no conversation", ask(call{"HOST", "discardChanges",
		map[string]any{"conversation": "two"}}), `"result":{}`)
	if o := h.Jail("session", "list", "--json"); strings.Contains(o.Out, "C-two") {
		t.Errorf("the session of a conversation that is discarded: %s", o.Out)
	}
	// The policy grants it, as that of any agent in Python, and the manifest does not.
	wants("a tool that the manifest does not name", ask(command("python/python3", "-c", "1")),
		`"code":"forbidden"`)
	wants("a tool that waits", ask(command("core-utils/sort")), `"code":"pending"`)
	tool := waiting(h)
	h.Wants(h.Jail("approvals", "approve", tool.ID), 0, "")
	committed := func(n uint64) {
		t.Helper()
		cmdtest.Eventually(t, fmt.Sprintf("event %d is committed", n), func() bool {
			i, ok := a.look("tools")
			return ok && i.Committed >= n
		})
	}
	committed(11)
	wants("it may start now", ask(command("core-utils/sort")), `"stdout":"a\nb\n"`)
	ask(call{"HOST", "propose", map[string]any{"action": map[string]any{"type": "deploy",
		"resource": "web", "words": "it is green", "n": 7}}})
	deploy := waiting(h)
	if g := deploy.Gate; g == nil || g.Gatekeeper != "tools" || g.Action != "deploy" ||
		g.Resource != "web" || !strings.Contains(g.Args, `"n":7`) || deploy.Words != "it is green" ||
		deploy.Agent != "agent:root:tools" {
		t.Errorf("%+v, %+v", deploy, g)
	}
	a.End(syscall.SIGKILL)
	h.Wants(h.Jail("approvals", "approve", deploy.ID), 0, "")
	a.Start()
	committed(14)
	cmdtest.Eventually(t, "the queue knows that the agent was told", func() bool {
		return strings.Contains(h.Jail("approvals", "show", "--json", deploy.ID).Out,
			`"state": "applied"`)
	})
	// What somebody else has written meanwhile stays, and what is refused is not there.
	wants("a third proposal", ask(inConversation("three", "cp", "a.txt", "e.txt"), propose("three", "")),
		`"state":"pending","added":1`)
	mine := filepath.Join(site, "e.txt")
	if err := os.WriteFile(mine, []byte("mine\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	h.Wants(h.Jail("approvals", "approve", waiting(h).ID), 126, "is stale, and nothing was done")
	wants("a fourth one", ask(propose("three", "once more")), `"state":"pending"`)
	h.Wants(h.Jail("approvals", "reject", waiting(h).ID), 0, "")
	if text, err := os.ReadFile(mine); err != nil || string(text) != "mine\n" {
		t.Errorf("what somebody else wrote is %q, %v", text, err)
	}
	if err := a.Delete(t.Context(), "tools"); err != nil {
		t.Fatal(err)
	}
	if o := h.Jail("session", "list", "--json"); strings.Contains(o.Out, "agent-tools-main") {
		t.Errorf("the session of an agent that is deleted: %s", o.Out)
	}
	// What its tools changed waits for a review still.
	for _, id := range []string{"agent-tools-main", "agent-tools-main.C-one",
		"agent-tools-main.C-three"} {
		h.Wants(h.Jail("discard", id), 0, "")
	}
}

// waiting returns the action that waits for an approval.
func waiting(h *cmdtest.Host) (one approvals.Action) {
	h.T.Helper()
	cmdtest.Eventually(h.T, "an action waits", func() bool {
		var all []approvals.Action
		return json.Unmarshal([]byte(h.Jail("approvals", "list", "--json").Out), &all) == nil &&
			len(all) == 1 && func() bool { one = all[0]; return true }()
	})
	return one
}
