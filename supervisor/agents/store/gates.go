package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	"github.com/jail-sandbox/jail/supervisor/gatekeepers"
)

// gateTables are made where they are missing, as sessionTables are.
var gateTables = []string{
	`CREATE TABLE IF NOT EXISTS gate (
		ref TEXT PRIMARY KEY,
		began INTEGER NOT NULL,
		entry BLOB NOT NULL
	) WITHOUT ROWID`,
}

// Gates keeps the actions of gatekeepers.
type Gates struct{ s *Store }

// GatesOf are those in a store.
func GatesOf(s *Store) Gates { return Gates{s} }

// Put adds an entry, or replaces the one with the same Ref.
func (g Gates) Put(e gatekeepers.Entry) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return g.s.write(func(w *writer) error {
		return w.exec(`INSERT INTO gate (ref, began, entry) VALUES (?, ?, ?)
			ON CONFLICT (ref) DO UPDATE SET entry = excluded.entry`, e.Ref, millis(e.Began), text)
	})
}

// Remove removes an entry.
func (g Gates) Remove(ref string) error {
	return g.s.write(func(w *writer) error { return w.exec(`DELETE FROM gate WHERE ref = ?`, ref) })
}

// Find returns the entry with a Ref, false if there is none.
func (g Gates) Find(ctx context.Context, ref string) (gatekeepers.Entry, bool, error) {
	all, err := g.entries(ctx, `SELECT entry FROM gate WHERE ref = ?`, ref)
	if err != nil || len(all) == 0 {
		return gatekeepers.Entry{}, false, err
	}
	return all[0], true, nil
}

// Entries returns all, the eldest first.
func (g Gates) Entries(ctx context.Context) ([]gatekeepers.Entry, error) {
	return g.entries(ctx, `SELECT entry FROM gate ORDER BY began, ref`)
}

func (g Gates) entries(ctx context.Context, query string, args ...any) (all []gatekeepers.Entry,
	err error) {
	err = g.s.read(ctx, query, args, func(r *sql.Rows) error {
		var text []byte
		var e gatekeepers.Entry
		err := r.Scan(&text)
		all = append(all, e)
		return errors.Join(err, json.Unmarshal(text, &all[len(all)-1]))
	})
	return all, err
}
