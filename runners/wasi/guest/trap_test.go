package guest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/runners/wasi"
	. "github.com/jail-sandbox/jail/runners/wasi/wasitest"
)

func op(b ...byte) []byte { return b }

// with makes a command of the code and lets change add to it.
func with(code []byte, change func(*Module)) []byte {
	m := Command(code)
	if change != nil {
		change(&m)
	}
	return m.Encode()
}

// exits is a command that calls proc_exit.
func exits(code int64) []byte {
	return with(Cat(I32Const(code), op(0x10, 0)), func(m *Module) {
		m.Types = append(m.Types, Type{Params: []byte{I32}})
		m.Imports = []Import{{Module: wasi.Preview1, Name: "proc_exit", Type: 1}}
		m.Exports[0].Index = 1
	})
}

func TestExitCodes(t *testing.T) {
	for given, want := range map[int64]int{0: 0, 1: 1, 42: 42, 125: 125, 255: 255, 256: 0,
		-1: 255} {
		r := runModule(t, runners.Invocation{}, exits(given), "")
		if r.err != nil || r.ExitCode != want || r.Trap != nil || r.stderr != "" {
			t.Errorf("proc_exit(%d): %d %v %v %q", given, r.ExitCode, r.err, r.Trap, r.stderr)
		}
	}
	if r := runModule(t, runners.Invocation{}, with(nil, nil), ""); r.err != nil ||
		r.ExitCode != 0 {
		t.Errorf("return: %d %v", r.ExitCode, r.err)
	}
}

// Each way to fail in the engine is a trap with a class, an exit code and one
// sentence, and nothing is written to the tool's stderr.
func TestTraps(t *testing.T) {
	zero := uint32(0)
	table := func(m *Module) { m.Tables = [][]byte{{0x70, 0, 1}} }
	deep := op(0x10, 0)
	for _, tt := range []struct {
		name, class string
		module      []byte
	}{
		{"unreachable", wasi.TrapUnreachable, with(op(0x00), nil)},
		{"in the start section", wasi.TrapUnreachable,
			with(op(0x00), func(m *Module) { m.Start = &zero })},
		{"load", wasi.TrapMemory, with(Cat(I32Const(-4), op(0x28, 2, 0, 0x1a)), nil)},
		{"store", wasi.TrapMemory, with(Cat(I32Const(1<<16), I32Const(1), op(0x36, 2, 0)), nil)},
		{"fill", wasi.TrapMemory,
			with(Cat(I32Const(1), I32Const(1), I32Const(-1), op(0xfc, 11, 0)), nil)},
		{"data segment", wasi.TrapMemory,
			with(nil, func(m *Module) { m.Data = []string{strings.Repeat("x", 1<<16+1)} })},
		{"recursion", wasi.TrapStack, with(deep, nil)},
		{"division", wasi.TrapArithmetic, with(Cat(I32Const(1), I32Const(0), op(0x6d, 0x1a)), nil)},
		{"overflow", wasi.TrapArithmetic,
			with(Cat(I32Const(-1<<31), I32Const(-1), op(0x6d, 0x1a)), nil)},
		{"conversion", wasi.TrapArithmetic, with(op(0x43, 0, 0, 0xc0, 0x7f, 0xa8, 0x1a), nil)},
		{"null call", wasi.TrapTable, with(Cat(I32Const(0), op(0x11, 0, 0)), table)},
		{"call beyond the table", wasi.TrapTable, with(Cat(I32Const(9), op(0x11, 0, 0)), table)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := runModule(t, runners.Invocation{}, tt.module, "")
			if r.err != nil || r.Trap == nil || r.Trap.Class != tt.class ||
				r.ExitCode != wasi.ExitTrap {
				t.Fatalf("%d %+v %v", r.ExitCode, r.Trap, r.err)
			}
			if r.stderr != "" || strings.Contains(r.Trap.Sentence, "\n") ||
				strings.Contains(r.Trap.Sentence, "other") {
				t.Errorf("%q, stderr %q", r.Trap.Sentence, r.stderr)
			}
		})
	}
}

