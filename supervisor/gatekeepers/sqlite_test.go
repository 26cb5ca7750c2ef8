package gatekeepers

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/runners/runnertest"
)

const crm = "crm.db"

const schema = `PRAGMA journal_mode = %s;
CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL, city TEXT, since DATE,
	photo BLOB, score REAL, shout TEXT AS (upper(name)));
INSERT INTO customers (name, city, since, photo, score) VALUES ('Ann', 'Bern', '2024-02-29', x'00ff', 1.5),
	('Bob', 'Basel', NULL, NULL, 9e999), ('Cid', CAST(x'42ff' AS TEXT), NULL, NULL, 3);
CREATE TABLE "odd ""name" (a TEXT, b TEXT, PRIMARY KEY (a, b)) WITHOUT ROWID;
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER NOT NULL
	REFERENCES customers ON DELETE CASCADE);
INSERT INTO orders (customer) VALUES (2), (2);
CREATE TABLE heap (x);
CREATE TABLE secret (id INTEGER PRIMARY KEY, word TEXT);
CREATE VIEW cities AS SELECT DISTINCT city FROM customers;`

// customers makes a database in a directory.
func customers(t *testing.T, dir, journal string) *sqliteFile {
	t.Helper()
	path := filepath.Join(dir, crm)
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(fmt.Sprintf(schema, journal)); err != nil {
		t.Fatal(err)
	}
	return &sqliteFile{Settings{File: path, Tables: []string{"customers", `odd "name`, "orders", "heap",
		"cities"}}}
}

