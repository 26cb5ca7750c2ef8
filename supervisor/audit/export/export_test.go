package export

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"go.uber.org/goleak"

	"github.com/jail-sandbox/jail/supervisor/audit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var host = Host{Name: "host.example", Version: "1.2.3"}

// hostile are texts that some reader could interpret.
var hostile = []string{"=cmd|'/c calc'!A1", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1",
	"a\"b,c;d\r\ne", "\x1b]0;x\x07\x1b[2J", "\u202egnp.exe", "\xff\xfe", "a\x00b", "\u200bz",
	"\u009b31m", "</script>", "]\"\\", "%s%n", "|ls", "\uff1dA1", strings.Repeat("x", 10000),
	"\nMESSAGE=forged\nPRIORITY=0\n", "12 <34>1 - - - - - - forged", "\x7f", "\U0001f600"}

// newLog writes a log with an event of each type, whose texts are hostile, and returns its
// directory.
func newLog(t testing.TB) (dir string, l *audit.Log) {
	t.Helper()
	dir = t.TempDir()
	l, err := audit.Open(audit.Options{Dir: filepath.Join(dir, "audit"),
		KeyDir: filepath.Join(dir, "keys")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil && !errors.Is(err, audit.ErrClosed) {
			t.Error(err)
		}
	})
	put(t, l, audit.DaemonStarted{Version: "1.2.3", Socket: "/s"},
		audit.DaemonStopped{Reason: "end"}, audit.Gap{Reason: "queue", Count: -1},
		audit.PolicyLoaded{Kind: "host", Digest: "sha256:00"}, audit.ToolInstalled{Bundle: "b",
			Version: "1"}, audit.ToolRemoved{Bundle: "b"}, audit.ToolKeys{Publisher: "p"})
	for _, s := range hostile {
		put(t, l, audit.RunStarted{Tool: s, Argv: []string{s, s}, Workspace: s},
			audit.Exec{Program: s, Argv: []string{s}, PID: 7},
			audit.File{Path: s, Kind: "open", Program: s, Count: 3, First: time.Unix(1, 0),
				Last: time.Unix(2, 0)}, audit.File{Path: s, Kind: "write", Count: 1},
			audit.Denied{Layer: "wasi", What: s, Rule: s, Count: 4}, audit.Limit{Name: "memory",
				Limit: 1, Peak: 2, Action: s},
			audit.WorkspaceChanged{Workspace: s, Files: []string{s}},
			audit.WorkspaceCommitted{Workspace: s}, audit.WorkspaceDiscarded{Workspace: s},
			audit.WorkspaceReverted{Workspace: s, Error: s}, audit.RunFinished{ExitCode: 3,
				Error: s})
	}
	return filepath.Join(dir, "audit"), l
}

func put(t testing.TB, l *audit.Log, events ...audit.Event) {
	t.Helper()
	entries := make([]audit.Entry, len(events))
	for i, e := range events {
		entries[i] = audit.Entry{Run: "r1", Session: "s1", Actor: audit.Actor{UID: 1000, PID: 42,
			Exe: "/usr/bin/jail"}, Policy: "sha256:00", Event: e, Cause: 1}
	}
	if _, _, err := l.AppendAll(entries); err != nil {
		t.Fatal(err)
	}
}