func TestRefusedModules(t *testing.T) {
	unknown := with(nil, func(m *Module) {
		m.Types = append(m.Types, Type{})
		m.Imports = []Import{{Module: "env", Name: "system", Type: 1}}
		m.Exports[0].Index = 1
	})
	r := runModule(t, runners.Invocation{}, unknown, "")
	if !errors.Is(r.err, wasi.ErrImport) || !strings.Contains(r.err.Error(), "env.system") ||
		!r.denied("import env.system") {
		t.Errorf("unknown import: %v %v", r.err, r.Denied)
	}
	for name, module := range map[string][]byte{
		"bad code":    with(op(0xff), nil),
		"empty stack": with(op(0x1a), nil),
		"threads":     with(op(0xfe, 0x03, 0), nil),
		"garbage":     append(append([]byte{}, Header...), 1, 2, 3, 4),
		// No ends: invalid, and only that.
		"nested too deeply": with(bytes.Repeat(op(0x02, 0x40), 50_000), nil),
		"_start is an import": with(nil, func(m *Module) {
			m.Types = append(m.Types, Type{Results: []byte{I32}})
			m.Imports = []Import{{Module: wasi.Preview1, Name: "sched_yield", Type: 1}}
			m.Exports[0].Index = 0
		}),
		"_start has a parameter": with(nil, func(m *Module) {
			m.Types[0].Params = []byte{I32}
		}),
	} {
		r := runModule(t, runners.Invocation{}, module, "")
		var me *wasi.ModuleError
		if !errors.As(r.err, &me) || strings.ContainsAny(r.err.Error(), "\n") || r.stderr != "" {
			t.Errorf("%s: %v", name, r.err)
		}
	}
}

// TestNoMemory: the calls of a module without a linear memory get EFAULT, as addresses beyond a
// memory do.
func TestNoMemory(t *testing.T) {
	args := bytes.Repeat(I32Const(1), 4)
	for name, code := range map[string][]byte{
		// exits with what fd_write returned
		"fd_write":    Cat(args, op(0x10, 0, 0x10, 1)),
		"sched_yield": Cat(op(0x10, 2, 0x10, 1)),
	} {
		r := runModule(t, runners.Invocation{}, with(code, func(m *Module) {
			m.Types = append(m.Types, Type{Params: bytes.Repeat(op(I32), 4), Results: op(I32)},
				Type{Params: op(I32)}, Type{Results: op(I32)})
			m.Imports = []Import{{Module: wasi.Preview1, Name: "fd_write", Type: 1},
				{Module: wasi.Preview1, Name: "proc_exit", Type: 2},
				{Module: wasi.Preview1, Name: "sched_yield", Type: 3}}
			m.Memory, m.Exports = nil, []Export{{Name: "_start", Index: 3}}
		}), "")
		want := map[string]int{"fd_write": 21, "sched_yield": 0}[name]
		if r.err != nil || r.Trap != nil || r.ExitCode != want {
			t.Errorf("%s: %d %v %v, want %d", name, r.ExitCode, r.Trap, r.err, want)
		}
	}
}

