package audit

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"

	"github.com/jail-sandbox/jail/jail/atomicfile"
	"github.com/jail-sandbox/jail/supervisor/flock"
)

// Packing is the result of [Log.Compress].
type Packing struct {
	Segments int
	// Before is the size of the segments in bytes.
	Before int64
	// After is their packed size.
	After int64
}

// Compress packs the segments that are no longer written. Hashes and signatures cover lines, so
// nothing else changes. It packs each segment to a temporary file, compares it, makes it durable
// and renames it before it removes the plain one, so that a crash leaves one of them whole. The log
// takes records meanwhile. Compress calls stop, if it is not nil, before each segment.
func (l *Log) Compress(stop func() bool) (p Packing, err error) {
	var list []uint64
	err = l.hold(func() error {
		// The head on disk is then not about a packed segment, and a writer reads no packed segment
		// on the way to the end.
		if err := l.writer.seal(false); err != nil {
			return err
		}
		all, err := segments(l.writer.root)
		for _, first := range all {
			if first < l.writer.at.segment && l.writer.at.offset > 0 {
				list = append(list, first)
			}
		}
		return err
	})
	if err != nil {
		return p, err
	}
	for _, first := range list {
		if stop != nil && stop() {
			return p, nil
		}
		before, after, err := l.compress(first)
		if err != nil {
			return p, fmt.Errorf("pack %s: %w", segmentName(first), err)
		}
		if before > 0 {
			p.Segments++
			p.Before += before
			p.After += after
		}
	}
	return p, nil
}

// compress packs one segment; 0 bytes if there was nothing to do.
func (l *Log) compress(first uint64) (before, after int64, err error) {
	plain, err := openRegular(l.writer.root, segmentName(first), os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		// The segment is packed, or was pruned meanwhile.
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	defer plain.Close()
	info, err := plain.Stat()
	if err != nil {
		return 0, 0, err
	}
	temp := packedName(first) + ".new"
	f, err := openRegular(l.writer.root, temp, os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	// Against another process that packs.
	if err := flock.Lock(f); err != nil {
		return 0, 0, err
	}
	if same, err := l.is(temp, f); err != nil || !same {
		// The other process has packed it.
		return 0, 0, err
	}
	sum := sha256.New()
	if err := packInto(f, io.TeeReader(plain, sum)); err != nil {
		return 0, 0, errors.Join(err, l.writer.root.Remove(temp))
	}
	if err := sameLines(f, sum); err != nil {
		return 0, 0, errors.Join(err, l.writer.root.Remove(temp))
	}
	if err := errors.Join(f.Chmod(info.Mode().Perm()),
		l.writer.root.Chtimes(temp, info.ModTime(), info.ModTime()), f.Sync()); err != nil {
		return 0, 0, errors.Join(err, l.writer.root.Remove(temp))
	}
	packed, err := f.Stat()
	if err != nil {
		return 0, 0, err
	}
	done := false
	err = l.hold(func() error {
		now, err := l.writer.root.Lstat(segmentName(first))
		if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(now, info) {
			// Pruned meanwhile.
			return l.writer.root.Remove(temp)
		}
		if err != nil {
			return err
		}
		if now.Size() != info.Size() {
			return fmt.Errorf("%w: it was written to after the next one had begun", errDamaged)
		}
		if err := errors.Join(l.writer.root.Rename(temp, packedName(first)),
			atomicfile.SyncIn(l.writer.root)); err != nil {
			return err
		}
		done = true
		return errors.Join(l.writer.root.Remove(segmentName(first)), atomicfile.SyncIn(l.writer.root))
	})
	if !done {
		return 0, 0, err
	}
	return info.Size(), packed.Size(), err
}

// is reports whether name still refers to the open file f.
func (l *Log) is(name string, f *os.File) (bool, error) {
	opened, err := f.Stat()
	if err != nil {
		return false, err
	}
	now, err := l.writer.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(now, opened), err
}

func packInto(f *os.File, r io.Reader) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return pack(f, r)
}

// sameLines reads the packed lines and compares their hash.
func sameLines(f *os.File, want hash.Hash) error {
	s := &source{f: f}
	if err := s.leap(0); err != nil {
		return err
	}
	got := sha256.New()
	if _, err := io.Copy(got, s); err != nil {
		return err
	}
	if !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
		return errors.New("what was packed does not read back as what it was")
	}
	return nil
}
