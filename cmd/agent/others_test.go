package agent_test

import (
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
)

// TestOthersGoOn: while one agent loops, one asks its database for rows without an end, one has used
// up its memory and one does not end when it is asked to, another one commits each of its events, and
// none twice.
func TestOthersGoOn(t *testing.T) {
	t.Parallel()
	h := cmdtest.New(t)
	a := startAgentd(t, h)
	a.install("good", cmdtest.Must(counter())(t), "")
	first := a.send("good", "first", cmdtest.Bound, 0)
	if first.State != agentapi.Committed {
		t.Fatalf("%+v", first)
	}
	// Until the end of the test these work on their first event.
	const long = "[wake]\ndeadline = \"1h\"\n"
	bad := cmdtest.Must(guest())(t)
	a.install("loops", bad, long)
	a.install("endless", bad, long)
	a.install("eats", bad, "[wake]\nretries = 0\n[limits]\nmemory = \"64MiB\"\n")
	a.install("stays", bad, "[wake]\nidle = \"100ms\"\n")
	a.send("loops", "", 0, map[string]any{"do": "loop"})
	a.send("endless", "", 0, map[string]any{"calls": []call{sql("query",
		endless+"SELECT 1 AS a FROM c WHERE n < 0")}})
	a.send("eats", "", 0, map[string]any{"do": "eat"})
	a.send("stays", "", 0, map[string]any{"do": "stay"})
	const events = 50
	send := func() {
		t.Helper()
		for n := range events {
			if sent := a.send("good", "", cmdtest.Bound, n); sent.State != agentapi.Committed {
				t.Fatalf("%+v", sent)
			}
		}
	}
	send()
	for _, name := range []string{"loops", "endless"} {
		cmdtest.Eventually(t, name+" works on its event", func() bool {
			return a.instance(name).State == agentapi.Active
		})
	}
	cmdtest.Eventually(t, "what used up its memory is a dead letter", func() bool {
		i := a.instance("eats")
		return i.Waiting == 0 && i.Dead == 1
	})
	cmdtest.Eventually(t, "what did not sleep was ended", func() bool {
		i := a.instance("stays")
		return i.State == agentapi.Dormant && i.Waiting == 0
	})
	send()
	for _, name := range []string{"loops", "endless"} {
		if i := a.instance(name); i.State != agentapi.Active || i.Waiting != 1 {
			t.Errorf("%s is not at its first event any more: %+v", name, i)
		}
	}
	total := a.send("good", "", cmdtest.Bound, "total")
	if want := `{"events":101,"ids":101}`; len(total.Published) != 1 ||
		string(total.Published[0].Data) != want {
		t.Errorf("the good agent has not %s, but %+v", want, total)
	}
	for _, name := range []string{"loops", "endless"} {
		if err := a.Delete(t.Context(), name); err != nil {
			t.Error(err)
		}
	}
}
