package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail/tick"
)

// ErrLine is wrapped by errors for a line that is not a record.
var ErrLine = errLine

// Place is the beginning of a line: the segment's first record, and the offset in the segment's
// lines before packing.
type Place struct {
	Segment uint64
	Offset  int64
}

// Span is a range of lines of one segment, from a place to the byte before End. With End 0 it
// reaches to the end of the log. The zero Span is the whole log.
type Span struct {
	Place
	End int64
}

// wholeSegment is the End of a span that covers all lines of a segment.
const wholeSegment = math.MaxInt64

// Placed is a line and its place. End equals Offset if nothing after the line can be read.
type Placed struct {
	Record
	Span
	// Bad says why the line is not a record; nil for a record.
	Bad error
}

// openLines opens the log in dir for reading. The caller must call done.
func openLines(dir string) (r *lines, done func(), err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		// For a file os.OpenRoot returns an error that is not ENOTDIR.
		if info, statErr := os.Stat(dir); statErr == nil && !info.IsDir() {
			err = &fs.PathError{Op: "open", Path: dir, Err: syscall.ENOTDIR}
		}
		return nil, nil, err
	}
	r = readLines(root)
	return r, func() {
		r.close()
		root.Close()
	}, nil
}

// read yields the complete lines of a span. The zero span continues at the current place. After an
// error, also ctx's, it ends.
func (r *lines) read(ctx context.Context, s Span) iter.Seq2[Placed, error] {
	return func(yield func(Placed, error) bool) {
		if s.Place != (Place{}) {
			r.number = 0
			err := r.seek(s.Segment, s.Offset)
			if errors.Is(err, fs.ErrNotExist) && s.End == wholeSegment {
				// The segment was pruned meanwhile.
				return
			}
			if err != nil {
				yield(Placed{}, err)
				return
			}
		}
		var p parser
		// Lines are counted from the beginning of their segment.
		counted := s.Offset == 0
		for i := 0; s.End == 0 || r.segment == s.Segment && r.offset < s.End; i++ {
			if i%256 == 0 && ctx.Err() != nil {
				yield(Placed{}, ctx.Err())
				return
			}
			segment, begin := r.segment, r.offset
			l, err := r.next()
			if err == io.EOF || err == nil && (l.torn || s.End > 0 && l.segment != s.Segment) {
				return
			}
			if err != nil {
				yield(Placed{}, err)
				return
			}
			if l.segment != segment {
				begin, counted = 0, true
			}
			out := Placed{Span: Span{Place{l.segment, begin}, r.offset}}
			if out.Record, err = p.record(l.text); err != nil {
				out.Record = Record{Line: bytes.Clone(l.text)}
				place := fmt.Sprintf("byte %d", begin)
				if counted {
					place = fmt.Sprintf("line %d", l.number)
				}
				out.Bad = fmt.Errorf("%s %s: %w", segmentName(l.segment), place, err)
			}
			if !yield(out, nil) || l.long {
				return
			}
		}
	}
}

// give yields the record of p if m wants it, or yields the error. It returns the result of yield.
func give(yield func(Record, error) bool, m *Matcher, p Placed, err error) bool {
	if err == nil {
		err = p.Bad
	}
	if err != nil {
		return yield(Record{}, err)
	}
	return !m.Wants(p.Record) || yield(p.Record, nil)
}

// Walk yields the complete lines of the log in dir from a place on; the zero place is the
// beginning. It ends after an error.
func Walk(ctx context.Context, dir string, from Place) iter.Seq2[Placed, error] {
	return func(yield func(Placed, error) bool) {
		r, done, err := openLines(dir)
		if err != nil {
			yield(Placed{}, err)
			return
		}
		defer done()
		r.read(ctx, Span{Place: from})(yield)
	}
}

// Scan yields the records of the log in dir that f matches, from the beginning. It does not verify
// the chain: [Verify] does. For a line that is not a record it yields an error with the place, and
// continues. An incomplete line ends the scan.
func Scan(dir string, f Filter) iter.Seq2[Record, error] {
	return Among(context.Background(), dir, f)
}

// Among is Scan for the given spans, in order, or for the whole log without spans. It applies the
// filter to every record, so wrong spans can hide records but cannot add any.
func Among(ctx context.Context, dir string, f Filter, spans ...Span) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		r, done, err := openLines(dir)
		if err != nil {
			yield(Record{}, err)
			return
		}
		defer done()
		if len(spans) == 0 {
			spans = []Span{{}}
		}
		m := NewMatcher(f)
		for _, s := range spans {
			for p, err := range r.read(ctx, s) {
				if !give(yield, m, p, err) || err != nil {
					return
				}
			}
		}
	}
}

// From is Scan that starts at record first, without reading the segments before it.
func From(dir string, f Filter, first uint64) iter.Seq2[Record, error] {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	return Follow(ended, dir, f, max(first, 1)-1)
}

// followEvery is how often a reader at the end of a log looks for more.
const followEvery = 100 * time.Millisecond

// Follow yields the records after number after that f matches, and then new ones, until ctx ends.
// It yields all existing records even if ctx has ended. An interrupted reader can continue after
// the last record that it has handled, and misses none. Like [Scan] it does not verify the chain.
func Follow(ctx context.Context, dir string, f Filter, after uint64) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		follow(ctx, dir, f, after, yield, func() bool { return true })
	}
}

