package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// catchUp reads what other writers appended since this writer's last batch. Without other writers
// it costs a few system calls and reads no record. It also detects a segment or head that was
// removed or replaced.
func (w *writer) catchUp() error {
	if err := unmoved(w.root, segmentName(w.at.segment), w.seg.info); err != nil {
		if left, leftErr := w.left(); leftErr != nil || !left {
			return w.fail(errors.Join(err, leftErr))
		}
		if err := unmoved(w.root, headFile, w.head.info); err != nil {
			return w.fail(err)
		}
		if err := w.follow(); err != nil {
			return w.fail(err)
		}
		return nil
	}
	if err := unmoved(w.root, headFile, w.head.info); err != nil {
		return w.fail(err)
	}
	text := make([]byte, len(w.head.signed)+1)
	n, err := w.head.file.ReadAt(text, 0)
	if err != nil && err != io.EOF {
		return w.fail(err)
	}
	info, err := w.seg.Stat()
	if err != nil {
		return w.fail(err)
	}
	next, err := exists(w.root, segmentName(w.at.size+1))
	if err != nil {
		return w.fail(err)
	}
	same := bytes.Equal(text[:n], w.head.signed)
	if same && info.Size() == w.seg.size {
		blank, err := w.blank()
		if err != nil {
			return w.fail(err)
		}
		same = blank
	}
	if same && info.Size() == w.seg.size && (!next || w.at.segment == w.at.size+1) {
		return nil
	}
	if err := w.follow(); err != nil {
		return w.fail(err)
	}
	return nil
}

// blank reports whether no line follows the last one that this writer knows.
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

// left reports whether other writers continued in another segment, and packed or pruned the one
// that this writer knows.
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

// follow reads what others appended, up to the head that they signed, and settles the rest.
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
	// Pruned since.
	if from.size > at.size {
		at = position{segment: from.size + 1, state: from.state}
	}
	reader := readLines(w.root)
	defer reader.close()
	if err := reader.seek(at.segment, at.offset); err != nil {
		return err
	}
	if at.size < head.size {
		// Of another writer.
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