// raws returns a JSON value as it is written.
func raws(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

type object = map[string]any

// rowOf returns a row as JSON, empty if there is none.
func rowOf(t *testing.T, f *sqliteFile, id int) string {
	t.Helper()
	out, err := f.Read(t.Context(), "rows", raws(object{"table": "customers", "where": object{"id": id},
		"columns": []string{"name", "city", "since", "photo", "score"}}))
	if err != nil {
		t.Fatal(err)
	}
	rows := out.(page).Rows
	if len(rows) == 0 {
		return ""
	}
	return string(raws(rows[0]))
}

func TestReads(t *testing.T) {
	f := customers(t, t.TempDir(), "DELETE")
	d, err := f.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, table := range d.Tables {
		names = append(names, table.Name)
	}
	if got := strings.Join(names, ","); got != `cities,customers,heap,odd "name,orders` {
		t.Errorf("tables: %s", got)
	}
	for _, c := range []struct {
		args object
		want string
	}{
		{object{"table": "customers", "columns": []string{"name"}, "order": []string{"-name"}, "limit": 2},
			`{"rows":[{"name":"Cid"},{"name":"Bob"}],"more":true}`},
		{object{"table": "customers", "columns": []string{"id", "shout"},
			"where": object{"name": object{"like": "%b%"}, "id": object{">=": 1, "<": 9}}},
			`{"rows":[{"id":2,"shout":"BOB"}],"more":false}`},
		{object{"table": "customers", "columns": []string{"id"}, "where": object{"since": nil, "score": 3}},
			`{"rows":[{"id":3}],"more":false}`},
		{object{"table": "customers", "columns": []string{"photo", "since", "score"}, "limit": 2},
			`{"rows":[{"photo":{"base64":"AP8="},"score":1.5,"since":"2024-02-29"},` +
				`{"photo":null,"score":9e999,"since":null}],"more":true}`},
		{object{"table": "cities", "offset": 1, "limit": 1}, `{"rows":[{"city":"Basel"}],"more":true}`},
	} {
		out, err := f.Read(t.Context(), "rows", raws(c.args))
		if got, _ := json.Marshal(out); err != nil || string(got) != c.want {
			t.Errorf("%s: %s, want %s, %v", raws(c.args), got, c.want, err)
		}
	}
	out, err := f.Read(t.Context(), "count", raws(object{"table": "customers", "where": object{
		"city": object{"!=": "Bern"}}}))
	if got, _ := json.Marshal(out); err != nil || string(got) != `{"count":2}` {
		t.Errorf("count: %s, %v", got, err)
	}
	// What the schema has not, and what the owner has not given, is not there.
	for _, args := range []object{
		{"table": "secret"}, {"table": noteTable}, {"table": "sqlite_schema"}, {"table": "nothing"},
		{"table": "customers; DROP TABLE customers"},
		{"table": "customers", "columns": []string{"1"}},
		{"table": "customers", "columns": []string{"photo", "name", "photo"}},
		{"table": "customers", "columns": []string{`name" FROM secret --`}},
		{"table": "customers", "order": []string{"random()"}},
		{"table": "customers", "where": object{"name": object{"= 1 OR 1": 1}}},
		{"table": "customers", "where": object{`name" = "name`: 1}},
		{"table": "customers", "limit": 1001}, {"table": "customers", "limit": 0},
		{"table": "customers", "offset": -1}, {"table": "customers", "sql": "SELECT 1"},
	} {
		out, err := f.Read(t.Context(), "rows", raws(args))
		if e, ok := errors.AsType[*agent.Error](err); !ok || e.Code != agent.ErrParams &&
			e.Code != agent.ErrNotFound {
			t.Errorf("%s: %v %v", raws(args), out, err)
		}
	}
}

// do proposes an action and applies it.
func do(t *testing.T, f *sqliteFile, id, action string, args object) Change {
	t.Helper()
	c, err := f.Propose(t.Context(), action, raws(args))
	if err != nil {
		t.Fatalf("%s %s: %v", action, raws(args), err)
	}
	if _, err := f.Apply(t.Context(), id, c); err != nil {
		t.Fatalf("%s %s: %v", action, raws(args), err)
	}
	return c
}

func TestWrites(t *testing.T) {
	f := customers(t, t.TempDir(), "DELETE")
	ctx := t.Context()
	ann := rowOf(t, f, 1)
	for name, c := range map[string]struct {
		action string
		args   object
		id     int
		after  string
	}{
		"update": {"update", object{"table": "customers", "key": object{"id": 1}, "set": object{
			"city": "Zug", "photo": object{"base64": "AQ=="}}}, 1,
			`{"city":"Zug","name":"Ann","photo":{"base64":"AQ=="},"score":1.5,"since":"2024-02-29"}`},
		"update of a text that is no UTF-8": {"update", object{"table": "customers",
			"key": object{"id": 3}, "set": object{"city": "Chur"}}, 3,
			`{"city":"Chur","name":"Cid","photo":null,"score":3.0,"since":null}`},
		"delete": {"delete", object{"table": "customers", "key": object{"id": 1}}, 1, ""},
		"insert": {"insert", object{"table": "customers", "row": object{"name": "Dan", "score": true}}, 4,
			`{"city":null,"name":"Dan","photo":null,"score":1.0,"since":null}`},
	} {
		before := rowOf(t, f, c.id)
		change, err := f.Propose(ctx, c.action, raws(c.args))
		if err != nil || !change.Reversible {
			t.Fatalf("%s: %v, reversible %v", name, err, change.Reversible)
		}
		if got := rowOf(t, f, c.id); got != before {
			t.Errorf("%s: the proposal has changed the row to %s", name, got)
		}
		for range 2 { // Twice is once.
			if _, err := f.Apply(ctx, name, change); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if got := rowOf(t, f, c.id); got != c.after {
			t.Errorf("%s: %s, want %s", name, got, c.after)
		}
		for range 2 {
			if err := f.Revert(ctx, name, "", change); err != nil {
				t.Fatalf("%s: revert: %v", name, err)
			}
		}
		if got := rowOf(t, f, c.id); got != before {
			t.Errorf("%s, reverted: %s, want %s", name, got, before)
		}
	}
	if got := rowOf(t, f, 1); got != ann {
		t.Errorf("%s, want %s", got, ann)
	}
	// Several columns are the key, and names are odd.
	odd := object{"table": `odd "name`, "row": object{"a": "x", "b": "y"}}
	if err := f.Revert(ctx, "odd", "", do(t, f, "odd", "insert", odd)); err != nil {
		t.Error(err)
	}
	// Whatever the key is, jaild takes the outcome.
	c, err := f.Propose(ctx, "insert", raws(object{"table": `odd "name`, "row": object{
		"a": "\u202e\n" + strings.Repeat("x", 2000), "b": "y"}}))
	if err != nil {
		t.Fatal(err)
	}
	if said, err := f.Apply(ctx, "long", c); err != nil || len(said) > 1000 ||
		strings.ContainsAny(said, "\u202e\n") {
		t.Errorf("%q, %v", said, err)
	}
	// What a foreign key removes, too, is said, and not undone by half.
	c, err = f.Propose(ctx, "delete", raws(object{"table": "customers", "key": object{"id": 2}}))
	if err != nil || c.Reversible || c.Others != 2 {
		t.Errorf("a delete that cascades: %+v, %v", c, err)
	}
	do(t, f, "order", "delete", object{"table": "orders", "key": object{"id": 1}})
	if _, err := f.Apply(ctx, "cascade", c); !errors.Is(err, errChanged) {
		t.Errorf("it would change other rows than people saw: %v", err)
	}
}

// An action is done to the file that people were shown, whatever file the gatekeeper keeps later.
func TestOtherFile(t *testing.T) {
	f, other := customers(t, t.TempDir(), "DELETE"), customers(t, t.TempDir(), "DELETE")
	ctx := t.Context()
	args := raws(object{"table": "customers", "row": object{"name": "Dan"}})
	c, err := f.Propose(ctx, "insert", args)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Apply(ctx, "a", c); !errors.Is(err, errChanged) {
		t.Errorf("applied to another file: %v", err)
	}
	if got := rowOf(t, other, 4); got != "" {
		t.Errorf("the other file has %s", got)
	}
	if _, err := f.Apply(ctx, "a", c); err != nil {
		t.Fatal(err)
	}
	if s, known, err := other.Settle(ctx, "a", c, false); known || err != nil {
		t.Errorf("another file says how the action ended: %+v, %v", s, err)
	}
	if s, known, err := f.Settle(ctx, "a", c, false); !known || !s.Done || err != nil {
		t.Errorf("its file says %+v, %v, %v", s, known, err)
	}
}

// A number is put back as the kind of number that it was, in a column that takes any.
func TestNumbers(t *testing.T) {
	f := customers(t, t.TempDir(), "DELETE")
	db, err := sql.Open("sqlite", f.File)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(`CREATE TABLE orders_of (id INTEGER PRIMARY KEY, v);
		INSERT INTO orders_of (v) VALUES (2.0), (-0.0), (1e300), (9007199254740993)`); err != nil {
		t.Fatal(err)
	}
	f.Tables = nil
	kinds := func() (all string) {
		if err := db.QueryRow(`SELECT group_concat(typeof(v) || ' ' || v, ', ') FROM orders_of`).Scan(
			&all); err != nil {
			t.Fatal(err)
		}
		return all
	}
	before := kinds()
	for id := 1; id <= 4; id++ {
		name := fmt.Sprint(id)
		c := do(t, f, name, "update", object{"table": "orders_of", "key": object{"id": id},
			"set": object{"v": "other"}})
		if err := f.Revert(t.Context(), name, "", c); err != nil {
			t.Error(err)
		}
	}
	if got := kinds(); got != before {
		t.Errorf("%s, want %s", got, before)
	}
}

func TestChangedRow(t *testing.T) {
	f := customers(t, t.TempDir(), "DELETE")
	ctx := t.Context()
	set := func(city string) object {
		return object{"table": "customers", "key": object{"id": 1}, "set": object{"city": city}}
	}
	one, err := f.Propose(ctx, "update", raws(set("Zug")))
	if err != nil {
		t.Fatal(err)
	}
	two := do(t, f, "two", "update", set("Chur"))
	if _, err := f.Apply(ctx, "one", one); !errors.Is(err, errChanged) {
		t.Errorf("the row has changed since the proposal: %v", err)
	}
	do(t, f, "three", "update", set("Visp"))
	if err := f.Revert(ctx, "two", "", two); !errors.Is(err, errChanged) {
		t.Errorf("the row has changed since the action: %v", err)
	}
	if err := f.Revert(ctx, "one", "", one); err == nil {
		t.Error("what was not done was undone")
	}
	if got := rowOf(t, f, 1); !strings.Contains(got, `"Visp"`) {
		t.Errorf("the row is %s", got)
	}
}

func TestRefusedWrites(t *testing.T) {
	f := customers(t, t.TempDir(), "DELETE")
	for _, c := range []struct {
		action string
		args   object
	}{
		{"drop", object{"table": "customers"}},
		{"update", object{"table": "customers", "set": object{"city": "x"}}},
		{"update", object{"table": "customers", "key": object{"name": "Ann"}, "set": object{"city": "x"}}},
		{"update", object{"table": "customers", "key": object{"id": object{">": 0}},
			"set": object{"city": "x"}}},
		{"update", object{"table": "customers", "key": object{"id": 1}, "set": object{"id": 2}}},
		{"update", object{"table": "customers", "key": object{"id": 1}, "set": object{"shout": "x"}}},
		{"update", object{"table": "customers", "key": object{"id": 1}, "set": object{"name": nil}}},
		{"update", object{"table": "customers", "key": object{"id": 9}, "set": object{"city": "x"}}},
		{"update", object{"table": "customers", "key": object{"id": 1}, "set": object{"city": []int{1}}}},
		{"insert", object{"table": "customers", "row": object{"id": 1, "name": "x"}}},
		{"insert", object{"table": "customers", "row": object{}}},
		{"insert", object{"table": "cities", "row": object{"city": "x"}}},
		{"insert", object{"table": "heap", "row": object{"x": 1}}},
		{"insert", object{"table": "secret", "row": object{"word": "x"}}},
		{"insert", object{"table": noteTable, "row": object{"id": "x"}}},
		{"delete", object{"table": "customers"}},
		{"delete", object{"table": "customers", "key": object{"id": 1}, "row": object{"id": 2}}},
	} {
		if change, err := f.Propose(t.Context(), c.action, raws(c.args)); err == nil {
			t.Errorf("%s %s: %+v", c.action, raws(c.args), change)
		}
	}
}

// A database whose schema was made by somebody hostile calls nothing that reaches out of it, and a
// value of any size takes little memory.
func TestHostileSchema(t *testing.T) {
	dir := t.TempDir()
	f := customers(t, dir, "DELETE")
	f.Tables = nil
	db, err := sql.Open("sqlite", f.File)
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.Exec(`CREATE VIEW endless AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL
		SELECT i+1 FROM n) SELECT i FROM n WHERE i < 0;
		CREATE VIEW large AS SELECT randomblob(900000000) AS x`)
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	// Without the bound it never returns.
	if _, err := f.Read(ctx, "rows", raws(object{"table": "endless"})); err == nil {
		t.Error("an endless view has an end")
	}
	if _, err := f.Read(t.Context(), "rows", raws(object{"table": "large"})); err == nil {
		t.Error("a value of 900 MB is read")
	}
}

// TestNeverHalf kills a process at each system call that it makes on the database while it applies an
// action and reverts it, and has each call fail: the row is the old one or the new one, and the note
// says which.
func TestNeverHalf(t *testing.T) {
	if dir := runnertest.FaultDir(); dir != "" {
		f := &sqliteFile{Settings{File: filepath.Join(dir, crm)}}
		c, err := changeOf("update", f.File+annsRow, os.Getenv(changeKey))
		if err == nil {
			_, err = f.Apply(t.Context(), "a", c)
		}
		if err == nil {
			fmt.Println("applied")
			err = f.Revert(t.Context(), "a", "", c)
		}
		if err == nil {
			fmt.Println(runnertest.Said)
		}
		return
	}
	for _, journal := range []string{"DELETE", "WAL"} {
		t.Run(journal, func(t *testing.T) { neverHalf(t, journal) })
	}
}

// changeKey names the change of the process of TestNeverHalf.
const changeKey = "JAIL_TEST_CHANGE"

const annsRow = `#customers{"id":1}`

var moved = object{"table": "customers", "key": object{"id": 1},
	"set": object{"city": "Zug", "name": strings.Repeat("n", 5000)}}

func neverHalf(t *testing.T, journal string) {
	if journal == "WAL" && os.Getenv("JAIL_TEST_LONG") == "" {
		t.Skip("JAIL_TEST_LONG=1 also tests a database with a write-ahead log")
	}
	first := t.TempDir()
	f := customers(t, first, journal)
	before := rowOf(t, f, 1)
	c, err := f.Propose(t.Context(), "update", raws(moved))
	if err != nil {
		t.Fatal(err)
	}
	text, err := c.text()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(changeKey, text)
	states := map[string]int{}
	runnertest.EachFault(t, first, crm, func(dir, what, out string) {
		f, c := &sqliteFile{Settings{File: filepath.Join(dir, crm)}}, c
		c.Resource = f.File + annsRow
		applied, _, err := f.Settle(t.Context(), "a", c, false)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			return
		}
		reverted, _, err := f.Settle(t.Context(), "a", c, true)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			return
		}
		row, state := rowOf(t, f, 1), "as it was"
		switch {
		case reverted.Done:
			state = "reverted"
		case applied.Done:
			state = "applied"
		}
		states[state]++
		if old := row == before; old == (state == "applied") {
			t.Errorf("%s: the action is %s, and the row is %.200s", what, state, row)
		}
		if said := strings.Contains(out, "applied\n"); said && state == "as it was" ||
			strings.Contains(out, runnertest.Said) && state != "reverted" {
			t.Errorf("%s: it is %s, and was said to be more\n%s", what, state, out)
		}
		if reverted.Done {
			return
		}
		// What is left to do can be done.
		if _, err := f.Apply(t.Context(), "a", c); err != nil {
			t.Errorf("%s: again: %v", what, err)
		}
		if err := f.Revert(t.Context(), "a", "", c); err != nil || rowOf(t, f, 1) != before {
			t.Errorf("%s: reverted again: %v, %.200s", what, err, rowOf(t, f, 1))
		}
	})
	t.Logf("left behind: %v", states)
	if len(states) != 3 {
		t.Errorf("not every state was left behind: %v", states)
	}
}
