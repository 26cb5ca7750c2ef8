package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor"
)

// maxRequest bounds the body of a request in bytes: a run may bring 2 MiB of arguments and a policy file, in JSON.
const maxRequest = 16 << 20

// A Server answers for one supervisor.
type Server struct {
	s       *supervisor.Supervisor
	version Version
	http    *http.Server
	quiet   quiet
	streams sync.WaitGroup // connections that were switched to streams, of which http.Server knows nothing any more

	ending context.Context // done when no answer may wait for its client any more
	end    context.CancelFunc

	leaving context.Context // done when no request comes any more: what has no end of its own ends
	leave   context.CancelFunc
}

// NewServer returns a server that is not listening yet.
func NewServer(s *supervisor.Supervisor, v Version) *Server {
	v.PID = os.Getpid()
	srv := &Server{s: s, version: v, quiet: quiet{last: time.Now()}}
	srv.ending, srv.end = context.WithCancel(context.Background())
	srv.leaving, srv.leave = context.WithCancel(context.Background())
	srv.http = &http.Server{
		Handler:           srv.quiet.count(srv.measured(srv.hurried(srv.routes()))),
		ConnContext:       withPeer,
		ConnState:         srv.quiet.meet,
		ReadHeaderTimeout: 10 * time.Second,
		MaxHeaderBytes:    64 << 10,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          log.New(io.Discard, "", 0), // a connection that cannot be accepted yet is tried again
	}
	return srv
}

// Serve answers on l until Shutdown.
func (srv *Server) Serve(l net.Listener) error {
	if n := srv.s.Connections(); n > 0 { // a private daemon has one client, which is its own
		l = newDoor(l, n)
	}
	err := srv.http.Serve(l)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Hurry says that the daemon ends: a client that has stopped reading can hold up its answer from here on for a moment only.
func (srv *Server) Hurry() { srv.end() }

// Shutdown takes no more requests and waits for the answers that are under way, the results of runs among them. Streams of records end.
func (srv *Server) Shutdown(ctx context.Context) error {
	srv.leave()
	err := srv.http.Shutdown(ctx)
	if errors.Is(err, net.ErrClosed) {
		err = nil // the listener was closed before, which Serve has yet to see
	}
	sent := make(chan struct{})
	go func() {
		srv.streams.Wait()
		close(sent)
	}()
	select {
	case <-sent:
		return err
	case <-ctx.Done():
		return errors.Join(err, ctx.Err())
	}
}

// A handler answers one request of a known caller. What it returns is written as JSON; nil is an empty object.
type handler func(srv *Server, ctx context.Context, c supervisor.Caller, r *http.Request) (any, error)

// A route is one method of one path: it has an answer, or it writes a stream of its own.
type route struct {
	method, path string
	answer       handler
	stream       func(srv *Server, w http.ResponseWriter, r *http.Request)
}

// routes is the whole API; a test holds openapi.json against it.
var routes = []route{
	{method: "GET", path: PathVersion, answer: (*Server).getVersion},
	{method: "GET", path: PathMetrics, stream: (*Server).metrics},
	{method: "GET", path: PathPolicy, answer: (*Server).getPolicy},
	{method: "POST", path: PathPlan, answer: (*Server).plan},
	{method: "GET", path: PathRuns, answer: (*Server).listRuns},
	{method: "POST", path: PathRuns, stream: (*Server).run},
	{method: "GET", path: PathRuns + "/{id}", answer: (*Server).inspect},
	{method: "GET", path: PathRuns + "/{id}/verify", answer: (*Server).verify},
	{method: "POST", path: PathRuns + "/{id}/kill", answer: (*Server).kill},
	{method: "PUT", path: PathRuns + "/{id}", answer: (*Server).detach},
	{method: "GET", path: PathRuns + "/{id}/result", answer: (*Server).wait},
	{method: "GET", path: PathRuns + "/{id}/logs", stream: (*Server).logs},
	{method: "POST", path: PathRuns + "/{id}/attach", stream: (*Server).attach},
	{method: "GET", path: PathSessions, answer: (*Server).listSessions},
	{method: "PUT", path: PathSessions + "/{id}", answer: (*Server).startSession},
	{method: "POST", path: PathSessions + "/{id}/exec", stream: (*Server).exec},
	{method: "POST", path: PathSessions + "/{id}/stop", answer: (*Server).stopSession},
	{method: "GET", path: PathWorkspaces, answer: (*Server).listWorkspaces},
	{method: "GET", path: PathWorkspaces + "/{id}/changes", stream: (*Server).changes},
	{method: "POST", path: PathWorkspaces + "/{id}/commit", answer: (*Server).commit},
	{method: "POST", path: PathWorkspaces + "/{id}/revert", answer: (*Server).revert},
	{method: "POST", path: PathPrune, answer: (*Server).prune},
	{method: "DELETE", path: PathWorkspaces + "/{id}", answer: (*Server).discard},
	{method: "POST", path: PathRecords, stream: (*Server).records},
	{method: "GET", path: PathEvents, stream: (*Server).events},
	{method: "POST", path: PathTools, answer: (*Server).installTool},
	{method: "DELETE", path: PathTools + "/{name}", answer: (*Server).removeTool},
	{method: "PUT", path: PathPublishers + "/{name}", answer: (*Server).setRing},
	{method: "DELETE", path: PathPublishers + "/{name}", answer: (*Server).removeRing},
}

func (srv *Server) routes() http.Handler {
	mux := http.NewServeMux()
	for _, r := range routes {
		if r.stream != nil {
			mux.HandleFunc(r.method+" "+r.path, func(w http.ResponseWriter, req *http.Request) { r.stream(srv, w, req) })
			continue
		}
		mux.HandleFunc(r.method+" "+r.path, srv.answer(r.answer))
	}
	return mux
}

func (srv *Server) answer(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		caller, err := callerOf(r.Context())
		if err != nil {
			problem(w, &supervisor.Error{Code: supervisor.CodeRefused, Message: err.Error()})
			return
		}
		leave, err := srv.s.Enter()
		if err != nil {
			problem(w, supervisor.AsError(err))
			return
		}
		leave() // not for as long as it takes: some answers wait for a run's end
		v, err := h(srv, r.Context(), caller, r)
		if err != nil {
			problem(w, supervisor.AsError(err))
			return
		}
		if v == nil {
			v = struct{}{}
		}
		writeJSON(w, http.StatusOK, v)
	}
}

