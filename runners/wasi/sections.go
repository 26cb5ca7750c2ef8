package wasi

import (
	"strings"

	"github.com/jail-sandbox/jail/runners"
)

// valueType returns the letter of a value type, or zero for one that is not supported.
func valueType(c byte) byte {
	switch c {
	case 0x7f:
		return 'i'
	case 0x7e:
		return 'I'
	case 0x7d:
		return 'f'
	case 0x7c:
		return 'F'
	case 0x7b:
		return 'v'
	case 0x70, 0x6f, 0x69:
		return 'r'
	}
	return 0
}

func (s *scan) typeSection(r *reader) error {
	n, err := r.count("types", maxTypes)
	if err != nil {
		return err
	}
	s.types = make([]signature, 0, n)
	for i := range n {
		if form := r.u8(); form != 0x60 && !r.short {
			return bad("type %d is not a function type; the GC proposal is not supported", i)
		}
		params, err := s.valueTypes(r, i)
		if err != nil {
			return err
		}
		results, err := s.valueTypes(r, i)
		if err != nil {
			return err
		}
		if r.short {
			return nil
		}
		s.types = append(s.types, signature{params, results})
	}
	return nil
}

func (s *scan) valueTypes(r *reader, index uint32) (string, error) {
	n, err := r.count("values in one type", maxParams)
	if err != nil || n == 0 {
		return "", err
	}
	raw := r.take(n)
	out := make([]byte, len(raw))
	for i, c := range raw {
		if out[i] = valueType(c); out[i] == 0 {
			return "", bad("type %d uses a value type that is not supported (0x%02x)", index, c)
		}
	}
	return string(out), nil
}

func (s *scan) importSection(r *reader) error {
	n, err := r.count("imports", maxImports)
	if err != nil {
		return err
	}
	for range n {
		im := Import{Module: r.name(), Name: r.name()}
		kind := r.u8()
		if r.short {
			return nil
		}
		if kind != 0 {
			return notGranted(im, "the module imports "+importKind(kind)+" "+
				runners.Printable(im.String(), 120)+"; nothing but functions can be granted")
		}
		index := r.u32()
		if r.short {
			return nil
		}
		if uint64(index) >= uint64(len(s.types)) {
			return bad("import %s has a type that does not exist",
				runners.Printable(im.String(), 120))
		}
		im.Params, im.Results = s.types[index].params, s.types[index].results
		s.info.Imports = append(s.info.Imports, im)
	}
	return nil
}

func importKind(kind byte) string {
	switch kind {
	case 1:
		return "the table"
	case 2:
		return "the memory"
	case 3:
		return "the global"
	case 4:
		return "the tag"
	}
	return "something unknown,"
}

func (s *scan) tableSection(r *reader) error {
	n, err := r.count("tables", maxTables)
	if err != nil {
		return err
	}
	for range n {
		if c := r.u8(); valueType(c) != 'r' && !r.short {
			return bad("a table holds elements of a type that is not supported (0x%02x)", c)
		}
		s.elements += r.limits().min
		if s.elements > MaxTableElements {
			return tooLarge("table elements", s.elements, MaxTableElements)
		}
	}
	return nil
}

func (s *scan) memorySection(r *reader) error {
	n, err := r.count("memories", 1)
	if err != nil || n == 0 {
		return err
	}
	l := r.limits()
	switch {
	case r.short:
		return nil
	case l.flags&2 != 0:
		return bad("the module wants shared memory; threads are not supported")
	case l.flags&4 != 0:
		return bad("the module wants a 64-bit memory, which is not supported")
	case l.flags > 1:
		return bad("the module declares a memory of unknown kind 0x%02x", l.flags)
	case l.min > MaxMemory/PageSize, l.hasMax && (l.max > MaxMemory/PageSize || l.max < l.min):
		return bad("the module declares a memory of an impossible size")
	}
	s.info.Memory, s.info.MemoryMin = true, l.min*PageSize
	if l.hasMax {
		s.info.MemoryMax = l.max * PageSize
	}
	return nil
}

func (s *scan) exportSection(r *reader) error {
	n, err := r.count("exports", maxExports)
	if err != nil {
		return err
	}
	for range n {
		name, kind := r.take(r.u32()), r.u8()
		index := r.u32()
		if r.short {
			return nil
		}
		if kind == 0 && string(name) == "_start" {
			s.info.Command, s.start = true, index
		}
	}
	return nil
}

