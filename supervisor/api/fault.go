package api

import (
	"fmt"
	"net/http"
	"runtime/debug"

	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// fault logs the panic p of jail's own code with its stack and returns the error to answer. Other
// requests continue.
func (srv *Server) fault(p any) *problem.Error {
	srv.log.Failed("fault of jail's own", "", fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
	return problem.New(problem.Failed, "a fault of jail's own: %v", p).
		WithHint("report it, with what the daemon's log says of it")
}

// answered calls h and converts a panic to an error.
func (srv *Server) answered(h handler, q call) (v any, err error) {
	defer func() {
		if p := recover(); p != nil {
			v, err = nil, srv.fault(p)
		}
	}()
	return h(q)
}

// resulting calls do and converts a panic to a result.
func (srv *Server) resulting(do func() message.Result) (res message.Result) {
	defer func() {
		if p := recover(); p != nil {
			res = failedResult("", srv.fault(p))
		}
	}()
	return do()
}

// faulted wraps a handler: after a panic it closes the connection, since part of an answer may have
// been sent.
func (srv *Server) faulted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			switch p := recover(); p {
			case nil:
			case http.ErrAbortHandler:
				panic(p)
			default:
				srv.fault(p)
				panic(http.ErrAbortHandler)
			}
		}()
		next.ServeHTTP(w, r)
	})
}
