package store

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jail-sandbox/jail/supervisor/transcript"
)

// ErrOther: a session has a different event with that number, or lacks the event before it.
var ErrOther = errors.New("somebody else has gone on with the session")

// sessionTables create the tables of Sessions if they are missing. Older versions of jail-agentd
// ignore these tables.
var sessionTables = []string{
	`CREATE TABLE IF NOT EXISTS session (
		id TEXT PRIMARY KEY,
		started INTEGER NOT NULL,
		changed INTEGER NOT NULL,
		events INTEGER NOT NULL,
		bytes INTEGER NOT NULL
	) WITHOUT ROWID`,
	`CREATE TABLE IF NOT EXISTS session_event (
		session TEXT NOT NULL,
		seq INTEGER NOT NULL,
		event BLOB NOT NULL,
		PRIMARY KEY (session, seq)
	)`,
}

// maxSession bounds the events of a session, in bytes.
const maxSession = 1 << 30

// Sessions stores the events of sessions of the tool loop.
type Sessions struct{ s *Store }

// SessionsOf returns the Sessions of a store.
func SessionsOf(s *Store) Sessions { return Sessions{s} }

// Append adds events, in JSON, to a session: all or none. The first has the number seq, and the
// first event of a session is 1. An event that is already stored with the same bytes is skipped.
func (k Sessions) Append(id string, seq int64, events ...[]byte) error {
	return k.s.write(func(w *writer) error {
		for i, event := range events {
			if err := k.append(w, id, seq+int64(i), event); err != nil {
				return err
			}
		}
		return nil
	})
}

func (k Sessions) append(w *writer, id string, seq int64, event []byte) error {
	var last, size int64
	err := w.row(`SELECT events, bytes FROM session WHERE id = ?`, []any{id}, &last, &size)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	now := millis(k.s.now())
	switch {
	case seq > 0 && seq <= last:
		var before []byte
		err := w.row(`SELECT event FROM session_event WHERE session = ? AND seq = ?`,
			[]any{id, seq}, &before)
		if err != nil || bytes.Equal(before, event) {
			return err
		}
		return fmt.Errorf("session %s, event %d: %w", id, seq, ErrOther)
	case seq != last+1:
		return fmt.Errorf("session %s, event %d after event %d: %w", id, seq, last, ErrOther)
	case size+int64(len(event)) > maxSession:
		return fmt.Errorf("session %s: its events are larger than %d MiB: %w", id,
			maxSession>>20, ErrTooLarge)
	}
	if err := w.exec(`INSERT INTO session_event (session, seq, event) VALUES (?, ?, ?)`, id, seq,
		event); err != nil {
		return err
	}
	if seq == 1 {
		return w.exec(`INSERT INTO session (id, started, changed, events, bytes)
			VALUES (?, ?, ?, 1, ?)`, id, now, now, len(event))
	}
	return w.exec(`UPDATE session SET changed = ?, events = ?, bytes = bytes + ? WHERE id = ?`,
		now, seq, len(event), id)
}

// Events calls f for each event of a session, in order, with its JSON, which is valid until f
// returns.
func (k Sessions) Events(ctx context.Context, id string, f func(event []byte) error) error {
	none := true
	err := k.s.reading(ctx)(`SELECT event FROM session_event WHERE session = ? ORDER BY seq`, []any{id},
		func(r *sql.Rows) error {
			none = false
			var event sql.RawBytes
			if err := r.Scan(&event); err != nil {
				return err
			}
			return f(event)
		})
	if err == nil && none {
		return fmt.Errorf("session %s: %w", id, ErrNotFound)
	}
	return err
}

// List returns the sessions, the newest first, at most limit.
func (k Sessions) List(ctx context.Context, limit int) ([]transcript.Summary, error) {
	return list(k.s.reading(ctx), `SELECT id, started, changed, events, bytes FROM session
		ORDER BY changed DESC, id LIMIT ?`, []any{limit},
		func(scan func(...any) error) (one transcript.Summary, err error) {
			return one, scan(&one.ID, (*stamp)(&one.Started), (*stamp)(&one.Changed), &one.Events,
				&one.Bytes)
		})
}

// Delete deletes a session.
func (k Sessions) Delete(id string) error {
	return k.s.write(func(w *writer) error {
		n, err := w.changed(`DELETE FROM session WHERE id = ?`, id)
		if err == nil && n == 0 {
			err = fmt.Errorf("session %s: %w", id, ErrNotFound)
		}
		if err != nil {
			return err
		}
		return w.exec(`DELETE FROM session_event WHERE session = ?`, id)
	})
}
