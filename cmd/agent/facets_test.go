package agent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// familyPolicy has room for three facets in every language.
const familyPolicy = `policy = 1
name = "family"
include = ["agent"]
[limits]
memory = "2GiB"
pids = 256
`

// An agent in each language has three facets at one time, each with a database of its own and without
// the bindings that it was not given; it aborts and deletes them, and sees one fail.
func TestFacets(t *testing.T) {
	for language := range mains {
		t.Run(language, func(t *testing.T) {
			h := cmdtest.New(t)
			a := startAgentd(t, h)
			dir := agentDir(t, language, "family")
			path := filepath.Join(dir.Dir, "agent.toml")
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			changed := strings.Replace(string(text), "[capabilities]",
				"policy = \"policy.toml\"\n[capabilities]\nfacets = true", 1)
			changed = strings.Replace(changed, `deadline = "60s"`, `deadline = "10m"`, 1)
			for path, text := range map[string]string{path: changed,
				filepath.Join(dir.Dir, "policy.toml"): familyPolicy} {
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			h.Wants(h.Jail("agent", "add", dir.Dir), 0, "")
			for _, want := range []string{"1 1 1, 2 left, 2 1 2, failed",
				// What was deleted begins anew, and what was not goes on.
				"1 2 3, 2 left, 2 1 4, failed"} {
				o := h.Jail("agent", "send", "--wait", "--timeout", "10m", dir.Name, "go")
				if o.Code != 0 || o.Out != want+"\n" {
					t.Fatalf("%+v, want %s\n%+v", o, want, a.instance(dir.Name))
				}
			}
			left := 0
			entries, err := os.ReadDir(filepath.Join(h.State, "agentd", "state"))
			for _, e := range entries {
				if strings.Contains(e.Name(), ".F") {
					left++
				}
			}
			if err != nil || left != 2 {
				t.Errorf("%v: %d directories of facets, want 2", err, left)
			}
			h.Wants(h.Jail("agent", "delete", "--yes", dir.Name), 0, "")
			if entries, err := os.ReadDir(filepath.Join(h.State, "agentd", "state")); err != nil ||
				len(entries) > 0 {
				t.Errorf("after the agent was deleted: %v %v", entries, err)
			}
		})
	}
}
