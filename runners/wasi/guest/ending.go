package guest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/wasi"
	wazerosys "github.com/tetratelabs/wazero/sys"
)

// ending turns the engine's result into an exit code, a trap, or an error that is not the tool's.
// It drops the engine's stack trace, which can be long and does not help the tool's user.
func ending(err error) (int, *runners.Trap, error) {
	if err == nil {
		return 0, nil, nil
	}
	if exit, ok := errors.AsType[*wazerosys.ExitError](err); ok {
		return int(exit.ExitCode()), nil, nil
	}
	if errors.Is(err, errStart) {
		return 0, nil, &wasi.ModuleError{Kind: wasi.ErrNoCommand,
			Sentence: "the module's _start takes parameters"}
	}
	if errors.Is(err, errEngine) {
		return 0, nil, firstLine(err)
	}
	text, ok := trapText(err)
	if !ok {
		return 0, nil, fmt.Errorf("%w: %w", errEngine, firstLine(err))
	}
	class, sentence := trapOf(text)
	return wasi.ExitTrap, &runners.Trap{Class: class, Sentence: sentence}, nil
}

// trapText finds the engine's own name of a trap. Its type is internal to the
// engine, so its text is all there is; TestTraps pins each one.
func trapText(err error) (string, bool) {
	_, rest, ok := strings.Cut(err.Error(), "wasm error: ")
	switch {
	case ok:
	case strings.Contains(err.Error(), "stack overflow"):
		// Comes without its stack, for good reason.
		return "stack overflow", true
	default:
		// Active segments are checked while instantiating, in other words.
		if strings.Contains(err.Error(), "out of bounds") {
			return "out of bounds memory access", true
		}
		return "", false
	}
	text, _, _ := strings.Cut(rest, "\n")
	return text, true
}

func trapOf(text string) (class, sentence string) {
	switch text {
	case "unreachable":
		return wasi.TrapUnreachable, "the module stopped itself (unreachable)"
	case "out of bounds memory access":
		return wasi.TrapMemory, "the module used memory that it does not have"
	case "stack overflow":
		return wasi.TrapStack, "the module nested its calls too deeply"
	case "integer overflow", "integer divide by zero", "invalid conversion to integer":
		return wasi.TrapArithmetic, "the module made an arithmetic error (" + text + ")"
	case "invalid table access", "indirect call type mismatch", "null reference":
		return wasi.TrapTable, "the module called through a bad function pointer (" + text + ")"
	case "uncaught exception":
		return wasi.TrapException, "the module threw an exception that nothing caught"
	}
	return wasi.TrapOther, "the module was stopped (" + runners.Printable(text, 80) + ")"
}

// firstLine drops the stack traces of the engine and of Go.
func firstLine(err error) error {
	text := err.Error()
	line, _, more := strings.Cut(text, "\n")
	if !more {
		return err
	}
	if errors.Is(err, errEngine) {
		return fmt.Errorf("%w: %s", errEngine, strings.TrimPrefix(line, errEngine.Error()+": "))
	}
	return errors.New(line)
}

// compileError names the faults that only the engine finds.
func compileError(err error) error {
	text, _, _ := strings.Cut(err.Error(), "\n")
	switch {
	case strings.Contains(text, "compilationcache:"):
		return fmt.Errorf("%w: %s", errCacheDamaged, text)
	case strings.Contains(text, "read-only file system"), strings.Contains(text,
		"permission denied"):
		// It compiled, because there was no entry for this machine, and could not keep the result.
		return errNotCompiled
	}
	return &wasi.ModuleError{Kind: wasi.ErrModule, Sentence: "the module is invalid: " +
		runners.Printable(text, 300)}
}