var statuses = map[string]int{
	supervisor.CodeUsage: http.StatusBadRequest, supervisor.CodeNotFound: http.StatusNotFound, supervisor.CodeRefused: http.StatusForbidden,
	supervisor.CodeLayer: http.StatusForbidden, supervisor.CodeConflict: http.StatusConflict, supervisor.CodeBusy: http.StatusServiceUnavailable, supervisor.CodeEnding: http.StatusServiceUnavailable,
}

func problem(w http.ResponseWriter, e *supervisor.Error) {
	status, ok := statuses[e.Code]
	if !ok {
		status = http.StatusInternalServerError
	}
	writeJSON(w, status, Problem{e})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a client that is gone needs no answer
}

// readJSON reads a body strictly: what is not known is refused, not ignored.
func readJSON(r *http.Request, v any) error {
	d := json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxRequest))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil {
		if _, err = d.Token(); errors.Is(err, io.EOF) {
			return nil
		}
		err = errors.New("more than one value")
	}
	return &supervisor.Error{Code: supervisor.CodeUsage, Message: fmt.Sprintf("body of the request: %v", err)}
}

func (srv *Server) getVersion(context.Context, supervisor.Caller, *http.Request) (any, error) {
	return srv.version, nil
}

func (srv *Server) getPolicy(context.Context, supervisor.Caller, *http.Request) (any, error) {
	return srv.s.PolicyStatus(), nil
}

func (srv *Server) plan(ctx context.Context, c supervisor.Caller, r *http.Request) (any, error) {
	var req supervisor.Request
	if err := readJSON(r, &req); err != nil {
		return nil, err
	}
	return srv.s.Plan(ctx, c, req)
}

