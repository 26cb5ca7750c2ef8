package anchor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/jail-sandbox/jail/supervisor/audit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const bound = time.Minute

func newLog(t *testing.T) (dir string, l *audit.Log) {
	t.Helper()
	dir = t.TempDir()
	l, err := audit.Open(audit.Options{Dir: filepath.Join(dir, "audit"),
		KeyDir: filepath.Join(dir, "keys")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	put(t, l)
	return filepath.Join(dir, "audit"), l
}

func put(t *testing.T, l *audit.Log) {
	t.Helper()
	if _, err := l.Append(t.Context(),
		audit.Entry{Event: audit.DaemonStopped{Reason: "x"}}); err != nil {
		t.Fatal(err)
	}
}

// fits holds what a place has against the log.
func fits(t *testing.T, dir string, kept []byte, n int) {
	t.Helper()
	anchors, err := audit.ParseAnchors("kept", kept)
	if err != nil {
		t.Fatalf("%v: %q", err, kept)
	}
	pub, err := audit.PublicKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	if rep, err := audit.Verify(dir, pub, anchors...); err != nil || rep.Anchors != n {
		t.Errorf("it fits %d anchors, want %d: %v", rep.Anchors, n, err)
	}
}

func settings(t *testing.T, text string) (Settings, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "audit.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Read(path)
}

// TestPlaces: a file, a server and a collector of syslog get the heads, and what they have then
// fits the log.
func TestPlaces(t *testing.T) {
	dir, l := newLog(t)
	file := filepath.Join(t.TempDir(), "anchors")
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var posted []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		body, _ := io.ReadAll(r.Body)
		if r.Method != http.MethodPost || !strings.HasPrefix(r.Header.Get("Content-Type"),
			"text/plain") {
			t.Errorf("%s, %v", r.Method, r.Header)
		}
		posted = append(append(posted, body...), '\n')
	}))
	defer server.Close()
	collector, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer collector.Close()
	s, err := settings(t, "[[anchor]]\nname = \"file\"\nto = \""+file+
		"\"\n[[anchor]]\nname = \"server\"\nto = \""+server.URL+
		"/a\"\n[[anchor]]\nname = \"syslog\"\nto = \"udp://"+
		collector.LocalAddr().String()+"\"\n")
	if err != nil {
		t.Fatal(err)
	}
	k := Keeper{Log: dir, State: filepath.Join(t.TempDir(), "state"), Targets: s.Anchors}
	for n := range 3 {
		put(t, l)
		// What is not new is not sent.
		for range 2 {
			all, err := k.Once(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, st := range all {
				if st.Size != uint64(n+2) || st.Error != "" {
					t.Errorf("%+v", st)
				}
			}
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	fits(t, dir, text, 3)
	fits(t, dir, posted, 3)
	var said []byte
	buf := make([]byte, 64<<10)
	for range 3 {
		_ = collector.SetReadDeadline(time.Now().Add(bound))
		n, _, err := collector.ReadFrom(buf)
		if err != nil {
			t.Fatal(err)
		}
		said = append(append(said, buf[:n]...), '\n')
	}
	fits(t, dir, said, 3)
}

// TestToken: the server gets it, and it is nowhere in what is said of a failure.
func TestToken(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var got string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Get("Authorization")
		w.WriteHeader(http.StatusForbidden)
	}))
	defer server.Close()
	send, err := open(Target{To: server.URL, Token: token}, Keeper{})
	if err != nil {
		t.Fatal(err)
	}
	err = send(t.Context(), audit.Head{Note: []byte("note")})
	if got != "Bearer s3cret" || err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("%q, %v", got, err)
	}
}

// TestCutAnswer sends a head to a server whose response ends in its body: the status counts alone.
func TestCutAnswer(t *testing.T) {
	for status, want := range map[int]string{http.StatusCreated: "<nil>",
		http.StatusForbidden: "the server answered 403"} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "10")
			w.WriteHeader(status)
			_, _ = w.Write([]byte("half"))
		}))
		defer server.Close()
		send, err := open(Target{To: server.URL}, Keeper{})
		if err != nil {
			t.Fatal(err)
		}
		if err := send(t.Context(), audit.Head{Note: []byte("note")}); fmt.Sprint(err) != want {
			t.Errorf("%d: %v, want %s", status, err, want)
		}
	}
}

