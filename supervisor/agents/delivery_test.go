package agents

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/supervisor/agents/store"
	"github.com/jail-sandbox/jail/supervisor/audit"
)

func count(g *work) error {
	g.count++
	return nil
}

// An agent wakes for an event, and sleeps when it has none.
func TestWakeAndSleep(t *testing.T) {
	w := newWorld(t).start()
	i := w.install("echo", "[wake]\nidle = \"100ms\"\n", func(g *work) error {
		g.send("", map[string]string{"content": "yes"})
		return nil
	})
	if i.State != store.Created {
		t.Errorf("a new agent is %q", i.State)
	}
	w.say(i, "hi")
	w.empty("echo")
	w.until("it is dormant, and nothing of it runs", func() bool {
		i := w.instance("echo")
		return w.StateOf(i) == store.Dormant && w.turns.count() == 0
	})
	sent, err := w.Store.Published(t.Context(), "echo", 0, 10)
	if err != nil || len(sent) != 1 || sent[0].ID != "agent:ann:echo/1/1" {
		t.Errorf("published: %+v, %v", sent, err)
	}
}

// Rule 1: what was published is durable in the inbox of each receiver, and unique by its source and
// id.
func TestRule1Published(t *testing.T) {
	w := newWorld(t).start()
	w.install("a", `channels = ["team"]`, func(g *work) error {
		g.send("team", "to all")
		return nil
	})
	for _, name := range []string{"b", "c"} {
		w.install(name, `channels = ["team"]`, count)
	}
	if err := w.Pause(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	w.say(w.instance("a"), "go")
	w.empty("a", "c")
	w.crash()
	w.start()
	events, err := w.Store.Waiting(t.Context(), w.instance("b").ID, 10)
	if err != nil || len(events) != 1 || events[0].ID != "agent:ann:a/1/1" ||
		events[0].Source != "agent:ann:a" || string(events[0].Data) != `"to all"` {
		t.Errorf("after a crash there is %+v, %v", events, err)
	}
	e := events[0]
	e.ID, e.Source = "one", "user"
	first, err := w.Send(w.instance("c").ID, e)
	if err != nil {
		t.Fatal(err)
	}
	again, err := w.Send(w.instance("c").ID, e)
	if err != nil || first != again {
		t.Errorf("the same event has the numbers %d and %d, %v", first, again, err)
	}
}

// Rule 2: events are delivered in order, one at a time, and leave the inbox when they are committed.
func TestRule2Order(t *testing.T) {
	w := newWorld(t).start()
	var seen []uint64
	i := w.install("a", "", func(g *work) error {
		seen = append(seen, g.Seq)
		w.jails.mu.Lock()
		defer w.jails.mu.Unlock()
		g.count++
		return nil
	})
	for range 300 {
		w.say(i, "x")
	}
	w.empty("a")
	w.stop()
	if !slices.IsSorted(seen) || len(seen) != 300 {
		t.Errorf("%d events, in order: %v", len(seen), slices.IsSorted(seen))
	}
	w.start()
}

// Rule 3: a crash before the commit leaves nothing, and the event comes again.
func TestRule3CrashBefore(t *testing.T) {
	w := newWorld(t).start()
	var kinds []string
	died := false
	w.jails.die = func(instance, point string) bool {
		first := instance == "agent-a-main" && point == "before commit" && !died
		died = died || first
		return first
	}
	i := w.install("a", "", func(g *work) error {
		kinds = append(kinds, g.Kind)
		g.count++
		g.send("b", "x")
		return nil
	})
	b := w.install("b", "", count)
	w.say(i, "x")
	w.empty("a", "b")
	w.stop()
	if !slices.Equal(kinds, []string{"new", "replay"}) {
		t.Errorf("it came as %q", kinds)
	}
	if a, b := w.disk(i).count, w.disk(b).count; a != 1 || b != 1 {
		t.Errorf("a counts %d and b %d, want 1", a, b)
	}
	w.start()
}

// Rule 4: a crash after the commit: the event does not come again, and its effects are delivered.
func TestRule4CrashAfter(t *testing.T) {
	for _, point := range []string{"after commit", "after done"} {
		t.Run(point, func(t *testing.T) {
			w := newWorld(t).start()
			died := false
			w.jails.die = func(instance, at string) bool {
				first := instance == "agent-a-main" && at == point && !died
				died = died || first
				return first
			}
			i := w.install("a", "", func(g *work) error {
				g.count++
				g.send("b", "x")
				return nil
			})
			b := w.install("b", "", count)
			w.say(i, "x")
			// What comes after it wakes the agent again.
			w.say(i, "y")
			w.empty("a", "b")
			w.stop()
			if a, b := w.disk(i), w.disk(b); a.count != 2 || b.count != 2 {
				t.Errorf("a counts %d and b %d, want 2", a.count, b.count)
			}
			w.start()
		})
	}
}

// Rule 5: effects among agents are exactly once, wherever hosts and agentd are killed.
func TestRule5ExactlyOnce(t *testing.T) {
	events := 1000
	if testing.Short() {
		events = 100
	}
	w := newWorld(t).start()
	random := rand.New(rand.NewPCG(1, 2))
	kills := 0
	w.jails.die = func(_, point string) bool {
		if point == "start" || point == "sleep" {
			return false
		}
		dies := random.IntN(events/10) == 0
		if dies {
			kills++
		}
		return dies
	}
	a := w.install("a", "[wake]\nretries = 100\n", func(g *work) error {
		g.count++
		g.send("b", g.count)
		return nil
	})
	b := w.install("b", "[wake]\nretries = 100\n", count)
	for n := range events {
		w.say(a, n)
		if n%(events/10) == events/20 {
			w.crash()
			w.start()
		}
	}
	w.empty("a", "b")
	w.stop()
	if a, b := w.disk(a), w.disk(b); a.count != events || b.count != events {
		t.Errorf("a counts %d and b %d, want %d", a.count, b.count, events)
	} else {
		slices.Sort(b.seen)
		if len(slices.Compact(b.seen)) != events {
			t.Error("b got an event twice")
		}
	}
	if kills < 10 {
		t.Errorf("only %d kills: the test tests nothing", kills)
	}
	w.start()
}

// Rule 6: after the retries an event is a dead letter, is listed, on record and can be delivered
// again; those after it have their turn.
func TestRule6DeadLetters(t *testing.T) {
	for _, how := range []error{errors.New("no"), errKilled} {
		t.Run(how.Error(), func(t *testing.T) {
			w := newWorld(t)
			var records []audit.AgentStep
			w.records = func(r audit.AgentStep) { records = append(records, r) }
			w.start()
			bad := true
			i := w.install("a", "[wake]\nretries = 2\n", func(g *work) error {
				if string(g.Data) == `"bad"` && bad {
					return how
				}
				g.count++
				return nil
			})
			w.say(i, "good")
			n := w.say(i, "bad")
			w.say(i, "good")
			w.empty("a")
			letters, err := w.Store.Letters(t.Context(), i.ID, 10)
			if err != nil || len(letters) != 1 || letters[0].Seq != n || letters[0].Attempt < 3 {
				t.Fatalf("letters %+v, %v", letters, err)
			}
			if got := w.disk(i).count; got != 2 {
				t.Errorf("%d good events, want 2", got)
			}
			bad = false
			if _, err := w.Store.Retry(i.ID, n); err != nil {
				t.Fatal(err)
			}
			w.wake(i.ID)
			w.empty("a")
			w.stop()
			if got := w.disk(i).count; got != 3 {
				t.Errorf("%d events after the retry, want 3", got)
			}
			if !slices.ContainsFunc(records, func(r audit.AgentStep) bool {
				return r.Step == audit.AgentDeadLetter && r.Event == int64(n)
			}) {
				t.Errorf("no record of the dead letter in %+v", records)
			}
			w.start()
		})
	}
}

// The pause doubles from a second up to five minutes, and stays there for as many retries as a
// manifest may ask for.
func TestPauses(t *testing.T) {
	var got []time.Duration
	for _, tries := range []int{0, 1, 2, 3, 9, 10, 36, 100} {
		got = append(got, pauseAfter(tries, time.Second))
	}
	want := []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second, 256 * time.Second,
		mostPause, mostPause, mostPause}
	if !slices.Equal(got, want) {
		t.Errorf("pauses %v, want %v", got, want)
	}
}

// An agent that fails five times in a row has failed; only its owner wakes it again.
func TestFailed(t *testing.T) {
	w := newWorld(t).start()
	broken := true
	w.jails.die = func(_, point string) bool { return broken && point == "start" }
	i := w.install("a", "", count)
	w.say(i, "x")
	w.until("it has failed", func() bool { return w.instance("a").State == store.Failed })
	if got := w.instance("a"); got.Failures != 5 || !strings.Contains(got.Error, "killed") {
		t.Errorf("failures %d, error %q", got.Failures, got.Error)
	}
	w.say(i, "y")
	w.jails.mu.Lock()
	broken = false
	ran := w.jails.ran[i.Name]
	w.jails.mu.Unlock()
	if ran != 5 {
		t.Errorf("it was started %d times", ran)
	}
	if err := w.Resume(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	w.empty("a")
}
