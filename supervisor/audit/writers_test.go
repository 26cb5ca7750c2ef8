package audit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/supervisor/flock"
)

// T-532: many writers, one chain, every number given once.
func TestManyWriters(t *testing.T) {
	const writers, each = 64, 50
	p := newPlace(t)
	l := p.open(t, func(o *Options) { o.SegmentBytes = 100_000; o.CheckpointRecords = 100 })
	var mu sync.Mutex
	seen := map[uint64]string{}
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				what := fmt.Sprintf("w%d i%d", w, i)
				seq, err := l.Append(context.Background(), denied(what))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if seen[seq] != "" {
					t.Errorf("record %d given to %s and %s", seq, seen[seq], what)
				}
				seen[seq] = what
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	mustClose(t, l)
	rep := p.mustVerify(t, 0)
	if len(seen) != writers*each || rep.Records != writers*each+rep.Checkpoints {
		t.Errorf("%d given out, report %+v", len(seen), rep)
	}
	p.wantOnRecord(t, seen)
}

// wantOnRecord checks that each record that was acknowledged is the one that was asked for.
func (p place) wantOnRecord(t *testing.T, seen map[uint64]string) {
	t.Helper()
	found := 0
	for r, err := range Scan(p.log, Filter{Types: []Type{TypeDenied}}) {
		if err != nil {
			t.Fatal(err)
		}
		if want, ok := seen[r.Seq]; ok {
			found++
			if got := string(r.Fields[1].Value); got != `"`+want+`"` {
				t.Errorf("record %d is about %s, want %s", r.Seq, got, want)
			}
		}
	}
	if found != len(seen) {
		t.Errorf("%d of %d acknowledged records found", found, len(seen))
	}
}

// T-532: two daemons on one directory take turns, and a verifier and a reader look on.
func TestTwoHandles(t *testing.T) {
	const each = 150
	p := newPlace(t)
	small := func(o *Options) { o.SegmentBytes = 8000; o.CheckpointRecords = 20 }
	logs := []*Log{p.open(t, small), p.open(t, small)}
	var mu sync.Mutex
	seen := map[uint64]string{}
	var wg sync.WaitGroup
	for h, l := range logs {
		for w := range 2 {
			wg.Go(func() {
				for i := range each {
					what := fmt.Sprintf("h%d w%d i%d", h, w, i)
					seq, err := l.Append(context.Background(), denied(what))
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					seen[seq] = what
					mu.Unlock()
				}
			})
		}
	}
	stop := make(chan struct{})
	var watch sync.WaitGroup
	pub := p.pub(t)
	watch.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := Verify(p.log, pub); err != nil {
				t.Errorf("verify while it is written: %v", err)
				return
			}
			for _, err := range Scan(p.log, Filter{}) {
				if err != nil {
					t.Errorf("scan while it is written: %v", err)
					return
				}
			}
		}
	})
	wg.Wait()
	close(stop)
	watch.Wait()
	for _, l := range logs {
		mustClose(t, l)
	}
	rep := p.mustVerify(t, 0)
	if len(seen) != 4*each || rep.Records != 4*each+rep.Checkpoints || rep.Gaps != 0 {
		t.Errorf("%d given out, report %+v", len(seen), rep)
	}
	p.wantOnRecord(t, seen)
}

// slow is a segment whose flush takes until it is let go.
type slow struct {
	segment
	begun, free chan struct{}
}

func (s slow) Sync() error {
	close(s.begun)
	<-s.free
	return s.segment.Sync()
}

// A record that is written and not yet signed, because its flush takes long, is no fault.
func TestVerifyDuringFlush(t *testing.T) {
	p := newPlace(t)
	l := p.open(t)
	mustAppend(t, l, denied("a"))
	s := slow{l.writer.seg.segment, make(chan struct{}), make(chan struct{})}
	l.writer.seg.segment = s
	appended, verified := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := l.Append(context.Background(), denied("b"))
		appended <- err
	}()
	<-s.begun
	go func() {
		_, err := p.verify(t)
		verified <- err
	}()
	select {
	case err := <-verified:
		t.Errorf("verify did not wait for the writer: %v", err)
		close(s.free)
	case <-time.After(100 * time.Millisecond):
		close(s.free)
		if err := <-verified; err != nil {
			t.Error(err)
		}
	}
	if err := <-appended; err != nil {
		t.Fatal(err)
	}
	l.writer.seg.segment = s.segment
	mustClose(t, l)
	p.mustVerify(t, 3)
}

// A record is withdrawn while another process has the lock, and not once it is on its way.
func TestWithdraw(t *testing.T) {
	p := newPlace(t)
	l := p.open(t)
	mustAppend(t, l, denied("a"))
	other, err := os.OpenFile(filepath.Join(p.log, lockFile), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := flock.Lock(other); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := l.Append(ctx, denied("withdrawn")); !errors.Is(err, context.Canceled) {
		t.Fatalf("append said %v", err)
	}
	if err := flock.Unlock(other); err != nil {
		t.Fatal(err)
	}
	if seq := mustAppend(t, l, denied("b")); seq != 2 {
		t.Errorf("record %d, want 2", seq)
	}
	mustClose(t, l)
	p.mustVerify(t, 3)
}

func TestRotation(t *testing.T) {
	p := newPlace(t)
	tiny := func(o *Options) { o.SegmentBytes = 1 }
	p.fill(t, 10, tiny)
	list, err := segments(mustRoot(t, p.log))
	if err != nil || len(list) != 10 || list[0] != 1 || list[9] != 10 {
		t.Fatalf("segments %v, %v", list, err)
	}
	// With the default size it goes on in the last.
	p.fill2(t, 3)
	p.mustVerify(t, 14)
	l := p.open(t, tiny)
	mustAppend(t, l, denied("x"))
	mustClose(t, l)
	p.mustVerify(t, 16)
}

// The writer went on to the next segment and was killed before it wrote to it.
func TestEmptyNextSegment(t *testing.T) {
	p := newPlace(t)
	p.fill(t, 5)
	if err := os.WriteFile(p.segment(6), nil, 0o640); err != nil {
		t.Fatal(err)
	}
	p.mustVerify(t, 5)
	p.fill2(t, 2)
	if rep := p.mustVerify(t, 8); rep.Gaps != 0 {
		t.Errorf("report %+v", rep)
	}
	if info, err := os.Stat(p.segment(6)); err != nil || info.Size() == 0 {
		t.Errorf("segment 6: %v, %v", info, err)
	}
	if err := os.WriteFile(p.segment(20), []byte("x\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(p.options()); !errors.Is(err, errDamaged) {
		t.Errorf("open with a stray segment: %v", err)
	}
	p.wantFault(t, 9, unsigned)
}
