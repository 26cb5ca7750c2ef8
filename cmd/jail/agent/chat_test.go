package agent_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/supervisor/transcript"
)

// chatSession returns the one session of the loop, with its events.
func chatSession(t *testing.T, h *cmdtest.Host) (string, []transcript.Event) {
	t.Helper()
	var all []transcript.Summary
	o := h.Jail("agent", "sessions", "--json")
	if err := json.Unmarshal([]byte(o.Out), &all); err != nil || len(all) != 1 {
		t.Fatalf("sessions: %+v, %v", o, err)
	}
	o = h.Jail("agent", "transcript", all[0].ID)
	var events []transcript.Event
	d := json.NewDecoder(strings.NewReader(o.Out))
	for d.More() {
		var e transcript.Event
		if err := d.Decode(&e); err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	return all[0].ID, events
}

// TestChat: somebody talks to a model at a terminal. Its tools are asked about once and work on the
// shadow; Ctrl-C ends a turn and not the session; a commit takes the changes over; after a kill the
// session goes on; a replay of all that is equal, and the key is nowhere.
func TestChat(t *testing.T) {
	h := cmdtest.New(t)
	h.Files(map[string]string{"notes": "one\n", ".claude/commands/greet.md": "Greet $ARGUMENTS.\n",
		".jail/skills/knit/SKILL.md": "Knit one, purl one.\n"})
	steps := []string{`Read {"file_path":"notes"}`,
		`Edit {"file_path":"notes","old_string":"one","new_string":"two"}`,
		`Bash {"command":"cat notes; env; cat /proc/*/environ"}`, `SlashCommand {"command":"/greet all"}`,
		"all done"}
	m := cmdtest.StartModel(h, append(steps, "hold")...)
	h.Daemon()
	cmdtest.StartAgentd(h)
	x := cmdtest.NewTerminal(t)
	cmd := h.Command("agent", "chat", "--allow", "Read", "--allow", "Sl*")
	x.Start(cmd)
	x.Shows("/help lists the commands")
	x.Types("change it\n")
	for _, tool := range []string{"Edit", "Bash"} {
		x.Shows("Allow " + tool + "?")
		x.Types("y\n")
	}
	x.Shows("all done")
	x.Types("/diff notes\n")
	x.Shows("+two")
	x.Types("/commit\n")
	x.Shows("[y/N]")
	if text := realFile(t, h, "notes"); text != "one\n" {
		t.Errorf("before the commit the real file is %q", text)
	}
	x.Types("y\n")
	x.Shows("committed")
	if text := realFile(t, h, "notes"); text != "two\n" {
		t.Errorf("after the commit the real file is %q", text)
	}
	x.Types("think\n")
	x.Shows("thinking")
	x.Types(cmdtest.CtrlC)
	x.Shows("interrupted")
	x.Types("/status\n")
	x.Shows("allowed: Bash, Edit")
	x.Types("/revoke Edit\n/status\n")
	x.Shows("allowed: Bash\r\n")
	// In the middle of a turn the process is killed: it is asked again about what it was asked.
	x.Types("think again\n")
	x.Shows("thinking")
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	id, before := chatSession(t, h)
	m.Release()
	m.Set(append(steps, `Bash {"command":"echo more >> notes"}`, "that was it")...)
	// What was allowed before is allowed now, without anybody to ask; what was not is not.
	o := h.Jail("agent", "chat", "--resume", id, "--say", "go on")
	h.Says(o, 0, "")
	if !strings.Contains(o.Out, "that was it") {
		t.Errorf("resumed: %+v", o)
	}
	_, after := chatSession(t, h)
	types := map[string]bool{}
	for _, e := range after {
		types[e.Type] = true
	}
	for _, want := range []string{transcript.Init, transcript.UserMessage, transcript.AssistantMessage,
		transcript.ToolUse, transcript.ToolResult, transcript.PermissionQuestion,
		transcript.PermissionDecision, transcript.WorkspaceImport, transcript.WorkspaceDiff,
		transcript.WorkspaceCommit, transcript.Result} {
		if !types[want] {
			t.Errorf("the session has no event of the type %s", want)
		}
	}
	if len(after) <= len(before) || !after[len(before)].Start.Resumed {
		t.Errorf("%d events, then %d", len(before), len(after))
	}
	ran := 0
	for _, e := range after {
		if e.Type == transcript.ToolResult && e.Tool == "Bash" {
			ran++
			if e.IsError && ran == 2 {
				t.Errorf("the second command: %s", e.Text)
			}
			if strings.Contains(e.Text, cmdtest.ModelKey) {
				t.Error("a command has found the key")
			}
		}
		if e.Type == transcript.ToolResult && e.Tool == "SlashCommand" && e.Text != "Greet all.\n" {
			t.Errorf("the command says %q", e.Text)
		}
	}
	if ran != 2 {
		t.Errorf("%d commands ran", ran)
	}
	if o := h.Jail("agent", "replay", id); o.Code != 0 || !strings.Contains(o.Out, "all equal") {
		t.Errorf("replay: %+v", o)
	}
	exported := filepath.Join(h.Root, "s.jsonl")
	text := h.Jail("agent", "transcript", id).Out
	if err := os.WriteFile(exported, []byte(strings.Replace(text, "change it", "change all", 1)),
		0o644); err != nil {
		t.Fatal(err)
	}
	h.Says(h.Jail("agent", "replay", exported), 0, "")
	if err := os.WriteFile(exported, []byte(strings.Replace(text, `"all done"`, `"all dome"`, 1)),
		0o644); err != nil {
		t.Fatal(err)
	}
	// The check has failed, and nothing of jail.
	if o := h.Jail("agent", "replay", exported); o.Code != 1 ||
		!strings.Contains(o.Err, "replay of "+exported+": ") {
		t.Errorf("a changed transcript: %+v", o)
	}
	for text, why := range map[string]string{"": "it has no events", `{"x":1}`: `event 1: unknown field "x"`} {
		if err := os.WriteFile(exported, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if o := h.Jail("agent", "replay", exported); o.Code != 2 || !strings.HasPrefix(o.Err,
			"jail: error: transcript "+exported+": "+why+"\n") {
			t.Errorf("a transcript %q: %+v", text, o)
		}
	}
	// The key is in the file of the operator, and nowhere else below the state directory.
	if got, want := cmdtest.Holding(h, cmdtest.ModelKey), map[string]string{
		filepath.Join(h.Root, "secret"): cmdtest.ModelKey}; !maps.Equal(got, want) {
		t.Errorf("the key is in %v", got)
	}
	// A message that is too long is one sentence, and not the end of all lines without a word.
	long := h.Command("agent", "chat", "--resume", id)
	long.Stdin = strings.NewReader(strings.Repeat("x", 1<<20+1) + "\n")
	if o := h.Run(long); o.Code != 2 || !strings.Contains(o.Err,
		"jail: error: a message on standard input is longer than 1MiB\n") {
		t.Errorf("a long message: %+v", o)
	}
	// What follows /quit is said to nobody.
	quit := h.Command("agent", "chat", "--resume", id)
	quit.Stdin = strings.NewReader("/quit\nand more\n")
	asked := len(m.Asked())
	if o := h.Run(quit); o.Code != 0 || len(m.Asked()) != asked {
		t.Errorf("/quit: %+v", o)
	}
	h.Jail("session", "stop", "--discard", "chat-"+id)
	toolsOfChat(t, h, m)
}

// toolsOfChat: tools run under the policy, also those that reach the network: a host that is not
// granted is not reached, and a page that a model without tools reads is not in the conversation.
func toolsOfChat(t *testing.T, h *cmdtest.Host, m *cmdtest.ModelHost) {
	host := fmt.Sprintf("https://model.example.com:%d", m.Port)
	web := filepath.Join(h.Root, "web.toml")
	known, err := os.ReadFile(filepath.Join(h.State, "models.toml"))
	if err == nil {
		err = errors.Join(os.WriteFile(filepath.Join(h.State, "models.toml"), fmt.Appendf(known,
			"[agent]\nsearch = \"%s/search?q={query}\"\n", host), 0o600),
			os.WriteFile(web, fmt.Appendf(nil, "policy = 1\nname = \"web\"\ninclude = [\"default\"]\n"+
				"[[fetch.allow]]\nhost = \"model.example.com\"\nports = [%d]\nmethods = [\"GET\"]\n"+
				"paths = [\"/**\"]\n[fetch.limits]\nrequests = 10\nbytes_in = \"1MiB\"\n"+
				"bytes_out = \"1MiB\"\n", m.Port), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	calls := []struct{ call, want string }{
		{`Shell {"command":"echo a b | tr a-z A-Z > out && cat < out"}`, "A B\n"},
		{`Shell {"command":"cat out; sleep 1 &"}`, "-c:1:18: "},
		{`Command {"argv":["cat","-","out"],"stdin":"in ","limits":{"wall":"20s"}}`, `"stdout":"in A B\n"`},
		{`Command {"argv":["false"]}`, `{"exitCode":1,"stdout":"","stderr":""`},
		{`Command {"argv":["cat"],"limits":{"wall":"never"}}`, "wall"},
		{`Skill {"name":"knit"}`, "Knit one, purl one.\n"},
		{`Skill {"name":"../knit"}`, "no name of a skill"},
		{`WebFetch {"url":"` + host + `/a"}`, "the page /a"},
		{`WebFetch {"url":"` + host + `/b","prompt":"what is it?"}`, "without tools"},
		{`WebFetch {"url":"https://other.example.com/"}`, "other.example.com"},
		{`WebSearch {"query":"a b&c"}`, "the page /search?q=a+b%26c"},
	}
	var steps []string
	for _, c := range calls {
		steps = append(steps, c.call)
	}
	m.Set(strings.Join(steps, "\n"), "done")
	h.Says(h.Jail("agent", "chat", "--policy", web, "--id", "tools", "--allow", "*", "--say", "go"), 0, "")
	asked := m.Asked()
	var got []string
	for _, raw := range asked[len(asked)-1]["messages"].([]any) {
		if answer := raw.(map[string]any); answer["role"] == "tool" {
			got = append(got, answer["content"].(string))
		}
	}
	for n, c := range calls {
		if len(got) != len(calls) || !strings.Contains(got[n], c.want) ||
			strings.Contains(got[n], "the page /b") {
			t.Errorf("the tools answered %q, want %q from %s", got, c.want, c.call)
			break
		}
	}
	h.Jail("session", "stop", "--discard", "tools")
}

func realFile(t *testing.T, h *cmdtest.Host, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(h.Work, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestChatKilled: a tool that a kill has cut is never carried out again by itself.
func TestChatKilled(t *testing.T) {
	h := cmdtest.New(t)
	cmdtest.StartModel(h, `Bash {"command":"echo ran >> ran; until [ -e go ]; do sleep 0.05; done"}`,
		"it may have run")
	h.Daemon()
	cmdtest.StartAgentd(h)
	cmd := h.Command("agent", "chat", "--allow", "*", "--say", "run it")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ran := func() string {
		all := h.Sessions()
		if len(all) == 0 {
			return ""
		}
		return h.Jail("session", "exec", all[0].ID, "--", "cat", "ran").Out
	}
	cmdtest.Eventually(t, "the tool runs", func() bool { return ran() == "ran\n" })
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	id, _ := chatSession(t, h)
	o := h.Jail("agent", "chat", "--resume", id, "--allow", "*", "--say", "and?")
	if o.Code != 0 || !strings.Contains(o.Out, "it may have run") {
		t.Errorf("resumed: %+v", o)
	}
	if text := ran(); text != "ran\n" {
		t.Errorf("the tool ran as %q says", text)
	}
	_, events := chatSession(t, h)
	answered := 0
	for _, e := range events {
		if e.Type == transcript.ToolResult && e.IsError && strings.Contains(e.Text, "may have been") {
			answered++
		}
	}
	if answered != 1 {
		t.Errorf("%d calls were answered so", answered)
	}
	h.Says(h.Jail("agent", "replay", id), 0, "")
	h.Jail("session", "stop", "--discard", "chat-"+id)
}

// TestChatRefused: what cannot work says so at once, and begins no session.
func TestChatRefused(t *testing.T) {
	h := cmdtest.New(t)
	cmdtest.StartAgentd(h)
	h.Wants(h.Jail("agent", "chat"), 127, "models.toml names no models")
	if err := os.WriteFile(filepath.Join(h.State, "models.toml"),
		[]byte("[roles]\nfast = \"openai/m\"\nslow = \"anthropic/m\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.Wants(h.Jail("agent", "chat"), 2, "fast, slow, and none is the default")
	h.Wants(h.Jail("agent", "chat", "--model", "best"), 127, `no model "best"`)
	h.Wants(h.Jail("agent", "chat", "--resume", "no-such"), 127, "there is no session no-such")
	h.Wants(h.Jail("agent", "chat", "--allow", "[", "--model", "fast"), 2, "no name of a tool")
	if err := os.WriteFile(filepath.Join(h.State, "models.toml"), []byte("[roles]\nfast = 1\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	h.Wants(h.Jail("agent", "chat"), 2, "models.toml:2")
	if all := h.Jail("agent", "sessions", "--json"); strings.TrimSpace(all.Out) != "[]" {
		t.Errorf("sessions: %s", all.Out)
	}
}
