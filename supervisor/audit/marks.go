package audit

import (
	"fmt"
	"io"
	"os"
	"sync"
)

// marked is a line, hashed and parsed, with its place.
type marked struct {
	mark
	// err says why the line is no record.
	err     error
	segment uint64
	number  int
	// first of its segment.
	first bool
	// last: nothing after it can be read.
	last bool
}

// Hashing is most of the work of Verify and needs no order, so lines are hashed a block at a time
// on every processor while the chain is followed on one. At most blocksAhead+2 blocks are in
// memory. Blocks begin small, so that a short log, or one that is bad at its beginning, is not
// hashed for nothing.
const (
	firstBlock  = 8 << 10
	blockBytes  = 256 << 10
	blocksAhead = 4
)

// block is a sequence of lines. The bytes of its lines are valid until it is reused.
type block struct {
	text []byte
	// Of each line in text.
	ends  []int
	lines []marked
	// err after the lines, also io.EOF.
	err error
	// Closed when the lines are hashed.
	ready chan struct{}
}

// spare holds blocks between uses.
var spare sync.Pool

// marks returns the marks of a directory's lines in order.
type marks struct {
	// lines belong to the reading goroutine while there is one.
	lines *lines
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

// read fills blocks until the current end of the log.
func (m *marks) read() {
	for size := firstBlock; ; size = min(2*size, blockBytes) {
		b, _ := spare.Get().(*block)
		if b == nil {
			b = &block{}
		}
		b.fill(m.lines, size)
		// b belongs to the receiver once it is sent.
		quit, end := m.quit, b.err != nil
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

// fill copies lines. A torn line at the end of the file counts as not there: io.EOF.
func (b *block) fill(r *lines, size int) {
	b.text, b.ends, b.lines, b.err, b.ready = b.text[:0], b.ends[:0], b.lines[:0], nil,
		make(chan struct{})
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

// hash stops early if quit is closed.
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

// peek returns the line that the following call of next will return.
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
		// An end that was read ahead may have moved.
		m.stop()
		if err != io.EOF || fresh {
			return nil, err
		}
	}
}

// next returns io.EOF at the current end of the log; a later call looks for more.
func (m *marks) next() (marked, error) {
	l, err := m.peek()
	if err != nil {
		return marked{}, err
	}
	m.index++
	return *l, nil
}

// more reports whether anything follows the last returned line, even a torn one.
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

// torn reports, at the end of the log, whether there are bytes of a line without its end.
func (m *marks) torn() (bool, error) {
	if m.lines.f == nil {
		return false, nil
	}
	return m.lines.f.torn(m.lines.offset)
}
