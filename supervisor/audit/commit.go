package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/jail-sandbox/jail/jail/atomicfile"
)

// commit appends a batch: lines, flush, signed head. The caller holds the lock.
func (w *writer) commit(batch []*request, checkpointDue bool) error {
	if err := w.catchUp(); err != nil {
		return err
	}
	if full := w.at.offset >= w.opt.SegmentBytes; full || w.at.offset > 0 &&
		w.opt.SegmentTime > 0 && w.opt.Now().Sub(w.seg.begun) >= w.opt.SegmentTime {
		if err := w.enter(w.at.size + 1); err != nil {
			return err
		}
	}
	next, ends := w.at, false
	w.buf = w.buf[:0]
	for _, r := range batch {
		r.seq = w.line(&next, r.body)
		ends = ends || r.ends
	}
	checkpointDue = checkpointDue || w.since+len(batch) >= w.opt.CheckpointRecords
	if checkpointDue {
		body, err := w.checkpoint(next.state)
		if err != nil {
			w.tree.drop()
			return err
		}
		w.line(&next, body)
	}
	next.offset += int64(len(w.buf))
	if err := w.store(next); err != nil {
		return err
	}
	w.since += len(batch)
	if checkpointDue {
		return w.seal(true)
	}
	// The caller of a run does not wait for the second flush.
	w.head.due = w.head.due || ends
	return nil
}

// own appends a record about the log itself, outside of a batch.
func (w *writer) own(e Event) error {
	next := w.at
	w.buf = w.buf[:0]
	w.line(&next, Entry{Actor: w.opt.Actor, Event: e}.body())
	next.offset += int64(len(w.buf))
	return w.store(next)
}

// line adds a record's line to buf and the tree, advances next, and returns the record's number.
func (w *writer) line(next *position, body []byte) uint64 {
	start := len(w.buf)
	w.buf = append(w.buf, `{"seq":`...)
	w.buf = strconv.AppendUint(w.buf, next.size+1, 10)
	w.buf = append(w.buf, `,"time":"`...)
	w.buf = appendTime(w.buf, w.opt.Now())
	w.buf = append(w.buf, `",`...)
	w.buf = append(w.buf, body...)
	w.buf = append(w.buf, `,"prev":"`+sumPrefix...)
	w.buf = hex.AppendEncode(w.buf, next.hash[:])
	w.buf = append(w.buf, `"}`...)
	next.hash = sha256.Sum256(w.buf[start:])
	w.tree.add(w.buf[start:])
	next.size++
	w.buf = append(w.buf, '\n')
	return next.size
}

func (w *writer) checkpoint(s state) ([]byte, error) {
	text, err := head{s, w.tree.root()}.sign(asCheckpoint, w.opt.Now(), nil, w.keys.signer)
	if err != nil {
		return nil, err
	}
	return Entry{Actor: w.opt.Actor, Event: checkpoint{string(text)}}.body(), nil
}

// store writes buf to the segment, flushes it, and then writes its signed head. After a failed
// write it truncates and the log stays usable, since a full disk can be freed. After a failed flush
// the state of the disk is unknown, so all later calls fail.
func (w *writer) store(next position) error {
	// The tree is written first, so that a full disk refuses the whole batch.
	if err := w.tree.write(); err != nil {
		w.tree.drop()
		return fmt.Errorf("append: %w", err)
	}
	signed := w.signing(head{next.state, w.tree.root()})
	if err := w.write(next.offset); err != nil {
		w.tree.drop()
		return err
	}
	if err := w.seg.Sync(); err != nil {
		return w.fail(err)
	}
	w.tree.keep()
	if err := w.head.set(<-signed); err != nil {
		return w.fail(err)
	}
	w.at = next
	if cap(w.buf) > maxBatch {
		w.buf = nil
	}
	return nil
}

// write writes buf to the segment, up to byte end, with zeros behind it if they are due and the
// disk has room.
func (w *writer) write(end int64) error {
	size := max(w.seg.size, end)
	if n := w.ahead(end); n > 0 {
		_, err := w.seg.WriteAt(append(w.buf, zeroFill[:n]...), w.at.offset)
		if err == nil {
			w.seg.size = end + n
			return nil
		}
		w.pace.batches = -noAhead
		if err := w.seg.Truncate(w.at.offset); err != nil {
			return w.fail(err)
		}
		size = end
	}
	if _, err := w.seg.WriteAt(w.buf, w.at.offset); err != nil {
		if cutErr := w.seg.Truncate(w.at.offset); cutErr != nil {
			return w.fail(errors.Join(err, cutErr))
		}
		w.seg.size = w.at.offset
		return fmt.Errorf("append: %w", err)
	}
	w.seg.size = size
	return nil
}

// fail makes all later calls of the writer fail with err, since the writer may be wrong about what
// is on the disk.
func (w *writer) fail(err error) error {
	w.broken = fmt.Errorf("%w: %w", errBroken, err)
	return w.broken
}

type signedHead struct {
	text []byte
	err  error
}

// signing signs h concurrently with the flush, and returns the channel of the result.
func (w *writer) signing(h head) <-chan signedHead {
	signed, now := make(chan signedHead, 1), w.opt.Now()
	go func() {
		text, err := h.sign(asHead, now, nil, w.keys.signer)
		signed <- signedHead{text, err}
	}()
	return signed
}

// seal flushes the head. At a checkpoint it also stores a copy in the key directory, so that the
// next Open notices a log that was put back to an older state together with its head.
func (w *writer) seal(checkpoint bool) error {
	w.head.due = false
	if err := flush(w.head.file); err != nil {
		return w.fail(err)
	}
	if !checkpoint {
		return nil
	}
	w.since = 0
	_, err := w.head.last.WriteAt(w.head.signed, 0)
	if err = errors.Join(err, flush(w.head.last)); err != nil {
		return w.fail(err)
	}
	return nil
}

// enter makes the segment that begins with record first the current one, and creates a missing one.
func (w *writer) enter(first uint64) error {
	name := segmentName(first)
	there, err := exists(w.root, name)
	if err != nil {
		return err
	}
	if packed, err := exists(w.root, packedName(first)); err != nil || packed && !there {
		return errors.Join(err,
			fmt.Errorf("%w: %s is packed, and nothing but the last segment is written to",
				errDamaged, name))
	}
	if w.seg.segment != nil && w.at.segment != first {
		// Only the last segment may have zeros.
		if err := w.trim(); err != nil {
			return err
		}
		if err := w.seg.Sync(); err != nil {
			return w.fail(err)
		}
	}
	f, err := openRegular(w.root, name, os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return err
	}
	if !there {
		err = atomicfile.SyncIn(w.root)
	}
	info, statErr := f.Stat()
	if err = errors.Join(err, statErr); err != nil {
		return errors.Join(err, f.Close())
	}
	if w.seg.segment != nil {
		w.seg.Close()
	}
	w.seg = openSegment{segmentFile{f}, info, info.Size(), w.opt.Now()}
	if there && w.opt.SegmentTime > 0 {
		// Verify reports an error.
		if begun, err := beginning(w.root, first); err == nil && !begun.IsZero() {
			w.seg.begun = begun
		}
	}
	if w.at.segment != first {
		w.at.segment, w.at.offset = first, 0
	}
	return nil
}
