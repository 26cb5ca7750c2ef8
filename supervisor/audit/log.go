package audit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Errors of a log. A person must look at damage: no record is appended to a damaged log, since its
// signature would cover the damage. To begin a new log, move the directory and audit.head aside.
var (
	ErrClosed  = errors.New("audit log is closed")
	errDamaged = errors.New("audit log is damaged")
	errBroken  = errors.New("audit log takes no more records after a write error")
)

// Options of a log. Zero values of the last four mean their defaults.
type Options struct {
	// Segments and head; made with mode 0750.
	Dir string
	// The private key; made with mode 0700.
	KeyDir string
	Now    func() time.Time // nil means time.Now
	// of the log's own records; zero means this process
	Actor Actor

	// SegmentBytes is the size after which a new segment begins; default 64 MiB.
	SegmentBytes int64
	// SegmentTime is the age of a segment's first record after which a new segment begins; 0 is
	// never.
	SegmentTime time.Duration
	// CheckpointRecords is the largest number of records between checkpoints; default 1024.
	CheckpointRecords int
	// CheckpointEvery is the longest time between checkpoints, if there are new records; default
	// one minute.
	CheckpointEvery time.Duration
}

// Log appends records. Its methods are safe for concurrent use, and several processes may open the
// same directory.
type Log struct {
	// mu guards queue and closed.
	mu     sync.Mutex
	queue  []*request
	closed bool
	wake   chan struct{}
	acts   chan act
	// done is closed when the writer has ended.
	done chan struct{}
	// final is the error of the writer's last actions; read it after done.
	final error
	// writer is used by one goroutine alone.
	writer *writer
}

// request is one record that is being written.
type request struct {
	body []byte
	// ends: the record ends a run, so flush the head, too.
	ends   bool
	status atomic.Int32
	seq    uint64
	err    error
	done   chan struct{}
}

const (
	queued int32 = iota
	taken
	withdrawn
)

// Open opens the log. If there is neither a log nor a key it makes both. It keeps a tail that a
// crash left, or moves it aside, and records a gap. It does not open a log that does not reach its
// signed head: the error wraps errDamaged, or [ErrKey] if it is about a key.
func Open(opt Options) (*Log, error) {
	w := &writer{opt: opt.withDefaults(), pace: pace{pause: aheadPause}}
	if err := w.open(); err != nil {
		w.release()
		return nil, fmt.Errorf("audit log %s: %w", opt.Dir, err)
	}
	l := &Log{wake: make(chan struct{}, 1), acts: make(chan act), done: make(chan struct{}),
		writer: w}
	go l.write()
	return l, nil
}

func (o Options) withDefaults() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Actor == (Actor{}) {
		// Empty without /proc: uid and pid still identify the process.
		exe, _ := os.Executable()
		o.Actor = Actor{UID: uint32(os.Geteuid()), PID: os.Getpid(), Exe: exe}
	}
	if o.SegmentBytes <= 0 {
		o.SegmentBytes = 64 << 20
	}
	if o.CheckpointRecords <= 0 {
		o.CheckpointRecords = 1024
	}
	if o.CheckpointEvery <= 0 {
		o.CheckpointEvery = time.Minute
	}
	return o
}

// Append records e and returns its number when the record is on disk and under a signed head. After
// an error the record is not there: do not do what it would have recorded. If ctx ends before the
// record's turn, nothing is recorded; if it ends later, Append still waits for the outcome.
func (l *Log) Append(ctx context.Context, e Entry) (uint64, error) {
	all, err := l.enqueue(e)
	if err != nil {
		return 0, err
	}
	r := all[0]
	select {
	case <-r.done:
	case <-ctx.Done():
		if r.status.CompareAndSwap(queued, withdrawn) {
			return 0, ctx.Err()
		}
		<-r.done
	}
	return r.seq, r.err
}

// AppendAll records all entries in order, with one wait, and returns the numbers of the first and
// the last. After an error some of them are not recorded.
func (l *Log) AppendAll(entries []Entry) (first, last uint64, err error) {
	all, err := l.enqueue(entries...)
	for _, r := range all {
		<-r.done
		if r.err != nil {
			err = r.err
		} else if last = r.seq; first == 0 {
			first = r.seq
		}
	}
	return first, last, err
}

