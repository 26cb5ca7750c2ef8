package store

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/jail-sandbox/jail/runners/agent"
)

// Changed is the result of Run: the number of changed rows, and the row id of the last insert.
type Changed struct {
	Changes   int64 `json:"changes"`
	LastRowID int64 `json:"lastRowId"`
}

// Run executes one or more SQL statements of the guest. A transaction must be open.
func (s *Store) Run(ctx context.Context, statement string, params []json.RawMessage) (Changed,
	error) {
	args, err := arguments(params)
	if err != nil {
		return Changed{}, err
	}
	var result sql.Result
	made, err := s.conn.guest(ctx, statement)
	if err == nil {
		result, err = made.ExecContext(ctx, args...)
	}
	if err = s.judge(ctx, err); err != nil {
		return Changed{}, err
	}
	var c Changed
	if c.Changes, err = result.RowsAffected(); err == nil {
		c.LastRowID, err = result.LastInsertId()
	}
	return c, s.judge(ctx, err)
}

// Query executes the guest's statement and returns at most most rows, each as a JSON object. A
// transaction must be open.
func (s *Store) Query(ctx context.Context, statement string, params []json.RawMessage,
	most int) ([]json.RawMessage, error) {
	args, err := arguments(params)
	if err != nil {
		return nil, err
	}
	var rows *sql.Rows
	made, err := s.conn.guest(ctx, statement)
	if err == nil {
		rows, err = made.QueryContext(ctx, args...)
	}
	if err != nil {
		return nil, s.judge(ctx, err)
	}
	defer rows.Close()
	all, err := collect(rows, most)
	if err == nil {
		err = errors.Join(rows.Err(), rows.Close())
	}
	if e := s.judge(ctx, err); e != nil {
		return nil, e
	}
	return all, nil
}

func collect(rows *sql.Rows, most int) ([]json.RawMessage, error) {
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	all, size := []json.RawMessage{}, 0
	values, to := make([]any, len(names)), make([]any, len(names))
	for i := range to {
		to[i] = &values[i]
	}
	for len(all) < most && rows.Next() {
		if err := rows.Scan(to...); err != nil {
			return nil, err
		}
		row := make(map[string]any, len(names))
		for i, name := range names {
			row[name] = valueOf(values[i])
		}
		text, err := json.Marshal(row)
		if err != nil {
			return nil, err
		}
		if size += len(text) + 1; size > maxRows {
			return nil, agent.Errorf(agent.ErrTooLarge, "the rows have more than %d MiB: ask for "+
				"fewer with LIMIT", maxRows>>20)
		}
		all = append(all, text)
	}
	return all, nil
}

// valueOf converts a value of SQLite for JSON. Infinities and NaN become nil.
func valueOf(v any) any {
	switch v := v.(type) {
	case []byte:
		return map[string]string{"base64": base64.StdEncoding.EncodeToString(v)}
	case time.Time:
		return v.Format(time.RFC3339Nano)
	case float64:
		// JSON has no infinities.
		if math.IsInf(v, 0) || math.IsNaN(v) {
			return nil
		}
	}
	return v
}

// arguments converts the guest's JSON parameters to SQLite values.
func arguments(params []json.RawMessage) (args []any, err error) {
	for i, p := range params {
		v, err := argument(p)
		if err != nil {
			return nil, agent.Errorf(agent.ErrParams, "parameter %d: %v", i+1, err)
		}
		args = append(args, v)
	}
	return args, nil
}

func argument(p json.RawMessage) (any, error) {
	var whole int64
	if json.Unmarshal(p, &whole) == nil && len(p) > 0 && p[0] != 'n' {
		return whole, nil
	}
	var v any
	if err := json.Unmarshal(p, &v); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case nil, float64, string:
		return v, nil
	case bool:
		if v {
			return int64(1), nil
		}
		return int64(0), nil
	case map[string]any:
		if text, ok := v["base64"].(string); ok && len(v) == 1 {
			return base64.StdEncoding.DecodeString(text)
		}
	}
	return nil, errors.New(`want null, a boolean, a number, a string or {"base64": "…"} for bytes`)
}

// judge converts a statement's error for the guest. It returns an error even if err is nil, if the
// statement ended the transaction.
func (s *Store) judge(ctx context.Context, err error) error {
	if s.ended.Load() {
		if ctx.Err() != nil {
			return deadline
		}
		if e, ok := errors.AsType[*sqlite.Error](err); ok && endedByItself(e.Code()&0xff) {
			return agent.Errorf(agent.ErrStorage, "%v", e)
		}
		return errEnded
	}
	if e := (*agent.Error)(nil); err == nil || errors.As(err, &e) {
		return err
	}
	if ctx.Err() != nil {
		return deadline
	}
	return agent.Errorf(agent.ErrStorage, "%v", err)
}

var deadline = agent.Errorf(agent.ErrDeadline, "the time of the event is over")

// endedByItself reports whether SQLite may roll back a transaction after an error with this code
// (https://sqlite.org/lang_transaction.html).
func endedByItself(code int) bool {
	switch code {
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_BUSY,
		sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_CANTOPEN:
		return true
	}
	return false
}

// Ended reports whether something other than the store ended the transaction. The event has then
// failed.
func (s *Store) Ended() bool { return s.ended.Load() }
