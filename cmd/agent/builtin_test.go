package agent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
)

// standIn is a program in place of claude. It writes each message that it gets to a file, and on
// "slow" leaves a process behind it whose number is in another.
const standIn = `#!/bin/sh
in=$(cat)
printf '%s\n' "$in" >> asked
case $in in
fail) echo '{"type":"result","is_error":true,"result":"Not logged in"}'; exit 1;;
silent) echo words >&2; exit 3;;
slow) sleep 1000 & echo $! > pid.new; mv pid.new pid; wait;;
esac
printf '{"type":"result","result":"%s by %s for %s","session_id":"s-1"}\n' "$in" "$*" "$(id -u)"
`

// TestBuiltinAgents: a built-in agent has the rights of its user, answers its user and the agents
// that its user names, and nobody else; no agent of a user takes its name.
func TestBuiltinAgents(t *testing.T) {
	h := cmdtest.New(t)
	dir := filepath.Join(h.Work, "project")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(h.Work, "claude")
	if err := os.WriteFile(program, []byte(standIn), 0o755); err != nil {
		t.Fatal(err)
	}
	// An agent of the user's with the name of a built-in one, and one with a runtime of the host's.
	writeFiles(t, filepath.Join(h.State, "agents", "codex-responder"), map[string]string{
		"agent.toml": "agent = 1\ntype = \"agent\"\nname = \"codex-responder\"\n" +
			"module = \"python/python3\"\nargs = [\"main.py\"]\n", "main.py": "print(1)\n"})
	a := startAgentd(t, h)

	h.Wants(h.Jail("agent", "spawn", "codex-responder"), 127, "codex, which is not on the PATH")
	h.Wants(h.Jail("agent", "send", "claude-code-responder", "hi"), 127,
		"it is built in, and on no channel\njail: hint: jail agent spawn")
	h.Wants(h.Jail("agent", "add", filepath.Join(h.State, "agents", "codex-responder")), 2,
		"the name of a built-in agent")
	// An agent whose program is not there, and whose manifest nobody finds fault with.
	lacks := filepath.Join(h.Work, "lacks")
	writeFiles(t, lacks, map[string]string{"agent.toml": "agent = 1\ntype = \"agent\"\nname = \"lacks\"\n" +
		"module = \"perl/perl\"\nargs = [\"main.py\"]\n", "main.py": "print(1)\n"})
	h.Says(h.Jail("agent", "check", lacks), 0, "agent lacks: perl/perl main.py")
	h.Wants(h.Jail("agent", "add", lacks), 127, `agent "lacks": tool "perl/perl": not installed`)
	h.Wants(h.Jail("agent", "show", "lacks"), 127, "there is none")
	cmdtest.Eventually(t, "the agent with a reserved name is reported", func() bool {
		return strings.Contains(h.Jail("agent", "list").Out, "so this one is skipped")
	})

	config := fmt.Sprintf(`{"program": %q, "dir": %q, "args": ["--model", "m"], "agents": ["named"]}`,
		program, dir)
	h.Says(h.Jail("agent", "spawn", "claude-code-responder", "--config", config), 0,
		"all of its user: it runs in no jail")
	h.Says(h.Jail("agent", "list"), 0, "built-in, has your rights")
	for _, c := range []struct{ says, answer string }{
		{"one", "one by --print --output-format json --model m for 0"},
		{"two", "two by --print --output-format json --model m --resume s-1 for 0"},
		{"/new", "A new conversation"},
		{"three", "three by --print --output-format json --model m for 0"},
	} {
		h.Says(h.Jail("agent", "send", "--wait", "claude-code-responder", c.says), 0, c.answer)
	}
	h.Wants(h.Jail("agent", "send", "--wait", "claude-code-responder", "fail"), 1, "Not logged in")
	h.Wants(h.Jail("agent", "send", "--wait", "claude-code-responder", "silent"), 1, "words")
	h.Says(h.Jail("agent", "export", "claude-code-responder"), 0, `"content": "two"`)
	// Its user asks for it again.
	h.Says(h.Jail("agent", "retry", "claude-code-responder", "5"), 0, "")

	t.Run("jailed agents", func(t *testing.T) {
		// Both say the same; the user has named one of them.
		for _, name := range []string{"stranger", "named"} {
			a.install(name, cmdtest.Must(guest())(t), "channels = [\"main\"]\n")
			for _, to := range []string{"claude-code-responder", "main"} {
				sent := a.send(name, "", cmdtest.Bound, map[string]any{"calls": []call{{"PUBSUB",
					"send", map[string]any{"content": "@claude from " + name,
						"options": map[string]any{"to": to}}}}})
				if sent.State != agentapi.Committed {
					t.Fatalf("%+v", sent)
				}
			}
		}
		h.Says(h.Jail("agent", "send", "--wait", "claude-code-responder", "last"), 0, "last")
		text, err := os.ReadFile(filepath.Join(dir, "asked"))
		if err != nil || strings.Contains(string(text), "stranger") ||
			strings.Count(string(text), "from named") != 2 {
			t.Errorf("%v: the program was asked\n%s", err, text)
		}
	})

	t.Run("killed", func(t *testing.T) {
		// jail-agentd is killed while the program works: all of it ends, and it is not started again.
		a.send("claude-code-responder", "slow", 0, "slow")
		var pid int
		cmdtest.Eventually(t, "the program works", func() bool {
			text, err := os.ReadFile(filepath.Join(dir, "pid"))
			return err == nil && json.Unmarshal(text, &pid) == nil
		})
		a.End(syscall.SIGKILL)
		cmdtest.Eventually(t, "what it left is gone", func() bool {
			return syscall.Kill(pid, 0) == syscall.ESRCH || zombie(pid)
		})
		a.Start()
		sent := a.send("claude-code-responder", "slow", cmdtest.Bound, "slow")
		if sent.State != agentapi.Dead || !strings.Contains(sent.Error, "not started again") {
			t.Errorf("%+v", sent)
		}
		h.Says(h.Jail("agent", "delete", "--yes", "claude-code-responder"), 0, "")
		h.Says(h.Jail("agent", "show", "claude-code-responder"), 0, "available")
	})
}

