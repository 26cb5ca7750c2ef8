package audit

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/jail-sandbox/jail/jail/atomicfile"
)

// commit appends a batch: lines, flush, head. The caller holds the lock.
func (l *Log) commit(batch []*request, checkpointDue bool) error {
	if err := l.catchUp(); err != nil {
		return err
	}
	if full := l.at.offset >= l.opt.SegmentBytes; full || l.at.offset > 0 &&
		l.opt.SegmentTime > 0 && l.opt.Now().Sub(l.begun) >= l.opt.SegmentTime {
		if err := l.enter(l.at.size + 1); err != nil {
			return err
		}
	}
	next, ends := l.at, false
	l.buf = l.buf[:0]
	for _, r := range batch {
		r.seq = l.line(&next, r.body)
		ends = ends || r.ends
	}
	checkpointDue = checkpointDue || l.since+len(batch) >= l.opt.CheckpointRecords
	if checkpointDue {
		body, err := l.checkpoint(next.state)
		if err != nil {
			l.tree.drop()
			return err
		}
		l.line(&next, body)
	}
	next.offset += int64(len(l.buf))
	if err := l.store(next); err != nil {
		return err
	}
	l.since += len(batch)
	if !checkpointDue && !ends {
		return nil
	}
	return l.seal(checkpointDue)
}

// line adds a line to buf and to the tree and moves next past it.
func (l *Log) line(next *position, body []byte) uint64 {
	start := len(l.buf)
	l.buf = append(l.buf, `{"seq":`...)
	l.buf = strconv.AppendUint(l.buf, next.size+1, 10)
	l.buf = append(l.buf, `,"time":"`...)
	l.buf = l.opt.Now().UTC().AppendFormat(l.buf, timeLayout)
	l.buf = append(l.buf, `",`...)
	l.buf = append(l.buf, body...)
	l.buf = append(l.buf, `,"prev":"`+sumPrefix...)
	l.buf = hex.AppendEncode(l.buf, next.hash[:])
	l.buf = append(l.buf, `"}`...)
	next.hash = sha256.Sum256(l.buf[start:])
	l.tree.add(l.buf[start:])
	next.size++
	l.buf = append(l.buf, '\n')
	return next.size
}

func (l *Log) checkpoint(s state) ([]byte, error) {
	root, err := l.tree.root()
	if err != nil {
		return nil, err
	}
	text, err := head{s, root}.sign(asCheckpoint, l.opt.Now(), nil, l.signer)
	if err != nil {
		return nil, err
	}
	return Entry{Actor: l.opt.Actor, Event: checkpoint{string(text)}}.body(), nil
}

// store makes buf durable, then its head. After a failed write it truncates and the log goes on,
// since a full disk can be freed. After a failed flush the state of the disk is unknown, so the log
// ends.
func (l *Log) store(next position) error {
	root, err := l.tree.root()
	if err == nil {
		// First, so that a full disk refuses the batch as a whole.
		err = l.tree.write()
	}
	if err != nil {
		l.tree.drop()
		return fmt.Errorf("append: %w", err)
	}
	signed := l.signing(head{next.state, root})
	if _, err := l.seg.Write(l.buf); err != nil {
		l.tree.drop()
		if cutErr := l.seg.Truncate(l.at.offset); cutErr != nil {
			return l.fail(errors.Join(err, cutErr))
		}
		return fmt.Errorf("append: %w", err)
	}
	if err := l.seg.Sync(); err != nil {
		return l.fail(err)
	}
	l.tree.keep()
	if err := l.setHead(<-signed); err != nil {
		return l.fail(err)
	}
	l.at = next
	if cap(l.buf) > maxBatch {
		l.buf = nil
	}
	return nil
}

// fail ends this handle: its knowledge of the disk may be wrong from here on.
func (l *Log) fail(err error) error {
	l.broken = fmt.Errorf("%w: %w", errBroken, err)
	return l.broken
}

// setHead overwrites the head in place: always the same length, less than a sector.
func (l *Log) setHead(h signedHead) error {
	if h.err != nil {
		return h.err
	}
	if _, err := l.head.WriteAt(h.text, 0); err != nil {
		return err
	}
	l.signed = h.text
	return nil
}

type signedHead struct {
	text []byte
	err  error
}

// signing signs a head concurrently with the flush.
func (l *Log) signing(h head) <-chan signedHead {
	signed, now := make(chan signedHead, 1), l.opt.Now()
	go func() {
		text, err := h.sign(asHead, now, nil, l.signer)
		signed <- signedHead{text, err}
	}()
	return signed
}

// seal flushes the head and, at a checkpoint, stores a copy with the key, so that the next Open
// notices a log that was put back to an older state together with its head.
func (l *Log) seal(checkpoint bool) error {
	if err := l.head.Sync(); err != nil {
		return l.fail(err)
	}
	if !checkpoint {
		return nil
	}
	l.since = 0
	_, err := l.lastHead.WriteAt(l.signed, 0)
	if err = errors.Join(err, l.lastHead.Sync()); err != nil {
		return l.fail(err)
	}
	return nil
}

// firstTime returns the time of a segment's first record, now if there is none.
func firstTime(root *os.Root, name string, now time.Time) time.Time {
	f, err := openRegular(root, name, os.O_RDONLY, 0)
	if err != nil {
		return now
	}
	defer f.Close()
	text, err := bufio.NewReaderSize(f, maxLine).ReadSlice('\n')
	if err != nil {
		return now
	}
	r, err := ParseRecord(text[:len(text)-1])
	if err != nil {
		// Verify reports the error.
		return now
	}
	return r.Time
}

// enter continues in the segment that begins with record first, and makes it if it is missing.
func (l *Log) enter(first uint64) error {
	name := segmentName(first)
	there, err := exists(l.root, name)
	if err != nil {
		return err
	}
	if packed, err := exists(l.root, packedName(first)); err != nil || packed && !there {
		return errors.Join(err,
			fmt.Errorf("%w: %s is packed, and nothing but the last segment is written to",
				errDamaged, name))
	}
	f, err := openRegular(l.root, name, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
	if err != nil {
		return err
	}
	if !there {
		err = atomicfile.SyncIn(l.root)
	}
	info, statErr := f.Stat()
	if err = errors.Join(err, statErr); err != nil {
		return errors.Join(err, f.Close())
	}
	if l.seg != nil {
		l.seg.Close()
	}
	l.seg, l.segInfo, l.begun = f, info, l.opt.Now()
	if there && l.opt.SegmentTime > 0 {
		l.begun = firstTime(l.root, name, l.begun)
	}
	if l.wrap != nil {
		l.seg = l.wrap(f)
	}
	if l.at.segment != first {
		l.at.segment, l.at.offset = first, 0
	}
	return nil
}
