package audit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Newest holds, page by page, what Scan finds, the other way round, over segments and their edges.
func TestNewest(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	l, err := Open(Options{Dir: dir, KeyDir: filepath.Join(t.TempDir(), "keys"),
		SegmentBytes: 2000})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		tool := "sed"
		if i%3 == 0 {
			tool = "grep"
		}
		if _, err := l.Append(t.Context(), Entry{Run: fmt.Sprintf("r%d", i/2),
			Event: RunStarted{Tool: tool, Cwd: fmt.Sprint(i)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if segments, _ := filepath.Glob(filepath.Join(dir, "*"+segmentExt)); len(segments) < 5 {
		t.Fatalf("only %d segments", len(segments))
	}
	for name, f := range map[string]Filter{"all": {}, "tool": {Tool: "grep"}, "run": {Run: "r7"},
		"none": {Run: "none"}, "type": {Types: []Type{TypeRunStarted}}} {
		var want []uint64
		for r, err := range Scan(dir, f) {
			if err != nil {
				t.Fatal(err)
			}
			want = append([]uint64{r.Seq}, want...)
		}
		for _, n := range []int{1, 7, 1000} {
			var got []uint64
			for before := uint64(0); ; {
				p, err := Newest(t.Context(), dir, f, before, n)
				if err != nil || len(p.Records) > n || p.More && len(p.Records) < n {
					t.Fatalf("%s, %d: %d records, %v, %v", name, n, len(p.Records), p.More, err)
				}
				for _, r := range p.Records {
					got = append(got, r.Seq)
				}
				if !p.More {
					break
				}
				before = got[len(got)-1]
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s, %d at a time: %v, want %v", name, n, got, want)
			}
		}
	}
	if p, err := Newest(t.Context(), dir, Filter{}, 1, 5); err != nil || len(p.Records) != 0 ||
		p.More {
		t.Errorf("before the first: %v, %v", p, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Newest(ctx, dir, Filter{}, 0, 5); !errors.Is(err, context.Canceled) {
		t.Errorf("cut off: %v", err)
	}
	if _, err := Newest(t.Context(), dir+"none", Filter{}, 0, 5); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no log: %v", err)
	}
}
