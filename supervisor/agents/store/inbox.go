package store

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
)

// deliveryBytes bounds the data of the events that one Next returns.
const deliveryBytes = 4 << 20

const (
	// seenTime is how long ids of events are kept to detect duplicates.
	seenTime = 7 * 24 * time.Hour
	// maxSeen is how many ids of calls from one agent are kept by another to detect duplicates.
	maxSeen = 10_000
	// forgetEvery is the mean number of new ids after which old ids are deleted.
	forgetEvery = 64
)

// A receiver holds the columns of an instance that a delivery to its inbox needs.
type receiver struct {
	id      int64
	agent   string
	handle  string
	waiting int
	bytes   int64
	paused  bool
}

const receiverColumns = `id, agent, handle, waiting, bytes, paused`

func scanReceiver(scan func(...any) error) (r receiver, err error) {
	return r, scan(&r.id, &r.agent, &r.handle, &r.waiting, &r.bytes, &r.paused)
}

// receiver returns the instance with this id, or ErrNotFound if there is none or it is terminated.
func (w *writer) receiver(id int64) (receiver, error) {
	return first(w.rows, `SELECT `+receiverColumns+` FROM instance WHERE id = ? AND state <> ?`,
		[]any{id, Terminated}, scanReceiver)
}

// full reports whether the inbox cannot take an event with so many bytes of data.
func (r receiver) full(bytes int) bool {
	return r.waiting >= maxWaiting || r.bytes+int64(bytes) > maxWaitingBytes
}

// number allocates and returns the next event number of an agent.
func (w *writer) number(name string) (seq uint64, err error) {
	return seq, w.row(`UPDATE agent SET next = next + 1 WHERE name = ? RETURNING next - 1`,
		[]any{name}, &seq)
}

