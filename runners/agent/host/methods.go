package host

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/runners/agent/store"
)

const (
	// maxEffects bounds all effects of an event together, in bytes: they must fit into one report.
	maxEffects = 768 << 10
	// maxLog bounds a line of the guest's log, in bytes.
	maxLog = 16 << 10
)

// A method answers one call of the guest.
type method func(h *Host, params json.RawMessage) (any, error)

// with returns a method that decodes its JSON parameters into a T and calls do.
func with[T any](do func(h *Host, p T) (any, error)) method {
	return func(h *Host, params json.RawMessage) (any, error) {
		var p T
		if err := agent.Params(params, &p); err != nil {
			return nil, err
		}
		return do(h, p)
	}
}

// methods are the methods that the host itself answers, by binding and name.
var methods = map[string]map[string]method{
	agent.PubSub: {
		"send":           with(send),
		"update":         with(update),
		"complete":       with(complete),
		"updateSettings": with(updateSettings),
	},
	agent.Storage: {
		"exec":  with(exec),
		"run":   with(run),
		"get":   with(get),
		"query": with(query),
	},
	agent.Host: {
		"ready":      ready,
		"log":        with(logLine),
		"setState":   setState,
		"checkpoint": with(checkpoint),
		"fail":       with(failEvent),
		"setAlarm":   with(setAlarm),
		"clearAlarm": with(clearAlarm),
		"propose":    propose,
		"return":     with(returnResult),
	},
}

// forwarded are the methods that jail-agentd answers, by binding and name. True means a stream.
var forwarded = map[string]map[string]bool{
	agent.PubSub: {"discoverMethodDefs": false, "callMethod": false, "roster": false,
		"getSettings": false},
	agent.AI: {"listRoles": false, "streamText": true},
	agent.Host: {"facet": false, "facets": false, "callFacets": false, "abortFacet": false,
		"deleteFacet": false, agent.MethodLoad: false, agent.MethodCommand: false,
		agent.MethodPropose: false, agent.MethodDiscard: false,
		"gatekeepers": false, "gateRead": false, "gatePropose": false},
}

// Call calls the method name of a binding for the guest. params is a JSON object or empty.
func (h *Host) Call(binding, name string, params []byte) *Answer {
	if h.o.Once {
		return h.callOnce(binding, name, params)
	}
	if !slices.Contains(h.o.Bindings, binding) {
		return answerOf(nil, agent.Errorf(agent.ErrNoBinding, "there is no binding %s: it is not "+
			"among the capabilities that the manifest asks for and the policy grants",
			printable(binding)))
	}
	params, err := bounded(params, agent.MaxParamsOf(binding, name))
	if err != nil {
		return answerOf(nil, err)
	}
	if m, ok := methods[binding][name]; ok {
		return answerOf(m(h, params))
	}
	stream, ok := forwarded[binding][name]
	if !ok {
		return answerOf(nil, agent.Errorf(agent.ErrNoMethod, "%s has no method %s", binding,
			printable(name)))
	}
	return h.forward(binding, name, params, stream)
}

// bounded returns params, or {} if params is empty. It returns an error above most bytes.
func bounded(params []byte, most int) ([]byte, error) {
	if len(params) > most {
		return nil, agent.Errorf(agent.ErrTooLarge, "the parameters have %d bytes, more than %d",
			len(params), most)
	}
	if len(bytes.TrimSpace(params)) == 0 {
		return []byte("{}"), nil
	}
	return params, nil
}

// printable returns a name from the guest quoted and shortened, for an error message.
func printable(name string) string {
	const most = 64
	if len(name) > most {
		name = name[:most] + "…"
	}
	return fmt.Sprintf("%q", name)
}

// readOne returns the only parameter of a method, called name, which may be any JSON value. It
// returns an error if name is missing or there are other parameters.
func readOne(params json.RawMessage, name string) (json.RawMessage, error) {
	var p map[string]json.RawMessage
	if err := agent.Params(params, &p); err != nil {
		return nil, err
	}
	value := p[name]
	delete(p, name)
	for other := range p {
		return nil, badParams("unknown field %s", printable(other))
	}
	if len(value) == 0 {
		return nil, badParams("no %s", name)
	}
	return value, nil
}

