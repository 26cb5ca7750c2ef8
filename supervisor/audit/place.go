package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
)

// ErrLine is wrapped by the error for a line that is no record.
var ErrLine = errLine

// Matcher compares records, in order, with a filter.
type Matcher struct{ m matcher }

// NewMatcher returns a matcher for f.
func NewMatcher(f Filter) *Matcher { return &Matcher{matcher{Filter: f}} }

// Wants reports whether the filter matches the record.
func (m *Matcher) Wants(r Record) bool { return m.m.wants(r) }

// Place is the beginning of a line: the segment, by its first record, and the byte of its lines,
// packed or not.
type Place struct {
	Segment uint64
	Offset  int64
}

// Span is a sequence of lines of one segment, from a place to the byte before End.
type Span struct {
	Place
	End int64
}

// Placed is a line with its place.
type Placed struct {
	Record
	Span
	// Bad says why the line is no record.
	Bad error
}

// Walk yields the complete lines of the log in dir from a place on; the zero place is the
// beginning. An error ends it.
func Walk(ctx context.Context, dir string, from Place) iter.Seq2[Placed, error] {
	return func(yield func(Placed, error) bool) {
		root, err := os.OpenRoot(dir)
		if err != nil {
			yield(Placed{}, err)
			return
		}
		defer root.Close()
		r := readLines(root)
		defer r.close()
		if from != (Place{}) {
			if err := r.seek(from.Segment, from.Offset); err != nil {
				yield(Placed{}, err)
				return
			}
		}
		walk(ctx, r, func() bool { return true }, yield)
	}
}

// walk yields lines while more returns true before each.
func walk(ctx context.Context, r *lines, more func() bool, yield func(Placed, error) bool) bool {
	var p parser
	for i := 0; more(); i++ {
		if i%256 == 0 && ctx.Err() != nil {
			yield(Placed{}, ctx.Err())
			return false
		}
		segment, begin := r.segment, r.offset
		l, err := r.next()
		if err == io.EOF || err == nil && l.torn {
			return true
		}
		if err != nil {
			yield(Placed{}, err)
			return false
		}
		if l.segment != segment {
			begin = 0
		}
		out := Placed{Span: Span{Place{l.segment, begin}, r.offset}}
		if out.Record, out.Bad = p.record(l.text); out.Bad != nil {
			out.Line, out.Bad = bytes.Clone(l.text), fmt.Errorf("%s byte %d: %w",
				segmentName(l.segment), begin, out.Bad)
		}
		if !yield(out, nil) || l.long {
			return false
		}
	}
	return true
}

// Among is Scan of a part of the log: the spans, in order, and everything from rest on. It compares
// what it reads with the filter, so a wrong choice of spans can hide records that f matches and add
// none.
func Among(ctx context.Context, dir string, f Filter, spans []Span, rest Place) iter.Seq2[Record,
	error] {
	return func(yield func(Record, error) bool) {
		root, err := os.OpenRoot(dir)
		if err != nil {
			yield(Record{}, err)
			return
		}
		defer root.Close()
		a := among{ctx: ctx, lines: readLines(root), match: matcher{Filter: f}}
		defer a.lines.close()
		for _, s := range spans {
			if !a.span(s, yield) {
				return
			}
		}
		a.rest(rest, yield)
	}
}

type among struct {
	ctx   context.Context
	lines *lines
	match matcher
}

func (a *among) give(yield func(Record, error) bool) func(Placed, error) bool {
	return func(p Placed, err error) bool {
		switch {
		case err != nil:
			return yield(Record{}, err)
		case p.Bad != nil:
			return yield(Record{}, p.Bad)
		}
		return !a.match.wants(p.Record) || yield(p.Record, nil)
	}
}

func (a *among) span(s Span, yield func(Record, error) bool) bool {
	if err := a.lines.seek(s.Segment, s.Offset); err != nil {
		yield(Record{}, err)
		return false
	}
	return walk(a.ctx, a.lines, func() bool {
		return a.lines.segment == s.Segment && a.lines.offset < s.End
	}, a.give(yield))
}

func (a *among) rest(from Place, yield func(Record, error) bool) bool {
	if from == (Place{}) { // all of it
		a.lines.close()
		a.lines = readLines(a.lines.root)
	} else if err := a.lines.seek(from.Segment, from.Offset); err != nil {
		yield(Record{}, err)
		return false
	}
	return walk(a.ctx, a.lines, func() bool { return true }, a.give(yield))
}

// NewestAmong is [Newest] of the part that [Among] reads, without f.Tool, which needs all of the
// log.
func NewestAmong(ctx context.Context, dir string, f Filter, before uint64, n int, spans []Span,
	rest Place) (Page, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Page{}, err
	}
	defer root.Close()
	a := among{ctx: ctx, lines: readLines(root), match: matcher{Filter: f}}
	defer func() { a.lines.close() }()
	var found []Record // the oldest first
	page := Page{}
	take := func(read func(yield func(Record, error) bool) bool) (failed error) {
		var got []Record
		read(func(r Record, err error) bool {
			switch {
			case errors.Is(err, errLine):
				page.Bad++
			case err != nil:
				failed = err
				return false
			case before == 0 || r.Seq < before:
				if got = append(got, r); len(got) > 2*(n+1) {
					got = append(got[:0], got[len(got)-n-1:]...)
				}
			}
			return true
		})
		found = append(got, found...)
		return failed
	}
	if err := take(func(yield func(Record, error) bool) bool {
		return a.rest(rest, yield)
	}); err != nil {
		return Page{}, err
	}
	for i := len(spans) - 1; i >= 0 && len(found) <= n; i-- {
		if before > 0 && spans[i].Segment >= before {
			continue
		}
		if err := take(func(yield func(Record, error) bool) bool {
			return a.span(spans[i], yield)
		}); err != nil {
			return Page{}, err
		}
	}
	page.More = len(found) > n
	page.Records = found[max(0, len(found)-n):]
	slices.Reverse(page.Records)
	return page, nil
}
