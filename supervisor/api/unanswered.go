package api

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"strings"
	"syscall"

	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/wire"
)

// A cutError is the end of a connection in the middle of a run's streams.
type cutError struct{ err error }

func (e *cutError) Error() string {
	if broken(e.err) {
		return wire.Cut
	}
	return fmt.Sprintf(wire.Cut+": %v", e.err)
}

func (e *cutError) Unwrap() error { return e.err }

// broken reports whether an error says nothing but that the other end is gone.
func broken(err error) bool {
	for _, e := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, e) {
			return true
		}
	}
	// Has no name in net/http.
	return strings.Contains(err.Error(), "server closed idle connection")
}

// plain strips what net/http says of the request, which is not the user's.
func plain(err error) error {
	if at, ok := errors.AsType[*url.Error](err); ok {
		return at.Err
	}
	return err
}

// unanswered says in one sentence that a daemon for all gave no answer, or not all of one.
func unanswered(err error) error {
	e := &problem.Error{Code: problem.Failed, Err: err}
	var cut *cutError
	switch {
	case errors.As(err, &cut):
		e.Message, e.Hint = cut.Error(), wire.CutHint
	case errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist):
		e.Message, e.Hint = wire.Gone, wire.GoneHint
	case broken(err):
		e.Message, e.Hint = wire.NoAnswer, wire.NoAnswerHint
	case strings.Contains(err.Error(), "readLoopPeekFail"): // has no name either
		e.Message, e.Hint = "no answer of the daemon, but something before it was asked",
			"look whether what listens on the socket is jaild"
	default:
		e.Message, e.Hint = fmt.Sprintf(wire.NoSense+": %v", plain(err)),
			wire.NoSenseHint
	}
	return e
}
