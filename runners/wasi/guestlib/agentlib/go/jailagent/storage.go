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

// A program that uses nothing of Storage does not import it: the linker leaves it out.

type storage struct{}

// Storage is the agent's own SQLite database, which needs capabilities.storage = true. Its tables
// for memory are there from the beginning.
var Storage storage

func (storage) invoke(method, sql string, params []any, result any) error {
	m := module{storageCall, storageRead, storageClose, storageError}
	with := map[string]any{"sql": sql}
	if method != "exec" {
		with["params"] = params
	}
	return invoke(m, method, with, result)
}

// Exec executes a statement, such as CREATE TABLE.
func (s storage) Exec(sql string) error { return s.invoke("exec", sql, nil, nil) }

// Changed is what a statement did.
type Changed struct{ Changes, LastRowID int64 }

// Run executes a statement with parameters.
func (s storage) Run(sql string, params ...any) (Changed, error) {
	var c Changed
	return c, s.invoke("run", sql, params, &c)
}

// Get reads the first row, an object by columns, and reports whether there is one.
func (s storage) Get(into any, sql string, params ...any) (bool, error) {
	var row json.RawMessage
	if err := s.invoke("get", sql, params, &row); err != nil || string(row) == "null" {
		return false, err
	}
	return true, json.Unmarshal(row, into)
}

// Query reads all rows into a pointer to a slice.
func (s storage) Query(into any, sql string, params ...any) error {
	return s.invoke("query", sql, params, into)
}
