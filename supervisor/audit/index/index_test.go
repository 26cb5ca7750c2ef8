package index

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/jail-sandbox/jail/supervisor/audit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hostile is what a tool might put wherever it may put anything.
const hostile = "'); DROP TABLE block; --\x00\xff\u202e%_*"

type place struct{ log, keys string }

func newPlace(t *testing.T) place {
	t.Helper()
	dir := t.TempDir()
	return place{filepath.Join(dir, "log"), filepath.Join(dir, "keys")}
}

func (p place) options() audit.Options {
	return audit.Options{Dir: p.log, KeyDir: p.keys, SegmentBytes: 64 << 10}
}

// grow puts n more records of many kinds on record, always the same for the same seed.
func (p place) grow(t *testing.T, seed uint64, n int) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 1))
	opt := p.options()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Add(time.Duration(seed) * time.Hour)
	// A clock that goes back now and then.
	opt.Now = func() time.Time {
		at = at.Add(time.Duration(rnd.IntN(4000)-300) * time.Millisecond)
		return at
	}
	l, err := audit.Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("a", 300)
	hosts := []string{"example.com", "a.example.com", "b.a.example.com", "notexample.com",
		"other.example", hostile, long + ".example.com", "é.example"}
	tools := []string{"grep", "core-utils/grep", "text/sed", "/usr/bin/sed", hostile,
		long + "/" + long, "a/"}
	var entries []audit.Entry
	for range n {
		run := fmt.Sprintf("r%d-%d", seed, rnd.IntN(1+n/40))
		e := audit.Entry{Run: run, Session: fmt.Sprintf("s%d", rnd.IntN(5)),
			Actor:  audit.Actor{UID: uint32(1000 + rnd.IntN(3)), PID: 1, Exe: "/usr/bin/jail"},
			Policy: fmt.Sprintf("sha256:%02x", rnd.IntN(40))}
		switch rnd.IntN(12) {
		case 0:
			e.Event = audit.RunStarted{Tool: tools[rnd.IntN(len(tools))], Argv: []string{hostile}}
		case 1:
			e.Event = audit.Exec{Program: tools[rnd.IntN(len(tools))], Count: 1}
		case 2:
			e.Event = audit.Fetch{Decision: []string{"allowed", "denied"}[rnd.IntN(2)],
				Host: hosts[rnd.IntN(len(hosts))], Port: 443, Path: "/x"}
		case 3:
			e.Event = audit.RunFinished{}
		case 4:
			e.Event, e.Run = audit.PolicyLoaded{Kind: "host"}, ""
		case 5:
			e.Event = audit.Denied{Layer: []string{"wasi", "seccomp"}[rnd.IntN(2)],
				What: "read /etc/shadow", Rule: hostile}
		default:
			e.Event = audit.File{Path: fmt.Sprintf("/workspace/%d", rnd.IntN(100)), Kind: "open",
				Count: 1}
		}
		entries = append(entries, e)
	}
	if _, _, err := l.AppendAll(entries); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func numbers(t *testing.T, records iter.Seq2[audit.Record, error]) []uint64 {
	t.Helper()
	var list []uint64
	for r, err := range records {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, r.Seq)
	}
	return list
}

// filters ask for everything that can be asked for, alone and together.
func filters() []audit.Filter {
	uid := uint32(1001)
	at := time.Date(2026, 1, 2, 3, 30, 0, 0, time.UTC)
	return []audit.Filter{
		{}, {Run: "r1-3"}, {Run: "none"}, {Session: "s2"}, {Types: []audit.Type{audit.TypeDenied}},
		{Types: []audit.Type{audit.TypeFetch, audit.TypeCheckpoint, audit.TypeGap}},
		{Since: at}, {Until: at}, {Since: at, Until: at.Add(90 * time.Second)}, {UID: &uid},
		{Policy: "sha256:0"}, {Policy: "sha256:1f"}, {Policy: strings.Repeat("x", 400)},
		{Tool: "grep"}, {Tool: "core-utils/grep"}, {Tool: "bin/sed"}, {Tool: "sed"},
		{Tool: hostile}, {Tool: strings.Repeat("a", 300)}, {Tool: "a/"}, {Tool: "none"},
		{Decision: audit.DecisionDenied}, {Decision: audit.DecisionAllowed}, {Layer: "seccomp"},
		{Host: "example.com"}, {Host: "*.example.com"}, {Host: hostile}, {Host: "é.example"},
		{Host: strings.Repeat("a", 300) + ".example.com"}, {Host: "*." + strings.Repeat("a", 300) +
			".example.com"}, {Host: "%"}, {Layer: "' OR 1=1 --"},
		{Tool: "sed", Types: []audit.Type{audit.TypeDenied}, Since: at},
		{Tool: "grep", Decision: audit.DecisionDenied, UID: &uid},
		{Run: "r1-3", Path: func(p string) bool { return strings.HasSuffix(p, "7") }},
		{Session: "s1", Layer: "wasi", Policy: "sha256:0"},
	}
}

