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
)

// A cutError is the end of a connection in the middle of a run's streams.
type cutError struct{ err error }

func (e *cutError) Error() string {
	if broken(e.err) {
		return "the daemon went away before the run ended"
	}
	return fmt.Sprintf("the daemon went away before the run ended: %v", e.err)
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
	var at *url.Error
	if errors.As(err, &at) {
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
		e.Message, e.Hint = cut.Error(),
			"it has died or was killed; the next one puts on record what became of the run: jail inspect ID"
	case errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist):
		e.Message, e.Hint = "the daemon is gone: nobody listens on its socket any more",
			"start jaild and try again"
	case broken(err):
		e.Message, e.Hint = "the daemon went away before it answered",
			"it was ended, has died, or has more connections than it takes: look whether jaild runs, and try again"
	case strings.Contains(err.Error(), "readLoopPeekFail"): // has no name either
		e.Message, e.Hint = "no answer of the daemon, but something before it was asked",
			"look whether what listens on the socket is jaild"
	default:
		e.Message, e.Hint = fmt.Sprintf("no answer of the daemon: %v", plain(err)),
			"look whether what listens on the socket is jaild, and of this version"
	}
	return e
}
