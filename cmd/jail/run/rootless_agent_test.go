package run_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// TestRootlessAgents: a user without rights has agents. Neither jail-agentd nor jaild is a service.
func TestRootlessAgents(t *testing.T) {
	u := newRootlessUser(t)
	u.delegate(t)
	t.Cleanup(func() { u.endAll(t) })
	dir := u.workspace(t)
	u.ok(t, dir, "jail", "agent", "new", "--lang", "js", "echo")
	u.ok(t, dir, "jail", "agent", "add", "./echo")
	for n, text := range []string{"hi", "again"} {
		out := u.ok(t, dir, "jail", "agent", "send", "--wait", "--timeout", "10m", "echo", text)
		if want := "echo: " + text + " (" + strconv.Itoa(n+1) + ")\n"; out != want {
			t.Errorf("%q, want %q", out, want)
		}
	}
	for _, c := range []struct{ command, want string }{{"list", "echo"}, {"log", "echo: again (2)"},
		{"status", "event 2"}, {"export", `"agent": "agent:`}} {
		args := []string{"jail", "agent", c.command}
		if c.command != "list" {
			args = append(args, "echo")
		}
		if out := u.ok(t, dir, args...); !strings.Contains(out, c.want) {
			t.Errorf("%q: %s", args, out)
		}
	}
	if _, err := os.Stat(filepath.Join(u.home, ".config/jail/agents/echo/agent.toml")); err != nil {
		t.Errorf("the files of the agent: %v", err)
	}
	u.ok(t, dir, "jail", "agent", "delete", "--yes", "echo")
}

// endAll ends what the user started in the group that was handed on, such as daemons that would end
// by themselves some seconds later.
func (u *rootlessUser) endAll(t *testing.T) {
	if u.group == "" {
		return
	}
	cmdtest.Eventually(t, "nothing of the user's runs", func() bool {
		groups, _ := filepath.Glob("/sys/fs/cgroup/*/" + u.group + "/cgroup.procs")
		groups = append(groups, "/sys/fs/cgroup/"+u.group+"/cgroup.procs")
		left := 0
		for _, procs := range groups {
			// There is one in one of the layouts.
			text, _ := os.ReadFile(procs)
			for pid := range strings.FieldsSeq(string(text)) {
				if n, err := strconv.Atoi(pid); err == nil && n > 1 {
					left++
					_ = syscall.Kill(n, syscall.SIGTERM)
				}
			}
		}
		return left == 0
	})
}
