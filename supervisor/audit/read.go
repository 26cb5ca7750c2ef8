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

// ErrLine is wrapped by the error for a line that is no record.
var ErrLine = errLine

// Place is the beginning of a line: the segment, by its first record, and the byte of its lines,
// packed or not.
type Place struct {
	Segment uint64
	Offset  int64
}

// Span is a sequence of lines of one segment, from a place to the byte before End. If End is 0, it
// reaches to the end of the log; the zero Span is all of the log.
type Span struct {
	Place
	End int64
}

// wholeSegment is the End of a span of all lines of a segment.
const wholeSegment = math.MaxInt64

// Placed is a line with its place. Its End is its Offset if nothing after the line can be read.
type Placed struct {
	Record
	Span
	// Bad says why the line is no record.
	Bad error
}

// openLines opens the log in dir. The caller calls done at the end.
func openLines(dir string) (r *lines, done func(), err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		// os.OpenRoot has an error of its own for a file.
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

// read yields the complete lines of a span, of the zero span those from the present place on. An
// error ends it, also that of ctx.
func (r *lines) read(ctx context.Context, s Span) iter.Seq2[Placed, error] {
	return func(yield func(Placed, error) bool) {
		if s.Place != (Place{}) {
			r.number = 0
			err := r.seek(s.Segment, s.Offset)
			if errors.Is(err, fs.ErrNotExist) && s.End == wholeSegment {
				// Pruned meanwhile.
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

// give yields the record of a line if m wants it, or the error.
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
// beginning. An error ends it.
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

// Scan reads the log in dir from its beginning and yields the records that f matches. It does not
// check the chain: [Verify] does. It yields an error with the place for a line that is no record,
// and goes on after it. An incomplete line ends the scan.
func Scan(dir string, f Filter) iter.Seq2[Record, error] {
	return Among(context.Background(), dir, f)
}

// Among is Scan of a part of the log: the spans, in order. Without spans it reads all. It compares
// what it reads with the filter, so a wrong choice of spans can hide records that f matches and add
// none.
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

// From is Scan from record first on, without reading the segments before it.
func From(dir string, f Filter, first uint64) iter.Seq2[Record, error] {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	return Follow(ended, dir, f, max(first, 1)-1)
}

// followEvery is how often a reader at the end of a log looks for more.
const followEvery = 100 * time.Millisecond

// Follow yields the records that f matches after record after, and then new ones, until ctx ends.
// It yields all records that are there even if ctx has ended. An interrupted reader continues after
// the last record that it has handled, and misses none. Like [Scan] it does not check the chain.
func Follow(ctx context.Context, dir string, f Filter, after uint64) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		follow(ctx, dir, f, after, yield, func() bool { return true })
	}
}

// Tail yields the last n records that f matches, and then goes on as Follow does.
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
		// After a line that cannot be read there is no end: the last item is its error.
		if !atEnd {
			give(max(n, 1))
		}
	}
}

// KeepLast returns list, or its last n items once there are more than twice as many, so that moving
// them is cheap.
func KeepLast[T any](list []T, n int) []T {
	// 2*n could overflow.
	if len(list)-n > n {
		list = append(list[:0], list[len(list)-n:]...)
	}
	return list
}

// follow calls record for the records that f matches, after record after, and end at each current
// end of the log. It ends when one of them returns false, or ctx has ended at an end of the log.
func follow(ctx context.Context, dir string, f Filter, after uint64,
	record func(Record, error) bool, end func() bool) {
	r, done, err := openLines(dir)
	if err != nil {
		record(Record{}, err)
		return
	}
	defer done()
	// Otherwise the beginnings of runs are needed, which have the tool.
	if f.Tool == "" {
		// The first read reports an error.
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

// holding returns the first record of the segment that holds a record, or would; 0 without one.
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

// Last returns, by run id, the newest record of each run that f matches, from f.Since on. It reads
// only segments that have such records, so f.Since bounds the work. Like [Scan] it does not check
// the chain, and skips lines that are no records. It ignores f.Tool and f.Run.
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

// segmentAt returns the last segment that begins before a time, or the first of all.
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

// beginning returns the time of a segment's first record, zero without one.
func beginning(root *os.Root, segment uint64) (begun time.Time, err error) {
	r := readLines(root)
	defer r.close()
	for p, err := range r.read(context.Background(), Span{Place{segment, 0}, wholeSegment}) {
		return p.Time, err
	}
	return begun, nil
}

// Page is a part of a search from the end.
type Page struct {
	Records []Record // the newest first
	// More: there are older records.
	More bool
	// Bad counts lines that are no records, in what was read for the page.
	Bad int
}

// Newest returns the last n records that f matches with a number below before; 0 is all. It reads
// the spans from the last one back, as few as it needs. Without spans it reads the segments in the
// same way. The beginnings of runs have their tools, so with f.Tool it reads all. Like [Scan] it
// does not check the chain. It ends with ctx.
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
	// found has the oldest record first.
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