// agree holds searches with the index against those that read everything.
func (p place) agree(t *testing.T) {
	t.Helper()
	s := Search{Dir: p.log, all: true, Say: func(text string) { t.Log(text) }}
	for _, f := range filters() {
		want := numbers(t, audit.Scan(p.log, f))
		if got := numbers(t, s.Scan(t.Context(), f)); !slices.Equal(got, want) {
			t.Errorf("%+v: %d records with the index, %d without", f, len(got), len(want))
		}
		for _, before := range []uint64{200} {
			want, err := audit.Newest(t.Context(), p.log, f, before, 7)
			if err != nil {
				t.Fatal(err)
			}
			got, err := s.Newest(t.Context(), f, before, 7)
			if err != nil || got.More != want.More || !slices.EqualFunc(got.Records, want.Records,
				func(a, b audit.Record) bool { return a.Seq == b.Seq }) {
				t.Errorf("%+v before %d: %d and %v with the index, %d and %v without, %v", f,
					before, len(got.Records), got.More, len(want.Records), want.More, err)
			}
		}
	}
}

// With the index every search finds what it finds without, as the log grows, is packed, pruned and
// goes on.
func TestAgree(t *testing.T) {
	p := newPlace(t)
	p.grow(t, 1, 700)
	p.agree(t)
	for i := range 2 {
		p.grow(t, uint64(2+i), 1)
		p.agree(t)
	}
	p.grow(t, 20, 700)
	l, err := audit.Open(p.options())
	if err != nil {
		t.Fatal(err)
	}
	if done, err := l.Compress(nil); err != nil || done.Segments == 0 {
		t.Fatal(done, err)
	}
	p.agree(t)
	if done, err := l.Prune(audit.Keep{Bytes: 1}); err != nil || done.Segments == 0 {
		t.Fatal(done, err)
	}
	l.Close()
	p.agree(t)
	p.grow(t, 21, 300)
	p.agree(t)
}

// What is there of an index that is not one of this log is made anew, and said.
func TestBroken(t *testing.T) {
	p := newPlace(t)
	p.grow(t, 1, 800)
	p.agree(t)
	path := filepath.Join(p.log, File)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	other := newPlace(t)
	other.grow(t, 2, 800)
	other.agree(t)
	foreign, err := os.ReadFile(filepath.Join(other.log, File))
	if err != nil {
		t.Fatal(err)
	}
	zeroed := bytes.Clone(good)
	clear(zeroed[4096 : len(zeroed)/2])
	for what, text := range map[string][]byte{"of another log": foreign,
		"no database": []byte(strings.Repeat("no database ", 1000)), "zeros": make([]byte, 8192),
		"in parts zeros": zeroed, "the half": good[:len(good)/2]} {
		if err := os.WriteFile(path, text, 0o640); err != nil {
			t.Fatal(err)
		}
		var said []string
		s := Search{Dir: p.log, Say: func(text string) { said = append(said, text) }}
		f := audit.Filter{Session: "s2"}
		got, want := numbers(t, s.Scan(t.Context(), f)), numbers(t, audit.Scan(p.log, f))
		if !slices.Equal(got, want) || len(said) != 1 || !strings.Contains(said[0], "made anew") {
			t.Errorf("%s: %d records, want %d; said %q", what, len(got), len(want), said)
		}
	}
	p.agree(t)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	said := 0
	s := Search{Dir: p.log, all: true, Say: func(string) { said++ }}
	if got := numbers(t, s.Scan(t.Context(), audit.Filter{Run: "r1-3"})); len(got) == 0 ||
		said != 1 {
		t.Errorf("%d records; said %d", len(got), said)
	}
	if got := numbers(t, s.Scan(t.Context(), audit.Filter{Run: "r1-3"})); len(got) == 0 ||
		said != 1 {
		t.Errorf("again %d records; said %d", len(got), said)
	}
}

