package wasi_test

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/runners/wasi"
	. "github.com/jail-sandbox/jail/runners/wasi/wasitest"
)

func code(parts ...[]byte) []byte {
	m := Command(Cat(parts...))
	return m.Encode()
}

func targets(n int) []byte {
	return Cat([]byte{0x02, 0x40}, I32Const(0), []byte{0x0e}, U(uint64(n)), make([]byte, n+1),
		[]byte{0x0b})
}

func nested(n int) []byte {
	return Cat(bytes.Repeat([]byte{0x02, 0x40}, n), bytes.Repeat([]byte{0x0b}, n))
}

// everyOperand is one instruction of each form, whose operands hold the byte of an instruction that
// opens a block.
var everyOperand = [][]byte{
	I32Const(2), {0x42, 0x82, 0x82, 0x82, 2}, {0x43, 2, 2, 2, 2}, {0x44, 2, 2, 2, 2, 2, 2, 2, 2},
	{0x28, 2, 2}, {0x29, 3, 0x82, 0x82, 2}, {0x3f, 2}, {0x20, 2}, {0x24, 2}, {0x10, 2},
	{0x11, 2, 2}, {0x12, 2}, {0x13, 2, 2}, {0x0c, 2}, {0x0d, 2}, {0x08, 2}, {0x1c, 2, 0x7f, 2},
	{0xd0, 0x70}, {0xd2, 2}, {0xfc, 2}, {0xfc, 8, 2, 2}, {0xfc, 9, 2}, {0xfc, 10, 2, 2},
	{0xfc, 11, 2}, {0xfc, 12, 2, 2}, {0xfc, 13, 2}, {0xfc, 14, 2, 2}, {0xfc, 15, 2}, {0xfc, 17, 2},
	Cat([]byte{0xfd, 0}, []byte{2, 2}), Cat([]byte{0xfd, 12}, bytes.Repeat([]byte{2}, 16)),
	Cat([]byte{0xfd, 13}, bytes.Repeat([]byte{2}, 16)), {0xfd, 21, 2}, {0xfd, 34, 2},
	{0xfd, 84, 2, 2, 2}, {0xfd, 92, 2, 2}, {0xfd, 14}, {0xfd, 0x82, 2}, {0x6a}, {0xc4}, {0x1a},
}

// T-116: what takes the engine long is refused before it begins, and what comes near it is not.
func TestCheckCode(t *testing.T) {
	for _, tt := range []struct {
		name, words string
		module      []byte
	}{
		{"nothing", "", code()},
		{"deep", "", code(nested(wasi.MaxNesting))},
		{"too deep", "nests more than 10000 blocks", code(nested(wasi.MaxNesting + 1))},
		{"deep twice", "", code(nested(wasi.MaxNesting), nested(wasi.MaxNesting))},
		{"all kinds of blocks", "nests more", code(bytes.Repeat([]byte{0x03, 0x40, 0x04, 0x40, 0x1f,
			0x40, 2, 0, 0, 0, 2, 0}, wasi.MaxNesting/3+1))},
		{"targets", "", code(targets(wasi.MaxTargets))},
		{"too many targets", "more than 65536 targets", code(targets(wasi.MaxTargets + 1))},
		{"too many in two", "more than 65536 targets", code(targets(wasi.MaxTargets), targets(1))},
		{"more targets than bytes", "more than 65536 targets", code([]byte{0x0e}, U(1<<32-1))},
		{"operands are no blocks", "",
			code(bytes.Repeat(Cat(everyOperand...), wasi.MaxNesting/10))},
		{"unknown", "", code([]byte{0xff}, nested(wasi.MaxNesting+1))},
		{"in another function", "function 1 nests", change(func(m *Module) {
			m.Funcs = append(m.Funcs, Func{Locals: Vec(1, U(2), []byte{I64}), Code: nested(20_000)})
		})},
	} {
		err := wasi.CheckCode(tt.module)
		if tt.words == "" && err != nil || tt.words != "" && (!errors.Is(err, wasi.ErrTooLarge) ||
			!strings.Contains(err.Error(), tt.words)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.words)
		}
	}
	// Each operand by itself is taken whole: what follows is still seen, and it alone.
	for _, operand := range everyOperand {
		if err := wasi.CheckCode(code(operand, nested(wasi.MaxNesting+1))); err == nil {
			t.Errorf("% x hides what follows", operand)
		}
		if err := wasi.CheckCode(code(operand, nested(wasi.MaxNesting))); err != nil {
			t.Errorf("% x counts as a block: %v", operand, err)
		}
	}
}

// FuzzCheckCode: any bytes as code are looked through to their end.
func FuzzCheckCode(f *testing.F) {
	f.Add(Cat(everyOperand...))
	f.Add(nested(30))
	f.Add([]byte{0x1f, 0x40, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, text []byte) {
		err := wasi.CheckCode(code(text))
		if err != nil && !errors.Is(err, wasi.ErrTooLarge) {
			t.Error(err)
		}
		if err != nil && len(text) < wasi.MaxNesting && !strings.Contains(err.Error(), "targets") {
			t.Errorf("%d bytes: %v", len(text), err)
		}
	})
}

// What compilers make passes. The modules are those that jail ships, where they have been built.
func TestCheckCodeOfTools(t *testing.T) {
	found, err := os.ReadDir("../../bin/bundles/core-utils")
	if err != nil {
		t.Skip("no bundles have been built")
	}
	for _, e := range found {
		if !strings.HasSuffix(e.Name(), ".wasm") {
			continue
		}
		module, err := os.ReadFile("../../bin/bundles/core-utils/" + e.Name())
		if err != nil {
			t.Fatal(err)
		}
		if err := wasi.CheckCode(module); err != nil {
			t.Errorf("%s: %v", e.Name(), err)
		}
	}
}
