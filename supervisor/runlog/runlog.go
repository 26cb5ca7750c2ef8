// Package runlog records one run in the audit log. It adds the run's id, session, user and policy
// to each event, and remembers the numbers of the run's records.
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

// A Span has the numbers of a run's first and last record, or 0 if the run has no records.
type Span struct {
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
}

// add extends the span to record seq, which comes after all others.
func (s *Span) add(seq uint64) {
	s.First = cmp.Or(s.First, seq)
	s.Last = seq
}

// An Appender appends entries to the audit log.
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
	// late takes the records of Record and RecordAll; nil writes them at once.
	late *Late

	mu   sync.Mutex
	span Span
}

// New returns a Log that appends to to. of has the fields that all entries of the run share; its
// event is ignored. If to is nil, nothing is recorded: the run is a part of another run.
func New(to Appender, of audit.Entry) *Log { return &Log{to: to, of: of} }

// Entry returns the run's entry for e. cause is the number of the record that caused e, or 0.
func (l *Log) Entry(cause uint64, e audit.Event) audit.Entry {
	entry := l.of
	entry.Cause, entry.Event = cause, e
	return entry
}

// Record records e before the caller acts on it. After an error the caller must not act. It takes
// no context: the end of a run is recorded even if the client has disconnected.
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

// RecordAll records several events as Record does.
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

// Append appends e at once and returns its record's number. cause is the number of the record that
// caused e, or 0.
func (l *Log) Append(cause uint64, e audit.Event) (uint64, error) {
	seq, err := l.to.Append(context.Background(), l.Entry(cause, e))
	if err == nil {
		l.note(seq)
	}
	return seq, err
}

// AppendAll appends entries made by Entry, and returns the numbers of the first and the last
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

// Span returns the numbers of the first and the last appended record.
func (l *Log) Span() Span {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.span
}

// unwritten returns the error of a run whose record could not be written.
func unwritten(err error) *problem.Error {
	return problem.New(problem.Failed, "audit log: %w", err).
		WithHint("make room for the log; nothing runs without it")
}

// Readable returns texts with unprintable characters escaped as in Go strings.
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

// lateMost is how long a late record waits for others, to share a flush with them.
const lateMost = 2 * time.Millisecond

// A Late collects records that may reach the disk shortly after the event. Only the ends of
// invocations of a shared engine use it. A crash of the host loses at most the records of the last
// lateMost. Its methods are safe for concurrent use.
type Late struct {
	to Appender

	mu      sync.Mutex
	waiting []audit.Entry
	timer   *time.Timer
	// err is the error of the last append, nil if it succeeded.
	err error
	// flushing counts the timers whose appends have not ended.
	flushing sync.WaitGroup
}

// NewLate returns a Late that appends to to.
func NewLate(to Appender) *Late { return &Late{to: to} }

// add queues entries, which are appended within lateMost.
func (l *Late) add(entries []audit.Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting, entries...)
	if l.timer == nil {
		l.flushing.Add(1)
		l.timer = time.AfterFunc(lateMost, func() {
			defer l.flushing.Done()
			// The error stays in l.err, and no invocation starts until an append succeeds.
			_, _, _ = l.append(nil)
		})
	}
}

// append appends the waiting entries and then entries in one flush. It returns the numbers of the
// first and the last of entries when all are on disk. After an error the waiting ones stay.
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

// Close appends the waiting entries and returns the error if that fails.
func (l *Late) Close() error {
	_, _, err := l.append(nil)
	l.flushing.Wait()
	if err != nil {
		return unwritten(err)
	}
	return nil
}

// BeginShared records the start of a run as RecordAll does, in one flush with the entries that wait
// in late.
func (l *Log) BeginShared(late *Late, events []audit.Event) error {
	first, last, err := late.append(l.entries(events))
	if err != nil {
		return unwritten(err)
	}
	l.note(first, last)
	return nil
}

// EndShared makes Record and RecordAll pass their records to late from now on. They then return
// before the records are on disk, and Span does not count these records.
func (l *Log) EndShared(late *Late) { l.late = late }
