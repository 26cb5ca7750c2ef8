package export

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/supervisor/audit"
)

// bound is how long anything here may take before it counts as hanging.
const bound = time.Minute

// want checks that the records came, in order, as the log has them.
func want(t *testing.T, dir string, got []string) {
	t.Helper()
	records := all(t, dir)
	if len(got) != len(records) {
		t.Fatalf("%d of %d came", len(got), len(records))
	}
	for n, r := range records {
		if got[n] != string(r.Line) {
			t.Errorf("record %d came as %.300s", n+1, got[n])
		}
	}
}

// TestJournalSocket reads the native protocol, messages that come as a file included.
func TestJournalSocket(t *testing.T) {
	dir, l := newLog(t)
	var files []string
	for n := range 200 {
		// Six times as long in the record.
		files = append(files, fmt.Sprintf("%d %s", n, strings.Repeat("\x01", 300)))
	}
	put(t, l, audit.WorkspaceChanged{Workspace: "/w", Files: files})
	path := filepath.Join(t.TempDir(), "socket")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	type entry struct {
		fields map[string]string
		file   bool
	}
	got := make(chan []entry, 1)
	go func() {
		var entries []entry
		buf, oob := make([]byte, 1<<20), make([]byte, 1024)
		for range all(t, dir) {
			_ = c.SetReadDeadline(time.Now().Add(bound))
			n, k, _, _, err := c.ReadMsgUnix(buf, oob)
			if err != nil {
				break
			}
			text, passed := buf[:n], k > 0
			if passed {
				text = readPassed(t, oob[:k])
			}
			entries = append(entries, entry{journalFields(t, text), passed})
		}
		got <- entries
	}()
	// A small buffer, so that a long record does not go through as a datagram.
	s, err := Open(Journald, "unix://"+path, host, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	j := s.(*journalSocket)
	if err := j.connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := j.conn.SetWriteBuffer(64 << 10); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), Options{Log: dir, Tries: 1, Say: func(string) {}},
		s); err != nil {
		t.Fatal(err)
	}
	var lines []string
	passed := 0
	for _, e := range <-got {
		lines = append(lines, e.fields["JAIL_RECORD"])
		if e.fields["PRIORITY"] == "0" || e.fields["MESSAGE"] == "forged" ||
			e.fields["SYSLOG_IDENTIFIER"] != "jail" {
			t.Errorf("a field is forged: %v", e.fields)
		}
		if e.file {
			passed++
		}
	}
	want(t, dir, lines)
	if passed == 0 {
		t.Error("no record was too long for a datagram: nothing is shown about files")
	}
}

// TestJournalRemote: systemd's own reader takes the export format, and gives the records back.
func TestJournalRemote(t *testing.T) {
	remote := "/lib/systemd/systemd-journal-remote"
	if _, err := os.Stat(remote); err != nil {
		t.Skip("systemd-journal-remote is not installed")
	}
	dir, _ := newLog(t)
	journal := filepath.Join(t.TempDir(), "x.journal")
	cmd := exec.CommandContext(t.Context(), remote, "-o", journal, "-")
	cmd.Stdin = bytes.NewReader(exported(t, dir, Journald))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), "journalctl", "--file", journal, "-o", "json",
		"--no-pager", "--all").Output()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(out)) {
		var e map[string]any
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		record, _ := e["JAIL_RECORD"].(string)
		lines = append(lines, record)
		if boot, _ := e["_BOOT_ID"].(string); strings.Trim(boot, "0") == "" {
			t.Fatalf("the entry has no boot, and newer systemds take none without: %s", line)
		}
	}
	want(t, dir, lines)
}

// TestOTLP is a collector that is strict about what it takes, slow to come up, and throws one
// record away.
func TestOTLP(t *testing.T) {
	dir, _ := newLog(t)
	var mu sync.Mutex
	var lines []string
	tries := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if tries++; tries < 3 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if r.Method != "POST" || r.URL.Path != "/v1/logs" ||
			r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s %s", r.Method, r.URL, r.Header)
		}
		var req otlpRequest
		dec := json.NewDecoder(r.Body)
		dec.DisallowUnknownFields()
		if err := dec.Decode(&req); err != nil {
			t.Error(err)
		}
		for _, l := range req.ResourceLogs[0].ScopeLogs[0].LogRecords {
			lines = append(lines, l.check(t))
		}
		io.WriteString(w,
			`{"partialSuccess":{"rejectedLogRecords":"1","errorMessage":"one is \u001b[31mbad"}}`)
	}))
	defer srv.Close()
	s, err := Open(OTLP, srv.URL, host, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var said []string
	var waits []time.Duration
	o := Options{Log: dir, Tries: 5, Say: func(s string) { said = append(said, s) },
		wait: func(_ context.Context, d time.Duration) error {
			waits = append(waits, d)
			return nil
		}}
	if _, err := Run(t.Context(), o, s); err != nil {
		t.Fatal(err)
	}
	want(t, dir, lines)
	if len(waits) != 2 || waits[0] < time.Second/2 || !strings.Contains(said[len(said)-1],
		"rejected 1 records") || strings.Contains(said[len(said)-1], "\x1b") {
		t.Errorf("waited %v, said %q", waits, said)
	}
}

// The messages of OTLP that are used here, by its protocol definitions.
type otlpRequest struct {
	ResourceLogs []struct {
		Resource  struct{ Attributes []otlpKV }
		ScopeLogs []struct {
			Scope      struct{ Name, Version string }
			LogRecords []otlpLog
		}
	}
}

type otlpLog struct {
	TimeUnixNano, ObservedTimeUnixNano string
	SeverityNumber                     int
	SeverityText, EventName            string
	Body                               otlpAny
	Attributes                         []otlpKV
}

type otlpKV struct {
	Key   string
	Value otlpAny
}

type otlpAny struct {
	StringValue *string
	BoolValue   *bool
	IntValue    *string
	ArrayValue  *struct{ Values []otlpAny }
	KvlistValue *struct{ Values []otlpKV }
}

func (l otlpLog) check(t *testing.T) (record string) {
	if _, err := strconv.ParseUint(l.TimeUnixNano, 10, 64); err != nil || l.SeverityNumber < 1 ||
		l.SeverityNumber > 24 || l.Body.StringValue == nil {
		t.Errorf("%+v", l)
	}
	keys := map[string]bool{}
	for _, a := range l.Attributes {
		if keys[a.Key] {
			t.Errorf("%s is there twice", a.Key)
		}
		keys[a.Key] = true
		if a.Key == "log.record.original" && a.Value.StringValue != nil {
			record = *a.Value.StringValue
		}
		if v := a.Value.IntValue; v != nil {
			if _, err := strconv.ParseInt(*v, 10, 64); err != nil {
				t.Error(err)
			}
		}
	}
	return record
}
