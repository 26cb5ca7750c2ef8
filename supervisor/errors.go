package supervisor

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/runners"
)

// Exit codes of the commands, besides the tool's own.
const (
	ExitTime     = 124 // ended by a time limit
	ExitFailed   = 125 // jail itself failed
	ExitRefused  = 126 // refused by policy, or a layer cannot be enforced here
	ExitNotFound = 127 // no such tool, profile, run or file
	ExitUsage    = 2
	exitSignal   = 128 // and the number of the signal
)

// Codes of errors.
const (
	CodeFailed   = "failed"
	CodeRefused  = "refused"
	CodeLayer    = "layer"
	CodeNotFound = "not_found"
	CodeUsage    = "usage"
	CodeConflict = "conflict"
	CodeBusy     = "busy"
	CodeEnding   = "ending" // the daemon ends, and nothing was begun: ask the next one
)

// An Error is a failure or a refusal of jail's own, never of a tool. Message says what, which and why, in one sentence; Hint what to do.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
	// Conflicts are both sides of what changed on both, for a commit or revert that was refused for it.
	Conflicts []workspace.Conflict `json:"conflicts,omitempty"`
	Denied    []runners.Denial     `json:"-"`
	Err       error                `json:"-"`
}

func (e *Error) Error() string { return e.Message }
func (e *Error) Unwrap() error { return e.Err }

// Exit returns the exit code that the command line gives for the error.
func (e *Error) Exit() int {
	switch e.Code {
	case CodeRefused, CodeLayer, CodeConflict:
		return ExitRefused
	case CodeNotFound:
		return ExitNotFound
	case CodeUsage:
		return ExitUsage
	}
	return ExitFailed
}

// AsError returns err as an *Error; what is none yet is a failure.
func AsError(err error) *Error {
	if errors.Is(err, syscall.EMFILE) { // wherever it was met, another time it goes well
		return &Error{Code: CodeBusy, Message: "jaild is busy: it has as many files open as it may", Hint: "try again when other runs have ended", Err: err}
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return failed(err, "", "%v", err)
}

func refused(denied []runners.Denial, hint, format string, args ...any) *Error {
	return &Error{Code: CodeRefused, Message: fmt.Sprintf(format, args...), Hint: hint, Denied: denied}
}

// missingLayer says that a layer of the stack cannot be enforced on this host. fix is what to do about it, where that is known.
func missingLayer(layer, why, fix string, err error) *Error {
	hint := "jail doctor says what this host can enforce"
	if fix != "" {
		hint = fix + "; " + hint
	}
	return &Error{Code: CodeLayer, Err: err, Hint: hint, Message: fmt.Sprintf("layer %s cannot be set up here: %s", layer, why)}
}

func notFound(hint, format string, args ...any) *Error {
	return &Error{Code: CodeNotFound, Message: fmt.Sprintf(format, args...), Hint: hint}
}

func usage(format string, args ...any) *Error {
	return &Error{Code: CodeUsage, Message: fmt.Sprintf(format, args...)}
}

// isShort says that the host had not enough of something for a moment.
func isShort(err error) bool {
	return slices.ContainsFunc([]error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EAGAIN, syscall.ENOBUFS},
		func(e error) bool { return errors.Is(err, e) })
}

// hintOf says what to do about a failure of which nothing more is known than what the kernel said.
func hintOf(err error) string {
	is := func(all ...error) bool {
		return slices.ContainsFunc(all, func(e error) bool { return errors.Is(err, e) })
	}
	switch {
	case is(syscall.ENOSPC, syscall.EDQUOT):
		return "make room on the disk of jail's state directory"
	case isShort(err):
		return "the host is short of descriptors, processes or memory: try again, or run less at one time"
	case is(syscall.EIO, syscall.EROFS):
		return "look at the disk of jail's state directory, and at the kernel's log"
	}
	return "jail doctor says what this host can enforce; if that is all there, this is a fault of jail's own"
}

func failed(err error, hint, format string, args ...any) *Error {
	if hint == "" {
		hint = hintOf(err)
	}
	return &Error{Code: CodeFailed, Message: fmt.Sprintf(format, args...), Hint: hint, Err: err}
}
