// Package index provides a search index for an audit log, so that a search need not read all of the
// log.
//
// For each block of some kilobytes of the log the index has the runs, sessions, users, types, hosts
// and the like in it. A search reads the blocks from the log itself and compares them with its
// conditions, and verification never uses the index. A process that can write the index can hide
// records from a search and can add none; a search without the index reads everything.
//
// The index is the file index.sqlite in the log's directory. It can be removed at any time: it is
// made anew from the log.
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

// format is the version of the tables below. An index of another version is rebuilt.
const format = 1

var tables = []string{
	`CREATE TABLE state (format INTEGER NOT NULL, segment INTEGER NOT NULL, "end" INTEGER NOT NULL, hash BLOB NOT NULL)`,
	`CREATE TABLE block (id INTEGER PRIMARY KEY, segment INTEGER NOT NULL, begin INTEGER NOT NULL, "end" INTEGER NOT NULL, oldest INTEGER NOT NULL, newest INTEGER NOT NULL)`,
	`CREATE TABLE word (id INTEGER PRIMARY KEY, kind INTEGER NOT NULL, text TEXT NOT NULL, UNIQUE (kind, text))`,
	`CREATE TABLE posting (word INTEGER NOT NULL, block INTEGER NOT NULL, PRIMARY KEY (word, block)) WITHOUT ROWID`,
	`CREATE TABLE ran (tool INTEGER NOT NULL, run INTEGER NOT NULL, PRIMARY KEY (tool, run)) WITHOUT ROWID`,
}

// errUntrusted is returned if the index is not used because users other than the caller and root
// can write to it.
var errUntrusted = errors.New("others may write there")

// errStale is returned for an index that belongs to another log, or has another version.
var errStale = errors.New("it is of another log")

// index is an open index.
type index struct {
	dir string
	db  *sql.DB
	con *sql.Conn
}

// open opens the index of the log in dir. If mayMake is set it creates a missing one.
func open(ctx context.Context, dir string, mayMake bool) (*index, error) {
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
		// All who may read the directory may read the index.
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, d.Mode().Perm()&0o644)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if err == nil {
			f.Close()
		}
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || !ours(info):
		return nil, fmt.Errorf("%s: %w", path, errUntrusted)
	}
	// SQLite executes nothing from the file: no triggers, views or functions in table definitions.
	// Mode rw does not create the file.
	options := url.Values{"mode": {"rw"}, "_pragma": {"busy_timeout(30000)", "trusted_schema(0)",
		"cell_size_check(1)", "journal_mode(TRUNCATE)", "synchronous(NORMAL)",
		"cache_size(-32768)"}}
	db, err := sql.Open("sqlite",
		(&url.URL{Scheme: "file", Path: path, RawQuery: options.Encode()}).String())
	if err != nil {
		return nil, err
	}
	con, err := db.Conn(ctx)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &index{dir, db, con}, nil
}

// Close closes the index.
func (x *index) Close() error { return errors.Join(x.con.Close(), x.db.Close()) }

// trusted returns an error if users other than root and the caller can write to dir.
func trusted(dir string) error {
	info, err := os.Stat(dir)
	if err == nil && !ours(info) {
		err = fmt.Errorf("%s: %w", dir, errUntrusted)
	}
	return err
}

func ours(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && (st.Uid == 0 || int(st.Uid) == os.Geteuid()) && info.Mode().Perm()&0o022 == 0
}

// state is the end of an index: the end of the last indexed line, in the last block, and the line's
// hash. A zero segment means an empty index.
type state struct {
	segment uint64
	end     int64
	hash    []byte
}

// state reads the state in a transaction of the caller. If mayMake is set it makes missing tables.
func (x *index) state(ctx context.Context, mayMake bool) (s state, err error) {
	var n, version int
	if err := x.con.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_schema`).Scan(
		&n); err != nil {
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
		// SQLite's own objects have no text.
		if text != "" && !known[text] {
			return s, errStale
		}
	}
	if err := rows.Err(); err != nil {
		return s, err
	}
	err = x.con.QueryRowContext(ctx, `SELECT format, segment, "end", hash FROM state`).Scan(
		&version, &s.segment, &s.end, &s.hash)
	if errors.Is(err, sql.ErrNoRows) || err == nil && version != format {
		err = errStale
	}
	return s, err
}

// broken reports whether the index must be rebuilt: it is corrupt, or belongs to another log.
func broken(err error) bool {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		switch e.Code() & 0xff {
		// SQLITE_ERROR in the schema, SQLITE_CORRUPT, SQLITE_NOTADB.
		case 1, 11, 26:
			return true
		}
		return false
	}
	return errors.Is(err, errStale)
}

// readOnly reports whether err means that the user may not write the index.
func readOnly(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && (e.Code()&0xff == 8 || e.Code()&0xff == 14) || errors.Is(err,
		fs.ErrPermission)
}

func remove(dir string) error {
	for _, name := range []string{File, File + "-journal"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err,
			fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// transact calls f in a transaction, and commits unless f fails. begin is the SQL that starts it.
func (x *index) transact(ctx context.Context, begin string, f func() error) error {
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
