package loop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/supervisor/models"
	"github.com/jail-sandbox/jail/supervisor/transcript"
)

// errLifeOver is the error that ends a replay where the recorded process ended.
var errLifeOver = errors.New("the recorded process ended here")

// Replay runs the loop again with the replies of the model, the results of tools and the decisions
// of people from recorded events. It uses no model, tool or jail. It returns an error for the first
// event that the loop makes differently.
func Replay(ctx context.Context, events []transcript.Event) error {
	if len(events) == 0 || events[0].Type != transcript.Init {
		return errors.New("a session begins with system.init")
	}
	id, from := events[0].SessionID, 0
	for from < len(events) {
		// Each system.init begins the life of a process.
		to := from + 1
		for to < len(events) && events[to].Type != transcript.Init {
			to++
		}
		if events[from].Start == nil {
			return fmt.Errorf("event %d: system.init says nothing", events[from].Seq)
		}
		p := &replay{all: events[:to], next: from, cancel: func() {}}
		if err := p.life(ctx, id, from); err != nil && !errors.Is(err, errLifeOver) {
			return err
		}
		if p.next != to {
			return fmt.Errorf("event %d, %s, does not come about again", events[p.next].Seq,
				events[p.next].Type)
		}
		from = to
	}
	return nil
}

// A replay is the Log, Model, Runner and person of a replayed loop, for the life of one process.
type replay struct {
	// all are the events up to the end of that process; next is the index of the next one.
	all    []transcript.Event
	next   int
	cancel context.CancelFunc
}

func (p *replay) life(ctx context.Context, id string, from int) error {
	first := p.all[from]
	start := *first.Start
	start.Resumed = false
	o := Options{Log: p, Model: p, Runner: p, Now: p.now, replayed: true,
		Gate: Gate{Ask: p.decide, recorded: p.mode}}
	var s *Session
	var err error
	if first.Start.Resumed {
		s, err = Resume(ctx, o, id, p.all[:from], start)
	} else {
		s, err = Start(ctx, o, id, start)
	}
	for err == nil && p.next < len(p.all) {
		turn, cancel := context.WithCancel(ctx)
		p.cancel = cancel
		switch e := p.all[p.next]; e.Type {
		case transcript.UserMessage:
			_, err = s.Say(turn, e.Text)
		case transcript.PermissionDecision:
			err = s.Revoke(turn, e.Tool)
		case transcript.WorkspaceImport, transcript.WorkspaceDiff, transcript.WorkspaceCommit:
			err = s.Note(turn, e)
		default:
			_, err = s.Continue(turn)
		}
		cancel()
	}
	return err
}

// mode returns the recorded mode of the call that is at the gate, inferred from the next event.
func (p *replay) mode() string {
	switch p.event().Type {
	case transcript.PermissionQuestion:
		return ModeAsk
	case transcript.PermissionDecision:
		return ModeDeny
	}
	return ModeAllow
}

func (p *replay) over() bool { return p.next >= len(p.all) }

// event returns the next expected event, the zero event if there is none.
func (p *replay) event() (e transcript.Event) {
	if !p.over() {
		e = p.all[p.next]
	}
	return e
}

func (p *replay) now() time.Time { return p.event().Time }

// Append returns an error unless the events equal the next recorded ones.
func (p *replay) Append(_ context.Context, events ...transcript.Event) error {
	for _, e := range events {
		if err := p.compare(e); err != nil {
			return err
		}
	}
	return nil
}

func (p *replay) compare(e transcript.Event) error {
	if p.over() {
		return errLifeOver
	}
	want, err := json.Marshal(p.all[p.next])
	if err != nil {
		return err
	}
	got, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("it is %.500s when it is run again, and %.500s was recorded", got, want)
	}
	p.next++
	if p.interrupted() {
		p.cancel()
	}
	return nil
}

// interrupted reports whether the recorded turn was interrupted before the next event.
func (p *replay) interrupted() bool {
	e := p.event()
	if e.Type == transcript.ToolResult && (!e.IsError || !strings.HasPrefix(e.Text,
		errInterrupted.Error())) {
		return false
	}
	if e.Type != transcript.ToolResult && e.Type != transcript.Result {
		return false
	}
	for _, e := range p.all[p.next:] {
		if e.Type == transcript.Result {
			return e.Status == transcript.Interrupted
		}
	}
	return e.Type == transcript.ToolResult
}

// Reply returns the next recorded reply of the model, or its recorded error.
func (p *replay) Reply(_ context.Context, _ string, _ models.Request) (models.Reply, error) {
	e := p.event()
	switch {
	case p.over():
		return models.Reply{}, errLifeOver
	case e.Type != transcript.AssistantMessage:
		return models.Reply{}, errors.New(e.Text)
	}
	r := models.Reply{Text: e.Text, Calls: e.Calls}
	if e.Usage != nil {
		r.Usage = *e.Usage
	}
	return r, nil
}

// Tools returns nil, as there is no model to use them.
func (p *replay) Tools() []models.Tool { return nil }

// Run returns the recorded result of a call.
func (p *replay) Run(context.Context, transcript.Call) (string, bool) {
	return p.event().Text, p.over() || p.event().IsError
}

// decide returns the recorded answer of a person.
func (p *replay) decide(context.Context, Question) (Answer, error) {
	switch d := p.event().Decision; {
	case p.over():
		return Answer{}, errLifeOver
	case d == nil:
		// The turn was interrupted before anybody answered.
		return Answer{}, errInterrupted
	case d.Via == "nobody":
		return Answer{}, errors.New("nobody")
	default:
		return Answer{Allow: d.Decision == transcript.Allow, Session: d.Scope == "session"}, nil
	}
}
