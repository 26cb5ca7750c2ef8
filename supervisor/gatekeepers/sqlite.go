package gatekeepers

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"modernc.org/sqlite" // and the driver
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
	"github.com/jail-sandbox/jail/supervisor/agents/manifest"
)

// A sqliteFile is the gatekeeper of a SQLite file. Agents name tables, columns and values. They
// never write SQL: statements are built here, only from names in the schema.
//
// An action and its row in the table _jail_actions of the same file are written in one
// transaction. So a killed process leaves both or neither.
type sqliteFile struct{ Settings }

// noteTable is the table that records applied actions. Its rows are kept for keepNotes, which is
// longer than jaild keeps finished actions.
const (
	noteTable = "_jail_actions"
	keepNotes = 30 * 24 * time.Hour
)

// Values of the column state of noteTable.
const (
	noteApplied  = "applied"
	noteReverted = "reverted"
)

// Limits. A read returns defaultRows rows unless asked otherwise, at most maxRows.
const (
	maxRows     = 1000
	defaultRows = 100
	// maxValue bounds a value and a statement, in bytes.
	maxValue = 4 << 20
	// maxBusy is how long to wait for a lock of the file.
	maxBusy = 10 * time.Second
	// maxStatement bounds the time of a read or an action.
	maxStatement = 30 * time.Second
)

// open opens the database file, and returns a function that closes it. Views and triggers in the
// schema cannot call functions with effects outside the database (PRAGMA trusted_schema).
func (f *sqliteFile) open(ctx context.Context, write bool) (*sql.Conn, func(), error) {
	info, err := os.Stat(f.File)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is no regular file")
	}
	if err != nil {
		return nil, nil, f.wrong(err)
	}
	pragmas := []string{fmt.Sprintf("busy_timeout(%d)", maxBusy.Milliseconds()), "trusted_schema(0)",
		"cell_size_check(1)", "foreign_keys(1)", "synchronous(FULL)"}
	if !write {
		pragmas = append(pragmas, "query_only(1)")
	}
	options := url.Values{"mode": {"rw"}, "_defensive": {"1"}, "_pragma": pragmas}
	db, err := sql.Open("sqlite",
		(&url.URL{Scheme: "file", Path: f.File, RawQuery: options.Encode()}).String())
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxOpenConns(1)
	con, err := db.Conn(ctx)
	if err != nil {
		db.Close()
		return nil, nil, f.wrong(err)
	}
	closeAll := func() {
		con.Close()
		db.Close()
	}
	for id, value := range map[int]int{sqlite3.SQLITE_LIMIT_LENGTH: maxValue,
		sqlite3.SQLITE_LIMIT_ATTACHED: 0} {
		if _, err := sqlite.Limit(con, id, value); err != nil {
			closeAll()
			return nil, nil, err
		}
	}
	return con, closeAll, nil
}

// wrong wraps an error with the name of the file but not its directory, since agents see errors.
func (f *sqliteFile) wrong(err error) error {
	if at, ok := errors.AsType[*os.PathError](err); ok {
		err = at.Err
	}
	return fmt.Errorf("database %s: %w", filepath.Base(f.File), err)
}

// within calls do in a transaction. It commits the transaction if write is true and do returns no
// error, otherwise it rolls back. SQLite also rolls back if the process is killed.
func (f *sqliteFile) within(ctx context.Context, write bool,
	do func(context.Context, *sql.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, maxStatement)
	defer cancel()
	con, done, err := f.open(ctx, write)
	if err != nil {
		return err
	}
	defer done()
	begin := "BEGIN"
	if write {
		begin = "BEGIN IMMEDIATE"
	}
	if _, err := con.ExecContext(ctx, begin); err != nil {
		return err
	}
	if err := do(ctx, con); err != nil || !write {
		// If this fails, closing the connection rolls back.
		_, _ = con.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		return err
	}
	// With a cancelled context the driver may return an error for a commit that succeeded.
	_, err = con.ExecContext(context.WithoutCancel(ctx), "COMMIT")
	return err
}

