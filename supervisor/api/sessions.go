package api

import (
	"context"
	"io"
	"net/http"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/service"
	"github.com/jail-sandbox/jail/supervisor/stdio"
	"github.com/jail-sandbox/jail/supervisor/wire"
)

const pathSessions = wire.PathSessions

// startSession opens a session with the id in the path. Repeating the same request returns the same
// session.
func (srv *Server) startSession(q call) (any, error) {
	var req message.SessionRequest
	done, err := readNamed(srv.s, q, &req, &req.ID)
	if err != nil {
		return nil, err
	}
	defer done()
	return srv.s.Sessions().Start(q.Context(), q.caller, req)
}

// readNamed decodes a request and sets id to the id in the path, which the body may repeat. The id
// is reserved until done is called.
func readNamed(s *service.Service, q call, req any, id *string) (done func(), err error) {
	if err := readJSON(q.Request, req); err != nil {
		return nil, err
	}
	if *id != "" && *id != q.id {
		return nil, problem.New(problem.Usage, "the id in the body is not the one in the path")
	}
	*id, done, err = s.Names().Take(q.caller, q.id)
	return done, err
}

func (srv *Server) exec(w http.ResponseWriter, r *http.Request) {
	var req message.ExecRequest
	srv.streamed(w, r, &req, func(ctx context.Context, c caller.Caller,
		s stdio.Streams) message.Result {
		session, err := srv.s.Names().Named(c, r.PathValue("id"))
		if err != nil {
			return failedResult(req.ID, err)
		}
		id, done, err := srv.s.Names().Take(c, req.ID)
		if err != nil {
			return failedResult(req.ID, err)
		}
		defer done()
		req.ID = id
		return srv.s.Sessions().Exec(ctx, c, session, req, s)
	})
}

// StartSession opens a session and returns when it can have invocations. The request must have an
// id. Repeating the same request returns the open session.
func (c *Client) StartSession(ctx context.Context,
	req message.SessionRequest) (s message.SessionInfo, err error) {
	return s, c.link.do(ctx, "PUT", item(pathSessions, req.ID), req, &s)
}

// Sessions returns the open and sleeping sessions.
func (c *Client) Sessions(ctx context.Context) (all []message.SessionInfo, err error) {
	return all, c.link.do(ctx, "GET", pathSessions, nil, &all)
}

// Exec runs a tool in a session, with the streams of RunSized.
func (c *Client) Exec(ctx context.Context, session string, req message.ExecRequest, in io.Reader,
	out, errOut io.Writer, sizes <-chan runners.Terminal) (message.Result, error) {
	return c.link.streamed(ctx, item(pathSessions, session)+"/exec"+streamQuery(in, out, errOut), req,
		in, out, errOut, sizes)
}

// StopSession ends a session and returns its result: the usage and changes of all its invocations.
func (c *Client) StopSession(ctx context.Context, id string,
	req message.StopRequest) (r message.Result, err error) {
	return r, c.link.do(ctx, "POST", item(pathSessions, id)+"/stop", req, &r)
}