func badParams(format string, args ...any) *agent.Error {
	return agent.Errorf(agent.ErrParams, "parameters: "+format, args...)
}

// forward sends a call to jail-agentd and returns an Answer that waits for its replies.
func (h *Host) forward(binding, name string, params []byte, stream bool) *Answer {
	var object map[string]json.RawMessage
	if err := agent.Params(params, &object); err != nil {
		return answerOf(nil, err)
	}
	p, err := h.calls.add()
	if err != nil {
		return answerOf(nil, err)
	}
	key := ""
	h.mu.Lock()
	ended := make(<-chan struct{})
	if w := h.onEvent(); w != nil {
		w.called++
		key = fmt.Sprintf("%s/%d/%d", h.o.ID, w.event.Seq, w.called)
		ended = w.ctx.Done()
	}
	h.mu.Unlock()
	call := agent.Call{ID: p.id, Binding: binding, Method: name, Key: key}
	if len(params) <= agent.MaxParams {
		call.Params = params
		h.report(agent.Report{Call: &call})
	} else {
		agent.Split(params, agent.MaxParams, func(part []byte, more bool) {
			call.Part, call.More = part, more
			h.report(agent.Report{Call: &call})
		})
	}
	next := func() (agent.Reply, error) {
		select {
		case r := <-p.replies:
			if r.Error != nil {
				return r, r.Error
			}
			return r, nil
		case <-ended:
			return agent.Reply{}, agent.Errorf(agent.ErrDeadline, "the event has ended")
		}
	}
	a := &Answer{Stream: stream, close: func() { h.calls.remove(p) }}
	if stream {
		a.more = func() ([]byte, error) { return streamed(next) }
	} else {
		a.more = func() ([]byte, error) { return whole(next), io.EOF }
	}
	return a
}

// whole reads all replies of a call with next and returns the JSON of the answer.
func whole(next func() (agent.Reply, error)) []byte {
	var text []byte
	for {
		r, err := next()
		if err != nil {
			return envelope(nil, err)
		}
		text = append(append(text, r.Chunk...), r.Result...)
		if !r.More {
			break
		}
	}
	if len(text) == 0 {
		text = []byte("null")
	}
	return envelope(json.RawMessage(text), nil)
}

// streamed returns the next part of a stream of server-sent events, with io.EOF if it is the last.
// An error of the call becomes a last event.
func streamed(next func() (agent.Reply, error)) ([]byte, error) {
	r, err := next()
	if err != nil {
		// An Error is two strings, so encoding cannot fail.
		text, _ := json.Marshal(asError(err))
		return fmt.Appendf(r.Chunk, "event: error\ndata: %s\n\n", text), io.EOF
	}
	if !r.More {
		return r.Chunk, io.EOF
	}
	return r.Chunk, nil
}

// effect adds an effect to the current event and returns the effect's id, AGENT/SEQ/N. It returns
// an error if there is no event or a limit is exceeded.
func (h *Host) effect(e agent.Effect) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.onEvent()
	if w == nil {
		return "", agent.Errorf(agent.ErrNoEvent, "there is no event: what an agent does outside "+
			"of itself belongs to an event, and is done when the event is committed")
	}
	if w.failed != nil {
		return "", w.failed
	}
	for what, name := range map[string]string{"receiver": e.To, "name": e.Name, "id": e.ID,
		"type": e.Type, "reply_to": e.ReplyTo} {
		// An id is AGENT/SEQ/N.
		if len(name) > 4*agent.MaxName {
			return "", badParams("the %s has %d bytes, more than %d", what, len(name),
				4*agent.MaxName)
		}
	}
	if agent.Reserved(e.Type) {
		return "", badParams("the type %s is given by jail-agentd alone: take another one",
			printable(e.Type))
	}
	if len(w.effects) >= agent.MaxEffects {
		return "", agent.Errorf(agent.ErrTooLarge, "the event has %d effects already",
			agent.MaxEffects)
	}
	e.N = len(w.effects) + 1
	text, err := json.Marshal(e)
	if err != nil {
		return "", badParams("%v", err)
	}
	if w.size += len(text); len(text) > agent.MaxEvent || w.size > maxEffects {
		w.size -= len(text)
		return "", agent.Errorf(agent.ErrTooLarge, "more than %d KiB in one, or %d KiB in all "+
			"effects of an event", agent.MaxEvent>>10, maxEffects>>10)
	}
	w.effects = append(w.effects, e)
	return fmt.Sprintf("%s/%d/%d", h.o.ID, w.event.Seq, e.N), nil
}