// each calls do with each row of a query.
func each(ctx context.Context, con *sql.Conn, query string, args []any,
	do func(*sql.Rows) error) error {
	rows, err := con.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := do(rows); err != nil {
			return err
		}
	}
	return errors.Join(rows.Err(), rows.Close())
}

// quoted returns a name as a quoted SQL identifier.
func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// raw returns the columns of a SELECT as expressions (+"name"). For an expression the driver
// returns the stored value; for a bare column of type DATE it would return a time.Time instead of
// text.
func raw(names []string) string {
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = "+" + quoted(name)
	}
	return strings.Join(all, ", ")
}

// allowed reports whether agents may see the table with this name.
func (f *sqliteFile) allowed(name string) bool {
	lower := strings.ToLower(name)
	if strings.HasPrefix(lower, "sqlite_") || lower == noteTable {
		return false
	}
	return len(f.Tables) == 0 || slices.Contains(f.Tables, name)
}

// tables returns the tables and views that agents may see.
func (f *sqliteFile) tables(ctx context.Context, con *sql.Conn) ([]agentapi.GateTable, error) {
	var all []agentapi.GateTable
	err := each(ctx, con, `SELECT name, type = 'view' FROM pragma_table_list
		WHERE schema = 'main' AND type IN ('table', 'view') ORDER BY name`, nil, func(rows *sql.Rows) error {
		var t agentapi.GateTable
		err := rows.Scan(&t.Name, &t.View)
		if err == nil && f.allowed(t.Name) {
			all = append(all, t)
		}
		return err
	})
	for i := range all {
		if err == nil {
			all[i].Columns, err = columns(ctx, con, all[i].Name)
		}
	}
	return all, err
}

func columns(ctx context.Context, con *sql.Conn, table string) ([]agentapi.GateColumn, error) {
	all := []agentapi.GateColumn{}
	// hidden is 1 for hidden columns of virtual tables.
	err := each(ctx, con, `SELECT name, type, "notnull", pk > 0, hidden > 1
		FROM pragma_table_xinfo(?) WHERE hidden != 1`, []any{table}, func(rows *sql.Rows) error {
		var c agentapi.GateColumn
		err := rows.Scan(&c.Name, &c.Type, &c.NotNull, &c.Key, &c.Computed)
		all = append(all, c)
		return err
	})
	return all, err
}

// A table is a table or view that agents may see.
type table struct{ agentapi.GateTable }

// table returns the table with a name, or an error if agents may not see it.
func (f *sqliteFile) table(ctx context.Context, con *sql.Conn, name string) (table, error) {
	all, err := f.tables(ctx, con)
	if err != nil {
		return table{}, err
	}
	var names []string
	for _, t := range all {
		if t.Name == name {
			return table{t}, nil
		}
		names = append(names, t.Name)
	}
	return table{}, notFound("no table %.60q: there are %q", name, names)
}

func (t table) column(name string) (agentapi.GateColumn, error) {
	var names []string
	for _, c := range t.Columns {
		if c.Name == name {
			return c, nil
		}
		names = append(names, c.Name)
	}
	return agentapi.GateColumn{}, notFound("table %q has no column %.60q: there are %q", t.Name, name, names)
}

// keys returns the names of the columns of the primary key.
func (t table) keys() (all []string) {
	for _, c := range t.Columns {
		if c.Key {
			all = append(all, c.Name)
		}
	}
	return all
}

// names returns the names of all columns.
func (t table) names() (all []string) {
	for _, c := range t.Columns {
		all = append(all, c.Name)
	}
	return all
}

// A row maps the names of columns to the values of a row, as jsonOf encodes them.
type row = map[string]json.RawMessage

