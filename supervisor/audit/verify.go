package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/jail-sandbox/jail/supervisor/flock"
)

// Report is the result of a successful Verify.
type Report struct {
	Records     uint64 `json:"records"`
	Checkpoints uint64 `json:"checkpoints"`
	// Gaps counts the gap records.
	Gaps uint64 `json:"gaps"`
	// Pruned counts the records that were removed at the beginning, by the signed cut.
	Pruned uint64 `json:"pruned,omitempty"`
	// Keys counts the changes of the signing key.
	Keys uint64 `json:"keys,omitempty"`
	// Origin is the log's name in its head.
	Origin string `json:"origin,omitempty"`
	// Anchors counts the anchors that the log matches.
	Anchors int `json:"anchors,omitempty"`
	// Old counts the anchors whose records were pruned, so they cannot be compared.
	Old int `json:"old_anchors,omitempty"`
}

// String returns the line that "jail audit verify" prints.
func (r Report) String() string {
	return fmt.Sprintf("verified %d records, %d checkpoints", r.Records, r.Checkpoints)
}

// Kind is the kind of a fault.
type Kind string

// Kinds of faults.
const (
	altered    Kind = "altered"
	missing    Kind = "missing"
	outOfOrder Kind = "out of order"
	unsigned   Kind = "unsigned"
)

// Fault is the error for a log that is not in order. Seq is the first wrong record.
type Fault struct {
	Seq  uint64 `json:"record"`
	Kind Kind   `json:"kind"`
	Why  string `json:"why"`
}

func (f *Fault) Error() string { return fmt.Sprintf("record %d is %s: %s", f.Seq, f.Kind, f.Why) }

// Verify reads the log in dir and checks each line's format, number and hash, and each checkpoint
// and the head against the public keys in pub (one a line). It compares the log with each anchor in
// kept, which detects a log that the owner of its key rebuilt or put back. It only reads, in
// bounded memory, and works on a log in use: it then checks up to the head at the end. It returns a
// *[Fault] for a log that is not in order; any other error means that the log could not be checked.
func Verify(dir, pub string, kept ...Anchor) (Report, error) {
	return verify(dir, pub, waitFor, kept...)
}

// verify is Verify with another waiting time for an active writer, for tests.
func verify(dir, pub string, patience time.Duration, kept ...Anchor) (Report, error) {
	known, err := verifiers(pub)
	if err != nil {
		return Report{}, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Report{}, err
	}
	defer root.Close()
	v := &verifier{root: root, known: known, patience: patience, anchors: newAnchors(kept)}
	begin, e, err := readCut(root, known)
	if err != nil {
		return Report{}, &Fault{1, unsigned,
			fmt.Sprintf("the log was cut behind it, and not by its writer: %v", err)}
	}
	v.chain, v.edge, v.covered, v.report.Pruned = begin.state, e, begin.size, begin.size
	v.src = newMarks(root, begin.size+1)
	defer v.src.close()
	if err := v.run(); errors.Is(err, errPacked) {
		return v.report, v.fault(v.chain.size+1, altered, "%v", err)
	} else if err != nil {
		return v.report, err
	}
	if err := v.anchors.end(v); err != nil {
		return v.report, err
	}
	v.report.Anchors, v.report.Old = v.anchors.checked, v.anchors.pruned
	v.report.Records = v.chain.size - begin.size
	return v.report, nil
}

type verifier struct {
	root  *os.Root
	known note.Verifiers
	src   *marks
	// chain is the state after the last record that was verified.
	chain state
	// edge is the right edge of the tree over these records.
	edge edge
	// covered is the last record under a valid checkpoint.
	covered  uint64
	head     head
	anchors  *anchors
	patience time.Duration
	// headErr says why there is no valid head.
	headErr error
	report  Report
}

// The head of a log in use moves on during Verify. followHead bounds how often Verify follows it.
// waitHead times waitFor is the least wait for the head of a batch that is on disk, and waitWriter
// bounds the wait while a writer holds the lock: a flush may take seconds.
const (
	followHead = 4
	waitHead   = 20
	waitFor    = 25 * time.Millisecond
	waitWriter = time.Minute
)

