// Package runlog puts one run on record: it gives each event of the run the run's id, its session,
// its user and its policy, and remembers which records are the run's.
package runlog

import (
	"cmp"
	"context"
	"strconv"
	"sync"

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
	entries := make([]audit.Entry, len(events))
	for i, e := range events {
		entries[i] = l.Entry(0, e)
	}
	if l.late != nil {
		l.late.add(entries)
		return nil
	}
	if _, _, err := l.AppendAll(entries); err != nil {
		return unwritten(err)
	}
	return nil
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
