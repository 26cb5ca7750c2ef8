package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/jail-sandbox/jail/supervisor/audit/internal/flock"
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
	// segments and head; made with mode 0750
	Dir string
	// the private key; made with mode 0700
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
	opt    Options
	root   *os.Root // Options.Dir
	keys   *os.Root // Options.KeyDir
	lock   *os.File
	signer note.Signer
	known  note.Verifiers

	// mu guards queue and closed.
	mu     sync.Mutex
	queue  []*request
	closed bool
	wake   chan struct{}
	acts   chan act
	// closed when the writer has ended
	done chan struct{}
	// final is the error of the writer's last actions; read it after done.
	final error

	// Only the writer uses the rest.
	at      position
	seg     segment
	segInfo os.FileInfo
	// begun is the time of the segment's first record.
	begun  time.Time
	head   *os.File
	hdInfo os.FileInfo
	// lastHead is audit.head, the head of the last checkpoint, in the key directory.
	lastHead *os.File
	tree     *tree
	// signed is the content of head.
	signed []byte
	// since counts the records after the last checkpoint.
	since  int
	broken error
	buf    []byte
	parser parser

	// wrap wraps the log's segment, so that tests can break the disk.
	wrap func(segment) segment
}

// segment is the part of a file that the log uses.
type segment interface {
	io.Writer
	Sync() error
	Truncate(size int64) error
	Stat() (os.FileInfo, error)
	Close() error
}

// position is the place of the next line, with the state before it.
type position struct {
	segment uint64 // first record
	offset  int64
	state
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
	l := &Log{opt: opt.withDefaults(), wake: make(chan struct{}, 1), acts: make(chan act),
		done: make(chan struct{})}
	if err := l.open(); err != nil {
		l.release()
		return nil, fmt.Errorf("audit log %s: %w", opt.Dir, err)
	}
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
	r := &request{body: e.body(), ends: e.Event.Type() == TypeRunFinished,
		done: make(chan struct{})}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return 0, ErrClosed
	}
	l.queue = append(l.queue, r)
	l.mu.Unlock()
	l.nudge()
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
	all := make([]*request, len(entries))
	for i, e := range entries {
		all[i] = &request{body: e.body(), ends: e.Event.Type() == TypeRunFinished,
			done: make(chan struct{})}
	}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return 0, 0, ErrClosed
	}
	l.queue = append(l.queue, all...)
	l.mu.Unlock()
	l.nudge()
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
		from, err := l.cut()
		first, last = from.size+1, l.at.size
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

func (l *Log) release() {
	if l.tree != nil {
		l.tree.f.Close()
	}
	for _, f := range []*os.File{l.lock, l.head, l.lastHead} {
		if f != nil {
			f.Close()
		}
	}
	if l.seg != nil {
		l.seg.Close()
	}
	for _, r := range []*os.Root{l.root, l.keys} {
		if r != nil {
			r.Close()
		}
	}
}

// write is the writer: it writes all queued records as one batch.
func (l *Log) write() {
	defer close(l.done)
	defer l.release()
	tick := time.NewTicker(l.opt.CheckpointEvery)
	defer tick.Stop()
	for {
		due := false
		select {
		case <-l.wake:
		case <-tick.C:
			due = true
		case a := <-l.acts:
			a.done <- l.do(a.f)
			continue
		}
		// A caller that was just answered may bring the next record.
		runtime.Gosched()
		l.turn(due)
		l.mu.Lock()
		end, more := l.closed && len(l.queue) == 0, len(l.queue) > 0
		l.mu.Unlock()
		if end {
			l.final = l.turn(true)
			return
		}
		if more {
			l.nudge()
		}
	}
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

func (l *Log) do(f func() error) error {
	if l.broken != nil {
		return l.broken
	}
	if err := flock.Lock(l.lock); err != nil {
		return err
	}
	defer flock.Unlock(l.lock)
	if err := l.catchUp(); err != nil {
		return err
	}
	return f()
}

// turn writes one batch under the lock. It takes the batch after the lock, so that a record can be
// withdrawn while another process holds it.
func (l *Log) turn(checkpoint bool) error {
	err := l.broken
	if err == nil {
		if err = flock.Lock(l.lock); err == nil {
			defer flock.Unlock(l.lock)
		}
	}
	batch := l.take()
	if checkpoint = checkpoint && l.since > 0; err == nil && (checkpoint || len(batch) > 0) {
		err = l.commit(batch, checkpoint)
	}
	for _, r := range batch {
		if r.err = err; err != nil {
			r.seq = 0
		}
		close(r.done)
	}
	return err
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
