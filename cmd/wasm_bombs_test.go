package cmd_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	. "github.com/jail-sandbox/jail/runners/wasi/wasitest"
)

// A bomb is a module that costs an engine much more than its size.
type bomb struct {
	// small is the size of a module of the same shape that compiles and runs.
	size, small int
	// words are what the refusal says.
	words string
	code  func(n int) Module
}

// bombs returns all of them by what they are made of.
func bombs() map[string]bomb {
	body := func(code []byte) Module { return Command(code) }
	functions := func(f Func) func(int) Module {
		return func(n int) Module {
			m := Command(nil)
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
	if slower() > 1 {
		time = `compiling it takes more than \S+ \((cpu_time|wall)\)`
	}
	return map[string]bomb{
		"functions": {200_001, 1000, "200002 functions, more than 200000", functions(Func{})},
		"locals": {50_000, 1000, "more than 20000 locals",
			func(n int) Module {
				return functions(Func{Locals: Vec(1, U(uint64(n)), []byte{I64})})(1)
			}},
		"parameters": {1_000_000, 100, "1000000 values in one type, more than 1000",
			func(n int) Module {
				m := body(nil)
				m.Types = append(m.Types, Type{Params: bytes.Repeat([]byte{I32}, n)})
				return m
			}},
		"nested blocks": {50_000, 1000, "nests more than 10000 blocks", func(n int) Module {
			return body(Cat(bytes.Repeat([]byte{0x02, 0x40}, n), bytes.Repeat([]byte{0x0b}, n)))
		}},
		"br_table": {1_000_000, 1000, "more than 65536 targets of br_table", func(n int) Module {
			return body(Cat([]byte{0x02, 0x40}, I32Const(0), []byte{0x0e}, U(uint64(n)),
				make([]byte, n+1), []byte{0x0b}))
		}},
		"branches": {60_000, 500, time,
			func(n int) Module {
				return body(bytes.Repeat(Cat(I32Const(1), []byte{0x04, 0x40, 0x0b}), n))
			}},
		"straight code": {2_000_000, 1000, memory + "|" + time, func(n int) Module {
			return body(Cat(I32Const(0), bytes.Repeat(Cat(I32Const(1), []byte{0x6a}), n),
				[]byte{0x1a}))
		}},
		"size": {70 << 20, 1 << 20, "is larger than 64 MiB",
			func(n int) Module {
				m := body(nil)
				m.Custom = []Custom{{Name: "x", Data: make([]byte, n)}}
				return m
			}},
		"tables": {1<<31 - 1, 1000, "table elements, more than 10000000",
			func(n int) Module {
				m := body(nil)
				m.Tables = [][]byte{Cat([]byte{0x70, 0}, U(uint64(n)))}
				return m
			}},
	}
}

// T-116: a module that is dear to compile is refused in one sentence, before it is compiled or by
// the limits of the jail that compiles it.
func TestCompileBombs(t *testing.T) {
	h := newHost(t)
	for name, b := range bombs() {
		t.Run(name, func(t *testing.T) {
			if name == "straight code" && os.Getenv("JAIL_TEST_LONG") == "" {
				t.Skip("JAIL_TEST_LONG is not set: it takes all the memory that there may be")
			}
			defer func(whole *testing.T) { h.t = whole }(h.t)
			h.t = t
			for _, n := range []int{b.small, b.size} {
				path := filepath.Join(h.work, "bomb.wasm")
				if err := os.WriteFile(path, b.code(n).Encode(), 0o644); err != nil {
					t.Fatal(err)
				}
				o := h.jail("run", "--no-workspace", "--", path)
				if n == b.small { // the control
					if o.code != 0 {
						t.Errorf("%d: exit code %d, %.300s", n, o.code, o.err)
					}
					continue
				}
				h.wants(o, 126, b.words)
			}
		})
	}
}
