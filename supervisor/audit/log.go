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

// Errors of a log. No record is appended to a damaged log, since its signature would cover the
// damage: a person must look at it. To start a new log, move the directory and audit.head aside.
var (
	ErrClosed  = errors.New("audit log is closed")
	errDamaged = errors.New("audit log is damaged")
	errBroken  = errors.New("audit log takes no more records after a write error")
)

// Options of a log. Zero values of the last four fields mean their defaults.
type Options struct {
	// Dir holds the segments and the head; created with mode 0750.
	Dir string
	// KeyDir holds the private key; created with mode 0700.
	KeyDir string
	Now    func() time.Time // nil means time.Now
	// Actor is the actor of the log's own records; zero means this process.
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
	// done is closed when the writer goroutine has ended.
	done chan struct{}
	// final is the error of the writer's last actions. It may be read after done is closed.
	final error
	// writer is used by the writer goroutine alone.
	writer *writer
}

// request is a record that waits to be written, or is written.
type request struct {
	body []byte
	// ends: the record ends a run, so the head is flushed, too.
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

// Open opens the log. If there is neither a log nor a key it creates both. It keeps complete
// records after the signed head, moves torn bytes to a file, and records a gap for both. If the log
// does not reach its signed head, it returns an error that wraps errDamaged. Errors about a key
// wrap [ErrKey].
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
		// Without /proc it is empty; uid and pid still identify the process.
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
// an error the record does not exist, so the caller must not act. If ctx ends before the record's
// turn, nothing is recorded; if it ends later, Append still waits for the result.
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

// AppendAll records all entries in order and waits once. It returns the numbers of the first and
// the last. After an error some of the entries are not recorded.
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

// enqueue queues the records of entries, without others between them.
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
// first is greater than the last.
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

// write is the writer goroutine. It writes the queued records in batches until the log is closed.
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
// the number of records answered at time ended; each of their callers may append another. gather
// returns when that many are queued, at the latest gatherMost after ended.
func (l *Log) gather(answered int, ended time.Time) {
	runtime.Gosched()
	for answered > 1 && l.queued() < answered && time.Since(ended) < gatherMost {
		runtime.Gosched()
	}
}

// gatherMost is a third of the time of a flush on a fast disk.
const gatherMost = 60 * time.Microsecond

func (l *Log) queued() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue)
}

// act is a function for the writer goroutine to call between two batches.
type act struct {
	f    func() error
	done chan error
}

// hold makes the writer goroutine call f, with the lock held and the log up to date.
func (l *Log) hold(f func() error) error {
	a := act{f, make(chan error, 1)}
	select {
	case l.acts <- a:
		return <-a.done
	case <-l.done:
		return ErrClosed
	}
}

// maxBatch bounds one batch in bytes: its memory, and the bytes that a crash can tear.
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
