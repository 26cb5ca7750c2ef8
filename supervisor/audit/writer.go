package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/jail-sandbox/jail/supervisor/flock"
)

// writer has the open files of a log: the last segment, the signed head, the keys, and the lock
// that excludes other processes.
type writer struct {
	opt  Options
	root *os.Root // Options.Dir
	lock *os.File
	keys keys
	at   position
	seg  openSegment
	head openHead
	tree *tree
	// since counts the records after the last checkpoint.
	since int
	pace  pace
	// broken is the error with which all further calls fail; nil at first.
	broken error
	buf    []byte
}

// keys has the log's signing key and all its public keys.
type keys struct {
	dir    *os.Root // Options.KeyDir
	signer note.Signer
	known  note.Verifiers
}

// openSegment is the segment that records are appended to.
type openSegment struct {
	segment
	info os.FileInfo
	// size is the size of the file. The bytes from the end of the lines to it are zeros.
	size int64
	// begun is the time of the segment's first record.
	begun time.Time
}

// segment is the interface of a segment's file.
type segment interface {
	io.ReaderAt
	io.WriterAt
	Sync() error
	Truncate(size int64) error
	Stat() (os.FileInfo, error)
	Close() error
}

// openHead is the signed head and its copy in the key directory, as open files.
type openHead struct {
	file *os.File
	info os.FileInfo
	// last is audit.head, the head of the last checkpoint, in the key directory.
	last *os.File
	// signed is the content of file.
	signed []byte
	// due: the head waits to be flushed, since dueSince.
	due      bool
	dueSince time.Time
}

// set overwrites the head in place. Its length is constant and less than a sector.
func (o *openHead) set(h signedHead) error {
	if h.err != nil {
		return h.err
	}
	if _, err := o.file.WriteAt(h.text, 0); err != nil {
		return err
	}
	o.signed = h.text
	return nil
}

// position is where the next line is written, with the state before it.
type position struct {
	segment uint64 // first record
	offset  int64
	state
}

func (w *writer) release() {
	if w.tree != nil {
		w.tree.f.Close()
	}
	for _, f := range []*os.File{w.lock, w.head.file, w.head.last} {
		if f != nil {
			f.Close()
		}
	}
	if w.seg.segment != nil {
		w.seg.Close()
	}
	for _, r := range []*os.Root{w.root, w.keys.dir} {
		if r != nil {
			r.Close()
		}
	}
}

func (w *writer) do(f func() error) error {
	if w.broken != nil {
		return w.broken
	}
	if err := flock.Lock(w.lock); err != nil {
		return err
	}
	defer flock.Unlock(w.lock)
	if err := w.catchUp(); err != nil {
		return err
	}
	return f()
}

// headLate bounds how long the head's flush after a run's end is delayed while records come.
const headLate = 20 * time.Millisecond

// sealLater flushes the head after the end of a run has been answered. It does so at once if no
// record waits (more is false), else after headLate, so that several runs share a flush.
func (w *writer) sealLater(more bool) {
	if !w.head.due || w.broken != nil {
		w.head.dueSince = time.Time{}
		return
	}
	if w.head.dueSince.IsZero() {
		w.head.dueSince = time.Now()
	}
	if !more || time.Since(w.head.dueSince) > headLate {
		// The next record reports the error.
		_ = w.seal(false)
		w.head.dueSince = time.Time{}
	}
}

// end writes the queued records and a last checkpoint, and removes the zeros after the lines.
func (w *writer) end(take func() []*request) error {
	if _, err := w.turn(take, true); err != nil {
		return err
	}
	return w.do(func() error {
		err := w.trim()
		if w.head.due {
			err = errors.Join(err, w.seal(false))
		}
		return err
	})
}

// turn writes one batch under the lock and returns how many records it answered. It calls take once
// it has the lock, so that a record can be withdrawn while another process holds it.
func (w *writer) turn(take func() []*request, checkpoint bool) (answered int, err error) {
	err = w.broken
	if err == nil {
		if err = flock.Lock(w.lock); err == nil {
			defer flock.Unlock(w.lock)
		}
	}
	batch := take()
	if checkpoint = checkpoint && w.since > 0; err == nil && (checkpoint || len(batch) > 0) {
		err = w.commit(batch, checkpoint)
	}
	for _, r := range batch {
		if r.err = err; err != nil {
			r.seq = 0
		}
		close(r.done)
	}
	return len(batch), err
}

