package audit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Last finds the newest record of each run, over segments and their edges, and none from before the
// time that it is asked for.
func TestLast(t *testing.T) {
	dir, now := filepath.Join(t.TempDir(), "log"), time.Unix(1000, 0)
	l, err := Open(Options{Dir: dir, KeyDir: filepath.Join(t.TempDir(), "keys"), SegmentBytes: 2000,
		Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 120 {
		now = now.Add(time.Second)
		for _, e := range []Event{RunStarted{Tool: "x"}, Exec{Program: "x"},
			RunFinished{}}[:1+i%3] {
			if _, err := l.Append(t.Context(),
				Entry{Run: "name", RunID: fmt.Sprintf("r%d", i/2), Event: e}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if segments, _ := filepath.Glob(filepath.Join(dir, "*"+segmentExt)); len(segments) < 5 {
		t.Fatalf("only %d segments", len(segments))
	}
	types := []Type{TypeRunStarted, TypeRunFinished}
	for _, since := range []time.Time{{}, time.Unix(1001, 0), time.Unix(1057, 0),
		time.Unix(1120, 0), time.Unix(2000, 0)} {
		want := map[string]uint64{}
		for r, err := range Scan(dir, Filter{Types: types, Since: since}) {
			if err != nil {
				t.Fatal(err)
			}
			want[r.ID()] = r.Seq
		}
		last, err := Last(t.Context(), dir, Filter{Types: types, Since: since})
		got := map[string]uint64{}
		for run, r := range last {
			got[run] = r.Seq
		}
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("since %s: %v, %v, want %v", since, got, err, want)
		}
	}
	// What was written before is not even read.
	first := filepath.Join(dir, segmentName(1))
	if err := os.WriteFile(first, make([]byte, maxLine+2), 0o600); err != nil {
		t.Fatal(err)
	}
	if last, err := Last(t.Context(), dir,
		Filter{Types: types, Since: time.Unix(1119, 0)}); err != nil || len(last) != 1 {
		t.Errorf("behind a damaged segment: %v, %v", last, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Last(ctx, dir, Filter{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cut off: %v", err)
	}
	if _, err := Last(t.Context(), dir+"none", Filter{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no log: %v", err)
	}
}
