package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
	"github.com/jail-sandbox/jail/supervisor/agents/store"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/transcript"
)

// addSessions adds the sessions of the tool loop: jail agent chat and jail worker keep their events
// here. Those are the loop's words: nothing is done because of them.
func (s *Server) addSessions() {
	const one = agentapi.SessionsPath + "/{id}"
	s.mux.HandleFunc("GET "+agentapi.SessionsPath, s.answered(s.sessions))
	s.mux.HandleFunc("POST "+one+"/events", s.answered(s.appendEvent))
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

func (s *Server) appendEvent(r *http.Request) (any, error) {
	id, err := sessionID(r)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, transcript.MaxEvent+1))
	if err == nil && len(text) > transcript.MaxEvent {
		err = fmt.Errorf("it is larger than %d MiB", transcript.MaxEvent>>20)
	}
	var e transcript.Event
	if err == nil {
		err = strict(text, &e)
	}
	if err == nil && e.SessionID != id {
		err = fmt.Errorf("it is of session %.80q", e.SessionID)
	}
	var compact bytes.Buffer
	if err == nil {
		err = json.Compact(&compact, text)
	}
	if err != nil {
		return nil, problem.New(problem.Usage, "an event of session %s: %w", id, err)
	}
	err = store.SessionsOf(s.agents.Store).Append(id, e.Seq, compact.Bytes())
	if errors.Is(err, store.ErrOther) {
		return nil, problem.New(problem.Conflict, "%w", err).
			WithHint("end the other process, and go on with jail agent chat --resume " + id)
	}
	return struct{}{}, err
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
		// The client has to see that the list is not whole.
		s.log.Debug("a transcript was cut", "error", err)
		panic(http.ErrAbortHandler)
	case errors.Is(err, store.ErrNotFound):
		w.Header().Set("Content-Type", "application/json")
		s.refuse(w, problem.New(problem.NotFound, "there is no session %s", id).
			WithHint("jail agent sessions lists them"))
	default:
		w.Header().Set("Content-Type", "application/json")
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
		err = problem.New(problem.NotFound, "there is no session %s", id).
			WithHint("jail agent sessions lists them")
	}
	return struct{}{}, err
}
