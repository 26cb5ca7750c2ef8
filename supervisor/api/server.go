package api

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/jail/oci"
	"github.com/jail-sandbox/jail/policy/strict"
	"github.com/jail-sandbox/jail/supervisor/approvals"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/daemonlog"
	"github.com/jail-sandbox/jail/supervisor/images"
	"github.com/jail-sandbox/jail/supervisor/jsonbound"
	"github.com/jail-sandbox/jail/supervisor/live"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/metrics"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/service"
	"github.com/jail-sandbox/jail/supervisor/session"
	"github.com/jail-sandbox/jail/supervisor/shadows"
	toolmanager "github.com/jail-sandbox/jail/supervisor/tools"
)

// maxRequest bounds the body of a request, in bytes: JSON with up to 2 MiB of arguments and a
// policy file.
const maxRequest = 16 << 20

// maxValues bounds the number of JSON values in the body of a request. 2 MiB of arguments have
// fewer.
const maxValues = 1 << 18

// A Server serves the API of one daemon.
type Server struct {
	s       *service.Service
	version Version
	log     *daemonlog.Log
	http    *http.Server
	quiet   quiet
	// Connections that were switched to streams, which http.Server no longer tracks.
	streams sync.WaitGroup

	// Done when the daemon ends and answers must not wait for slow clients.
	ending context.Context
	end    context.CancelFunc

	// Done when the server shuts down, so that endless streams end.
	leaving context.Context
	leave   context.CancelFunc
}

