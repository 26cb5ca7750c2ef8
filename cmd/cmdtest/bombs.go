package cmdtest

import (
	"bytes"

	"github.com/jail-sandbox/jail/runners/wasi/wasitest"
)

// A Bomb is a module that costs an engine much more than its size.
type Bomb struct {
	// Small is the size of a module of the same shape that compiles and runs.
	Size, Small int
	// Words are what the refusal says.
	Words string
	Code  func(n int) wasitest.Module
}

// Bombs returns all of them by what they are made of.
func Bombs() map[string]Bomb {
	body := func(code []byte) wasitest.Module { return wasitest.Command(code) }
	functions := func(f wasitest.Func) func(int) wasitest.Module {
		return func(n int) wasitest.Module {
			m := wasitest.Command(nil)
			for range n {
				m.Funcs = append(m.Funcs, f)
			}
			return m
		}
	}
	// On a machine that has other things to do the wall clock is first.
	time, memory := `compiling it takes more than (5s \(cpu_time\)|30s \(wall\))`,
		`compiling it takes more than 512 MiB \(memory\)`
	// So many times what it says.
	if Slower() > 1 {
		time = `compiling it takes more than \S+ \((cpu_time|wall)\)`
	}
	return map[string]Bomb{
		"functions": {200_001, 1000, "200002 functions, more than 200000", functions(wasitest.Func{})},
		"locals": {50_000, 1000, "more than 20000 locals",
			func(n int) wasitest.Module {
				return functions(wasitest.Func{Locals: wasitest.Vec(1, wasitest.U(uint64(n)), []byte{wasitest.I64})})(1)
			}},
		"parameters": {1_000_000, 100, "1000000 values in one type, more than 1000",
			func(n int) wasitest.Module {
				m := body(nil)
				m.Types = append(m.Types, wasitest.Type{Params: bytes.Repeat([]byte{wasitest.I32}, n)})
				return m
			}},
		"nested blocks": {50_000, 1000, "nests more than 10000 blocks", func(n int) wasitest.Module {
			return body(wasitest.Cat(bytes.Repeat([]byte{0x02, 0x40}, n), bytes.Repeat([]byte{0x0b}, n)))
		}},
		"br_table": {1_000_000, 1000, "more than 65536 targets of br_table", func(n int) wasitest.Module {
			return body(wasitest.Cat([]byte{0x02, 0x40}, wasitest.I32Const(0), []byte{0x0e}, wasitest.U(uint64(n)),
				make([]byte, n+1), []byte{0x0b}))
		}},
		"branches": {60_000, 500, time,
			func(n int) wasitest.Module {
				return body(bytes.Repeat(wasitest.Cat(wasitest.I32Const(1), []byte{0x04, 0x40, 0x0b}), n))
			}},
		"straight code": {2_000_000, 1000, memory + "|" + time, func(n int) wasitest.Module {
			return body(wasitest.Cat(wasitest.I32Const(0), bytes.Repeat(wasitest.Cat(wasitest.I32Const(1), []byte{0x6a}), n),
				[]byte{0x1a}))
		}},
		"size": {70 << 20, 1 << 20, "is larger than 64 MiB",
			func(n int) wasitest.Module {
				m := body(nil)
				m.Custom = []wasitest.Custom{{Name: "x", Data: make([]byte, n)}}
				return m
			}},
		"tables": {1<<31 - 1, 1000, "table elements, more than 10000000",
			func(n int) wasitest.Module {
				m := body(nil)
				m.Tables = [][]byte{wasitest.Cat([]byte{0x70, 0}, wasitest.U(uint64(n)))}
				return m
			}},
	}
}
