package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Tests want zeros soon, and for as long as they look at them.
func init() { aheadAfter, aheadPause = 16, time.Hour }

// TestNoZerosAtRest: who reads a segment while nothing is written finds lines alone, and a writer
// that goes on makes zeros only after as many batches as before.
func TestNoZerosAtRest(t *testing.T) {
	p := newPlace(t)
	l := p.open(t)
	pause := func(d time.Duration) {
		t.Helper()
		if err := l.hold(func() error { l.writer.pace.pause = d; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	n := uint64(0)
	for range 3 {
		for bytes.IndexByte(p.text(t), 0) < 0 {
			mustAppend(t, l, denied("a"))
			n++
		}
		// Only now: on a slow disk each flush would be a pause.
		pause(time.Nanosecond)
		mustAppend(t, l, denied("a"))
		n++
		for bytes.IndexByte(p.text(t), 0) >= 0 {
			time.Sleep(time.Millisecond)
		}
		p.mustVerify(t, n)
		pause(aheadPause)
	}
	if n < 3*uint64(aheadAfter) {
		t.Errorf("zeros after %d records", n)
	}
	mustClose(t, l)
	p.mustVerify(t, n+1)
}

// filledAhead makes a log of n records in one segment with zeros behind them, as it lies on the
// disk while its writer is live or after that was killed, and returns the lines.
func filledAhead(t *testing.T, n int) (place, []byte) {
	t.Helper()
	live := newPlace(t)
	l := live.open(t)
	for range n {
		mustAppend(t, l, denied("read /etc/shadow"))
	}
	p := live.copied(t)
	text := p.text(t)
	lines := bytes.TrimRight(text, "\x00")
	if len(text) != aheadStep || len(lines) == len(text) || lines[len(lines)-1] != '\n' {
		t.Fatalf("a segment of %d bytes with lines up to %d", len(text), len(lines))
	}
	live.mustVerify(t, uint64(n))
	mustClose(t, l)
	if left := live.text(t); bytes.IndexByte(left, 0) >= 0 {
		t.Error("zeros are left after the end of the writer")
	}
	live.mustVerify(t, uint64(n+1))
	return p, lines
}

// copied copies a log with its keys.
func (p place) copied(t *testing.T) place {
	t.Helper()
	to := newPlace(t)
	for from, to := range map[string]string{p.log: to.log, p.keys: to.keys} {
		entries, err := os.ReadDir(from)
		if err == nil {
			err = os.Mkdir(to, 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			text, err := os.ReadFile(filepath.Join(from, e.Name()))
			if err == nil {
				err = os.WriteFile(filepath.Join(to, e.Name()), text, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return to
}

func (p place) text(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile(p.segment(1))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// overwrite writes to the first segment.
func (p place) overwrite(t *testing.T, b []byte, at int64) {
	t.Helper()
	f, err := os.OpenFile(p.segment(1), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(b, at)
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestAhead: all readers take the zeros behind the lines for the end, and the next writer goes on
// there, with no gap.
func TestAhead(t *testing.T) {
	const n = 40
	p, lines := filledAhead(t, n)
	p.mustVerify(t, n)
	if out, ok := second(t, p.log, filepath.Join(p.keys, pubFile)); !ok {
		t.Errorf("verify.py: %s", out)
	}
	if got := p.lines(t); len(got) != n || strings.Join(got, "\n")+"\n" != string(lines) {
		t.Errorf("%d lines", len(got))
	}
	for _, seq := range []uint64{1, n} {
		if proof, err := Prove(p.log, p.pub(t), seq); err != nil ||
			!bytes.Contains(lines, proof.Line) {
			t.Errorf("proof of %d: %v", seq, err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for what, read := range map[string]func() int{
		"tail": func() (got int) {
			for _, err := range Tail(ctx, p.log, Filter{}, 5) {
				if err != nil {
					t.Error(err)
				}
				if got++; got == 5 {
					break
				}
			}
			return got - 5
		},
		"walk": func() (got int) {
			for placed, err := range Walk(ctx, p.log, Place{}) {
				if err != nil || placed.Bad != nil {
					t.Error(err, placed.Bad)
				}
				got++
			}
			return got - n
		},
	} {
		if wrong := read(); wrong != 0 {
			t.Errorf("%s: %d records too many", what, wrong)
		}
	}
	l := p.open(t)
	if seq := mustAppend(t, l, denied("more")); seq != n+1 {
		t.Errorf("record %d, want %d", seq, n+1)
	}
	mustClose(t, l)
	if rep := p.mustVerify(t, n+2); rep.Gaps != 0 {
		t.Errorf("%d gaps", rep.Gaps)
	}
	if text := p.text(t); !bytes.HasPrefix(text, lines) || bytes.IndexByte(text, 0) >= 0 {
		t.Error("the lines before were changed, or there are zeros")
	}
}

// TestAheadTails: what a crash leaves among the zeros is found, kept and moved aside as without
// them.
func TestAheadTails(t *testing.T) {
	const n = 40
	last := func(lines []byte) []byte {
		return lines[bytes.LastIndexByte(lines[:len(lines)-1], '\n')+1:]
	}
	for name, tt := range map[string]struct {
		at    int64
		bytes func(lines []byte) []byte
		whole int
		torn  bool
	}{
		"half a line": {0, func(l []byte) []byte { return forge(last(l), "41")[:50] }, 0, true},
		"one line":    {0, func(l []byte) []byte { return forge(last(l), "41") }, 1, false},
		"a line and a half": {0, func(l []byte) []byte {
			return append(forge(last(l), "41"), "{\"seq\""...)
		}, 1, true},
		"a byte far behind": {5000, func([]byte) []byte { return []byte("x") }, 0, true},
		"a line far behind": {5000, func(l []byte) []byte { return forge(last(l), "41") }, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			p, lines := filledAhead(t, n)
			add := tt.bytes(lines)
			p.overwrite(t, add, int64(len(lines))+tt.at)
			p.wantFault(t, n+1, unsigned)
			before := bytes.TrimRight(p.text(t), "\x00")
			p.fill2(t, 1)
			if rep := p.mustVerify(t, uint64(n+tt.whole+3)); rep.Gaps != 1 {
				t.Errorf("report %+v", rep)
			}
			aside, err := os.ReadFile(filepath.Join(p.log,
				fmt.Sprintf("torn-%012d", n+1+tt.whole)))
			if tt.torn != (err == nil) {
				t.Fatalf("torn bytes: %v", err)
			}
			kept := len(before) - len(aside)
			if !bytes.Equal(before[:kept], p.text(t)[:kept]) || !bytes.Equal(before[kept:], aside) {
				t.Error("bytes that a crash left were changed")
			}
		})
	}
}

// TestAheadTamper: zeros in the place of records, or where no writer puts them, are found.
func TestAheadTamper(t *testing.T) {
	const n = 40
	p, lines := filledAhead(t, n)
	restore := func() { p.overwrite(t, lines, 0) }
	for k := 1; k <= n; k += 7 {
		start := len(lines)
		for range k {
			start = bytes.LastIndexByte(lines[:start-1], '\n') + 1
		}
		p.overwrite(t, make([]byte, len(lines)-start), int64(start))
		p.wantFault(t, uint64(n-k+1), missing)
		restore()
	}
	for at, seq := 0, uint64(1); at < len(lines); at++ {
		if at%37 == 0 {
			p.overwrite(t, []byte{0}, int64(at))
			var fault *Fault
			if _, err := p.verify(t); !errors.As(err, &fault) || fault.Seq != seq {
				t.Errorf("a zero in byte %d of record %d: %v", at, seq, err)
			}
			restore()
		}
		if lines[at] == '\n' {
			seq++
		}
	}
	p.mustVerify(t, n)
	for name, size := range map[string]int64{"one too few": aheadStep - 1,
		"one too many": aheadStep + 1, "a step too many": 2 * aheadStep} {
		if err := os.Truncate(p.segment(1), size); err != nil {
			t.Fatal(err)
		}
		if _, err := p.verify(t); err == nil {
			t.Errorf("%s: verified", name)
		}
		if _, ok := second(t, p.log, filepath.Join(p.keys, pubFile)); ok {
			t.Errorf("%s: verify.py verified", name)
		}
	}
	if err := os.Truncate(p.segment(1), aheadStep); err != nil {
		t.Fatal(err)
	}
	p.mustVerify(t, n)
}

// TestAheadSegments: only the last segment has zeros, and zeros in another are damage.
func TestAheadSegments(t *testing.T) {
	p := newPlace(t)
	l := p.open(t, func(o *Options) { o.SegmentBytes = aheadStep })
	for range 700 {
		mustAppend(t, l, denied(strings.Repeat("x", 4000)))
	}
	all := p.files(t, "*"+segmentExt)
	if len(all) != 3 {
		t.Fatalf("segments %q", all)
	}
	for i, name := range all {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if zeros := bytes.IndexByte(text, 0) >= 0; zeros != (i == len(all)-1) {
			t.Errorf("%s: zeros %v", name, zeros)
		}
	}
	killed := p.copied(t)
	killed.mustVerify(t, 0)
	info, err := os.Stat(killed.segment(1))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(killed.segment(1), (info.Size()/aheadStep+1)*aheadStep); err != nil {
		t.Fatal(err)
	}
	if _, err := killed.verify(t); err == nil {
		t.Error("zeros in the first segment: verified")
	}
	if _, ok := second(t, killed.log, filepath.Join(killed.keys, pubFile)); ok {
		t.Error("zeros in the first segment: verify.py verified")
	}
	if done, err := l.Compress(nil); err != nil || done.Segments != 2 {
		t.Errorf("%+v, %v", done, err)
	}
	mustClose(t, l)
	if rep := p.mustVerify(t, 0); rep.Gaps != 0 {
		t.Errorf("%d gaps", rep.Gaps)
	}
}

// cramped is a segment on a disk that has room for records and not for zeros ahead of them.
type cramped struct{ segment }

func (c cramped) WriteAt(b []byte, off int64) (int, error) {
	if len(b) > aheadStep/2 {
		n, _ := c.segment.WriteAt(b[:len(b)/2], off)
		return n, syscall.ENOSPC
	}
	return c.segment.WriteAt(b, off)
}

func TestNoRoomAhead(t *testing.T) {
	p := newPlace(t)
	l := p.open(t)
	mustAppend(t, l, denied("a"))
	l.writer.seg.segment = cramped{l.writer.seg.segment}
	for range 2 * aheadAfter {
		mustAppend(t, l, denied("b"))
	}
	if bytes.IndexByte(p.text(t), 0) >= 0 {
		t.Error("there are zeros")
	}
	mustClose(t, l)
	p.mustVerify(t, uint64(2*aheadAfter+2))
}

// TestAheadTwoWriters: a writer goes on behind what another has written over its zeros or after it
// has cut them off.
func TestAheadTwoWriters(t *testing.T) {
	p := newPlace(t)
	a := p.open(t)
	n := uint64(0)
	for round := range 4 {
		for range 2 * aheadAfter {
			mustAppend(t, a, denied("a"))
			n++
		}
		b := p.open(t)
		mustAppend(t, b, denied("b"))
		n++
		if round%2 == 0 {
			// A checkpoint, too.
			mustClose(t, b)
			n++
		} else {
			defer mustClose(t, b)
		}
		if seq := mustAppend(t, a, denied("a")); seq != n+1 {
			t.Errorf("round %d: record %d, want %d", round, seq, n+1)
		}
		n++
	}
	mustClose(t, a)
	if rep := p.mustVerify(t, 0); rep.Gaps != 0 {
		t.Errorf("%d gaps", rep.Gaps)
	}
}

// TestReadersBesideAhead: readers that meet a writer at the zeros see whole records and never
// damage.
func TestReadersBesideAhead(t *testing.T) {
	p := newPlace(t)
	l := p.open(t)
	for range 2 * aheadAfter {
		mustAppend(t, l, denied("a"))
	}
	const writers, each = 4, 300
	done := make(chan struct{})
	var reading, writing sync.WaitGroup
	for range 2 {
		reading.Go(func() {
			for {
				next := uint64(0)
				for r, err := range Scan(p.log, Filter{}) {
					if next++; err != nil || r.Seq != next {
						t.Errorf("record %d is %d, %v", next, r.Seq, err)
						return
					}
				}
				if _, err := Verify(p.log, p.pub(t)); err != nil {
					t.Error(err)
					return
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for range writers {
		writing.Go(func() {
			for i := range each {
				if _, err := l.Append(t.Context(), denied(strings.Repeat("x", i*10))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writing.Wait()
	close(done)
	reading.Wait()
	mustClose(t, l)
	p.mustVerify(t, 0)
}

// TestEarlierLog: a log that jail 0.8.0 wrote before segments were filled ahead, with a new key, a
// cut and packed segments, verifies. A writer goes on behind it and changes no byte of it.
func TestEarlierLog(t *testing.T) {
	was := place{"testdata/log-0.8.0/audit", "testdata/log-0.8.0/keys"}
	p := was.copied(t)
	p.mustVerify(t, 38)
	if out, ok := second(t, p.log, filepath.Join(p.keys, pubFile)); !ok {
		t.Errorf("verify.py: %s", out)
	}
	l := p.open(t)
	for range 2 * aheadAfter {
		mustAppend(t, l, denied("read /etc/shadow"))
	}
	p.mustVerify(t, uint64(38+2*aheadAfter))
	mustClose(t, l)
	p.mustVerify(t, uint64(38+2*aheadAfter+1))
	for _, name := range was.files(t, "*"+segmentExt+"*") {
		old, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		now, err := os.ReadFile(filepath.Join(p.log, filepath.Base(name)))
		if err != nil || !bytes.HasPrefix(now, old) {
			t.Errorf("%s was changed, %v", name, err)
		}
	}
}

// TestFillAt: what follows a byte, also while a writer overwrites zeros.
func TestFillAt(t *testing.T) {
	at := func(size int, text string, from int) []byte {
		b := make([]byte, size)
		copy(b[from:], text)
		return b
	}
	for name, tt := range map[string]struct {
		text []byte
		at   int64
		want fill
	}{
		"nothing":          {nil, 0, blank},
		"zeros":            {at(aheadStep, "x", 0), 1, blank},
		"zeros of no step": {at(aheadStep-1, "x", 0), 1, filled},
		"too many zeros":   {at(2*aheadStep, "x", 0), 1, filled},
		"a line":           {at(aheadStep, "xy", 0), 1, moving},
		"a byte behind":    {at(aheadStep, "x", 500), 1, filled},
	} {
		if got, err := fillAt(bytes.NewReader(tt.text), int64(len(tt.text)), tt.at); got != tt.want ||
			err != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	overtaken := &overtaking{text: at(aheadStep, "x", 500)}
	if got, err := fillAt(overtaken, aheadStep, 1); got != moving || err != nil {
		t.Errorf("a line that came meanwhile: %v, %v", got, err)
	}
}

// overtaking is a file whose zeros are overwritten from the front after its first reading.
type overtaking struct{ text []byte }

func (o *overtaking) ReadAt(b []byte, off int64) (int, error) {
	n := copy(b, o.text[off:])
	o.text = slices.Clone(o.text)
	copy(o.text[1:], "line")
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}