// nothing is the result of methods that return nothing.
type nothing struct{}

type id struct {
	ID string `json:"id"`
}

// options are the options of PUBSUB.send and PUBSUB.update.
type options struct {
	To      string `json:"to"`
	Type    string `json:"type"`
	ReplyTo string `json:"reply_to"`
}

func send(h *Host, p struct {
	Content json.RawMessage `json:"content"`
	Options options         `json:"options"`
}) (any, error) {
	if len(p.Content) == 0 {
		return nil, badParams("no content")
	}
	sent, err := h.effect(agent.Effect{Op: agent.OpSend, To: p.Options.To, Type: p.Options.Type,
		ReplyTo: p.Options.ReplyTo, Data: p.Content})
	return id{sent}, err
}

func update(h *Host, p struct {
	ID      string          `json:"id"`
	Content json.RawMessage `json:"content"`
	Options options         `json:"options"`
}) (any, error) {
	if p.ID == "" || len(p.Content) == 0 {
		return nil, badParams("no id, or no content")
	}
	_, err := h.effect(agent.Effect{Op: agent.OpUpdate, ID: p.ID, To: p.Options.To,
		Type: p.Options.Type, ReplyTo: p.Options.ReplyTo, Data: p.Content})
	return nothing{}, err
}

func complete(h *Host, p id) (any, error) {
	if p.ID == "" {
		return nil, badParams("no id")
	}
	_, err := h.effect(agent.Effect{Op: agent.OpComplete, ID: p.ID})
	return nothing{}, err
}

func updateSettings(h *Host, p struct {
	Patch map[string]json.RawMessage `json:"patch"`
}) (any, error) {
	if p.Patch == nil {
		return nil, badParams("no patch")
	}
	patch, err := json.Marshal(p.Patch)
	if err != nil {
		return nil, badParams("%v", err)
	}
	_, err = h.effect(agent.Effect{Op: agent.OpSettings, Data: patch})
	return nothing{}, err
}

func ready(*Host, json.RawMessage) (any, error) { return nothing{}, nil }

func logLine(h *Host, l agent.Log) (any, error) {
	if !slices.Contains([]string{"info", "warn", "error"}, l.Level) {
		return nil, badParams("level %s: want info, warn or error", printable(l.Level))
	}
	if len(l.Message) > maxLog {
		return nil, agent.Errorf(agent.ErrTooLarge, "the message has %d bytes, more than %d",
			len(l.Message), maxLog)
	}
	h.report(agent.Report{Log: &l})
	return nothing{}, nil
}

func setState(h *Host, params json.RawMessage) (any, error) {
	state, err := readOne(params, "state")
	if err != nil {
		return nil, err
	}
	_, err = h.effect(agent.Effect{Op: agent.OpState, Data: state})
	return nothing{}, err
}

func setAlarm(h *Host, p struct {
	Name string          `json:"name"`
	At   time.Time       `json:"at"`
	InMS int64           `json:"in_ms"`
	Data json.RawMessage `json:"data"`
}) (any, error) {
	switch {
	case p.Name == "":
		return nil, badParams("no name")
	case p.At.IsZero() == (p.InMS == 0):
		return nil, badParams("want either at, a time as in RFC 3339, or in_ms, milliseconds from now")
	case p.InMS < 0 || p.InMS > int64(maxAlarm/time.Millisecond):
		return nil, badParams("in_ms: want 1 to %d", int64(maxAlarm/time.Millisecond))
	case p.InMS > 0:
		p.At = time.Now().Add(time.Duration(p.InMS) * time.Millisecond)
	}
	_, err := h.effect(agent.Effect{Op: agent.OpAlarm, Name: p.Name, At: p.At.UTC(), Data: p.Data})
	return nothing{}, err
}

// maxAlarm bounds how far in the future in_ms may set an alarm.
const maxAlarm = 10 * 365 * 24 * time.Hour

func clearAlarm(h *Host, p struct {
	Name string `json:"name"`
}) (any, error) {
	if p.Name == "" {
		return nil, badParams("no name")
	}
	_, err := h.effect(agent.Effect{Op: agent.OpClearAlarm, Name: p.Name})
	return nothing{}, err
}

