package audit

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestTenThousandASecond: events come at 10,000 a second, whether or not the log keeps up, for a
// second, or with JAIL_TEST_LONG for a minute. Each is on record, in the order of its writer, and
// the log verifies. How far behind the log was is logged, not judged: a writer that is held up is
// told by that.
func TestTenThousandASecond(t *testing.T) {
	const rate, writers = 10_000, 16
	long := time.Second
	if os.Getenv("JAIL_TEST_LONG") != "" {
		long = time.Minute
	}
	p := newPlace(t)
	l := p.open(t)
	var all sync.WaitGroup
	// ns that the slowest event waited behind its time
	var latest atomic.Int64
	begun := time.Now()
	each := int(long.Seconds()) * rate / writers
	for w := range writers {
		all.Go(func() {
			for i := range each {
				due := begun.Add(time.Duration(i) * long / time.Duration(each))
				time.Sleep(time.Until(due))
				if _, err := l.Append(t.Context(), denied(fmt.Sprintf("%d %d", w, i))); err != nil {
					t.Error(err)
					return
				}
				if late := int64(time.Since(due)); late > latest.Load() {
					latest.Store(late)
				}
			}
		})
	}
	all.Wait()
	took := time.Since(begun)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d events in %v, %.0f a second; the slowest was on disk %v after it was due",
		each*writers, took, float64(each*writers)/took.Seconds(), time.Duration(latest.Load()))
	next := make([]int, writers)
	for r, err := range Scan(p.log, Filter{Types: []Type{TypeDenied}}) {
		if err != nil {
			t.Fatal(err)
		}
		var w, i int
		if _, err := fmt.Sscanf(r.Text("what"), "%d %d", &w, &i); err != nil || i != next[w] {
			t.Fatalf("record %d is %q, and of writer %d event %d is next: %v", r.Seq,
				r.Text("what"), w, next[w], err)
		}
		next[w]++
	}
	for w, n := range next {
		if n != each {
			t.Errorf("of writer %d %d of %d events are on record", w, n, each)
		}
	}
	if rep := p.mustVerify(t, 0); rep.Gaps != 0 {
		t.Errorf("%d gaps", rep.Gaps)
	}
}
