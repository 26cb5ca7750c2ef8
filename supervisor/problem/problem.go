// Package problem defines the error that callers of jaild get: a code, a sentence that says what
// failed and why, and a hint what to do. The code determines the exit code of the command line. A
// tool's own failure is not a problem but the result of a run.
package problem

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"

	"github.com/jail-sandbox/jail/jail/launch"
	"github.com/jail-sandbox/jail/jail/probe"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/wire"
)

// Exit codes of the commands, besides the tool's own.
const (
	// ExitTime: a time limit ended the run.
	ExitTime = 124
	// ExitFailed: jail itself failed.
	ExitFailed = 125
	// ExitRefused: the policy refused the run, or a layer cannot be enforced here.
	ExitRefused = 126
	// ExitNotFound: there is no such tool, profile, run or file.
	ExitNotFound = 127
	ExitUsage    = 2
	// ExitSignal plus the number of the signal that ended the tool.
	ExitSignal = 128
)

// Codes of errors.
const (
	Failed   = "failed"
	Refused  = "refused"
	Layer    = "layer"
	NotFound = "not_found"
	Usage    = "usage"
	Conflict = "conflict"
	Busy     = "busy"
	// ApprovalPending: an action waits until somebody approves it.
	ApprovalPending = "approval_pending"
	// Ending: the daemon ends and has begun nothing. The client asks the next daemon.
	Ending = wire.CodeEnding
)

// An Error is a failure or a refusal of jail's own, never of a tool. Message says in one sentence
// what failed, on what and why; Hint says what to do.
type Error struct {
	// A code for programs. With ending, the daemon is ending and has begun nothing: send the same
	// request to the next one.
	Code string `json:"code"`
	// What failed, on what and why, in one sentence.
	Message string `json:"message"`
	// What to do about it.
	Hint string `json:"hint,omitempty"`
	// With approval_pending, the id of the action that waits.
	Approval string `json:"approval,omitempty"`
	// The paths that a refused commit or revert found changed on both sides, at most 1,000.
	Conflicts []workspace.Conflict `json:"conflicts,omitempty"`
	Denied    []runners.Denial     `json:"-"`
	Err       error                `json:"-"`
}

// New returns an Error with a message formatted as by fmt.Errorf. %w names the cause, for errors.Is
// and errors.As. With the code Failed, the hint follows from the cause.
func New(code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	e := &Error{Code: code, Message: err.Error(), Err: errors.Unwrap(err)}
	if code == Failed {
		e.Hint = hintOf(e.Err)
	}
	return e
}

// WithCause sets the cause of an error whose message does not include the cause's text. Call it
// before WithHint, since it may set the hint.
func (e *Error) WithCause(err error) *Error {
	e.Err = err
	if e.Code == Failed {
		e.Hint = hintOf(err)
	}
	return e
}

// WithHint sets the hint what to do about the error. An empty hint changes nothing.
func (e *Error) WithHint(hint string) *Error {
	if hint != "" {
		e.Hint = hint
	}
	return e
}

// WithDenied sets the denied access, and the layer and rule that denied it.
func (e *Error) WithDenied(layer, what, rule string) *Error {
	e.Denied = []runners.Denial{{Layer: layer, What: what, Rule: rule, Count: 1}}
	return e
}

func (e *Error) Error() string { return e.Message }
func (e *Error) Unwrap() error { return e.Err }

// Exit returns the exit code that the command line gives for the error.
func (e *Error) Exit() int {
	switch e.Code {
	case Refused, Layer, Conflict, ApprovalPending:
		return ExitRefused
	case NotFound:
		return ExitNotFound
	case Usage:
		return ExitUsage
	}
	return ExitFailed
}

