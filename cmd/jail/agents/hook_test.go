package agents_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

type object = map[string]any

// call is what a client writes to a hook before it runs a shell command.
func call(h *cmdtest.Host, client, script string) object {
	switch client {
	case "cursor":
		return object{"hook_event_name": "preToolUse", "tool_name": "Shell",
			"workspace_roots": []string{h.Work}, "tool_input": object{"command": script, "working_directory": "/x"}}
	default:
		return object{"hook_event_name": "PreToolUse", "tool_name": "Bash", "session_id": "s",
			"tool_input": object{"command": script, "description": "what it does"}}
	}
}

// hook answers a client. command is what the call became, "" where it was denied; why is the
// sentence.
func hook(h *cmdtest.Host, client, input string) (command, why string) {
	h.T.Helper()
	cmd := h.Command("hook", client)
	cmd.Stdin = strings.NewReader(input)
	o := h.Run(cmd)
	var a struct {
		Output struct {
			Event    string                     `json:"hookEventName"`
			Decision string                     `json:"permissionDecision"`
			Reason   string                     `json:"permissionDecisionReason"`
			Input    map[string]json.RawMessage `json:"updatedInput"`
		} `json:"hookSpecificOutput"`
		Permission string                     `json:"permission"`
		Agent      string                     `json:"agent_message"`
		Input      map[string]json.RawMessage `json:"updated_input"`
	}
	if err := json.Unmarshal([]byte(o.Out), &a); o.Code != 0 || err != nil {
		h.T.Fatalf("%s: %v, %+v", client, err, o)
	}
	decision, why, changed := a.Output.Decision, a.Output.Reason, a.Output.Input
	if client == "cursor" {
		decision, why, changed = a.Permission, a.Agent, a.Input
	} else if a.Output.Event != "PreToolUse" {
		h.T.Errorf("%s: %s", client, o.Out)
	}
	if (decision == "allow") == (why != "") || decision != "allow" && decision != "deny" ||
		decision == "deny" && changed != nil {
		h.T.Errorf("%s: %s", client, o.Out)
	}
	if decision == "allow" && changed != nil {
		if err := json.Unmarshal(changed["command"], &command); err != nil || len(changed) != 2 {
			h.T.Errorf("%s: %v, %s", client, err, o.Out)
		}
	}
	return command, why
}

