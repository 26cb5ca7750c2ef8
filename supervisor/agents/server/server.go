// Package server is the HTTP server of jail-agentd. It serves JSON on a Unix socket that only the
// owner can access, and on loopback to clients that have the token. Package agentapi has the
// messages.
package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jail-sandbox/jail/policy/strict"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/agents"
	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
	"github.com/jail-sandbox/jail/supervisor/agents/builtin"
	"github.com/jail-sandbox/jail/supervisor/agents/hosted"
	"github.com/jail-sandbox/jail/supervisor/agents/manifest"
	"github.com/jail-sandbox/jail/supervisor/agents/store"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// Bounds of requests.
const (
	maxBody   = 1 << 20
	maxMemory = 64 << 20
	maxListed = 1000
	// sign is the interval of keep-alive signs on an idle stream.
	sign = 15 * time.Second
)

// A Server answers the requests of jail-agentd's clients.
type Server struct {
	agents *agents.Agents
	log    *slog.Logger
	mux    *http.ServeMux
	// ctx is done when the daemon ends. Requests then stop to wait.
	ctx context.Context
	// active is the number of requests in progress; used is when the last ended, in Unix ns.
	active atomic.Int64
	used   atomic.Int64
}

// New returns a Server for these agents. Streams end when ctx is done.
func New(ctx context.Context, a *agents.Agents, log *slog.Logger) *Server {
	s := &Server{agents: a, log: log, mux: http.NewServeMux(), ctx: ctx}
	s.used.Store(time.Now().UnixNano())
	const one = agentapi.Path + "/{name}"
	for pattern, h := range map[string]handler{
		"GET " + agentapi.Path:                s.list,
		"POST " + agentapi.Path:               s.add,
		"GET " + one:                          s.get,
		"DELETE " + one:                       done(s.agents.Delete),
		"POST " + one + "/send":               s.send,
		"POST " + one + "/spawn":              s.spawn,
		"POST " + one + "/pause":              done(s.agents.Pause),
		"POST " + one + "/resume":             done(s.agents.Resume),
		"GET " + one + "/events":              s.events,
		"POST " + one + "/events/{seq}/retry": s.retry,
		"GET " + one + "/do/status":           s.status,
		"POST " + one + "/do/tick":            s.tick,
		"GET " + one + "/do/goals":            s.operation(agent.AdminGoals),
		"POST " + one + "/do/goals":           s.operation(agent.AdminAddGoal),
		"GET " + one + "/do/tables":           s.operation(agent.AdminTables),
		"GET " + one + "/do/memory/export":    s.operation(agent.AdminExport),
		"POST " + one + "/do/memory/import":   s.operation(agent.AdminImport),
	} {
		s.mux.HandleFunc(pattern, s.answered(h))
	}
	s.addSessions()
	if gates := agents.GatesOf(a); gates != nil {
		s.addGatekeepers(gates)
	}
	s.mux.HandleFunc("GET "+one+"/log", s.logLines)
	s.mux.HandleFunc("GET "+one+"/ws", s.socket)
	s.mux.HandleFunc("/", s.answered(func(*http.Request) (any, error) {
		return nil, problem.New(problem.NotFound, "there is nothing at this path").
			WithHint("docs/agents/http.md lists the paths")
	}))
	return s
}

type handler func(*http.Request) (any, error)

// done returns a handler that calls do with the name of the agent in the path, without a result.
func done(do func(context.Context, string) error) handler {
	return func(r *http.Request) (any, error) {
		return struct{}{}, do(r.Context(), r.PathValue("name"))
	}
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.active.Add(1)
	defer func() {
		s.used.Store(time.Now().UnixNano())
		s.active.Add(-1)
	}()
	s.mux.ServeHTTP(w, r)
}

// IdleSince returns since when no request is in progress, and false while there is one.
func (s *Server) IdleSince() (time.Time, bool) {
	return time.Unix(0, s.used.Load()), s.active.Load() == 0
}

