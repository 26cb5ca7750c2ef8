// Package store is the database of one agent. It runs inside the agent's jail, in the process that
// hosts the agent, and treats the SQL of the guest as hostile: the jail bounds memory and sizes of
// files, the caller's contexts bound time, and what a guest does to its database harms that agent
// alone.
//
// The guest works only inside a transaction of the store. A commit hook refuses every commit except
// the store's own, and a rollback hook tells the store that the transaction has ended. The event
// has then failed, and the store reopens the database, which undoes changes of the connection.
package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"

	"modernc.org/sqlite" // the driver, too
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/jail-sandbox/jail/runners/agent"
)

// Bounds, in bytes if nothing else is said.
const (
	// dbFile is the name of the database in its directory.
	dbFile = "state.db"
	// maxValue bounds a value, a row, and the SQL of a call.
	maxValue = 4 << 20
	// maxRows bounds the JSON form of the rows that a query returns.
	maxRows = 8 << 20
	// minSize and maxSize bound the size of a database.
	minSize = 1 << 20
	maxSize = 1 << 30

	pageSize = 4096
)

// errEnded is returned if a guest's statement ended the transaction of the event.
var errEnded = agent.Errorf(agent.ErrStorage, "the statement ended the transaction of the event, "+
	"which only a checkpoint does: leave COMMIT, ROLLBACK and OR ROLLBACK out")

// A Store is the open database of one agent. Only one goroutine at a time may use it.
type Store struct {
	dir  string
	size int64

	db   *sql.DB
	conn connection
	// wal is the write-ahead log, which Sync flushes to the disk.
	wal *os.File
	// inside is true in a transaction, dirty if commits may not be on the disk yet.
	inside, dirty bool
	// committing is true while the store commits. ended is set if a transaction was rolled back,
	// for example by a statement of the guest.
	committing, ended atomic.Bool

	committed uint64
	// settled is the last event whose effects may be deleted from the outbox, done the last one
	// whose effects have been deleted.
	settled, done uint64
}

// Open opens the database in dir, and creates it if it does not exist. size is the maximum size in
// bytes of the database, clamped to minSize and maxSize.
func Open(ctx context.Context, dir string, size int64) (*Store, error) {
	s := &Store{dir: dir, size: min(max(size, minSize), maxSize)}
	if err := s.open(ctx); err != nil {
		return nil, fmt.Errorf("open %s: %w", dbFile, err)
	}
	return s, nil
}

// Warm uses SQLite once, in memory. The first use in a process takes milliseconds, so a caller
// warms it before an agent needs it.
func Warm(ctx context.Context) error {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, "CREATE TABLE t (a PRIMARY KEY) WITHOUT ROWID; INSERT INTO t VALUES (1)")
	return errors.Join(err, db.Close())
}

// open opens the database with an exclusive lock, hooks and limits, and creates missing tables.
func (s *Store) open(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	options := url.Values{"_defensive": {"1"}, "_pragma": {"locking_mode(EXCLUSIVE)", "journal_mode(WAL)",
		"synchronous(NORMAL)", "foreign_keys(1)", "trusted_schema(0)", "cell_size_check(1)",
		"temp_store(MEMORY)", fmt.Sprintf("max_page_count(%d)", s.size/pageSize)}}
	path := filepath.Join(s.dir, dbFile)
	if s.db, err = sql.Open("sqlite", (&url.URL{Scheme: "file", Path: path,
		RawQuery: options.Encode()}).String()); err != nil {
		return err
	}
	s.db.SetMaxOpenConns(1)
	if s.conn.Conn, err = s.db.Conn(ctx); err != nil {
		return err
	}
	s.ended.Store(false)
	s.inside = false
	err = s.conn.Raw(func(c any) error {
		hooks, ok := c.(sqlite.HookRegisterer)
		if !ok {
			return errors.New("the driver has no hooks")
		}
		hooks.RegisterCommitHook(func() int32 {
			if s.committing.Load() {
				return 0
			}
			return 1
		})
		hooks.RegisterRollbackHook(func() { s.ended.Store(true) })
		return nil
	})
	if err != nil {
		return err
	}
	if err := s.make(ctx); err != nil {
		return err
	}
	for id, value := range map[int]int{sqlite3.SQLITE_LIMIT_LENGTH: maxValue,
		sqlite3.SQLITE_LIMIT_SQL_LENGTH: maxValue, sqlite3.SQLITE_LIMIT_ATTACHED: 0} {
		if _, err := sqlite.Limit(s.conn.Conn, id, value); err != nil {
			return err
		}
	}
	s.wal, err = os.Open(path + "-wal")
	return err
}

// make creates missing tables and reads the number of the last committed event.
func (s *Store) make(ctx context.Context) error {
	if err := s.Begin(ctx); err != nil {
		return err
	}
	for _, table := range tables {
		if _, err := s.conn.ExecContext(ctx, table); err != nil {
			return err
		}
	}
	err := s.conn.QueryRowContext(ctx,
		"SELECT coalesce(max(seq), 0) FROM _jail_checkpoint").Scan(&s.committed)
	if err != nil {
		return err
	}
	return s.commit(ctx)
}

// Close closes the database and rolls back an open transaction.
func (s *Store) Close() error {
	var err error
	if s.wal != nil {
		err = s.wal.Close()
	}
	if s.conn.Conn != nil {
		err = errors.Join(err, s.conn.close())
	}
	if s.db != nil {
		err = errors.Join(err, s.db.Close())
	}
	s.wal, s.conn, s.db = nil, connection{}, nil
	return err
}

