package audit

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
)

const segmentExt = ".jsonl"

func segmentName(first uint64) string { return fmt.Sprintf("%012d%s", first, segmentExt) }

// segments returns the first record of each segment, in ascending order.
func segments(root *os.Root) ([]uint64, error) {
	d, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var list []uint64
	for _, name := range names {
		digits, ok := strings.CutSuffix(strings.TrimSuffix(name, packedExt[len(segmentExt):]),
			segmentExt)
		first, err := strconv.ParseUint(digits, 10, 63)
		if ok && err == nil && (segmentName(first) == name || packedName(first) == name) {
			list = append(list, first)
		}
	}
	slices.Sort(list)
	// A segment exists twice while it is packed.
	return slices.Compact(list), nil
}

// line is one line as read, complete or torn.
type line struct {
	// text has no newline. The next read overwrites it.
	text    []byte
	segment uint64
	// number is the line's number in the segment, from 1.
	number int
	first  bool // of the segment
	// torn: the file ends before the line does.
	torn bool
	// long: the line is longer than any record. text is its beginning; reading ends here.
	long bool
}

// lines reads the segments of a log in order, also new ones, in bounded memory.
type lines struct {
	root *os.Root
	// from is the first segment to read.
	from uint64
	f    *source
	buf  *bufio.Reader
	// wide holds a line that is longer than buf.
	wide    []byte
	segment uint64
	number  int
	// offset is the end of the last complete line, in the segment's lines.
	offset int64
	ended  bool
	// leftOver: bytes follow the lines of a segment that is not the last.
	leftOver bool
}

func readLines(root *os.Root) *lines {
	return &lines{root: root, buf: bufio.NewReaderSize(nil, 64<<10)}
}

func (r *lines) close() {
	if r.f != nil {
		r.f.Close()
	}
}

// next returns the next line, and io.EOF at the end of the last segment. A later call looks again.
func (r *lines) next() (line, error) {
	for {
		if r.f == nil || r.ended {
			if err := r.open(); err != nil {
				return line{}, err
			}
			if r.leftOver {
				return line{segment: r.segment, number: r.number + 1, torn: true}, nil
			}
		}
		text, err := r.slice()
		if i := bytes.IndexByte(text, 0); i >= 0 {
			// The zeros are for later lines.
			fill, fillErr := r.f.fill(r.offset + int64(i))
			switch {
			case fillErr != nil:
				return line{}, fillErr
			case fill == blank:
				text, err = text[:i], io.EOF
			case fill == moving:
				if err := r.seek(r.segment, r.offset); err != nil {
					return line{}, err
				}
				continue
			}
		}
		l := line{text: text, segment: r.segment, number: r.number + 1, first: r.number == 0}
		switch {
		case err == nil:
			l.text = text[:len(text)-1]
			r.number++
			r.offset += int64(len(text))
			return l, nil
		case errors.Is(err, bufio.ErrBufferFull):
			l.long = true
			return l, nil
		case err != io.EOF:
			return line{}, err
		}
		r.ended = true
		if len(text) > 0 {
			l.torn = true
			return l, nil
		}
	}
}

// slice is bufio.Reader.ReadSlice for lines of up to maxLine bytes.
func (r *lines) slice() ([]byte, error) {
	text, err := r.buf.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) || text[0] == 0 {
		return text, err
	}
	r.wide = append(r.wide[:0], text...)
	for errors.Is(err, bufio.ErrBufferFull) && len(r.wide) < maxLine {
		text, err = r.buf.ReadSlice('\n')
		r.wide = append(r.wide, text...)
	}
	if len(r.wide) > maxLine {
		err = bufio.ErrBufferFull
	}
	return r.wide, err
}

// open opens the next segment. If the current one is the last and has grown, it continues there.
func (r *lines) open() error {
	list, err := segments(r.root)
	if err != nil {
		return err
	}
	r.ended = false
	if r.f != nil {
		grown, err := r.f.grown(r.offset)
		if err != nil {
			return err
		}
		if grown {
			return r.seek(r.segment, r.offset)
		}
	}
	i, found := slices.BinarySearch(list, max(r.segment, r.from))
	if found && r.f != nil {
		i++
	}
	if i == len(list) {
		r.ended = true
		return io.EOF
	}
	if r.f != nil {
		// Only the last segment may end with zeros.
		if r.leftOver, err = r.f.leftOver(r.offset); r.leftOver || err != nil {
			r.ended = true
			return err
		}
	}
	r.number = 0
	return r.seek(list[i], 0)
}

func (r *lines) seek(segment uint64, offset int64) error {
	f, err := openSource(r.root, segment, offset)
	if err != nil {
		return err
	}
	r.close()
	r.f, r.segment, r.offset, r.ended = f, segment, offset, false
	r.buf.Reset(f)
	return nil
}

// mark has the parts of a line that verifying the chain needs.
type mark struct {
	seq        uint64
	prev, hash sum
	leaf       tlog.Hash
	kind       Type
	// note is the raw JSON string of a checkpoint's note. It is valid as long as the line is.
	note []byte
}

var (
	keySeq  = []byte("seq")
	keyTime = []byte("time")
	keyType = []byte("type")
	keyPrev = []byte("prev")
	keyNote = []byte("note")
)

// mark parses and hashes a line.
func (p *parser) mark(text []byte) (mark, error) {
	m, err := p.form(text)
	if err == nil {
		m.hash, m.leaf = sha256.Sum256(text), tlog.RecordHash(text)
	}
	return m, err
}

// form is mark without the hashes.
func (p *parser) form(text []byte) (mark, error) {
	m := mark{}
	place, good := 0, true
	var kind []byte
	err := p.parse(text, func(key, value []byte) {
		switch place {
		case 0:
			var err error
			m.seq, err = strconv.ParseUint(string(value), 10, 63)
			good = good && bytes.Equal(key, keySeq) && err == nil
		case 1:
			good = good && bytes.Equal(key, keyTime) && value[0] == '"'
		case 2:
			good = good && bytes.Equal(key, keyType) && value[0] == '"'
			kind = bytes.Trim(value, `"`)
		}
		place++
		switch {
		case bytes.Equal(key, keyPrev):
			s, ok := parseSum(bytes.Trim(value, `"`))
			m.prev = s
			good = good && ok && p.i == len(text)-1
			place = -1
		case bytes.Equal(key, keyNote):
			m.note = value
		}
	})
	if err != nil {
		return m, err
	}
	if !good || place != -1 {
		return m, fmt.Errorf("%w: want seq, time and type first and prev last", errLine)
	}
	switch {
	case bytes.Equal(kind, []byte(TypeCheckpoint)):
		m.kind = TypeCheckpoint
	case bytes.Equal(kind, []byte(TypeGap)):
		m.kind = TypeGap
	}
	return m, nil
}

// exists reports whether root has a file of any type with this name.
func exists(root *os.Root, name string) (bool, error) {
	_, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
