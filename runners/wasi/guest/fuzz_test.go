package guest

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/wasi"
	. "github.com/jail-sandbox/jail/runners/wasi/wasitest"
)

// FuzzLoad gives the engine any bytes as a module (T-127): it is refused in one sentence or
// compiles, and the engine never panics. Bounding its tables makes no sound module unsound.
func FuzzLoad(f *testing.F) {
	f.Add(exits(3))
	f.Add(with(Cat(op(0xd0, 0x70), I32Const(1), op(0xfc, 15, 0, 0x1a)),
		func(m *Module) { m.Tables = [][]byte{{0x70, 0, 3}} }))
	f.Add(with(op(0x02, 0x40, 0x03, 0x40, 0x0c, 1, 0x0b, 0x0b), nil))
	f.Add(with(nil, func(m *Module) {
		m.Data = []string{"x", "y"}
		m.Custom = []Custom{{Name: "name", Data: []byte{0, 2, 1, 'x'}}}
	}))
	f.Fuzz(func(t *testing.T, module []byte) {
		l, err := Load(context.Background(), module, wasi.Limits{Functions: 1000}, "")
		if err == nil {
			l.Close(context.Background())
			if _, err := wasi.Check(wasi.BoundTables(module), wasi.Limits{}); err != nil {
				t.Errorf("with bounds: %v", err)
			}
			return
		}
		var me *wasi.ModuleError
		if !errors.As(err, &me) || bytes.ContainsAny([]byte(err.Error()), "\n\x1b\x00") {
			t.Errorf("%q", err)
		}
	})
}

// FuzzCode runs any code that has no way to go back (T-113 is about loops), on the engine's machine
// code: it ends by itself or by a trap with a class.
func FuzzCode(f *testing.F) {
	f.Add(Cat(I32Const(8), I32Const(1), op(0x36, 2, 0)), []byte("x"))
	f.Add(op(0x43, 0, 0, 0xc0, 0x7f, 0xa8, 0x1a), []byte{})
	f.Add(Cat(I32Const(1), op(0x40, 0, 0x1a), I32Const(1), I32Const(2), I32Const(70_000),
		op(0xfc, 10, 0, 0)), []byte("data"))
	f.Add(Cat(I32Const(0), op(0xfd, 0, 4, 0, 0xfd, 0x15, 3, 0x1a)), []byte("0123456789abcdef"))
	f.Add(Cat(op(0x02, 0x7f), I32Const(1), I32Const(2), op(0x0e, 1, 0, 0, 0x0b, 0x1a)), []byte{})
	f.Fuzz(func(t *testing.T, code, data []byte) {
		// Loops and calls, or numbers that look like them.
		if bytes.ContainsAny(code, "\x03\x10\x11\x12\x13\x14\x15") {
			return
		}
		module := with(code, func(m *Module) {
			m.Data = []string{string(data)}
			m.Memory = []byte{1, 1, 4}
		})
		rep, err := Run(context.Background(), runners.Invocation{Args: runners.Texts{"x"},
			MemoryLimit: 1 << 20}, module, nil, nil, nil)
		var me *wasi.ModuleError
		switch {
		case err != nil && !errors.As(err, &me):
			t.Errorf("%v", err)
		case err == nil && rep.Trap == nil && rep.ExitCode != 0, err == nil && rep.Trap != nil &&
			rep.Trap.Class == wasi.TrapOther:
			t.Errorf("%+v", rep)
		}
	})
}
