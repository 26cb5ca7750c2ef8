package audit

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
)

// Page is a part of a search from the end.
type Page struct {
	Records []Record // the newest first
	// More: there are older records.
	More bool
	// Bad counts lines that are no records, in what was read for the page.
	Bad int
}

// Newest returns the last n records that f matches with a number below before; 0 is all. It reads
// the segments from the last one back, as few as it needs. The beginnings of runs have their tools,
// so with f.Tool it reads all. Like [Scan] it does not check the chain. It ends with ctx.
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
		// The segments from there on are not needed.
		list = list[:i]
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

// read puts the matching records of the segments first to last before those already found.
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
			// Twice, so that moving them is cheap.
			if got = append(got, rec); len(got) > 2*p.want {
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
