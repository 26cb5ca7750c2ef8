package wasi_test

import (
	"testing"

	"github.com/jail-sandbox/jail/runners/wasi"
	. "github.com/jail-sandbox/jail/runners/wasi/wasitest"
)

// FuzzBoundTables: bounding the tables of any bytes never panics, keeps what passed passing, and
// changes nothing the second time.
func FuzzBoundTables(f *testing.F) {
	grow := Cat([]byte{0xd0, 0x70}, I32Const(1), []byte{0xfc, 15, 0, 0x1a})
	m := Command(grow)
	m.Tables = [][]byte{{0x70, 0, 3}, {0x6f, 1, 3, 9}}
	f.Add(m.Encode())
	f.Add(append(append([]byte{}, Header...), 4, 5, 1, 0x70, 0, 0xff, 0xff, 0xfc, 15))
	f.Fuzz(func(t *testing.T, module []byte) {
		if len(module) < 8 {
			// No header, so Check has refused it.
			return
		}
		before, err := wasi.Check(module, wasi.Limits{})
		bounded := wasi.BoundTables(module)
		if err != nil {
			return
		}
		after, err := wasi.Check(bounded, wasi.Limits{})
		if err != nil || after.Functions != before.Functions ||
			len(after.Imports) != len(before.Imports) {
			t.Errorf("%x becomes %x: %v", module, bounded, err)
		}
		if again := wasi.BoundTables(bounded); string(again) != string(bounded) {
			t.Errorf("%x becomes %x", bounded, again)
		}
	})
}
