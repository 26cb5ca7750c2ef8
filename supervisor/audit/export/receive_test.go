package export

import (
	"bufio"
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

func deliver(t *testing.T, dir string, f Format, to string) {
	t.Helper()
	s, err := Open(f, to, host, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	o := Options{Log: dir, Tries: 3, Say: func(s string) { t.Log(s) }}
	if n, err := Run(t.Context(), o, s); err != nil || n != len(all(t, dir)) {
		t.Fatalf("%s to %s: %d, %v", f, to, n, err)
	}
}

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

// TestSyslogTCP reads the octet counting of RFC 6587 strictly.
func TestSyslogTCP(t *testing.T) {
	dir, _ := newLog(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := make(chan []string, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		var messages []string
		for r := bufio.NewReader(c); ; {
			size, err := r.ReadString(' ')
			if err != nil {
				got <- messages
				return
			}
			n, err := strconv.Atoi(strings.TrimSuffix(size, " "))
			if err != nil || n < 1 || size[0] == '0' {
				t.Errorf("length %q", size)
			}
			m := make([]byte, n)
			if _, err := io.ReadFull(r, m); err != nil {
				t.Error(err)
			}
			messages = append(messages, checkSyslog(t, string(m)))
		}
	}()
	deliver(t, dir, Syslog, "tcp://"+l.Addr().String())
	want(t, dir, <-got)
}

func TestSyslogDatagrams(t *testing.T) {
	dir, _ := newLog(t)
	path := filepath.Join(t.TempDir(), "log")
	for network, address := range map[string]string{"udp": "127.0.0.1:0", "unixgram": path} {
		c, err := net.ListenPacket(network, address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if u, ok := c.(*net.UDPConn); ok {
			_ = u.SetReadBuffer(8 << 20)
		}
		to := "udp://" + c.LocalAddr().String()
		if network == "unixgram" {
			to = "unix://" + path
		}
		got := make(chan []string, 1)
		go func() {
			var messages []string
			buf := make([]byte, 1<<20)
			for range all(t, dir) {
				_ = c.SetReadDeadline(time.Now().Add(bound))
				n, _, err := c.ReadFrom(buf)
				if err != nil {
					break
				}
				messages = append(messages, checkSyslog(t, string(buf[:n])))
			}
			got <- messages
		}()
		deliver(t, dir, Syslog, to)
		want(t, dir, <-got)
	}
}

// TestJournalSocket reads the native protocol, messages that come as a file included.
func TestJournalSocket(t *testing.T) {
	dir, l := newLog(t)
	var files []string
	for n := range 200 {
		files = append(files, fmt.Sprintf("%d %s", n, strings.Repeat("\x01", 300))) // six times as long in the record
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
	d := s.(*datagrams)
	if err := d.connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := d.conn.(*net.UnixConn).SetWriteBuffer(64 << 10); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), Options{Log: dir, Tries: 1, Say: func(string) {}}, s); err != nil {
		t.Fatal(err)
	}
	var lines []string
	passed := 0
	for _, e := range <-got {
		lines = append(lines, e.fields["JAIL_RECORD"])
		if e.fields["PRIORITY"] == "0" || e.fields["MESSAGE"] == "forged" || e.fields["SYSLOG_IDENTIFIER"] != "jail" {
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
	out, err := exec.CommandContext(t.Context(), "journalctl", "--file", journal, "-o", "json", "--no-pager", "--all").Output()
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

// TestRsyslog: a collector of Debian's takes what is sent over TCP and UDP's datagrams, and writes down the records.
func TestRsyslog(t *testing.T) {
	program := "/usr/sbin/rsyslogd"
	if _, err := os.Stat(program); err != nil {
		t.Skip("rsyslog is not installed")
	}
	log, _ := newLog(t)
	dir := t.TempDir()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	conf := fmt.Sprintf(`global(workDirectory=%q maxMessageSize="1m" parser.escapeControlCharactersOnReceive="off")
module(load="imtcp")
input(type="imtcp" address="127.0.0.1" port=%q)
template(name="m" type="string" string="%%msgid%%|%%app-name%%|%%hostname%%|%%syslogfacility%%|%%msg:::drop-last-lf%%\n")
*.* action(type="omfile" file=%q template="m")
`, dir, port, dir+"/out")
	if err := os.WriteFile(dir+"/conf", []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "-n", "-f", dir+"/conf", "-i", dir+"/pid")
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	s, err := Open(Syslog, "tcp://127.0.0.1:"+port, host, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, stop := context.WithTimeout(t.Context(), bound)
	defer stop()
	pause := func(ctx context.Context, _ time.Duration) error { return sleep(ctx, 50*time.Millisecond) }
	if _, err := Run(ctx, Options{Log: log, Tries: 1000, Say: func(string) {}, Wait: pause}, s); err != nil {
		t.Fatalf("%v\n%s", err, said.Bytes())
	}
	records := all(t, log)
	var lines []string
	for ctx.Err() == nil && len(lines) < len(records) {
		time.Sleep(20 * time.Millisecond)
		text, _ := os.ReadFile(dir + "/out")
		lines = nil
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "|jail|") {
				lines = append(lines, strings.TrimSuffix(line, "\n"))
			}
		}
	}
	if len(lines) != len(records) {
		t.Fatalf("%d of %d records came\n%s", len(lines), len(records), said.Bytes())
	}
	for n, r := range records {
		if wanted := fmt.Sprintf("%s|jail|host.example|13|@cee: %s", r.Type, r.Line); strings.Replace(lines[n], "| @cee", "|@cee", 1) != wanted {
			t.Errorf("record %d was written down as\n%.300s, want\n%.300s", n+1, lines[n], wanted)
		}
	}
}

// TestOTLP is a collector that is strict about what it takes, slow to come up, and throws one record away.
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
		if r.Method != "POST" || r.URL.Path != "/v1/logs" || r.Header.Get("Content-Type") != "application/json" {
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
		io.WriteString(w, `{"partialSuccess":{"rejectedLogRecords":"1","errorMessage":"one is \u001b[31mbad"}}`)
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
		Wait: func(_ context.Context, d time.Duration) error { waits = append(waits, d); return nil }}
	if _, err := Run(t.Context(), o, s); err != nil {
		t.Fatal(err)
	}
	want(t, dir, lines)
	if len(waits) != 2 || waits[0] < time.Second/2 || !strings.Contains(said[len(said)-1], "rejected 1 records") || strings.Contains(said[len(said)-1], "\x1b") {
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
	if _, err := strconv.ParseUint(l.TimeUnixNano, 10, 64); err != nil || l.SeverityNumber < 1 || l.SeverityNumber > 24 || l.Body.StringValue == nil {
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
