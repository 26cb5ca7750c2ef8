package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
)

// stripAll takes the custom sections out of the modules in a folder: names and
// debugging data, which the engine would carry along and look into for nothing.
func stripAll(dir string) error {
	names, err := filepath.Glob(filepath.Join(dir, "*.wasm"))
	if err != nil {
		return err
	}
	for _, name := range names {
		code, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if code, err = strip(code); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.WriteFile(name, code, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// strip returns a module without its custom sections.
func strip(code []byte) ([]byte, error) {
	const custom = 0
	if len(code) < 8 || string(code[:8]) != "\x00asm\x01\x00\x00\x00" {
		return nil, errModule
	}
	out := append([]byte{}, code[:8]...)
	r := reader{code[8:]}
	for len(r.rest) > 0 {
		id := r.bytes(1)
		body := r.bytes(r.uint())
		if id == nil || body == nil {
			return nil, errModule
		}
		if id[0] != custom {
			out = append(binary.AppendUvarint(append(out, id[0]), uint64(len(body))), body...)
		}
	}
	return out, nil
}
