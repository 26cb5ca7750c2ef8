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
	// In may be nil for none: a program of the host then has /dev/null, and a module an empty pipe.
	In       io.Reader
	Out, Err io.Writer
	// Joined gives the tool one pipe for both of its outputs, so that Out gets them in the order in
	// which the tool wrote them, and Err gets nothing of the tool.
	Joined bool
	// Sizes are those that the caller's terminal takes, where the run has one. It may be nil.
	Sizes <-chan runners.Terminal
	// Pass takes over standard input and output of messages (Pipes.Messages): it is given this side's
	// ends of their pipes, of which nobody else keeps a copy. In and Out are not used then. It may be
	// nil.
	Pass func(in, out *os.File) error
	// Started is called once the tool runs. It may be nil.
	Started func()
	// Tracked is called once the run can be ended, or when there is none: from
	// lifetime.Lifetime.Enter. It may be nil.
	Tracked func()
}

// Begun calls Tracked, if there is one: nothing waits for the run to begin any more.
func (s Streams) Begun() {
	if s.Tracked != nil {
		s.Tracked()
	}
}

// Pipes carry the streams between the caller and the jail, so that no descriptor of the caller's
// goes into the jail: a terminal in particular, whose input queue anything inside could fill
// (CVE-2017-5226).
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

// New makes the pipes of a jail whose tool has ids. The tool owns their inodes, so that it can open
// its streams by name (/dev/stdin, /proc/self/fd/1), for which the kernel asks the rights of the
// inode.
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
		// One inode has both ends.
		if err := r.Chown(int(uid), int(gid)); err != nil {
			p.Close()
			return nil, err
		}
	}
	return p, nil
}

// HandOver closes the supervisor's copies of the jail's ends, after the jail has started.
func (p *Pipes) HandOver() { control.CloseAll(p.jail[:]) }

// Explain returns the error of a jail that did not start, with what the jail's programs wrote to
// standard error taken into account. They have ended by then. The Go runtime reports there, and
// nowhere else, that no more threads can be started.
func (p *Pipes) Explain(err error) error {
	said := make([]byte, 4<<10)
	// Should anything still hold its other end.
	_ = p.host[2].SetReadDeadline(time.Now().Add(time.Second))
	n, _ := io.ReadFull(p.host[2], said)
	for _, line := range noThread {
		if strings.Contains(string(said[:n]), line) {
			return fmt.Errorf("%w: %w", problem.ErrProcesses, err)
		}
	}
	return err
}

// noThread is what the runtime says then, without cgo and with it.
var noThread = []string{"failed to create new OS thread", "pthread_create failed"}

// Messages says that the standard output carries messages of jail's own, which do not count as output.
// It is called before Start.
func (p *Pipes) Messages() { p.out[0].uncounted = true }

// Start carries the streams of a caller. Beyond limit bytes of output it calls over, for each part
// that the tool writes. When the caller takes nothing more, it calls gone.
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
		// It is no error if the tool does not read.
		_, err := io.Copy(p.host[0], s.In)
		if errors.Is(err, io.ErrUnexpectedEOF) {
			// The caller is gone before its input ended, so the run is ended. The tool must not
			// take a part of the input for all of it before.
			p.carrying.Wait()
		}
		p.host[0].Close()
	}()
}

// pass gives the ends of standard input and output away.
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

// A pump carries one of the streams that the tool writes.
type pump struct {
	all  *Pipes
	from *os.File
	// uncounted says that what comes out of the pipe is not output.
	uncounted bool

	mu sync.Mutex
	// Nothing more comes out of the pipe.
	ended bool
	// That was in it when the jail ended.
	rest []byte
}

// carry copies what the tool writes until its end, as fast as the caller takes it and no further
// than the limit of both streams together.
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

// take reads what comes next, of which it gives what is within the limit. p.mu is held.
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

// lost says that the caller takes nothing more. To a run that has ended it is nothing.
func (p *pump) lost() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		p.all.gone()
	}
}

// drain takes what is left in the pipe, which is as much as a pipe holds.
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

// Abort makes a tool whose calls wait for a stream go on: it reads the end of its standard input,
// and what it writes is taken until it closes its ends. Finish is still to be called.
func (p *Pipes) Abort() {
	p.host[0].Close()
	for i := range p.out {
		go p.out[i].drain()
	}
}

// Finish reads what the tool has written and its caller has not taken yet, and closes the pipes.
// Nothing of the jail may live any more. See Wait for the caller's part.
func (p *Pipes) Finish() {
	for i := range p.out {
		p.out[i].drain()
	}
	p.Close()
}

// Wait waits until the caller has taken all that the tool has written, or is gone. Nothing else of
// a run waits for that once its jail has ended. It returns at once if p is nil or was not started.
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

// Kept is the beginning of a stream.
type Kept struct {
	bytes.Buffer
	// Most is the most that is kept in bytes; Cut says that there was more.
	Most int
	Cut  bool
}

// Write keeps what there is room for. It never fails: the tool writes on.
func (k *Kept) Write(p []byte) (int, error) {
	n := min(len(p), k.Most-k.Len())
	k.Cut = k.Cut || n < len(p)
	k.Buffer.Write(p[:n])
	return len(p), nil
}

// ReadFrom hides that of the buffer, which knows no bound.
func (k *Kept) ReadFrom(r io.Reader) (int64, error) { return io.Copy(struct{ io.Writer }{k}, r) }

// String is the text, without half a character at a cut.
func (k *Kept) String() string { return strings.ToValidUTF8(k.Buffer.String(), "\uFFFD") }

// IsText reports whether the stream can be shown as text.
func (k *Kept) IsText() bool {
	return !bytes.ContainsRune(k.Bytes(), 0) && (utf8.Valid(k.Bytes()) || k.Cut)
}