func propose(h *Host, params json.RawMessage) (any, error) {
	action, err := readOne(params, "action")
	if err != nil {
		return nil, err
	}
	if len(action) > agent.MaxProposal {
		return nil, agent.Errorf(agent.ErrTooLarge, "the action has %d bytes, more than %d",
			len(action), agent.MaxProposal)
	}
	proposed, err := h.effect(agent.Effect{Op: agent.OpPropose, Data: action})
	return id{proposed}, err
}

// returnResult sends the result of the call that the current event holds. It returns an error if
// the event is not of TypeCall.
func returnResult(h *Host, p struct {
	Result json.RawMessage `json:"result"`
}) (any, error) {
	if len(p.Result) == 0 {
		return nil, badParams("no result")
	}
	h.mu.Lock()
	of := ""
	if w := h.onEvent(); w != nil && w.event.Type == agent.TypeCall {
		of = w.event.ID
	}
	h.mu.Unlock()
	if of == "" {
		return nil, agent.Errorf(agent.ErrNoEvent, "there is no event of the type %s to answer",
			agent.TypeCall)
	}
	_, err := h.effect(agent.Effect{Op: agent.OpSend, Type: agent.TypeResult, ReplyTo: of,
		Data: p.Result})
	return nothing{}, err
}

// checkEvent returns an error unless the guest works on event seq. h.mu is held.
func (h *Host) checkEvent(seq uint64) error {
	switch w := h.onEvent(); {
	case w == nil:
		return agent.Errorf(agent.ErrNoEvent, "there is no event")
	case w.event.Seq != seq:
		return badParams("seq is %d, but the event is %d", seq, w.event.Seq)
	}
	return nil
}

func checkpoint(h *Host, p struct {
	Seq uint64 `json:"seq"`
}) (any, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.checkEvent(p.Seq); err != nil {
		return nil, err
	}
	if err := h.commit(); err != nil {
		h.fail(err)
		return nil, err
	}
	h.operate()
	h.committed()
	return nothing{}, nil
}

// failEvent fails the current event because the guest says that it cannot handle it.
func failEvent(h *Host, p struct {
	Seq     uint64 `json:"seq"`
	Message string `json:"message"`
}) (any, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.checkEvent(p.Seq); err != nil {
		return nil, err
	}
	h.fail(agent.Errorf(agent.ErrFailed, "%s", p.Message[:min(len(p.Message), maxLog)]))
	return nothing{}, nil
}

// inStore calls f in the transaction of the current work. It starts both if needed.
func (h *Host) inStore(f func(w *work) error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.work
	if w == nil {
		w = h.begin(nil)
	}
	if w.failed != nil {
		return w.failed
	}
	if !h.store.Inside() {
		if err := h.store.Begin(w.ctx); err != nil {
			return err
		}
	}
	err := f(w)
	if h.store.Ended() {
		// The event cannot be committed any more, even if the guest ignores the error.
		w.failed = asError(err)
	}
	return err
}

func exec(h *Host, p struct {
	SQL string `json:"sql"`
}) (any, error) {
	err := h.inStore(func(w *work) error {
		_, err := h.store.Run(w.ctx, p.SQL, nil)
		return err
	})
	return nothing{}, err
}

// A statement is the parameters of most methods of STORAGE.
type statement struct {
	SQL    string            `json:"sql"`
	Params []json.RawMessage `json:"params"`
}

func run(h *Host, p statement) (any, error) {
	var changed store.Changed
	err := h.inStore(func(w *work) (err error) {
		changed, err = h.store.Run(w.ctx, p.SQL, p.Params)
		return err
	})
	return changed, err
}

func get(h *Host, p statement) (any, error) {
	rows, err := h.rows(p, 1)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return rows[0], nil
}

// maxRows is how many rows a query returns at most.
const maxRows = 1 << 20

func query(h *Host, p statement) (any, error) { return h.rows(p, maxRows) }

func (h *Host) rows(p statement, most int) (rows []json.RawMessage, err error) {
	err = h.inStore(func(w *work) (err error) {
		rows, err = h.store.Query(w.ctx, p.SQL, p.Params, most)
		return err
	})
	return rows, err
}
