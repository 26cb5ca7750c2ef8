package audit

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
)

// A Page is some records of a search, for who goes through them from the end.
type Page struct {
	Records []Record // the newest first
	More    bool     // there are older ones
	Bad     int      // lines that are no records, in what was read for the page
}

// Newest gives the last n records that f wants of those whose number is below before; 0 is all. It reads the segments from the last one back, and no more of them
// than it needs; those of one tool are known by how their runs began, so for them it reads all. Like [Scan] it checks no chain. It can be cut off by ctx.
func Newest(ctx context.Context, dir string, f Filter, before uint64, n int) (Page, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Page{}, err
	}
	defer root.Close()
	list, err := segments(root)
	if err != nil {
		return Page{}, err
	}
	if i, _ := slices.BinarySearch(list, before); before > 0 {
		list = list[:i] // the segments that begin there or behind it have nothing for us
	}
	if len(list) == 0 {
		return Page{}, nil
	}
	p := pager{before: before, want: n + 1, match: &matcher{Filter: f}}
	if f.Tool != "" {
		err = p.read(ctx, root, list[0], list[len(list)-1])
	}
	for i := len(list) - 1; f.Tool == "" && i >= 0 && len(p.found) < p.want && err == nil; i-- {
		err = p.read(ctx, root, list[i], list[i])
	}
	if err != nil {
		return Page{}, err
	}
	out := Page{More: len(p.found) > n, Bad: p.bad}
	out.Records = p.found[max(0, len(p.found)-n):]
	slices.Reverse(out.Records)
	return out, nil
}

type pager struct {
	before uint64
	want   int
	match  *matcher
	parser parser
	found  []Record // the oldest first
	bad    int
}

// read puts what is wanted of the segments from the first to the last one before what was found already.
func (p *pager) read(ctx context.Context, root *os.Root, first, last uint64) error {
	r := readLines(root)
	r.from = first
	defer r.close()
	var got []Record
	for i := 0; ; i++ {
		if i%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		l, err := r.next()
		if errors.Is(err, io.EOF) || err == nil && (l.torn || l.segment > last) {
			break
		}
		if err != nil {
			return err
		}
		rec, err := p.parser.record(l.text)
		switch {
		case err != nil || l.long:
			p.bad++
		case p.before > 0 && rec.Seq >= p.before:
		case p.match.wants(rec):
			if got = append(got, rec); len(got) > 2*p.want { // twice, so that moving them costs nothing to speak of
				got = append(got[:0], got[len(got)-p.want:]...)
			}
		}
		if l.long {
			break
		}
	}
	if room := p.want - len(p.found); len(got) > room {
		got = got[len(got)-room:]
	}
	p.found = append(got, p.found...)
	return nil
}