// NewServer returns a server that is not listening yet. It logs panics of jail's own code to l.
func NewServer(s *service.Service, v Version, l *daemonlog.Log) *Server {
	v.PID = os.Getpid()
	srv := &Server{s: s, version: v, log: l, quiet: quiet{last: time.Now()}}
	srv.ending, srv.end = context.WithCancel(context.Background())
	srv.leaving, srv.leave = context.WithCancel(context.Background())
	srv.http = &http.Server{
		Handler:           srv.quiet.count(measured(srv.hurried(srv.faulted(srv.handler(srv.routes()))))),
		ConnContext:       withPeer,
		ConnState:         srv.quiet.meet,
		ReadHeaderTimeout: 10 * time.Second,
		MaxHeaderBytes:    64 << 10,
		IdleTimeout:       2 * time.Minute,
		// Accept errors are retried, and panics are logged by faulted.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	return srv
}

// Serve accepts connections on l until Shutdown.
func (srv *Server) Serve(l net.Listener) error {
	// A private daemon has one client, so it needs no bound.
	if n := srv.s.Connections(); n > 0 {
		l = newBoundedListener(l, n)
	}
	err := srv.http.Serve(l)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Hurry notes that the daemon ends: from now on a client that does not read can delay its answer
// only for a moment.
func (srv *Server) Hurry() { srv.end() }

// Shutdown accepts no more requests and waits for the answers under way, including results of runs,
// until ctx ends. Streams of records end.
func (srv *Server) Shutdown(ctx context.Context) error {
	srv.leave()
	err := srv.http.Shutdown(ctx)
	if errors.Is(err, net.ErrClosed) {
		// The listener was closed before.
		err = nil
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

// A call is a request with its caller.
type call struct {
	*http.Request
	caller caller.Caller
	// id is the id, or the name before byID, from the path.
	id string
}

// A handler returns the answer to a call, which is written as JSON; nil means an empty object.
type handler func(q call) (any, error)

// listed returns a handler that answers with f for the caller. As in asked and posted, of returns a
// part of the service when there is a request, and f is a method of that part.
func listed[S, R any](of func() S, f func(S, caller.Caller) (R, error)) handler {
	return func(q call) (any, error) { return f(of(), q.caller) }
}

// asked returns a handler that answers with f for the id in the path.
func asked[S, R any](of func() S,
	f func(S, context.Context, caller.Caller, string) (R, error)) handler {
	return func(q call) (any, error) { return f(of(), q.Context(), q.caller, q.id) }
}

// posted returns a handler that answers with f for the id in the path and the body of the request.
func posted[S, T, R any](of func() S,
	f func(S, context.Context, caller.Caller, string, T) (R, error)) handler {
	return sent(func(q call, req T) (any, error) {
		return f(of(), q.Context(), q.caller, q.id, req)
	})
}

// sent returns a handler that calls f with the decoded body of the request.
func sent[T any](f func(q call, req T) (any, error)) handler {
	return func(q call) (any, error) {
		var req T
		if err := readJSON(q.Request, &req); err != nil {
			return nil, err
		}
		return f(q, req)
	}
}

// A route is one method of one path. Either answer or stream is set; stream writes its own
// response.
type route struct {
	method, path string
	answer       handler
	stream       http.HandlerFunc
}

// routes returns the whole API; a test compares it with openapi.json.
func (srv *Server) routes() []route {
	s := srv.s
	self := func() *service.Service { return s }
	branchShadows := func() shadows.Branches { return shadows.BranchesOf(s.Workspaces()) }
	branchSessions := func() session.Branches { return s.Sessions().Branches() }
	return []route{
		{method: "GET", path: PathVersion,
			answer: func(call) (any, error) { return srv.version, nil }},
		{method: "GET", path: pathOpenAPI,
			answer: func(call) (any, error) { return json.RawMessage(openAPI), nil }},
		{method: "GET", path: pathMetrics, stream: srv.metrics},
		{method: "GET", path: pathPolicy,
			answer: func(call) (any, error) { return s.Policies().Status(), nil }},
		{method: "GET", path: pathHost,
			answer: func(q call) (any, error) { return s.Host().Status(q.caller), nil }},
		{method: "POST", path: pathPlan, answer: sent(func(q call, req message.Request) (any, error) {
			return s.Preparer().Plan(q.Context(), q.caller, req)
		})},
		{method: "GET", path: PathRuns, answer: listed(s.Live, (*live.Runs).List)},
		{method: "POST", path: PathRuns, stream: srv.run},
		{method: "GET", path: PathRuns + "/{id}", answer: srv.byID(srv.inspect)},
		{method: "GET", path: PathRuns + "/{id}/verify", answer: srv.byID(func(q call) (any, error) {
			return s.Live().Verify(q.caller, q.id)
		})},
		{method: "POST", path: PathRuns + "/{id}/kill",
			answer: srv.byID(sent(func(q call, req KillRequest) (any, error) {
				return nil, s.Live().Kill(q.caller, q.id, cmp.Or(req.Signal, 9))
			}))},
		{method: "PUT", path: PathRuns + "/{id}", answer: srv.detach},
		{method: "GET", path: PathRuns + "/{id}/result",
			answer: srv.byID(asked(s.Live, (*live.Runs).Wait))},
		{method: "GET", path: PathRuns + "/{id}/logs", stream: srv.logs},
		{method: "POST", path: PathRuns + "/{id}/attach", stream: srv.attach},
		{method: "GET", path: pathSessions,
			answer: func(q call) (any, error) { return s.Sessions().List(q.caller), nil }},
		{method: "PUT", path: pathSessions + "/{id}", answer: srv.startSession},
		{method: "POST", path: pathSessions + "/{id}/exec", stream: srv.exec},
		{method: "POST", path: pathSessions + "/{id}/stop",
			answer: srv.byID(posted(s.Sessions, (*session.Sessions).Stop))},
		{method: "POST", path: pathSessions + "/{id}/fork", answer: srv.byID(sent(srv.fork))},
		{method: "GET", path: pathBranches, answer: listed(branchShadows, shadows.Branches.List)},
		{method: "GET", path: pathBranches + "/{id}/diff", answer: srv.byID(srv.compare)},
		{method: "POST", path: pathBranches + "/{id}/preview",
			answer: srv.byID(asked(branchSessions, session.Branches.Preview))},
		{method: "POST", path: pathBranches + "/{id}/merge",
			answer: srv.byID(posted(branchSessions, session.Branches.Merge))},
		{method: "POST", path: pathBranches + "/{id}/revert",
			answer: srv.byID(asked(branchSessions, session.Branches.Revert))},
		{method: "DELETE", path: pathBranches + "/{id}", answer: srv.byID(func(q call) (any, error) {
			return nil, branchSessions().Discard(q.Context(), q.caller, q.id)
		})},
		{method: "GET", path: pathWorkspaces, answer: listed(s.Workspaces, (*shadows.Store).List)},
		{method: "GET", path: pathWorkspaces + "/{id}/changes", stream: srv.changes},
		{method: "POST", path: pathWorkspaces + "/{id}/commit",
			answer: srv.byID(posted(s.Workspaces, (*shadows.Store).Commit))},
		{method: "POST", path: pathWorkspaces + "/{id}/revert",
			answer: srv.byID(posted(s.Workspaces, (*shadows.Store).Revert))},
		{method: "GET", path: pathCaches, answer: listed(s.Workspaces, (*shadows.Store).Caches)},
		{method: "DELETE", path: pathCaches + "/{id}", answer: func(q call) (any, error) {
			return nil, s.Workspaces().RemoveCache(q.caller, q.id)
		}},
		{method: "POST", path: pathPrune, answer: func(q call) (any, error) {
			return s.Workspaces().Prune(q.Context(), q.caller)
		}},
		{method: "DELETE", path: pathWorkspaces + "/{id}", answer: srv.byID(func(q call) (any, error) {
			force := q.URL.Query().Get("force") == "1"
			return nil, s.Workspaces().Discard(q.Context(), q.caller, q.id, force)
		})},
		{method: "POST", path: pathWorkspaces + "/{id}/discard",
			answer: srv.byID(posted(s.Workspaces, (*shadows.Store).DiscardPaths))},
		{method: "GET", path: pathApprovals, answer: srv.actions},
		{method: "POST", path: pathApprovals, answer: sent(srv.propose)},
		{method: "GET", path: pathApprovals + "/{id}", answer: srv.action},
		{method: "DELETE", path: pathApprovals + "/{id}", answer: func(q call) (any, error) {
			return s.Approvals().Withdraw(q.caller, q.id)
		}},
		{method: "POST", path: pathApprovals + "/{id}/decide",
			answer: posted(s.Approvals, (*approvals.Queue).Decide)},
		{method: "POST", path: pathApprovals + "/{id}/revert",
			answer: asked(self, (*service.Service).RevertAction)},
		{method: "POST", path: pathApprovals + "/{id}/claim",
			answer: sent(func(q call, req ClaimRequest) (any, error) {
				return s.Claim(q.caller, q.id, req.Key)
			})},
		{method: "POST", path: pathApprovals + "/{id}/report",
			answer: sent(func(q call, req approvals.ReportRequest) (any, error) {
				return s.Approvals().Programs().Report(q.caller, q.id, req)
			})},
		{method: "POST", path: pathApprovals + "/{id}/settle",
			answer: sent(func(q call, req approvals.SettleRequest) (any, error) {
				return s.Approvals().Programs().Settle(q.caller, q.id, req)
			})},
		{method: "GET", path: pathGrants, answer: listed(s.Approvals, (*approvals.Queue).Grants)},
		{method: "DELETE", path: pathGrants + "/{id}",
			answer: func(q call) (any, error) { return s.Revoke(q.caller, q.id) }},
		{method: "POST", path: pathAgentRecords, answer: sent(srv.recordAgents)},
		{method: "POST", path: oci.PathContainers, answer: sent(srv.planContainer)},
		{method: "POST", path: oci.PathContainers + "/{id}" + oci.ReportSuffix,
			answer: sent(func(q call, req oci.Made) (any, error) {
				return nil, s.Containers().Report(q.caller, q.id, req)
			})},
		{method: "POST", path: oci.PathContainers + "/{id}" + oci.ExecSuffix,
			answer: sent(srv.execInContainer)},
		{method: "POST", path: pathRecords, stream: srv.records},
		{method: "GET", path: pathEvents, stream: srv.events},
		{method: "POST", path: pathTools, answer: srv.installTool},
		{method: "DELETE", path: pathTools + "/{name}", answer: func(q call) (any, error) {
			return s.Tools().Remove(q.Context(), q.caller, q.id, q.URL.Query().Get("forget") == "1")
		}},
		{method: "GET", path: pathImages, answer: func(q call) (any, error) {
			all, err := s.Images().List(q.caller)
			return append([]images.About{}, all...), err
		}},
		{method: "PUT", path: pathImages + "/{name}",
			answer: posted(s.Images, (*toolmanager.Images).Add)},
		{method: "DELETE", path: pathImages + "/{name}",
			answer: asked(s.Images, (*toolmanager.Images).Remove)},
		{method: "PUT", path: pathPublishers + "/{name}",
			answer: sent(func(q call, req RingRequest) (any, error) {
				return nil, s.Tools().SetRing(q.Context(), q.caller, q.id, req.Ring, req.Explicit)
			})},
		{method: "DELETE", path: pathPublishers + "/{name}", answer: func(q call) (any, error) {
			return nil, s.Tools().RemoveRing(q.Context(), q.caller, q.id)
		}},
	}
}

// handler returns the HTTP handler for routes.
func (srv *Server) handler(routes []route) http.Handler {
	mux := http.NewServeMux()
	for _, r := range routes {
		if r.stream != nil {
			mux.HandleFunc(r.method+" "+r.path, r.stream)
			continue
		}
		mux.HandleFunc(r.method+" "+r.path, srv.answer(r.answer))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern == "" {
			w = &unknownRoute{ResponseWriter: w, asked: r.Method + " " + r.URL.Path}
		}
		mux.ServeHTTP(w, r)
	})
}

// An unknownRoute replaces the answer of net/http to an unknown path or method by an error in the
// API's format.
type unknownRoute struct {
	http.ResponseWriter
	asked string
}

// WriteHeader writes the whole answer. net/http has set the header Allow already.
func (u *unknownRoute) WriteHeader(status int) {
	e := problem.New(problem.NotFound, "%q: the API has nothing of that path", u.asked)
	if status == http.StatusMethodNotAllowed {
		e = problem.New(problem.Usage, "%q: the API has no such method there", u.asked)
	}
	writeJSON(u.ResponseWriter, status, Problem{e.WithHint("GET " + pathOpenAPI +
		" describes the API")})
}

func (u *unknownRoute) Write(text []byte) (int, error) { return len(text), nil }

func (srv *Server) answer(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		caller, err := callerOf(r.Context())
		if err != nil {
			writeProblem(w, problem.New(problem.Refused, "%v", err))
			return
		}
		leave, err := srv.s.Enter()
		if err != nil {
			writeProblem(w, problem.From(err))
			return
		}
		// The daemon does not wait for the answer here: some answers wait for the end of a run.
		leave()
		v, err := srv.answered(h, call{r, caller, cmp.Or(r.PathValue("id"), r.PathValue("name"))})
		if err != nil {
			refuse(w, srv.s, caller, err)
			return
		}
		if v == nil {
			v = struct{}{}
		}
		writeJSON(w, http.StatusOK, shown(srv.s.Names(), caller, v))
	}
}

var statuses = map[string]int{
	problem.Usage: http.StatusBadRequest, problem.NotFound: http.StatusNotFound,
	problem.Refused: http.StatusForbidden, problem.ApprovalPending: http.StatusForbidden,
	problem.Layer: http.StatusForbidden, problem.Conflict: http.StatusConflict,
	problem.Busy: http.StatusServiceUnavailable, problem.Ending: http.StatusServiceUnavailable,
}

// Status returns the HTTP status for an error with that code.
func Status(code string) int { return cmp.Or(statuses[code], http.StatusInternalServerError) }

func writeProblem(w http.ResponseWriter, e *problem.Error) {
	writeJSON(w, Status(e.Code), Problem{e})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// A client that is gone needs no answer.
	_ = json.NewEncoder(w).Encode(v)
}

// readJSON decodes the body of a request into v. Unknown fields are errors.
func readJSON(r *http.Request, v any) error {
	text, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxRequest))
	if err == nil {
		err = decode(text, v)
	}
	if err != nil {
		return badBody(err)
	}
	return nil
}