// enqueue queues the records of entries, together.
func (l *Log) enqueue(entries ...Entry) ([]*request, error) {
	all := make([]*request, len(entries))
	for i, e := range entries {
		all[i] = &request{body: e.body(), ends: e.Event.Type() == TypeRunFinished,
			done: make(chan struct{})}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, ErrClosed
	}
	l.queue = append(l.queue, all...)
	l.nudge()
	return all, nil
}

func (l *Log) nudge() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Extent returns the numbers of the first kept record and of the last on disk. In an empty log the
// first is larger.
func (l *Log) Extent() (first, last uint64, err error) {
	err = l.hold(func() error {
		from, err := l.writer.cut()
		first, last = from.size+1, l.writer.at.size
		return err
	})
	return first, last, err
}

// Close writes the queued records and a last checkpoint, and releases everything.
func (l *Log) Close() error {
	l.mu.Lock()
	already := l.closed
	l.closed = true
	l.mu.Unlock()
	l.nudge()
	<-l.done
	if already {
		return ErrClosed
	}
	return l.final
}

// write is the writer: it writes all queued records as one batch.
func (l *Log) write() {
	defer close(l.done)
	defer l.writer.release()
	tick := time.NewTicker(l.writer.opt.CheckpointEvery)
	defer tick.Stop()
	// A timer that has ended may be stopped and set again.
	rest := time.NewTimer(l.writer.pace.pause)
	defer rest.Stop()
	answered, ended := 0, time.Time{}
	for {
		due := false
		select {
		case <-l.wake:
		case <-tick.C:
			due = true
		case <-rest.C:
			// The next record says why the log takes no more.
			_ = l.writer.do(l.writer.trim)
			continue
		case a := <-l.acts:
			a.done <- l.writer.do(a.f)
			continue
		}
		l.gather(answered, ended)
		n, _ := l.writer.turn(l.take, due)
		answered, ended = n, time.Now()
		l.mu.Lock()
		end, more := l.closed && len(l.queue) == 0, len(l.queue) > 0
		l.mu.Unlock()
		if end {
			l.final = l.writer.end(l.take)
			return
		}
		if more {
			l.nudge()
		}
		l.writer.sealLater(more)
		if l.writer.seg.size > l.writer.at.offset {
			rest.Reset(l.writer.pace.pause)
		}
	}
}

// gather gives callers time to queue their next records, so that these share one flush. answered is
// how many records were answered at ended, each of whose callers may bring another one. gather
// returns when as many are queued, at the latest gatherMost after ended.
func (l *Log) gather(answered int, ended time.Time) {
	runtime.Gosched()
	for answered > 1 && l.queued() < answered && time.Since(ended) < gatherMost {
		runtime.Gosched()
	}
}

// gatherMost is a third of what a flush takes on a fast disk.
const gatherMost = 60 * time.Microsecond

func (l *Log) queued() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue)
}

// act is something that the writer does between two batches.
type act struct {
	f    func() error
	done chan error
}

// hold has the writer call f while it holds the lock and is up to date.
func (l *Log) hold(f func() error) error {
	a := act{f, make(chan error, 1)}
	select {
	case l.acts <- a:
		return <-a.done
	case <-l.done:
		return ErrClosed
	}
}

// maxBatch bounds, in bytes, the memory of one batch and what a crash can tear.
const maxBatch = 4 << 20

func (l *Log) take() []*request {
	l.mu.Lock()
	defer l.mu.Unlock()
	var batch []*request
	size, n := 0, 0
	for ; n < len(l.queue) && size < maxBatch; n++ {
		if r := l.queue[n]; r.status.CompareAndSwap(queued, taken) {
			batch = append(batch, r)
			size += len(r.body)
		}
	}
	rest := copy(l.queue, l.queue[n:])
	clear(l.queue[rest:])
	l.queue = l.queue[:rest]
	return batch
}
