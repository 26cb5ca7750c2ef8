package supervisor

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"github.com/jail-sandbox/jail/runners"
)

// Streams are the caller's ends of the tool's standard streams. In may be nil for none.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	// Sizes are those that the caller's terminal takes, where the run has one. It may be nil.
	Sizes <-chan runners.Terminal
	// Started is called once the tool runs. It may be nil.
	Started func()
	// Tracked is called once the run can be ended, or when there is none: from Supervisor.Enter. It may be nil.
	Tracked func()
}

// begun says that Tracked need not be waited for.
func (s Streams) begun() {
	if s.Tracked != nil {
		s.Tracked()
	}
}

// pumps carry the streams between the caller and the jail, through pipes, so that no descriptor of the caller's goes in: a terminal
// in particular, whose input queue anything inside could fill (CVE-2017-5226).
type pumps struct {
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

func newPumps(limit int64, over func(seen int64), gone func()) (*pumps, error) {
	p := &pumps{limit: limit, over: over, gone: gone}
	for i := range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			p.close()
			return nil, err
		}
		if p.jail[i], p.host[i] = r, w; i > 0 {
			p.jail[i], p.host[i] = w, r
		}
	}
	return p, nil
}

// handOver closes the jail's ends, which the jail now has.
func (p *pumps) handOver() {
	for _, f := range p.jail {
		f.Close()
	}
}

func (p *pumps) start(s Streams) {
	if s.In == nil {
		p.host[0].Close()
	} else {
		go func() {
			_, _ = io.Copy(p.host[0], s.In) // a tool that does not read, or a caller that is gone, are no errors
			p.host[0].Close()
		}()
	}
	for i, to := range []io.Writer{s.Out, s.Err} {
		p.out[i].all, p.out[i].from = p, p.host[1+i]
		p.carrying.Go(func() { p.out[i].carry(to) })
	}
}

// A pump carries one of the streams that the tool writes.
type pump struct {
	all  *pumps
	from *os.File

	mu    sync.Mutex
	ended bool   // nothing more comes out of the pipe
	rest  []byte // that was in it when the jail ended
}

// carry copies what the tool writes until its end, as fast as the caller takes it and no further than the limit of both streams together.
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
	if n > 0 {
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

// finish takes what the tool wrote and its caller has not taken yet, for which only the caller's own answer waits: see given. Nothing of the jail may
// live any more.
func (p *pumps) finish() {
	for i := range p.out {
		p.out[i].drain()
	}
	p.close()
}

// given waits until the caller has taken all that the tool wrote, or is gone. Nothing else of a run waits for that once its jail has ended.
func (r *run) given() {
	if r != nil && r.pumps != nil {
		r.pumps.carrying.Wait()
	}
}

func (p *pumps) close() {
	for i := range 3 {
		if p.host[i] != nil {
			p.host[i].Close()
		}
		if p.jail[i] != nil {
			p.jail[i].Close()
		}
	}
}