// decode decodes one JSON value into v. Unknown and repeated fields are errors.
func decode(text []byte, v any) error {
	err := jsonbound.Check(text, maxValues)
	if err == nil {
		err = strict.JSON(text, v)
	}
	if err == nil {
		err = strict.Keys(text)
	}
	return err
}

// badBody converts the error of a JSON decoder to one for users.
func badBody(err error) error {
	what := strings.TrimPrefix(err.Error(), "json: ")
	var kind *json.UnmarshalTypeError
	var large *http.MaxBytesError
	switch {
	case errors.Is(err, io.EOF):
		what = "it is empty"
	case errors.Is(err, io.ErrUnexpectedEOF):
		what = "it ends within a value"
	case errors.As(err, &kind):
		what = fmt.Sprintf("%s: a JSON %s does not belong there",
			cmp.Or(kind.Field, "the whole"), kind.Value)
	case errors.As(err, &large):
		what = fmt.Sprintf("it has more than %d bytes", large.Limit)
	}
	return problem.New(problem.Usage, "body of the request: %s", what).WithCause(err)
}

//go:embed openapi.json
var openAPI []byte

func (srv *Server) inspect(q call) (any, error) {
	in, err := srv.s.Live().Inspect(q.Context(), q.caller, q.id)
	if err != nil {
		return nil, err
	}
	out := Records{Live: in.Live, Truncated: in.Truncated}
	for _, rec := range in.Records {
		out.Records = append(out.Records, rec.Line)
	}
	return out, nil
}