// zombie reports whether a process has ended.
func zombie(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(text), ") Z ")
}

func writeFiles(t *testing.T, dir string, all map[string]string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range all {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHostRuntime: an agent of the host's own folder has the rights of root if its files are
// root's; with a file that somebody else can change it does not run.
func TestHostRuntime(t *testing.T) {
	h := cmdtest.New(t)
	a := startAgentd(t, h)
	dir := filepath.Join(h.State, "agents", "keeper")
	h.Says(h.Jail("agent", "new", "--lang", "python", "keeper"), 0, "")
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(h.Work, "keeper"))); err != nil {
		t.Fatal(err)
	}
	manifest := []byte("agent = 1\ntype = \"agent\"\nname = \"keeper\"\n" +
		"runtime = \"host\"\nnative = [\"python3\", \"main.py\"]\n" +
		"capabilities = { network = true, storage = true }\n[wake]\nidle = \"200ms\"\n")
	writeFiles(t, dir, map[string]string{"agent.toml": string(manifest)})
	cmdtest.Eventually(t, "it is registered", func() bool {
		_, ok := a.look("keeper")
		return ok
	})
	h.Says(h.Jail("agent", "send", "--wait", "keeper", "hi"), 0, "echo: hi (1)")
	h.Says(h.Jail("agent", "show", "keeper"), 0, "it runs in no jail")
	cmdtest.Eventually(t, "it is dormant", func() bool {
		return a.instance("keeper").State == agentapi.Dormant
	})
	h.Says(h.Jail("agent", "send", "--wait", "keeper", "again"), 0, "echo: again (2)")
	// Nobody but root of the host's folder may say what runs with root's rights.
	if err := os.Chown(filepath.Join(dir, "main.py"), 1000, 1000); err != nil {
		t.Fatal(err)
	}
	cmdtest.Eventually(t, "it is dormant again", func() bool {
		return a.instance("keeper").State == agentapi.Dormant
	})
	a.send("keeper", "third", 0, "third")
	cmdtest.Eventually(t, "it is said that it does not run", func() bool {
		return strings.Contains(a.instance("keeper").Error,
			"main.py can be changed by others than root")
	})
	if sent := a.send("keeper", "third", time.Second, "third"); sent.State == agentapi.Committed {
		t.Errorf("%+v", sent)
	}
	if o := h.Jail("agent", "add", dir); o.Code != 1 ||
		!strings.Contains(o.Err, "can be changed by others than root") {
		t.Errorf("%+v", o)
	}
	h.Wants(h.Jail("agent", "add", "keeper"), 0, "")
	if err := os.WriteFile(filepath.Join(h.Work, "keeper", "agent.toml"), manifest, 0o644); err != nil {
		t.Fatal(err)
	}
	h.Wants(h.Jail("agent", "add", "keeper"), 2, "an agent of a user runs in a jail")
}