// answered returns an HTTP handler that writes the result or error of h as JSON.
func (s *Server) answered(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxMemory)
		v, err := h(r)
		if err != nil {
			s.refuse(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if raw, ok := v.(json.RawMessage); ok {
			_, err = w.Write(raw)
		} else {
			err = json.NewEncoder(w).Encode(v)
		}
		if err != nil {
			s.log.Debug("an answer was not sent", "error", err)
		}
	}
}

func (s *Server) refuse(w http.ResponseWriter, err error) {
	e := asProblem(err)
	status := api.Status(e.Code)
	if status == http.StatusInternalServerError {
		s.log.Warn("a request failed", "error", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// A client that is gone needs no answer.
	_ = json.NewEncoder(w).Encode(agentapi.Problem{Error: e})
}

// asProblem converts an error to the error that a client gets.
func asProblem(err error) *problem.Error {
	var p *problem.Error
	var own *agent.Error
	var positions syntax.Errors
	with := func(code, hint string) *problem.Error {
		return (&problem.Error{Code: code, Message: err.Error(), Err: err}).WithHint(hint)
	}
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &own):
		return with(problem.Usage, "")
	case errors.Is(err, fs.ErrNotExist):
		return with(problem.NotFound, "name the directory that holds the manifest of the agent")
	case errors.As(err, &positions), errors.Is(err, agents.ErrWrong):
		return with(problem.Usage, "jail agent check DIR says all that is wrong")
	}
	for _, known := range []struct {
		err        error
		code, hint string
	}{
		{agents.ErrAvailable, problem.NotFound, "jail agent spawn puts it on one"},
		{agents.ErrPlace, problem.Usage, ""},
		{store.ErrNotFound, problem.NotFound, "jail agent list has the agents"},
		{store.ErrFull, problem.Busy, "send it again when the agent has worked on some of them"},
		{store.ErrTaken, problem.Conflict, ""},
		{store.ErrTooLarge, problem.Usage, ""},
		{context.Canceled, problem.Ending, "ask again"},
		{context.DeadlineExceeded, problem.Ending, "ask again"},
	} {
		if errors.Is(err, known.err) {
			return with(known.code, known.hint)
		}
	}
	return with(problem.Failed, "")
}

// read decodes the JSON body of a request into to, strictly.
func read(r *http.Request, to any) error {
	text, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err == nil && len(text) > maxBody {
		err = fmt.Errorf("it has more than %d bytes", maxBody)
	}
	if err == nil {
		err = agent.Strict(text, to)
	}
	if err == nil {
		err = strict.Keys(text)
	}
	if err != nil {
		return problem.New(problem.Usage, "the body of the request: %w", err)
	}
	return nil
}

// instance returns the instance of a request: on the channel in the query, or else the agent's
// first one.
func (s *Server) instance(r *http.Request) (store.Instance, error) {
	return s.on(r, r.URL.Query().Get("channel"))
}

func (s *Server) on(r *http.Request, channel string) (store.Instance, error) {
	name := r.PathValue("name")
	all, err := s.agents.Of(r.Context(), name)
	if err != nil {
		return store.Instance{}, err
	}
	var channels []string
	for _, i := range all {
		if i.State == store.Terminated || i.Parent != 0 {
			continue
		}
		// The instances come in the order in which they were made, at first that of the manifest.
		if channel == "" || i.Channel == channel {
			return i, nil
		}
		channels = append(channels, i.Channel)
	}
	return store.Instance{}, problem.New(problem.NotFound,
		"agent %q is not on channel %q, but on %q", name, channel, channels)
}

func (s *Server) list(r *http.Request) (any, error) {
	all := []*agentapi.Agent{}
	at := map[string]*agentapi.Agent{}
	err := s.agents.Store.Agents(r.Context(), func(a store.Agent) error {
		shown := s.agentOf(a)
		all, at[a.Name] = append(all, shown), shown
		return nil
	})
	if err != nil {
		return nil, err
	}
	dead, err := s.agents.Store.Dead(r.Context())
	if err != nil {
		return nil, err
	}
	err = s.agents.Store.Instances(r.Context(), "", func(i store.Instance) error {
		if a := at[i.Agent]; a != nil {
			s.addInstance(a, i, dead[i.ID])
		}
		return nil
	})
	for _, b := range builtin.All() {
		if at[b.Name] == nil {
			at[b.Name] = s.available(b)
			all = append(all, at[b.Name])
		}
	}
	for name, why := range s.agents.Problems() {
		if a := at[name]; a != nil {
			a.Problem = why
		} else {
			all = append(all, &agentapi.Agent{Name: name, ID: s.agents.Store.AgentID(name),
				State: agentapi.Failed, Problem: why, Instances: []agentapi.Instance{}})
		}
	}
	return all, err
}

