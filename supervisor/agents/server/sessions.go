package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
	"github.com/jail-sandbox/jail/supervisor/agents/store"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/transcript"
)

// addSessions adds the routes for sessions of the tool loop. jail agent chat and jail worker store
// their events here; jail-agentd does not act on them.
func (s *Server) addSessions() {
	const one = agentapi.SessionsPath + "/{id}"
	s.mux.HandleFunc("GET "+agentapi.SessionsPath, s.answered(s.sessions))
	s.mux.HandleFunc("POST "+one+"/events", s.answered(s.appendEvents))
	s.mux.HandleFunc("DELETE "+one, s.answered(s.deleteSession))
	s.mux.HandleFunc("GET "+one+"/events", s.sessionEvents)
}

func (s *Server) sessions(r *http.Request) (any, error) {
	all, err := store.SessionsOf(s.agents.Store).List(r.Context(), maxListed)
	if all == nil {
		all = []transcript.Summary{}
	}
	return all, err
}

func sessionID(r *http.Request) (string, error) {
	id := r.PathValue("id")
	if err := transcript.CheckID(id); err != nil {
		return "", problem.New(problem.Usage, "%w", err)
	}
	return id, nil
}

// maxEvents bounds the number of events in one request.
const maxEvents = 16

func (s *Server) appendEvents(r *http.Request) (any, error) {
	id, err := sessionID(r)
	if err != nil {
		return nil, err
	}
	var texts []json.RawMessage
	first := int64(0)
	text, err := io.ReadAll(io.LimitReader(r.Body, maxEvents*transcript.MaxEvent))
	if err == nil {
		err = agent.Strict(text, &texts)
	}
	if err == nil && (len(texts) == 0 || len(texts) > maxEvents) {
		err = fmt.Errorf("%d came, and 1 to %d may", len(texts), maxEvents)
	}
	events := make([][]byte, len(texts))
	for i, text := range texts {
		if err == nil {
			var seq int64
			if seq, events[i], err = eventOf(id, text); i == 0 {
				first = seq
			} else if err == nil && seq != first+int64(i) {
				err = fmt.Errorf("event %d comes after event %d", seq, first+int64(i)-1)
			}
		}
	}
	if err != nil {
		return nil, problem.New(problem.Usage, "events of session %s: %w", id, err)
	}
	err = store.SessionsOf(s.agents.Store).Append(id, first, events...)
	if errors.Is(err, store.ErrOther) {
		return nil, problem.New(problem.Conflict, "%w", err).
			WithHint("end the other process, and go on with jail agent chat --resume " + id)
	}
	return struct{}{}, err
}

// eventOf checks an event of a session, and returns its number and its compacted JSON.
func eventOf(id string, text []byte) (int64, []byte, error) {
	if len(text) > transcript.MaxEvent {
		return 0, nil, fmt.Errorf("one is larger than %d MiB", transcript.MaxEvent>>20)
	}
	var e transcript.Event
	if err := agent.Strict(text, &e); err != nil {
		return 0, nil, err
	}
	if e.SessionID != id {
		return 0, nil, fmt.Errorf("one is of session %.80q", e.SessionID)
	}
	var compact bytes.Buffer
	err := json.Compact(&compact, text)
	return e.Seq, compact.Bytes(), err
}

// sessionEvents sends the events of a session as JSON Lines.
func (s *Server) sessionEvents(w http.ResponseWriter, r *http.Request) {
	id, err := sessionID(r)
	w.Header().Set("Content-Type", "application/jsonl")
	begun := false
	if err == nil {
		err = store.SessionsOf(s.agents.Store).Events(r.Context(), id, func(event []byte) error {
			begun = true
			if _, err := w.Write(event); err != nil {
				return err
			}
			_, err := io.WriteString(w, "\n")
			return err
		})
	}
	switch {
	case err == nil:
	case begun:
		// Cut the connection, so that the client sees that the list is incomplete.
		s.log.Debug("a transcript was cut", "error", err)
		panic(http.ErrAbortHandler)
	case errors.Is(err, store.ErrNotFound):
		s.refuse(w, noSession(id))
	default:
		s.refuse(w, err)
	}
}

func (s *Server) deleteSession(r *http.Request) (any, error) {
	id, err := sessionID(r)
	if err != nil {
		return nil, err
	}
	err = store.SessionsOf(s.agents.Store).Delete(id)
	if errors.Is(err, store.ErrNotFound) {
		err = noSession(id)
	}
	return struct{}{}, err
}

func noSession(id string) error {
	return problem.New(problem.NotFound, "there is no session %s", id).
		WithHint("jail agent sessions lists them")
}
