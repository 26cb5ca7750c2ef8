// Package wasi is the host half of the runner for WebAssembly modules with WASI preview 1. It is
// pure: it reads the bytes of an untrusted module, says in one sentence what is wrong with it, and
// derives what the guest half needs, so that a bad module is refused before any engine sees it.
package wasi

import (
	"errors"
	"fmt"

	"github.com/jail-sandbox/jail/runners"
)

// MaxModuleBytes is the largest module that is accepted, in bytes.
const MaxModuleBytes = 64 << 20

// PageSize is the unit of linear memory, in bytes; MaxMemory is all that a module can address.
const (
	PageSize  = 64 << 10
	MaxMemory = 4 << 30
)

// Bounds on the declarations of a module. They are the limits of web browsers, lowered where no
// compiler comes near them; the jail that compiles bounds modules within them again.
const (
	maxTypes = 100_000
	// Parameters, and results, of one type.
	maxParams        = 1000
	maxImports       = 10_000
	MaxFunctions     = 200_000
	MaxLocals        = 20_000 // of one function
	maxTotalLocals   = 8_000_000
	MaxFunctionBytes = 7_654_321
	maxGlobals       = 100_000
	maxExports       = 100_000
	maxTables        = 100
	// Initial, of all tables together.
	MaxTableElements = 10_000_000
	// Element segments, and data segments.
	maxSegments = 100_000
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
	// One of the errors above.
	Kind error
	// For people, without a full stop.
	Sentence string
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

// Exit codes of a tool that did not end by itself. All are those of a Unix
// program ended by the matching signal.
const (
	// ExitTrap is that of every trap (as SIGABRT).
	ExitTrap = 134
	// ExitPipe is that of a tool whose output nobody reads (as SIGPIPE).
	ExitPipe = 141
)

// Classes of runners.Trap.
const (
	TrapUnreachable = "unreachable"
	TrapMemory      = "memory" // access outside linear memory
	TrapStack       = "stack"  // too many nested calls
	TrapArithmetic  = "arithmetic"
	TrapTable       = "table"     // bad indirect call
	TrapException   = "exception" // uncaught
	TrapOther       = "other"
)