// TestFailure: a place that does not take heads is tried again; that it began to fail is put on
// record once, and so is that it ended.
func TestFailure(t *testing.T) {
	dir, l := newLog(t)
	var mu sync.Mutex
	fail := true
	heads := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if fail {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		heads++
	}))
	defer server.Close()
	target := Target{Name: "a", To: server.URL, Every: text[time.Duration]{time.Second}}
	k := Keeper{Log: dir, State: t.TempDir(), Targets: []Target{target},
		Record: func(e audit.Anchored) error {
			_, err := l.Append(context.Background(), audit.Entry{Event: e})
			return err
		}}
	for range 3 {
		if _, err := k.Once(t.Context()); err == nil {
			t.Error("a place that refuses is no failure")
		}
	}
	st, err := ReadStatus(k.State, target)
	if err != nil || st.Failed != 3 || st.Error == "" || st.Since.IsZero() || st.Size != 0 {
		t.Errorf("%+v, %v", st, err)
	}
	mu.Lock()
	fail = false
	mu.Unlock()
	if _, err := k.Once(t.Context()); err != nil || heads != 1 {
		t.Errorf("%d heads, %v", heads, err)
	}
	var said []string
	for r, err := range audit.Scan(dir, audit.Filter{Types: []audit.Type{audit.TypeAnchor}}) {
		if err != nil {
			t.Fatal(err)
		}
		said = append(said, r.Text("error"))
	}
	if len(said) != 2 || said[0] == "" || said[1] != "" {
		t.Errorf("on record: %q", said)
	}
}

// TestRun sends what is new while it runs and once more when it ends.
func TestRun(t *testing.T) {
	dir, l := newLog(t)
	file := filepath.Join(t.TempDir(), "anchors")
	target := Target{Name: "a", To: file, Every: text[time.Duration]{time.Hour}}
	k := Keeper{Log: dir, State: t.TempDir(), Targets: []Target{target}}
	ctx, end := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { k.Run(ctx) })
	for begun := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		if st, _ := ReadStatus(k.State, target); st.Size == 1 {
			break
		}
		if time.Since(begun) > bound {
			t.Fatal("nothing was sent")
		}
	}
	put(t, l)
	end()
	done.Wait()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	fits(t, dir, text, 2)
}

func TestSettings(t *testing.T) {
	s, err := settings(t, `[log]
segment_size = "1MiB"
segment_time = "24h"
checkpoint = "10s"
[keep]
size = "1GiB"
time = "2160h"
[[anchor]]
name = "a"
to = "https://a.example/x"
token = "/etc/jail/secrets/a"
`)
	if err != nil || s.Log.SegmentSize.Value != 1<<20 || s.Log.SegmentTime.Value != 24*time.Hour ||
		s.Keep.Keep() != (audit.Keep{Bytes: 1 << 30, For: 2160 * time.Hour}) ||
		len(s.Anchors) != 1 || s.Anchors[0].Every.Value != time.Minute {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := Read(filepath.Join(t.TempDir(), "none")); err != nil || len(s.Anchors) != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	for _, bad := range []string{"x = 1", "[log]\nsegment_size = 5", "[log]\nsegment_size = \"1\"",
		"[keep]\nsize = \"0\"", "[keep]\ntime = \"-1h\"", "[keep]\ntime = \"1s\"",
		"[[anchor]]\nto = \"/a\"", "[[anchor]]\nname = \"a\"",
		"[[anchor]]\nname = \"a\"\nto = \"relative\"", "[[anchor]]\nname = \"a\"\nto = \"ftp://x\"",
		"[[anchor]]\nname = \"A b\"\nto = \"/a\"", "[[anchor]]\nname = \"a/b\"\nto = \"/a\"",
		"[[anchor]]\nname = \"a\"\nto = \"https://u:p@x/\"",
		"[[anchor]]\nname = \"a\"\nto = \"https:///x\"",
		"[[anchor]]\nname = \"a\"\nto = \"http://x/\"\ntoken = \"/t\"",
		"[[anchor]]\nname = \"a\"\nto = \"/a\"\nevery = \"1ms\"",
		"[[anchor]]\nname = \"a\"\nto = \"/a\"\n[[anchor]]\nname = \"a\"\nto = \"/b\"",
		"[[anchor]]\nname = \"a\"\nto = \"/a\"\nextra = 1", "not toml",
		strings.Repeat("[[anchor]]\nname = \"a\"\nto = \"/a\"\n", 17)} {
		if s, err := settings(t, bad); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %+v, %v", bad, s, err)
		}
	}
	path := filepath.Join(t.TempDir(), "x")
	if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, 0o666)); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil && os.Geteuid() == 0 {
		t.Error("a file that everybody can write is read")
	}
}