func text(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// shell runs a command of the host, as a client does.
func shell(h *cmdtest.Host, program, command string) cmdtest.Outcome {
	return h.Run(h.Program(program, "-c", command))
}

// stop ends what a hook leaves.
func stop(h *cmdtest.Host) {
	h.T.Helper()
	for _, s := range h.Sessions() {
		h.Wants(h.Jail("session", "stop", "--discard", s.ID), 0, "")
	}
}

// TestHook: a shell call of each client becomes one of the session, whatever its text, and changes
// nothing in the real directory.
func TestHook(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	marker := filepath.Join(h.Root, "escaped")
	hostile := []string{
		"echo 'it'\\''s'; echo \"$HOME\" '$HOME' `echo x` $(echo y)",
		"true'; touch " + marker + "; echo '",
		"true\n touch " + marker + "\n",
		"touch " + marker + " #' ; touch " + marker,
		"'",
		"''\\''",
		"cat <<'E'\na'b\"c\\d\nE\n",
		`\' ; touch ` + marker + ` ; '`,
		`\\\' ; touch ` + marker + ` ; '\`,
		`printf '%s' '\' "\\" \\\'`,
		"echo '--' -- \t\r \\\n x; printf '%s' \"a\\\\b\"",
		"echo \u00e9\u2028\U0001f600 !! !$ ~ * ? [a] {a,b} >/dev/null",
		"--help",
	}
	for _, client := range []string{"claude-code", "codex", "cursor"} {
		got, why := hook(h, client, text(t, call(h, client, "echo made > "+h.Work+"/made; mkdir -p "+h.Work+"/sub; cd "+h.Work+"/sub; export KEPT=1")))
		if why != "" {
			t.Fatalf("%s: %s", client, why)
		}
		h.Wants(shell(h, "bash", got), 0, "")
		got, _ = hook(h, client, text(t, call(h, client, "cat "+h.Work+"/made; pwd; echo $KEPT")))
		if o := shell(h, "sh", got); o.Out != "made\n"+h.Work+"/sub\n1\n" {
			t.Errorf("%s: what a call left: %+v", client, o)
		}
	}
	for _, script := range hostile {
		got, why := hook(h, "claude-code", text(t, call(h, "claude-code", script)))
		if why != "" {
			t.Fatalf("%q: %s", script, why)
		}
		// What the shell of the client makes of it is the command, and the text as one word.
		for _, program := range shells(t) {
			words := shell(h, program, "printf '%s\\n--end--\\n' "+got).Out
			all := strings.Split(strings.TrimSuffix(words, "\n--end--\n"), "\n--end--\n")
			if len(all) != 10 || all[9] != script || all[8] != "-c" || all[7] != "bash" {
				t.Errorf("%s: %q became %q", program, script, all)
			}
		}
		inside := shell(h, "bash", got)
		if _, err := os.Lstat(marker); err == nil {
			t.Fatalf("%q left the session", script)
		}
		if strings.Contains(script, marker) {
			continue
		}
		outside := h.Run(exec.Command("bash", "-c", script))
		if inside.Out != outside.Out && !strings.Contains(script, "$HOME") ||
			inside.Code != outside.Code {
			t.Errorf("%q: inside %+v, outside %+v", script, inside, outside)
		}
	}
	if _, err := os.Lstat(filepath.Join(h.Work, "made")); err == nil {
		t.Error("the real directory changed")
	}
	if n := len(h.Sessions()); n != 1 {
		t.Errorf("%d sessions", n)
	}
	stop(h)
}

// shells are those of the host that clients use.
func shells(t *testing.T) (found []string) {
	for _, name := range []string{"dash", "bash", "zsh", "fish"} {
		if _, err := exec.LookPath(name); err == nil {
			found = append(found, name)
		} else {
			t.Logf("%s is not installed", name)
		}
	}
	return found
}

// TestHookDenies: what is no shell call, or is not understood, is denied with a sentence.
func TestHookDenies(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	event := func(name, tool string, input any) string {
		return text(t, object{"hook_event_name": name, "tool_name": tool, "tool_input": input,
			"workspace_roots": []string{h.Work}})
	}
	for _, client := range []string{"claude-code", "codex", "cursor"} {
		shellTool := map[bool]string{true: "Shell", false: "Bash"}[client == "cursor"]
		for name, c := range map[string]struct{ input, want string }{
			"nothing":          {"", "not understood"},
			"no JSON":          {"hello", "not understood"},
			"half":             {`{"hook_event_name":"PreToolUse"`, "not understood"},
			"two":              {text(t, call(h, client, "ls")) + "{}", "not understood"},
			"a list":           {"[]", "not understood"},
			"no UTF-8":         {"{\"x\":\"\xff\"}", "not UTF-8"},
			"large":            {strings.Repeat(" ", 9<<20), "more than"},
			"another event":    {event("PostToolUse", shellTool, object{"command": "ls"}), "not known"},
			"no event":         {"{}", "not known"},
			"an editing tool":  {event("PreToolUse", "Edit", object{"command": "ls"}), "on the host"},
			"no tool":          {event("PreToolUse", "", object{"command": "ls"}), "on the host"},
			"another case":     {event("PreToolUse", strings.ToLower(shellTool), object{"command": "ls"}), "on the host"},
			"no command":       {event("PreToolUse", shellTool, object{"Command": "ls"}), "no command"},
			"an empty command": {event("PreToolUse", shellTool, object{"command": " \n"}), "no command"},
			"a list of words":  {event("PreToolUse", shellTool, object{"command": []string{"ls"}}), "no command"},
			"a text as input":  {event("PreToolUse", shellTool, "ls"), "not understood"},
			"a NUL byte":       {event("PreToolUse", shellTool, object{"command": "a\x00b"}), "NUL"},
			"a long command": {event("PreToolUse", shellTool,
				object{"command": strings.Repeat("x", 101<<10)}), "at most"},
			"a command of quotes": {event("PreToolUse", shellTool,
				object{"command": strings.Repeat("'", 30<<10)}), "at most"},
		} {
			if got, why := hook(h, client, c.input); got != "" || !strings.Contains(why, c.want) {
				t.Errorf("%s: %s: became %q, %q", client, name, got, why)
			}
		}
	}
	// Cursor asks about every command once more.
	before := func(command string) string {
		cmd := h.Command("hook", "cursor")
		cmd.Stdin = strings.NewReader(text(t, object{"hook_event_name": "beforeShellExecution",
			"command": command, "workspace_roots": []string{h.Work}}))
		return h.Run(cmd).Out
	}
	// A user's hook runs in a directory that is no workspace.
	for _, roots := range [][]string{nil, {}, {h.Work, h.Root}, {"."}, {""}} {
		c := call(h, "cursor", "ls")
		c["workspace_roots"] = roots
		if got, why := hook(h, "cursor", text(t, c)); got != "" || !strings.Contains(why, "one directory") {
			t.Errorf("%q: became %q, %q", roots, got, why)
		}
	}
	if n := len(h.Sessions()); n != 0 {
		t.Errorf("%d sessions of denied calls", n)
	}
	got, _ := hook(h, "cursor", text(t, call(h, "cursor", "ls 'a'")))
	if answer := before(got); !strings.Contains(answer, `"allow"`) {
		t.Errorf("%q: %s", got, answer)
	}
	for _, command := range []string{"ls", "", got + "; ls", got + "'; ls; '", " " + got,
		strings.Replace(got, "mcp-", "$(ls) mcp-", 1),
		strings.Replace(got, "mcp-", "mcp-0", 1),
		strings.Replace(got, " -- bash -c ", " -- bash -c 'x' ", 1),
		strings.Replace(got, " session exec ", " run ", 1)} {
		if answer := before(command); !strings.Contains(answer, `"deny"`) {
			t.Errorf("%q: %s", command, answer)
		}
	}
	h.Wants(h.Jail("hook", "gemini"), 2, "no client")
	stop(h)
}

// TestHookWithoutDaemon: without a session there is no call.
func TestHookWithoutDaemon(t *testing.T) {
	h := cmdtest.New(t)
	for _, client := range []string{"claude-code", "codex", "cursor"} {
		cmd := h.Command("hook", client)
		cmd.Env = append(cmd.Env, "JAIL_SOCKET="+h.Work)
		cmd.Stdin = strings.NewReader(text(t, call(h, client, "ls")))
		var out bytes.Buffer
		cmd.Stdout = &out
		if err := cmd.Run(); err != nil || !strings.Contains(out.String(), `"deny"`) ||
			!strings.Contains(out.String(), "socket") {
			t.Errorf("%s: %v, %s", client, err, out.String())
		}
	}
}
