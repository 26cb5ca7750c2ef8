// Package loop is the tool loop of a language model: a turn sends the conversation to the model,
// runs the tools that the model calls, sends their results, and repeats until the model calls none.
//
// There is one path to a tool: call, Gate, Runner, result. A session consists of its events
// (package transcript), and each event is stored before the next step begins. So a session can be
// resumed after a crash: a call without a result gets an error as its result, and is not run again.
//
// There is one exception: the result of a turn's last call is stored while the model already gets
// the request. The reply is not read before the result is durable. After a crash in between, that
// call has no result.
//
//	session.go  the session, its turns, and how it is resumed
//	gate.go     which tools may be called
//	replay.go   runs the loop again from recorded events, offline
package loop

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/supervisor/models"
	"github.com/jail-sandbox/jail/supervisor/transcript"
)

// maxIterations bounds the requests to the model in one turn.
const maxIterations = 50

// Codes of a turn that failed.
const (
	CodeAPI           = "API_ERROR"
	CodeMaxIterations = "MAX_ITERATIONS"
)

// A Log stores events. Append stores all of the events of one session, or none, and returns when
// they are durable. It fails if the session already has events with these numbers, for example
// because another process has resumed it.
type Log interface {
	Append(ctx context.Context, events ...transcript.Event) error
}

// A Model returns the next reply in a conversation. models.Model implements it.
type Model interface {
	Reply(ctx context.Context, key string, r models.Request) (models.Reply, error)
}

// A Runner runs tools.
type Runner interface {
	// Tools returns the definitions of the tools that the model may call.
	Tools() []models.Tool
	// Run runs one tool call and returns its result. failed is true if the text is an error
	// message; the model gets it as the result, too.
	Run(ctx context.Context, c transcript.Call) (text string, failed bool)
}

// Options are the dependencies and settings of a session.
type Options struct {
	Log    Log
	Model  Model
	Runner Runner
	Gate   Gate
	// System is the system prompt.
	System string
	// MaxTokens bounds the tokens of one reply.
	MaxTokens int64
	Now       func() time.Time
	// Watch is called with each event when it is durable. It may be nil.
	Watch func(transcript.Event)

	// replayed is true in a replay.
	replayed bool
}

// A Session is a conversation with a model and its tools. It is not safe for concurrent use.
type Session struct {
	o    Options
	id   string
	last int64
	// held are events that are not stored yet. They are stored with the next event, or during the
	// next request to the model.
	held    []transcript.Event
	turns   []models.Turn
	granted map[string]bool
}

// Start starts a new session. Its id must be unique.
func Start(ctx context.Context, o Options, id string, start transcript.Start) (*Session, error) {
	s := &Session{o: o, id: id, granted: map[string]bool{}}
	return s, s.Note(ctx, transcript.Event{Type: transcript.Init, Start: &start})
}

// Resume resumes a session from its stored events. Calls without a result get an error as the
// result.
func Resume(ctx context.Context, o Options, id string, events []transcript.Event,
	start transcript.Start) (*Session, error) {
	s := &Session{o: o, id: id, granted: map[string]bool{}}
	for _, e := range events {
		if e.Seq != s.last+1 || e.SessionID != id {
			return nil, fmt.Errorf("session %s: event %d follows event %d", id, e.Seq, s.last)
		}
		s.last = e.Seq
		s.take(e)
	}
	start.Resumed = true
	if err := s.Note(ctx, transcript.Event{Type: transcript.Init, Start: &start}); err != nil {
		return nil, err
	}
	used := map[string]bool{}
	var last transcript.Event
	for _, e := range events {
		if e.Type != transcript.Init {
			last = e
		}
		if e.Type == transcript.ToolUse {
			used[e.CallID] = true
		}
	}
	for _, c := range s.open() {
		text := "the session ended before this call was carried out"
		if used[c.ID] {
			text = "the session ended while this call was being carried out: it may have been, wholly " +
				"or in part. It was not carried out again. Look before you repeat it"
		}
		if err := s.result(ctx, c, text, true); err != nil {
			return nil, err
		}
	}
	if last.Type == transcript.AssistantMessage && len(last.Calls) == 0 {
		return s, s.Note(ctx, transcript.Event{Type: transcript.Result, Text: last.Text,
			Status: transcript.Success, Usage: last.Usage})
	}
	return s, nil
}

// Asked reports whether the last turn is a user message or results without a reply of the model, so
// that Continue should be called.
func (s *Session) Asked() bool {
	if len(s.turns) == 0 {
		return false
	}
	last := s.turns[len(s.turns)-1]
	return last.User != "" || len(last.Results) > 0
}

// Note adds events to the session and waits until they are stored, with those that are held.
// Callers use it for events of the workspace.
func (s *Session) Note(ctx context.Context, events ...transcript.Event) error {
	s.hold(events...)
	return s.keep(ctx)()
}

// hold numbers and dates events and adds them to the session. The next keep stores them.
func (s *Session) hold(events ...transcript.Event) {
	now := s.o.Now().UTC()
	for _, e := range events {
		s.last++
		e.Seq, e.SessionID, e.Time = s.last, s.id, now
		s.take(e)
		s.held = append(s.held, e)
	}
}

// keep starts to store the held events in the background. The returned function waits until they
// are durable and passes them to Watch. Call it before any other method of the session. If Append
// fails, it holds the events again, for another attempt.
func (s *Session) keep(ctx context.Context) func() error {
	events := s.held
	s.held = nil
	if len(events) == 0 {
		return func() error { return nil }
	}
	kept := make(chan error, 1)
	// Store the events even if the turn is interrupted meanwhile.
	go func() { kept <- s.o.Log.Append(context.WithoutCancel(ctx), events...) }()
	return sync.OnceValue(func() error {
		if err := <-kept; err != nil {
			s.held = append(events, s.held...)
			return fmt.Errorf("session %s, event %d: %w", s.id, events[0].Seq, err)
		}
		for _, e := range events {
			if s.o.Watch != nil {
				s.o.Watch(e)
			}
		}
		return nil
	})
}