// Describe returns the tables that agents may see, and the methods of this kind of gatekeeper.
func (f *sqliteFile) Describe(ctx context.Context) (agentapi.Gatekeeper, error) {
	d := agentapi.Gatekeeper{Kind: manifest.KindSQLite, Resource: f.File, Reads: []agentapi.GateMethod{
		{Name: "rows", About: "rows of a table or view; of where each condition holds, = unless it is " +
			"an object of !=, <, <=, >, >= or like; -COLUMN orders downwards; at most 1,000",
			Args: json.RawMessage(`{"table":"customers","where":{"city":"Bern","name":{"like":"A%"}},` +
				`"columns":["id","name"],"order":["-id"],"limit":100,"offset":0}`)},
		{Name: "count", About: "how many rows of a table or view there are",
			Args: json.RawMessage(`{"table":"customers","where":{"city":"Bern"}}`)}},
		Actions: []agentapi.GateMethod{
			{Name: "insert", About: "a row more", Reversible: true,
				Args: json.RawMessage(`{"table":"customers","row":{"name":"Ann"}}`)},
			{Name: "update", About: "other values in one row", Reversible: true,
				Args: json.RawMessage(`{"table":"customers","key":{"id":1},"set":{"city":"Bern"}}`)},
			{Name: "delete", About: "one row less", Reversible: true,
				Args: json.RawMessage(`{"table":"customers","key":{"id":1}}`)}}}
	err := f.within(ctx, false, func(ctx context.Context, con *sql.Conn) (err error) {
		d.Tables, err = f.tables(ctx, con)
		return err
	})
	return d, err
}

// A selection holds the arguments of the reads rows and count. Limit is nil for the default.
type selection struct {
	Table   string                     `json:"table"`
	Where   map[string]json.RawMessage `json:"where"`
	Columns []string                   `json:"columns"`
	Order   []string                   `json:"order"`
	Limit   *int                       `json:"limit"`
	Offset  int                        `json:"offset"`
}

// A page is the result of the read rows. More is true if there are further rows.
type page struct {
	Rows []row `json:"rows"`
	More bool  `json:"more"`
}

// Read returns a page for the method rows, or the number of rows for the method count.
func (f *sqliteFile) Read(ctx context.Context, method string, args json.RawMessage) (any, error) {
	var s selection
	if err := strict(args, &s); err != nil {
		return nil, err
	}
	limit := defaultRows
	if s.Limit != nil {
		limit = *s.Limit
	}
	if limit < 1 || limit > maxRows || s.Offset < 0 {
		return nil, bad("limit %d, offset %d: want a limit of 1 to %d, and no negative offset", limit,
			s.Offset, maxRows)
	}
	if method != "rows" && method != "count" {
		return nil, unknown("reads", method, "rows", "count")
	}
	var out any
	err := f.within(ctx, false, func(ctx context.Context, con *sql.Conn) error {
		t, err := f.table(ctx, con, s.Table)
		if err != nil {
			return err
		}
		where, values, err := t.where(s.Where)
		if err != nil {
			return err
		}
		if method == "count" {
			var n int64
			err := con.QueryRowContext(ctx, "SELECT count(*) FROM "+quoted(t.Name)+where,
				values...).Scan(&n)
			out = map[string]int64{"count": n}
			return err
		}
		names := s.Columns
		if len(names) == 0 {
			names = t.names()
		}
		for i, name := range names {
			if _, err := t.column(name); err != nil {
				return err
			}
			// Repeated columns would multiply the memory of a large value.
			if slices.Contains(names[:i], name) {
				return bad("column %q is there twice", name)
			}
		}
		order, err := t.order(s.Order)
		if err != nil {
			return err
		}
		all, err := rowsOf(ctx, con, names, "SELECT "+raw(names)+" FROM "+quoted(t.Name)+where+order+
			" LIMIT ? OFFSET ?", append(values, limit+1, s.Offset))
		if err != nil {
			return err
		}
		more := len(all) > limit
		out = page{all[:min(len(all), limit)], more}
		return nil
	})
	return out, err
}