func (s *Server) agentOf(a store.Agent) *agentapi.Agent {
	shown := &agentapi.Agent{Name: a.Name, ID: s.agents.Store.AgentID(a.Name), Dir: a.Dir,
		Digest: a.Digest, Added: a.Added, Instances: []agentapi.Instance{}}
	if b, ok := builtin.Find(a.Name); ok {
		shown.Builtin, shown.About, shown.Runtime = true, b.About, manifest.Host
	}
	return shown
}

// available returns a built-in agent that is on no channel, as an agentapi.Agent.
func (s *Server) available(b builtin.Agent) *agentapi.Agent {
	shown := s.agentOf(store.Agent{Name: b.Name})
	shown.State = agentapi.Available
	return shown
}

// spawn handles a request to put an agent on a channel.
func (s *Server) spawn(r *http.Request) (any, error) {
	var req agentapi.Spawn
	if err := read(r, &req); err != nil {
		return nil, err
	}
	name := r.PathValue("name")
	if b, ok := builtin.Find(name); ok {
		c, err := builtin.ParseConfig(req.Config)
		if err != nil {
			return nil, problem.New(problem.Usage, "agent %q: %w", name, err)
		}
		if _, err := hosted.Look(b, c); err != nil {
			return nil, problem.New(problem.NotFound, "%w", err)
		}
	}
	if _, err := s.agents.Spawn(r.Context(), name, req.Channel,
		builtin.Place{Handle: req.Handle, Config: req.Config}); err != nil {
		return nil, err
	}
	return s.get(r)
}

// rank orders states by how much attention they need, the highest most.
var rank = map[string]int{store.Terminated: 1, store.Created: 2, store.Dormant: 3,
	store.Initializing: 4, store.Active: 5, store.Failed: 6}

func (s *Server) addInstance(a *agentapi.Agent, i store.Instance, dead int) {
	shown := agentapi.Instance{Instance: i.Name, Agent: i.Agent, Channel: i.Channel,
		Facet: i.Facet,
		State: s.agents.StateOf(i), Paused: i.Paused, Failures: i.Failures,
		NotBefore: i.NotBefore, Committed: i.Settled, Waiting: i.Waiting,
		WaitingBytes: i.WaitingBytes, Dead: dead, Note: i.Note, Error: i.Error,
		Changed: i.Changed}
	if rank[shown.State] > rank[a.State] {
		a.State = shown.State
	}
	a.Paused = a.Paused || i.Paused
	a.Instances = append(a.Instances, shown)
}

func (s *Server) one(r *http.Request) (*agentapi.Agent, error) {
	name := r.PathValue("name")
	known, err := s.agents.Store.Agent(r.Context(), name)
	if b, ok := builtin.Find(name); ok && errors.Is(err, store.ErrNotFound) {
		a := s.available(b)
		a.Problem = s.agents.Problems()[name]
		return a, nil
	}
	if err != nil {
		return nil, fmt.Errorf("agent %q: %w", name, err)
	}
	a := s.agentOf(known)
	a.Problem = s.agents.Problems()[name]
	dead, err := s.agents.Store.Dead(r.Context())
	if err != nil {
		return nil, err
	}
	if err := s.agents.Store.Instances(r.Context(), name, func(i store.Instance) error {
		s.addInstance(a, i, dead[i.ID])
		return nil
	}); err != nil {
		return nil, err
	}
	a.Tokens.Input, a.Tokens.Output, err = s.agents.Store.Tokens(r.Context(), name)
	if err != nil {
		return nil, err
	}
	if m, err := s.agents.Manifest(name); err == nil {
		a.Tokens.Limit, a.Runtime = m.AI.TokensDay, m.Runtime
	}
	return a, nil
}

