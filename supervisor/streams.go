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
	out       sync.WaitGroup
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
	p.out.Go(func() { p.carry(s.Out, p.host[1]) })
	p.out.Go(func() { p.carry(s.Err, p.host[2]) })
}

// carry copies what the tool writes until its end, as fast as the caller takes it and no further than the limit of both streams together.
func (p *pumps) carry(to io.Writer, from *os.File) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			seen := p.seen.Add(int64(n))
			fits := int64(n) - max(0, seen-p.limit)
			if fits < int64(n) {
				p.truncated.Store(true)
			}
			if fits > 0 {
				if _, err := to.Write(buf[:fits]); err != nil {
					p.gone()
					to = io.Discard
				}
			}
			if seen > p.limit {
				p.over(seen)
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				p.gone()
			}
			return
		}
	}
}

// finish waits until everything that the tool wrote has been carried. The tool must have ended.
func (p *pumps) finish() {
	p.out.Wait()
	p.close()
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