// comparisons maps the operators that agents use in conditions to SQL operators.
var comparisons = map[string]string{"=": "IS", "!=": "IS NOT", "<": "<", "<=": "<=", ">": ">",
	">=": ">=", "like": "LIKE"}

// where returns the WHERE clause for conditions, empty for none, and its parameters.
func (t table) where(of map[string]json.RawMessage) (string, []any, error) {
	var all []string
	var values []any
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if _, err := t.column(name); err != nil {
			return "", nil, err
		}
		conditions := map[string]json.RawMessage{"=": of[name]}
		if isCondition(of[name]) {
			conditions = nil
			if json.Unmarshal(of[name], &conditions) != nil {
				return "", nil, bad("where %q: want a value, or an object of comparisons", name)
			}
		}
		for _, op := range slices.Sorted(maps.Keys(conditions)) {
			operator, ok := comparisons[op]
			if !ok {
				return "", nil, bad("where %q: %.20q is no comparison: there are %s", name, op,
					strings.Join(slices.Sorted(maps.Keys(comparisons)), ", "))
			}
			v, err := valueOf(conditions[op])
			if err != nil {
				return "", nil, bad("where %q: %v", name, err)
			}
			all, values = append(all, quoted(name)+" "+operator+" ?"), append(values, v)
		}
	}
	if len(all) == 0 {
		return "", nil, nil
	}
	return " WHERE " + strings.Join(all, " AND "), values, nil
}

// order returns the ORDER BY clause for columns, empty for none. A prefix - means descending.
func (t table) order(of []string) (string, error) {
	var all []string
	for _, name := range of {
		name, down := strings.CutPrefix(name, "-")
		if _, err := t.column(name); err != nil {
			return "", err
		}
		by := quoted(name)
		if down {
			by += " DESC"
		}
		all = append(all, by)
	}
	if len(all) == 0 {
		return "", nil
	}
	return " ORDER BY " + strings.Join(all, ", "), nil
}

// rowsOf runs a query and returns its rows, with these names for its columns.
func rowsOf(ctx context.Context, con *sql.Conn, names []string, query string, args []any) ([]row, error) {
	all, size := []row{}, 0
	values, to := make([]any, len(names)), make([]any, len(names))
	for i := range to {
		to[i] = &values[i]
	}
	err := each(ctx, con, query, args, func(rows *sql.Rows) error {
		err := rows.Scan(to...)
		r := row{}
		for i, name := range names {
			if err == nil {
				r[name], err = jsonOf(values[i])
			}
			size += len(name) + len(r[name])
		}
		if err == nil && size > maxAnswer {
			err = tooLarge("the rows have more than %d bytes: ask for fewer columns or a lower limit",
				maxAnswer)
		}
		all = append(all, r)
		return err
	})
	return all, err
}

// Keys of the objects that encode values for which JSON has no type.
const (
	formBlob = "base64"
	// formBytes is for a text that is not valid UTF-8.
	formBytes = "text_base64"
)

// jsonOf encodes a value of SQLite as JSON. valueOf is its inverse.
func jsonOf(v any) (json.RawMessage, error) {
	coded := func(form string, v []byte) (json.RawMessage, error) {
		return json.Marshal(map[string]string{form: base64.StdEncoding.EncodeToString(v)})
	}
	switch v := v.(type) {
	case []byte:
		return coded(formBlob, v)
	case float64:
		if math.IsInf(v, 0) {
			// SQLite writes infinity like this, as a number out of the range of a double.
			return json.RawMessage(map[bool]string{false: "9e999", true: "-9e999"}[v < 0]), nil
		}
		text, err := json.Marshal(v)
		if err == nil && !bytes.ContainsAny(text, ".e") {
			// Without .0 it would become an integer when it is written back.
			text = append(text, ".0"...)
		}
		return text, err
	case string:
		if !utf8.ValidString(v) {
			return coded(formBytes, []byte(v))
		}
	}
	return json.Marshal(v)
}

