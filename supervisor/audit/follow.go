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
func (l *Log) catchUp() error {
	if err := l.unmoved(segmentName(l.at.segment), l.segInfo); err != nil {
		if left, leftErr := l.left(); leftErr != nil || !left {
			return l.fail(errors.Join(err, leftErr))
		}
		if err := l.unmoved(headFile, l.hdInfo); err != nil {
			return l.fail(err)
		}
		if err := l.follow(); err != nil {
			return l.fail(err)
		}
		return nil
	}
	if err := l.unmoved(headFile, l.hdInfo); err != nil {
		return l.fail(err)
	}
	text := make([]byte, len(l.signed)+1)
	n, err := l.head.ReadAt(text, 0)
	if err != nil && err != io.EOF {
		return l.fail(err)
	}
	info, err := l.seg.Stat()
	if err != nil {
		return l.fail(err)
	}
	next, err := exists(l.root, segmentName(l.at.size+1))
	if err != nil {
		return l.fail(err)
	}
	same := bytes.Equal(text[:n], l.signed)
	if same && info.Size() == l.at.offset && (!next || l.at.segment == l.at.size+1) {
		return nil
	}
	if err := l.follow(); err != nil {
		return l.fail(err)
	}
	return nil
}

func (l *Log) unmoved(name string, opened os.FileInfo) error {
	info, err := l.root.Lstat(name)
	if err == nil && os.SameFile(info, opened) {
		return nil
	}
	return errors.Join(fmt.Errorf("%w: %s was moved, removed or replaced while in use", errDamaged,
		name), err)
}

// left reports whether other writers continued in another segment, and packed or pruned the one
// that this writer knows.
func (l *Log) left() (bool, error) {
	there, err := exists(l.root, segmentName(l.at.segment))
	if err != nil || there {
		return false, err
	}
	packed, err := exists(l.root, packedName(l.at.segment))
	if err != nil || packed {
		return packed, err
	}
	from, err := l.cut()
	return from.size >= l.at.segment, err
}

// follow reads what others appended, up to the head that they signed, and settles the rest.
func (l *Log) follow() error {
	head, err := l.readHead()
	if err != nil {
		return err
	}
	if head.size < l.at.size {
		return fmt.Errorf("%w: the head was put back from record %d to %d", errDamaged, l.at.size,
			head.size)
	}
	at := l.at
	from, err := l.cut()
	if err != nil {
		return err
	}
	// Pruned since.
	if from.size > at.size {
		at = position{segment: from.size + 1, state: from.state}
	}
	reader := readLines(l.root)
	defer reader.close()
	if err := reader.seek(at.segment, at.offset); err != nil {
		return err
	}
	for at.size < head.size {
		text, err := reader.next()
		if err == io.EOF {
			return fmt.Errorf("%w: record %d is missing: the signed head has %d", errDamaged,
				at.size+1, head.size)
		}
		if err != nil {
			return err
		}
		m, err := l.parser.mark(text.text)
		if err != nil || text.torn || m.seq != at.size+1 || m.prev != at.hash {
			return fmt.Errorf("%w: record %d does not follow record %d", errDamaged, at.size+1,
				at.size)
		}
		at = position{text.segment, reader.offset, state{m.seq, m.hash}}
		if l.since++; m.kind == TypeCheckpoint {
			l.since = 0
		}
	}
	if at.hash != head.hash {
		return fmt.Errorf("%w: record %d is altered: its hash is not the signed one", errDamaged,
			at.size)
	}
	if err := l.heal(head); err != nil {
		return err
	}
	return l.settle(at)
}
