package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/runners/agent"
)

// An inbox has room for 10,000 events, whatever they hold, and an event is at most 256 KiB.
func TestBounds(t *testing.T) {
	s := openIn(t, t.TempDir())
	defer s.Close()
	if _, err := s.Put(Agent{Name: "a", Dir: "/a"}, []Member{{Channel: "c", Handle: "a"}}); err != nil {
		t.Fatal(err)
	}
	id := idOf(t, s, "a")
	add := func(bytes int) error {
		data := json.RawMessage(`"` + strings.Repeat("x", bytes-2) + `"`)
		_, _, err := s.Append(id, agent.Event{Source: "user", Type: "message", Data: data}, false)
		return err
	}
	if err := add(agent.MaxEvent + 1); !errors.Is(err, ErrTooLarge) {
		t.Errorf("an event that is too large: %v", err)
	}
	if err := add(agent.MaxEvent); err != nil {
		t.Errorf("an event of the largest size: %v", err)
	}
	// As if so many waited.
	if err := s.write(func(w *writer) error {
		return w.exec(`UPDATE instance SET waiting = ? WHERE id = ?`, 9_999, id)
	}); err != nil {
		t.Fatal(err)
	}
	if err := add(2); err != nil {
		t.Errorf("event 10,000: %v", err)
	}
	if err := add(2); !errors.Is(err, ErrFull) {
		t.Errorf("event 10,001: %v", err)
	}
}

// A receiver whose inbox stays full keeps the last 10,000 dead letters of its senders, and no more.
func TestSpilledBounds(t *testing.T) {
	s := openIn(t, t.TempDir())
	defer s.Close()
	for _, name := range []string{"a", "b"} {
		if _, err := s.Put(Agent{Name: name, Dir: "/" + name},
			[]Member{{Channel: "c", Handle: name}}); err != nil {
			t.Fatal(err)
		}
	}
	from, to := idOf(t, s, "a"), idOf(t, s, "b")
	// As if so many waited.
	if err := s.write(func(w *writer) error {
		return w.exec(`UPDATE instance SET waiting = ? WHERE id = ?`, maxWaiting, to)
	}); err != nil {
		t.Fatal(err)
	}
	sends := make([]agent.Effect, agent.MaxEffects)
	for i := range sends {
		sends[i] = agent.Effect{N: i + 1, Op: agent.OpSend, To: "b", Data: json.RawMessage(`1`)}
	}
	for range maxWaiting/len(sends) + 1 {
		seq, _, err := s.Append(from, agent.Event{Source: "user", Type: "message"}, true)
		if err != nil {
			t.Fatal(err)
		}
		done, err := s.Ack(from, seq, []agent.Effects{{Seq: seq, Effects: sends}}, true, Want{})
		if err != nil || len(done.Spilled) != len(sends) {
			t.Fatalf("%d were spilled: %v", len(done.Spilled), err)
		}
	}
	if dead, err := s.Dead(t.Context()); err != nil || dead[to] != maxWaiting {
		t.Errorf("%d dead letters: %v", dead[to], err)
	}
}

// The ids of calls and of old events are forgotten while the store is open. An id that is known is
// delivered once.
func TestSeenBounds(t *testing.T) {
	s := openIn(t, t.TempDir())
	defer s.Close()
	if _, err := s.Put(Agent{Name: "b", Dir: "/b"}, []Member{{Channel: "c", Handle: "b"}}); err != nil {
		t.Fatal(err)
	}
	to := idOf(t, s, "b")
	known := func(source string) (n int) {
		t.Helper()
		if err := s.readers.row(`SELECT count(*) FROM seen WHERE source = ?`,
			[]any{source}, &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	// That nothing is forgotten for 30 times the mean has no chance.
	const many = 30 * forgetEvery
	fill := func(source string, n int, at time.Time) {
		t.Helper()
		if err := s.write(func(w *writer) error {
			for i := range n {
				if _, _, err := w.append(to, agent.Event{ID: fmt.Sprint(source, "/", i), Source: source,
					Type: agent.TypeCall}, at, false); err != nil {
					return err
				}
				if err := w.remove(to, 0, 1<<62); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	fill("user", 10, s.now().Add(-seenTime-time.Hour))
	fill("agent:ann:a", maxSeen+2*many, s.now())
	if n := known("agent:ann:a"); n < maxSeen || n > maxSeen+many {
		t.Errorf("%d ids of calls are known", n)
	}
	if n := known("user"); n != 0 {
		t.Errorf("%d ids of old events are known", n)
	}
	last := agent.Event{ID: fmt.Sprint("agent:ann:a/", maxSeen+2*many-1), Source: "agent:ann:a",
		Type: agent.TypeCall}
	if _, _, err := s.Append(to, last, false); err != nil {
		t.Fatal(err)
	}
	if waiting, err := s.Waiting(t.Context(), to, 10); err != nil || len(waiting) != 0 {
		t.Errorf("a known id was delivered again: %v, %v", waiting, err)
	}
}
