package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jail-sandbox/jail/runners/agent"
)

// Bounds of an instance: its number of alarms, and the bytes of its state text and its settings.
const (
	maxAlarms   = 1000
	maxNote     = 1 << 10
	maxSettings = 64 << 10
	// publications is how many publications of each instance are kept.
	publications = 1000
)

// ErrUnknown: an agent claims to have committed an event that was never delivered to it.
var ErrUnknown = errors.New("no such event was delivered")

// A Settlement is the result of Ack.
type Settlement struct {
	// Woken are the instances that got new events. An id may occur several times.
	Woken []int64
	// Refused has a message for each refused effect, with the reason.
	Refused []string
	// Spilled names the messages that became dead letters because the receiver's inbox was full.
	Spilled []string
	// Alarms: an alarm was set or has fired.
	Alarms bool
	// Proposed: there are new proposals for the approval queue.
	Proposed bool
	// Events are the events that Ack's Want asked for. More: there may be further ones.
	Events []agent.Event
	More   bool
}

// AgentID returns the id of the agent with this name: agent:USER:NAME.
func (s *Store) AgentID(name string) string { return "agent:" + s.user + ":" + name }

// Ack removes the committed events up to seq from the inbox of an instance and delivers their
// effects, in one transaction. It skips effects of events that were settled before, so it may be
// repeated. If the inbox of a receiver is full, it returns ErrFull and changes nothing; with spill,
// the message becomes a dead letter of the receiver instead. In the same transaction Ack delivers
// the events that want asks for, as Next does, none if the limit is 0.
func (s *Store) Ack(of int64, seq uint64, effects []agent.Effects, spill bool,
	want Want) (Settlement, error) {
	var done Settlement
	err := s.write(func(w *writer) error {
		done = Settlement{}
		now := s.now()
		from, err := scanOne(w, of)
		if err != nil {
			return err
		}
		if seq > from.Delivered {
			return fmt.Errorf("event %d, where %d is the last that was delivered: %w", seq,
				from.Delivered, ErrUnknown)
		}
		d := delivery{w: w, from: from, source: s.AgentID(PathOf(from)), now: now, spill: spill,
			lost: map[int64]bool{}, done: &done}
		for _, e := range effects {
			if e.Seq <= from.Settled {
				continue
			}
			if e.Seq > seq {
				return fmt.Errorf("effects of event %d after event %d: %w", e.Seq, seq, ErrUnknown)
			}
			if err := d.all(e); err != nil {
				return err
			}
		}
		for id := range d.lost {
			if err := w.buried(id); err != nil {
				return err
			}
		}
		if want.Limit > 0 {
			if done.Events, done.More, err = w.next(of, want); err != nil {
				return err
			}
		}
		if seq <= from.Settled {
			return nil
		}
		fired, err := w.fired(of, seq, now)
		if err != nil {
			return err
		}
		done.Alarms = done.Alarms || fired
		n, bytes, err := w.take(of, 0, seq)
		if err != nil {
			return err
		}
		return w.exec(`UPDATE instance SET settled = ?, failures = 0, not_before = 0, error = '',
			waiting = waiting - ?, bytes = bytes - ? WHERE id = ?`, seq, n, bytes, of)
	})
	return done, err
}

// scanOne returns the instance with this id, or ErrNotFound, also if it is being deleted.
func scanOne(w *writer, id int64) (Instance, error) {
	return instance(w.rows, `id = ? AND deleting = 0`, id)
}

// A delivery carries out the effects of one instance's events.
type delivery struct {
	w      *writer
	from   Instance
	source string
	now    time.Time
	spill  bool
	// lost are the receivers that got dead letters.
	lost map[int64]bool
	done *Settlement
}

// all carries out the effects of one event. It adds effects that are not allowed to Refused. It
// returns only errors of the database and ErrFull.
func (d *delivery) all(e agent.Effects) error {
	if len(e.Effects) > agent.MaxEffects {
		d.refuse(e.Seq, 0, fmt.Errorf("%d effects, more than %d", len(e.Effects), agent.MaxEffects))
		return nil
	}
	for _, f := range e.Effects {
		var no refusal
		switch err := d.one(e.Seq, f); {
		case errors.As(err, &no):
			d.refuse(e.Seq, f.N, no)
		case err != nil:
			return err
		}
	}
	// Trimming is too slow for each event.
	if e.Seq%64 == 0 {
		return d.w.trim(d.from.ID)
	}
	return nil
}

// A refusal is the reason why an effect is not carried out.
type refusal string

func (r refusal) Error() string { return string(r) }

func refused(format string, args ...any) error { return refusal(fmt.Sprintf(format, args...)) }

