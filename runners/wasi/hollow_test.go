package wasi_test

import (
	"bytes"
	"testing"

	"github.com/jail-sandbox/jail/runners/wasi"
	. "github.com/jail-sandbox/jail/runners/wasi/wasitest"
)

func TestHollow(t *testing.T) {
	m := writes
	m.Funcs = append(m.Funcs,
		Func{Locals: Vec(1, U(9), []byte{I64}), Code: bytes.Repeat(nop, 5000)})
	m.Custom = []Custom{{Name: "name", Data: bytes.Repeat([]byte{7}, 3000)}}
	m.Data = []string{"data that stays"}
	whole := m.Encode()
	hollow := wasi.Hollow(whole)
	before, err := wasi.Check(whole, wasi.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	after, err := wasi.Check(hollow, wasi.Limits{})
	if err != nil || after.Functions != before.Functions ||
		len(after.Imports) != len(before.Imports) || after.MemoryMin != before.MemoryMin {
		t.Errorf("%+v, %v; before %+v", after, err, before)
	}
	if len(hollow) > 300 || !bytes.Contains(hollow, []byte("data that stays")) {
		t.Errorf("%d bytes: %q", len(hollow), hollow)
	}
	// T-118: two modules that differ in their code alone are two to the engine.
	m.Funcs[0].Code = bytes.Repeat(nop, 2)
	if bytes.Equal(hollow, wasi.Hollow(m.Encode())) {
		t.Error("another module has the same hollow one")
	}
	if other := wasi.Hollow(whole[:len(whole)-1]); !bytes.Equal(other, whole[:len(whole)-1]) {
		t.Errorf("of a module that is cut short: %x", other)
	}
}

// The engine takes the limits of tables from the hollow module, so they are those of the module
// that was compiled.
func TestHollowBoundsTables(t *testing.T) {
	for name, code := range map[string][]byte{"grows": {0xfc, 0x0f, 0x00}, "does not grow": nil} {
		m := writes
		m.Tables = [][]byte{Cat([]byte{0x70, 0}, U(2))}
		m.Funcs = append(m.Funcs, Func{Code: code})
		whole := m.Encode()
		hollow := wasi.Hollow(whole)
		if bounded := wasi.BoundTables(whole); bytes.Equal(bounded, whole) != (code == nil) {
			t.Errorf("%s: the module does not show it", name)
		} else if !bytes.Equal(tables(hollow), tables(bounded)) {
			t.Errorf("%s: %x, want %x", name, tables(hollow), tables(bounded))
		}
	}
}

// tables returns the section of tables of a module whose sections are all short.
func tables(module []byte) []byte {
	for rest := module[8:]; len(rest) > 1; rest = rest[2+int(rest[1]):] {
		if rest[0] == 4 {
			return rest[:2+int(rest[1])]
		}
	}
	return nil
}

// FuzzHollow: what passed passes still, with the same imports, functions and memory, and nothing
// panics.
func FuzzHollow(f *testing.F) {
	f.Add(sound.Encode())
	f.Add(writes.Encode())
	f.Fuzz(func(t *testing.T, module []byte) {
		before, err := wasi.Check(module, wasi.Limits{})
		if err != nil {
			return
		}
		hollow := wasi.Hollow(module)
		after, err := wasi.Check(hollow, wasi.Limits{})
		if err != nil || after.Functions != before.Functions ||
			len(after.Imports) != len(before.Imports) || after.MemoryMin != before.MemoryMin ||
			after.MemoryMax != before.MemoryMax {
			t.Errorf("%x becomes %x: %v", module, hollow, err)
		}
	})
}
