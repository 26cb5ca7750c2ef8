package store

import (
	"context"
	"time"
)

// gateTables create the tables of Gates if they are missing.
var gateTables = []string{
	`CREATE TABLE IF NOT EXISTS gate_action (
		ref TEXT PRIMARY KEY,
		began INTEGER NOT NULL,
		over INTEGER NOT NULL,
		entry BLOB NOT NULL
	) WITHOUT ROWID`,
	`CREATE INDEX IF NOT EXISTS gate_action_began ON gate_action (over, began, ref)`,
}

// Gates stores the actions of gatekeepers, each encoded by package gatekeepers.
type Gates struct{ s *Store }

// GatesOf returns the Gates of a store.
func GatesOf(s *Store) Gates { return Gates{s} }

// Put adds an entry, or replaces the one with the same ref. over says that the entry is final.
func (g Gates) Put(ref string, began time.Time, over bool, entry []byte) error {
	return g.s.exec(`INSERT INTO gate_action (ref, began, over, entry) VALUES (?, ?, ?, ?)
		ON CONFLICT (ref) DO UPDATE SET over = excluded.over, entry = excluded.entry`, ref,
		millis(began), over, entry)
}

// Remove removes an entry.
func (g Gates) Remove(ref string) error {
	return g.s.exec(`DELETE FROM gate_action WHERE ref = ?`, ref)
}

// Forget removes entries that are over if they began before a time or are not among the last most.
func (g Gates) Forget(before time.Time, most int) error {
	return g.s.exec(`DELETE FROM gate_action WHERE over = 1 AND (began < ?1 OR ref IN (SELECT ref
		FROM gate_action WHERE over = 1 ORDER BY began DESC, ref DESC LIMIT -1 OFFSET ?2))`,
		millis(before), most)
}

// Find returns the entry with a ref, nil if there is none.
func (g Gates) Find(ctx context.Context, ref string) ([]byte, error) {
	all, err := g.entries(ctx, `SELECT entry FROM gate_action WHERE ref = ?`, ref)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return all[0], nil
}

// Open returns the entries that are not over, the oldest first.
func (g Gates) Open(ctx context.Context) ([][]byte, error) {
	return g.entries(ctx, `SELECT entry FROM gate_action WHERE over = 0 ORDER BY began, ref`)
}

// All returns all entries, the oldest first.
func (g Gates) All(ctx context.Context) ([][]byte, error) {
	return g.entries(ctx, `SELECT entry FROM gate_action ORDER BY began, ref`)
}

func (g Gates) entries(ctx context.Context, query string, args ...any) ([][]byte, error) {
	return list(g.s.reading(ctx), query, args, single[[]byte])
}