// valueOf decodes a value for SQLite from JSON: null, a number, a string, true or false (as 1 or
// 0), or an object with the key formBlob or formBytes.
func valueOf(text json.RawMessage) (any, error) {
	var v any
	if err := strict(text, &v); err != nil || len(text) == 0 {
		return nil, errors.New("it is no value")
	}
	switch v := v.(type) {
	case nil, string:
		return v, nil
	case bool:
		if v {
			return int64(1), nil
		}
		return int64(0), nil
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n, nil
		}
		f, err := v.Float64()
		if errors.Is(err, strconv.ErrRange) {
			err = nil
		}
		return f, err
	case map[string]any:
		blob, isBlob := v[formBlob].(string)
		text, isText := v[formBytes].(string)
		if len(v) == 1 && isBlob {
			return base64.StdEncoding.DecodeString(blob)
		}
		if len(v) == 1 && isText {
			bytes, err := base64.StdEncoding.DecodeString(text)
			return string(bytes), err
		}
	}
	return nil, errors.New(`want null, a number, a text, true, false, or {"base64": TEXT}`)
}

// A write holds the arguments of an action: insert uses Row, update Key and Set, delete Key.
type write struct {
	Table string `json:"table"`
	Key   row    `json:"key,omitempty"`
	Set   row    `json:"set,omitempty"`
	Row   row    `json:"row,omitempty"`
}

// find returns the row with this primary key as a JSON object, nil if there is none.
func (t table) find(ctx context.Context, con *sql.Conn, key row) (json.RawMessage, error) {
	where, values, err := t.where(key)
	if err != nil {
		return nil, err
	}
	all, err := rowsOf(ctx, con, t.names(), "SELECT "+raw(t.names())+" FROM "+quoted(t.Name)+where+
		" LIMIT 2", values)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	if len(all) > 1 {
		return nil, bad("the key is that of several rows of table %q", t.Name)
	}
	return json.Marshal(all[0])
}

// resource returns FILE#TABLE{KEY}, the name of a row for people, or FILE#TABLE if key is nil.
func (f *sqliteFile) resource(t table, key row) (string, error) {
	name := f.File + "#" + t.Name
	if key == nil {
		return name, nil
	}
	text, err := json.Marshal(key)
	return name + string(text), err
}

// checked decodes and checks the arguments of an action, and returns them with their table.
func (f *sqliteFile) checked(ctx context.Context, con *sql.Conn, c Change) (t table, w write, err error) {
	if err := strict(c.Args, &w); err != nil {
		return t, w, err
	}
	if t, err = f.table(ctx, con, w.Table); err == nil {
		err = w.check(c.Action, t)
	}
	return t, w, err
}

// proposed is checked for an action from the queue. The error wraps errChanged if the gatekeeper
// has been configured for another file since.
func (f *sqliteFile) proposed(ctx context.Context, con *sql.Conn, c Change) (t table, w write, err error) {
	if t, w, err = f.checked(ctx, con, c); err != nil {
		return t, w, err
	}
	if is, err := f.resource(t, w.Key); err != nil || is != c.Resource {
		return t, w, errors.Join(err, fmt.Errorf("%w: the gatekeeper keeps another file now", errChanged))
	}
	return t, w, nil
}

