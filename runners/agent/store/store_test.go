package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/runners/agent"
)

// open opens the database in dir, which the test closes.
func open(t *testing.T, dir string, size int64) *Store {
	t.Helper()
	s, err := Open(t.Context(), dir, size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// event runs statements as an event, and commits it if none of them fails.
func (s *Store) event(ctx context.Context, seq uint64, statements ...string) error {
	if err := s.Begin(ctx); err != nil {
		return err
	}
	for _, statement := range statements {
		if _, err := s.Run(ctx, statement, nil); err != nil {
			return errors.Join(err, s.Rollback(context.WithoutCancel(ctx)))
		}
	}
	err := s.Commit(ctx, agent.Effects{Seq: seq, Effects: []agent.Effect{
		{N: 1, Op: agent.OpSend, Data: json.RawMessage(`"hi"`)}}})
	if err != nil {
		return errors.Join(err, s.Rollback(context.WithoutCancel(ctx)))
	}
	return nil
}

// value returns what a query of one column and row returns.
func value(t *testing.T, s *Store, query string) string {
	t.Helper()
	if err := s.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	rows, err := s.Query(t.Context(), query, nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(rows) == 0 {
		return ""
	}
	return string(rows[0])
}

// TestEvents: an event is there as a whole or not at all, and so are its effects.
func TestEvents(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, 1<<20)
	if err := s.event(t.Context(), 1, "CREATE TABLE t (a)", "INSERT INTO t VALUES (7)"); err != nil {
		t.Fatal(err)
	}
	if err := s.event(t.Context(), 2, "INSERT INTO t VALUES (8)", "nonsense"); err == nil {
		t.Fatal("nonsense is no error")
	}
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, 1<<20)
	left, err := s.Left(t.Context())
	if err != nil || s.Committed() != 1 || len(left) != 1 || left[0].Seq != 1 {
		t.Errorf("committed %d, left %+v, %v", s.Committed(), left, err)
	}
	if got := value(t, s, "SELECT sum(a) AS n FROM t"); got != `{"n":7}` {
		t.Errorf("sum: %s", got)
	}
	s.Settle(1)
	if err := s.event(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if left, err = s.Left(t.Context()); err != nil || len(left) != 1 || left[0].Seq != 2 {
		t.Errorf("left %+v, %v", left, err)
	}
}

// TestEndOfTransaction: a statement that ends the transaction of the event fails the event, and
// nothing of the event or of what comes after that statement stays.
func TestEndOfTransaction(t *testing.T) {
	s := open(t, t.TempDir(), 1<<20)
	if err := s.event(t.Context(), 1, "CREATE TABLE t (a PRIMARY KEY)",
		"INSERT INTO t VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		"COMMIT", "END", "ROLLBACK", "COMMIT; BEGIN", "ROLLBACK; BEGIN",
		"ROLLBACK; DELETE FROM t",
		"ROLLBACK; DELETE FROM _jail_checkpoint",
		"ROLLBACK; PRAGMA journal_mode=DELETE; PRAGMA synchronous=OFF; BEGIN",
		"INSERT OR ROLLBACK INTO t VALUES (1)",
		"CREATE TRIGGER r BEFORE DELETE ON t BEGIN SELECT RAISE(ROLLBACK, 'x'); END; DELETE FROM t",
		"SAVEPOINT a; INSERT INTO t VALUES (3); COMMIT",
	} {
		err := s.event(t.Context(), 2, "INSERT INTO t VALUES (2)", statement)
		if err == nil || !strings.Contains(err.Error(), "only a checkpoint does") {
			t.Errorf("%s: %v", statement, err)
		}
		if got := value(t, s, "SELECT count(*) AS n, max(seq) AS seq FROM t, _jail_checkpoint"); got !=
			`{"n":1,"seq":1}` {
			t.Errorf("%s: left %s", statement, got)
		}
		if got := value(t, s, "PRAGMA journal_mode"); got != `{"journal_mode":"wal"}` {
			t.Errorf("%s: %s", statement, got)
		}
	}
	for _, statement := range []string{"SAVEPOINT a; INSERT INTO t VALUES (3); RELEASE a",
		"SAVEPOINT a; INSERT INTO t VALUES (3); ROLLBACK TO a; RELEASE a"} {
		if err := s.event(t.Context(), 2, "DELETE FROM t WHERE a = 3", statement); err != nil {
			t.Errorf("%s: %v", statement, err)
		}
	}
	if got := value(t, s, "SELECT max(seq) AS seq FROM _jail_checkpoint"); got != `{"seq":2}` {
		t.Errorf("checkpoint %s", got)
	}
}

// TestOneHolder: nobody else opens a database that is open.
func TestOneHolder(t *testing.T) {
	if dir := os.Getenv("STORE_TEST_DIR"); dir != "" {
		if s, err := Open(t.Context(), dir, 1<<20); err == nil {
			s.Close()
			os.Exit(3)
		}
		os.Exit(4)
	}
	dir := t.TempDir()
	s := open(t, dir, 1<<20)
	if code := again(t, dir); code != 4 {
		t.Errorf("while it is open: exit code %d", code)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// The control.
	if code := again(t, dir); code != 3 {
		t.Errorf("once it is closed: exit code %d", code)
	}
	if _, err := os.Stat(filepath.Join(dir, dbFile)); err != nil {
		t.Error(err)
	}
}

func TestWarm(t *testing.T) {
	if err := Warm(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestMemoryTables: every agent has the tables of memory, with these columns, none with a row id, and
// a database without rows is small.
func TestMemoryTables(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(t.Context(), dir, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	rows, err := s.Query(t.Context(), `SELECT m.name || '(' || group_concat(p.name || ' ' || p.type ||
		CASE p.pk WHEN 0 THEN '' ELSE ' PK' END, ', ') || ')' AS made, sql LIKE '%WITHOUT ROWID' AS small
		FROM sqlite_schema m, pragma_table_info(m.name) p WHERE m.type = 'table'
		AND m.name NOT LIKE '\_jail%' ESCAPE '\' GROUP BY m.name ORDER BY m.name`, nil, 100)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, row := range rows {
		var r struct {
			Made  string
			Small int
		}
		if err := json.Unmarshal(row, &r); err != nil || r.Small != 1 {
			t.Errorf("%s, %v", row, err)
		}
		got = append(got, r.Made)
	}
	want := []string{
		"agent_config(key TEXT PK, value TEXT, updated_at INTEGER)",
		"agent_peers(npub TEXT PK, name TEXT, relationship TEXT, trust_score REAL)",
		"conversations(id TEXT PK, started_at INTEGER, summary TEXT, tokens_used INTEGER)",
		"file_context(path TEXT PK, content_hash TEXT, last_read_at INTEGER, summary TEXT)",
		"goals(id TEXT PK, description TEXT, priority INTEGER, status TEXT, progress REAL)",
		"learned_patterns(id TEXT PK, pattern_type TEXT, description TEXT, confidence REAL)",
		"messages(id TEXT PK, conversation_id TEXT, role TEXT, content TEXT, created_at INTEGER)",
		"nostr_events(id TEXT PK, pubkey TEXT, kind INTEGER, created_at INTEGER, content TEXT)",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(dir, dbFile)); err != nil || info.Size() > 64<<10 {
		t.Errorf("%v, %v", info, err)
	}
}

// TestKeptStatements: a statement that is kept does what it would do anew: after an error, after a
// change of the tables, when it was not read to its end, and in an event after one that has failed.
func TestKeptStatements(t *testing.T) {
	s := open(t, t.TempDir(), 1<<20)
	ctx := t.Context()
	if err := s.Begin(ctx); err != nil {
		t.Fatal(err)
	}
	run := func(statement string, params ...json.RawMessage) error {
		_, err := s.Run(ctx, statement, params)
		return err
	}
	rows := func(statement string, most int) string {
		t.Helper()
		got, err := s.Query(ctx, statement, nil, most)
		if err != nil {
			t.Fatal(err)
		}
		return string(slices.Concat(got...))
	}
	const insert, all, script = "INSERT INTO t VALUES (?)", "SELECT * FROM t ORDER BY a",
		"DELETE FROM t; INSERT INTO t (a) VALUES (7)"
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(run("CREATE TABLE t (a PRIMARY KEY)"))
	must(run(insert, json.RawMessage("1")))
	if run(insert, json.RawMessage("1")) == nil {
		t.Error("control: a second row with one key")
	}
	must(run(insert, json.RawMessage("2")))
	if got := rows(all, 1); got != `{"a":1}` {
		t.Errorf("the first row: %s", got)
	}
	must(run("ALTER TABLE t ADD COLUMN b"))
	if got := rows(all, 9); got != `{"a":1,"b":null}{"a":2,"b":null}` {
		t.Errorf("with another column: %s", got)
	}
	for range 2 {
		must(run(script))
		if got := rows(all, 9); got != `{"a":7,"b":null}` {
			t.Errorf("after two statements in one: %s", got)
		}
	}
	must(run("DROP TABLE t"))
	if _, err := s.Query(ctx, all, nil, 1); err == nil {
		t.Error("a table that was dropped is read")
	}
	must(run("CREATE TABLE t (a PRIMARY KEY)"))
	must(s.Commit(ctx, agent.Effects{Seq: 1}))
	must(s.Begin(ctx))
	must(run(insert, json.RawMessage("3")))
	if _, err := s.Query(ctx, "SELECT abs(-9223372036854775808)", nil, 1); err == nil {
		t.Error("control: an overflow")
	}
	must(s.Rollback(ctx))
	must(s.Begin(ctx))
	must(run(insert, json.RawMessage("4")))
	if got := rows(all, 9); got != `{"a":4}` {
		t.Errorf("after an event that has failed: %s", got)
	}
	for n := range 3 * maxGuests {
		rows(fmt.Sprintf("SELECT %d", n), 1)
		if kept := len(s.conn.guests); kept > maxGuests {
			t.Fatalf("%d statements are kept", kept)
		}
	}
	must(s.Commit(ctx, agent.Effects{Seq: 2}))
}
