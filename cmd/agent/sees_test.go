package agent_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
)

// looker is an agent that answers with what it finds under each path of a message: the names in a
// directory, the begin of a file, or the name of the error.
const looker = `import os
import sys
import jail_agent

def look(path):
    try:
        return sorted(os.listdir(path)) if os.path.isdir(path) else open(path).read(6)
    except OSError as e:
        return type(e).__name__

class Looker(jail_agent.Agent):
    def on_event(self, event):
        self.send([sys.platform] + [look(path) for path in event.data], type="result")

jail_agent.run(Looker())
`

// TestScriptsSee: a script sees its own files, its memory and its interpreter, and of the host no
// other file: not those of other agents, no database, nobody's home. A manifest's native is a program
// of the host, although the bundle has one of the same name.
func TestScriptsSee(t *testing.T) {
	h := cmdtest.New(t)
	compiled(t, h, "python")
	a := startAgentd(t, h)
	for name, c := range map[string]struct{ program, platform, top string }{
		"bundle": {"module = \"python/python3\"\nargs = [\"main.py\"]\n", `"wasi"`,
			`"FileNotFoundError"`},
		"native": {"native = [\"python3\", \"main.py\"]\nprofile = \"agent-native\"\n", `"linux"`,
			`"PermissionError"`},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "native" {
				cmdtest.Have(t, "/usr/bin/python3")
			}
			h.Says(h.Jail("agent", "new", name), 0, "")
			writeFiles(t, filepath.Join(h.Work, name), map[string]string{"main.py": looker,
				"agent.toml": "agent = 1\ntype = \"agent\"\nname = \"" + name + "\"\n" + c.program +
					"capabilities = { storage = true }\n"})
			h.Wants(h.Jail("agent", "add", name), 0, "")
			paths := []string{"/", "/agent", "/agent/main.py", "/tmp", "/etc/shadow", "/root", "/home",
				"/var", h.Work, filepath.Join(h.State, "agents", name, "main.py"),
				"/run/jail/agent/state/state.db"}
			sent := a.send(name, "", cmdtest.Bound, paths)
			if sent.State != agentapi.Committed || len(sent.Published) != 1 {
				t.Fatalf("%+v", sent)
			}
			var all []json.RawMessage
			if err := json.Unmarshal(sent.Published[0].Data, &all); err != nil || len(all) != len(paths)+1 {
				t.Fatalf("%s, %v", sent.Published[0].Data, err)
			}
			wants := []string{c.top, `["agent.toml","jail_agent.py","jail_agent_data.py",` +
				`"jail_agent_more.py","main.py"]`, `"import"`, `[]`}
			if got := string(all[0]); got != c.platform {
				t.Errorf("it runs on %s, want %s", got, c.platform)
			}
			for i, path := range paths {
				got := compact(string(all[i+1]))
				if i < len(wants) && got != wants[i] || i >= len(wants) && !strings.HasSuffix(got, `Error"`) {
					t.Errorf("%s: %s: %s", name, path, got)
				}
			}
			// The control: on the host they are there.
			if _, err := os.Stat(filepath.Join(h.State, "agents", name, "main.py")); err != nil {
				t.Error(err)
			}
		})
	}
}
