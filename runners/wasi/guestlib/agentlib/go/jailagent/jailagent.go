//go:build wasip1

// Package jailagent has the bindings of an agent in a jail, and the loop that wakes it.
//
//	type echo struct{ jailagent.Base }
//
//	func (e *echo) OnEvent(ev *jailagent.Event) error {
//		_, err := jailagent.PubSub.Send("echo: "+ev.Text(), jailagent.ReplyTo(ev.ID))
//		return err
//	}
//
//	func main() { jailagent.Run(&echo{}) }
//
// One event is one transaction: if OnEvent returns nil, its writes to Storage and its messages take
// effect together. If it returns an error, none does, and the event comes again with Kind "replay".
//
// Build with GOOS=wasip1 GOARCH=wasm. The manifest must ask for Storage or AI to use them.
package jailagent

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"time"
)

// An Event is an event for the agent; docs/agent-abi.md describes its fields.
type Event struct {
	Seq     uint64          `json:"seq"`
	ID      string          `json:"id"`
	Time    time.Time       `json:"time"`
	Source  string          `json:"source"`
	Channel string          `json:"channel"`
	Type    string          `json:"type"`
	Kind    string          `json:"kind"`
	ReplyTo string          `json:"reply_to"`
	Attempt int             `json:"attempt"`
	Data    json.RawMessage `json:"data"`
}

// FromAgent reports whether another agent sent the event. Beware of two agents that answer each
// other's messages: they never end.
func (e *Event) FromAgent() bool { return strings.HasPrefix(e.Source, "agent:") }

// Text returns the text of a message: Data if it is a string, or its field text, else "".
func (e *Event) Text() string {
	var text string
	if json.Unmarshal(e.Data, &text) == nil {
		return text
	}
	var with struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(e.Data, &with) != nil {
		return ""
	}
	return with.Text
}

// An Agent handles events. Embed Base for methods that the agent does not need.
type Agent interface {
	// OnWake is called first, with the reason for waking, such as message, mention, alarm or tick.
	OnWake(reason string) error
	// OnEvent is called for each event, one at a time and in order.
	OnEvent(e *Event) error
	// OnSleep is called last, within a few seconds.
	OnSleep() error
}

// Base is an Agent that does nothing.
type Base struct{}

// OnWake does nothing.
func (Base) OnWake(string) error { return nil }

// OnEvent does nothing.
func (Base) OnEvent(*Event) error { return nil }

// OnSleep does nothing.
func (Base) OnSleep() error { return nil }

// The agent's id, channel and handle.
var (
	ID      = os.Getenv("AGENT_ID")
	Channel = os.Getenv("CHANNEL")
	Handle  = os.Getenv("HANDLE")
)

// Config decodes the table config of the manifest into into.
func Config(into any) error { return json.Unmarshal([]byte(os.Getenv("CONFIG")), into) }

// Run runs an agent until it is asked to sleep. It ends the program if OnWake fails.
func Run(a Agent) {
	fatal(host("ready", nil, nil))
	for {
		var next struct {
			Type  string
			Wake  struct{ Reason string }
			Event *Event
		}
		h, err := hostWait(30000)
		if err == nil {
			err = h.decode(&next)
		}
		fatal(err)
		switch next.Type {
		case "wake":
			fatal(a.OnWake(next.Wake.Reason))
		case "event":
			fatal(one(a, next.Event))
		case "sleep":
			fatal(a.OnSleep())
			return
		}
	}
}

// one handles an event and commits it, or reports that it failed.
func one(a Agent, e *Event) error {
	err := try(a, e)
	if err != nil {
		fmt.Fprintf(os.Stderr, "event %d: %v\n", e.Seq, err)
		return host("fail", map[string]any{"seq": e.Seq, "message": err.Error()}, nil)
	}
	if err := host("checkpoint", map[string]any{"seq": e.Seq}, nil); err != nil {
		// The host reports this itself and delivers the event again.
		fmt.Fprintf(os.Stderr, "event %d is not committed: %v\n", e.Seq, err)
	}
	return nil
}

func try(a Agent, e *Event) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	callee, ok := a.(Callee)
	if !ok || e.Type != "call" {
		return a.OnEvent(e)
	}
	var call struct {
		Method string
		Args   json.RawMessage
	}
	if err := json.Unmarshal(e.Data, &call); err != nil {
		return err
	}
	result, err := callee.OnCall(call.Method, call.Args)
	if err != nil {
		return err
	}
	return host("return", map[string]any{"result": result}, nil)
}