// A quiet tracks how long the server has had no request.
type quiet struct {
	mu sync.Mutex
	// The number of requests that are being answered.
	under int
	last  time.Time
}

func (q *quiet) count(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q.add(1)
		defer q.add(-1)
		next.ServeHTTP(w, r)
	})
}

// meet notes a new connection as activity, so that the daemon does not end as idle just before its
// request.
func (q *quiet) meet(_ net.Conn, state http.ConnState) {
	if state == http.StateNew {
		q.add(0)
	}
}

func (q *quiet) add(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.under += n
	q.last = time.Now()
}

// Quiet returns how long the server has had no request and the service no run; 0 while there is
// one.
func (srv *Server) Quiet() time.Duration {
	srv.quiet.mu.Lock()
	defer srv.quiet.mu.Unlock()
	if srv.quiet.under > 0 || srv.s.Active() > 0 {
		srv.quiet.last = time.Now()
	}
	return time.Since(srv.quiet.last)
}

// metrics answers with the daemon's metrics. They contain nothing about single users, so every
// caller may read them.
func (srv *Server) metrics(w http.ResponseWriter, r *http.Request) {
	if _, err := callerOf(r.Context()); err != nil {
		writeProblem(w, problem.From(err))
		return
	}
	srv.writeMetrics(w, r)
}

func (srv *Server) writeMetrics(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", metrics.ContentType)
	// A client that is gone needs no answer.
	_, _ = srv.s.Meters().WriteTo(w)
}

// ServeMetrics serves only the metrics on l, a port of this host. It returns nil when l is closed,
// or an error.
func (srv *Server) ServeMetrics(l net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", srv.writeMetrics)
	server := http.Server{Handler: mux, ReadTimeout: 10 * time.Second,
		WriteTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	if err := server.Serve(l); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Metrics returns the daemon's metrics in the text format of Prometheus.
func (c *Client) Metrics(ctx context.Context) (string, error) {
	answer, err := c.link.open(ctx, "GET", pathMetrics, nil)
	if err != nil {
		return "", err
	}
	defer answer.Close()
	text, err := io.ReadAll(io.LimitReader(answer, 16<<20))
	return string(text), err
}