// Tail yields the last n records that f matches, and then new ones as Follow does.
func Tail(ctx context.Context, dir string, f Filter, n int) iter.Seq2[Record, error] {
	type item struct {
		r   Record
		err error
	}
	return func(yield func(Record, error) bool) {
		var last []item
		atEnd := false
		give := func(n int) bool {
			for _, it := range last[max(0, len(last)-n):] {
				if !yield(it.r, it.err) {
					return false
				}
			}
			return true
		}
		follow(ctx, dir, f, 0, func(r Record, err error) bool {
			if atEnd {
				return yield(r, err)
			}
			last = KeepLast(append(last, item{r, err}), max(n, 1))
			return true
		}, func() bool {
			if atEnd {
				return true
			}
			atEnd = true
			more := give(n)
			last = nil
			return more
		})
		// An unreadable line hides the end of the log: the last item is its error.
		if !atEnd {
			give(max(n, 1))
		}
	}
}

// KeepLast returns list, cut to its last n items once it has more than 2n, so that cutting is cheap
// on average.
func KeepLast[T any](list []T, n int) []T {
	// 2*n could overflow.
	if len(list)-n > n {
		list = append(list[:0], list[len(list)-n:]...)
	}
	return list
}

// follow calls record for the records after number after that f matches, and end at each end of the
// log. It returns when one of them returns false, or at an end of the log once ctx has ended.
func follow(ctx context.Context, dir string, f Filter, after uint64,
	record func(Record, error) bool, end func() bool) {
	r, done, err := openLines(dir)
	if err != nil {
		record(Record{}, err)
		return
	}
	defer done()
	// With f.Tool all records of runs' starts are needed, since they name the tool.
	if f.Tool == "" {
		// An error is reported by the first read.
		list, _ := segments(r.root)
		r.from = holding(list, after+1)
	}
	m := NewMatcher(f)
	newer := func(r Record, err error) bool {
		return err == nil && r.Seq <= after && after > 0 || record(r, err)
	}
	for {
		for p, err := range r.read(context.Background(), Span{}) {
			if !give(newer, m, p, err) || err != nil || p.End == p.Offset {
				return
			}
		}
		if !end() || !tick.Wait(ctx.Done(), followEvery) {
			return
		}
	}
}

// holding returns the first record of the segment that would hold record seq; 0 if none would.
func holding(list []uint64, seq uint64) uint64 {
	i, found := slices.BinarySearch(list, seq)
	switch {
	case found:
		return seq
	case i == 0:
		return 0
	}
	return list[i-1]
}

// Last returns the newest record since f.Since of each run that f matches, by run id. It reads only
// segments with such records, so f.Since bounds the work. Like [Scan] it does not verify the chain.
// It skips lines that are not records, and ignores f.Tool and f.Run.
func Last(ctx context.Context, dir string, f Filter) (map[string]Record, error) {
	r, done, err := openLines(dir)
	if err != nil {
		return nil, err
	}
	defer done()
	if r.from, err = segmentAt(r.root, f.Since); err != nil {
		return nil, err
	}
	f.Tool, f.Run = "", ""
	m, last := NewMatcher(f), map[string]Record{}
	for p, err := range r.read(ctx, Span{}) {
		if err != nil {
			return last, err
		}
		if p.Bad == nil && p.ID() != "" && m.Wants(p.Record) {
			last[p.ID()] = p.Record
		}
	}
	return last, nil
}

// segmentAt returns the last segment that begins before a time, or the first segment.
func segmentAt(root *os.Root, at time.Time) (uint64, error) {
	list, err := segments(root)
	if err != nil {
		return 0, err
	}
	for _, first := range slices.Backward(list) {
		begun, err := beginning(root, first)
		if err != nil {
			return 0, err
		}
		if !begun.IsZero() && begun.Before(at) {
			return first, nil
		}
	}
	return 0, nil
}

// beginning returns the time of a segment's first record, or the zero time for an empty segment.
func beginning(root *os.Root, segment uint64) (begun time.Time, err error) {
	r := readLines(root)
	defer r.close()
	for p, err := range r.read(context.Background(), Span{Place{segment, 0}, wholeSegment}) {
		return p.Time, err
	}
	return begun, nil
}

// Page is one page of a search from the newest record back.
type Page struct {
	Records []Record // the newest first
	// More: there are older records.
	More bool
	// Bad counts the lines that are not records, in the part of the log that was read.
	Bad int
}

// Newest returns the last n records with a number below before that f matches; before 0 means all.
// It reads the spans, or without spans the segments, from the last one back, as few as it needs.
// With f.Tool it reads all, since the tool is in the records of runs' starts. Like [Scan] it does
// not verify the chain. It ends when ctx ends.
func Newest(ctx context.Context, dir string, f Filter, before uint64, n int,
	spans ...Span) (page Page, err error) {
	r, done, err := openLines(dir)
	if err != nil {
		return page, err
	}
	defer done()
	if len(spans) == 0 {
		list, err := segments(r.root)
		if err != nil {
			return page, err
		}
		for _, first := range list {
			spans = append(spans, Span{Place{first, 0}, wholeSegment})
		}
	}
	if f.Tool != "" {
		spans = []Span{{}}
	}
	// found is in ascending order.
	m, found := NewMatcher(f), []Record(nil)
	for _, s := range slices.Backward(spans) {
		if len(found) > n {
			break
		}
		if before > 0 && s.Segment >= before {
			continue
		}
		var got []Record
		for p, err := range r.read(ctx, s) {
			switch {
			case err != nil:
				return Page{}, err
			case p.Bad != nil:
				page.Bad++
			case (before == 0 || p.Seq < before) && m.Wants(p.Record):
				got = KeepLast(append(got, p.Record), n+1)
			}
		}
		found = append(got, found...)
	}
	page.More, page.Records = len(found) > n, found[max(0, len(found)-n):]
	slices.Reverse(page.Records)
	return page, nil
}
