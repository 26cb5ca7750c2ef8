// Package index is a search index beside an audit log, so that a search does not have to read all of the log.
//
// It says of each block of some kilobytes of the log which runs, sessions, users, types, hosts and the like are in it. What it names is read from the log
// itself and held against the conditions of the search, and it is never asked when the log is verified. So whoever can write to it can hide records from a
// search, and can make none up; a search without it reads everything.
//
// The index is the file index.sqlite in the log's directory. It can be taken away at any time: it is made anew from the log.
package index

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"syscall"

	"modernc.org/sqlite" // the driver, too

	"github.com/jail-sandbox/jail/supervisor/audit"
)

// File is the name of the index in the directory of a log.
const File = "index.sqlite"

// format is that of the tables below. An index of another one is made anew.
const format = 1

var tables = []string{
	`CREATE TABLE state (format INTEGER NOT NULL, segment INTEGER NOT NULL, "end" INTEGER NOT NULL, hash BLOB NOT NULL)`,
	`CREATE TABLE block (id INTEGER PRIMARY KEY, segment INTEGER NOT NULL, begin INTEGER NOT NULL, "end" INTEGER NOT NULL, oldest INTEGER NOT NULL, newest INTEGER NOT NULL)`,
	`CREATE TABLE word (id INTEGER PRIMARY KEY, kind INTEGER NOT NULL, text TEXT NOT NULL, UNIQUE (kind, text))`,
	`CREATE TABLE posting (word INTEGER NOT NULL, block INTEGER NOT NULL, PRIMARY KEY (word, block)) WITHOUT ROWID`,
	`CREATE TABLE ran (tool INTEGER NOT NULL, run INTEGER NOT NULL, PRIMARY KEY (tool, run)) WITHOUT ROWID`,
}

// ErrUntrusted says that an index is not used, for others than the user and root can write where it is or would be.
var ErrUntrusted = errors.New("others may write there")

// errStale says that an index is not one of this log, or of this program.
var errStale = errors.New("it is of another log")

// An Index is open until Close.
type Index struct {
	dir string
	db  *sql.DB
	con *sql.Conn
}

// open opens the index of the log in dir. Where there is none and make says so, it is begun.
func open(ctx context.Context, dir string, mayMake bool) (*Index, error) {
	if err := trusted(dir); err != nil {
		return nil, err
	}
	path, err := filepath.Abs(filepath.Join(dir, File))
	if err != nil {
		return nil, err
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && mayMake:
		d, err := os.Stat(dir)
		if err != nil {
			return nil, err
		}
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, d.Mode().Perm()&0o644) // for whoever may read the directory
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if err == nil {
			f.Close()
		}
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || !ours(info):
		return nil, fmt.Errorf("%s: %w", path, ErrUntrusted)
	}
	// Nothing of what the file says is run: no trigger, no view, no function in its tables' definitions. rw makes no file.
	options := url.Values{"mode": {"rw"}, "_pragma": {"busy_timeout(30000)", "trusted_schema(0)", "cell_size_check(1)", "journal_mode(TRUNCATE)", "synchronous(NORMAL)", "cache_size(-32768)"}}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: path, RawQuery: options.Encode()}).String())
	if err != nil {
		return nil, err
	}
	con, err := db.Conn(ctx)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &Index{dir, db, con}, nil
}

// Close gives the index back.
func (x *Index) Close() error { return errors.Join(x.con.Close(), x.db.Close()) }

// trusted reports whether nobody but root and the user can have put something into the directory.
func trusted(dir string) error {
	info, err := os.Stat(dir)
	if err == nil && !ours(info) {
		err = fmt.Errorf("%s: %w", dir, ErrUntrusted)
	}
	return err
}

func ours(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && (st.Uid == 0 || int(st.Uid) == os.Geteuid()) && info.Mode().Perm()&0o022 == 0
}

// state is how far an index has come: behind the line with that hash, in its last block; a zero segment is nowhere.
type state struct {
	segment uint64
	end     int64
	hash    []byte
}

// state reads it, and makes the tables of an index that has none. It is for the holder of a transaction.
func (x *Index) state(ctx context.Context, mayMake bool) (s state, err error) {
	var n, version int
	if err := x.con.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_schema`).Scan(&n); err != nil {
		return s, err
	}
	if n == 0 && mayMake {
		for _, t := range tables {
			if _, err := x.con.ExecContext(ctx, t); err != nil {
				return s, err
			}
		}
		_, err = x.con.ExecContext(ctx, `INSERT INTO state VALUES (?, 0, 0, ?)`, format, []byte{})
		return s, err
	}
	known := map[string]bool{}
	for _, t := range tables {
		known[t] = true
	}
	rows, err := x.con.QueryContext(ctx, `SELECT coalesce(sql, '') FROM sqlite_schema`)
	if err != nil {
		return s, err
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return s, err
		}
		if text != "" && !known[text] { // what SQLite makes for itself has no text
			return s, errStale
		}
	}
	if err := rows.Err(); err != nil {
		return s, err
	}
	err = x.con.QueryRowContext(ctx, `SELECT format, segment, "end", hash FROM state`).Scan(&version, &s.segment, &s.end, &s.hash)
	if errors.Is(err, sql.ErrNoRows) || err == nil && version != format {
		err = errStale
	}
	return s, err
}

// broken reports whether an error is of an index that is to be made anew: its bytes are wrong, or it is of another log.
func broken(err error) bool {
	var e *sqlite.Error
	if errors.As(err, &e) {
		switch e.Code() & 0xff {
		case 1, 11, 26: // error in what the schema says, corrupt, not a database
			return true
		}
		return false
	}
	return errors.Is(err, errStale)
}

// readOnly reports whether an error says that the user may not write.
func readOnly(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && (e.Code()&0xff == 8 || e.Code()&0xff == 14) || errors.Is(err, fs.ErrPermission)
}

// remove takes the index away.
func remove(dir string) error {
	for _, name := range []string{File, File + "-journal"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// transact calls f in a transaction, of a writer where begin says IMMEDIATE.
func (x *Index) transact(ctx context.Context, begin string, f func() error) error {
	if _, err := x.con.ExecContext(ctx, begin); err != nil {
		return err
	}
	err := f()
	end := "COMMIT"
	if err != nil {
		end = "ROLLBACK"
	}
	_, endErr := x.con.ExecContext(context.WithoutCancel(ctx), end)
	return errors.Join(err, endErr)
}

func hashOf(r audit.Record) []byte {
	sum := sha256.Sum256(r.Line)
	return sum[:]
}
