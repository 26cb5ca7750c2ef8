package audit

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail/tick"
)

// followEvery is how often a reader at the end of a log looks for more.
const followEvery = 100 * time.Millisecond

// Follow yields the records that f matches after record after, and then new ones, until ctx ends.
// An interrupted reader continues after the last record that it has handled, and misses none. Like
// [Scan] it does not check the chain.
func Follow(ctx context.Context, dir string, f Filter, after uint64) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		read(ctx, dir, f, after+1, func(r Record, err error) bool {
			return err == nil && r.Seq <= after || yield(r, err)
		}, func() bool { return true })
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
		var newest item
		atEnd := false
		read(ctx, dir, f, 1, func(r Record, err error) bool {
			if atEnd {
				return yield(r, err)
			}
			newest = item{r, err}
			// Twice, so that moving them is cheap.
			if last = append(last, newest); len(last) > 2*n {
				last = append(last[:0], last[len(last)-n:]...)
			}
			return true
		}, func() bool {
			if atEnd {
				return true
			}
			atEnd = true
			for _, it := range last[max(0, len(last)-n):] {
				if !yield(it.r, it.err) {
					return false
				}
			}
			last = nil
			return true
		})
		if atEnd || newest.err == nil {
			return
		}
		// A line that cannot be read has no end.
		for _, it := range append(last[max(0, len(last)-n):max(0, len(last)-1)], newest) {
			if !yield(it.r, it.err) {
				return
			}
		}
	}
}

// read calls record for the records that f matches, from the segment of record first on, and end at
// each current end of the log. It ends when one of them returns false.
func read(ctx context.Context, dir string, f Filter, first uint64, record func(Record, error) bool,
	end func() bool) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		// os.OpenRoot has an error of its own for a file.
		if info, statErr := os.Stat(dir); statErr == nil && !info.IsDir() {
			err = &fs.PathError{Op: "open", Path: dir, Err: syscall.ENOTDIR}
		}
		record(Record{}, err)
		return
	}
	defer root.Close()
	r := readLines(root)
	defer r.close()
	// Otherwise the beginnings of runs are needed, which have the tool.
	if f.Tool == "" {
		r.from = segmentOf(root, first)
	}
	m := matcher{Filter: f}
	var p parser
	for {
		l, err := r.next()
		if err == io.EOF || err == nil && l.torn {
			if !end() || !tick.Wait(ctx.Done(), followEvery) {
				return
			}
			continue
		}
		if err != nil {
			record(Record{}, err)
			return
		}
		rec, err := p.record(l.text)
		if err != nil {
			err = fmt.Errorf("%s line %d: %w", segmentName(l.segment), l.number, err)
		}
		if (err != nil || m.wants(rec)) && !record(rec, err) || l.long {
			return
		}
	}
}