func (v *verifier) run() error {
	if err := v.readHead(); err != nil {
		return err
	}
	// The anchors of the log's beginning.
	if err := v.anchors.at(v); err != nil {
		return err
	}
	for follow := 0; ; follow++ {
		for v.headErr != nil || v.chain.size < v.head.size {
			m, err := v.src.next()
			if err == io.EOF {
				break
			}
			if err != nil {
				return err
			}
			if err := v.record(m); err != nil {
				return err
			}
		}
		if err := v.compareHead(); err != nil {
			return err
		}
		before := v.head
		moved, err := v.awaitHead()
		if err != nil {
			return err
		}
		if !moved {
			return nil
		}
		if v.headErr == nil && v.head.size < before.size {
			return v.fault(before.size, missing, "the head was put back while the log was read")
		}
		if follow == followHead {
			v.head = before
			return nil
		}
	}
}

func (v *verifier) fault(seq uint64, kind Kind, why string, args ...any) error {
	return &Fault{seq, kind, fmt.Sprintf(why, args...)}
}

// record verifies that m follows the records so far.
func (v *verifier) record(m marked) error {
	want := v.chain.size + 1
	switch {
	case m.err != nil:
		return v.fault(want, altered, "%s line %d: %v", segmentName(m.segment), m.number, m.err)
	case m.prev == v.chain.hash && m.seq != want:
		return v.fault(want, altered, "it follows record %d and says that it is %d", v.chain.size,
			m.seq)
	case m.prev != v.chain.hash && m.seq == want:
		return v.blame(m)
	case m.prev != v.chain.hash && m.seq < want:
		return v.fault(m.seq, outOfOrder, "it stands again where record %d should be", want)
	case m.prev != v.chain.hash:
		return v.misplaced(want, m.seq)
	case m.first && m.segment != m.seq:
		return v.fault(want, outOfOrder, "it is the first of segment %s", segmentName(m.segment))
	}
	if m.kind == TypeCheckpoint {
		if err := v.checkpoint(m); err != nil {
			return err
		}
	}
	if m.kind == TypeGap {
		v.report.Gaps++
	}
	v.chain = state{m.seq, m.hash}
	v.edge.add(m.leaf)
	return v.anchors.at(v)
}

// blame returns the fault if record m does not have the hash of the record before. If the next
// record has the hash of m, the record before was altered, otherwise m.
func (v *verifier) blame(m marked) error {
	prior, hash := v.chain.size, m.hash
	next, err := v.src.next()
	vouched := err == nil && next.err == nil && next.prev == hash ||
		err == io.EOF && v.headErr == nil && v.head.state == state{m.seq, hash}
	if err != nil && err != io.EOF {
		return err
	}
	if vouched && prior > 0 {
		return v.fault(prior, altered, "record %d has another hash for it", m.seq)
	}
	return v.fault(m.seq, altered, "it does not have the hash of what is before it")
}

// misplaced returns the fault for record got in place of want, which is out of order or missing.
func (v *verifier) misplaced(want, got uint64) error {
	for {
		m, err := v.src.next()
		if err != nil && err != io.EOF {
			return err
		}
		if err == nil && m.err == nil && m.seq == want {
			return v.fault(want, outOfOrder, "record %d stands in its place, and it comes later",
				got)
		}
		if err == io.EOF || m.last {
			return v.fault(want, missing, "record %d follows record %d", got, v.chain.size)
		}
	}
}

func (v *verifier) checkpoint(m marked) error {
	var text string
	if err := json.Unmarshal(m.note, &text); err != nil {
		return v.fault(m.seq, unsigned, "its checkpoint holds no note")
	}
	s, next, err := openHandover([]byte(text), v.known)
	if err != nil {
		return v.fault(m.seq, unsigned, "its checkpoint: %v", err)
	}
	if s.state != v.chain || s.root != v.edge.root() {
		return v.fault(v.covered+1, altered,
			"it or one up to record %d is not the one that checkpoint %d signs", v.chain.size,
			m.seq)
	}
	v.covered = m.seq - 1
	v.report.Checkpoints++
	if next == "" {
		return nil
	}
	v.report.Keys++
	if v.known, err = verifiers(next); err != nil {
		return err
	}
	return v.readHead()
}

// compareHead returns a fault if the head does not match the verified records.
func (v *verifier) compareHead() error {
	switch {
	case v.headErr != nil:
		return v.fault(v.covered+1, unsigned, "%v", v.headErr)
	case v.chain.size < v.head.size:
		if torn, err := v.src.torn(); err != nil || torn {
			return errors.Join(err,
				v.fault(v.chain.size+1, altered, "the file ends within its line"))
		}
		return v.fault(v.chain.size+1, missing, "the log ends, and the signed head has %d records",
			v.head.size)
	case v.chain.hash != v.head.hash || v.edge.root() != v.head.root:
		return v.fault(v.head.size, altered, "its hash is not the one in the signed head")
	}
	return nil
}

