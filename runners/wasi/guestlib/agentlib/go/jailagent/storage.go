//go:build wasip1

package jailagent

import (
	"encoding/json"
	"unsafe"
)

//go:wasmimport jail_agent_storage_v1 call
func storageCall(method unsafe.Pointer, methodLen uint32, params unsafe.Pointer, paramsLen uint32, handle unsafe.Pointer) uint32

//go:wasmimport jail_agent_storage_v1 read
func storageRead(handle uint32, to unsafe.Pointer, len uint32, got unsafe.Pointer) uint32

//go:wasmimport jail_agent_storage_v1 close
func storageClose(handle uint32) uint32

//go:wasmimport jail_agent_storage_v1 error
func storageError(to unsafe.Pointer, len uint32, total unsafe.Pointer) uint32

// The linker drops these imports from a program that does not use Storage.

type storage struct{}

// Storage is the agent's own SQLite database. It needs capabilities.storage = true. The tables of
// the agent's memory exist from the start.
var Storage storage

func (storage) invoke(method, sql string, params []any, result any) error {
	m := module{storageCall, storageRead, storageClose, storageError}
	with := map[string]any{"sql": sql}
	if method != "exec" {
		with["params"] = params
	}
	return invoke(m, method, with, result)
}

// Exec executes SQL statements without parameters, such as CREATE TABLE.
func (s storage) Exec(sql string) error { return s.invoke("exec", sql, nil, nil) }

// Changed is the number of changed rows, and the row id of the last insert.
type Changed struct{ Changes, LastRowID int64 }

// Run executes an SQL statement with parameters.
func (s storage) Run(sql string, params ...any) (Changed, error) {
	var c Changed
	return c, s.invoke("run", sql, params, &c)
}

// Get decodes the first row, a JSON object by column, into into. It reports whether there is a row.
func (s storage) Get(into any, sql string, params ...any) (bool, error) {
	var row json.RawMessage
	if err := s.invoke("get", sql, params, &row); err != nil || string(row) == "null" {
		return false, err
	}
	return true, json.Unmarshal(row, into)
}

// Query decodes all rows into into, a pointer to a slice.
func (s storage) Query(into any, sql string, params ...any) error {
	return s.invoke("query", sql, params, into)
}
