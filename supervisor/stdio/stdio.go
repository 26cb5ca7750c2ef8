// Package stdio carries the standard streams between a caller and a tool, through pipes of the
// daemon's own.
package stdio

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/launch"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// Streams are the caller's ends of the tool's standard streams.
type Streams struct {
	// In may be nil for no input: then a program of the host reads /dev/null, and a module an empty
	// pipe.
	In       io.Reader
	Out, Err io.Writer
	// Joined gives the tool one pipe for both outputs, so that Out gets them in the order of the
	// writes, and Err gets nothing of the tool.
	Joined bool
	// Sizes receives new sizes of the caller's terminal. It may be nil.
	Sizes <-chan runners.Terminal
	// Pass takes over the pipes of standard input and output when they carry messages
	// (Pipes.Messages). It must copy the descriptors, which are closed when it returns. In and Out
	// are not used then. It may be nil.
	Pass func(in, out *os.File) error
	// Started is called once the tool runs. It may be nil.
	Started func()
	// Tracked is called once the run can be ended, or will not start: see lifetime.Lifetime.Enter.
	// It may be nil.
	Tracked func()
}

// Begun calls Tracked, if set: the daemon may end without waiting for the run to start.
func (s Streams) Begun() {
	if s.Tracked != nil {
		s.Tracked()
	}
}

// Pipes carry the streams between the caller and the jail, so that no descriptor of the caller's
// enters the jail: code inside could inject input into a terminal (CVE-2017-5226).
type Pipes struct {
	jail  [3]*os.File // the jail's ends
	host  [3]*os.File // ours
	limit int64
	over  func(seen int64)
	gone  func()

	seen      atomic.Int64
	truncated atomic.Bool
	out       [2]pump
	carrying  sync.WaitGroup
}

// New makes the pipes for a jail with these ids. The tool's user owns their inodes, so that the
// tool may open its streams by name (/dev/stdin, /proc/self/fd/1).
func New(ids jail.IDs) (*Pipes, error) {
	uid, gid := ids.Host()
	p := &Pipes{}
	for i := range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			p.Close()
			return nil, err
		}
		if p.jail[i], p.host[i] = r, w; i > 0 {
			p.jail[i], p.host[i] = w, r
		}
		// Both ends share one inode.
		if err := r.Chown(int(uid), int(gid)); err != nil {
			p.Close()
			return nil, err
		}
	}
	return p, nil
}

// HandOver closes the daemon's copies of the jail's ends, after the jail has started.
func (p *Pipes) HandOver() { control.CloseAll(p.jail[:]) }

// Explain adds problem.ErrProcesses to err, the error of a jail that did not start, if its programs
// wrote to standard error that no thread could be started. They have ended by then.
func (p *Pipes) Explain(err error) error {
	said := make([]byte, 4<<10)
	// In case that another process holds the other end.
	_ = p.host[2].SetReadDeadline(time.Now().Add(time.Second))
	n, _ := io.ReadFull(p.host[2], said)
	for _, line := range noThread {
		if strings.Contains(string(said[:n]), line) {
			return fmt.Errorf("%w: %w", problem.ErrProcesses, err)
		}
	}
	return err
}

// noThread has the Go runtime's messages for that, without cgo and with it.
var noThread = []string{"failed to create new OS thread", "pthread_create failed"}

// Messages says that standard input and output carry messages of jail's own, which do not count as
// output. It is called before Start.
func (p *Pipes) Messages() { p.out[0].uncounted = true }

// Start begins to copy the streams of a caller. It calls over for each write beyond limit bytes of
// output, with the bytes so far, and gone when the caller takes no more output.
func (p *Pipes) Start(s Streams, limit int64, over func(seen int64), gone func()) {
	p.limit, p.over, p.gone = limit, over, gone
	for i := range p.out {
		p.out[i].all, p.out[i].from = p, p.host[1+i]
	}
	p.carrying.Go(func() { p.out[1].carry(s.Err) })
	if s.Pass != nil && p.out[0].uncounted {
		p.pass(s.Pass)
		return
	}
	p.carrying.Go(func() { p.out[0].carry(s.Out) })
	if s.In == nil {
		p.host[0].Close()
		return
	}
	go func() {
		// An error is ignored: the tool need not read.
		_, err := io.Copy(p.host[0], s.In)
		if errors.Is(err, io.ErrUnexpectedEOF) {
			// The caller left before its input ended, so the run is being ended. Until then the
			// tool must not take partial input for all of it.
			p.carrying.Wait()
		}
		p.host[0].Close()
	}()
}