func (d *delivery) refuse(seq uint64, n int, why error) {
	d.done.Refused = append(d.done.Refused, fmt.Sprintf("effect %d of event %d: %v", n, seq, why))
}

func (d *delivery) one(seq uint64, f agent.Effect) error {
	for _, name := range []string{f.To, f.Name, f.ID, f.Type, f.ReplyTo} {
		if len(name) > 4*agent.MaxName || !utf8.ValidString(name) {
			return refused("a name of %d bytes", len(name))
		}
	}
	if len(f.Data) > agent.MaxEvent || len(f.Data) > 0 && !json.Valid(f.Data) {
		return refused("%d bytes of data, which must be JSON of at most %d bytes", len(f.Data),
			agent.MaxEvent)
	}
	if agent.Reserved(f.Type) {
		return refused("the type %q is given by jail-agentd alone", f.Type)
	}
	id := fmt.Sprintf("%s/%d/%d", d.source, seq, f.N)
	switch f.Op {
	case agent.OpSend, agent.OpUpdate, agent.OpComplete:
		return d.send(id, f)
	case agent.OpAlarm:
		return d.alarm(f)
	case agent.OpClearAlarm:
		return d.w.exec(`DELETE FROM alarm WHERE instance = ? AND name = ? AND name <> ''`,
			d.from.ID, f.Name)
	case agent.OpSettings:
		return d.settings(f)
	case agent.OpState:
		return d.note(f)
	case agent.OpPropose:
		return d.propose(id, f)
	}
	return refused("%q is no operation", f.Op)
}

// send delivers a message, or an update or completion of an earlier message.
func (d *delivery) send(id string, f agent.Effect) error {
	e := agent.Event{ID: id, Time: d.now, Source: d.source, Type: f.Type, Kind: agent.KindNew,
		ReplyTo: f.ReplyTo, Data: f.Data}
	if f.Op != agent.OpSend {
		var err error
		if f.To, err = d.sentTo(f.ID); err != nil {
			return err
		}
		e.ReplyTo, e.Kind = f.ID, agent.KindUpdate
		if f.Op == agent.OpComplete {
			e.Kind = agent.KindComplete
		}
	}
	channel, name, err := d.address(f.To)
	if err != nil {
		return err
	}
	e.Channel = channel
	var receivers []receiver
	// The caller reads the result of a call from the publications.
	if f.Type != agent.TypeResult {
		if receivers, err = d.receivers(channel, name); err != nil {
			return err
		}
	}
	for _, r := range receivers {
		e.Type = typeFor(f.Type, name != "", f.Data, r.handle)
		_, err := d.w.deliver(r, e, false)
		if errors.Is(err, ErrFull) && d.spill {
			d.done.Spilled = append(d.done.Spilled, fmt.Sprintf("%s to agent %q", id, r.agent))
			err = d.lose(r, e)
		} else if err == nil {
			d.done.Woken = append(d.done.Woken, r.id)
		}
		if err != nil {
			return err
		}
	}
	e.Type = typeFor(f.Type, name != "", nil, "")
	return d.publish(e, name)
}

// typeFor returns the event type of a message for one receiver. A type of the sender's own is kept.
// Otherwise the type is direct, mention or message, by the receiver and the text: which of these
// the sender gave does not matter.
func typeFor(given string, direct bool, data []byte, handle string) string {
	switch given {
	case "", agent.TypeMessage, agent.TypeMention, agent.TypeDirect:
		if direct {
			return agent.TypeDirect
		}
		return MessageType(data, handle)
	}
	return given
}

// MessageType returns TypeMention if a channel message mentions @handle, else TypeMessage.
func MessageType(data []byte, handle string) string {
	if mentions(data, handle) {
		return agent.TypeMention
	}
	return agent.TypeMessage
}

// mentions reports whether text contains @handle as a word.
func mentions(text []byte, handle string) bool {
	if handle == "" {
		return false
	}
	word := func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' }
	for {
		at := bytes.Index(text, []byte("@"+handle))
		if at < 0 {
			return false
		}
		before, _ := utf8.DecodeLastRune(text[:at])
		text = text[at+1+len(handle):]
		after, _ := utf8.DecodeRune(text)
		if !word(before) && !word(after) {
			return true
		}
	}
}

