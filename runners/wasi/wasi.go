// Package wasi is the host half of the runner for WebAssembly modules that
// speak WASI preview 1. It is pure: it reads the bytes of a module that nobody
// trusts, says in one sentence what is wrong with it, and derives what the
// guest half needs, so that a bad module is refused before any engine sees it.
package wasi

import (
	"errors"
	"fmt"

	"github.com/jail-sandbox/jail/runners"
)

// MaxModuleBytes is the largest module that is accepted, in bytes.
const MaxModuleBytes = 64 << 20

// PageSize is the unit of linear memory, in bytes; MaxMemory is all that a
// module can address.
const (
	PageSize  = 64 << 10
	MaxMemory = 4 << 30
)

// Bounds on what a module may declare. They follow the limits that web browsers
// agreed on, lowered where no compiler comes near them; what lies within them
// is bounded again by the jail that compiles.
const (
	MaxTypes         = 100_000
	MaxParams        = 1000 // parameters, and results, of one type
	MaxImports       = 10_000
	MaxFunctions     = 200_000
	MaxLocals        = 20_000 // of one function
	MaxTotalLocals   = 8_000_000
	MaxFunctionBytes = 7_654_321
	MaxGlobals       = 100_000
	MaxExports       = 100_000
	MaxTables        = 100
	MaxTableElements = 10_000_000 // initial, of all tables together
	MaxSegments      = 100_000    // element segments, and data segments
)

// Errors to compare. A *ModuleError wraps one of them.
var (
	ErrModule    = errors.New("bad module")
	ErrComponent = errors.New("component, not a module")
	ErrImport    = errors.New("import not granted")
	ErrTooLarge  = errors.New("module beyond a limit")
	ErrNoCommand = errors.New("module is not a command")
)

// ModuleError says what is wrong with a module.
type ModuleError struct {
	Kind     error  // one of the errors above
	Sentence string // for people, without a full stop
	Import   string // for ErrImport: "module.name"
}

func (e *ModuleError) Error() string { return e.Sentence }
func (e *ModuleError) Unwrap() error { return e.Kind }

func bad(format string, args ...any) error {
	return &ModuleError{Kind: ErrModule, Sentence: fmt.Sprintf(format, args...)}
}

func tooLarge(what string, n, limit uint64) error {
	return &ModuleError{Kind: ErrTooLarge,
		Sentence: fmt.Sprintf("the module has %d %s, more than %d", n, what, limit)}
}

// Limits bounds one module; see runners.ModuleLimits.
type Limits = runners.ModuleLimits

func withDefaults(l Limits) Limits {
	if l.Bytes == 0 || l.Bytes > MaxModuleBytes {
		l.Bytes = MaxModuleBytes
	}
	if l.Functions == 0 || l.Functions > MaxFunctions {
		l.Functions = MaxFunctions
	}
	return l
}