func (srv *Server) listRuns(_ context.Context, c supervisor.Caller, _ *http.Request) (any, error) {
	return srv.s.List(c)
}

func (srv *Server) inspect(ctx context.Context, c supervisor.Caller, r *http.Request) (any, error) {
	in, err := srv.s.Inspect(ctx, c, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	out := Records{Live: in.Live, Truncated: in.Truncated}
	for _, rec := range in.Records {
		out.Records = append(out.Records, rec.Line)
	}
	return out, nil
}

func (srv *Server) verify(_ context.Context, c supervisor.Caller, r *http.Request) (any, error) {
	return srv.s.Verify(c, r.PathValue("id"))
}

func (srv *Server) kill(_ context.Context, c supervisor.Caller, r *http.Request) (any, error) {
	var req KillRequest
	if err := readJSON(r, &req); err != nil {
		return nil, err
	}
	if req.Signal == 0 {
		req.Signal = 9
	}
	return nil, srv.s.Kill(c, r.PathValue("id"), req.Signal)
}

func (srv *Server) listWorkspaces(_ context.Context, c supervisor.Caller, _ *http.Request) (any, error) {
	return srv.s.Workspaces(c)
}

func (srv *Server) commit(ctx context.Context, c supervisor.Caller, r *http.Request) (any, error) {
	var req supervisor.CommitRequest
	if err := readJSON(r, &req); err != nil {
		return nil, err
	}
	return srv.s.Commit(ctx, c, r.PathValue("id"), req)
}

func (srv *Server) revert(ctx context.Context, c supervisor.Caller, r *http.Request) (any, error) {
	var req supervisor.RevertRequest
	if err := readJSON(r, &req); err != nil {
		return nil, err
	}
	return srv.s.Revert(ctx, c, r.PathValue("id"), req)
}

func (srv *Server) prune(ctx context.Context, c supervisor.Caller, _ *http.Request) (any, error) {
	return srv.s.Prune(ctx, c)
}

func (srv *Server) discard(ctx context.Context, c supervisor.Caller, r *http.Request) (any, error) {
	return nil, srv.s.Discard(ctx, c, r.PathValue("id"))
}

func (srv *Server) changes(w http.ResponseWriter, r *http.Request) {
	caller, err := callerOf(r.Context())
	var review *supervisor.Review
	if err == nil {
		review, err = srv.s.Review(r.Context(), caller, r.PathValue("id"))
	}
	if err != nil {
		problem(w, supervisor.AsError(err))
		return
	}
	defer review.Close()
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := json.NewEncoder(w)
	if err := stream(out, review, r.URL.Query().Get("patch"), r.URL.Query().Get("hunks") == "1"); err != nil {
		_ = out.Encode(ReviewLine{Error: supervisor.AsError(err)})
	}
}

// patchWriter sends the differences in parts.
type patchWriter struct{ out *json.Encoder }

func (w patchWriter) Write(p []byte) (int, error) {
	if err := w.out.Encode(ReviewLine{Patch: p}); err != nil {
		return 0, err
	}
	return len(p), nil
}

func stream(out *json.Encoder, review *supervisor.Review, patch string, hunks bool) error {
	if err := out.Encode(ReviewLine{Info: &review.Info}); err != nil {
		return err
	}
	var o workspace.ShowOptions
	if patch != "" {
		o.Patch, o.Options.Terminal = patchWriter{out}, patch == PatchTerminal
	}
	if hunks {
		o.Hunks = func(h workspace.FileHunks) error { return out.Encode(ReviewLine{Hunks: &h}) }
	}
	shown, err := review.Show(o, func(c workspace.Change) error {
		line := Change{Change: c}
		line.Protected, _ = review.Held(string(c.Path))
		return out.Encode(ReviewLine{Change: &line})
	})
	if err != nil {
		return err
	}
	return out.Encode(ReviewLine{Summary: &ReviewSummary{shown}})
}
