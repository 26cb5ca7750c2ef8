package wasi_test

import (
	"bytes"
	"testing"

	"github.com/jail-sandbox/jail/runners/wasi"
	. "github.com/jail-sandbox/jail/runners/wasi/wasitest"
)

func TestBoundTables(t *testing.T) {
	grow := Cat([]byte{0xd0, 0x70}, I32Const(1), []byte{0xfc, 15, 0, 0x1a})
	padded := Cat([]byte{0xd0, 0x70}, I32Const(1), []byte{0xfc, 0x8f, 0, 0, 0x1a})
	build := func(code []byte, tables ...[]byte) []byte {
		m := Command(code)
		m.Tables = tables
		return m.Encode()
	}
	open, small, wide := []byte{0x70, 0, 3}, []byte{0x70, 1, 3, 9}, Cat([]byte{0x70, 1, 3},
		U(1<<32-1))
	capped := Cat([]byte{0x70, 1, 3}, U(wasi.MaxTableElements))
	half := Cat([]byte{0x70, 1, 3}, U(wasi.MaxTableElements/2))
	for name, tt := range map[string][2][]byte{
		"cannot grow":  {build(nop, open), build(nop, open)},
		"no table":     {build(grow), build(grow)},
		"no limit":     {build(grow, open), build(grow, capped)},
		"written long": {build(padded, open), build(padded, capped)},
		"a wide limit": {build(grow, wide), build(grow, capped)},
		"a narrow one": {build(grow, small), build(grow, small)},
		"two tables":   {build(grow, open, small), build(grow, half, small)},
		"not a module": {[]byte("12345678\xfc\x0f"), []byte("12345678\xfc\x0f")},
		"header, bytes": {append(append([]byte{}, Header...), 0xfc, 0x0f),
			append(append([]byte{}, Header...), 0xfc, 0x0f)},
	} {
		if got := wasi.BoundTables(tt[0]); !bytes.Equal(got, tt[1]) {
			t.Errorf("%s: %x, want %x", name, got, tt[1])
		}
	}
}
