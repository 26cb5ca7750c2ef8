package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"github.com/jail-sandbox/jail/supervisor"
)

// A code is an exit code that needs no words: the tool's own, or a "no" that was printed already.
type code int

func (c code) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// exitNo is the code of a check that found something wrong.
const exitNo code = 1

// exit turns the end of a command into words and an exit code. Nothing else does.
func (a *app) exit(err error) int {
	var known *supervisor.Error
	var c code
	switch {
	case err == nil:
		return 0
	case errors.As(err, &c) && !errors.As(err, &known):
		return int(c)
	}
	e := describe(err)
	a.complain(e)
	return e.Exit()
}

// describe makes an error of jail's out of any.
func describe(err error) *supervisor.Error {
	var known *supervisor.Error
	if errors.As(err, &known) {
		return known
	}
	e := supervisor.AsError(err)
	is := func(target error) bool { return errors.Is(err, target) }
	switch {
	case slices.ContainsFunc([]error{fs.ErrNotExist, syscall.ENOTDIR, syscall.ELOOP, syscall.ENAMETOOLONG}, is):
		e.Code = supervisor.CodeNotFound
	case is(fs.ErrPermission):
		e.Code = supervisor.CodeRefused
	}
	return e
}

// complain says what went wrong, and what to do about it.
func (a *app) complain(e *supervisor.Error) {
	say(a.stderr, "error", e.Message)
	say(a.stderr, "hint", e.Hint)
}

// say writes lines that begin with "jail: " and what they are.
func say(w io.Writer, kind, text string) {
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		if line != "" {
			fmt.Fprintf(w, "jail: %s: %s\n", kind, printable(line)) // there is nobody left to tell that stderr is gone
		}
	}
}

func usage(hint, format string, args ...any) error {
	return &supervisor.Error{Code: supervisor.CodeUsage, Message: fmt.Sprintf(format, args...), Hint: hint}
}

func notFound(hint, format string, args ...any) error {
	return &supervisor.Error{Code: supervisor.CodeNotFound, Message: fmt.Sprintf(format, args...), Hint: hint}
}

func failed(err error, hint, format string, args ...any) error {
	return &supervisor.Error{Code: supervisor.CodeFailed, Message: fmt.Sprintf(format, args...), Hint: hint, Err: err}
}
