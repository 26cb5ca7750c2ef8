package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/coder/websocket"

	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/agents"
	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
	"github.com/jail-sandbox/jail/supervisor/agents/store"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

func (s *Server) send(r *http.Request) (any, error) {
	var req agentapi.Send
	if err := read(r, &req); err != nil {
		return nil, err
	}
	for _, name := range []string{req.Channel, req.Type, req.ReplyTo, req.ID} {
		if len(name) > 4*agent.MaxName {
			return nil, problem.New(problem.Usage, "a name of %d bytes, more than %d", len(name),
				4*agent.MaxName)
		}
	}
	if len(req.Content) == 0 {
		return nil, problem.New(problem.Usage, "content is missing")
	}
	i, err := s.on(r, req.Channel)
	if err != nil {
		return nil, err
	}
	e := agent.Event{Source: "user", Channel: i.Channel, Type: req.Type, ReplyTo: req.ReplyTo,
		ID: req.ID, Data: req.Content}
	if e.Type == "" || e.Type == agent.TypeMessage {
		e.Type = store.MessageType(req.Content, i.Handle)
	}
	return s.sent(r.Context(), i, e, time.Duration(req.WaitMS)*time.Millisecond)
}

func (s *Server) tick(r *http.Request) (any, error) {
	i, err := s.instance(r)
	if err != nil {
		return nil, err
	}
	return s.sent(r.Context(), i, agent.Event{Source: "user", Channel: i.Channel,
		Type: agent.TypeTick, Data: json.RawMessage(`{}`)}, 0)
}

// sent puts an event into an inbox, and waits until it is committed or dead or the instance has
// failed, at most wait and agentapi.MaxWait.
func (s *Server) sent(ctx context.Context, i store.Instance, e agent.Event,
	wait time.Duration) (any, error) {
	// Before Send, so that the end of the event is not missed.
	changed := s.agents.Changed(i.ID)
	seq, err := s.agents.Send(i.ID, e)
	if err != nil {
		return nil, err
	}
	answer := agentapi.Sent{ID: e.ID, Seq: seq, Instance: i.Name, Channel: i.Channel,
		State: agentapi.Waiting}
	if answer.ID == "" {
		answer.ID = fmt.Sprintf("%s/%s/%d", e.Source, i.Agent, seq)
		if wait <= 0 {
			// The event is new, and the client does not wait.
			return answer, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, min(max(wait, 0), agentapi.MaxWait))
	defer cancel()
	// Only an event with an id may have been sent and handled before.
	known := e.ID != ""
	for ; ; known = true {
		if known {
			done, err := s.became(&answer, i)
			if err != nil || done {
				return answer, err
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if wait > 0 {
				// Report the error of a failed attempt, too.
				_, err = s.became(&answer, i)
			}
			return answer, err
		case <-s.ctx.Done():
			return answer, nil
		}
		changed = s.agents.Changed(i.ID)
		if agents.Quiet(s.agents, i.ID, seq) {
			answer.State, answer.Error = agentapi.Committed, ""
			return answer, nil
		}
	}
}

// became sets the state of an event in to, and reports whether it is final.
func (s *Server) became(to *agentapi.Sent, i store.Instance) (bool, error) {
	// The request's context may be over, but the answer is still sent.
	ctx := context.Background()
	i, err := s.agents.Store.Instance(ctx, i.ID)
	if err != nil {
		return false, err
	}
	letter, err := s.agents.Store.Letter(ctx, i.ID, to.Seq)
	switch {
	case err == nil:
		to.State, to.Error = agentapi.Dead, letter.Reason
		return true, nil
	case !errors.Is(err, store.ErrNotFound):
		return false, err
	case i.Settled < to.Seq:
		if to.Error = i.Error; i.Paused {
			to.Error = "the agent is paused: jail agent resume " + i.Agent
		}
		return i.State == store.Failed, nil
	}
	to.State, to.Error = agentapi.Committed, ""
	prefix := fmt.Sprintf("%s/%d/", s.agents.Store.AgentID(i.Agent), to.Seq)
	to.Published, err = s.agents.Store.PublishedBy(ctx, i.ID, prefix)
	return true, err
}

// follow calls f for the publications of an agent with numbers above after. If more is true, it
// waits for further ones until ctx is done, and calls tick now and then while there are none.
func (s *Server) follow(ctx context.Context, name string, after int64, more bool,
	f func(agentapi.Publication) error, tick func() error) error {
	for {
		changed := s.agents.Changed(agents.Anyone)
		all, err := s.agents.Store.Published(ctx, name, after, maxListed)
		if err != nil {
			return err
		}
		for _, p := range all {
			if err := f(p); err != nil {
				return err
			}
			after = p.N
		}
		if len(all) == maxListed {
			continue
		}
		if !more {
			return nil
		}
		if err := tick(); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-time.After(sign):
			if err := tick(); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		case <-s.ctx.Done():
			return nil
		}
	}
}

// after returns the number in the request after which a stream begins.
func (s *Server) after(r *http.Request) (int64, error) {
	name := r.PathValue("name")
	if _, err := s.agents.Store.Agent(r.Context(), name); err != nil {
		return 0, fmt.Errorf("agent %q: %w", name, err)
	}
	text := r.URL.Query().Get("after")
	if text == "" {
		return 0, nil
	}
	after, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, problem.New(problem.Usage, "after=%.40q: want a number", text)
	}
	return after, nil
}

// logLines sends publications as JSON Lines. Empty lines keep the connection alive.
func (s *Server) logLines(w http.ResponseWriter, r *http.Request) {
	after, err := s.after(r)
	if err != nil {
		s.refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/jsonl")
	flush := http.NewResponseController(w)
	lines := json.NewEncoder(w)
	quiet := time.Now()
	err = s.follow(r.Context(), r.PathValue("name"), after, r.URL.Query().Get("follow") == "1",
		func(p agentapi.Publication) error { return lines.Encode(p) },
		func() error {
			if time.Since(quiet) > sign {
				quiet = time.Now()
				if _, err := io.WriteString(w, "\n"); err != nil {
					return err
				}
			}
			return flush.Flush()
		})
	if err != nil {
		s.log.Debug("a log was cut", "error", err)
	}
}

// socket sends publications over a WebSocket, each as a text message of JSON.
func (s *Server) socket(w http.ResponseWriter, r *http.Request) {
	after, err := s.after(r)
	if err != nil {
		s.refuse(w, err)
		return
	}
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer conn.CloseNow()
	ctx := conn.CloseRead(r.Context())
	err = s.follow(ctx, r.PathValue("name"), after, true, func(p agentapi.Publication) error {
		text, err := json.Marshal(p)
		if err != nil {
			return err
		}
		return conn.Write(ctx, websocket.MessageText, text)
	}, func() error { return nil })
	if err != nil {
		s.log.Debug("a stream was cut", "error", err)
	}
	// The peer may be gone already.
	_ = conn.Close(websocket.StatusNormalClosure, "")
}
