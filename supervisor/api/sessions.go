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

// sessions answers for the sessions of a daemon.
type sessions struct {
	s        *service.Service
	streamed streamer
}

// start opens a session by its id: asked for twice in the same words it is one session.
func (h sessions) start(ctx context.Context, c caller.Caller, r *http.Request) (any, error) {
	var req message.SessionRequest
	done, err := readNamed(h.s, c, r, &req, &req.ID)
	if err != nil {
		return nil, err
	}
	defer done()
	return h.s.Sessions().Start(ctx, c, req)
}

// readNamed reads a request. Its id is that of the path, which the body may repeat; the id is taken
// until done is called.
func readNamed(s *service.Service, c caller.Caller, r *http.Request, req any,
	id *string) (done func(), err error) {
	if err := readJSON(r, req); err != nil {
		return nil, err
	}
	if *id != "" && *id != r.PathValue("id") {
		return nil, problem.New(problem.Usage, "the id in the body is not the one in the path")
	}
	*id, done, err = s.Names().Take(c, r.PathValue("id"))
	return done, err
}

func (h sessions) list(_ context.Context, c caller.Caller, _ *http.Request) (any, error) {
	return h.s.Sessions().List(c), nil
}

func (h sessions) exec(w http.ResponseWriter, r *http.Request) {
	var req message.ExecRequest
	h.streamed(w, r, &req, func(ctx context.Context, c caller.Caller,
		s stdio.Streams) message.Result {
		session, err := h.s.Names().Named(c, r.PathValue("id"))
		if err != nil {
			return failedResult(req.ID, err)
		}
		id, done, err := h.s.Names().Take(c, req.ID)
		if err != nil {
			return failedResult(req.ID, err)
		}
		defer done()
		req.ID = id
		return h.s.Sessions().Exec(ctx, c, session, req, s)
	})
}

// StartSession opens a session and returns when it can have invocations. The request must have an
// id; one that is open already and was asked for in the same words is returned as it is.
func (c *Client) StartSession(ctx context.Context,
	req message.SessionRequest) (s message.SessionInfo, err error) {
	return s, c.link.do(ctx, "PUT", item(pathSessions, req.ID), req, &s)
}

// Sessions lists the open sessions.
func (c *Client) Sessions(ctx context.Context) (all []message.SessionInfo, err error) {
	return all, c.link.do(ctx, "GET", pathSessions, nil, &all)
}

// Exec runs a tool in a session, as RunSized does without one.
func (c *Client) Exec(ctx context.Context, session string, req message.ExecRequest, in io.Reader,
	out, errOut io.Writer, sizes <-chan runners.Terminal) (message.Result, error) {
	return c.link.streamed(ctx, item(pathSessions, session)+"/exec"+streamQuery(in, out, errOut), req,
		in, out, errOut, sizes)
}

// StopSession ends a session and returns how: what its invocations used and changed together.
func (c *Client) StopSession(ctx context.Context, id string,
	req message.StopRequest) (r message.Result, err error) {
	return r, c.link.do(ctx, "POST", item(pathSessions, id)+"/stop", req, &r)
}
