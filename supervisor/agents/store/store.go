// Package store keeps what jail-agentd must not forget, in one SQLite database of a user's: which
// agents there are, the events that wait in their inboxes, their alarms, what they published, and
// the tokens that they used.
//
// A write is durable when its method returns: the database is in WAL mode with full flushes.
// Writes that arrive together are committed together, each in a savepoint of its own, so that one
// flush serves all of them and a failed write undoes nothing of the others.
//
// Agents never see this database. Their own is opened inside their jails.
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	_ "modernc.org/sqlite" // the driver
)

// Errors that callers compare with.
var (
	// ErrNotFound: there is no such agent, event or row.
	ErrNotFound = errors.New("there is none")
	// ErrFull: the inbox of a receiver has no room.
	ErrFull = errors.New("the inbox is full")
	// ErrTaken: an instance of another agent has the name.
	ErrTaken = errors.New("the name is taken")
	// ErrTooLarge: an event is larger than an event may be.
	ErrTooLarge = errors.New("too large")
)

// Bounds of an inbox. Beyond them a publisher gets ErrFull.
const (
	maxWaiting      = 10_000
	maxWaitingBytes = 64 << 20
)

// groupBound is how many writes one commit may take.
const groupBound = 512

// readerCount is how many connections read.
const readerCount = 4

// A Store is an open database. Its methods may be called from several goroutines.
type Store struct {
	readers *connection
	writer  *writer
	user    string
	now     func() time.Time

	mu sync.Mutex
	// waiting are the writes that the next commit takes. leading: a caller of write commits, who then
	// has one of those who wait commit.
	waiting []*write
	leading bool
	closed  bool
	// idle is closed when nobody commits any more.
	idle chan struct{}
}

type write struct {
	do func(*writer) error
	// done gets the result, and before that perhaps errLead: then its receiver is to commit.
	done chan error
}

// errLead asks the caller of a write to commit it, with those that have come meanwhile.
var errLead = errors.New("commit")

// Open opens the database at path, and makes it if there is none. The agents are those of user; now
// is the clock.
func Open(path, user string, now func() time.Time) (*Store, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	f.Close()
	open := func(more ...string) (*sql.DB, error) {
		options := url.Values{"mode": {"rw"}, "_pragma": append([]string{"busy_timeout(30000)",
			"trusted_schema(0)", "journal_mode(WAL)", "synchronous(FULL)"}, more...)}
		return sql.Open("sqlite",
			(&url.URL{Scheme: "file", Path: path, RawQuery: options.Encode()}).String())
	}
	db, err := open("cache_size(-8192)", "wal_autocheckpoint(4000)")
	if err != nil {
		return nil, err
	}
	con, err := db.Conn(context.Background())
	if err != nil {
		return nil, fmt.Errorf("database %s: %w", path, errors.Join(err, db.Close()))
	}
	w := &writer{connection: connection{db: con}, all: db}
	if err = w.makeTables(); err != nil {
		return nil, fmt.Errorf("database %s: %w", path, errors.Join(err, w.close()))
	}
	reading, err := open("cache_size(-2048)", "query_only(1)")
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	reading.SetMaxOpenConns(readerCount)
	// To open one takes longer than most queries.
	reading.SetMaxIdleConns(readerCount)
	s := &Store{readers: &connection{db: reading}, writer: w, idle: make(chan struct{}), user: user, now: now}
	if err := s.write(func(w *writer) error {
		for _, table := range slices.Concat(sessionTables, gateTables) {
			if err := w.exec(table); err != nil {
				return err
			}
		}
		return w.exec(`DELETE FROM seen WHERE time < ?`, millis(now().Add(-seenTime)))
	}); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close waits for the writes that have begun, and closes the database.
func (s *Store) Close() error {
	s.mu.Lock()
	closed, busy := s.closed, s.leading
	s.closed = true
	s.mu.Unlock()
	if closed {
		return nil
	}
	if busy {
		<-s.idle
	}
	return errors.Join(s.readers.close(), s.writer.close())
}

var errClosed = errors.New("the database of jail-agentd is closed")

// write carries do out in a transaction, and returns when that is durable. The first of several
// callers commits; those who come meanwhile wait, and the first of them commits for all of them.
func (s *Store) write(do func(*writer) error) error {
	w := &write{do, make(chan error, 1)}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return errClosed
	}
	s.waiting = append(s.waiting, w)
	follows := s.leading
	s.leading = true
	s.mu.Unlock()
	if follows {
		if err := <-w.done; err != errLead {
			return err
		}
	}
	s.mu.Lock()
	n := min(len(s.waiting), groupBound)
	group := s.waiting[:n:n]
	s.waiting = s.waiting[n:]
	s.mu.Unlock()
	s.writer.commit(group)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leading = len(s.waiting) > 0; s.leading {
		s.waiting[0].done <- errLead
	} else if s.closed {
		close(s.idle)
	}
	return <-w.done
}

// exec is write of one statement.
func (s *Store) exec(text string, args ...any) error {
	return s.write(func(w *writer) error { return w.exec(text, args...) })
}

// A connection keeps the statements that the code holds prepared, by their texts; there are few of them.
type connection struct {
	// db is a *sql.DB, or a *sql.Conn of one.
	db interface {
		PrepareContext(context.Context, string) (*sql.Stmt, error)
		Close() error
	}
	made sync.Map
}