func (s *Server) get(r *http.Request) (any, error) {
	a, err := s.one(r)
	if err != nil {
		return nil, err
	}
	if a.State == agentapi.Available {
		return a, nil
	}
	m, err := s.agents.Manifest(a.Name)
	if err != nil {
		// Show the problem together with the rest of the agent.
		a.Problem = err.Error()
		return a, nil
	}
	a.Manifest, err = json.Marshal(m)
	return a, err
}

func (s *Server) status(r *http.Request) (any, error) {
	a, err := s.one(r)
	if err != nil {
		return nil, err
	}
	if a.State == agentapi.Available {
		return a, nil
	}
	used := s.agents.Usage(r.Context())
	all, err := s.agents.Of(r.Context(), a.Name)
	if err != nil {
		return nil, err
	}
	for n, i := range all {
		shown := &a.Instances[n]
		if shown.Alarms, err = s.agents.Store.Alarms(r.Context(), i.ID); err != nil {
			return nil, err
		}
		shown.Memory, shown.CPUMS = used[i.Name].Memory, used[i.Name].CPU.Milliseconds()
	}
	return a, nil
}

func (s *Server) add(r *http.Request) (any, error) {
	var req agentapi.Add
	if err := read(r, &req); err != nil {
		return nil, err
	}
	add := s.agents.Add
	if req.StateOf != "" {
		r.SetPathValue("name", req.StateOf)
		of, err := s.on(r, req.Channel)
		if err != nil {
			return nil, err
		}
		add = func(ctx context.Context, dir string) (store.Agent, error) {
			return s.agents.AddBranch(ctx, dir, of)
		}
	}
	a, err := add(r.Context(), req.Dir)
	if err != nil {
		return nil, err
	}
	r.SetPathValue("name", a.Name)
	return s.one(r)
}

func (s *Server) events(r *http.Request) (any, error) {
	all, err := s.agents.Of(r.Context(), r.PathValue("name"))
	if err != nil {
		return nil, err
	}
	shown := agentapi.Events{Waiting: []agentapi.Event{}, Dead: []agentapi.Event{}}
	for _, i := range all {
		waiting, err := s.agents.Store.Waiting(r.Context(), i.ID, maxListed)
		if err != nil {
			return nil, err
		}
		letters, err := s.agents.Store.Letters(r.Context(), i.ID, maxListed)
		if err != nil {
			return nil, err
		}
		for _, e := range waiting {
			shown.Waiting = append(shown.Waiting, agentapi.Event{Event: e, Instance: i.Name})
		}
		for _, l := range letters {
			l.Instance = i.Name
			shown.Dead = append(shown.Dead, l)
		}
	}
	return shown, nil
}

func (s *Server) retry(r *http.Request) (any, error) {
	seq, err := strconv.ParseUint(r.PathValue("seq"), 10, 64)
	if err != nil {
		return nil, problem.New(problem.Usage, "event %q: want a number", r.PathValue("seq"))
	}
	i, err := s.instance(r)
	if err != nil {
		return nil, err
	}
	again, err := s.agents.Retry(i, seq)
	if errors.Is(err, store.ErrNotFound) {
		return nil, problem.New(problem.NotFound, "event %d of agent %q is no dead letter", seq,
			i.Agent).WithHint("jail agent events " + i.Agent + " lists them")
	}
	return agentapi.Retry{Seq: again}, err
}

// operation returns a handler that does an operation on the database of an agent.
func (s *Server) operation(op string) handler {
	return func(r *http.Request) (any, error) {
		i, err := s.instance(r)
		if err != nil {
			return nil, err
		}
		var data []byte
		if r.Method == http.MethodPost {
			if data, err = io.ReadAll(r.Body); err != nil {
				return nil, problem.New(problem.Usage, "the body of the request: %w", err)
			}
			if !json.Valid(data) {
				return nil, problem.New(problem.Usage, "the body of the request is no JSON")
			}
		}
		result, err := s.agents.Operate(r.Context(), i, op, data)
		if err == nil && (len(result) == 0 || string(result) == "null") {
			result = []byte("{}")
		}
		return json.RawMessage(result), err
	}
}
