package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// anchorsOf writes so many records one by one and keeps every head, as places off the host would.
func (p place) anchorsOf(t *testing.T, n int) []byte {
	t.Helper()
	var kept bytes.Buffer
	l := p.open(t)
	defer l.Close()
	for i := range n {
		if _, err := l.Append(t.Context(), denied(fmt.Sprint("open ", i))); err != nil {
			t.Fatal(err)
		}
		h, err := ReadHead(p.log)
		if err != nil || h.Size != uint64(i+1) {
			t.Fatalf("head of %d records: %+v, %v", i+1, h, err)
		}
		if i%2 == 0 {
			kept.Write(append(h.Note, '\n'))
			continue
		}
		line, err := json.Marshal(map[string]any{"size": h.Size, "note": string(h.Note)})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&kept, "<109>1 2026-01-01T00:00:00Z host jail 1 anchor - @cee: %s\n", line)
	}
	return kept.Bytes()
}

func (p place) against(t *testing.T, kept []byte) (Report, error) {
	t.Helper()
	anchors, err := ParseAnchors("kept", kept)
	if err != nil {
		t.Fatal(err)
	}
	return verify(p.log, p.pub(t), time.Microsecond, anchors...)
}

func wantKind(t *testing.T, err error, kind Kind, word string) {
	t.Helper()
	var f *Fault
	if !errors.As(err, &f) || f.Kind != kind || !strings.Contains(f.Why, word) {
		t.Errorf("verify said %v, want %s and %q", err, kind, word)
	}
}

// TestAnchors: an attacker with the key and write access writes another consistent history. Each
// such history passes Verify without anchors, which is the control, and an anchor detects it.
func TestAnchors(t *testing.T) {
	p := newPlace(t)
	kept := p.anchorsOf(t, 20)
	if rep, err := p.against(t, kept); err != nil || rep.Anchors != 20 {
		t.Fatalf("%+v, %v", rep, err)
	}
	rewrite := func(t *testing.T, n int, what string, withKey bool) place {
		t.Helper()
		q := newPlace(t)
		if withKey {
			if err := os.CopyFS(q.keys, os.DirFS(p.keys)); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(os.Remove(filepath.Join(q.keys, knownFile)), os.Chmod(q.keys,
				0o700), os.Chmod(filepath.Join(q.keys, keyFile), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		l := q.open(t)
		for i := range n {
			e := denied(fmt.Sprint("open ", i))
			if i == 7 {
				e = denied(what)
			}
			if _, err := l.Append(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		q.mustVerify(t, 0)
		return q
	}
	_, err := rewrite(t, 20, "something else", true).against(t, kept)
	wantKind(t, err, altered, "another history")
	_, err = rewrite(t, 5, "", true).against(t, kept)
	wantKind(t, err, altered, "another history") // the times differ
	_, err = rewrite(t, 40, "", false).against(t, kept)
	wantKind(t, err, missing, "replaced")

	// The log as it was after ten records, with the head of then.
	short := newPlace(t)
	first := short.anchorsOf(t, 10)
	old := newPlace(t)
	if err := errors.Join(os.CopyFS(old.log, os.DirFS(short.log)),
		os.CopyFS(old.keys, os.DirFS(short.keys))); err != nil {
		t.Fatal(err)
	}
	l := short.open(t)
	for range 10 {
		if _, err := l.Append(t.Context(), denied("more")); err != nil {
			t.Fatal(err)
		}
	}
	h, err := ReadHead(short.log)
	if err := errors.Join(err, l.Close()); err != nil {
		t.Fatal(err)
	}
	if rep, err := old.against(t, first); err != nil || rep.Anchors != 10 {
		t.Errorf("%+v, %v", rep, err)
	}
	_, err = old.against(t, append(first, h.Note...))
	wantKind(t, err, missing, "the log ends with record")
}

// TestAnchorsOfPruned: anchors of before the cut count as such, those at it and behind it are held
// against the log; so are those of before a rotation.
func TestAnchorsOfPruned(t *testing.T) {
	p := newPlace(t)
	kept := p.anchorsOf(t, 12)
	o := p.options()
	o.SegmentBytes = 1
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if _, err := l.Append(t.Context(), denied("more")); err != nil {
			t.Fatal(err)
		}
	}
	h, err := ReadHead(p.log)
	if err := errors.Join(err, l.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := Rotate(o); err != nil {
		t.Fatal(err)
	}
	kept = append(append(kept, h.Note...), '\n')
	all := p.pub(t)
	if rep, err := p.against(t, kept); err != nil || rep.Anchors != 13 {
		t.Fatalf("with keys %q: %+v, %v", all, rep, err)
	}
	if _, err := Prune(o, Keep{Bytes: 1}); err != nil {
		t.Fatal(err)
	}
	if rep, err := p.against(t, kept); err != nil || rep.Old == 0 || rep.Old+rep.Anchors != 13 {
		t.Errorf("%+v, %v", rep, err)
	}
}

// TestNoAnchors: what is none is said to be none, and never passes for one.
func TestNoAnchors(t *testing.T) {
	p := newPlace(t)
	kept := p.anchorsOf(t, 2)
	for name, bad := range map[string][]byte{"empty": nil, "text": []byte("hello\n"),
		"torn": kept[:40], "json": []byte(`{"note":"x"}`), "no signature": kept[:bytes.Index(kept,
			[]byte("\n\n"))]} {
		if a, err := ParseAnchors("x", bad); !errors.Is(err, ErrAnchor) {
			t.Errorf("%s: %v, %v", name, a, err)
		}
	}
	at := bytes.Index(kept, []byte(signature)) + 40
	forged := bytes.Clone(kept[:bytes.Index(kept, []byte("<109>"))])
	forged[at] ^= 1
	anchors, err := ParseAnchors("x", forged)
	if err == nil {
		_, err = verify(p.log, p.pub(t), time.Microsecond, anchors...)
	}
	if err == nil {
		t.Error("a forged anchor passes")
	}
}

// TestSegmentTime: a segment ends when its first record is old enough, also for a writer that came
// later.
func TestSegmentTime(t *testing.T) {
	p := newPlace(t)
	now := time.Unix(1000000, 0)
	clock := func(o *Options) { o.Now, o.SegmentTime = func() time.Time { return now }, time.Hour }
	for range 4 {
		l := p.open(t, clock)
		for range 2 {
			if _, err := l.Append(t.Context(), denied("x")); err != nil {
				t.Fatal(err)
			}
			now = now.Add(25 * time.Minute)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	names, err := filepath.Glob(filepath.Join(p.log, "*"+segmentExt))
	if err != nil || len(names) < 3 || len(names) > 4 {
		t.Errorf("200 minutes are in %d segments, %v", len(names), err)
	}
	p.mustVerify(t, 0)
}
