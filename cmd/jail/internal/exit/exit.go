// Package exit makes the errors that end commands, with a message, a hint, and a code that
// determines the exit code.
package exit

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"

	"github.com/jail-sandbox/jail/supervisor/problem"
)

// Cause calls problem.Cause.
func Cause(err error) error { return problem.Cause(err) }

// A Code is an error that ends the program with an exit code and prints nothing: the exit code of a
// tool, or of a check whose result was printed.
type Code int

func (c Code) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// No is the exit code of a check that failed.
const No Code = 1

// Describe returns err as a problem.Error. Errors about files get the code not_found, usage or
// refused.
func Describe(err error) *problem.Error {
	if known, ok := errors.AsType[*problem.Error](err); ok {
		return known
	}
	e := problem.From(err)
	is := func(target error) bool { return errors.Is(err, target) }
	switch {
	case slices.ContainsFunc([]error{fs.ErrNotExist, syscall.ENOTDIR, syscall.ELOOP,
		syscall.ENAMETOOLONG}, is):
		// The caller named the file, so the hint about jail's own files is wrong.
		e.Code, e.Hint = problem.NotFound, ""
	case is(syscall.EISDIR):
		e.Code, e.Hint = problem.Usage, "name a file in it"
	case is(fs.ErrPermission):
		e.Code = problem.Refused
	case is(syscall.ENOSPC), is(syscall.EDQUOT):
		e.Hint = "make room on the disk of the file"
	}
	return e
}

// About returns err, described, with the formatted text, such as a file's name, before its message.
func About(err error, format string, args ...any) *problem.Error {
	e := Describe(err)
	e.Message = fmt.Sprintf(format, args...) + ": " + Cause(err).Error()
	return e
}

// Usage returns an error about a wrong command line.
func Usage(hint, format string, args ...any) error {
	return &problem.Error{Code: problem.Usage, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// NotFound returns an error about something that does not exist.
func NotFound(hint, format string, args ...any) error {
	return &problem.Error{Code: problem.NotFound, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// Failed returns an error with the cause err that neither the user nor a policy caused.
func Failed(err error, hint, format string, args ...any) error {
	return &problem.Error{Code: problem.Failed, Message: fmt.Sprintf(format, args...), Hint: hint,
		Err: err}
}