// deliver puts an event into an inbox and returns its new number, or ErrFull. An event without an
// id gets one. If given, it also records that the agent has got the event.
func (w *writer) deliver(to receiver, e agent.Event, given bool) (seq uint64, err error) {
	if to.full(len(e.Data)) {
		return 0, fmt.Errorf("%d events of %d bytes wait for agent %q: %w", to.waiting, to.bytes,
			to.agent, ErrFull)
	}
	if seq, err = w.number(to.agent); err != nil {
		return 0, err
	}
	if e.ID == "" {
		e.ID = unnamed(e, to.agent, seq)
	}
	if err := w.exec(`INSERT INTO inbox (instance, seq, id, time, source, channel, type, kind,
		reply_to, attempt, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, to.id, seq, e.ID,
		millis(e.Time), e.Source, e.Channel, e.Type, e.Kind, e.ReplyTo, e.Attempt,
		[]byte(e.Data)); err != nil {
		return 0, err
	}
	var delivered uint64
	if given {
		delivered = seq
	}
	return seq, w.exec(`UPDATE instance SET waiting = waiting + 1, bytes = bytes + ?,
		delivered = max(delivered, ?) WHERE id = ?`, len(e.Data), delivered, to.id)
}

// unnamed returns the id for an event that came without an id.
func unnamed(e agent.Event, name string, seq uint64) string {
	return fmt.Sprintf("%s/%s/%d", e.Source, name, seq)
}

// Append puts an event durably into the inbox of an instance and returns its number. If the source
// and id were seen before, it adds nothing and returns the earlier number. If deliver is true, the
// event is new, no other event waits and the instance is not paused, Append also counts a delivery
// and returns the event in given, else nil.
func (s *Store) Append(to int64, e agent.Event, deliver bool) (seq uint64, given *agent.Event,
	err error) {
	if len(e.Data) > agent.MaxEvent {
		return 0, nil, fmt.Errorf("an event of %d bytes, more than %d: %w", len(e.Data), agent.MaxEvent,
			ErrTooLarge)
	}
	err = s.write(func(w *writer) error {
		given = nil
		if e.ID != "" {
			err := w.row(`SELECT seq FROM seen WHERE instance = ? AND source = ? AND id = ?`,
				[]any{to, e.Source, e.ID}, &seq)
			if err != ErrNotFound {
				return err
			}
		}
		seq, given, err = w.append(to, e, s.now(), deliver)
		return err
	})
	return seq, given, err
}

// append does what Append does, without the check for duplicates.
func (w *writer) append(to int64, e agent.Event, now time.Time, deliver bool) (seq uint64,
	given *agent.Event, err error) {
	r, err := w.receiver(to)
	if err != nil {
		return 0, nil, err
	}
	named := e.ID != ""
	if e.Time.IsZero() {
		e.Time = now
	}
	if e.Kind == "" {
		e.Kind = agent.KindNew
	}
	if deliver = deliver && r.waiting == 0 && !r.paused; deliver {
		e.Attempt = 1
	}
	if seq, err = w.deliver(r, e, deliver); err != nil {
		return 0, nil, err
	}
	if named {
		err = w.exec(`INSERT INTO seen VALUES (?, ?, ?, ?, ?)`, to, e.Source, e.ID, seq,
			millis(now))
		// Random, so that no agent can time its calls to control which ids are kept.
		if err == nil && rand.IntN(forgetEvery) == 0 {
			err = w.forget(to, e.Source, now)
		}
	} else {
		e.ID = unnamed(e, r.agent, seq)
	}
	if err != nil || !deliver {
		return seq, nil, err
	}
	// Return the event as a read from the database would.
	e.Seq, e.Time = seq, fromMillis(millis(e.Time))
	return seq, &e, nil
}

// forget deletes ids older than seenTime and, if source is an agent, its ids beyond the last
// maxSeen.
func (w *writer) forget(to int64, source string, now time.Time) error {
	err := w.exec(`DELETE FROM seen WHERE time < ?`, millis(now.Add(-seenTime)))
	if err != nil || !strings.HasPrefix(source, "agent:") {
		return err
	}
	return w.exec(`DELETE FROM seen WHERE instance = ? AND source = ? AND id IN (SELECT id FROM seen
		WHERE instance = ? AND source = ? ORDER BY seq DESC LIMIT -1 OFFSET ?)`, to, source, to,
		source, maxSeen)
}

const eventColumns = `seq, id, time, source, channel, type, kind, reply_to, attempt, data`

// eventFields returns the fields of e to scan eventColumns into.
func eventFields(e *agent.Event) []any {
	return []any{&e.Seq, &e.ID, (*stamp)(&e.Time), &e.Source, &e.Channel, &e.Type, &e.Kind,
		&e.ReplyTo, &e.Attempt, (*[]byte)(&e.Data)}
}

func scanEvent(scan func(...any) error) (e agent.Event, err error) {
	return e, scan(eventFields(&e)...)
}

// Next returns at most limit events of an instance with numbers above after, in order, and whether
// there may be more. It durably counts a delivery of each before it returns. A paused instance gets
// none.
func (s *Store) Next(to int64, after uint64, limit int) (events []agent.Event, more bool,
	err error) {
	err = s.write(func(w *writer) (err error) {
		events, more, err = w.next(to, Want{after, limit})
		return err
	})
	return events, more, err
}

// A Want asks for at most Limit events of an instance with numbers above After.
type Want struct {
	After uint64
	Limit int
}

// next does what Next does. The query has LIMIT 0 + ?, since SQLite would compile it again for each
// value of a plain LIMIT ?.
func (w *writer) next(to int64, want Want) (events []agent.Event, more bool, err error) {
	bytes, room := 0, true
	err = w.rows(`SELECT `+eventColumns+` FROM inbox WHERE instance = ? AND seq > ?
		AND NOT (SELECT paused FROM instance WHERE id = ?) ORDER BY seq LIMIT 0 + ?`,
		[]any{to, want.After, to, want.Limit}, func(r *sql.Rows) error {
			e, err := scanEvent(r.Scan)
			bytes += len(e.Data)
			room = room && (len(events) == 0 || bytes <= deliveryBytes)
			if err != nil || !room {
				return err
			}
			if e.Attempt++; e.Attempt > 1 && e.Kind == agent.KindNew {
				e.Kind = agent.KindReplay
			}
			events = append(events, e)
			return nil
		})
	if more = !room || len(events) == want.Limit; err != nil || len(events) == 0 {
		return nil, more, err
	}
	last := events[len(events)-1].Seq
	if err := w.exec(`UPDATE inbox SET attempt = attempt + 1 WHERE instance = ? AND seq > ?
		AND seq <= ?`, to, want.After, last); err != nil {
		return nil, more, err
	}
	return events, more, w.exec(`UPDATE instance SET delivered = max(delivered, ?) WHERE id = ?`,
		last, to)
}

// Waiting returns the first events in the inbox of an instance, at most limit.
func (s *Store) Waiting(ctx context.Context, to int64, limit int) ([]agent.Event, error) {
	return list(s.reading(ctx), `SELECT `+eventColumns+` FROM inbox WHERE instance = ?
		ORDER BY seq LIMIT ?`, []any{to, limit}, scanEvent)
}

// Blame counts a failure on the first event in the inbox. It returns the event's number and its
// count of failures, or zeros if there is none.
func (s *Store) Blame(to int64) (seq uint64, failed int, err error) {
	err = s.write(func(w *writer) error {
		err := w.row(`UPDATE inbox SET failed = failed + 1 WHERE instance = ? AND seq =
			(SELECT min(seq) FROM inbox WHERE instance = ?) RETURNING seq, failed`, []any{to, to},
			&seq, &failed)
		return unless(ErrNotFound, err)
	})
	return seq, failed, err
}

// Head returns the number of the first event in the inbox and its count of failures, or zeros if
// there is none.
func (s *Store) Head(ctx context.Context, to int64) (seq uint64, failed int, err error) {
	err = s.readers.row(`SELECT seq, failed FROM inbox WHERE instance = ?
		ORDER BY seq LIMIT 1`, []any{to}, &seq, &failed)
	return seq, failed, unless(ErrNotFound, err)
}

// Bury moves an event from the inbox to the dead letters, with the reason. If it is the event of an
// alarm, the alarm has fired. The last 10,000 dead letters of an instance are kept.
func (s *Store) Bury(to int64, seq uint64, reason string) error {
	return s.write(func(w *writer) error {
		n, err := w.bury(to, seq, seq, reason, s.now())
		if err == nil && n == 0 {
			err = ErrNotFound
		}
		return err
	})
}

// bury buries the events numbered from to last and returns how many there were.
func (w *writer) bury(to int64, from, last uint64, reason string, now time.Time) (n int64, err error) {
	if n, err = w.changed(`INSERT INTO dead SELECT instance, seq, id, time, source, channel, type,
		kind, reply_to, attempt, data, ?, ? FROM inbox WHERE instance = ? AND seq BETWEEN ? AND ?`,
		millis(now), reason, to, from, last); err != nil {
		return n, err
	}
	if _, err := w.fired(to, last, now); err != nil {
		return n, err
	}
	if err := w.remove(to, from, last); err != nil {
		return n, err
	}
	return n, w.buried(to)
}

// buried deletes all but the last maxWaiting dead letters of an instance.
func (w *writer) buried(to int64) error {
	return w.exec(`DELETE FROM dead WHERE instance = ? AND seq IN (SELECT seq FROM dead
		WHERE instance = ? ORDER BY seq DESC LIMIT -1 OFFSET ?)`, to, to, maxWaiting)
}

// remove deletes the events numbered from to last from an inbox.
func (w *writer) remove(to int64, from, last uint64) error {
	n, bytes, err := w.take(to, from, last)
	if err != nil || n == 0 {
		return err
	}
	return w.exec(`UPDATE instance SET waiting = waiting - ?, bytes = bytes - ? WHERE id = ?`, n,
		bytes, to)
}

// take deletes the events numbered from to last and returns their count and the bytes of their
// data. The caller must subtract these from the instance's counters.
func (w *writer) take(to int64, from, last uint64) (n, bytes int64, err error) {
	if err := w.row(`SELECT count(*), coalesce(sum(length(data)), 0) FROM inbox
		WHERE instance = ? AND seq BETWEEN ? AND ?`, []any{to, from, last}, &n,
		&bytes); err != nil || n == 0 {
		return 0, 0, err
	}
	return n, bytes, w.exec(`DELETE FROM inbox WHERE instance = ? AND seq BETWEEN ? AND ?`, to, from,
		last)
}

// Letters returns the dead letters of an instance, the newest first, at most limit.
func (s *Store) Letters(ctx context.Context, of int64, limit int) ([]agentapi.Event, error) {
	return list(s.reading(ctx), `SELECT `+letterColumns+` FROM dead WHERE instance = ?
		ORDER BY seq DESC LIMIT ?`, []any{of, limit}, scanLetter)
}

// Letter returns a dead letter, or ErrNotFound.
func (s *Store) Letter(ctx context.Context, of int64, seq uint64) (agentapi.Event, error) {
	return first(s.reading(ctx), oneLetter, []any{of, seq}, scanLetter)
}

const (
	letterColumns = eventColumns + `, died, reason`
	oneLetter     = `SELECT ` + letterColumns + ` FROM dead WHERE instance = ? AND seq = ?`
)

func scanLetter(scan func(...any) error) (l agentapi.Event, err error) {
	return l, scan(append(eventFields(&l.Event), (*stamp)(&l.Died), &l.Reason)...)
}

// Dead returns the number of dead letters by instance id.
func (s *Store) Dead(ctx context.Context) (map[int64]int, error) {
	all := map[int64]int{}
	return all, s.reading(ctx)(`SELECT instance, count(*) FROM dead GROUP BY instance`, nil,
		func(r *sql.Rows) error {
			var id int64
			var n int
			err := r.Scan(&id, &n)
			all[id] = n
			return err
		})
}

// Retry moves a dead letter back to the end of the inbox and returns its new number.
func (s *Store) Retry(of int64, seq uint64) (again uint64, err error) {
	err = s.write(func(w *writer) error {
		r, err := w.receiver(of)
		if err != nil {
			return err
		}
		l, err := first(w.rows, oneLetter, []any{of, seq}, scanLetter)
		if err != nil {
			return err
		}
		if again, err = w.deliver(r, l.Event, false); err != nil {
			return err
		}
		return w.exec(`DELETE FROM dead WHERE instance = ? AND seq = ?`, of, seq)
	})
	return again, err
}
