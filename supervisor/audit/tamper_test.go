package audit

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// small makes a log of n short records in one segment and gives its lines, with their newlines.
func small(t *testing.T, n int) (place, [][]byte) {
	t.Helper()
	p := newPlace(t)
	l := p.open(t)
	for range n - 1 {
		mustAppend(t, l, Entry{Event: DaemonStopped{}})
	}
	mustClose(t, l)
	p.mustVerify(t, uint64(n))
	text, err := os.ReadFile(p.segment(1))
	if err != nil {
		t.Fatal(err)
	}
	return p, slices.Collect(bytes.Lines(text))
}

func (p place) put(t *testing.T, lines [][]byte) {
	t.Helper()
	if err := os.WriteFile(p.segment(1), bytes.Join(lines, nil), 0o640); err != nil {
		t.Fatal(err)
	}
}

// T-530: 100 % of the bytes, and the very record is named.
func TestEveryByteFlipped(t *testing.T) {
	stride := 1
	if testing.Short() {
		stride = 13
	}
	// A fifth of the processor time is collecting garbage, of which there is little at a time.
	percent := debug.SetGCPercent(800)
	t.Cleanup(func() { debug.SetGCPercent(percent) })
	// Side by side, for the time it takes.
	for part := range 2 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			p, lines := small(t, 200)
			pub := p.pub(t)
			f, err := os.OpenFile(p.segment(1), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			text := bytes.Join(lines, nil)
			owner := 0
			end := len(lines[0])
			for i := range text {
				if i == end {
					owner++
					end += len(lines[owner])
				}
				if i%stride != 0 || i/stride%2 != part {
					continue
				}
				f.WriteAt([]byte{text[i] ^ 1<<(i%8)}, int64(i))
				_, err := Verify(p.log, pub)
				var fault *Fault
				errors.As(err, &fault)
				named := fault != nil && fault.Seq == uint64(owner+1) &&
					// The last is a checkpoint.
					(fault.Kind == altered || owner == 199 && fault.Kind == unsigned)
				if !named {
					t.Errorf("bit %d of byte %d, in record %d: verify said %v", i%8, i, owner+1,
						err)
				}
				f.WriteAt(text[i:i+1], int64(i))
			}
			// The control: put back, it passes.
			p.mustVerify(t, 200)
		})
	}
}

// TestEveryCutAndSwap (T-530, T-531): a log of 200 records that ends at any byte of it, that begins
// with any other record than its first, and any two of whose records stand in each other's place,
// with what is found named. With JAIL_TEST_LONG=1 it is each of them, else a part of each kind.
func TestEveryCutAndSwap(t *testing.T) {
	const n = 200
	stride := 1
	if os.Getenv("JAIL_TEST_LONG") == "" {
		stride = 37
	}
	p, lines := small(t, n)
	pub, text := p.pub(t), bytes.Join(lines, nil)
	found := func(what string, seq uint64, kinds ...Kind) {
		_, err := Verify(p.log, pub)
		var fault *Fault
		if !errors.As(err, &fault) || fault.Seq != seq || !slices.Contains(kinds, fault.Kind) {
			t.Errorf("%s: verify said %v, want record %d %v", what, err, seq, kinds)
		}
	}
	cuts, swaps, fronts := 0, 0, 0
	for i, start := n-1, len(text); i >= 0; i-- {
		end := start
		start -= len(lines[i])
		for at := end - 1; at >= start; at-- {
			if at%stride != 0 && at != start {
				continue
			}
			if err := os.Truncate(p.segment(1), int64(at)); err != nil {
				t.Fatal(err)
			}
			cuts++
			if at == start {
				found(fmt.Sprint("cut to ", at, " bytes"), uint64(i+1), missing)
			} else {
				found(fmt.Sprint("cut to ", at, " bytes"), uint64(i+1), altered)
			}
		}
	}
	for i := 1; i < n; i++ {
		p.put(t, lines[i:])
		fronts++
		found(fmt.Sprint("begun at record ", i+1), 1, missing)
	}
	for i := range n {
		for j := i + 1; j < n; j++ {
			if (i*n+j)%stride != 0 && j != i+1 {
				continue
			}
			swapped := slices.Clone(lines)
			swapped[i], swapped[j] = swapped[j], swapped[i]
			p.put(t, swapped)
			swaps++
			found(fmt.Sprintf("records %d and %d swapped", i+1, j+1), uint64(i+1), outOfOrder)
		}
	}
	p.put(t, lines)
	p.mustVerify(t, n) // the control
	t.Logf("%d bytes: %d cuts, %d fronts, %d swaps", len(text), cuts, fronts, swaps)
}