// codeSection looks only at the size and at the locals of each function, which
// cost the engine memory that the size of the module does not show.
func (s *scan) codeSection(r *reader) error {
	n, err := r.count("functions", uint32(s.lim.Functions))
	if err != nil {
		return err
	}
	for i := range n {
		size := r.u32()
		if size > MaxFunctionBytes {
			return errorfLimit("function %d has %d bytes of code, more than %d", i, size,
				MaxFunctionBytes)
		}
		body := reader{b: r.take(size)}
		if r.short {
			return nil
		}
		groups, err := body.count("groups of locals", MaxLocals)
		if err != nil {
			return err
		}
		var locals uint64
		for range groups {
			locals += uint64(body.u32())
			body.u8()
			if body.short {
				return bad("function %d is malformed", i)
			}
			if locals > MaxLocals {
				return errorfLimit("function %d has more than %d locals", i, MaxLocals)
			}
		}
		if body.short {
			return bad("function %d is malformed", i)
		}
		if s.locals += locals; s.locals > maxTotalLocals {
			return tooLarge("locals in all its functions", s.locals, maxTotalLocals)
		}
	}
	return nil
}

// LayoutSection is the name of a custom section by which a module asks for a
// layout: its content is the name of one. A C source writes it with
// __attribute__((section(".custom_section.jail.layout"))).
const LayoutSection = "jail.layout"

// custom looks for signs of the layout that a module understands. Go's wasip1 port starts in the
// directory that PWD names, so it gets the rooted one.
func (s *scan) custom(r *reader) {
	switch r.name() {
	case "go:buildid":
		s.info.Layout = runners.LayoutRooted
	case "producers":
		if fields, err := r.count("producer fields", 64); err == nil && goProduced(r, fields) {
			s.info.Layout = runners.LayoutRooted
		}
	case LayoutSection:
		switch want := runners.Layout(r.b); want {
		case runners.LayoutRooted, runners.LayoutPreopens, runners.LayoutWorking:
			s.info.Layout = want
		}
	}
}

// goProduced reports whether the producers section names Go's own compiler;
// TinyGo names itself otherwise, and does not read PWD.
func goProduced(r *reader, fields uint32) bool {
	for range fields {
		r.name()
		values, err := r.count("producers", 1024)
		if err != nil {
			return false
		}
		for range values {
			name, _ := r.name(), r.name()
			if r.short {
				return false
			}
			if strings.HasPrefix(name, "Go cmd/compile") {
				return true
			}
		}
	}
	return false
}

// reader takes values off the front of a section. It never panics: after the
// first fault every read gives zero, and short is set.
type reader struct {
	b     []byte
	short bool
}

func (r *reader) fail() {
	r.short = true
	r.b = nil
}

func (r *reader) u8() byte {
	if len(r.b) == 0 {
		r.fail()
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

// u32 reads an unsigned LEB128 of at most 32 bits.
func (r *reader) u32() uint32 {
	v := r.leb(5)
	if v > 1<<32-1 {
		r.fail()
		return 0
	}
	return uint32(v)
}

func (r *reader) leb(most int) uint64 {
	var v uint64
	for i := range most {
		c := r.u8()
		v |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			return v
		}
	}
	r.fail()
	return 0
}

// take returns the next n bytes.
func (r *reader) take(n uint32) []byte {
	if uint64(n) > uint64(len(r.b)) {
		r.fail()
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) name() string { return string(r.take(r.u32())) }

// count reads the length of a vector whose elements take at least one byte, so
// that a false length cannot make the caller allocate or loop.
func (r *reader) count(what string, limit uint32) (uint32, error) {
	n := r.u32()
	if n > limit {
		return 0, tooLarge(what, uint64(n), uint64(limit))
	}
	if uint64(n) > uint64(len(r.b)) {
		r.fail()
		return 0, nil
	}
	return n, nil
}

// limits is the size of a table or memory.
type limits struct {
	min, max uint64
	hasMax   bool
	flags    byte
}

func (r *reader) limits() limits {
	l := limits{flags: r.u8()}
	size := 5
	if l.flags&4 != 0 {
		size = 10
	}
	l.min = r.leb(size)
	if l.flags&1 != 0 {
		l.max, l.hasMax = r.leb(size), true
	}
	return l
}