// take updates the conversation and the permissions with an event. All state is made from events,
// so that it is the same after a crash.
func (s *Session) take(e transcript.Event) {
	switch e.Type {
	case transcript.UserMessage:
		s.turns = append(s.turns, models.Turn{User: e.Text})
	case transcript.AssistantMessage:
		s.turns = append(s.turns, models.Turn{Text: e.Text, Calls: e.Calls})
	case transcript.ToolResult:
		if n := len(s.turns); n == 0 || len(s.turns[n-1].Results) == 0 {
			s.turns = append(s.turns, models.Turn{})
		}
		t := &s.turns[len(s.turns)-1]
		t.Results = append(t.Results, models.Result{ID: e.CallID, Text: e.Text, Error: e.IsError})
	case transcript.PermissionDecision:
		s.decided(e)
	}
}

// open returns the calls of the model's last message that have no result.
func (s *Session) open() (all []transcript.Call) {
	answered := map[string]bool{}
	for n := len(s.turns) - 1; n >= 0; n-- {
		for _, r := range s.turns[n].Results {
			answered[r.ID] = true
		}
		for _, c := range s.turns[n].Calls {
			if !answered[c.ID] {
				all = append(all, c)
			}
		}
		if s.turns[n].Calls != nil {
			break
		}
	}
	return all
}

// Say sends a user message and runs a turn, until the model calls no more tools. It returns the
// result event of the turn. If ctx ends, the turn is interrupted, and the session can be continued.
// It returns an error only if the log fails: then the last events may not be stored.
func (s *Session) Say(ctx context.Context, text string) (transcript.Event, error) {
	if err := s.Note(ctx, transcript.Event{Type: transcript.UserMessage, Text: text}); err != nil {
		return transcript.Event{}, err
	}
	return s.Continue(ctx)
}

// Continue is Say without a new message, for a turn that a crash has interrupted.
func (s *Session) Continue(ctx context.Context) (transcript.Event, error) {
	var used transcript.Usage
	end := func(status, code, text string, before ...transcript.Event) (transcript.Event, error) {
		e := transcript.Event{Type: transcript.Result, Status: status, Code: code, Text: text,
			Usage: &used}
		return e, s.Note(ctx, append(before, e)...)
	}
	for range maxIterations {
		kept := s.keep(ctx)
		reply, err := s.o.Model.Reply(ctx, fmt.Sprintf("%s/%d", s.id, s.last+1), models.Request{
			System: s.o.System, Turns: s.turns, Tools: s.o.Runner.Tools(), MaxTokens: s.o.MaxTokens,
			Before: kept})
		if err := kept(); err != nil {
			return transcript.Event{}, err
		}
		switch {
		case ctx.Err() != nil:
			return end(transcript.Interrupted, "", "")
		case err != nil:
			return end(transcript.Failed, CodeAPI, err.Error())
		}
		used.Input += reply.Usage.Input
		used.Output += reply.Usage.Output
		said := transcript.Event{Type: transcript.AssistantMessage, Text: reply.Text,
			Calls: reply.Calls, Usage: &reply.Usage}
		if len(said.Calls) == 0 {
			return end(transcript.Success, "", reply.Text, said)
		}
		// The message and the use of its first call are stored together, to save a flush of the
		// disk, about a millisecond.
		before := []transcript.Event{said}
		for _, c := range said.Calls {
			if err := s.call(ctx, c, before...); err != nil {
				return transcript.Event{}, err
			}
			before = nil
		}
		if ctx.Err() != nil {
			return end(transcript.Interrupted, "", "")
		}
	}
	return end(transcript.Failed, CodeMaxIterations, fmt.Sprintf(
		"the model was asked %d times and still calls tools", maxIterations))
}

// errInterrupted is the beginning of the result of a call that was interrupted.
var errInterrupted = errors.New("interrupted by the user")

// call is the only path to a tool: call, gate, runner, result. It first stores the events before.
func (s *Session) call(ctx context.Context, c transcript.Call, before ...transcript.Event) error {
	if ctx.Err() != nil {
		if len(before) > 0 {
			if err := s.Note(ctx, before...); err != nil {
				return err
			}
		}
		return s.result(ctx, c, errInterrupted.Error()+" before it was carried out", true)
	}
	if err := s.Note(ctx, append(before, transcript.Event{Type: transcript.ToolUse, CallID: c.ID,
		Tool: c.Name, Input: c.Input})...); err != nil {
		return err
	}
	why, err := s.allowed(ctx, c)
	switch {
	case err != nil:
		return err
	case why != "":
		return s.result(ctx, c, why, true)
	case c.Malformed != "":
		return s.result(ctx, c, "the input is no JSON object: it may have been cut", true)
	}
	text, failed := s.o.Runner.Run(ctx, c)
	if ctx.Err() != nil {
		text, failed = errInterrupted.Error()+": it may have been carried out in part", true
	}
	if s.o.replayed {
		// The replay notices an interruption only after it has compared this result.
		return s.result(ctx, c, text, failed)
	}
	s.hold(resultOf(c, text, failed))
	return nil
}

func (s *Session) result(ctx context.Context, c transcript.Call, text string, failed bool) error {
	return s.Note(ctx, resultOf(c, text, failed))
}

func resultOf(c transcript.Call, text string, failed bool) transcript.Event {
	return transcript.Event{Type: transcript.ToolResult, CallID: c.ID, Tool: c.Name, Text: text,
		IsError: failed}
}
