package store

import (
	"context"
	"database/sql"
	"time"
)

// gateTables are made where they are missing, as sessionTables are.
var gateTables = []string{
	`CREATE TABLE IF NOT EXISTS gate (
		ref TEXT PRIMARY KEY,
		began INTEGER NOT NULL,
		entry BLOB NOT NULL
	) WITHOUT ROWID`,
}

// Gates keeps the actions of gatekeepers, each a text of package gatekeepers.
type Gates struct{ s *Store }

// GatesOf are those in a store.
func GatesOf(s *Store) Gates { return Gates{s} }

// Put adds an entry, or replaces the one with the same ref.
func (g Gates) Put(ref string, began time.Time, entry []byte) error {
	return g.s.write(func(w *writer) error {
		return w.exec(`INSERT INTO gate (ref, began, entry) VALUES (?, ?, ?)
			ON CONFLICT (ref) DO UPDATE SET entry = excluded.entry`, ref, millis(began), entry)
	})
}

// Remove removes an entry.
func (g Gates) Remove(ref string) error {
	return g.s.write(func(w *writer) error { return w.exec(`DELETE FROM gate WHERE ref = ?`, ref) })
}

// Find returns the entry with a ref, nil if there is none.
func (g Gates) Find(ctx context.Context, ref string) ([]byte, error) {
	all, err := g.entries(ctx, `SELECT entry FROM gate WHERE ref = ?`, ref)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return all[0], nil
}

// Entries returns all, the eldest first.
func (g Gates) Entries(ctx context.Context) ([][]byte, error) {
	return g.entries(ctx, `SELECT entry FROM gate ORDER BY began, ref`)
}

func (g Gates) entries(ctx context.Context, query string, args ...any) (all [][]byte, err error) {
	err = g.s.read(ctx, query, args, func(r *sql.Rows) error {
		var text []byte
		err := r.Scan(&text)
		all = append(all, text)
		return err
	})
	return all, err
}
