package store

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/runners/runnertest"
)

const dbName = "agentd.db"

// steps are what jail-agentd does with an event, each in a transaction of its own.
var steps = []string{"", "appended", "delivered", "settled"}

// effects are those of the second event: a message to another agent, and an alarm.
var effects = []agent.Effects{{Seq: 2, Effects: []agent.Effect{
	{N: 1, Op: agent.OpSend, To: "b", Data: json.RawMessage(`1`)},
	{N: 2, Op: agent.OpAlarm, Name: "later", At: time.UnixMilli(1 << 41)}}}}

// TestFaults kills jail-agentd at each system call that it makes on its database between an event and
// the delivery of the event's effects, and has each fail: every step has happened or has not, and has
// if that was said. What is left to do can be done then, after which no event is lost or there twice.
func TestFaults(t *testing.T) {
	if dir := runnertest.FaultDir(); dir != "" {
		s := openIn(t, dir)
		if work(t, s, func(step string) { fmt.Println(step) }) {
			fmt.Println(runnertest.Said)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		return
	}
	first := t.TempDir()
	s := openIn(t, first)
	for _, name := range []string{"a", "b"} {
		if _, err := s.Put(Agent{Name: name, Dir: "/" + name}, []Member{{Channel: "of-" + name,
			Handle: name}}); err != nil {
			t.Fatal(err)
		}
	}
	id := idOf(t, s, "a")
	if _, given, err := s.Append(id, event("one"), true); err != nil || given == nil {
		t.Fatalf("%+v %v", given, err)
	}
	if _, err := s.Ack(id, 1, nil, false, Want{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(filepath.Join(first, dbName+"-*")); err != nil || len(left) > 0 {
		t.Errorf("beside a database that was closed there are %q, %v", left, err)
	}
	runnertest.EachFault(t, first, dbName, func(dir, what, out string) {
		s, err := Open(filepath.Join(dir, dbName), "ann", time.Now)
		if err != nil {
			t.Errorf("%s: the database cannot be opened: %v", what, err)
			return
		}
		defer s.Close()
		said := 0
		for n, step := range steps {
			if n > 0 && strings.Contains(out, step+"\n") {
				said = n
			}
		}
		if got := stepOf(t, s); got < said {
			t.Errorf("%s: the event is %q, and was said to be %q\n%s", what, steps[max(got, 0)],
				steps[said], out)
		}
		if !work(t, s, func(string) {}) || stepOf(t, s) != len(steps)-1 {
			t.Errorf("%s: the event cannot be brought to its end: %d\n%s", what, stepOf(t, s), out)
		}
		var check string
		if err := s.readers.rows("PRAGMA integrity_check", nil, func(r *sql.Rows) error {
			return r.Scan(&check)
		}); err != nil || check != "ok" {
			t.Errorf("%s: %s %v", what, check, err)
		}
	})
}

func openIn(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(filepath.Join(dir, dbName), "ann", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func event(id string) agent.Event {
	return agent.Event{Source: "user", ID: id, Type: agent.TypeMessage, Data: json.RawMessage(`1`)}
}

func idOf(t *testing.T, s *Store, name string) (id int64) {
	t.Helper()
	if err := s.Instances(t.Context(), name, func(i Instance) error {
		id = i.ID
		return nil
	}); err != nil || id == 0 {
		t.Fatalf("agent %s: %d, %v", name, id, err)
	}
	return id
}

// work brings the second event to its end, and calls done for each step. Like jail-agentd it tries a
// step again that has failed.
func work(t *testing.T, s *Store, done func(step string)) bool {
	id := idOf(t, s, "a")
	twice := func(step string, do func() error) bool {
		err := do()
		if err != nil {
			err = do()
		}
		if err != nil {
			t.Logf("%s has failed: %v", step, err)
			return false
		}
		done(step)
		return true
	}
	return twice(steps[1], func() error {
		seq, _, err := s.Append(id, event("two"), false)
		if err == nil && seq != 2 {
			t.Errorf("the event has the number %d", seq)
		}
		return err
	}) && twice(steps[2], func() error {
		_, _, err := s.Next(id, 1, 1)
		return err
	}) && twice(steps[3], func() error {
		_, err := s.Ack(id, 2, effects, false, Want{})
		return err
	})
}

// stepOf returns how far the second event has come, -1 if it is at no step.
func stepOf(t *testing.T, s *Store) int {
	t.Helper()
	a, err := s.Instance(t.Context(), idOf(t, s, "a"))
	if err != nil {
		t.Fatal(err)
	}
	waiting, err := s.Waiting(t.Context(), a.ID, 10)
	if err != nil {
		t.Fatal(err)
	}
	sent, err := s.Waiting(t.Context(), idOf(t, s, "b"), 10)
	if err != nil {
		t.Fatal(err)
	}
	published, err := s.Published(t.Context(), "a", 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	alarms, err := s.Alarms(t.Context(), a.ID)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("settled %d, waiting %d, inbox %d, sent %d, published %d, alarms %d",
		a.Settled, a.Waiting, len(waiting), len(sent), len(published), len(alarms))
	switch got {
	case "settled 2, waiting 0, inbox 0, sent 1, published 1, alarms 1":
		if sent[0].ID == "agent:ann:a/2/1" {
			return 3
		}
	case "settled 1, waiting 0, inbox 0, sent 0, published 0, alarms 0":
		return 0
	case "settled 1, waiting 1, inbox 1, sent 0, published 0, alarms 0":
		if waiting[0].Attempt == 0 {
			return 1
		}
		if a.Delivered == 2 {
			return 2
		}
	}
	t.Errorf("it is neither before nor after a step: %s", got)
	return -1
}
