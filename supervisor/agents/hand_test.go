package agents

import (
	"slices"
	"sync"
	"testing"

	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/agents/store"
)

// Events that come from several sides while the agent waits, and so are delivered as they are put into
// its inbox, are delivered in order, each once and by its first attempt.
func TestHandedOver(t *testing.T) {
	w := newWorld(t).start()
	var mu sync.Mutex
	var seen []agent.Event
	w.install("from", `channels = ["team"]`, func(g *work) error {
		if g.Type != agent.TypeRoster {
			g.send("team", "x")
		}
		return nil
	})
	i := w.install("to", `channels = ["team"]`, func(g *work) error {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, g.Event)
		g.count++
		return nil
	})
	const senders, each = 4, 30
	var work sync.WaitGroup
	for range senders {
		work.Go(func() {
			for n := range each {
				w.say(i, n)
				// Some come to an agent that waits, and some to one that works.
				if n%3 == 0 {
					w.empty("to")
				}
			}
		})
	}
	for range each {
		w.tell("from", "go")
	}
	work.Wait()
	w.empty("from", "to")
	if len(seen) != (senders+1)*each || !slices.IsSortedFunc(seen, func(a, b agent.Event) int {
		return int(a.Seq) - int(b.Seq)
	}) {
		t.Errorf("%d events, not in order: %+v", len(seen), seen)
	}
	for _, e := range seen {
		if e.Attempt != 1 || e.Kind != agent.KindNew {
			t.Errorf("an event comes as %+v", e)
		}
	}
}

// An event is delivered as it is put into the inbox only if it is new and no other waits, and it is
// then what Next returns.
func TestAppendDelivers(t *testing.T) {
	w := newWorld(t).start()
	i := w.install("a", "", count)
	w.still()
	e := agent.Event{Source: "user", ID: "one", Type: agent.TypeMessage, Data: mustJSON(1)}
	seq, given, err := w.Store.Append(i.ID, e, true)
	if err != nil || given == nil || given.Seq != seq || given.Attempt != 1 {
		t.Fatalf("%d %+v %v", seq, given, err)
	}
	for _, id := range []string{"one", "two"} {
		e.ID = id
		if _, given, err := w.Store.Append(i.ID, e, true); err != nil || given != nil {
			t.Errorf("%s is delivered though another waits: %+v, %v", id, given, err)
		}
	}
	// After a crash the first comes again, as a replay.
	events, _, err := w.Store.Next(i.ID, 0, 10)
	if err != nil || len(events) != 2 || events[0].Attempt != 2 ||
		events[0].Kind != agent.KindReplay || events[1].Attempt != 1 {
		t.Fatalf("%+v %v", events, err)
	}
	given.Attempt, given.Kind = 2, agent.KindReplay
	if got, want := mustJSON(events[0]), mustJSON(given); string(got) != string(want) {
		t.Errorf("delivered is %s, and the inbox has %s", want, got)
	}
	done, err := w.Store.Ack(i.ID, seq, nil, false, store.Want{After: seq, Limit: 1})
	if err != nil || len(done.Events) != 1 || done.Events[0].ID != "two" || !done.More {
		t.Errorf("%+v %v", done, err)
	}
}

// A paused instance is given nothing, also by a run that does not know of it yet.
func TestPausedGetsNothing(t *testing.T) {
	w := newWorld(t).start()
	i := w.install("a", "", count)
	w.still()
	if err := w.Pause(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	e := agent.Event{Source: "user", ID: "one", Type: agent.TypeMessage, Data: mustJSON(1)}
	if _, given, err := w.Store.Append(i.ID, e, true); err != nil || given != nil {
		t.Errorf("delivered as it was put in: %+v, %v", given, err)
	}
	if events, more, err := w.Store.Next(i.ID, 0, 10); err != nil || len(events) > 0 || more {
		t.Errorf("delivered: %+v, more %v, %v", events, more, err)
	}
	if err := w.Store.SetPaused(i.ID, false); err != nil {
		t.Fatal(err)
	}
	events, _, err := w.Store.Next(i.ID, 0, 10)
	if err != nil || len(events) != 1 || events[0].Attempt != 1 {
		t.Errorf("after the pause: %+v, %v", events, err)
	}
}

// A run that has ended takes nothing, and one to which an event is coming is not done.
func TestHand(t *testing.T) {
	h := newHand()
	if h.claim() || (*hand)(nil).claim() {
		t.Error("an event is claimed for a run that does not wait")
	}
	h.offer(true)
	if !h.claim() || h.claim() {
		t.Error("not exactly one sender has the hand")
	}
	if _, coming := h.take(); !coming || !h.isBusy() {
		t.Error("nothing is coming")
	}
	if h.give(nil) || h.isBusy() {
		t.Error("nothing was given, and that was taken")
	}
	h.offer(true)
	if !h.claim() || !h.give(&agent.Event{Seq: 7}) || !h.isBusy() {
		t.Error("an event is not taken")
	}
	if given, coming := h.take(); coming || len(given) != 1 || given[0].Seq != 7 {
		t.Errorf("taken: %+v, %v", given, coming)
	}
	h.offer(true)
	if !h.claim() {
		t.Error("the run waits, and takes nothing")
	}
	h.close()
	if h.give(&agent.Event{}) || h.claim() {
		t.Error("a run that has ended takes an event")
	}
}
