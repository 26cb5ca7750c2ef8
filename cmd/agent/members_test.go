package agent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
)

// TestMembers: agents in all languages on one channel see each other, hear who comes and goes, call
// each other's methods and share the settings of the channel.
func TestMembers(t *testing.T) {
	h := cmdtest.New(t)
	cmdtest.CompiledBundles(h, "python", "js")
	a := startAgentd(t, h)
	var members []string
	for _, language := range []string{"python", "js", "go", "rust", "c"} {
		// A language that this host cannot build is left out.
		t.Run("add "+language, func(t *testing.T) {
			dir := agentDir(t, language, "member")
			path := filepath.Join(dir.Dir, "agent.toml")
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			changed := strings.NewReplacer(fmt.Sprintf("channels = [%q]", dir.Name),
				`channels = ["team"]`, "[wake]\n", "[wake]\nroster = true\n").Replace(string(text)) +
				"\n[config]\nmethods = [{ name = \"echo\", description = \"says it again\", " +
				"schema = { type = \"object\" } }]\n"
			if err := os.WriteFile(path, []byte(changed), 0o644); err != nil {
				t.Fatal(err)
			}
			h.Wants(h.Jail("agent", "add", dir.Dir), 0, "")
			members = append(members, dir.Name)
		})
	}
	// published returns what an agent sent with a type.
	published := func(name, kind string) (all []string) {
		err := a.Log(t.Context(), name, 0, false, func(p agentapi.Publication) error {
			if p.Type == kind {
				all = append(all, compact(string(p.Data)))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	for _, name := range members {
		h.Wants(h.Jail("agent", "send", "--wait", "--timeout", "10m", "--data", name, "{}"), 0, "")
	}
	for n, name := range members {
		for _, later := range members[n+1:] {
			cmdtest.Eventually(t, name+" hears that "+later+" has joined", func() bool {
				return slices.Contains(published(name, "seen"), told("joined", later))
			})
		}
		if n == 0 {
			continue
		}
		if seen := published(name, "seen"); slices.Contains(seen, told("joined", members[n-1])) {
			t.Errorf("%s hears of a member that was there before: %q", name, seen)
		}
	}
	for n, name := range members {
		provider := members[(n+len(members)-1)%len(members)]
		sent := a.send(name, "", cmdtest.Bound, provider)
		if sent.State != agentapi.Committed || len(sent.Published) != 4 {
			t.Fatalf("%+v", sent)
		}
		said := make([]string, 4)
		for i, p := range sent.Published {
			said[i] = strings.ToLower(string(p.Data))
		}
		for _, other := range members {
			offered := fmt.Sprintf(`"providerid":%q,"methodname":"echo","description":"says it again"`,
				other)
			if !strings.Contains(compact(said[0]), fmt.Sprintf(`"name":%q`, other)) ||
				strings.Contains(compact(said[1]), fmt.Sprintf(`"providerid":%q`, other)) ==
					(other == name) {
				t.Errorf("%s sees\n%s\n%s\nwant %s", name, said[0], said[1], offered)
			}
		}
		want := fmt.Sprintf(`{"by":%q,"got":{"args":{"n":1},"method":"echo"}}`, provider)
		if compact(said[2]) != want {
			t.Errorf("%s: the call of %s gives %s, want %s", name, provider, said[2], want)
		}
		// A change is there when the event is committed, so that its own is not yet.
		if n > 0 && !strings.Contains(compact(said[3]), fmt.Sprintf(`%q:true`, members[n-1])) {
			t.Errorf("%s: the settings are %s", name, said[3])
		}
	}
	h.Wants(h.Jail("agent", "delete", "--yes", members[0]), 0, "")
	for _, name := range members[1:] {
		cmdtest.Eventually(t, name+" hears that "+members[0]+" has left", func() bool {
			return slices.Contains(published(name, "seen"), told("left", members[0]))
		})
	}
}

// compact is JSON with its members in order and no spaces.
func compact(text string) string {
	var v any
	if json.Unmarshal([]byte(text), &v) != nil {
		return text
	}
	b, _ := json.Marshal(v) // of JSON
	return string(b)
}

// told is what an event of the type roster says of a member.
func told(change, name string) string {
	return fmt.Sprintf(`{%q:{"handle":%q,"id":"agent:root:%s","name":%q}}`, change, name, name, name)
}
