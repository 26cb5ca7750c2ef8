package agent_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
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
	h.Files(map[string]string{"notes": "one\n", ".claude/commands/greet.md": "Greet $ARGUMENTS.\n"})
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
	if o := h.Jail("agent", "replay", exported); o.Code == 0 {
		t.Errorf("a changed transcript: %+v", o)
	}
	// The key is in the file of the operator, and nowhere else below the state directory.
	found := 0
	err := filepath.WalkDir(h.Root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		text, err := os.ReadFile(path)
		if err == nil && bytes.Contains(text, []byte(cmdtest.ModelKey)) {
			found++
			if path != filepath.Join(h.Root, "secret") {
				t.Errorf("the key is in %s", path)
			}
		}
		return nil
	})
	if err != nil || found != 1 {
		t.Errorf("the key was found %d times, %v", found, err)
	}
	// A message that is too long is one sentence, and not the end of all lines without a word.
	long := h.Command("agent", "chat", "--resume", id)
	long.Stdin = strings.NewReader(strings.Repeat("x", 1<<20+1) + "\n")
	if o := h.Run(long); o.Code != 2 || !strings.Contains(o.Err,
		"jail: error: a message on standard input is longer than 1MiB\n") {
		t.Errorf("a long message: %+v", o)
	}
	h.Jail("session", "stop", "--discard", "chat-"+id)
	m.Set(strings.Join([]string{`Shell {"command":"echo a b | tr a-z A-Z > out && cat < out"}`,
		`Shell {"command":"cat out; sleep 1 &"}`,
		`Command {"argv":["cat","-","out"],"stdin":"in ","limits":{"wall":"20s"}}`,
		`Command {"argv":["false"]}`, `Command {"argv":["cat"],"limits":{"wall":"never"}}`}, "\n"), "done")
	h.Says(h.Jail("agent", "chat", "--profile", "default", "--id", "tools", "--allow", "*", "--say", "go"),
		0, "")
	asked := m.Asked()
	var got []string
	for _, raw := range asked[len(asked)-1]["messages"].([]any) {
		if answer := raw.(map[string]any); answer["role"] == "tool" {
			got = append(got, answer["content"].(string))
		}
	}
	want := []string{"A B\n", "-c:1:18: ", `"stdout":"in A B\n"`, `{"exitCode":1,"stdout":"","stderr":""`,
		"wall"}
	for n, text := range want {
		if len(got) != len(want) || !strings.Contains(got[n], text) {
			t.Errorf("the tools answered %q, want %q", got, want)
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