func TestHeadFlipped(t *testing.T) {
	p, _ := small(t, 3)
	name := filepath.Join(p.log, headFile)
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for i := range text {
		bad := bytes.Clone(text)
		bad[i] ^= 1
		os.WriteFile(name, bad, 0o640)
		if _, err := p.verify(t); err == nil {
			t.Errorf("byte %d of the head flipped: verify passed", i)
		}
	}
}

func TestLinesMoved(t *testing.T) {
	const n = 40
	p, lines := small(t, n)
	for i := range n {
		seq := uint64(i + 1)
		p.put(t, slices.Delete(slices.Clone(lines), i, i+1))
		p.wantFault(t, seq, missing)
		p.put(t, slices.Insert(slices.Clone(lines), i, lines[i]))
		if i < n-1 {
			p.wantFault(t, seq, outOfOrder)
		} else {
			// The head covers the first of the two.
			p.wantFault(t, n+1, unsigned)
		}
		for j := i + 1; j < n; j++ {
			swapped := slices.Clone(lines)
			swapped[i], swapped[j] = swapped[j], swapped[i]
			p.put(t, swapped)
			p.wantFault(t, seq, outOfOrder)
		}
	}
	for k := 1; k <= n; k++ {
		p.put(t, lines[:n-k])
		p.wantFault(t, uint64(n-k+1), missing)
	}
	p.put(t, lines)
	p.mustVerify(t, n)
}

// T-531: bytes that are missing at the end are missed, in whichever record.
func TestTailCutByBytes(t *testing.T) {
	p, lines := small(t, 5)
	text := bytes.Join(lines, nil)
	for cut := 1; cut <= len(lines[4])+len(lines[3]); cut++ {
		p.put(t, [][]byte{text[:len(text)-cut]})
		seq, kind := uint64(5), altered
		switch {
		case cut == len(lines[4]):
			kind = missing
		case cut > len(lines[4]) && cut < len(lines[4])+len(lines[3]):
			seq = 4
		case cut == len(lines[4])+len(lines[3]):
			seq, kind = 4, missing
		}
		p.wantFault(t, seq, kind)
	}
}

// forge makes a line that follows before as the log itself would write it.
func forge(before []byte, seq string) []byte {
	h := sha256.Sum256(bytes.TrimSuffix(before, []byte("\n")))
	body := Entry{Event: DaemonStopped{"forged"}}.body()
	return []byte(`{"seq":` + seq + `,"time":"2026-01-02T03:04:05.000000006Z",` + string(body) +
		`,"prev":"` + sumPrefix + hex.EncodeToString(h[:]) + "\"}\n")
}

func TestForged(t *testing.T) {
	p, lines := small(t, 6)
	// A line that chains, put in: the next one has its number.
	p.put(t, slices.Insert(slices.Clone(lines), 3, forge(lines[2], "4")))
	p.wantFault(t, 4, outOfOrder)
	// A line that chains, put on the end: nobody signed it.
	p.put(t, append(slices.Clone(lines), forge(lines[5], "7")))
	p.wantFault(t, 7, unsigned)
	// The whole rest written anew: the head has another hash.
	other := slices.Clone(lines[:2])
	for _, seq := range []string{"3", "4", "5", "6"} {
		other = append(other, forge(other[len(other)-1], seq))
	}
	p.put(t, other)
	p.wantFault(t, 6, altered)
	// The same before a checkpoint that is still there.
	re := append(slices.Clone(other[:5]),
		[]byte(strings.Replace(string(lines[5]), `"prev":"`, `"x":"`, 1)))
	last := bytes.TrimSuffix(lines[5], []byte("\n"))
	at := bytes.LastIndex(last, []byte(`"prev":"`))
	h := sha256.Sum256(bytes.TrimSuffix(other[4], []byte("\n")))
	re[5] = append(bytes.Clone(last[:at]), []byte(`"prev":"`+sumPrefix+hex.EncodeToString(h[:])+
		"\"}\n")...)
	p.put(t, re)
	p.wantFault(t, 1, altered)
}

func TestFilesTaken(t *testing.T) {
	rotate := func(o *Options) { o.SegmentBytes = 2000 }
	p := newPlace(t)
	p.fill(t, 100, rotate)
	list, _ := filepath.Glob(filepath.Join(p.log, "*"+segmentExt))
	if len(list) < 5 {
		t.Fatalf("%d segments, want more", len(list))
	}
	for i, name := range list {
		first := uint64(1)
		if i > 0 {
			r, _ := segments(mustRoot(t, p.log))
			first = r[i]
		}
		away := name + ".away"
		os.Rename(name, away)
		p.wantFault(t, first, missing)
		os.Rename(away, name)
	}
	os.Truncate(list[len(list)-1], 0)
	if _, err := p.verify(t); err == nil {
		t.Error("last segment emptied: verify passed")
	}
}

