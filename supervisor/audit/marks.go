package audit

import (
	"fmt"
	"io"
	"os"
	"sync"
)

// marked is a line, hashed and parsed, with where it was.
type marked struct {
	mark
	err     error // why it is no record
	segment uint64
	number  int
	first   bool // of its segment
	last    bool // nothing can be read behind it
}

// Hashing is most of the work of Verify and needs no order, so lines are hashed a block at a time on every
// processor while the chain is followed on one. At most blocksAhead+2 blocks are in memory. Blocks begin
// small, so that a short log, or one that is bad at its beginning, is not hashed for nothing.
const (
	firstBlock  = 8 << 10
	blockBytes  = 256 << 10
	blocksAhead = 4
)

// block is some lines in order. Its lines' bytes are good until it is used again.
type block struct {
	text  []byte
	ends  []int // of each line in text
	lines []marked
	err   error         // behind the lines, io.EOF too
	ready chan struct{} // closed when the lines are hashed
}

// spare holds blocks between uses, for whoever verifies next.
var spare sync.Pool

// marks gives the marks of a directory's lines in order.
type marks struct {
	lines *lines // the reading goroutine's while there is one
	ahead chan *block
	quit  chan struct{}
	wait  sync.WaitGroup
	now   *block
	index int
}

func newMarks(root *os.Root, from uint64) *marks {
	m := &marks{lines: readLines(root)}
	m.lines.from = from
	return m
}

func (m *marks) close() {
	m.stop()
	m.lines.close()
}

func (m *marks) start() {
	m.ahead, m.quit = make(chan *block, blocksAhead), make(chan struct{})
	m.wait.Go(m.read)
}

func (m *marks) stop() {
	if m.ahead != nil {
		close(m.quit)
		m.wait.Wait()
		m.ahead = nil
	}
}

// read fills blocks until the end of what is there.
func (m *marks) read() {
	for size := firstBlock; ; size = min(2*size, blockBytes) {
		b, _ := spare.Get().(*block)
		if b == nil {
			b = &block{}
		}
		b.fill(m.lines, size)
		quit, end := m.quit, b.err != nil // b is another's once it is sent
		m.wait.Go(func() { b.hash(quit) })
		select {
		case m.ahead <- b:
		case <-m.quit:
			return
		}
		if end {
			return
		}
	}
}

// fill copies lines. One that the end of the file tears is not there yet: io.EOF.
func (b *block) fill(r *lines, size int) {
	b.text, b.ends, b.lines, b.err, b.ready = b.text[:0], b.ends[:0], b.lines[:0], nil, make(chan struct{})
	for len(b.text) < size {
		l, err := r.next()
		if err == nil && l.torn {
			err = io.EOF
		}
		if err != nil {
			b.err = err
			return
		}
		out := marked{segment: l.segment, number: l.number, first: l.first, last: l.long}
		if l.long {
			out.err, b.err = fmt.Errorf("%w: longer than %d bytes", errLine, maxLine), io.EOF
		} else {
			b.text = append(b.text, l.text...)
		}
		b.ends = append(b.ends, len(b.text))
		b.lines = append(b.lines, out)
		if l.long {
			return
		}
	}
}

// hash stops early where nobody wants the rest.
func (b *block) hash(quit <-chan struct{}) {
	defer close(b.ready)
	var p parser
	start := 0
	for i := range b.lines {
		select {
		case <-quit:
			return
		default:
		}
		if l := &b.lines[i]; l.err == nil {
			l.mark, l.err = p.mark(b.text[start:b.ends[i]])
		}
		start = b.ends[i]
	}
}

// peek gives what next will give.
func (m *marks) peek() (*marked, error) {
	fresh := false
	for {
		if m.ahead == nil {
			m.start()
			fresh = true
		}
		if m.now == nil {
			m.now, m.index = <-m.ahead, 0
			<-m.now.ready
		}
		if m.index < len(m.now.lines) {
			return &m.now.lines[m.index], nil
		}
		err := m.now.err
		spare.Put(m.now)
		m.now = nil
		if err == nil {
			continue
		}
		// An end that was read ahead may be the end no more.
		m.stop()
		if err != io.EOF || fresh {
			return nil, err
		}
	}
}

// next gives io.EOF at the end of the log as it is at the moment; called again it looks for more.
func (m *marks) next() (marked, error) {
	l, err := m.peek()
	if err != nil {
		return marked{}, err
	}
	m.index++
	return *l, nil
}

// more says whether there is anything behind the last line given, be it torn.
func (m *marks) more() (bool, error) {
	_, err := m.peek()
	if err == nil {
		return true, nil
	}
	if err != io.EOF {
		return false, err
	}
	return m.torn()
}

// torn says, at the end of the log, whether there are bytes of a line without its end.
func (m *marks) torn() (bool, error) {
	if m.lines.f == nil {
		return false, nil
	}
	return m.lines.f.grown(m.lines.offset)
}