// Whatever the bytes of an index are, a search ends, and gives nothing that its conditions do not
// want.
func TestForged(t *testing.T) {
	p := newPlace(t)
	p.grow(t, 1, 800)
	p.agree(t)
	path := filepath.Join(p.log, File)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f := audit.Filter{Session: "s2"}
	want := numbers(t, audit.Scan(p.log, f))
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		bad := bytes.Clone(good)
		for range 1 + rnd.IntN(20) {
			bad[rnd.IntN(len(bad))] = byte(rnd.Uint32())
		}
		if err := os.WriteFile(path, bad, 0o640); err != nil {
			t.Fatal(err)
		}
		for r, err := range (Search{Dir: p.log}).Scan(t.Context(), f) {
			if err != nil {
				// It may point to nowhere.
				break
			}
			if !slices.Contains(want, r.Seq) {
				t.Fatalf("record %d is not wanted", r.Seq)
			}
		}
	}
	if err := os.WriteFile(path, good, 0o640); err != nil {
		t.Fatal(err)
	}
	x, err := open(t.Context(), p.log, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, forge := range []string{`DELETE FROM posting`,
		`CREATE TRIGGER t AFTER UPDATE ON state BEGIN DELETE FROM block; END`} {
		if _, err := x.con.ExecContext(t.Context(), forge); err != nil {
			t.Fatal(err)
		}
	}
	x.Close()
	said := ""
	if got := numbers(t, Search{Dir: p.log, Say: func(text string) { said = text }}.Scan(
		t.Context(), f)); !slices.Equal(got, want) || !strings.Contains(said, "made anew") {
		t.Errorf("with a trigger: %d records, %q", len(got), said)
	}
}

// An index is not read, and none is made, where others could have put it.
func TestUntrusted(t *testing.T) {
	p := newPlace(t)
	p.grow(t, 1, 300)
	p.agree(t)
	path := filepath.Join(p.log, File)
	f := audit.Filter{Session: "s2"}
	want := numbers(t, audit.Scan(p.log, f))
	try := func(what string) {
		t.Helper()
		said := ""
		if got := numbers(t, Search{Dir: p.log, Say: func(text string) { said = text }}.Scan(
			t.Context(), f)); !slices.Equal(got, want) || !strings.Contains(said,
			errUntrusted.Error()) {
			t.Errorf("%s: %d records, %q", what, len(got), said)
		}
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	try("a file that anyone may write")
	elsewhere := filepath.Join(t.TempDir(), "x")
	if err := os.Rename(path, elsewhere); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(elsewhere, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, path); err != nil {
		t.Fatal(err)
	}
	try("a link")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(p.log, 0o777); err != nil {
		t.Fatal(err)
	}
	numbers(t, Search{Dir: p.log, all: true}.Scan(t.Context(), f))
	if _, err := os.Lstat(path); err == nil {
		t.Error("an index was made where anyone may write")
	}
	if _, err := Update(context.Background(), p.log, false); err == nil {
		t.Error("an index was made where anyone may write, as asked")
	}
}

// Those of a short log are not begun by the way; several at once do not get in each other's way.
func TestAtOnce(t *testing.T) {
	p := newPlace(t)
	p.grow(t, 1, 1000)
	f := audit.Filter{Session: "s2"}
	want := numbers(t, Search{Dir: p.log}.Scan(t.Context(), f))
	if _, err := os.Lstat(filepath.Join(p.log, File)); err == nil {
		t.Error("an index of a short log was begun")
	}
	done := make(chan []uint64)
	for range 6 {
		go func() {
			var list []uint64
			for r := range (Search{Dir: p.log, all: true,
				Say: func(text string) { t.Log(text) }}).Scan(context.Background(), f) {
				list = append(list, r.Seq)
			}
			done <- list
		}()
	}
	for range 6 {
		if got := <-done; !slices.Equal(got, want) {
			t.Errorf("%d records, want %d", len(got), len(want))
		}
	}
}
