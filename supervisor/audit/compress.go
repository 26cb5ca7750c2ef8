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

	"github.com/jail-sandbox/jail/supervisor/audit/internal/flock"
)

// A Packing is what [Log.Compress] did.
type Packing struct {
	Segments int
	Before   int64 // bytes that they took
	After    int64 // and take now
}

// Compress packs the segments that are not written to any more. What is hashed and signed is their lines, so nothing else changes. Each is packed aside, read back
// and compared, made durable and put in its place before the plain one goes, so that a crash leaves one of them whole. Records are taken meanwhile. stop, where it
// is not nil, is asked before each segment.
func (l *Log) Compress(stop func() bool) (p Packing, err error) {
	var list []uint64
	err = l.hold(func() error {
		// The head on the disk is then not about a segment that is packed, and a writer's way to its end leads through none.
		if err := l.seal(false); err != nil {
			return err
		}
		all, err := segments(l.root)
		for _, first := range all {
			if first < l.at.segment && l.at.offset > 0 {
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

// compress packs one segment: 0 bytes where there was nothing to do.
func (l *Log) compress(first uint64) (before, after int64, err error) {
	plain, err := openRegular(l.root, segmentName(first), os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil // it is packed, or was pruned meanwhile
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
	f, err := openRegular(l.root, temp, os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	if err := flock.Lock(f); err != nil { // against another process that does the same
		return 0, 0, err
	}
	if same, err := l.is(temp, f); err != nil || !same {
		return 0, 0, err // the other one has done it
	}
	sum := sha256.New()
	if err := packInto(f, io.TeeReader(plain, sum)); err != nil {
		return 0, 0, errors.Join(err, l.root.Remove(temp))
	}
	if err := sameLines(f, sum); err != nil {
		return 0, 0, errors.Join(err, l.root.Remove(temp))
	}
	if err := errors.Join(f.Chmod(info.Mode().Perm()), l.root.Chtimes(temp, info.ModTime(), info.ModTime()), f.Sync()); err != nil {
		return 0, 0, errors.Join(err, l.root.Remove(temp))
	}
	packed, err := f.Stat()
	if err != nil {
		return 0, 0, err
	}
	done := false
	err = l.hold(func() error {
		now, err := l.root.Lstat(segmentName(first))
		if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(now, info) {
			return l.root.Remove(temp) // pruned meanwhile
		}
		if err != nil {
			return err
		}
		if now.Size() != info.Size() {
			return fmt.Errorf("%w: it was written to after the next one had begun", ErrDamaged)
		}
		if err := errors.Join(l.root.Rename(temp, packedName(first)), syncDir(l.root)); err != nil {
			return err
		}
		done = true
		return errors.Join(l.root.Remove(segmentName(first)), syncDir(l.root))
	})
	if !done {
		return 0, 0, err
	}
	return info.Size(), packed.Size(), err
}

// is reports whether a name is still that of an open file.
func (l *Log) is(name string, f *os.File) (bool, error) {
	opened, err := f.Stat()
	if err != nil {
		return false, err
	}
	now, err := l.root.Lstat(name)
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

// sameLines reads back what was packed.
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