// readHead reads the head. It retries while the head is being overwritten.
func (v *verifier) readHead() error {
	var last []byte
	for {
		text, err := readSmall(v.root, headFile)
		if errors.Is(err, fs.ErrNotExist) {
			v.headErr = errors.New("there is no signed head")
			return nil
		}
		if err != nil {
			return err
		}
		s, err := openNote(text, v.known, asHead)
		if err == nil {
			origin, _, _ := bytes.Cut(text, []byte("\n"))
			v.report.Origin = string(origin)
			v.head, v.headErr = s, nil
			return nil
		}
		if bytes.Equal(text, last) {
			v.headErr = fmt.Errorf("head: %w", err)
			return nil
		}
		last = text
	}
}

// awaitHead waits for the head to cover lines after it, which an active writer will sign. It
// returns a fault if nobody does. moved reports whether there is more to verify.
func (v *verifier) awaitHead() (moved bool, err error) {
	before, until := v.head, time.Now().Add(waitWriter)
	for tries := 1; ; tries++ {
		// Before readHead: a writer that has released the lock has signed all lines seen so far.
		signed := tries > waitHead && (!v.locked() || time.Now().After(until))
		if err := v.readHead(); err != nil {
			return false, err
		}
		// The head may be signed by a key whose announcement is not read yet.
		if v.headErr != nil {
			more, err := v.src.more()
			if err == nil && !more {
				err = v.compareHead()
			}
			return true, err
		}
		if v.head != before {
			return true, nil
		}
		more, err := v.src.more()
		if err != nil || !more {
			return false, err
		}
		if signed {
			return false, v.fault(before.size+1, unsigned,
				"it is behind the signed head, which has %d records", before.size)
		}
		time.Sleep(v.patience)
	}
}

// locked reports whether a writer holds the log's lock; false if the caller may not open it.
func (v *verifier) locked() bool {
	f, err := openRegular(v.root, lockFile, os.O_RDONLY, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(flock.Apply(f, syscall.LOCK_SH|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}

// marked is a parsed and hashed line, with its place.
type marked struct {
	mark
	// err says why the line is not a record.
	err     error
	segment uint64
	number  int
	// first: it is the first line of its segment.
	first bool
	// last: nothing after the line can be read.
	last bool
}

// Hashing is most of Verify's work and needs no order, so blocks of lines are hashed in parallel
// while one goroutine follows the chain. At most blocksAhead+2 blocks are in memory. The first
// blocks are small, so that little is hashed in vain for a short log, or one with an early fault.
const (
	firstBlock  = 8 << 10
	blockBytes  = 256 << 10
	blocksAhead = 4
)

// block is a sequence of lines. The bytes of its lines are valid until it is reused.
type block struct {
	text []byte
	// ends has the end in text of each line.
	ends  []int
	lines []marked
	// err is the error after the lines, such as io.EOF.
	err error
	// ready is closed when the lines are hashed.
	ready chan struct{}
}

// spare has blocks for reuse.
var spare sync.Pool

// marks yields the parsed and hashed lines of a log in order.
type marks struct {
	// lines is used by the reading goroutine while it runs.
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

// read fills blocks and starts their hashing until the current end of the log.
func (m *marks) read() {
	for size := firstBlock; ; size = min(2*size, blockBytes) {
		b, _ := spare.Get().(*block)
		if b == nil {
			b = &block{}
		}
		b.fill(m.lines, size)
		// b belongs to the receiver once it is sent, so read its err before.
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

// fill copies lines into the block until it has size bytes. It treats a torn line as io.EOF.
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

// hash parses and hashes the block's lines, and closes ready. It stops early if quit is closed.
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

// peek returns the line that the next call of next will return.
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
		// The log may have grown since its end was read.
		m.stop()
		if err != io.EOF || fresh {
			return nil, err
		}
	}
}

// next returns the next line, and io.EOF at the current end of the log. A later call looks again.
func (m *marks) next() (marked, error) {
	l, err := m.peek()
	if err != nil {
		return marked{}, err
	}
	m.index++
	return *l, nil
}

// more reports whether any bytes follow the last returned line.
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

// torn reports whether the log ends with an incomplete line. It is called at the end of the log.
func (m *marks) torn() (bool, error) {
	if m.lines.f == nil {
		return false, nil
	}
	return m.lines.f.torn(m.lines.offset)
}