func mustRoot(t *testing.T, dir string) *os.Root {
	t.Helper()
	r, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// T-531: a log without its head, or with what is none.
func TestHeadTaken(t *testing.T) {
	p, lines := small(t, 6)
	name := filepath.Join(p.log, headFile)
	head, _ := os.ReadFile(name)

	os.Remove(name)
	// The checkpoint at 6 signs 1 to 5.
	p.wantFault(t, 6, unsigned)
	if _, err := Open(p.options()); !errors.Is(err, errDamaged) {
		t.Errorf("open without the head: %v", err)
	}

	// The note in a checkpoint is signed too, and is no head.
	r, err := ParseRecord(bytes.TrimSuffix(lines[5], []byte("\n")))
	if err != nil {
		t.Fatal(err)
	}
	var text string
	var p2 parser
	p2.parse(r.Line, func(k, v []byte) {
		if string(k) == "note" {
			text = strings.ReplaceAll(strings.Trim(string(v), `"`), `\n`, "\n")
		}
	})
	os.WriteFile(name, []byte(text), 0o640)
	p.put(t, lines[:5])
	p.wantFault(t, 1, unsigned)

	// Log and head gone, and all of it gone: the writer knows.
	os.Remove(name)
	os.Remove(p.segment(1))
	p.wantFault(t, 1, unsigned)
	if _, err := Open(p.options()); !errors.Is(err, errDamaged) {
		t.Errorf("open of an emptied log: %v", err)
	}
	os.RemoveAll(p.log)
	if _, err := Open(p.options()); !errors.Is(err, errDamaged) {
		t.Errorf("open of a removed log: %v", err)
	}
	p.put(t, lines)
	os.WriteFile(name, head, 0o640)
	p.mustVerify(t, 6)
}

// T-531: a tail that is missing is not sealed by going on behind it.
func TestRestartOnDamage(t *testing.T) {
	p, lines := small(t, 6)
	older, _ := os.ReadFile(filepath.Join(p.log, headFile))
	for k := 1; k <= 6; k++ {
		p.put(t, lines[:6-k])
		if _, err := Open(p.options()); !errors.Is(err, errDamaged) {
			t.Errorf("open with %d records missing: %v", k, err)
		}
		p.wantFault(t, uint64(7-k), missing)
	}
	last := bytes.Clone(lines[5])
	last[40] ^= 1
	p.put(t, append(slices.Clone(lines[:5]), last))
	if _, err := Open(p.options()); !errors.Is(err, errDamaged) {
		t.Errorf("open with the last record altered: %v", err)
	}

	// Log and head put back together: verify cannot see it, the writer does.
	p.put(t, lines)
	p.fill2(t, 4)
	p.put(t, lines)
	os.WriteFile(filepath.Join(p.log, headFile), older, 0o640)
	p.mustVerify(t, 6)
	if _, err := Open(p.options()); !errors.Is(err, errDamaged) {
		t.Errorf("open of a log put back: %v", err)
	}
}

func (p place) fill2(t *testing.T, n int) {
	t.Helper()
	l := p.open(t)
	for range n {
		mustAppend(t, l, denied("more"))
	}
	mustClose(t, l)
}

// Damage under a running writer ends it.
func TestDamageWhileOpen(t *testing.T) {
	tests := []struct {
		name string
		harm func(p place) error
	}{
		{"segment removed", func(p place) error { return os.Remove(p.segment(1)) }},
		{"segment renamed", func(p place) error {
			return os.Rename(p.segment(1), p.segment(1)+".1")
		}},
		{"segment cut", func(p place) error { return os.Truncate(p.segment(1), 10) }},
		{"head removed", func(p place) error { return os.Remove(filepath.Join(p.log, headFile)) }},
		{"head garbled", func(p place) error {
			return os.Truncate(filepath.Join(p.log, headFile), 5)
		}},
		{"log removed", func(p place) error { return os.RemoveAll(p.log) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlace(t)
			l := p.open(t)
			mustAppend(t, l, denied("a"))
			if err := tt.harm(p); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if _, err := l.Append(context.Background(), denied("b")); !errors.Is(err,
					errDamaged) || !errors.Is(err, errBroken) {
					t.Errorf("append said %v", err)
				}
			}
			l.Close()
		})
	}
}
