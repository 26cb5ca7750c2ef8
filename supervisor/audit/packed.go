package audit

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/jail-sandbox/jail/jail/atomicfile"
	"github.com/jail-sandbox/jail/supervisor/flock"
)

// packedExt ends the name of a packed segment. It is a gzip file (RFC 1952) of many members, which
// every gzip reader can read. An extra field in each member's header has the packed and the plain
// length of the member, so that a reader can seek.
const packedExt = segmentExt + ".gz"

// Layout of a member's header: ten bytes, the length of the extra field, then the extra field:
// "JL", 8, and two little-endian lengths in bytes.
const (
	// memberBytes is the length of the lines in a member.
	memberBytes  = 256 << 10
	extraAt      = 12
	extraBytes   = 12
	memberHeader = extraAt + extraBytes
)

func packedName(first uint64) string { return segmentName(first) + ".gz" }

// errPacked is wrapped by errors for damaged bytes of a packed segment.
var errPacked = errors.New("the packed bytes are damaged")

// pack writes the bytes of r as gzip members.
func pack(w io.Writer, r io.Reader) error {
	lines := make([]byte, memberBytes)
	var member bytes.Buffer
	z, err := gzip.NewWriterLevel(&member, gzip.DefaultCompression)
	if err != nil {
		return err
	}
	for {
		n, err := io.ReadFull(r, lines)
		if n == 0 && errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		member.Reset()
		z.Reset(&member)
		z.Extra = append([]byte{'J', 'L', 8, 0}, make([]byte, 8)...)
		if _, err := z.Write(lines[:n]); err != nil {
			return err
		}
		if err := z.Close(); err != nil {
			return err
		}
		b := member.Bytes()
		binary.LittleEndian.PutUint32(b[extraAt+4:], uint32(len(b)))
		binary.LittleEndian.PutUint32(b[extraAt+8:], uint32(n))
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
}

// memberAt returns the lengths of the member at an offset. ok is false without the extra field, as
// in files of other programs.
func memberAt(r io.ReaderAt, offset int64) (packed, plain int64, ok bool) {
	var b [memberHeader]byte
	if _, err := r.ReadAt(b[:], offset); err != nil {
		return 0, 0, false
	}
	packed, plain = int64(binary.LittleEndian.Uint32(b[extraAt+4:])),
		int64(binary.LittleEndian.Uint32(b[extraAt+8:]))
	ok = b[0] == 0x1f && b[1] == 0x8b && b[3]&4 != 0 && bytes.Equal(b[extraAt:extraAt+4],
		[]byte{'J', 'L', 8, 0}) && packed > memberHeader && plain > 0
	return packed, plain, ok
}

// source reads the lines of a segment, plain or packed.
type source struct {
	f *os.File
	z *gzip.Reader // of a packed one
	b *bufio.Reader
}

// openSource opens the segment that begins with record first, at byte offset of its lines. If the
// segment exists both plain and packed, it opens the plain one.
func openSource(root *os.Root, first uint64, offset int64) (*source, error) {
	f, err := openRegular(root, segmentName(first), os.O_RDONLY, 0)
	if err == nil {
		s := &source{f: f}
		if err := s.begin(first, offset); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return s, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	packed, packedErr := openRegular(root, packedName(first), os.O_RDONLY, 0)
	if errors.Is(packedErr, fs.ErrNotExist) {
		// The error names the plain file.
		return nil, err
	}
	if packedErr != nil {
		return nil, packedErr
	}
	s := &source{f: packed}
	if err := s.leap(offset); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", packedName(first), err), packed.Close())
	}
	return s, nil
}

func (s *source) begin(first uint64, offset int64) error {
	info, err := s.f.Stat()
	if err == nil && info.Size() < offset {
		err = fmt.Errorf("%w: %s ends before byte %d", errDamaged, segmentName(first), offset)
	}
	if err == nil {
		_, err = s.f.Seek(offset, io.SeekStart)
	}
	return err
}

// leap seeks to byte offset of a packed segment's lines. It skips members that have their lengths.
func (s *source) leap(offset int64) error {
	at := int64(0)
	for {
		packed, plain, ok := memberAt(s.f, at)
		if !ok || offset < plain {
			break
		}
		at, offset = at+packed, offset-plain
	}
	if _, err := s.f.Seek(at, io.SeekStart); err != nil {
		return err
	}
	s.b = bufio.NewReaderSize(s.f, 64<<10)
	z, err := gzip.NewReader(s.b)
	if err == io.EOF && at > 0 && offset == 0 {
		// The offset is the end of the file.
		return nil
	}
	if err == nil {
		s.z = z
		_, err = io.CopyN(io.Discard, z, offset)
	}
	if err != nil {
		return packedError(err)
	}
	return nil
}

func packedError(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%w: %w", errPacked, err)
}

func (s *source) Read(b []byte) (int, error) {
	if s.b == nil {
		return s.f.Read(b)
	}
	if s.z == nil {
		return 0, io.EOF
	}
	n, err := s.z.Read(b)
	if err != nil && err != io.EOF {
		err = packedError(err)
	}
	return n, err
}

// grown reports whether bytes of a line follow byte offset. A packed segment never grows.
func (s *source) grown(offset int64) (bool, error) {
	if s.b != nil {
		return false, nil
	}
	info, err := s.f.Stat()
	if err != nil || info.Size() <= offset || info.Size()%aheadStep != 0 {
		return err == nil && info.Size() > offset, err
	}
	// Only the first byte is read, since readers call this often.
	var first [1]byte
	n, err := s.f.ReadAt(first[:], offset)
	if err == io.EOF {
		err = nil
	}
	return n > 0 && first[0] != 0, err
}

// torn reports whether bytes that are no zeros for later lines follow byte offset.
func (s *source) torn(offset int64) (bool, error) {
	if grown, err := s.grown(offset); grown || err != nil {
		return grown, err
	}
	fill, err := s.fill(offset)
	return s.b == nil && fill != blank, err
}

// fill classifies the bytes from byte offset on, which is a zero or the end of the file.
func (s *source) fill(offset int64) (fill, error) {
	if s.b != nil {
		return filled, nil
	}
	info, err := s.f.Stat()
	if err != nil {
		return filled, err
	}
	return fillAt(s.f, info.Size(), offset)
}

// leftOver reports whether any byte follows byte offset, where the lines end.
func (s *source) leftOver(offset int64) (bool, error) {
	if s.b != nil {
		return false, nil
	}
	info, err := s.f.Stat()
	return err == nil && info.Size() > offset, err
}

func (s *source) Close() error { return s.f.Close() }

// segmentInfo returns the FileInfo of a segment's file, plain or packed.
func segmentInfo(root *os.Root, first uint64) (os.FileInfo, error) {
	info, err := root.Lstat(segmentName(first))
	if errors.Is(err, fs.ErrNotExist) {
		if packed, packedErr := root.Lstat(packedName(first)); packedErr == nil {
			return packed, nil
		}
	}
	return info, err
}

// Packing is the result of [Log.Compress].
type Packing struct {
	Segments int
	// Before is the plain size of the packed segments in bytes.
	Before int64
	// After is their size after packing.
	After int64
}

// Compress packs the segments that are no longer written. Hashes and signatures cover lines, so
// they stay valid. It packs each segment to a temporary file, compares it, flushes it and renames
// it before it removes the plain one, so a crash leaves a complete one. The log accepts records
// meanwhile. Compress calls stop, unless nil, before each segment, and ends if it returns true.
func (l *Log) Compress(stop func() bool) (p Packing, err error) {
	var list []uint64
	err = l.hold(func() error {
		// After that the head on disk is not about a packed segment, and a writer that opens the
		// log reads no packed segment.
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

// compress packs one segment and returns its sizes; zeros if it is packed or pruned already.
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
	// Exclude other processes that pack.
	if err := flock.Lock(f); err != nil {
		return 0, 0, err
	}
	if same, err := l.is(temp, f); err != nil || !same {
		// The other process has packed it.
		return 0, 0, err
	}
	err = packInto(f, plain)
	if err == nil {
		err = errors.Join(f.Chmod(info.Mode().Perm()),
			l.writer.root.Chtimes(temp, info.ModTime(), info.ModTime()), f.Sync())
	}
	if err != nil {
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

// packInto replaces f's content by the packed bytes of r, then reads them back and compares them.
func packInto(f *os.File, r io.Reader) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	want, got := sha256.New(), sha256.New()
	if err := pack(f, io.TeeReader(r, want)); err != nil {
		return err
	}
	s := &source{f: f}
	if err := s.leap(0); err != nil {
		return err
	}
	if _, err := io.Copy(got, s); err != nil {
		return err
	}
	if !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
		return errors.New("what was packed does not read back as what it was")
	}
	return nil
}
