package audit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestFilter(t *testing.T) {
	p := newPlace(t)
	l := p.open(t)
	add := func(run string, uid uint32, e Event) {
		t.Helper()
		if _, err := l.Append(context.Background(), Entry{Run: run, Actor: Actor{UID: uid},
			Policy: "sha256:ab" + run, Event: e}); err != nil {
			t.Fatal(err)
		}
	}
	// 1
	add("a", 1, RunStarted{Tool: "core-utils/grep", Workspace: "/srv/x"})
	// 2
	add("a", 1, Denied{Layer: "wasi", What: "read /etc/shadow", Rule: "r"})
	// 3
	add("b", 2, RunStarted{Tool: "sed"})
	// 4
	add("b", 2, Fetch{Decision: "allowed", Host: "x.example.com", Path: "/p"})
	// 5
	add("b", 2, Fetch{Decision: "denied", Host: "example.org"})
	// 6
	add("b", 2,
		WorkspaceChanged{Files: []string{"added sha256:00 src/a b.go", "deleted - docs/x.md"}})
	// 7
	add("c", 1, RunStarted{Tool: "sh"})
	// 8
	add("c", 1, Exec{Program: "core-utils/sed", Count: 2})
	// 9
	add("c", 1, RunFinished{})
	// 10
	mustClose(t, l)
	one := uint32(1)
	glob := func(want string) func(string) bool {
		return func(path string) bool {
			return path == want
		}
	}
	for want, f := range map[string]Filter{
		"1 2 3 4 5 6 7 8 9 10": {},
		"1 2":                  {Run: "a"},
		"1 2 7 8 9":            {UID: &one},
		"1 2 ":                 {Tool: "grep"},
		"3 4 5 6 8 9":          {Tool: "sed"},
		"2 5":                  {Decision: DecisionDenied},
		"4":                    {Decision: DecisionAllowed},
		"4 ":                   {Host: "*.example.com"},
		"5":                    {Host: "example.org"},
		"2":                    {Layer: "wasi"},
		"2 ":                   {Path: glob("/etc/shadow")},
		"6":                    {Path: glob("src/a b.go")},
		"6 ":                   {Path: glob("docs/x.md")},
		"7 8 9":                {Policy: "sha256:abc"},
		"":                     {Until: time.Unix(1, 0)},
		" ":                    {Since: time.Now().Add(time.Hour)},
	} {
		var got []string
		for r, err := range Scan(p.log, f) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprint(r.Seq))
		}
		if strings.Join(got, " ") != strings.TrimSpace(want) {
			t.Errorf("%+v: %s, want %s", f, got, want)
		}
	}
}

// TestTail: a reader that follows sees every record once and in order, also over segments, and one
// that was cut off goes on where it was.
func TestTail(t *testing.T) {
	p := newPlace(t)
	l := p.open(t, func(o *Options) { o.SegmentBytes = 1500 })
	for range 5 {
		mustAppend(t, l, denied("before"))
	}
	const more = 60
	var begun sync.WaitGroup
	begun.Add(2)
	read := func(records func(yield func(Record, error) bool), n int) (seqs []uint64) {
		for r, err := range records {
			if len(seqs) == 0 && (r.Seq == 4 || r.Seq == 5) && n > 3 {
				begun.Done()
			}
			if err != nil {
				t.Error(err)
			}
			if seqs = append(seqs, r.Seq); len(seqs) == n {
				break
			}
		}
		return seqs
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	tail, follow := make(chan []uint64, 1), make(chan []uint64, 1)
	go func() { tail <- read(Tail(ctx, p.log, Filter{}, 2), 2+more) }()
	go func() {
		first := read(Follow(ctx, p.log, Filter{}, 3), 20)
		follow <- append(first,
			read(Follow(ctx, p.log, Filter{}, first[len(first)-1]), 2+more-20)...)
	}()
	begun.Wait()
	for i := range more {
		if i%20 == 0 {
			// So that both see the log grow.
			time.Sleep(2 * followEvery)
		}
		mustAppend(t, l, denied("after"))
	}
	for name, c := range map[string]chan []uint64{"tail": tail, "follow": follow} {
		got := <-c
		if len(got) != 2+more || got[0] != 4 && name == "follow" || !slices.IsSorted(got) ||
			len(slices.Compact(slices.Clone(got))) != len(got) ||
			got[len(got)-1]-got[0] != uint64(len(got)-1) {
			t.Errorf("%s: %v", name, got)
		}
	}
	mustClose(t, l)
	ended, stop := context.WithCancel(context.Background())
	stop()
	if got := read(Tail(ended, p.log, Filter{}, 3), 3); len(got) != 3 {
		t.Errorf("without following: %v", got)
	}
}

// TestKeepLast keeps at least the last items, and all of them for the largest number.
func TestKeepLast(t *testing.T) {
	for n, want := range map[int][]int{0: {}, 1: {3}, 2: {1, 2, 3}, math.MaxInt: {1, 2, 3}} {
		if got := KeepLast([]int{1, 2, 3}, n); !slices.Equal(got, want) {
			t.Errorf("%d: %v, want %v", n, got, want)
		}
	}
}

// TestTailOfNothing: a log that is not there, or may not be read, is an error, and no log without
// records.
func TestTailOfNothing(t *testing.T) {
	ended, stop := context.WithCancel(t.Context())
	stop()
	for _, n := range []int{0, 1, 10} {
		var got []error
		for _, err := range Tail(ended, filepath.Join(t.TempDir(), "none"), Filter{}, n) {
			got = append(got, err)
		}
		if len(got) != 1 || !errors.Is(got[0], fs.ErrNotExist) {
			t.Errorf("the last %d: %v", n, got)
		}
	}
	// What was read before the place that cannot be is shown, too.
	p := newPlace(t)
	p.fill(t, 9)
	// A hole, which is no line.
	if err := os.Truncate(p.segment(1), 64<<20); err != nil {
		t.Fatal(err)
	}
	var seqs []uint64
	failed := 0
	for r, err := range Tail(ended, p.log, Filter{}, 3) {
		if err != nil {
			failed++
			continue
		}
		seqs = append(seqs, r.Seq)
	}
	if failed != 1 || !slices.Equal(seqs, []uint64{8, 9}) {
		t.Errorf("%v and %d errors", seqs, failed)
	}
}
