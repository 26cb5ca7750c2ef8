package wasi_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/wasi"
	. "github.com/jail-sandbox/jail/runners/wasi/wasitest"
)

var (
	i3     = Type{Params: []byte{I32, I32, I32}, Results: []byte{I32}}
	i4     = Type{Params: []byte{I32, I32, I32, I32}, Results: []byte{I32}}
	nop    = []byte{0x01}
	sound  = Command(nop)
	writes = withImport(Import{Module: wasi.Preview1, Name: "fd_write", Type: 1}, i4)
)

func withImport(im Import, t Type) Module {
	m := Command(nop)
	m.Types = append(m.Types, t)
	m.Imports = []Import{im}
	m.Exports[0].Index = 1
	return m
}

func change(f func(*Module)) []byte {
	m := Command(nop)
	f(&m)
	return m.Encode()
}

// imports is a command that imports fd_write, changed by f.
func imports(f func(*Module)) []byte {
	m := withImport(Import{Module: wasi.Preview1, Name: "fd_write", Type: 1}, i4)
	f(&m)
	return m.Encode()
}

func TestCheck(t *testing.T) {
	manyParams := Type{Params: bytes.Repeat([]byte{I32}, 1001)}
	tests := []struct {
		name   string
		module []byte
		kind   error // nil: sound
		words  string
	}{
		{"sound", sound.Encode(), nil, ""},
		{"imports what is granted", writes.Encode(), nil, ""},
		{"empty", nil, wasi.ErrModule, "is empty"},
		{"one byte", []byte{0}, wasi.ErrModule, "ends inside its header"},
		{"header only", Header, wasi.ErrNoCommand, "_start"},
		{"text", []byte("(module)"), wasi.ErrModule, "not a WebAssembly module"},
		{"ELF", []byte("\x7fELF\x02\x01\x01"), wasi.ErrModule, "not a WebAssembly module"},
		{"version 2", []byte("\x00asm\x02\x00\x00\x00"), wasi.ErrModule, "version 2"},
		{"component", []byte("\x00asm\x0d\x00\x01\x00\x07\x02\x01\x40"), wasi.ErrComponent,
			"component"},
		{"cut", sound.Encode()[:len(sound.Encode())-3], wasi.ErrModule, "cut short"},
		{"unknown section", change(func(m *Module) { m.Tail = Section(42, nil) }), wasi.ErrModule,
			"unknown kind 42"},
		{"section twice", change(func(m *Module) { m.Tail = Section(10, []byte{0}) }),
			wasi.ErrModule, "twice"},
		{"no _start", change(func(m *Module) { m.Exports[0].Name = "run" }), wasi.ErrNoCommand,
			"library"},
		{"_start is a memory", change(func(m *Module) { m.Exports[0].Kind = 2 }), wasi.ErrNoCommand,
			"library"},
		{"_start takes parameters", change(func(m *Module) { m.Types[0].Params = []byte{I32} }),
			wasi.ErrNoCommand, "_start takes parameters"},
		{"_start is an import", imports(func(m *Module) { m.Exports[0].Index = 0 }),
			wasi.ErrNoCommand, "a function that it imports"},
		{"_start is a later function", imports(func(m *Module) {
			m.Funcs = append(m.Funcs, Func{Type: 1, Code: []byte{0x41, 0}})
			m.Exports[0].Index = 2
		}), wasi.ErrNoCommand, "_start takes parameters"},
		{"_start does not exist", change(func(m *Module) { m.Exports[0].Index = 7 }),
			wasi.ErrModule, "a function that does not exist"},
		{"_start has a type that does not exist", change(func(m *Module) { m.Funcs[0].Type = 9 }),
			wasi.ErrModule, "does not exist"},
		{"unknown function", withImport(Import{Module: "env", Name: "system", Type: 1},
			i3).Encode(), wasi.ErrImport, "imports env.system, which is not granted"},
		{"unknown preview 1 function", withImport(Import{Module: wasi.Preview1, Name: "fd_exec",
			Type: 1}, i3).Encode(), wasi.ErrImport, "fd_exec"},
		{"other preview", withImport(Import{Module: "wasi_unstable", Name: "fd_write", Type: 1},
			i4).Encode(), wasi.ErrImport, "wasi_unstable.fd_write"},
		{"other type", withImport(Import{Module: wasi.Preview1, Name: "fd_write", Type: 1},
			i3).Encode(), wasi.ErrImport, "as (iii)->(i), but it is (iiii)->(i)"},
		{"control characters", withImport(Import{Module: "a\x1b[31m\n", Name: "b", Type: 1},
			i3).Encode(), wasi.ErrImport, `a\x1b[31m\n.b`},
		{"memory import", withImport(Import{Module: "env", Name: "memory", Kind: 2,
			Desc: []byte{0, 1}}, i3).Encode(), wasi.ErrImport, "the memory env.memory"},
		{"table import", withImport(Import{Module: "env", Name: "t", Kind: 1,
			Desc: []byte{0x70, 0, 1}}, i3).Encode(), wasi.ErrImport, "the table env.t"},
		{"global import", withImport(Import{Module: "env", Name: "g", Kind: 3,
			Desc: []byte{I32, 0}}, i3).Encode(), wasi.ErrImport, "the global env.g"},
		{"shared memory", change(func(m *Module) { m.Memory = []byte{3, 1, 2} }), wasi.ErrModule,
			"threads"},
		{"64-bit memory", change(func(m *Module) { m.Memory = []byte{4, 1} }), wasi.ErrModule,
			"64-bit"},
		{"memory beyond 4 GiB", change(func(m *Module) { m.Memory = Cat([]byte{0}, U(65537)) }),
			wasi.ErrModule, "impossible size"},
		{"huge table", change(func(m *Module) {
			m.Tables = [][]byte{Cat([]byte{0x70, 0}, U(1<<32-1))}
		}), wasi.ErrTooLarge, "table elements"},
		{"many tables", change(func(m *Module) {
			for range 200 {
				m.Tables = append(m.Tables, []byte{0x70, 0, 0})
			}
		}), wasi.ErrTooLarge, "200 tables"},
		{"wide type", change(func(m *Module) { m.Types = append(m.Types, manyParams) }),
			wasi.ErrTooLarge, "values in one type"},
		{"false count of types", append(append([]byte{}, Header...), Section(1, U(99_000))...),
			wasi.ErrModule, "malformed"},
		{"too many types", append(append([]byte{}, Header...), Section(1, U(1<<31))...),
			wasi.ErrTooLarge, "types"},
		{"GC type", append(append([]byte{}, Header...), Section(1, []byte{1, 0x5f, 0})...),
			wasi.ErrModule, "GC"},
		{"many locals", change(func(m *Module) {
			m.Funcs[0].Locals = Vec(1, U(50_000), []byte{I32})
		}), wasi.ErrTooLarge, "locals"},
		{"locals overflow", change(func(m *Module) {
			m.Funcs[0].Locals = Vec(2, U(1<<32-1), []byte{I32}, U(1<<32-1), []byte{I32})
		}), wasi.ErrTooLarge, "locals"},
		{"body missing",
			change(func(m *Module) {
				m.Funcs = nil
				m.Tail = nil
				m.Tail = Cat(Section(10, []byte{1, 2, 0, 0x0b}))
			}), wasi.ErrModule, "holds 1"},
		{"large function", change(func(m *Module) {
			m.Funcs[0].Code = bytes.Repeat(nop, wasi.MaxFunctionBytes)
		}), wasi.ErrTooLarge, "bytes of code"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := wasi.Check(tt.module, wasi.Limits{})
			if tt.kind == nil {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if !errors.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.words) {
				t.Fatalf("%v, want %v with %q", err, tt.kind, tt.words)
			}
			if strings.ContainsAny(err.Error(), "\n\x1b") {
				t.Errorf("not one clean line: %q", err)
			}
		})
	}
}

