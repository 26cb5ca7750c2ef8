// Package loop lets a language model work with tools: a turn asks the model, calls the tools that it
// asks for, answers with their results, and goes on until the model calls none.
//
// There is one path to a tool: call, Gate, Runner, result. A session is its events (package
// transcript); what has happened is kept before the next step begins. So a session goes on after a
// crash from what was kept: a call without a result is answered with an error, and is never carried
// out again by itself.
//
// One event is kept while the next step begins: the result of a turn's last call. The model is asked
// meanwhile, and nothing of its reply is taken before the result is durable. After a crash in between,
// that call has no result.
//
//	session.go  the session, its turns, and how it goes on
//	gate.go     who may call which tool
//	replay.go   a session again from what was recorded, offline
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

// maxIterations is how often one turn may ask the model.
const maxIterations = 50

// Codes of a result that is an error.
const (
	CodeAPI           = "API_ERROR"
	CodeMaxIterations = "MAX_ITERATIONS"
)

// A Log keeps events. Append returns when all of some events of one session are durable, or none. It
// fails if the session has other events of these numbers, as when another process goes on with it.
type Log interface {
	Append(ctx context.Context, events ...transcript.Event) error
}

// A Model continues conversations. models.Model is one.
type Model interface {
	Reply(ctx context.Context, key string, r models.Request) (models.Reply, error)
}

// A Runner carries out tools.
type Runner interface {
	// Tools are those that the model may call.
	Tools() []models.Tool
	// Run carries out one call. failed says that the text is an error, which the model gets as any
	// other result.
	Run(ctx context.Context, c transcript.Call) (text string, failed bool)
}

// Options say what a session works with.
type Options struct {
	Log    Log
	Model  Model
	Runner Runner
	Gate   Gate
	// System is what the model is told first.
	System string
	// MaxTokens bounds one reply.
	MaxTokens int64
	Now       func() time.Time
	// Watch gets each event when it is durable; nil for nobody.
	Watch func(transcript.Event)

	// replayed says that the events come from a record.
	replayed bool
}

// A Session is one session of the loop. Its methods are for one goroutine.
type Session struct {
	o    Options
	id   string
	last int64
	// held has happened and is not kept yet: it is kept with the next event, or while the model is
	// asked.
	held    []transcript.Event
	turns   []models.Turn
	granted map[string]bool
}

// Start begins a session of an id that no other session has.
func Start(ctx context.Context, o Options, id string, start transcript.Start) (*Session, error) {
	s := &Session{o: o, id: id, granted: map[string]bool{}}
	return s, s.Note(ctx, transcript.Event{Type: transcript.Init, Start: &start})
}

// Resume goes on with a session whose events are those. Calls that have no result are answered with
// an error.
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

// Asked reports whether the last that was said is a person's, or results that the model has not
// seen: Continue goes on with that.
func (s *Session) Asked() bool {
	if len(s.turns) == 0 {
		return false
	}
	last := s.turns[len(s.turns)-1]
	return last.User != "" || len(last.Results) > 0
}

// Note takes events in and keeps them, behind those that are held. Callers note events of the workspace.
func (s *Session) Note(ctx context.Context, events ...transcript.Event) error {
	s.hold(events...)
	return s.keep(ctx)()
}

// hold gives events their numbers and the time, and takes them in. The next keep keeps them.
func (s *Session) hold(events ...transcript.Event) {
	now := s.o.Now().UTC()
	for _, e := range events {
		s.last++
		e.Seq, e.SessionID, e.Time = s.last, s.id, now
		s.take(e)
		s.held = append(s.held, e)
	}
}

// keep begins to keep the events that are held. The function that it returns waits until they are
// durable, and shows them; it is called before anything else of the session. Events that cannot be
// kept are held again: Append may be repeated.
func (s *Session) keep(ctx context.Context) func() error {
	events := s.held
	s.held = nil
	if len(events) == 0 {
		return func() error { return nil }
	}
	kept := make(chan error, 1)
	// What has happened is kept even if the turn has been interrupted meanwhile.
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

// take makes of an event what the model and the gate have to know of it. All state is made here, so
// that it is the same after a crash.
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

// open returns the calls of the last message that have no result.
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

// Say says something to the model and lets it work until it calls no more tools. The event that is
// returned is the result of the turn. When ctx is done the turn ends, and the session can go on. An
// error is one of the log: what was done may not be kept.
func (s *Session) Say(ctx context.Context, text string) (transcript.Event, error) {
	if err := s.Note(ctx, transcript.Event{Type: transcript.UserMessage, Text: text}); err != nil {
		return transcript.Event{}, err
	}
	return s.Continue(ctx)
}

// Continue is Say without anything new to say, for a turn that a crash has cut.
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
		// The message and the use of its first call are kept at one time: each flush of the disk is
		// a millisecond that a tool waits.
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

// errInterrupted is what a call answers that a person interrupts.
var errInterrupted = errors.New("interrupted by the user")

// call is the one path to a tool: call, gate, runner, result. The events before are kept first.
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
		// What interrupted the turn comes behind this result.
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