// A connection is a database connection with a cache of prepared statements.
type connection struct {
	*sql.Conn
	// made are the store's own statements, guests the guest's recent ones.
	made, guests statements
}

// statements are prepared statements, by their SQL.
type statements map[string]*sql.Stmt

func (s statements) close() (err error) {
	for _, made := range s {
		err = errors.Join(err, made.Close())
	}
	clear(s)
	return err
}

func (c *connection) close() error {
	return errors.Join(c.made.close(), c.guests.close(), c.Close())
}

// maxGuests is how many prepared statements of the guest are cached.
const maxGuests = 16

// guest returns the prepared statement for the guest's SQL, from the cache if it is there. When the
// cache is full, it is emptied: guests use the same few statements for each event.
func (c *connection) guest(ctx context.Context, text string) (*sql.Stmt, error) {
	if made := c.guests[text]; made != nil {
		return made, nil
	}
	if len(c.guests) == maxGuests {
		if err := c.guests.close(); err != nil {
			return nil, err
		}
	}
	made, err := c.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	if c.guests == nil {
		c.guests = statements{}
	}
	c.guests[text] = made
	return made, nil
}

// exec executes a statement of the store's own, which is prepared on first use and cached.
func (c *connection) exec(ctx context.Context, text string, args ...any) error {
	made := c.made[text]
	if made == nil {
		var err error
		if made, err = c.PrepareContext(ctx, text); err != nil {
			return err
		}
		if c.made == nil {
			c.made = statements{}
		}
		c.made[text] = made
	}
	_, err := made.ExecContext(ctx, args...)
	return err
}

// Committed returns the number of the last committed event, 0 if there is none.
func (s *Store) Committed() uint64 { return s.committed }

// Inside reports whether a transaction is open.
func (s *Store) Inside() bool { return s.inside }

// Begin starts a transaction.
func (s *Store) Begin(ctx context.Context) error {
	s.ended.Store(false)
	// BEGIN does not wait: the lock is exclusive. A cancellable context would cost a goroutine.
	if err := s.conn.exec(context.WithoutCancel(ctx), "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	s.inside = true
	return nil
}

// Rollback undoes the open transaction, if there is one, by reopening the database.
func (s *Store) Rollback(ctx context.Context) error {
	if !s.inside {
		return nil
	}
	return s.reopen(ctx)
}

// reopen closes and opens the database. This undoes the open transaction and changes that the guest
// made to connection settings.
func (s *Store) reopen(ctx context.Context) error {
	if err := s.Close(); err != nil {
		return err
	}
	return s.open(ctx)
}

// Commit records the event e.Seq and its effects and commits the transaction. If e.Seq is 0, the
// transaction belongs to no event. The commit is on the disk only after Sync.
func (s *Store) Commit(ctx context.Context, e agent.Effects) error {
	if e.Seq > 0 {
		if err := s.conn.exec(ctx, "INSERT OR REPLACE INTO _jail_checkpoint (id, seq) VALUES (0, ?)",
			int64(e.Seq)); err != nil {
			return err
		}
	}
	for _, effect := range e.Effects {
		text, err := json.Marshal(effect)
		if err != nil {
			return err
		}
		if err := s.conn.exec(ctx, "INSERT OR REPLACE INTO _jail_outbox (seq, n, effect) VALUES (?, ?, ?)",
			int64(e.Seq), effect.N, string(text)); err != nil {
			return err
		}
	}
	if err := s.empty(ctx); err != nil {
		return err
	}
	if err := s.commit(ctx); err != nil {
		return err
	}
	s.committed = max(s.committed, e.Seq)
	return nil
}

// empty deletes settled effects from the outbox.
func (s *Store) empty(ctx context.Context) error {
	if s.settled <= s.done {
		return nil
	}
	return s.conn.exec(ctx, "DELETE FROM _jail_outbox WHERE seq <= ?", int64(s.settled))
}

func (s *Store) commit(ctx context.Context) error {
	if s.ended.Load() {
		return errEnded
	}
	s.committing.Store(true)
	err := s.conn.exec(ctx, "COMMIT")
	s.committing.Store(false)
	if err != nil {
		return err
	}
	s.inside, s.dirty, s.done = false, true, s.settled
	return nil
}

// Sync flushes all commits to the disk. With synchronous=NORMAL SQLite itself syncs only at
// checkpoints, so several commits can share one sync.
func (s *Store) Sync() error {
	if !s.dirty {
		return nil
	}
	if err := s.wal.Sync(); err != nil {
		return err
	}
	s.dirty = false
	return nil
}

// Settle records that the effects of events up to seq are delivered. The next commit deletes them.
func (s *Store) Settle(seq uint64) { s.settled = max(s.settled, min(seq, s.committed)) }

// Left returns the effects that are committed and not deleted from the outbox, grouped by event.
func (s *Store) Left(ctx context.Context) (all []agent.Effects, err error) {
	rows, err := s.conn.QueryContext(ctx, "SELECT seq, effect FROM _jail_outbox ORDER BY seq, n")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var seq uint64
		var text string
		if err := rows.Scan(&seq, &text); err != nil {
			return nil, err
		}
		var e agent.Effect
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			return nil, fmt.Errorf("_jail_outbox: %w", err)
		}
		if n := len(all); n == 0 || all[n-1].Seq != seq {
			all = append(all, agent.Effects{Seq: seq})
		}
		last := &all[len(all)-1]
		last.Effects = append(last.Effects, e)
	}
	return all, rows.Err()
}
