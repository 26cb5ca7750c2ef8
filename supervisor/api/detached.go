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

// detach starts a detached run with the id in the path. Repeating the same request returns the same
// run.
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

// logs sends the output of a detached run as frames, with ?follow=1 until its end. The last frame
// is the result, or FrameInputEnd if the run has not ended.
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
		// The client is gone, or sees that the result is missing.
		return
	}
	out.begin()
	if res != nil {
		if text, err := json.Marshal(srv.s.Names().Result(caller, *res)); err == nil {
			// A client that is gone needs no result.
			_, _ = frameWriter{&mu, out, wire.FrameResult}.Write(text)
		}
		return
	}
	// This is all output so far.
	_, _ = frameWriter{&mu, out, wire.FrameInputEnd}.Write(nil)
}

// flushed is a writer that flushes each write to the client.
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

// Detach starts a run that continues without this client, and returns once its tool runs. The
// request must have an id. Repeating the same request returns the same run.
func (c *Client) Detach(ctx context.Context,
	req message.DetachRequest) (d message.DetachedInfo, err error) {
	return d, c.link.do(ctx, "PUT", item(PathRuns, req.ID), req, &d)
}

// Wait waits for the end of a run and returns its result.
func (c *Client) Wait(ctx context.Context, id string) (r message.Result, err error) {
	return r, c.link.do(ctx, "GET", item(PathRuns, id)+"/result", nil, &r)
}

// Attach copies the streams of a detached run, its output from the start, until its end. The run
// continues when ctx ends.
func (c *Client) Attach(ctx context.Context, id string, in io.Reader, out,
	errOut io.Writer) (message.Result, error) {
	return c.link.streamed(ctx, item(PathRuns, id)+"/attach", AttachRequest{}, in, out, errOut, nil)
}

// Logs copies the output of a detached run to out and errOut, with follow until its end. The result
// is nil if the run has not ended.
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
