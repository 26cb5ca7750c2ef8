//go:build wasip1

package jailagent

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Typed storage in the agent's database. Libraries of the other languages use the same tables.
// All changes are a part of the event's transaction.

var (
	dataName  = regexp.MustCompile(`^[a-z][a-z0-9_]{0,47}$`)
	dataField = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,47}(\.[A-Za-z_][A-Za-z0-9_]{0,47})*$`)
)

// Transaction calls f. If f returns an error, all that f wrote is undone.
func Transaction(f func() error) error {
	if err := Storage.Exec("SAVEPOINT data"); err != nil {
		return err
	}
	err := f()
	if err != nil {
		err = errors.Join(err, Storage.Exec("ROLLBACK TO data"))
	}
	return errors.Join(err, Storage.Exec("RELEASE data"))
}

// A Key is a type of keys. SQLite orders them as Go does: numbers by value.
type Key interface{ ~int64 | ~float64 | ~string }

// A DataChange describes a change to subscribers. Kind is add, update or remove. Before is nil for
// add, After for remove.
type DataChange[K Key, V any] struct {
	Kind          string
	Key           K
	Before, After *V
}

// A Collection stores values by key, with indexes on fields.
type Collection[K Key, V any] struct {
	table       string
	subscribers []func(DataChange[K, V]) error
}

// Open opens the collection with this name, and creates it if there is none. unique and index name
// fields of the values' JSON, with dots for nested fields. A unique index refuses a second value
// with the same field; values without the field are not in it. Indexes that are no longer named are
// removed.
func Open[K Key, V any](name string, unique, index []string) (*Collection[K, V], error) {
	if !dataName.MatchString(name) {
		return nil, fmt.Errorf("%q is no name of a collection: lower-case letters, digits and _", name)
	}
	c := &Collection[K, V]{table: "data_" + name}
	if err := Storage.Exec("CREATE TABLE IF NOT EXISTS " + c.table +
		" (key PRIMARY KEY NOT NULL, value TEXT NOT NULL) WITHOUT ROWID"); err != nil {
		return nil, err
	}
	wanted := map[string]string{}
	for i, fields := range [][]string{unique, index} {
		for _, field := range fields {
			path, err := dataPath(field)
			if err != nil {
				return nil, err
			}
			made := c.table + "_" + []string{"u", "i"}[i] + "_" + strings.ReplaceAll(field, ".", "__")
			wanted[made] = fmt.Sprintf("CREATE %s INDEX %q ON %s (%s)", []string{"UNIQUE", ""}[i], made,
				c.table, path)
		}
	}
	var there []struct{ Name string }
	if err := Storage.Query(&there, "SELECT name FROM sqlite_schema WHERE type = 'index' AND "+
		"tbl_name = ? AND sql IS NOT NULL", c.table); err != nil {
		return nil, err
	}
	for _, old := range there {
		_, stays := wanted[old.Name]
		delete(wanted, old.Name)
		if !stays {
			if err := Storage.Exec(fmt.Sprintf("DROP INDEX %q", old.Name)); err != nil {
				return nil, err
			}
		}
	}
	for _, statement := range wanted {
		if err := Storage.Exec(statement); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func dataPath(field string) (string, error) {
	if !dataField.MatchString(field) {
		return "", fmt.Errorf("%q is no name of a field", field)
	}
	return "json_extract(value, '$." + field + "')", nil
}

// An Item is a value with its key.
type Item[K Key, V any] struct {
	Key   K
	Value V
}

func (c *Collection[K, V]) items(rest string, params ...any) (all []Item[K, V], err error) {
	var rows []struct {
		Key   K
		Value string
	}
	if err := Storage.Query(&rows, "SELECT key, value FROM "+c.table+rest, params...); err != nil {
		return nil, err
	}
	for _, row := range rows {
		i := Item[K, V]{Key: row.Key}
		err = errors.Join(err, json.Unmarshal([]byte(row.Value), &i.Value))
		all = append(all, i)
	}
	return all, err
}

// Get returns the value of a key, or nil if there is none.
func (c *Collection[K, V]) Get(key K) (*V, error) {
	all, err := c.items(" WHERE key = ?", key)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return &all[0].Value, nil
}

// Put adds or replaces the value of a key. Subscribers run in the same transaction: if one returns
// an error, nothing is written.
func (c *Collection[K, V]) Put(key K, value V) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return Transaction(func() error {
		before, err := c.Get(key)
		if err != nil {
			return err
		}
		if _, err := Storage.Run("INSERT INTO "+c.table+" VALUES (?, ?) ON CONFLICT (key) DO UPDATE "+
			"SET value = excluded.value", key, string(text)); err != nil {
			return err
		}
		kind := "update"
		if before == nil {
			kind = "add"
		}
		return c.tell(DataChange[K, V]{kind, key, before, &value})
	})
}

// Remove removes a key and its value, and reports whether the key existed.
func (c *Collection[K, V]) Remove(key K) (removed bool, err error) {
	err = Transaction(func() error {
		before, err := c.Get(key)
		if err != nil || before == nil {
			return err
		}
		removed = true
		if _, err := Storage.Run("DELETE FROM "+c.table+" WHERE key = ?", key); err != nil {
			return err
		}
		return c.tell(DataChange[K, V]{"remove", key, before, nil})
	})
	return removed && err == nil, err
}

// All returns all values, ordered by key.
func (c *Collection[K, V]) All() ([]Item[K, V], error) { return c.items(" ORDER BY key") }

// Range returns the values whose keys are at least low and less than high, ordered by key.
func (c *Collection[K, V]) Range(low, high K) ([]Item[K, V], error) {
	return c.items(" WHERE key >= ? AND key < ? ORDER BY key", low, high)
}

// Find returns the values whose field equals value: a string, a number or nil. It uses an index if
// possible.
func (c *Collection[K, V]) Find(field string, value any) ([]Item[K, V], error) {
	path, err := dataPath(field)
	if err != nil {
		return nil, err
	}
	return c.items(" WHERE "+path+" IS ? ORDER BY key", value)
}

// Count returns the number of values.
func (c *Collection[K, V]) Count() (int64, error) {
	var row struct{ N int64 }
	_, err := Storage.Get(&row, "SELECT count(*) AS n FROM "+c.table)
	return row.N, err
}

// Subscribe calls f for each later change, in the transaction of the change.
func (c *Collection[K, V]) Subscribe(f func(DataChange[K, V]) error) {
	c.subscribers = append(c.subscribers, f)
}

func (c *Collection[K, V]) tell(change DataChange[K, V]) error {
	for _, f := range slices.Clone(c.subscribers) {
		if err := f(change); err != nil {
			return err
		}
	}
	return nil
}

// A Singleton is a single stored value with a name and a default.
type Singleton[V any] struct {
	*Collection[string, V]
	name      string
	otherwise V
}

// One opens the value with this name. otherwise is its default.
func One[V any](name string, otherwise V) (*Singleton[V], error) {
	c, err := Open[string, V]("singletons", nil, nil)
	return &Singleton[V]{c, name, otherwise}, err
}

// Value returns the value, or the default if it is not set.
func (s *Singleton[V]) Value() (V, error) {
	v, err := s.Get(s.name)
	if err != nil || v == nil {
		return s.otherwise, err
	}
	return *v, nil
}

// Set sets the value.
func (s *Singleton[V]) Set(value V) error { return s.Put(s.name, value) }

// Reset removes the value, so that Value returns the default again.
func (s *Singleton[V]) Reset() error {
	_, err := s.Remove(s.name)
	return err
}
