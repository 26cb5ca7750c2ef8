package audit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// place is a directory for a log and one for its key.
type place struct{ log, keys string }

func newPlace(t testing.TB) place {
	t.Helper()
	dir := t.TempDir()
	return place{filepath.Join(dir, "audit"), filepath.Join(dir, "keys")}
}

func (p place) options() Options { return Options{Dir: p.log, KeyDir: p.keys} }

func (p place) open(t testing.TB, change ...func(*Options)) *Log {
	t.Helper()
	opt := p.options()
	for _, c := range change {
		c(&opt)
	}
	l, err := Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (p place) pub(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(p.keys, pubFile))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (p place) verify(t testing.TB) (Report, error) {
	t.Helper()
	return verify(p.log, p.pub(t), time.Microsecond)
}

func (p place) mustVerify(t testing.TB, records uint64) Report {
	t.Helper()
	rep, err := p.verify(t)
	if err != nil {
		t.Fatal(err)
	}
	if records > 0 && rep.Records != records {
		t.Fatalf("verified %d records, want %d", rep.Records, records)
	}
	return rep
}

// wantFault checks that the log is refused, and for what.
func (p place) wantFault(t testing.TB, seq uint64, kind Kind) {
	t.Helper()
	_, err := p.verify(t)
	var f *Fault
	if !errors.As(err, &f) || f.Seq != seq || f.Kind != kind {
		t.Fatalf("verify said %v, want record %d %s", err, seq, kind)
	}
}

func denied(what string) Entry {
	return Entry{Run: "r1", Actor: Actor{1000, 42, "/usr/bin/jail"}, Policy: "sha256:00",
		Event: Denied{Layer: "wasi", What: what, Rule: "no grant"}}
}

func mustAppend(t testing.TB, l *Log, e Entry) uint64 {
	t.Helper()
	seq, err := l.Append(context.Background(), e)
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

func mustClose(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// fill makes a log that ends in order with n records, the last a checkpoint.
func (p place) fill(t testing.TB, n int, change ...func(*Options)) {
	t.Helper()
	l := p.open(t, change...)
	for i := 1; uint64(i) < uint64(n); i++ {
		i = int(mustAppend(t, l, denied(fmt.Sprintf("open /etc/%d", i))))
	}
	mustClose(t, l)
	p.mustVerify(t, uint64(n))
}

func (p place) segment(first uint64) string { return filepath.Join(p.log, segmentName(first)) }

func TestRoundTrip(t *testing.T) {
	p := newPlace(t)
	l := p.open(t)
	if seq := mustAppend(t, l, denied("open /etc/shadow")); seq != 1 {
		t.Fatalf("first record is %d", seq)
	}
	e := Entry{Run: "r1", Session: "s", Cause: 1,
		Event: RunFinished{ExitCode: 3, Changes: Changes{1, 2, 3}}}
	mustAppend(t, l, e)
	p.mustVerify(t, 2) // while it is open
	mustClose(t, l)
	if rep := p.mustVerify(t, 3); rep.Checkpoints != 1 ||
		rep.String() != "verified 3 records, 1 checkpoints" {
		t.Fatalf("report %v", rep)
	}
	if _, err := l.Append(context.Background(), e); !errors.Is(err, ErrClosed) {
		t.Fatalf("append after close: %v", err)
	}
	if err := l.Close(); !errors.Is(err, ErrClosed) {
		t.Fatalf("second close: %v", err)
	}
	l = p.open(t)
	if seq := mustAppend(t, l, denied("x")); seq != 4 {
		t.Fatalf("record after reopening is %d", seq)
	}
	mustClose(t, l)
	p.mustVerify(t, 5)
}

func TestEveryTypeIsOneLine(t *testing.T) {
	changes := Changes{1, 2, 3}
	events := []Event{
		RunStarted{Tool: "grep", Argv: []string{"grep", "-rn", "x"}, Env: []string{"LANG"},
			Warnings: []string{"w"}},
		Exec{Program: "/bin/x", PID: 1}, Denied{Layer: "fetch", What: "x", Count: 3,
			First: time.Unix(1, 0), Last: time.Unix(2, 0)},
		Limit{Name: "memory", Limit: 1, Peak: 2, Action: "killed"}, RunFinished{Truncated: true,
			Signal: "KILL"},
		WorkspaceChanged{"/w", "sha256:1", changes, []string{"modified sha256:2 a"}},
		WorkspaceCommitted{Workspace: "/w", Held: []string{".git/hooks"}, Protected: true},
		WorkspaceDiscarded{Workspace: "/w", Changes: changes, GaveUp: "d", Paths: []string{"a"}},
		WorkspaceReverted{Workspace: "/w", Changes: changes, Commit: "c", Begun: true},
		AgentStep{ID: "agent:ada:triage", Step: AgentWoken, Reason: "alarm"},
		PolicyLoaded{Kind: "ceiling", Error: "line 3"}, ToolInstalled{Bundle: "core-utils"},
		ToolRemoved{Bundle: "words"}, ToolKeys{Publisher: "acme"},
		DaemonStarted{Version: "1", Private: true, Missing: []string{"landlock"}},
		DaemonStopped{"signal"},
		Gap{Reason: "queue overflow", Count: -1},
	}
	p := newPlace(t)
	l := p.open(t)
	for _, e := range events {
		mustAppend(t, l, Entry{Run: "r", Event: e})
	}
	mustClose(t, l)
	p.mustVerify(t, uint64(len(events)+1))
	i := 0
	for r, err := range Scan(p.log, Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if i < len(events) && r.Type != events[i].Type() {
			t.Errorf("record %d is %s, want %s", r.Seq, r.Type, events[i].Type())
		}
		var b strings.Builder
		if err := Render(&b, r); err != nil || strings.Count(b.String(), "\n") != 1 {
			t.Errorf("%s renders as %q, %v", r.Type, b.String(), err)
		}
		i++
	}
}

func TestScanFilters(t *testing.T) {
	p := newPlace(t)
	now := time.Unix(1000, 0)
	l := p.open(t,
		func(o *Options) { o.Now = func() time.Time { now = now.Add(time.Second); return now } })
	for i := range 6 {
		e := denied("x")
		e.Run, e.Session, e.Actor.UID = fmt.Sprint("r", i%2), fmt.Sprint("s", i%3), uint32(i)
		mustAppend(t, l, e)
	}
	mustAppend(t, l, Entry{Event: DaemonStopped{"end"}})
	mustClose(t, l)
	uid := uint32(4)
	tests := []struct {
		name string
		f    Filter
		want int
	}{
		{"all", Filter{}, 8},
		{"run", Filter{Run: "r1"}, 3},
		{"session", Filter{Session: "s0"}, 2},
		{"types", Filter{Types: []Type{TypeDaemonStopped, TypeCheckpoint}}, 2},
		{"uid", Filter{UID: &uid}, 1},
		{"both", Filter{Run: "r0", Session: "s1"}, 1},
		{"since the future", Filter{Since: time.Unix(1e6, 0)}, 0},
		{"since the start", Filter{Since: time.Unix(1000, 0)}, 8},
	}
	for _, tt := range tests {
		n := 0
		for _, err := range Scan(p.log, tt.f) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n != tt.want {
			t.Errorf("%s: %d records, want %d", tt.name, n, tt.want)
		}
	}
}
