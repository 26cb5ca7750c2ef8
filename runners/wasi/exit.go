package wasi

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
