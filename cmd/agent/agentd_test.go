package agent_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// An agentd is a jail-agentd with a state directory of the test's own.
type agentd struct {
	t *testing.T
	h *cmdtest.Host
	*cmdtest.Agentd
}

func startAgentd(t *testing.T, h *cmdtest.Host) *agentd {
	t.Helper()
	return &agentd{t, h, cmdtest.StartAgentd(h)}
}

var counter = cmdtest.Build("counter.wasm", "./testdata/counter", "GOOS=wasip1", "GOARCH=wasm")

// install installs an agent under a name.
func (a *agentd) install(name, file, more string) {
	a.t.Helper()
	dir := filepath.Join(a.h.Work, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		a.t.Fatal(err)
	}
	compiled(a.t, a.h, file)
	module, err := os.ReadFile(file)
	if err != nil {
		a.t.Fatal(err)
	}
	manifest := fmt.Sprintf("agent = 1\ntype = \"agent\"\nname = %q\nmodule = \"agent.wasm\"\n"+
		"policy = \"policy.toml\"\ncapabilities = { storage = true }\n%s", name, more)
	for file, text := range map[string]string{"agent.toml": manifest, "policy.toml": profile,
		"agent.wasm": string(module)} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			a.t.Fatal(err)
		}
	}
	if _, err := a.Add(a.t.Context(), dir); err != nil {
		a.t.Fatal(err)
	}
}

// send sends an event, and asks again for as long as jail-agentd is not there: its id makes that
// harmless.
func (a *agentd) send(name, id string, wait time.Duration, content any) agentapi.Sent {
	a.t.Helper()
	text, err := json.Marshal(content)
	if err != nil {
		a.t.Fatal(err)
	}
	var sent agentapi.Sent
	cmdtest.Eventually(a.t, "the event is taken", func() bool {
		sent, err = a.Send(a.t.Context(), name, agentapi.Send{Content: text, ID: id,
			WaitMS: wait.Milliseconds()})
		var p *problem.Error
		if errors.As(err, &p) && p.Code != problem.Failed && p.Code != problem.Busy {
			a.t.Fatal(err)
		}
		return err == nil
	})
	return sent
}

func (a *agentd) instance(name string) agentapi.Instance {
	a.t.Helper()
	i, ok := a.look(name)
	if !ok {
		a.t.Fatalf("no agent %s", name)
	}
	return i
}

// look returns the state of an agent, false if nobody answers.
func (a *agentd) look(name string) (agentapi.Instance, bool) {
	agent, err := a.Agent(a.t.Context(), name)
	if err != nil {
		return agentapi.Instance{}, false
	}
	return agent.Instances[0], true
}

// runs returns the process 1 of each agent's jail.
func (a *agentd) runs() (pids []int) {
	a.t.Helper()
	var all []struct {
		PID int `json:"pid"`
	}
	o := a.h.Jail("ps", "--json")
	if json.Unmarshal([]byte(o.Out), &all) != nil {
		// There may be no daemon.
		return nil
	}
	for _, r := range all {
		// Before its jail is there, a run has no process. A signal to 0 would go to our own group.
		if r.PID > 1 {
			pids = append(pids, r.PID)
		}
	}
	return pids
}

// TestAgentSleeps: an agent is woken by an event, answers, is dormant when nothing comes, and then
// has no process.
func TestAgentSleeps(t *testing.T) {
	h := cmdtest.New(t)
	a := startAgentd(t, h)
	a.install("echo", cmdtest.Must(guest())(t), "[wake]\nidle = \"2s\"\n")
	sent := a.send("echo", "", cmdtest.Bound, map[string]any{
		"calls": []call{sql("get", "SELECT 7 AS seven")}})
	if sent.State != agentapi.Committed || len(sent.Published) != 1 ||
		!strings.Contains(string(sent.Published[0].Data), `{"seven":7}`) {
		t.Fatalf("%+v", sent)
	}
	cmdtest.Eventually(t, "its memory and its processor time are listed", func() bool {
		of, err := a.Status(t.Context(), "echo")
		if err != nil {
			t.Fatal(err)
		}
		i := of.Instances[0]
		if i.State != agentapi.Active {
			// On a busy machine it may sleep already.
			a.send("echo", "", cmdtest.Bound, map[string]any{})
		}
		return i.Memory > 0 && i.CPUMS > 0
	})
	cmdtest.Eventually(t, "it is dormant", func() bool {
		return a.instance("echo").State == agentapi.Dormant
	})
	cmdtest.Eventually(t, "no process of it is there", func() bool { return len(a.runs()) == 0 })
	var steps []string
	cmdtest.Eventually(t, "its life is on record", func() bool {
		steps = nil
		for line := range strings.Lines(h.Jail("audit", "query", "--type", "agent",
			"--json").Out) {
			var r struct {
				Step string `json:"step"`
			}
			if json.Unmarshal([]byte(line), &r) == nil && r.Step != "" {
				steps = append(steps, r.Step)
			}
		}
		return len(steps) >= 3 && slices.Equal(steps[:3], []string{"installed", "woken", "slept"})
	})
}