// T-116: what would cost much to compile is refused, and quickly.
func TestBombs(t *testing.T) {
	many := Command(nop)
	for range wasi.MaxFunctions + 1 {
		many.Funcs = append(many.Funcs, Func{Code: nop})
	}
	locals := Command(nop)
	for range 1000 {
		locals.Funcs = append(locals.Funcs,
			Func{Locals: Vec(1, U(wasi.MaxLocals), []byte{I64}), Code: nop})
	}
	for name, m := range map[string]Module{"functions": many, "locals": locals} {
		if _, err := wasi.Check(m.Encode(), wasi.Limits{}); !errors.Is(err, wasi.ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := wasi.Check(make([]byte, wasi.MaxModuleBytes+1),
		wasi.Limits{Bytes: 1 << 40}); !errors.Is(err, wasi.ErrTooLarge) {
		t.Errorf("size: %v", err)
	}
	if _, err := wasi.Check(sound.Encode(), wasi.Limits{Bytes: 10}); !errors.Is(err,
		wasi.ErrTooLarge) {
		t.Errorf("narrower size: %v", err)
	}
}

// T-127: every beginning of a sound module is refused without a panic.
func TestEveryPrefix(t *testing.T) {
	m := writes
	m.Custom = []Custom{{Name: "producers", Data: []byte{1, 1, 'l', 1, 1, 'C', 0}}}
	whole := m.Encode()
	for n := range len(whole) {
		if _, err := wasi.Check(whole[:n], wasi.Limits{}); err == nil {
			t.Errorf("%d of %d bytes pass", n, len(whole))
		}
	}
	if _, err := wasi.Check(whole, wasi.Limits{}); err != nil {
		t.Errorf("the whole: %v", err)
	}
}

func TestGranted(t *testing.T) {
	m := withImport(Import{Module: "jail", Name: "fetch", Type: 1}, i3).Encode()
	if _, err := wasi.Check(m, wasi.Limits{}); !errors.Is(err, wasi.ErrImport) {
		t.Errorf("not granted: %v", err)
	}
	if _, err := wasi.Check(m, wasi.Limits{},
		wasi.Import{Module: "jail", Name: "fetch", Params: "iii", Results: "i"}); err != nil {
		t.Errorf("granted: %v", err)
	}
}

func TestLayout(t *testing.T) {
	producers := func(name string) Custom {
		field := Cat(Vec(1), []byte("\x0cprocessed-by"), Vec(1), U(uint64(len(name))), []byte(name),
			[]byte("\x031.2"))
		return Custom{Name: "producers", Data: field}
	}
	for _, tt := range []struct {
		name    string
		customs []Custom
		want    runners.Layout
	}{
		{"plain", nil, runners.LayoutPreopens},
		{"Go by build id", []Custom{{Name: "go:buildid", Data: []byte("x")}}, runners.LayoutRooted},
		{"Go by producers", []Custom{producers("Go cmd/compile")}, runners.LayoutRooted},
		{"clang", []Custom{producers("clang")}, runners.LayoutPreopens},
		{"TinyGo", []Custom{producers("TinyGo")}, runners.LayoutPreopens},
		{"broken producers", []Custom{{Name: "producers", Data: []byte{9, 9, 9}}},
			runners.LayoutPreopens},
		{"asks", []Custom{{Name: wasi.LayoutSection, Data: []byte("rooted")}},
			runners.LayoutRooted},
		{"asks otherwise", []Custom{{Name: "go:buildid"},
			{Name: wasi.LayoutSection, Data: []byte("preopens")}}, runners.LayoutPreopens},
		{"asks for one directory", []Custom{{Name: wasi.LayoutSection, Data: []byte("working")}},
			runners.LayoutWorking},
		{"asks for nonsense", []Custom{{Name: wasi.LayoutSection, Data: []byte("host")}},
			runners.LayoutPreopens},
	} {
		m := Command(nop)
		m.Custom = tt.customs
		info, err := wasi.Check(m.Encode(), wasi.Limits{})
		if err != nil || info.Layout != tt.want {
			t.Errorf("%s: %v %v, want %v", tt.name, info.Layout, err, tt.want)
		}
	}
}

func TestFunctionsSorted(t *testing.T) {
	for i := 1; i < len(wasi.Functions); i++ {
		if wasi.Functions[i-1].Name >= wasi.Functions[i].Name {
			t.Errorf("%s stands before %s", wasi.Functions[i-1].Name, wasi.Functions[i].Name)
		}
	}
}

func FuzzCheck(f *testing.F) {
	f.Add(sound.Encode())
	f.Add(writes.Encode())
	f.Add([]byte("\x00asm\x0d\x00\x01\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		info, err := wasi.Check(b, wasi.Limits{})
		if err == nil && !info.Command {
			t.Error("passes without _start")
		}
		var me *wasi.ModuleError
		if err != nil && (!errors.As(err, &me) || strings.ContainsAny(err.Error(), "\n\x1b\x00")) {
			t.Errorf("%q", err)
		}
	})
}
