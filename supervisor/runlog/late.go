package runlog

import (
	"sync"
	"time"

	"github.com/jail-sandbox/jail/supervisor/audit"
)

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
	entries := make([]audit.Entry, len(events))
	for i, e := range events {
		entries[i] = l.Entry(0, e)
	}
	first, last, err := late.append(entries)
	if err != nil {
		return unwritten(err)
	}
	l.note(first, last)
	return nil
}

// EndShared makes Record and RecordAll hand their records to late from now on: they return before
// the records are on disk, and Span does not know them.
func (l *Log) EndShared(late *Late) { l.late = late }