// T-127: every beginning of a real module fails in the check or in the engine,
// never by a panic.
func TestPrefixesOfModule(t *testing.T) {
	whole := prober()
	for n := 0; n < len(whole); n += 1 + len(whole)/300 {
		if _, err := Load(context.Background(), whole[:n], wasi.Limits{}, ""); err == nil ||
			errors.Is(err, errEngine) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

// T-115: memory beyond the limit is refused to the module, and recorded.
func TestMemoryLimit(t *testing.T) {
	const limit = 8 << 20
	// Exits with 7 if the growth is refused.
	grow := func(pages int64) []byte {
		code := Cat(I32Const(pages), op(0x40, 0), I32Const(-1), op(0x46, 0x04, 0x40), I32Const(7),
			op(0x10, 0, 0x0b))
		return with(code, func(m *Module) {
			m.Types = append(m.Types, Type{Params: []byte{I32}})
			m.Imports = []Import{{Module: wasi.Preview1, Name: "proc_exit", Type: 1}}
			m.Exports[0].Index = 1
		})
	}
	for _, tt := range []struct {
		name    string
		pages   int64
		limit   int64
		refused bool
	}{
		{"within", 100, limit, false}, {"to the limit", 127, limit, false},
		{"one page more", 128, limit, true},
		{"4 GiB", 65535, limit, true}, {"2 GiB with no limit", 32767, 0, false},
	} {
		r := runModule(t, runners.Invocation{MemoryLimit: tt.limit}, grow(tt.pages), "")
		if r.err != nil || (r.ExitCode == 7) != tt.refused ||
			(r.MemoryRefused != nil) != tt.refused {
			t.Errorf("%s: %d %+v %v", tt.name, r.ExitCode, r.MemoryRefused, r.err)
		}
		if tt.refused && (r.MemoryRefused.Limit != limit ||
			r.MemoryRefused.Wanted != (tt.pages+1)*wasi.PageSize) {
			t.Errorf("%s: %+v", tt.name, r.MemoryRefused)
		}
	}
	big := with(nil, func(m *Module) { m.Memory = Cat(op(0), U(65536)) })
	r := runModule(t, runners.Invocation{MemoryLimit: limit}, big, "")
	if !errors.Is(r.err, wasi.ErrTooLarge) || r.MemoryRefused == nil ||
		r.MemoryRefused.Wanted != 4<<30 {
		t.Errorf("starts with 4 GiB: %v %+v", r.err, r.MemoryRefused)
	}
	if r := runModule(t, runners.Invocation{}, big, ""); r.err != nil || r.ExitCode != 0 {
		t.Errorf("4 GiB that nobody touches, with no limit: %v", r.err)
	}
	if r := run(t, runners.Invocation{MemoryLimit: 32 << 20},
		"grow\t256"); r.MemoryRefused == nil || r.ExitCode == 0 || strings.Contains(r.stdout,
		"grew") {
		t.Errorf("a real tool: %d %+v", r.ExitCode, r.MemoryRefused)
	}
	if r := run(t, runners.Invocation{MemoryLimit: 512 << 20}, "grow\t64"); r.stdout != "grew\n" ||
		r.Usage.MemoryPeak < 64<<20 {
		t.Errorf("the control: %q, peak %d", r.stdout, r.Usage.MemoryPeak)
	}
}

// TestPrepared: an instance that was made before its run is for that run alone, no code has run in
// it, and the run's limit of memory holds in it.
func TestPrepared(t *testing.T) {
	zero := uint32(0)
	store := Cat(I32Const(0), I32Const(1), op(0x36, 2, 0))
	// It traps where memory that it wrote before is seen again.
	once := with(Cat(I32Const(0), op(0x28, 2, 0, 0x04, 0x40, 0x00, 0x0b), store), nil)
	prepare := func(module []byte, inv runners.Invocation) *Loaded {
		l, err := Prepare(t.Context(), module, inv)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close(context.Background()) })
		return l
	}
	inv := runners.Invocation{Args: runners.Texts{"test"}, Layout: runners.LayoutPreopens}
	l := prepare(once, inv)
	if l.made.Load() == nil {
		t.Error("no instance was made")
	}
	for n := range 3 {
		if r, err := l.Run(t.Context(), inv, nil, nil, nil); err != nil || r.Trap != nil {
			t.Errorf("run %d: %v %+v", n, err, r.Trap)
		}
	}
	for name, module := range map[string][]byte{
		"start section": with(op(0x00), func(m *Module) { m.Start = &zero }),
		"data segment":  with(nil, func(m *Module) { m.Data = []string{strings.Repeat("x", 1<<16+1)} }),
	} {
		l := prepare(module, inv)
		r, err := l.Run(t.Context(), inv, nil, nil, nil)
		if l.made.Load() != nil || err != nil || r.Trap == nil {
			t.Errorf("%s: %v %+v", name, err, r.Trap)
		}
	}
	// The module grows by 16 pages, and traps if it gets none.
	l = prepare(with(Cat(I32Const(16), op(0x40, 0), I32Const(-1), op(0x46, 0x04, 0x40, 0x00, 0x0b)),
		nil), inv)
	inv.MemoryLimit = 8 << 16
	if r, err := l.Run(t.Context(), inv, nil, nil, nil); err != nil || r.Trap == nil ||
		r.MemoryRefused == nil || r.MemoryRefused.Limit != inv.MemoryLimit {
		t.Errorf("a smaller limit: %v %+v", err, r)
	}
	inv.MemoryLimit = 32 << 16
	if r, err := l.Run(t.Context(), inv, nil, nil, nil); err != nil || r.Trap != nil {
		t.Errorf("the control: %v %+v", err, r.Trap)
	}
}

// TestPreparedIsRefused: a module that was made ready before it was known what its run is granted
// is refused in a run that does not grant what it imports. The control is a run that does.
func TestPreparedIsRefused(t *testing.T) {
	module := with(nil, func(m *Module) {
		m.Types = append(m.Types, Type{Params: []byte{I32}, Results: []byte{I32}})
		m.Imports = []Import{{Module: "jail_agent_host_v1", Name: "close", Type: 1}}
		m.Exports[0].Index = 1
	})
	l, err := Prepare(t.Context(), module, runners.Invocation{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close(t.Context())
	inv := runners.Invocation{Args: runners.Texts{"test"}, Layout: runners.LayoutPreopens}
	for _, bindings := range [][]string{nil, {agent.Storage}, {agent.Storage, agent.Host}} {
		r, err := l.Run(WithAgent(t.Context(), Agent{Bindings: bindings}), inv, nil, nil, nil)
		granted := slices.Contains(bindings, agent.Host)
		if granted && err != nil || !granted && (!errors.Is(err, wasi.ErrImport) ||
			len(r.Denied) != 1) {
			t.Errorf("with %v: %v %+v", bindings, err, r)
		}
	}
}