// address resolves the To of an effect to a channel and, for a direct message, to an agent's name.
func (d *delivery) address(to string) (channel, name string, err error) {
	if to == "" || to == d.from.Channel {
		return d.from.Channel, "", nil
	}
	var n int
	err = d.w.row(`SELECT 1 FROM instance WHERE agent = ? AND channel = ? AND state <> ?`,
		[]any{d.from.Agent, to, Terminated}, &n)
	if err != ErrNotFound {
		return to, "", err
	}
	name = strings.TrimPrefix(to, d.source[:strings.LastIndexByte(d.source, ':')+1])
	err = d.w.row(`SELECT channel FROM instance WHERE agent = ? AND state <> ?
		ORDER BY channel <> ?, id LIMIT 1`, []any{name, Terminated, d.from.Channel}, &channel)
	if err == ErrNotFound {
		err = refused("%q is neither a channel of agent %q nor an agent", to, d.from.Agent)
	}
	return channel, name, err
}

// receivers returns the receivers of a message on a channel: the instance of the agent name or, if
// name is empty, all other members.
func (d *delivery) receivers(channel, name string) ([]receiver, error) {
	text, args := `SELECT `+receiverColumns+` FROM instance WHERE channel = ? AND state <> ?
		AND id <> ? AND parent = 0 ORDER BY id`, []any{channel, Terminated, d.from.ID}
	if name != "" {
		text, args = `SELECT `+receiverColumns+` FROM instance WHERE channel = ? AND state <> ?
			AND agent = ? AND parent = 0`, []any{channel, Terminated, name}
	}
	return list(d.w.rows, text, args, scanReceiver)
}

// sentTo returns the channel or agent to which this instance sent the message with this id.
func (d *delivery) sentTo(id string) (to string, err error) {
	var channel, name string
	err = d.w.row(`SELECT channel, receiver FROM publication WHERE instance = ? AND id = ?
		AND kind = ? ORDER BY n DESC LIMIT 1`, []any{d.from.ID, id, agent.KindNew}, &channel, &name)
	switch {
	case err == ErrNotFound:
		return "", refused("%q is no message of agent %q, or one of more than %d messages ago", id,
			d.from.Agent, publications)
	case name != "":
		return name, err
	}
	return channel, err
}

// lose makes an event a dead letter of r, because r's inbox is full.
func (d *delivery) lose(r receiver, e agent.Event) error {
	seq, err := d.w.number(r.agent)
	if err != nil {
		return err
	}
	d.lost[r.id] = true
	return d.w.exec(`INSERT INTO dead VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?)`, r.id, seq,
		e.ID, millis(e.Time), e.Source, e.Channel, e.Type, e.Kind, e.ReplyTo, []byte(e.Data),
		millis(d.now), "the inbox was full")
}

// publish stores a message that the instance sent as a publication.
func (d *delivery) publish(e agent.Event, receiver string) error {
	return d.w.exec(`INSERT INTO publication (instance, time, channel, receiver, kind, id, type,
		reply_to, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`, d.from.ID, millis(d.now), e.Channel,
		receiver, e.Kind, e.ID, e.Type, e.ReplyTo, []byte(e.Data))
}

// trim deletes all but the last publications of an instance.
func (w *writer) trim(of int64) error {
	return w.exec(`DELETE FROM publication WHERE n IN (SELECT n FROM publication
		WHERE instance = ? ORDER BY n DESC LIMIT -1 OFFSET ?)`, of, publications)
}

func (d *delivery) note(f agent.Effect) error {
	var text string
	if json.Unmarshal(f.Data, &text) != nil {
		text = string(f.Data)
	}
	if len(text) > maxNote {
		return refused("a state of %d bytes, more than %d", len(text), maxNote)
	}
	return d.w.exec(`UPDATE instance SET note = ? WHERE id = ?`, text, d.from.ID)
}

// settings merges a JSON object into the settings of a channel. A null member deletes the setting,
// any other member replaces it.
func (d *delivery) settings(f agent.Effect) error {
	channel, name, err := d.address(f.To)
	if err != nil {
		return err
	}
	var patch map[string]json.RawMessage
	if name != "" || json.Unmarshal(f.Data, &patch) != nil {
		return refused("settings are an object, for a channel")
	}
	merged := map[string]json.RawMessage{}
	var old []byte
	err = d.w.row(`SELECT value FROM settings WHERE channel = ?`, []any{channel}, &old)
	if err == nil {
		err = json.Unmarshal(old, &merged)
	}
	if err != nil && err != ErrNotFound {
		return err
	}
	for key, value := range patch {
		if string(value) == "null" {
			delete(merged, key)
		} else {
			merged[key] = value
		}
	}
	text, err := json.Marshal(merged)
	if err != nil {
		return err
	}
	if len(text) > maxSettings {
		return refused("settings of %d bytes, more than %d", len(text), maxSettings)
	}
	return d.w.exec(`INSERT INTO settings VALUES (?, ?) ON CONFLICT DO UPDATE
		SET value = excluded.value`, channel, text)
}
