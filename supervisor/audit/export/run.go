package export

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math/rand/v2"
	"os"
	"time"

	"github.com/jail-sandbox/jail/jail/atomicfile"
	"github.com/jail-sandbox/jail/jail/tick"
	"github.com/jail-sandbox/jail/supervisor/audit"
)

// The time between tries. It doubles with each try, up to maxWait.
const (
	firstWait = 250 * time.Millisecond
	maxWait   = 30 * time.Second
)

// Bounds of one call of Send, in records and in bytes of their lines.
const (
	maxBatch      = 512
	maxBatchBytes = 1 << 20
)

// Options of a Run.
type Options struct {
	Log    string // directory
	Filter audit.Filter
	// Follow continues with new records until the context ends.
	Follow bool
	// Cursor is the path of the file that remembers the last delivered record; empty for none.
	Cursor string
	// Tries bounds the tries of one batch without Follow. With Follow they are unbounded.
	Tries int
	// Say is called with messages for the user: a failed try, or records that were pruned.
	Say func(string)
	// wait replaces the timer in tests; nil means a timer.
	wait func(context.Context, time.Duration) error
}

// ErrCursor is wrapped by the error for a cursor that does not fit the log.
var ErrCursor = errors.New("the cursor does not fit the log")

// cursor identifies the last delivered record by its number and hash.
type cursor struct {
	Seq  uint64 `json:"seq"`
	Hash string `json:"hash"` // SHA-256 of its line
}

// Run sends records in order until there are no more or ctx ends, and returns their number. Each
// record is delivered at least once: the cursor on disk advances only after delivery, so the next
// Run repeats records whose delivery is uncertain.
func Run(ctx context.Context, o Options, s Sink) (n int, err error) {
	at, err := readCursor(o.Cursor)
	if err != nil {
		return 0, err
	}
	if err := o.check(at); err != nil {
		return 0, err
	}
	reading, stop := context.WithCancel(ctx)
	defer stop()
	if !o.Follow {
		// Follow yields the existing records even with an ended context.
		stop()
	}
	records := audit.Follow(reading, o.Log, o.Filter, at.Seq)
	for batch, err := range batches(records, o.Follow) {
		if len(batch) > 0 {
			if err := o.deliver(ctx, s, batch); err != nil {
				return n, err
			}
			n += len(batch)
			if err := writeCursor(o.Cursor, batch[len(batch)-1]); err != nil {
				return n, fmt.Errorf("cursor: %w", err)
			}
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// check returns an error for a cursor of another log, and tells the user about records that were
// pruned before their delivery.
func (o Options) check(at cursor) error {
	if at.Seq == 0 {
		return nil
	}
	first := true
	for r, err := range audit.From(o.Log, audit.Filter{}, max(at.Seq, 1)) {
		switch {
		case err != nil:
			return err
		case first && r.Seq > at.Seq:
			if r.Seq > at.Seq+1 {
				o.Say(fmt.Sprintf("records %d to %d were pruned before they were exported",
					at.Seq+1, r.Seq-1))
			}
			return nil
		case r.Seq == at.Seq:
			if hashOf(r) != at.Hash {
				return fmt.Errorf("%w: record %d is another one than that which was delivered",
					ErrCursor, at.Seq)
			}
			return nil
		}
		first = false
	}
	return fmt.Errorf("%w: it has no record %d", ErrCursor, at.Seq)
}

// batches groups records up to the bounds of one Send. With follow no record waits for the next
// one.
func batches(records iter.Seq2[audit.Record, error], follow bool) iter.Seq2[[]audit.Record, error] {
	type item struct {
		r   audit.Record
		err error
	}
	return func(yield func([]audit.Record, error) bool) {
		in, done := make(chan item, maxBatch), make(chan struct{})
		defer close(done)
		go func() {
			defer close(in)
			for r, err := range records {
				select {
				case in <- item{r, err}:
				case <-done:
					return
				}
			}
		}()
		for first := range in {
			batch, size, it, ok := []audit.Record(nil), 0, first, true
			for ok && it.err == nil {
				batch = append(batch, it.r)
				if size += len(it.r.Line); len(batch) >= maxBatch || size >= maxBatchBytes {
					break
				}
				if !follow {
					it, ok = <-in
					continue
				}
				select {
				case it, ok = <-in:
				default:
					ok = false
				}
			}
			if !yield(batch, it.err) {
				return
			}
		}
	}
}

// deliver sends a batch, again and again, until it is delivered or the error is permanent.
func (o Options) deliver(ctx context.Context, s Sink, batch []audit.Record) error {
	for try := 0; ; try++ {
		err := s.Send(ctx, batch)
		if err == nil {
			return nil
		}
		how := &sendError{}
		switch errors.As(err, &how); {
		case how.delivered:
			o.Say(err.Error())
			return nil
		case how.permanent || ctx.Err() != nil || !o.Follow && try+1 >= max(o.Tries, 1):
			return err
		}
		wait := max(min(firstWait<<min(try, 10), maxWait), how.after)
		o.Say(fmt.Sprintf("%v; trying again in %v", err, wait))
		pause := o.wait
		if pause == nil {
			pause = sleep
		}
		if err := pause(ctx, wait/2+rand.N(wait/2+1)); err != nil {
			return err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	if !tick.Wait(ctx.Done(), d) {
		return ctx.Err()
	}
	return nil
}

func hashOf(r audit.Record) string { return fmt.Sprintf("%x", sha256.Sum256(r.Line)) }

func readCursor(path string) (c cursor, err error) {
	if path == "" {
		return c, nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err == nil && (c.Seq == 0 || len(c.Hash) != 2*sha256.Size) {
		err = errors.New("it says no record")
	}
	if err != nil {
		return c, fmt.Errorf("cursor %s: %w", path, err)
	}
	return c, nil
}

// writeCursor replaces the cursor on disk atomically.
func writeCursor(path string, r audit.Record) error {
	if path == "" {
		return nil
	}
	text, err := json.Marshal(cursor{r.Seq, hashOf(r)})
	if err != nil {
		return err
	}
	return atomicfile.Write(path, append(text, '\n'), 0o600, atomicfile.Durable)
}