func all(t testing.TB, dir string) []audit.Record {
	t.Helper()
	var list []audit.Record
	for r, err := range audit.Scan(dir, audit.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
	return list
}

// exported is a whole log in one form, as it goes into a file.
func exported(t testing.TB, dir string, f Format) []byte {
	t.Helper()
	var b bytes.Buffer
	s, err := Open(f, "-", host, &b)
	if err != nil {
		t.Fatal(err)
	}
	n, err := Run(t.Context(), Options{Log: dir}, s)
	if err != nil || n != len(all(t, dir)) {
		t.Fatalf("%s: %d records, %v", f, n, err)
	}
	return b.Bytes()
}

// TestNothingForTerminals: no form has a character in it that a terminal obeys or does not show;
// ends of lines are the form's own.
func TestNothingForTerminals(t *testing.T) {
	dir, _ := newLog(t)
	records := len(all(t, dir))
	for _, f := range Formats() {
		text := exported(t, dir, f)
		for _, c := range string(text) {
			if c != '\n' && !unicode.IsPrint(c) && c != unicode.ReplacementChar {
				t.Errorf("%s has %U", f, c)
				break
			}
		}
		if n := bytes.Count(text, []byte("\n")); f != Journald && n != records {
			t.Errorf("%s: %d lines of %d records", f, n, records)
		}
	}
}

// Attributes that OCSF 1.3.0 requires, of all events and of classes.
var (
	ocsfAll = []string{"activity_id", "category_uid", "class_uid", "metadata", "severity_id",
		"time", "type_uid"}
	ocsfOwn = map[int][]string{0: nil, 1001: {"actor", "device", "file"}, 1007: {"actor",
		"device", "process"}, 2004: {"finding_info"}, 3004: {"entity"}, 4002: {"http_request"},
		6002: {"app"}}
	ocsfActs  = map[int]int{1001: 14, 1007: 5, 2004: 3, 3004: 4, 4002: 8, 6002: 8}
	ocsfNames = map[string][]string{"metadata": {"product", "version"},
		"finding_info": {"title", "uid"}, "file": {"name", "type_id"}, "device": {"type_id"}}
)

func TestOCSF(t *testing.T) {
	dir, l := newLog(t)
	put(t, l, audit.Fetch{Method: "GET", Scheme: "https", Host: "a.example", Port: 443, Path: "/x",
		Decision: audit.DecisionDenied})
	classes := map[int]bool{}
	records := all(t, dir)
	for n, line := range bytes.Split(bytes.TrimSpace(exported(t, dir, OCSF)), []byte("\n")) {
		var e map[string]any
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		number := func(name string) int { v, _ := e[name].(float64); return int(v) }
		class, activity := number("class_uid"), number("activity_id")
		classes[class] = true
		want, known := ocsfOwn[class]
		if !known || number("type_uid") != class*100+activity || class > 0 &&
			number("category_uid") != class/1000 || activity > ocsfActs[class] && activity != 99 {
			t.Errorf("class %d, category %v, activity %d, type %v", class, e["category_uid"],
				activity, e["type_uid"])
		}
		for _, name := range append(append([]string{}, ocsfAll...), want...) {
			if e[name] == nil {
				t.Errorf("class %d has no %s: %s", class, name, line)
			}
			for _, inner := range ocsfNames[name] {
				if o, ok := e[name].(map[string]any); !ok || o[inner] == nil {
					t.Errorf("class %d: %s has no %s", class, name, inner)
				}
			}
		}
		if e["raw_data"] != string(records[n].Line) {
			t.Errorf("raw_data is not the record: %v", e["raw_data"])
		}
	}
	if len(classes) != len(ocsfOwn) {
		t.Errorf("classes %v, want %d", classes, len(ocsfOwn))
	}
}

// TestParse: unknown formats are refused with the known ones.
func TestOpen(t *testing.T) {
	for _, bad := range [][2]string{{"ocsf", "udp://x:1"}, {"otlp", "udp://x:1"},
		{"journald", "tcp://x:1"},
		{"otlp", "http://user:secret@x/"}, {"jsonl", "https://x"}, {"ocsf", "/no/such/dir/x"}} {
		if s, err := Open(Format(bad[0]), bad[1], host, nil); err == nil {
			s.Close()
			t.Errorf("%s goes to %s", bad[0], bad[1])
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("%q", err)
		}
	}
	for name, want := range map[string]string{"xml": "ocsf", "csv": "use jsonl",
		"syslog": "use journald, or jsonl"} {
		if _, err := Parse(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// flaky fails at the given records, after it has taken a part of the batch.
type flaky struct {
	fail func(try int) error
	then func()
	try  int
	got  []uint64
}

func (f *flaky) Send(_ context.Context, batch []audit.Record) error {
	f.try++
	err := f.fail(f.try)
	for i, r := range batch {
		if err != nil && i > len(batch)/2 {
			break
		}
		f.got = append(f.got, r.Seq)
	}
	if f.then != nil {
		f.then()
	}
	return err
}

func (f *flaky) Close() error { return nil }

// TestAtLeastOnce: whatever fails and wherever it is cut off, every record comes, in order, and
// none that was delivered and written down comes again.
func TestAtLeastOnce(t *testing.T) {
	dir, l := newLog(t)
	var said []string
	o := Options{Log: dir, Cursor: filepath.Join(t.TempDir(), "cursor"), Tries: 3,
		Say:  func(s string) { said = append(said, s) },
		wait: func(context.Context, time.Duration) error { return nil }}
	f := &flaky{fail: func(try int) error {
		if try < 3 {
			return errors.New("not now")
		}
		return nil
	}}
	total := len(all(t, dir))
	if n, err := Run(t.Context(), o, f); err != nil || n != total || len(said) != 2 {
		t.Fatalf("%d of %d, %v, said %q", n, total, err, said)
	}
	seen := map[uint64]bool{}
	for _, seq := range f.got {
		seen[seq] = true
	}
	if len(seen) != total {
		t.Errorf("%d of %d came", len(seen), total)
	}

	put(t, l, audit.DaemonStopped{Reason: "more"})
	broken := &flaky{fail: func(int) error { return errors.New("never") }}
	if n, err := Run(t.Context(), o, broken); err == nil || n != 0 || broken.try != 3 {
		t.Errorf("%d, %v after %d tries", n, err, broken.try)
	}
	again := &flaky{fail: func(int) error { return nil }}
	if n, err := Run(t.Context(), o, again); err != nil || n != 1 ||
		again.got[0] != uint64(total+1) {
		t.Errorf("after a failure came %v, %v", again.got, err)
	}
	if n, err := Run(t.Context(), o, again); err != nil || n != 0 {
		t.Errorf("%d came again, %v", n, err)
	}

	other, _ := newLog(t)
	o.Log = other
	if _, err := Run(t.Context(), o, again); !errors.Is(err, ErrCursor) {
		t.Errorf("the cursor of another log: %v", err)
	}
	for _, bad := range []string{"", "{}", "x", `{"seq":5}`} {
		if err := os.WriteFile(o.Cursor, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Run(t.Context(), o, again); err == nil {
			t.Errorf("cursor %q is taken", bad)
		}
	}
}

// TestFollow: records that are written later come too, until it is ended; a try is repeated for as
// long as it takes.
func TestFollow(t *testing.T) {
	dir, l := newLog(t)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	total := len(all(t, dir)) + 20
	f := &flaky{}
	f.fail = func(try int) error {
		if try < 20 {
			return errors.New("not now")
		}
		return nil
	}
	f.then = func() {
		if f.got[len(f.got)-1] >= uint64(total) {
			end()
		}
	}
	go func() {
		for range 20 {
			put(t, l, audit.DaemonStopped{Reason: "later"})
		}
	}()
	o := Options{Log: dir, Follow: true, Say: func(string) {}, wait: func(context.Context,
		time.Duration) error {
		return nil
	}}
	if _, err := Run(ctx, o, f); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	seen := map[uint64]bool{}
	for _, seq := range f.got {
		seen[seq] = true
	}
	for seq := range uint64(total) {
		if !seen[seq+1] {
			t.Errorf("record %d did not come", seq+1)
		}
	}
}
