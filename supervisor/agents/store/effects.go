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

// Bounds of what an agent may leave here.
const (
	maxAlarms   = 1000
	maxNote     = 1 << 10
	maxSettings = 64 << 10
	// publications are kept of each instance, the last ones.
	publications = 1000
)

// ErrUnknown: an agent claims to have committed an event that was never given to it.
var ErrUnknown = errors.New("no such event was delivered")

// A Settlement is what came of committed events.
type Settlement struct {
	// Woken are the instances that have new events, some of them several times.
	Woken []int64
	// Refused says which effects were not carried out, and why.
	Refused []string
	// Spilled says which sends a full inbox had no room for; they are dead letters of the receiver.
	Spilled []string
	// Alarms were set, or have fired.
	Alarms bool
	// Proposed: there are new proposals for the approval queue.
	Proposed bool
	// Events are those that were wanted, and More says that there may be further ones.
	Events []agent.Event
	More   bool
}

// AgentID is the identity of an agent.
func (s *Store) AgentID(name string) string { return "agent:" + s.user + ":" + name }

// Ack takes the events of an instance up to a number out of its inbox, because they are committed,
// and delivers their effects, all in one transaction. Effects of events that were settled before
// are left out, so Ack may be repeated. If the inbox of a receiver is full it does nothing and
// returns ErrFull, or with spill makes what does not fit a dead letter of the receiver. It delivers
// the events that are wanted, as Next does; none if the limit is 0.
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

// scanOne returns an instance that is not being deleted.
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

// all carries the effects of one event out. An effect that an agent may not have is left out and
// named; an error is one of the database, or ErrFull.
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
	// Not every event pays for that.
	if e.Seq%64 == 0 {
		return d.w.trim(d.from.ID)
	}
	return nil
}

// refusal is the reason why an effect is left out.
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

// send delivers a message, or an update or the completion of one.
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
	// The result of a call is for the caller, who waits for it.
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

// typeFor returns the type of a message for one receiver: a message that has no type of its
// sender's is a direct one, one that mentions the receiver's handle, or a plain one. Which of these
// it is does not depend on what the sender says.
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

// MessageType returns the type of a message to a channel for a receiver: a mention if it has the
// handle in it as @handle, or a plain message.
func MessageType(data []byte, handle string) string {
	if mentions(data, handle) {
		return agent.TypeMention
	}
	return agent.TypeMessage
}

// mentions reports whether @handle stands in a text as a word.
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

// address turns the receiver of a send into a channel, and for a direct message the agent's name.
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

// receivers returns who gets a message on a channel: all other members, or one agent's instance.
func (d *delivery) receivers(channel, name string) ([]receiver, error) {
	text, args := `SELECT `+receiverColumns+` FROM instance WHERE channel = ? AND state <> ?
		AND id <> ? AND parent = 0 ORDER BY id`, []any{channel, Terminated, d.from.ID}
	if name != "" {
		text, args = `SELECT `+receiverColumns+` FROM instance WHERE channel = ? AND state <> ?
			AND agent = ? AND parent = 0`, []any{channel, Terminated, name}
	}
	return list(d.w.rows, text, args, scanReceiver)
}

// sentTo returns where a message of this instance went, to send an update after it.
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

// lose makes an event that has no room a dead letter.
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

// publish notes what an agent sent.
func (d *delivery) publish(e agent.Event, receiver string) error {
	return d.w.exec(`INSERT INTO publication (instance, time, channel, receiver, kind, id, type,
		reply_to, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`, d.from.ID, millis(d.now), e.Channel,
		receiver, e.Kind, e.ID, e.Type, e.ReplyTo, []byte(e.Data))
}

// trim forgets the publications of an instance but the last ones.
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

// settings merges an object into the settings of the agent's channel: a member that is null is
// removed, any other replaces the one of that name.
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
