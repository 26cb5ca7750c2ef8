package agents

import (
	"fmt"
	"slices"
	"testing"

	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/agents/store"
)

// proposer is an agent that proposes what it is told, and notes what it hears of that.
func (w *world) proposer(name string, heard *[]string) store.Instance {
	return w.install(name, "", func(g *work) error {
		if g.Type == agent.TypeApproval {
			*heard = append(*heard, string(g.Data))
			return nil
		}
		g.effect(agent.Effect{Op: agent.OpPropose, Data: g.Data})
		return nil
	})
}

func (w *world) asks() []store.Proposal {
	w.t.Helper()
	all, err := store.AsksOf(w.Store).All(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// queued waits until all that agents propose is in the queue, and nothing more if none is to be.
func (w *world) queued(n int) (all []store.Proposal) {
	w.t.Helper()
	w.until(fmt.Sprintf("%d proposals are in the queue", n), func() bool {
		all = w.asks()
		return len(all) == n &&
			!slices.ContainsFunc(all, func(p store.Proposal) bool { return p.Action == "" })
	})
	return all
}

// What an agent proposes is in the queue once, waits over kills of jail-agentd, and the agent hears
// of the decision once, wherever an answer of the queue was lost.
func TestProposals(t *testing.T) {
	w := newWorld(t)
	lost := fmt.Errorf("%w: the answer was lost", ErrNoJail)
	w.queue.lost = lost
	w.start()
	var heard []string
	w.proposer("a", &heard)
	w.tell("a", "deploy")
	asked := w.queued(1)[0]
	if idle, err := w.Idle(t.Context()); err != nil || idle {
		t.Errorf("with a proposal that waits it is idle: %v, %v", idle, err)
	}
	if got := w.queue.get(asked.Action); got.Agent != "agent:ann:a" || got.Name != "a" ||
		string(got.Data) != `"deploy"` || got.Key != asked.Key || len(w.queue.all) != 1 {
		t.Errorf("the queue has %+v, and %d actions", got, len(w.queue.all))
	}
	w.crash()
	w.queue.lost = lost
	w.queue.decide(Approved)
	w.start()
	w.until("the queue knows that the agent was told", func() bool { return len(w.asks()) == 0 })
	w.empty("a")
	if got := w.queue.get(asked.Action); got.claimed != asked.Key || got.reported != asked.Key {
		t.Errorf("the action is claimed by %q and reported by %q", got.claimed, got.reported)
	}
	// Killed between the event and the report: told is on the disk.
	w.tell("a", "remove")
	again := w.queued(1)[0]
	w.crash()
	w.start()
	w.still()
	if err := store.AsksOf(w.Store).Tell(again, []byte(`{"decision":"rejected"}`)); err != nil {
		t.Fatal(err)
	}
	w.crash()
	w.queue.decide(rejected)
	w.start()
	w.until("nothing waits", func() bool { return len(w.asks()) == 0 })
	w.empty("a")
	w.crash()
	want := []string{fmt.Sprintf(`{"action":%q,"decision":"approved","id":"agent:ann:a/1/1"}`,
		asked.Action), `{"decision":"rejected"}`}
	if !slices.Equal(heard, want) {
		t.Errorf("the agent heard %q, want %q", heard, want)
	}
	w.start()
}

// A proposal that the queue refuses is rejected at once, with the reason; those of an agent that is
// deleted are withdrawn.
func TestProposalsOfNobody(t *testing.T) {
	w := newWorld(t).start()
	var heard []string
	w.proposer("a", &heard)
	w.proposer("b", new([]string))
	w.tell("a", "no")
	w.until("it is told", func() bool { return len(w.asks()) == 0 && w.instance("a").Settled == 2 })
	w.tell("b", "yes")
	asked := w.queued(1)[0]
	if err := w.Delete(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	w.queue.decide("expired")
	w.until("it is withdrawn", func() bool { return len(w.asks()) == 0 })
	if got := w.queue.get(asked.Action).state; got != "withdrawn" {
		t.Errorf("the action of an agent that is deleted is %s", got)
	}
	w.stop()
	want := []string{`{"decision":"rejected","error":"the ceiling forbids that","id":` +
		`"agent:ann:a/1/1"}`}
	if !slices.Equal(heard, want) {
		t.Errorf("the agent heard %q, want %q", heard, want)
	}
	w.start()
}
