package audit

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"time"
)

// Last returns, by run id, the newest record of each run that f matches, from f.Since on. It reads
// only segments that have such records, so f.Since bounds the work. Like [Scan] it does not check
// the chain, and skips lines that are no records. It ignores f.Tool and f.Run.
func Last(ctx context.Context, dir string, f Filter) (map[string]Record, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	r := readLines(root)
	defer r.close()
	if r.from, err = segmentAt(root, f.Since); err != nil {
		return nil, err
	}
	f.Tool, f.Run = "", ""
	match, last := matcher{Filter: f}, map[string]Record{}
	var failed error
	walk(ctx, r, func() bool { return true }, func(p Placed, err error) bool {
		if failed = err; err == nil && p.Bad == nil && p.ID() != "" && match.wants(p.Record) {
			last[p.ID()] = p.Record
		}
		return err == nil
	})
	return last, failed
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
func beginning(root *os.Root, segment uint64) (time.Time, error) {
	r := readLines(root)
	defer r.close()
	r.from = segment
	l, err := r.next()
	if errors.Is(err, io.EOF) || err == nil && (l.torn || l.segment != segment) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	record, err := ParseRecord(l.text)
	if err != nil {
		// The segment before is read, too.
		return time.Time{}, nil
	}
	return record.Time, nil
}