// check returns an error unless the arguments fit the action, their columns exist, and t is a table
// with a primary key. An update or delete must give the whole key, so it concerns one row.
func (w write) check(action string, t table) error {
	if t.View {
		return bad("%q is a view: only its rows can be read", t.Name)
	}
	keys := t.keys()
	if len(keys) == 0 {
		return bad("table %q has no primary key: its rows have no names by which they could be changed",
			t.Name)
	}
	given := slices.Sorted(maps.Keys(w.Key))
	slices.Sort(keys)
	values := w.Row
	switch action {
	case "insert":
		if len(w.Row) == 0 || len(w.Key) > 0 || len(w.Set) > 0 {
			return bad("insert takes table and row")
		}
	case "update":
		if len(w.Set) == 0 || len(w.Row) > 0 || !slices.Equal(given, keys) {
			return bad("update takes table, key and set, and the key of table %q is %q", t.Name, keys)
		}
		values = w.Set
		for _, name := range keys {
			if _, ok := w.Set[name]; ok {
				return bad("update: column %q is a part of the key: delete the row and insert another",
					name)
			}
		}
	case "delete":
		if len(w.Set) > 0 || len(w.Row) > 0 || !slices.Equal(given, keys) {
			return bad("delete takes table and key, and the key of table %q is %q", t.Name, keys)
		}
	default:
		return unknown("actions", action, "insert", "update", "delete")
	}
	for name, v := range w.Key {
		if isCondition(v) {
			return bad("key %q: want a value", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		c, err := t.column(name)
		if err != nil {
			return err
		}
		if c.Computed {
			return bad("column %q is computed", name)
		}
		if _, err := valueOf(values[name]); err != nil {
			return bad("column %q: %v", name, err)
		}
	}
	return nil
}

// isCondition reports whether the JSON is not a value: it may be an object of comparisons.
func isCondition(text json.RawMessage) bool {
	_, err := valueOf(text)
	return err != nil
}

// errTried rolls back the transaction of a proposal.
var errTried = errors.New("it was only tried")

// Propose executes the action in a transaction and rolls it back. So constraints are checked, and
// After includes the effects of triggers and defaults.
func (f *sqliteFile) Propose(ctx context.Context, action string, args json.RawMessage) (Change, error) {
	c := Change{Action: action, Args: args, Reversible: true}
	err := f.within(ctx, true, func(ctx context.Context, con *sql.Conn) error {
		t, w, err := f.checked(ctx, con, c)
		if err != nil {
			return err
		}
		if action != "insert" {
			if c.Before, err = t.find(ctx, con, w.Key); err != nil {
				return err
			}
			if c.Before == nil {
				return notFound("table %q has no row with that key", t.Name)
			}
		}
		_, after, others, err := w.do(ctx, con, action, t)
		if err != nil {
			return err
		}
		// Revert restores only the row, not other rows that triggers and foreign keys change.
		c.After, c.Others, c.Reversible = after, others, others == 0
		if c.Resource, err = f.resource(t, w.Key); err != nil {
			return err
		}
		return errTried
	})
	if !errors.Is(err, errTried) {
		return c, err
	}
	return c, nil
}

// do executes the action. It returns the key of the row, the row afterwards (JSON null if it is
// gone), and the number of other rows that triggers and foreign keys have changed.
func (w write) do(ctx context.Context, con *sql.Conn, action string, t table) (key row,
	after json.RawMessage, others int64, err error) {
	var before, now int64
	const changes = "SELECT total_changes()"
	if err := con.QueryRowContext(ctx, changes).Scan(&before); err != nil {
		return nil, nil, 0, err
	}
	key = w.Key
	switch action {
	case "insert":
		key, err = insert(ctx, con, t, w.Row)
	case "update":
		err = update(ctx, con, t, key, w.Set)
	case "delete":
		err = remove(ctx, con, t, key)
	}
	if err != nil {
		return nil, nil, 0, constraint(err)
	}
	if err := con.QueryRowContext(ctx, changes).Scan(&now); err != nil {
		return nil, nil, 0, err
	}
	if after, err = t.find(ctx, con, key); after == nil {
		after = json.RawMessage("null")
	}
	return key, after, now - before - 1, err
}

// constraint turns a constraint violation into an error for wrong arguments.
func constraint(err error) error {
	if e, ok := errors.AsType[*sqlite.Error](err); ok && e.Code()&0xff == sqlite3.SQLITE_CONSTRAINT {
		return bad("the database refuses it: %v", err)
	}
	return err
}

// one returns err, or an error unless the statement changed exactly one row.
func one(r sql.Result, err error) error {
	if err != nil {
		return err
	}
	n, err := r.RowsAffected()
	if err == nil && n != 1 {
		err = fmt.Errorf("the statement changed %d rows", n)
	}
	return err
}

// assigned returns the quoted names and the decoded values of columns, sorted by name.
func assigned(of row) (names []string, values []any, err error) {
	for _, name := range slices.Sorted(maps.Keys(of)) {
		v, err := valueOf(of[name])
		if err != nil {
			return nil, nil, err
		}
		names, values = append(names, quoted(name)), append(values, v)
	}
	return names, values, nil
}

// insert inserts a row and returns its primary key.
func insert(ctx context.Context, con *sql.Conn, t table, of row) (row, error) {
	names, values, err := assigned(of)
	if err != nil {
		return nil, err
	}
	all, err := rowsOf(ctx, con, t.keys(), "INSERT OR ABORT INTO "+quoted(t.Name)+" ("+
		strings.Join(names, ", ")+") VALUES ("+strings.TrimSuffix(strings.Repeat("?, ", len(names)), ", ")+
		") RETURNING "+raw(t.keys()), values)
	if err == nil && len(all) == 0 {
		err = sql.ErrNoRows
	}
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// update sets columns of the row with this key.
func update(ctx context.Context, con *sql.Conn, t table, key, set row) error {
	names, values, err := assigned(set)
	if err != nil {
		return err
	}
	where, of, err := t.where(key)
	if err != nil {
		return err
	}
	return one(con.ExecContext(ctx, "UPDATE OR ABORT "+quoted(t.Name)+" SET "+strings.Join(names, " = ?, ")+
		" = ?"+where, append(values, of...)...))
}

// remove deletes the row with this key.
func remove(ctx context.Context, con *sql.Conn, t table, key row) error {
	where, values, err := t.where(key)
	if err != nil {
		return err
	}
	return one(con.ExecContext(ctx, "DELETE FROM "+quoted(t.Name)+where, values...))
}

// A note is the row of an action in _jail_actions.
type note struct {
	state   string
	key     row
	after   json.RawMessage
	outcome string
}

// noted returns the note of the action with this id. ok is false if there is none.
func noted(ctx context.Context, con *sql.Conn, id string) (n note, ok bool, err error) {
	var there int
	if err := con.QueryRowContext(ctx, `SELECT count(*) FROM pragma_table_list WHERE schema = 'main'
		AND name = ?`, noteTable).Scan(&there); err != nil || there == 0 {
		return n, false, err
	}
	var key, after string
	err = con.QueryRowContext(ctx, "SELECT state, key, after, outcome FROM "+noteTable+" WHERE id = ?",
		id).Scan(&n.state, &key, &after, &n.outcome)
	if errors.Is(err, sql.ErrNoRows) {
		return n, false, nil
	}
	if err == nil {
		n.after = json.RawMessage(after)
		err = json.Unmarshal([]byte(key), &n.key)
	}
	return n, err == nil, err
}

// Apply executes the action and records it in noteTable, in one transaction. If the action is
// recorded already, Apply returns its outcome.
func (f *sqliteFile) Apply(ctx context.Context, id string, c Change) (outcome string, err error) {
	err = f.within(ctx, true, func(ctx context.Context, con *sql.Conn) error {
		n, done, err := noted(ctx, con, id)
		if err != nil {
			return err
		}
		if done {
			outcome = n.outcome
			return nil
		}
		t, w, err := f.proposed(ctx, con, c)
		if err != nil {
			return err
		}
		if c.Action != "insert" {
			now, err := t.find(ctx, con, w.Key)
			if err != nil {
				return err
			}
			if now == nil || !same(now, c.Before) {
				return fmt.Errorf("%w: the row of table %q is not as it was", errChanged, t.Name)
			}
		}
		key, after, others, err := w.do(ctx, con, c.Action, t)
		if err != nil {
			return err
		}
		if others != c.Others {
			return fmt.Errorf("%w: the action would change %d other rows, and not %d", errChanged, others,
				c.Others)
		}
		name, err := json.Marshal(key)
		if err != nil {
			return err
		}
		outcome = runners.Printable(map[string]string{"insert": "inserted", "update": "updated",
			"delete": "deleted"}[c.Action]+" "+t.Name+" "+string(name), maxSaid)
		return keep(ctx, con, id, string(name), string(after), outcome)
	})
	return outcome, err
}

// keep records an applied action in noteTable, and removes old notes.
func keep(ctx context.Context, con *sql.Conn, id, key, after, outcome string) error {
	now := time.Now()
	for _, s := range []struct {
		text string
		args []any
	}{
		{"CREATE TABLE IF NOT EXISTS " + noteTable + ` (id TEXT PRIMARY KEY, state TEXT NOT NULL,
			time INTEGER NOT NULL, key TEXT NOT NULL, after TEXT NOT NULL, outcome TEXT NOT NULL)
			WITHOUT ROWID`, nil},
		{"DELETE FROM " + noteTable + " WHERE time < ?", []any{now.Add(-keepNotes).Unix()}},
		{"INSERT INTO " + noteTable + " VALUES (?, ?, ?, ?, ?, ?)",
			[]any{id, noteApplied, now.Unix(), key, after, outcome}},
	} {
		if _, err := con.ExecContext(ctx, s.text, s.args...); err != nil {
			return err
		}
	}
	return nil
}

// Revert restores the row and marks the note as reverted, in one transaction.
func (f *sqliteFile) Revert(ctx context.Context, id, _ string, c Change) error {
	return f.within(ctx, true, func(ctx context.Context, con *sql.Conn) error {
		n, done, err := noted(ctx, con, id)
		switch {
		case err != nil:
			return err
		case !done:
			return f.wrong(errors.New("it has no note of the action, which was not done there"))
		case n.state == noteReverted:
			return nil
		}
		t, _, err := f.proposed(ctx, con, c)
		if err != nil {
			return err
		}
		now, err := t.find(ctx, con, n.key)
		if err != nil {
			return err
		}
		if now == nil {
			now = json.RawMessage("null")
		}
		if !same(now, n.after) {
			return fmt.Errorf("%w: the row of table %q is not as the action left it", errChanged, t.Name)
		}
		if err := undo(ctx, con, c, t, n.key, now); err != nil {
			return constraint(err)
		}
		_, err = con.ExecContext(ctx, "UPDATE "+noteTable+" SET state = ? WHERE id = ?", noteReverted,
			id)
		return err
	})
}

// undo restores the row with this key. now is the row after the action.
func undo(ctx context.Context, con *sql.Conn, c Change, t table, key row, now json.RawMessage) error {
	if c.Action == "insert" {
		return remove(ctx, con, t, key)
	}
	var before, after row
	if err := errors.Join(json.Unmarshal(c.Before, &before), json.Unmarshal(now, &after)); err != nil {
		return err
	}
	for _, column := range t.Columns {
		name := column.Name
		if column.Computed || c.Action == "update" && same(before[name], after[name]) {
			delete(before, name)
		}
	}
	var err error
	switch {
	case c.Action == "delete":
		_, err = insert(ctx, con, t, before)
	case len(before) > 0:
		err = update(ctx, con, t, key, before)
	}
	return err
}

// Settle looks up the note of the action, which exists if and only if the action was applied. known
// is false if the gatekeeper has been configured for another file since.
func (f *sqliteFile) Settle(ctx context.Context, id string, c Change, reverting bool) (s Settled, known bool,
	err error) {
	if !strings.HasPrefix(c.Resource, f.File+"#") {
		return s, false, nil
	}
	err = f.within(ctx, false, func(ctx context.Context, con *sql.Conn) error {
		n, done, err := noted(ctx, con, id)
		s = Settled{Done: done, Outcome: n.outcome}
		if reverting {
			s.Done = done && n.state == noteReverted
		}
		return err
	})
	return s, err == nil, err
}
