// Package store is the database of jail-agentd, one SQLite file per user: registered agents, the
// events in their inboxes, their alarms and publications, and the tokens that they used.
//
// A write is durable when its method returns: the database is in WAL mode with full flushes.
// Writes that arrive together are committed together, each in a savepoint of its own, so that one
// flush serves all of them and a failed write undoes nothing of the others.
//
// Agents never see this database. Their own databases are opened inside their jails.
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
	// ErrNotFound: the agent, event or row does not exist.
	ErrNotFound = errors.New("there is none")
	// ErrFull: the inbox of a receiver is full.
	ErrFull = errors.New("the inbox is full")
	// ErrTaken: another agent or instance already has the name.
	ErrTaken = errors.New("the name is taken")
	// ErrTooLarge: an event or session exceeds its maximum size.
	ErrTooLarge = errors.New("too large")
)

// Bounds of an inbox. Beyond them a publisher gets ErrFull.
const (
	maxWaiting      = 10_000
	maxWaitingBytes = 64 << 20
)

// groupBound is how many writes one commit may include.
const groupBound = 512

// readerCount is the maximum number of connections for reading.
const readerCount = 4

// A Store is an open database. Its methods may be called from several goroutines.
type Store struct {
	readers *connection
	writer  *writer
	user    string
	now     func() time.Time

	mu sync.Mutex
	// waiting are the writes for the next commit. leading: a caller of write is committing; it then
	// makes the first waiting caller commit.
	waiting []*write
	leading bool
	closed  bool
	// idle is closed when the last commit before Close has ended.
	idle chan struct{}
}

type write struct {
	do func(*writer) error
	// done gets the result. If it gets errLead before, the receiver has to commit.
	done chan error
}

// errLead tells a waiting caller of write to commit the waiting writes.
var errLead = errors.New("commit")

// Open opens the database of user's agents at path, and creates it if it does not exist. now
// returns the current time.
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
	// Opening a connection takes longer than most queries.
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

// Close waits for started writes and closes the database. Later writes fail.
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

// write calls do in a transaction and returns when the commit is durable. Concurrent callers wait
// while one commits; then the first of them commits for all.
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

// exec executes one statement with write.
func (s *Store) exec(text string, args ...any) error {
	return s.write(func(w *writer) error { return w.exec(text, args...) })
}

// A connection caches prepared statements by their SQL. The code has a fixed, small set of them.
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

// row scans the first row of a query into to. It returns ErrNotFound if there is no row.
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

// rows calls scan for each row of a query.
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

// close closes the connection and its statements. Open ones would keep the WAL file.
func (c *connection) close() (err error) {
	for _, s := range c.made.Range {
		err = errors.Join(err, s.(*sql.Stmt).Close())
	}
	return errors.Join(err, c.db.Close())
}

// A writer is the only connection that writes. Only one goroutine at a time may use it.
type writer struct {
	connection
	// all is the database handle from which the connection was taken.
	all *sql.DB
}

func (w *writer) close() error { return errors.Join(w.connection.close(), w.all.Close()) }

// commit does the writes in one transaction and sends each its result.
func (w *writer) commit(group []*write) {
	results := make([]error, len(group))
	err := w.exec("BEGIN IMMEDIATE")
	if err == nil && len(group) == 1 {
		// A single write needs no savepoint.
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
		// Ignore the error: SQLite may have rolled back by itself already.
		_ = w.exec("ROLLBACK")
	}
	for i, g := range group {
		if err != nil {
			results[i] = fmt.Errorf("database of jail-agentd: %w", err)
		}
		g.done <- results[i]
	}
}

// saved calls do in a savepoint and returns its error. If fatal is set, roll all back.
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

// changed executes a statement and returns how many rows it changed.
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

// visit reads each row of a query with scan and calls f with the value.
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

// list returns the rows of a query, each read with scan.
func list[T any](rows query, text string, args []any,
	scan func(func(...any) error) (T, error)) (all []T, err error) {
	err = visit(rows, text, args, scan, func(one T) error {
		all = append(all, one)
		return nil
	})
	return all, err
}

// first returns the first row of a query, read with scan, or ErrNotFound.
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

// single is a scan for rows of one column.
func single[T any](scan func(...any) error) (value T, err error) { return value, scan(&value) }

// reading returns a query function that sees only committed data. It ignores the context: queries
// are short, and a cancellable context would cost two goroutines each.
func (s *Store) reading(context.Context) query { return s.readers.rows }

// unless returns err, or nil if err is the expected error.
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

// A stamp is a time that is scanned from a column of milliseconds since 1970.
type stamp time.Time

// Scan sets the time from an int64 column, 0 to the zero time.
func (s *stamp) Scan(column any) error {
	ms, ok := column.(int64)
	if !ok {
		return fmt.Errorf("a time is a %T", column)
	}
	*s = stamp(fromMillis(ms))
	return nil
}
