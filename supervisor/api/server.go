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
	"github.com/jail-sandbox/jail/supervisor/jsonbound"
	"github.com/jail-sandbox/jail/supervisor/live"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/service"
	"github.com/jail-sandbox/jail/supervisor/session"
	"github.com/jail-sandbox/jail/supervisor/shadows"
	toolmanager "github.com/jail-sandbox/jail/supervisor/tools"
)

// maxRequest bounds the body of a request in bytes: a run may bring 2 MiB of arguments and a policy
// file, in JSON.
const maxRequest = 16 << 20

// maxValues bounds the JSON values of the body of a request: 2 MiB of arguments are fewer.
const maxValues = 1 << 18

// A Server answers for one supervisor.
type Server struct {
	s       *service.Service
	version Version
	log     *daemonlog.Log
	http    *http.Server
	quiet   quiet
	// Connections that were switched to streams, of which http.Server knows nothing any more.
	streams sync.WaitGroup

	// Done when no answer may wait for its client any more.
	ending context.Context
	end    context.CancelFunc

	// Done when no request comes any more: what has no end of its own ends.
	leaving context.Context
	leave   context.CancelFunc
}

// NewServer returns a server that is not listening yet. It logs to l what fails in jail's own code.
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
		// A connection that cannot be accepted yet is tried again. Panics are logged by faulted.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	return srv
}

