package console

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"slices"
	"syscall"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// A notice is the body of a page that says why something is not shown or not done.
type notice struct {
	Title, Text, Hint string
	Conflicts         []conflict
	// Link to the page to go to next, and its text.
	Next, NextText string
}

type conflict struct{ Path, Why, Real, Shadow string }

// nobody is the session of a visitor who is not logged in.
var nobody *session

// said returns the answer with a notice. s may be nil.
func (s *session) said(status int, p notice) answer {
	shown := page{Title: p.Title, Body: p}
	if s != nil {
		shown = s.page(p.Title, "", p)
	}
	return answer{status, "problem.html", shown}
}

// undone returns the answer to an incomplete form. why says what is missing, next is the path of
// the page that nextText names.
func (s *session) undone(why, next, nextText string) (answer, error) {
	return s.said(http.StatusBadRequest, notice{Title: "Nothing was done", Text: why, Next: next,
		NextText: nextText}), nil
}

// retry is after how many seconds a page reloads while the daemon does not answer.
const retry = 5

// failed returns the answer for an error. After a POST it says whether nothing was done or that
// this is not known.
func (s *session) failed(r *http.Request, err error) answer {
	status, p, again := explain(err, r.Method == http.MethodPost)
	if id := r.PathValue("id"); id != "" && status == http.StatusConflict {
		p.Next, p.NextText = s.runPath(id)+"/review", "Review what there is now"
	}
	a := s.said(status, p)
	a.page.Again = again
	return a
}

// lostAnswer reports whether err means that a request was sent but its answer was lost.
func lostAnswer(err error) bool {
	return slices.ContainsFunc([]error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET,
		syscall.EPIPE}, func(e error) bool { return errors.Is(err, e) })
}

func explain(err error, acts bool) (status int, p notice, again int) {
	var known *problem.Error
	var op *net.OpError
	nobody := errors.As(err, &op) && op.Op == "dial"
	if errors.As(err, &known) && known.Err != nil && known.Code == problem.Failed && !nobody &&
		lostAnswer(known.Err) {
		err, known = known.Err, nil
	}
	if known != nil && !nobody {
		status := api.Status(known.Code)
		p := notice{Title: http.StatusText(status), Text: known.Message, Hint: known.Hint}
		if acts && status == http.StatusConflict {
			p.Title = "Nothing was done"
		}
		for _, k := range known.Conflicts {
			p.Conflicts = append(p.Conflicts,
				conflict{path(k.Path), k.Why, side(k.Real), side(k.Shadow)})
		}
		return status, p, 0
	}
	switch {
	case nobody:
		p := notice{Title: "The daemon does not answer",
			Text: "Nobody answers on the socket of jaild: " + op.Err.Error() + ".",
			Hint: "It may be restarting: this page asks again every few seconds."}
		if acts {
			p.Text, p.Hint = p.Text+" Nothing was done.",
				"When it answers again, open the page again and repeat it."
			return http.StatusServiceUnavailable, p, 0
		}
		return http.StatusServiceUnavailable, p, retry
	case errors.Is(err, fs.ErrPermission):
		return http.StatusForbidden, notice{Title: "Not yours to read", Text: err.Error(),
			Hint: "The console sees what the user who started it may see."}, 0
	case acts:
		return http.StatusBadGateway, notice{Title: "The daemon went away",
			Text: "It ended before it answered, so it is not known whether this was done: " +
				err.Error(),
			Hint: "The page of the run says what is on record. A commit that was cut off is " +
				"finished or undone when the daemon starts again."}, 0
	}
	return http.StatusBadGateway, notice{Title: "The daemon did not answer to the end",
		Text: err.Error(), Hint: "This page asks again every few seconds."}, retry
}

// side returns a description of one side of a conflict.
func side(n *workspace.Node) string {
	if n == nil {
		return "nothing"
	}
	return node(n)
}
