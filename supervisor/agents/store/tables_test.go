package store

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What waits in a database waits when it is opened again, and one of another format is refused.
func TestReopen(t *testing.T) {
	dir := t.TempDir()
	if err := openIn(t, dir).Close(); err != nil {
		t.Fatal(err)
	}
	if err := execIn(dir, `INSERT INTO agent (name, dir, stamp, digest, next, added)
			VALUES ('old', '/old', 'stamp', 'sha256:old', 8, 1000);
		INSERT INTO instance (name, agent, channel, handle, state, delivered, settled, waiting,
			bytes, note) VALUES ('agent-old-team', 'old', 'team', 'old', 'dormant', 6, 6, 1, 2, 'kept');
		INSERT INTO inbox (instance, seq, id, time, source, channel, type, kind, reply_to, data)
			VALUES (1, 7, 'e7', 1000, 'user', 'team', 'message', 'new', '', '42');
		INSERT INTO alarm VALUES (1, 'later', 2000, 0, 0, NULL);
		INSERT INTO proposal (id, instance, time, data, key)
			VALUES ('agent:ann:old/5/1', 1, 1000, '"deploy"', 'k');`); err != nil {
		t.Fatal(err)
	}
	s := openIn(t, dir)
	i, err := s.Instance(t.Context(), idOf(t, s, "old"))
	if err != nil || i.Note != "kept" || i.Waiting != 1 || i.Parent != 0 || i.Roster {
		t.Errorf("%+v %v", i, err)
	}
	if alarms, err := s.Alarms(t.Context(), i.ID); err != nil || len(alarms) != 1 {
		t.Errorf("alarms %+v, %v", alarms, err)
	}
	if asks, err := AsksOf(s).All(t.Context()); err != nil || len(asks) != 1 ||
		asks[0].ID != "agent:ann:old/5/1" || asks[0].Key != "k" || asks[0].Action != "" ||
		string(asks[0].Data) != `"deploy"` || asks[0].Instance != i.ID {
		t.Errorf("proposals %+v, %v", asks, err)
	}
	events, _, err := s.Next(i.ID, 0, 10)
	if err != nil || len(events) != 1 || events[0].Seq != 7 || string(events[0].Data) != "42" {
		t.Errorf("events %+v, %v", events, err)
	}
	f, _, err := ChildrenOf(s).Get(i.ID, "f", []byte("{}"))
	if err != nil || f.Parent != i.ID || f.Facet != "f" {
		t.Errorf("%+v %v", f, err)
	}
	put := func(name string) []int64 {
		t.Helper()
		woken, err := s.Put(Agent{Name: name, Dir: "/" + name}, []Member{{Channel: "team",
			Handle: name, Roster: true}})
		if err != nil {
			t.Fatal(err)
		}
		return woken
	}
	put("old")
	// The facet hears of nobody, and nobody hears of the facet.
	if woken := put("other"); len(woken) != 1 || woken[0] != i.ID {
		t.Errorf("who hears of another member: %v", woken)
	}
	all, woken, err := s.Delete("old")
	if err != nil || len(all) != 2 || len(woken) != 1 || woken[0] != idOf(t, s, "other") {
		t.Errorf("deleted %+v, and %v hear of that: %v", all, woken, err)
	}
	if err := ChildrenOf(s).Forget(all); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{"1", "1000"} {
		if err := execIn(dir, `PRAGMA user_version = `+other); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(filepath.Join(dir, dbName), "ann", time.Now); err == nil ||
			!strings.Contains(err.Error(), "use the jail-agentd that wrote it") {
			t.Errorf("a database of format %s: %v", other, err)
		}
	}
}

func execIn(dir, text string) error {
	db, err := sql.Open("sqlite", filepath.Join(dir, dbName))
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.Exec(text)
	return err
}