// catchUp reads the records that other writers appended since this writer's last batch. Without
// other writers it makes a few system calls and reads no record. It also detects a segment or head
// that was removed or replaced.
func (w *writer) catchUp() error {
	current, err := w.current()
	if err == nil && !current {
		err = w.follow()
	}
	if err != nil {
		return w.fail(err)
	}
	return nil
}

// current reports whether no other writer has written since this writer did.
func (w *writer) current() (bool, error) {
	segmentErr := unmoved(w.root, segmentName(w.at.segment), w.seg.info)
	if segmentErr != nil {
		if left, err := w.left(); err != nil || !left {
			return false, errors.Join(segmentErr, err)
		}
	}
	if err := unmoved(w.root, headFile, w.head.info); err != nil || segmentErr != nil {
		return false, err
	}
	text := make([]byte, len(w.head.signed)+1)
	n, err := w.head.file.ReadAt(text, 0)
	if err != nil && err != io.EOF {
		return false, err
	}
	info, err := w.seg.Stat()
	if err != nil {
		return false, err
	}
	next, err := exists(w.root, segmentName(w.at.size+1))
	if err != nil {
		return false, err
	}
	if !bytes.Equal(text[:n], w.head.signed) || info.Size() != w.seg.size ||
		next && w.at.segment != w.at.size+1 {
		return false, nil
	}
	return w.blank()
}

// blank reports whether no line follows the last line that this writer knows.
func (w *writer) blank() (bool, error) {
	if w.seg.size == w.at.offset {
		return true, nil
	}
	var first [1]byte
	if _, err := w.seg.ReadAt(first[:], w.at.offset); err != nil {
		return false, err
	}
	return first[0] == 0, nil
}

func unmoved(root *os.Root, name string, opened os.FileInfo) error {
	info, err := root.Lstat(name)
	if err == nil && os.SameFile(info, opened) {
		return nil
	}
	return errors.Join(fmt.Errorf("%w: %s was moved, removed or replaced while in use", errDamaged,
		name), err)
}

// left reports whether other writers continued in a newer segment and have packed or pruned this
// writer's.
func (w *writer) left() (bool, error) {
	there, err := exists(w.root, segmentName(w.at.segment))
	if err != nil || there {
		return false, err
	}
	packed, err := exists(w.root, packedName(w.at.segment))
	if err != nil || packed {
		return packed, err
	}
	from, err := w.cut()
	return from.size >= w.at.segment, err
}

// follow reads the records of other writers up to the head that they signed, and settles the rest.
func (w *writer) follow() error {
	head, err := w.readHead()
	if err != nil {
		return err
	}
	if head.size < w.at.size {
		return fmt.Errorf("%w: the head was put back from record %d to %d", errDamaged, w.at.size,
			head.size)
	}
	at := w.at
	from, err := w.cut()
	if err != nil {
		return err
	}
	// This writer's records were pruned.
	if from.size > at.size {
		at = position{segment: from.size + 1, state: from.state}
	}
	reader := readLines(w.root)
	defer reader.close()
	if err := reader.seek(at.segment, at.offset); err != nil {
		return err
	}
	if at.size < head.size {
		// Another writer is active.
		w.pace.batches = -noAhead
	}
	var p parser
	for at.size < head.size {
		text, err := reader.next()
		if err == io.EOF {
			return fmt.Errorf("%w: record %d is missing: the signed head has %d", errDamaged,
				at.size+1, head.size)
		}
		if err != nil {
			return err
		}
		m, err := p.mark(text.text)
		if err != nil || text.torn || m.seq != at.size+1 || m.prev != at.hash {
			return fmt.Errorf("%w: record %d does not follow record %d", errDamaged, at.size+1,
				at.size)
		}
		at = position{text.segment, reader.offset, state{m.seq, m.hash}}
		if w.since++; m.kind == TypeCheckpoint {
			w.since = 0
		}
	}
	if at.hash != head.hash {
		return fmt.Errorf("%w: record %d is altered: its hash is not the signed one", errDamaged,
			at.size)
	}
	if err := w.heal(head); err != nil {
		return err
	}
	return w.settle(at)
}
