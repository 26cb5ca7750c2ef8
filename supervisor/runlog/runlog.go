// Package runlog puts one run on record: it gives each event of the run the run's id, its session,
// its user and its policy, and remembers which records are the run's.
package runlog

import (
	"cmp"
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// A Span are the numbers of the first and the last record of a run; 0 if there is none.
type Span struct {
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
}

// add takes the number of one more record into the span.
func (s *Span) add(seq uint64) {
	s.First = cmp.Or(s.First, seq)
	s.Last = seq
}

// An Appender is the audit log.
type Appender interface {
	// Append returns the number of the record once the record is on disk.
	Append(context.Context, audit.Entry) (uint64, error)
	// AppendAll returns the numbers of the first and the last record once all are on disk.
	AppendAll([]audit.Entry) (first, last uint64, err error)
}

// A Log appends the records of one run. Its methods may be called from several goroutines.
type Log struct {
	to Appender
	of audit.Entry
	// late takes the records of Record and RecordAll, where it is set.
	late *Late

	mu   sync.Mutex
	span Span
}

// New returns the log of the run that of names. The event of of is not used. A nil to records
// nothing: the run is a part of another one.
func New(to Appender, of audit.Entry) *Log { return &Log{to: to, of: of} }

// Entry returns the entry of an event, with the number of the record that caused the event, or 0.
func (l *Log) Entry(cause uint64, e audit.Event) audit.Entry {
	entry := l.of
	entry.Cause, entry.Event = cause, e
	return entry
}

// Record puts an event on record before the caller does what the event describes. What cannot be
// recorded is not done. The context of a caller is of no concern: the end of a run is recorded also
// when its caller has gone.
func (l *Log) Record(e audit.Event) error {
	if l.to == nil {
		return nil
	}
	if l.late != nil {
		l.late.add([]audit.Entry{l.Entry(0, e)})
		return nil
	}
	if _, err := l.Append(0, e); err != nil {
		return unwritten(err)
	}
	return nil
}

// RecordAll is Record for several events.
func (l *Log) RecordAll(events []audit.Event) error {
	entries := l.entries(events)
	if l.late != nil {
		l.late.add(entries)
		return nil
	}
	if _, _, err := l.AppendAll(entries); err != nil {
		return unwritten(err)
	}
	return nil
}

func (l *Log) entries(events []audit.Event) []audit.Entry {
	entries := make([]audit.Entry, len(events))
	for i, e := range events {
		entries[i] = l.Entry(0, e)
	}
	return entries
}

// Append appends an event that the record with the number cause has caused, and returns the number
// of its record.
func (l *Log) Append(cause uint64, e audit.Event) (uint64, error) {
	seq, err := l.to.Append(context.Background(), l.Entry(cause, e))
	if err == nil {
		l.note(seq)
	}
	return seq, err
}

// AppendAll appends entries that Entry has made, and returns the numbers of the first and last
// record.
func (l *Log) AppendAll(entries []audit.Entry) (first, last uint64, err error) {
	first, last, err = l.to.AppendAll(entries)
	if err == nil {
		l.note(first, last)
	}
	return first, last, err
}

func (l *Log) note(all ...uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, seq := range all {
		l.span.add(seq)
	}
}

// Span returns which records have been appended.
func (l *Log) Span() Span {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.span
}

// unwritten returns the error for a run that the log did not take.
func unwritten(err error) *problem.Error {
	return problem.New(problem.Failed, "audit log: %w", err).
		WithHint("make room for the log; nothing runs without it")
}

// Readable escapes what is no printable text.
func Readable(texts []string) []string {
	out := make([]string, len(texts))
	for i, t := range texts {
		q := strconv.QuoteToGraphic(t)
		if out[i] = t; q[1:len(q)-1] != t {
			out[i] = q
		}
	}
	return out
}

// lateMost is how long a record that may be late waits for others to share a flush with.
const lateMost = 2 * time.Millisecond

// A Late collects records that may reach the disk shortly after the event: the ends of the
// invocations of a shared engine, and nothing else. A crash of the host loses at most the records
// of the last lateMost. Its methods may be called from several goroutines.
type Late struct {
	to Appender

	mu      sync.Mutex
	waiting []audit.Entry
	timer   *time.Timer
	// err is the error of the last append, nil if it succeeded.
	err error
	// flushing waits for the appends that have begun.
	flushing sync.WaitGroup
}

// NewLate returns a collector of records for a log.
func NewLate(to Appender) *Late { return &Late{to: to} }

// add has entries appended within lateMost.
func (l *Late) add(entries []audit.Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting, entries...)
	if l.timer == nil {
		l.flushing.Add(1)
		l.timer = time.AfterFunc(lateMost, func() {
			defer l.flushing.Done()
			// A failure is kept in l.err: nothing more begins before the log takes it.
			_, _, _ = l.append(nil)
		})
	}
}

// append appends the waiting entries and then entries in one flush, and returns the numbers of the
// first and the last of entries once all are on disk. After an error the waiting entries stay.
func (l *Late) append(entries []audit.Entry) (first, last uint64, err error) {
	l.mu.Lock()
	waiting := l.waiting
	l.waiting = nil
	if l.timer != nil && l.timer.Stop() {
		l.flushing.Done()
	}
	l.timer = nil
	l.flushing.Add(1)
	l.mu.Unlock()
	defer l.flushing.Done()
	all := append(waiting[:len(waiting):len(waiting)], entries...)
	if len(all) == 0 {
		return 0, 0, nil
	}
	_, last, err = l.to.AppendAll(all)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err = err; err != nil {
		l.waiting = append(waiting, l.waiting...)
		return 0, 0, err
	}
	return last - uint64(max(len(entries), 1)) + 1, last, nil
}

// Close appends the waiting entries, and returns the error of the log.
func (l *Late) Close() error {
	_, _, err := l.append(nil)
	l.flushing.Wait()
	if err != nil {
		return unwritten(err)
	}
	return nil
}

// BeginShared is RecordAll for the records of a run's start. The entries that wait in late are
// appended with them. After EndShared the run's records go to late.
func (l *Log) BeginShared(late *Late, events []audit.Event) error {
	first, last, err := late.append(l.entries(events))
	if err != nil {
		return unwritten(err)
	}
	l.note(first, last)
	return nil
}

// EndShared makes Record and RecordAll hand their records to late from now on: they return before
// the records are on disk, and Span does not know them.
func (l *Log) EndShared(late *Late) { l.late = late }
