package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
)

// A set is an alarm with the id of its instance.
type set struct {
	agentapi.Alarm
	instance int64
}

const alarmColumns = `instance, name, at, every, pending, data`

func scanAlarm(scan func(...any) error) (a set, err error) {
	return a, scan(&a.instance, &a.Name, (*stamp)(&a.At), &a.EveryMS, &a.Pending,
		(*[]byte)(&a.Data))
}

// alarm carries out an OpAlarm: it sets an alarm, or changes the one with the same name.
func (d *delivery) alarm(f agent.Effect) error {
	if f.Name == "" || f.At.IsZero() || f.At.UnixMilli() <= 0 {
		return refused("an alarm needs a name, and a time after 1970")
	}
	var n int
	if err := d.w.row(`SELECT count(*) FROM alarm WHERE instance = ? AND name <> ?`,
		[]any{d.from.ID, f.Name}, &n); err != nil {
		return err
	}
	if n >= maxAlarms {
		return refused("agent %q has %d alarms already", d.from.Agent, n)
	}
	d.done.Alarms = true
	return d.w.exec(`INSERT INTO alarm (instance, name, at, every, pending, data)
		VALUES (?, ?, ?, 0, 0, ?) ON CONFLICT DO UPDATE SET at = excluded.at,
		data = excluded.data`, d.from.ID, f.Name, millis(f.At), []byte(f.Data))
}

// Fire puts an event into the inbox for each alarm that is due. It returns the ids of the instances
// and when the next alarm is due, or the zero time if none is set. An alarm does not fire again
// while its last event still waits in the inbox.
func (s *Store) Fire() (woken []int64, next time.Time, err error) {
	err = s.write(func(w *writer) error {
		woken = woken[:0]
		now := s.now()
		// After the clock was set back, a heartbeat would be late by more than its interval.
		if err := w.exec(`UPDATE alarm SET at = ? + every WHERE every > 0 AND pending = 0
			AND at > ? + every`, millis(now), millis(now)); err != nil {
			return err
		}
		due, err := list(w.rows, `SELECT `+alarmColumns+` FROM alarm
			WHERE at > 0 AND pending = 0 AND at <= ? ORDER BY at LIMIT 1000`, []any{millis(now)},
			scanAlarm)
		if err != nil {
			return err
		}
		for _, a := range due {
			seq, err := w.fire(a, now)
			if err == nil {
				woken = append(woken, a.instance)
			} else if !errors.Is(err, ErrFull) && err != ErrNotFound {
				return err
			}
			// If the inbox is full, try again after fullPause.
			at := int64(0)
			if err != nil {
				at = millis(now.Add(fullPause))
			}
			if err := w.exec(`UPDATE alarm SET pending = ?, at = ? WHERE instance = ? AND name = ?`,
				seq, at, a.instance, a.Name); err != nil {
				return err
			}
		}
		var at int64
		err = w.row(`SELECT at FROM alarm WHERE at > 0 AND pending = 0 ORDER BY at LIMIT 1`, nil,
			&at)
		next = fromMillis(at)
		return unless(ErrNotFound, err)
	})
	return woken, next, err
}

// fullPause is the time until an alarm is retried whose inbox was full.
const fullPause = 10 * time.Second

// fire puts the event of an alarm into the inbox and returns the event's number.
func (w *writer) fire(a set, now time.Time) (uint64, error) {
	e := agent.Event{Source: "host", Type: agent.TypeAlarm}
	said := map[string]any{"at": a.At, "late_ms": now.Sub(a.At).Milliseconds()}
	if a.Name == "" {
		e.Type = agent.TypeTick
	} else {
		said["name"] = a.Name
	}
	if len(a.Data) > 0 {
		said["data"] = a.Data
	}
	text, err := json.Marshal(said)
	if err != nil {
		return 0, fmt.Errorf("alarm %q: %w", a.Name, err)
	}
	e.Data = text
	seq, _, err := w.append(a.instance, e, now, false)
	return seq, err
}

// fired handles the alarms whose events are numbered up to seq, after these are committed. It
// deletes such an alarm unless it was set again, and rearms a heartbeat. It reports whether there
// were any.
func (w *writer) fired(of int64, seq uint64, now time.Time) (some bool, err error) {
	var n int
	args := []any{of, seq}
	if err := w.row(`SELECT count(*) FROM alarm WHERE instance = ? AND pending > 0
		AND pending <= ?`, args, &n); err != nil || n == 0 {
		return false, err
	}
	if err := w.exec(`DELETE FROM alarm WHERE instance = ? AND pending > 0 AND pending <= ?
		AND at = 0 AND every = 0`, of, seq); err != nil {
		return false, err
	}
	return true, w.exec(`UPDATE alarm SET pending = 0, at = CASE WHEN every > 0 THEN ? + every ELSE at END
		WHERE instance = ? AND pending > 0 AND pending <= ?`, millis(now), of, seq)
}

// Alarms returns the alarms of an instance.
func (s *Store) Alarms(ctx context.Context, of int64) (all []agentapi.Alarm, err error) {
	return all, visit(s.reading(ctx), `SELECT `+alarmColumns+` FROM alarm WHERE instance = ?
		ORDER BY name`, []any{of}, scanAlarm, func(a set) error {
		all = append(all, a.Alarm)
		return nil
	})
}

// HasAlarms reports whether any instance has an alarm.
func (s *Store) HasAlarms(ctx context.Context) (has bool, err error) {
	return has, s.readers.row(`SELECT EXISTS (SELECT 1 FROM alarm)`, nil, &has)
}
