package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/runners/runnertest"
)

// TestFaults kills the process at each system call of an event, and has each fail: the database is in
// the state before the event or in that after it, with its effects, and in the latter if the commit
// was said to be on the disk.
func TestFaults(t *testing.T) {
	if dir := runnertest.FaultDir(); dir != "" {
		second(t, dir)
		return
	}
	first := t.TempDir()
	s := open(t, first, 1<<20)
	if err := s.event(t.Context(), 1, "CREATE TABLE t (a)", "INSERT INTO t VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	runnertest.EachFault(t, first, dbFile, func(dir, what, out string) {
		s, err := Open(t.Context(), dir, 1<<20)
		if err != nil {
			t.Errorf("%s: the database cannot be opened: %v", what, err)
			return
		}
		defer s.Close()
		left, err := s.Left(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprintf("%s %d %d", value(t, s, "SELECT count(*) AS n FROM t"), s.Committed(),
			len(left))
		const before, after = `{"n":1} 1 1`, `{"n":2} 2 2`
		said := strings.Contains(out, runnertest.Said)
		if got != after && (said || got != before) {
			t.Errorf("%s: %s, and the commit was said: %v\n%s", what, got, said, out)
		}
		if check := value(t, s, "PRAGMA integrity_check"); check != `{"integrity_check":"ok"}` {
			t.Errorf("%s: %s", what, check)
		}
	})
}

// second works on the second event and says when it is on the disk.
func second(t *testing.T, dir string) {
	s, err := Open(t.Context(), dir, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx := context.Background()
	if err := s.Begin(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Run(ctx, "INSERT INTO t VALUES (2)", nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(ctx, agent.Effects{Seq: 2, Effects: []agent.Effect{{N: 1, Op: agent.OpSend,
		Data: json.RawMessage(`1`)}}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	fmt.Println(runnertest.Said)
}