// pass hands the ends of standard input and output to the function to.
func (p *Pipes) pass(to func(in, out *os.File) error) {
	err := to(p.host[0], p.host[1])
	p.host[0].Close()
	p.host[1].Close()
	p.out[0].mu.Lock()
	p.out[0].ended = true
	p.out[0].mu.Unlock()
	if err != nil {
		p.gone()
	}
}

// A pump copies one output stream of the tool.
type pump struct {
	all  *Pipes
	from *os.File
	// uncounted says that the data does not count as output.
	uncounted bool

	mu sync.Mutex
	// The pipe is at its end.
	ended bool
	// Data that was left in the pipe when the jail ended.
	rest []byte
}

// carry copies the tool's output to the caller until its end, at the caller's pace and up to the
// common limit.
func (p *pump) carry(to io.Writer) {
	buf := make([]byte, 64<<10)
	for {
		part, err := p.next(buf)
		if len(part) > 0 {
			if _, err := to.Write(part); err != nil {
				p.lost()
				to = io.Discard
			}
		}
		if err != nil {
			return
		}
	}
}

func (p *pump) next(buf []byte) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		rest := p.rest
		p.rest = nil
		return rest, io.EOF
	}
	return p.take(buf)
}

// take reads from the pipe and returns the part within the limit. p.mu is held.
func (p *pump) take(buf []byte) ([]byte, error) {
	n, err := p.from.Read(buf)
	all, fits := p.all, int64(n)
	if n > 0 && !p.uncounted {
		seen := all.seen.Add(fits)
		if seen > all.limit {
			fits = max(0, fits-(seen-all.limit))
			all.truncated.Store(true)
			all.over(seen)
		}
	}
	if err != nil {
		p.ended = true
		if !errors.Is(err, io.EOF) {
			all.gone()
		}
	}
	return buf[:fits], err
}

// lost calls gone because the caller takes no more output, unless the stream has ended.
func (p *pump) lost() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		p.all.gone()
	}
}

// drain reads the rest of the pipe into rest.
func (p *pump) drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	for buf := make([]byte, 64<<10); !p.ended; {
		part, _ := p.take(buf)
		p.rest = append(p.rest, part...)
	}
}

// Abort unblocks a tool that waits for a stream: its input ends, and its output is read until it
// closes its ends. Finish must still be called.
func (p *Pipes) Abort() {
	p.host[0].Close()
	for i := range p.out {
		go p.out[i].drain()
	}
}

// Finish reads the output that is left in the pipes and closes them. All processes of the jail must
// have ended. The caller may still take the output: see Wait.
func (p *Pipes) Finish() {
	for i := range p.out {
		p.out[i].drain()
	}
	p.Close()
}

// Wait waits until the caller has taken all output or is gone. It returns at once if p is nil or
// was not started.
func (p *Pipes) Wait() {
	if p != nil {
		p.carrying.Wait()
	}
}

// Seen returns how many bytes the tool has written to both of its output streams.
func (p *Pipes) Seen() int64 { return p.seen.Load() }

// Truncated reports whether the tool has written more than its limit.
func (p *Pipes) Truncated() bool { return p.truncated.Load() }

// Jail returns the jail's ends.
func (p *Pipes) Jail() launch.Stdio {
	return launch.Stdio{In: p.jail[0], Out: p.jail[1], Err: p.jail[2]}
}

// Close closes both ends of all pipes.
func (p *Pipes) Close() {
	for i := range 3 {
		if p.host[i] != nil {
			p.host[i].Close()
		}
		if p.jail[i] != nil {
			p.jail[i].Close()
		}
	}
}

// Kept is a buffer that keeps the beginning of a stream.
type Kept struct {
	bytes.Buffer
	// Most is how many bytes are kept. Cut says that there were more.
	Most int
	Cut  bool
}

// Write keeps the bytes up to Most and drops the rest. It never fails.
func (k *Kept) Write(p []byte) (int, error) {
	n := min(len(p), k.Most-k.Len())
	k.Cut = k.Cut || n < len(p)
	k.Buffer.Write(p[:n])
	return len(p), nil
}

// ReadFrom hides bytes.Buffer.ReadFrom, which has no bound.
func (k *Kept) ReadFrom(r io.Reader) (int64, error) { return io.Copy(struct{ io.Writer }{k}, r) }

// String returns the kept text, with invalid UTF-8 replaced.
func (k *Kept) String() string { return strings.ToValidUTF8(k.Buffer.String(), "\uFFFD") }

// IsText reports whether the stream can be shown as text.
func (k *Kept) IsText() bool {
	return !bytes.ContainsRune(k.Bytes(), 0) && (utf8.Valid(k.Bytes()) || k.Cut)
}
