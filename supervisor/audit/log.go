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

// Errors of a log. Damage is for a person to look at: no record is appended to a damaged log, for that
// would put a seal on it. Move the directory, and audit.head with it, aside to begin a new one.
var (
	ErrClosed  = errors.New("audit log is closed")
	ErrDamaged = errors.New("audit log is damaged")
	ErrBroken  = errors.New("audit log takes no more records after a write error")
)

// Options of a log. Zero values of the last three mean their defaults.
type Options struct {
	Dir    string           // segments and head; made with mode 0750
	KeyDir string           // the private key; made with mode 0700
	Now    func() time.Time // nil means time.Now
	Actor  Actor            // of the log's own records; zero means this process

	SegmentBytes      int64         // a new segment is begun behind so many bytes; 64 MiB
	SegmentTime       time.Duration // and when its first record is so old; 0 is never
	CheckpointRecords int           // a checkpoint at least every so many records; 1024
	CheckpointEvery   time.Duration // and, where records came in, after so long; one minute
}

// Log appends records. Its methods may be called at once from many goroutines, and several processes may
// have the same directory open.
type Log struct {
	opt    Options
	root   *os.Root // Options.Dir
	keys   *os.Root // Options.KeyDir
	lock   *os.File
	signer note.Signer
	known  note.Verifiers

	mu     sync.Mutex // for queue and closed
	queue  []*request
	closed bool
	wake   chan struct{}
	acts   chan act
	done   chan struct{} // closed when the writer has ended
	final  error         // of the writer's last acts; read it behind done

	// The rest belongs to the writer.
	at      position
	seg     segment
	segInfo os.FileInfo
	begun   time.Time // first record of the segment
	head    *os.File
	hdInfo  os.FileInfo
	tree    *tree
	signed  []byte // what head holds
	since   int    // records behind the last checkpoint
	broken  error
	buf     []byte
	parser  parser

	// wrap stands between the log and its segment, so that tests can break the disk.
	wrap func(segment) segment
}

// segment is what the log does to its file.
type segment interface {
	io.Writer
	Sync() error
	Truncate(size int64) error
	Stat() (os.FileInfo, error)
	Close() error
}

// position is where the next line goes, and what it follows.
type position struct {
	segment uint64 // first record
	offset  int64
	state
}

// request is one record on its way.
type request struct {
	body   []byte
	ends   bool // a run: flush the head too
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

// Open opens the log, making it and its key where there is neither. A tail that a crash left behind is
// kept or moved aside, and a gap record says so. A log that does not reach its signed head is not
// opened: the error wraps [ErrDamaged], or [ErrKey] where it is about a key.
func Open(opt Options) (*Log, error) {
	l := &Log{opt: opt.withDefaults(), wake: make(chan struct{}, 1), acts: make(chan act), done: make(chan struct{})}
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
		exe, _ := os.Executable() // empty where /proc is not there: uid and pid still say who
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

// Append puts e on record and returns its number once the record is on disk and under a signed head. An
// error means that it is not: do not do what it would have told. When ctx ends before the record's
// turn, nothing is recorded; when it ends later, the outcome is still waited for.
func (l *Log) Append(ctx context.Context, e Entry) (uint64, error) {
	r := &request{body: e.body(), ends: e.Event.Type() == TypeRunFinished, done: make(chan struct{})}
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

// AppendAll puts all of the entries on record, one behind the other, and returns the numbers of the first and the last. It waits once for all of
// them. An error means that some are not on record.
func (l *Log) AppendAll(entries []Entry) (first, last uint64, err error) {
	all := make([]*request, len(entries))
	for i, e := range entries {
		all[i] = &request{body: e.body(), ends: e.Event.Type() == TypeRunFinished, done: make(chan struct{})}
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

// Extent returns the numbers of the first record that is kept and of the last that is on disk. Where there is none the first is larger.
func (l *Log) Extent() (first, last uint64, err error) {
	err = l.hold(func() error {
		from, err := l.cut()
		first, last = from.size+1, l.at.size
		return err
	})
	return first, last, err
}

// Close records what is queued and a last checkpoint, and gives everything back.
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
	for _, f := range []*os.File{l.lock, l.head} {
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

// write is the writer: it takes whatever is queued and puts it on disk as one batch.
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
		runtime.Gosched() // whoever was just answered and is back with the next record comes along
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

// turn writes one batch under the lock. The batch is taken only when the lock is held, so that a
// record can be withdrawn for as long as another process has it.
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

// maxBatch bounds what one batch holds in memory and what a crash can tear.
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
