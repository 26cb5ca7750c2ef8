// Package wasitest writes small WebAssembly modules byte by byte, for tests that
// need ones that no compiler would make.
package wasitest

// Module is the content of a module. A zero field leaves its section out.
type Module struct {
	Types   []Type
	Imports []Import
	Funcs   []Func
	// Element type and limits, encoded.
	Tables  [][]byte
	Memory  []byte // limits, encoded
	Exports []Export
	Start   *uint32
	// Active segments at address 0.
	Data   []string
	Custom []Custom
	Tail   []byte // put behind all sections
}

// Type is a function type, in the binary's value types.
type Type struct{ Params, Results []byte }

// Import is an import. If Kind is 0 it is a function of type Type. Otherwise Kind is the kind, and
// Desc is what follows it in the binary.
type Import struct {
	Module, Name string
	Type         uint32
	Kind         byte
	Desc         []byte
}

// Func is a function with its locals (encoded groups) and code, without the end.
type Func struct {
	Type   uint32
	Locals []byte
	Code   []byte
}

// Export is an export of the function Index, or of the Index of another Kind if Kind is not 0.
type Export struct {
	Name  string
	Kind  byte
	Index uint32
}

// Custom is a custom section.
type Custom struct {
	Name string
	Data []byte
}

// Value types.
const (
	I32 = 0x7f
	I64 = 0x7e
)

// U encodes an unsigned LEB128.
func U(v uint64) []byte {
	var b []byte
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

// s encodes a signed LEB128, as the operand of i32.const and i64.const.
func s(v int64) []byte {
	var b []byte
	for {
		c := byte(v & 0x7f)
		v >>= 7
		if v == 0 && c&0x40 == 0 || v == -1 && c&0x40 != 0 {
			return append(b, c)
		}
		b = append(b, c|0x80)
	}
}

// I32Const is the instruction.
func I32Const(v int64) []byte { return append([]byte{0x41}, s(v)...) }

// Cat joins pieces of code.
func Cat(parts ...[]byte) []byte {
	var out []byte
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// Vec is a vector of n encoded elements.
func Vec(n int, elements ...[]byte) []byte { return append(U(uint64(n)), Cat(elements...)...) }

func bytesVec(b []byte) []byte { return append(U(uint64(len(b))), b...) }

// Section is one section.
func Section(id byte, body []byte) []byte { return append([]byte{id}, bytesVec(body)...) }

// Header starts every module.
var Header = []byte("\x00asm\x01\x00\x00\x00")

// Encode writes the module.
func (m Module) Encode() []byte {
	out := append([]byte(nil), Header...)
	add := func(id byte, n int, body []byte) {
		if n > 0 {
			out = append(out, Section(id, append(U(uint64(n)), body...))...)
		}
	}
	for _, c := range m.Custom {
		out = append(out, Section(0, append(bytesVec([]byte(c.Name)), c.Data...))...)
	}
	var types, imports, funcs, tables, exports, code, data []byte
	for _, t := range m.Types {
		types = Cat(types, []byte{0x60}, bytesVec(t.Params), bytesVec(t.Results))
	}
	for _, i := range m.Imports {
		desc := i.Desc
		if i.Kind == 0 {
			desc = U(uint64(i.Type))
		}
		imports = Cat(imports, bytesVec([]byte(i.Module)), bytesVec([]byte(i.Name)), []byte{i.Kind},
			desc)
	}
	for _, f := range m.Funcs {
		funcs = append(funcs, U(uint64(f.Type))...)
		locals := f.Locals
		if locals == nil {
			locals = []byte{0}
		}
		code = append(code, bytesVec(Cat(locals, f.Code, []byte{0x0b}))...)
	}
	for _, t := range m.Tables {
		tables = append(tables, t...)
	}
	for _, e := range m.Exports {
		exports = Cat(exports, bytesVec([]byte(e.Name)), []byte{e.Kind}, U(uint64(e.Index)))
	}
	for _, d := range m.Data {
		data = Cat(data, []byte{0, 0x41, 0, 0x0b}, bytesVec([]byte(d)))
	}
	add(1, len(m.Types), types)
	add(2, len(m.Imports), imports)
	add(3, len(m.Funcs), funcs)
	add(4, len(m.Tables), tables)
	if m.Memory != nil {
		add(5, 1, m.Memory)
	}
	add(7, len(m.Exports), exports)
	if m.Start != nil {
		out = append(out, Section(8, U(uint64(*m.Start)))...)
	}
	add(10, len(m.Funcs), code)
	add(11, len(m.Data), data)
	return append(out, m.Tail...)
}

// Command is a module whose _start is the code; its imports have type 1 on.
func Command(code []byte) Module {
	return Module{
		Types:   []Type{{}},
		Funcs:   []Func{{Code: code}},
		Memory:  []byte{0, 1},
		Exports: []Export{{Name: "_start"}, {Name: "memory", Kind: 2}},
	}
}
