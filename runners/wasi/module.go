package wasi

import (
	"bytes"
	"fmt"

	"github.com/jail-sandbox/jail/runners"
)

// Info is what the host needs to know about a module that passed Check.
type Info struct {
	Imports   []Import
	Functions int // that it defines
	// bytes of linear memory at its start
	MemoryMin uint64
	// it has a linear memory
	Memory bool
	// bytes that it declares as its most; MaxMemory where it declares none
	MemoryMax uint64
	Layout    runners.Layout
	// it exports the function _start
	Command bool
	// it has a start section: code that runs when it is instantiated
	Starts bool
}

// Import is a function that a module wants.
type Import struct {
	Module, Name string
	// one letter for each: i for i32, I for i64, f, F, v, r
	Params  string
	Results string
}

func (i Import) String() string { return i.Module + "." + i.Name }

// sectionNames are for messages, by section id.
var sectionNames = [...]string{"custom", "type", "import", "function", "table", "memory", "global",
	"export", "start", "element", "code", "data", "data count", "tag"}

// sectionOrder is the place of each section in a module, by section id.
var sectionOrder = [...]byte{0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 12, 13, 11, 6}

// Check reads a module and reports the first thing that is wrong with it: that
// it is no module, that it is beyond a limit, that it wants an import that it
// is not granted (WASI preview 1 is granted always; granted adds to it), or
// that it is no command. It runs in time linear in the size of the module.
func Check(module []byte, lim Limits, granted ...Import) (Info, error) {
	lim = withDefaults(lim)
	if int64(len(module)) > lim.Bytes {
		return Info{}, tooLarge("bytes", uint64(len(module)), uint64(lim.Bytes))
	}
	if err := checkHeader(module); err != nil {
		return Info{}, err
	}
	s := scan{lim: lim, info: Info{MemoryMax: MaxMemory, Layout: runners.LayoutPreopens}}
	if err := s.sections(module[8:]); err != nil {
		return Info{}, err
	}
	if err := checkImports(s.info.Imports, granted); err != nil {
		return s.info, err
	}
	return s.info, s.checkStart()
}

// checkStart returns an error if the engine cannot call _start as a command's: it is missing, has
// parameters, or is an imported function, which would run without the module's memory.
func (s *scan) checkStart() error {
	no := func(sentence string) error {
		return &ModuleError{Kind: ErrNoCommand, Sentence: sentence}
	}
	if !s.info.Command {
		return no("the module exports no function _start: it is a library, not a command")
	}
	imported := uint32(len(s.info.Imports))
	if s.start < imported {
		return no("the module's _start is a function that it imports: it is not a command")
	}
	types := reader{b: s.functions}
	for range s.start - imported {
		if types.u32(); types.short {
			break
		}
	}
	index := types.u32()
	if types.short || uint64(index) >= uint64(len(s.types)) {
		return bad("the module's _start is a function that does not exist")
	}
	if s.types[index].params != "" {
		return no("the module's _start takes parameters: it is not a command")
	}
	return nil
}

// checkHeader checks the magic number and the version of a module.
func checkHeader(m []byte) error {
	switch {
	case len(m) == 0:
		return bad("the module is empty")
	case !bytes.HasPrefix(m, []byte("\x00asm")) && !bytes.HasPrefix([]byte("\x00asm"), m):
		return bad("the file is not a WebAssembly module: it does not start with \\0asm")
	case len(m) < 8:
		return bad("the module is cut short: it ends inside its header")
	}
	version := uint32(m[4]) | uint32(m[5])<<8 | uint32(m[6])<<16 | uint32(m[7])<<24
	switch {
	case version == 1:
		return nil
	case version>>16 == 1:
		return &ModuleError{Kind: ErrComponent,
			Sentence: "the file is a WebAssembly component (WASI preview 2 or later); only " +
				"modules for WASI preview 1 can run"}
	}
	return bad("the module has WebAssembly version %d; only version 1 is known", version)
}

// scan collects Info section by section.
type scan struct {
	lim   Limits
	info  Info
	types []signature
	// functions in the function section
	declared uint32
	// the indexes of their types, encoded
	functions []byte
	// index of the exported function _start
	start    uint32
	locals   uint64
	elements uint64
}

type signature struct{ params, results string }

func (s *scan) sections(b []byte) error {
	r := reader{b: b}
	var last byte
	var bodies uint32
	for len(r.b) > 0 {
		id := r.u8()
		if int(id) >= len(sectionNames) {
			return bad("the module has a section of unknown kind %d", id)
		}
		body := r.take(r.u32())
		if r.short {
			return bad("the module is cut short: it ends inside its %s section", sectionNames[id])
		}
		if id != 0 {
			if sectionOrder[id] <= last {
				return bad("the %s section stands twice, or in the wrong place", sectionNames[id])
			}
			last = sectionOrder[id]
		}
		if id == 10 {
			bodies = (&reader{b: body}).u32()
		}
		if err := s.section(id, &reader{b: body}); err != nil {
			return err
		}
	}
	if bodies != s.declared {
		return bad("the module declares %d functions and holds %d", s.declared, bodies)
	}
	return nil
}

func (s *scan) section(id byte, r *reader) error {
	var err error
	switch id {
	case 0:
		s.custom(r)
		// a broken custom section has no meaning, and is no fault
		return nil
	case 1:
		err = s.typeSection(r)
	case 2:
		err = s.importSection(r)
	case 3:
		s.declared, err = r.count("functions", uint32(s.lim.Functions))
		s.info.Functions, s.functions = int(s.declared), r.b
	case 4:
		err = s.tableSection(r)
	case 5:
		err = s.memorySection(r)
	case 6:
		_, err = r.count("globals", maxGlobals)
	case 7:
		err = s.exportSection(r)
	case 8:
		s.info.Starts = true
	case 9:
		_, err = r.count("element segments", maxSegments)
	case 10:
		err = s.codeSection(r)
	case 11:
		_, err = r.count("data segments", maxSegments)
	}
	if err == nil && r.short {
		return bad("the %s section is malformed", sectionNames[id])
	}
	return err
}

func errorfLimit(sentence string, args ...any) error {
	return &ModuleError{Kind: ErrTooLarge, Sentence: fmt.Sprintf(sentence, args...)}
}