// Serve answers on l until Shutdown.
func (srv *Server) Serve(l net.Listener) error {
	// A private daemon has one client, which is its own.
	if n := srv.s.Connections(); n > 0 {
		l = newBoundedListener(l, n)
	}
	err := srv.http.Serve(l)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Hurry says that the daemon ends: a client that has stopped reading can hold up its answer from
// here on for a moment only.
func (srv *Server) Hurry() { srv.end() }

// Shutdown takes no more requests and waits for the answers that are under way, the results of runs
// among them. Streams of records end.
func (srv *Server) Shutdown(ctx context.Context) error {
	srv.leave()
	err := srv.http.Shutdown(ctx)
	if errors.Is(err, net.ErrClosed) {
		// The listener was closed before, which Serve has yet to see.
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

// A handler answers one request of a known caller. What it returns is written as JSON; nil is an
// empty object.
type handler func(ctx context.Context, c caller.Caller, r *http.Request) (any, error)

// A method is a handler that gets the id of what the path names, too.
type method func(ctx context.Context, c caller.Caller, r *http.Request, id string) (any, error)

// at gives a method the id that the path has as key.
func at(key string, m method) handler {
	return func(ctx context.Context, c caller.Caller, r *http.Request) (any, error) {
		return m(ctx, c, r, r.PathValue(key))
	}
}

// listed answers with what f lists for the caller. Here as below, of returns a part of the service,
// once there is a request, and f is a method of that part.
func listed[S, R any](of func() S, f func(S, caller.Caller) (R, error)) handler {
	return func(_ context.Context, c caller.Caller, _ *http.Request) (any, error) {
		return f(of(), c)
	}
}

// asked answers with what f returns for an id.
func asked[S, R any](of func() S,
	f func(S, context.Context, caller.Caller, string) (R, error)) method {
	return func(ctx context.Context, c caller.Caller, _ *http.Request, id string) (any, error) {
		return f(of(), ctx, c, id)
	}
}

// posted answers with what f returns for an id and the body of the request.
func posted[S, T, R any](of func() S,
	f func(S, context.Context, caller.Caller, string, T) (R, error)) method {
	return func(ctx context.Context, c caller.Caller, r *http.Request, id string) (any, error) {
		var req T
		if err := readJSON(r, &req); err != nil {
			return nil, err
		}
		return f(of(), ctx, c, id, req)
	}
}

// sent gives a handler the body of the request.
func sent[T any](f func(context.Context, caller.Caller, *http.Request, T) (any, error)) handler {
	return func(ctx context.Context, c caller.Caller, r *http.Request) (any, error) {
		var req T
		if err := readJSON(r, &req); err != nil {
			return nil, err
		}
		return f(ctx, c, r, req)
	}
}

// A route is one method of one path: it has an answer, or it writes a stream of its own.
type route struct {
	method, path string
	answer       handler
	stream       http.HandlerFunc
}

// routes is the whole API; a test holds openapi.json against it.
func (srv *Server) routes() []route {
	s := srv.s
	about, tools, kept := about{s, srv.version}, tools{s}, workspaces{s}
	roots := imageRoots{s}
	runs, sessions := runs{s, srv.streamed}, sessions{s, srv.streamed}
	branches := branches{s}
	records, waiting := records{s, srv.leaving}, waiting{s, srv.leaving}
	return []route{
		{method: "GET", path: PathVersion, answer: about.getVersion},
		{method: "GET", path: pathOpenAPI, answer: getOpenAPI},
		{method: "GET", path: pathMetrics, stream: about.metrics},
		{method: "GET", path: pathPolicy, answer: about.getPolicy},
		{method: "GET", path: pathHost, answer: about.getHost},
		{method: "POST", path: pathPlan, answer: sent(runs.plan)},
		{method: "GET", path: PathRuns, answer: listed(s.Live, (*live.Runs).List)},
		{method: "POST", path: PathRuns, stream: runs.run},
		{method: "GET", path: PathRuns + "/{id}", answer: byID(s, runs.inspect)},
		{method: "GET", path: PathRuns + "/{id}/verify", answer: byID(s, runs.verify)},
		{method: "POST", path: PathRuns + "/{id}/kill", answer: byID(s, runs.kill)},
		{method: "PUT", path: PathRuns + "/{id}", answer: runs.detach},
		{method: "GET", path: PathRuns + "/{id}/result",
			answer: byID(s, asked(s.Live, (*live.Runs).Wait))},
		{method: "GET", path: PathRuns + "/{id}/logs", stream: runs.logs},
		{method: "POST", path: PathRuns + "/{id}/attach", stream: runs.attach},
		{method: "GET", path: pathSessions, answer: sessions.list},
		{method: "PUT", path: pathSessions + "/{id}", answer: sessions.start},
		{method: "POST", path: pathSessions + "/{id}/exec", stream: sessions.exec},
		{method: "POST", path: pathSessions + "/{id}/stop",
			answer: byID(s, posted(s.Sessions, (*session.Sessions).Stop))},
		{method: "POST", path: pathSessions + "/{id}/fork", answer: byID(s, branches.fork)},
		{method: "GET", path: pathBranches,
			answer: listed(branches.shadows, shadows.Branches.List)},
		{method: "GET", path: pathBranches + "/{id}/diff", answer: byID(s, branches.diff)},
		{method: "POST", path: pathBranches + "/{id}/preview",
			answer: byID(s, asked(branches.sessions, session.Branches.Preview))},
		{method: "POST", path: pathBranches + "/{id}/merge",
			answer: byID(s, posted(branches.sessions, session.Branches.Merge))},
		{method: "POST", path: pathBranches + "/{id}/revert",
			answer: byID(s, asked(branches.sessions, session.Branches.Revert))},
		{method: "DELETE", path: pathBranches + "/{id}", answer: byID(s, branches.discard)},
		{method: "GET", path: pathWorkspaces, answer: listed(s.Workspaces, (*shadows.Store).List)},
		{method: "GET", path: pathWorkspaces + "/{id}/changes", stream: kept.changes},
		{method: "POST", path: pathWorkspaces + "/{id}/commit",
			answer: byID(s, posted(s.Workspaces, (*shadows.Store).Commit))},
		{method: "POST", path: pathWorkspaces + "/{id}/revert",
			answer: byID(s, posted(s.Workspaces, (*shadows.Store).Revert))},
		{method: "GET", path: pathCaches, answer: listed(s.Workspaces, (*shadows.Store).Caches)},
		{method: "DELETE", path: pathCaches + "/{id}", answer: kept.removeCache},
		{method: "POST", path: pathPrune, answer: kept.prune},
		{method: "DELETE", path: pathWorkspaces + "/{id}", answer: byID(s, kept.discard)},
		{method: "POST", path: pathWorkspaces + "/{id}/discard",
			answer: byID(s, posted(s.Workspaces, (*shadows.Store).DiscardPaths))},
		{method: "GET", path: pathApprovals, answer: waiting.list},
		{method: "POST", path: pathApprovals, answer: sent(waiting.propose)},
		{method: "GET", path: pathApprovals + "/{id}", answer: waiting.get},
		{method: "DELETE", path: pathApprovals + "/{id}", answer: waiting.withdraw},
		{method: "POST", path: pathApprovals + "/{id}/decide",
			answer: at("id", posted(s.Approvals, (*approvals.Queue).Decide))},
		{method: "POST", path: pathApprovals + "/{id}/revert", answer: waiting.revert},
		{method: "POST", path: pathApprovals + "/{id}/claim", answer: sent(waiting.claim)},
		{method: "POST", path: pathApprovals + "/{id}/report", answer: sent(waiting.report)},
		{method: "POST", path: pathApprovals + "/{id}/settle", answer: sent(waiting.settle)},
		{method: "GET", path: pathGrants, answer: listed(s.Approvals, (*approvals.Queue).Grants)},
		{method: "DELETE", path: pathGrants + "/{id}", answer: waiting.revoke},
		{method: "POST", path: pathAgentRecords, answer: sent(agents{s}.record)},
		{method: "POST", path: oci.PathContainers, answer: containers{s}.plan},
		{method: "POST", path: oci.PathContainers + "/{id}" + oci.ReportSuffix,
			answer: sent(containers{s}.report)},
		{method: "POST", path: oci.PathContainers + "/{id}" + oci.ExecSuffix,
			answer: containers{s}.exec},
		{method: "POST", path: pathRecords, stream: records.read},
		{method: "GET", path: pathEvents, stream: records.events},
		{method: "POST", path: pathTools, answer: tools.install},
		{method: "DELETE", path: pathTools + "/{name}", answer: tools.remove},
		{method: "GET", path: pathImages, answer: roots.list},
		{method: "PUT", path: pathImages + "/{name}",
			answer: at("name", posted(s.Images, (*toolmanager.Images).Add))},
		{method: "DELETE", path: pathImages + "/{name}",
			answer: at("name", asked(s.Images, (*toolmanager.Images).Remove))},
		{method: "PUT", path: pathPublishers + "/{name}", answer: sent(tools.setRing)},
		{method: "DELETE", path: pathPublishers + "/{name}", answer: tools.removeRing},
	}
}

// handler answers the requests of routes.
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

// An unknownRoute takes the answer of net/http to a request that no route is for, and says it as
// every other error of the API is said.
type unknownRoute struct {
	http.ResponseWriter
	asked string
}

// WriteHeader writes the whole answer. Which methods there are is in its header Allow already.
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
		// Not for as long as it takes: some answers wait for a run's end.
		leave()
		v, err := srv.answered(h, caller, r)
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

// Status returns the status of an answer that is an error of that code.
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

// readJSON reads a body strictly: what is not known is refused, not ignored.
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

// decode reads one JSON value strictly.
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

// badBody says in words for users what a decoder of JSON says in Go's.
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

// about answers what a daemon is and has counted.
type about struct {
	s       *service.Service
	version Version
}

func (h about) getVersion(context.Context, caller.Caller, *http.Request) (any, error) {
	return h.version, nil
}

//go:embed openapi.json
var openAPI []byte

func getOpenAPI(context.Context, caller.Caller, *http.Request) (any, error) {
	return json.RawMessage(openAPI), nil
}

func (h about) getPolicy(context.Context, caller.Caller, *http.Request) (any, error) {
	return h.s.Policies().Status(), nil
}

func (h about) getHost(_ context.Context, c caller.Caller, _ *http.Request) (any, error) {
	return h.s.Host().Status(c), nil
}

func (h runs) plan(ctx context.Context, c caller.Caller, _ *http.Request,
	req message.Request) (any, error) {
	return h.s.Preparer().Plan(ctx, c, req)
}

func (h runs) inspect(ctx context.Context, c caller.Caller, r *http.Request, id string) (any,
	error) {
	in, err := h.s.Live().Inspect(ctx, c, id)
	if err != nil {
		return nil, err
	}
	out := Records{Live: in.Live, Truncated: in.Truncated}
	for _, rec := range in.Records {
		out.Records = append(out.Records, rec.Line)
	}
	return out, nil
}

func (h runs) verify(_ context.Context, c caller.Caller, r *http.Request, id string) (any, error) {
	return h.s.Live().Verify(c, id)
}

func (h runs) kill(_ context.Context, c caller.Caller, r *http.Request, id string) (any, error) {
	var req KillRequest
	if err := readJSON(r, &req); err != nil {
		return nil, err
	}
	req.Signal = cmp.Or(req.Signal, 9)
	return nil, h.s.Live().Kill(c, id, req.Signal)
}