// TestAgentsSurviveKills: agents, jail-agentd and jaild are killed at random moments while an agent
// counts events and sends each count to another. Neither counts one twice, and neither misses one.
// With JAIL_AGENT_EVENTS=10000 JAIL_AGENT_KILLS=200 it takes longer.
func TestAgentsSurviveKills(t *testing.T) {
	events := cmdtest.Number(t, "JAIL_AGENT_EVENTS", 500)
	kills := cmdtest.Number(t, "JAIL_AGENT_KILLS", 12)
	if testing.Short() {
		events, kills = 200, 6
	}
	h := cmdtest.New(t)
	a := startAgentd(t, h)
	const manifest = "channels = [\"team\"]\nconfig = { pass = %t }\n[wake]\nretries = 100\n" +
		"batch = 16\n"
	a.install("counter", cmdtest.Must(counter())(t), fmt.Sprintf(manifest, true))
	a.install("receiver", cmdtest.Must(counter())(t), fmt.Sprintf(manifest, false))
	// Their module is compiled once, before anything is killed.
	for _, name := range []string{"counter", "receiver"} {
		if sent := a.send(name, "first", cmdtest.Bound, "total"); sent.State != agentapi.Committed {
			t.Fatalf("%+v", sent)
		}
	}
	random := rand.New(rand.NewPCG(7, uint64(events)))
	killed := map[string]int{}
	var committed uint64
	for n := range events {
		a.send("counter", fmt.Sprint(n), 0, n)
		if n*kills/events != (n+1)*kills/events {
			what := []string{"agent", "agent", "jail-agentd", "jaild"}[random.IntN(4)]
			// An agent that is killed at each of its starts has failed, and rightly so.
			cmdtest.Eventually(t, "events are committed again", func() bool {
				i, ok := a.look("counter")
				done := ok && (i.Committed > committed || i.Waiting == 0)
				if done {
					committed = i.Committed
				}
				return done
			})
			a.kill(what, time.Duration(random.IntN(50))*time.Millisecond)
			killed[what]++
		}
	}
	for _, name := range []string{"counter", "receiver"} {
		cmdtest.Eventually(t, "all events of "+name+" are committed", func() bool {
			return a.instance(name).Waiting == 0
		})
	}
	want := fmt.Sprintf(`{"events":%d,"ids":%d}`, events, events)
	for _, name := range []string{"receiver", "counter"} {
		got := a.send(name, "total", cmdtest.Bound, "total")
		if len(got.Published) != 1 || string(got.Published[0].Data) != want {
			t.Errorf("%s has not %s, but %+v", name, want, got)
		}
	}
	t.Logf("killed: %v", killed)
}

// kill kills something that works, after a while, and starts what has to be there again.
func (a *agentd) kill(what string, after time.Duration) {
	a.t.Helper()
	var pids []int
	cmdtest.Eventually(a.t, what+" is there", func() bool {
		switch what {
		case "agent":
			pids = a.runs()
		case "jaild":
			if pid := a.Jaild(); pid != 0 {
				pids = []int{pid}
			}
		default:
			pids = []int{a.Cmd.Process.Pid}
		}
		return len(pids) > 0
	})
	// The moment is to be any: nothing is waited for.
	time.Sleep(after)
	for _, pid := range pids {
		// It may have ended meanwhile.
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	if what == "jail-agentd" {
		_ = a.Cmd.Wait()
		a.Start()
	}
}
