package api

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"sync"

	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/stdio"
	"github.com/jail-sandbox/jail/supervisor/wire"
)

// detach starts a run that goes on by itself, by its id: asked for twice in the same words it is
// one run.
func (srv *Server) detach(q call) (any, error) {
	var req message.DetachRequest
	done, err := readNamed(srv.s, q, &req, &req.ID)
	if err != nil {
		return nil, err
	}
	defer done()
	if req.Session != "" {
		if req.Session, err = srv.s.Names().Named(q.caller, req.Session); err != nil {
			return nil, err
		}
	}
	return srv.s.Detached().Start(q.Context(), q.caller, req)
}

func (srv *Server) attach(w http.ResponseWriter, r *http.Request) {
	var req AttachRequest
	srv.streamed(w, r, &req, func(ctx context.Context, c caller.Caller,
		s stdio.Streams) message.Result {
		id, err := srv.s.Names().Named(c, r.PathValue("id"))
		if err != nil {
			return failedResult(r.PathValue("id"), err)
		}
		return srv.s.Detached().Attach(ctx, c, id, s)
	})
}

// AttachRequest is the body of a request to attach. There is nothing to say in it so far.
type AttachRequest struct{}

// framesType is the media type of frames that are no switched connection.
const framesType = "application/vnd.jail.frames"

// logs sends what a detached run wrote as frames, with ?follow=1 until its end. After the last
// comes the result, if there is one.
func (srv *Server) logs(w http.ResponseWriter, r *http.Request) {
	caller, err := callerOf(r.Context())
	if err != nil {
		writeProblem(w, problem.From(err))
		return
	}
	id, err := srv.s.Names().Named(caller, r.PathValue("id"))
	if err != nil {
		refuse(w, srv.s, caller, err)
		return
	}
	var mu sync.Mutex
	out := &flushed{w: w, c: http.NewResponseController(w)}
	res, err := srv.s.Detached().Follow(r.Context(), caller, id, r.URL.Query().Get("follow") == "1",
		frameWriter{&mu, out, wire.FrameOutput}, frameWriter{&mu, out, wire.FrameErrorOutput})
	switch {
	case err != nil && !out.begun:
		refuse(w, srv.s, caller, err)
		return
	case err != nil:
		// The client is gone, or sees that there is no result.
		return
	}
	out.begin()
	if res != nil {
		if text, err := json.Marshal(srv.s.Names().Result(caller, *res)); err == nil {
			// A client that is gone needs none.
			_, _ = frameWriter{&mu, out, wire.FrameResult}.Write(text)
		}
		return
	}
	// All there is so far.
	_, _ = frameWriter{&mu, out, wire.FrameInputEnd}.Write(nil)
}

// flushed sends what is written at once.
type flushed struct {
	w     http.ResponseWriter
	c     *http.ResponseController
	begun bool
}

func (f *flushed) begin() {
	if !f.begun {
		f.begun = true
		f.w.Header().Set("Content-Type", framesType)
		f.w.WriteHeader(http.StatusOK)
	}
}

func (f *flushed) Write(p []byte) (int, error) {
	f.begin()
	n, err := f.w.Write(p)
	if err == nil {
		err = f.c.Flush()
	}
	return n, err
}

// Detach starts a run that goes on without this client, and returns once its tool runs. The request
// must have an id; a run of it that was asked for in the same words is returned as it is.
func (c *Client) Detach(ctx context.Context,
	req message.DetachRequest) (d message.DetachedInfo, err error) {
	return d, c.link.do(ctx, "PUT", item(PathRuns, req.ID), req, &d)
}

// Wait waits for the end of a run.
func (c *Client) Wait(ctx context.Context, id string) (r message.Result, err error) {
	return r, c.link.do(ctx, "GET", item(PathRuns, id)+"/result", nil, &r)
}

// Attach carries the streams of a detached run, from what it wrote first, until its end. When ctx
// ends the run goes on.
func (c *Client) Attach(ctx context.Context, id string, in io.Reader, out,
	errOut io.Writer) (message.Result, error) {
	return c.link.streamed(ctx, item(PathRuns, id)+"/attach", AttachRequest{}, in, out, errOut, nil)
}

// Logs writes what a detached run wrote, with follow until its end. The result is nil while it
// runs.
func (c *Client) Logs(ctx context.Context, id string, follow bool, out,
	errOut io.Writer) (*message.Result, error) {
	query := url.Values{}
	if follow {
		query.Set("follow", "1")
	}
	answer, err := c.link.open(ctx, "GET", item(PathRuns, id)+"/logs?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	defer answer.Close()
	s := &runStream{credit: make(chan struct{}, 1)}
	res, err := s.logs(bufio.NewReaderSize(answer, 128<<10), out, errOut)
	if err != nil {
		err = c.link.explain(err)
	}
	return res, err
}
