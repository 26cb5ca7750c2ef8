package guest

import (
	"testing"

	"github.com/jail-sandbox/jail/runners"
	. "github.com/jail-sandbox/jail/runners/wasi/wasitest"
)

// T-115: tables are outside linear memory, and are bounded as well. The module
// traps unless growing by so much gives what is wanted.
func TestTableGrowth(t *testing.T) {
	grow := func(by int64, want int64) []byte {
		code := Cat(op(0xd0, 0x70), I32Const(by), op(0xfc, 15, 0), I32Const(want),
			op(0x47, 0x04, 0x40, 0x00, 0x0b))
		return with(code, func(m *Module) { m.Tables = [][]byte{{0x70, 0, 1}} })
	}
	for _, tt := range []struct{ by, want int64 }{{1000, 1}, {1 << 28, -1}, {1<<31 - 1, -1},
		{-1, -1}, {-2, -1}} {
		if r := runModule(t, runners.Invocation{}, grow(tt.by, tt.want), ""); r.err != nil ||
			r.Trap != nil {
			t.Errorf("by %d: %v %+v, want %d", tt.by, r.err, r.Trap, tt.want)
		}
	}
}
