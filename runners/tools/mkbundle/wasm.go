package main

import (
	"encoding/binary"
	"errors"
	"slices"
)

const (
	importSection = 2
	importFunc    = 0
)

// errModule is for bytes that are not a core module of which the imports could be
// read. The compiler just wrote them, so it says no more.
var errModule = errors.New("not a WebAssembly module that imports functions only")

// imports lists what a module imports, as "module.name", sorted.
func imports(code []byte) ([]string, error) {
	if len(code) < 8 || string(code[:8]) != "\x00asm\x01\x00\x00\x00" {
		return nil, errModule
	}
	r := reader{code[8:]}
	for len(r.rest) > 0 {
		id := r.bytes(1)
		body := reader{r.bytes(r.uint())}
		if id == nil || body.rest == nil {
			return nil, errModule
		}
		if id[0] == importSection {
			return body.imports()
		}
	}
	return []string{}, nil
}

func (r *reader) imports() ([]string, error) {
	names := []string{}
	for range r.uint() {
		name := string(r.bytes(r.uint())) + "." + string(r.bytes(r.uint()))
		kind := r.bytes(1)
		if kind == nil || kind[0] != importFunc {
			return nil, errModule
		}
		// The index of the function's type.
		r.uint()
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

// reader takes values from the front of bytes; past the end they are zero.
type reader struct{ rest []byte }

func (r *reader) uint() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 {
		r.rest = nil
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *reader) bytes(n uint64) []byte {
	if n > uint64(len(r.rest)) {
		r.rest = nil
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}
