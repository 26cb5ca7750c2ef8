package audit

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// A flush is faster if the file does not grow, since the file system then writes no metadata. So a
// writer that has written a number of batches fills the last segment with zeros ahead of its lines,
// up to a multiple of aheadStep, and overwrites them. A reader takes zeros for the end of the lines
// if they reach to the end of the file and are at most aheadStep bytes, and the size of the file is
// a multiple of aheadStep. All other zeros are damage, since no line contains any.
//
// A segment has such zeros only while it is the last and records come without a pause. At rest it
// has lines only, for programs that know nothing of jail.
const aheadStep = 1 << 20

// These are variables for tests.
var (
	// aheadAfter is the number of batches without a pause that a writer writes before it fills a
	// segment with zeros. For the few batches of one run the zeros cost more than they save.
	aheadAfter = 256
	// aheadPause is the time without a batch after which the zeros are removed.
	aheadPause = 200 * time.Millisecond
)

// noAhead is the number of batches for which a writer makes no zeros after the disk had no room
// for them, or after it found another writer in the log: a writer of jail 0.7 takes them for torn
// bytes.
const noAhead = 4096

// zeroFill is aheadStep zero bytes.
var zeroFill [aheadStep]byte

// pace counts the batches that were written without a pause.
type pace struct {
	batches int
	last    time.Time
	pause   time.Duration
}

// next counts a batch written at now, and returns the number of batches without a pause.
func (p *pace) next(now time.Time) int {
	if now.Sub(p.last) > p.pause {
		// A count below zero stays: see noAhead.
		p.batches = min(p.batches, 0)
	}
	p.last = now
	p.batches++
	return p.batches
}

// ahead returns the number of zeros to write after lines that end at byte end of the segment.
func (w *writer) ahead(end int64) int64 {
	if w.pace.next(time.Now()) < aheadAfter || end <= w.seg.size || w.opt.SegmentBytes < aheadStep {
		return 0
	}
	return (aheadStep - end%aheadStep) % aheadStep
}

// trim truncates the segment to the end of its lines, which removes the zeros.
func (w *writer) trim() error {
	if w.seg.size <= w.at.offset {
		return nil
	}
	if err := w.seg.Truncate(w.at.offset); err != nil {
		return err
	}
	w.seg.size = w.at.offset
	return nil
}

// segmentFile is a segment's file.
type segmentFile struct{ *os.File }

// Sync flushes the content, and the size if it has changed, by fdatasync(2).
func (f segmentFile) Sync() error { return flush(f.File) }

// flush calls fdatasync(2), again after EINTR.
func flush(f *os.File) error {
	for {
		err := syscall.Fdatasync(int(f.Fd()))
		if err == nil {
			return nil
		}
		if err != syscall.EINTR {
			return &fs.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
		}
	}
}

// fill classifies the bytes of a file from some byte to its end.
type fill int

const (
	// filled: bytes other than zeros, or zeros that no writer put there.
	filled fill = iota
	// blank: zeros for later lines, or nothing.
	blank
	// moving: a writer overwrote zeros during the read.
	moving
)

// fillAt classifies the bytes of f from byte at to its end at byte size. The caller has read a zero
// at byte at, or the end of the file.
func fillAt(f io.ReaderAt, size, at int64) (fill, error) {
	if at >= size {
		return blank, nil
	}
	rest := make([]byte, min(size-at, aheadStep))
	n, err := f.ReadAt(rest, at)
	if err != nil && err != io.EOF {
		return filled, err
	}
	rest = rest[:n]
	if n > 0 && rest[0] != 0 {
		return moving, nil
	}
	if !bytes.Equal(rest, zeroFill[:n]) {
		// A writer writes from the front to the back. If there is still no line at the front, then
		// no writer wrote the bytes after it.
		first := rest[:1]
		if _, err := f.ReadAt(first, at); err != nil && err != io.EOF {
			return filled, err
		}
		if first[0] != 0 {
			return moving, nil
		}
		return filled, nil
	}
	if size%aheadStep != 0 || size-at > aheadStep {
		return filled, nil
	}
	return blank, nil
}

// linesEnd returns the end of the lines in a segment of the given size. Torn bytes after the lines
// count as lines, zeros do not.
func linesEnd(f io.ReaderAt, size int64) (int64, error) {
	if size == 0 || size%aheadStep != 0 {
		return size, nil
	}
	from := size - aheadStep
	last := make([]byte, aheadStep)
	n, err := f.ReadAt(last, from)
	if err != nil && err != io.EOF {
		return 0, err
	}
	return from + int64(len(bytes.TrimRight(last[:n], "\x00"))), nil
}