func fatal(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func host(method string, params, result any) error {
	return invoke(hostModule, method, params, result)
}

// Log writes a line to the agent's log. level is info, warn or error.
func Log(level, format string, args ...any) error {
	return host("log", map[string]any{"level": level, "message": fmt.Sprintf(format, args...)}, nil)
}

// SetState sets the note that "jail agent list" shows for this agent.
func SetState(state any) error { return host("setState", map[string]any{"state": state}, nil) }

// SetAlarm sets the alarm with this name: an event of the type alarm with data comes after d.
func SetAlarm(name string, d time.Duration, data any) error {
	return host("setAlarm", map[string]any{"name": name, "data": data,
		"in_ms": max(1, d.Milliseconds())}, nil)
}

// SetAlarmAt sets the alarm with this name, to fire at a time.
func SetAlarmAt(name string, at time.Time, data any) error {
	return host("setAlarm", map[string]any{"name": name, "data": data, "at": at}, nil)
}

// ClearAlarm removes the alarm with this name.
func ClearAlarm(name string) error { return host("clearAlarm", map[string]any{"name": name}, nil) }

// Propose asks for the approval of an action and returns the proposal's id. The decision comes as
// an event of the type approval.
func Propose(action any) (string, error) {
	var said struct{ ID string }
	return said.ID, host("propose", map[string]any{"action": action}, &said)
}

// An Option is an option of Send.
type Option func(map[string]any)

// To sends a message to an agent, or to another channel of the manifest.
func To(name string) Option { return func(o map[string]any) { o["to"] = name } }

// Type sets the type of a message, instead of message.
func Type(name string) Option { return func(o map[string]any) { o["type"] = name } }

// ReplyTo makes a message an answer to the message with this id.
func ReplyTo(id string) Option { return func(o map[string]any) { o["reply_to"] = id } }

type pubsub struct{}

// PubSub sends messages on channels, and knows the members and their methods.
var PubSub pubsub

func (pubsub) call(method string, params, result any) error {
	return invoke(pubsubModule, method, params, result)
}

// Send sends a message and returns its id. Without the option To it goes to the event's channel. It
// is delivered after OnEvent has returned nil.
func (p pubsub) Send(content any, options ...Option) (string, error) {
	o := map[string]any{}
	for _, set := range options {
		set(o)
	}
	var said struct{ ID string }
	err := p.call("send", map[string]any{"content": content, "options": o}, &said)
	return said.ID, err
}

// Update replaces the content of a message.
func (p pubsub) Update(id string, content any) error {
	return p.call("update", map[string]any{"id": id, "content": content}, nil)
}

// Complete marks a message as complete: it gets no more updates.
func (p pubsub) Complete(id string) error {
	return p.call("complete", map[string]any{"id": id}, nil)
}

// A Member is a member of a channel.
type Member struct{ ID, Name, Handle, State string }

// Roster returns the members of the channel.
func (p pubsub) Roster() (all []Member, err error) { return all, p.call("roster", nil, &all) }

// A Method is a method that a member of the channel offers.
type Method struct {
	ProviderID  string          `json:"providerId"`
	MethodName  string          `json:"methodName"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"`
}

// Discover returns the methods that the members of the channel offer.
func (p pubsub) Discover() (all []Method, err error) {
	return all, p.call("discoverMethodDefs", nil, &all)
}

// CallMethod calls a method of a member and decodes its result into result.
func (p pubsub) CallMethod(provider, method string, args, result any) error {
	return p.call("callMethod", map[string]any{"providerId": provider, "methodName": method,
		"args": args}, result)
}

// Settings decodes the settings of the channel into into.
func (p pubsub) Settings(into any) error { return p.call("getSettings", nil, into) }

// UpdateSettings merges patch into the settings of the channel. A null member deletes a setting.
func (p pubsub) UpdateSettings(patch any) error {
	return p.call("updateSettings", map[string]any{"patch": patch}, nil)
}

// An Error is the error of a failed call.
type Error struct{ Code, Message string }

func (e *Error) Error() string { return e.Message }

// delta returns the text that a server-sent event adds to a model's answer, in one of three API
// formats, or "".
func delta(data []byte) string {
	var e struct {
		Type    string
		Delta   json.RawMessage
		Choices []struct{ Delta struct{ Content string } }
	}
	if json.Unmarshal(data, &e) != nil {
		return ""
	}
	switch {
	case e.Type == "content_block_delta":
		var d struct{ Text string }
		json.Unmarshal(e.Delta, &d)
		return d.Text
	case e.Type == "response.output_text.delta":
		var text string
		json.Unmarshal(e.Delta, &text)
		return text
	case len(e.Choices) > 0:
		return e.Choices[0].Delta.Content
	}
	return ""
}

// stream reads a stream of AI.streamText and calls f with each part of the text.
func stream(h handle, f func(string) error) error {
	defer h.close()
	in := bufio.NewReader(h)
	for event := ""; ; {
		line, end := in.ReadString('\n')
		if end != nil && end != io.EOF {
			return end
		}
		line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		var err error
		switch {
		case line == "":
			event = ""
		case strings.HasPrefix(line, "{"):
			// The answer is not a stream but an error.
			err = unwrap([]byte(line), nil)
		case field == "event":
			event = value
		case field == "data" && event == "error":
			e := &Error{Code: "model", Message: value}
			json.Unmarshal([]byte(value), e)
			err = e
		case field == "data":
			if text := delta([]byte(value)); text != "" {
				err = f(text)
			}
		}
		if err != nil || end == io.EOF {
			return err
		}
	}
}