func (c *connection) statement(text string) (*sql.Stmt, error) {
	if s, ok := c.made.Load(text); ok {
		return s.(*sql.Stmt), nil
	}
	s, err := c.db.PrepareContext(context.Background(), text)
	if err != nil {
		return nil, err
	}
	if first, ok := c.made.LoadOrStore(text, s); ok {
		return first.(*sql.Stmt), s.Close()
	}
	return s, nil
}

// row reads one row into to. Without one it returns ErrNotFound.
func (c *connection) row(text string, args []any, to ...any) error {
	s, err := c.statement(text)
	if err != nil {
		return err
	}
	err = s.QueryRow(args...).Scan(to...)
	if errors.Is(err, sql.ErrNoRows) {
		return ErrNotFound
	}
	return err
}

// rows calls scan for each row.
func (c *connection) rows(text string, args []any, scan func(*sql.Rows) error) error {
	s, err := c.statement(text)
	if err != nil {
		return err
	}
	r, err := s.Query(args...)
	if err != nil {
		return err
	}
	defer r.Close()
	for r.Next() {
		if err := scan(r); err != nil {
			return err
		}
	}
	return r.Err()
}

// close closes the connection. With statements that are open, SQLite would leave its log beside the
// database.
func (c *connection) close() (err error) {
	for _, s := range c.made.Range {
		err = errors.Join(err, s.(*sql.Stmt).Close())
	}
	return errors.Join(err, c.db.Close())
}

// A writer is the one connection that writes. Its methods are for one goroutine.
type writer struct {
	connection
	// all is the database, whose one connection this is.
	all *sql.DB
}

func (w *writer) close() error { return errors.Join(w.connection.close(), w.all.Close()) }

// commit carries writes out in one transaction and tells each how it went.
func (w *writer) commit(group []*write) {
	results := make([]error, len(group))
	err := w.exec("BEGIN IMMEDIATE")
	if err == nil && len(group) == 1 {
		// It needs no savepoint.
		results[0] = group[0].do(w)
	}
	for i := 0; err == nil && len(group) > 1 && i < len(group); i++ {
		results[i], err = w.saved(group[i].do)
	}
	failed := err != nil || len(group) == 1 && results[0] != nil
	if !failed {
		err = w.exec("COMMIT")
	}
	if failed || err != nil {
		// Whatever the cause, nothing of the group is on the disk. SQLite may have rolled back by
		// itself already.
		_ = w.exec("ROLLBACK")
	}
	for i, g := range group {
		if err != nil {
			results[i] = fmt.Errorf("database of jail-agentd: %w", err)
		}
		g.done <- results[i]
	}
}

// saved carries one write out in a savepoint. The second error is one that ends the group.
func (w *writer) saved(do func(*writer) error) (result, fatal error) {
	if err := w.exec("SAVEPOINT w"); err != nil {
		return nil, err
	}
	if result = do(w); result != nil {
		fatal = w.exec("ROLLBACK TO w")
	}
	return result, errors.Join(fatal, w.exec("RELEASE w"))
}

func (w *writer) exec(text string, args ...any) error {
	_, err := w.changed(text, args...)
	return err
}

// changed is exec, and returns how many rows it changed.
func (w *writer) changed(text string, args ...any) (int64, error) {
	s, err := w.statement(text)
	if err != nil {
		return 0, err
	}
	r, err := s.Exec(args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// A query reads rows: [connection.rows], or what [Store.reading] returns.
type query func(text string, args []any, scan func(*sql.Rows) error) error

// visit calls f with what scan reads of each row.
func visit[T any](rows query, text string, args []any, scan func(func(...any) error) (T, error),
	f func(T) error) error {
	return rows(text, args, func(r *sql.Rows) error {
		one, err := scan(r.Scan)
		if err != nil {
			return err
		}
		return f(one)
	})
}

// list returns what scan reads of each row.
func list[T any](rows query, text string, args []any,
	scan func(func(...any) error) (T, error)) (all []T, err error) {
	err = visit(rows, text, args, scan, func(one T) error {
		all = append(all, one)
		return nil
	})
	return all, err
}

// first returns what scan reads of the first row, or ErrNotFound.
func first[T any](rows query, text string, args []any,
	scan func(func(...any) error) (T, error)) (one T, err error) {
	all, err := list(rows, text, args, scan)
	if err == nil && len(all) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return one, err
	}
	return all[0], nil
}

// single reads a row of one column.
func single[T any](scan func(...any) error) (value T, err error) { return value, scan(&value) }

// reading returns the query of those that only read: it sees what is committed. A query is short, and
// does not end with a context: one that can end would start two goroutines for each.
func (s *Store) reading(context.Context) query { return s.readers.rows }

// unless returns err, or nil if that is the expected one.
func unless(expected, err error) error {
	if err == expected {
		return nil
	}
	return err
}

func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func fromMillis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// A stamp is a time that is read from a column of milliseconds.
type stamp time.Time

// Scan sets the time.
func (s *stamp) Scan(column any) error {
	ms, ok := column.(int64)
	if !ok {
		return fmt.Errorf("a time is a %T", column)
	}
	*s = stamp(fromMillis(ms))
	return nil
}