// From returns err as an *Error. An error that is none becomes one with the code Failed, or Busy if
// the host is short of resources.
func From(err error) *Error {
	if e := Short(err); e != nil {
		return e
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return New(Failed, "%w", err)
}

// MissingLayer returns the error for a layer of the sandbox that this host cannot enforce. fix is
// the hint what to do, or "".
func MissingLayer(layer, why, fix string, err error) *Error {
	hint := "jail doctor says what this host can enforce"
	if fix != "" {
		hint = fix + "; " + hint
	}
	return New(Layer, "layer %s cannot be set up here: %s", layer, why).
		WithCause(err).WithHint(hint)
}

// Missing returns the error for a feature that a probe did not find on this host, and nil if the
// probe found the feature or could not tell.
func Missing(f probe.Finding, err error) *Error {
	if f.Answer != probe.No {
		return nil
	}
	return MissingLayer(f.Name, f.Detail, f.Fix, err)
}

// IsShort reports whether err means a temporary shortage of descriptors, processes or memory.
func IsShort(err error) bool {
	return slices.ContainsFunc([]error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM,
		syscall.EAGAIN, syscall.ENOBUFS},
		func(e error) bool { return errors.Is(err, e) })
}

// ErrProcesses says that no more processes or threads can be started.
var ErrProcesses = errors.New("no more processes or threads can be started")

// Short returns the error for a request that jaild cannot take because it or the host has no more
// descriptors, processes or memory for the moment, and nil if err is about something else. The same
// request may succeed later.
func Short(err error) *Error {
	busy := func(what, more string) *Error {
		return New(Busy, "jaild is busy: %s", what).WithCause(err).
			WithHint("try again when other runs have ended, or " + more)
	}
	switch {
	case errors.Is(err, syscall.EMFILE):
		return busy("it has as many files open as it may",
			"let it have more: LimitNOFILE= of its unit, ulimit -n")
	case errors.Is(err, syscall.ENFILE):
		return busy("the host has as many files open as it may",
			"let it have more: sysctl fs.file-max")
	case errors.Is(err, ErrProcesses), isFork(err) && errors.Is(err, syscall.EAGAIN):
		return busy("there are as many processes as there may be, of it or of the host",
			"let it have more: TasksMax= of its unit, pids.max of its control group, ulimit -u, "+
				"sysctl kernel.pid_max")
	case errors.Is(err, syscall.ENOMEM):
		return busy(fmt.Sprintf("the host has no memory left (%v)", err), "run less at one time")
	}
	return nil
}

// Cause returns the errno in err without operation and path, or err if it has none.
func Cause(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return err
}

// isFork reports whether err comes from starting a process, by jaild or jail-shim.
func isFork(err error) bool {
	path, layer := (*fs.PathError)(nil), (*launch.LayerError)(nil)
	return errors.As(err, &path) && path.Op == "fork/exec" || errors.As(err, &layer)
}

// hintOf returns a hint for a failure with only the kernel's error err.
func hintOf(err error) string {
	is := func(all ...error) bool {
		return slices.ContainsFunc(all, func(e error) bool { return errors.Is(err, e) })
	}
	switch {
	case is(syscall.ENOSPC, syscall.EDQUOT):
		return "make room on the disk of jail's state directory"
	case IsShort(err):
		return "the host is short of descriptors, processes or memory: try again, or run less at " +
			"one time"
	case is(syscall.EIO, syscall.EROFS, syscall.EUCLEAN, syscall.EBADMSG):
		return "look at the disk of jail's state directory, and at the kernel's log"
	case is(syscall.EACCES, syscall.EPERM):
		return "look at the rights of what is named, whether its file system is mounted noexec or " +
			"read-only, and whether a security module forbids it"
	case is(syscall.ENOENT, syscall.ENOTDIR, syscall.EISDIR, syscall.ELOOP, syscall.ENAMETOOLONG):
		return "look at the path that is named; if it is one of jail's own files, install jail anew"
	}
	return "jail doctor says what this host can enforce; if that is all there, this is a fault of " +
		"jail's own"
}

// Describe returns the text of an error, without the operation of an fs.PathError.
func Describe(err error) string {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Sprintf("%s: %v", path.Path, path.Err)
	}
	return err.Error()
}
