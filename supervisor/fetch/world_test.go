package fetch

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/jailtest"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/supervisor/fetch/fetchtest"
)

func TestMain(m *testing.M) {
	os.Exit(fetchtest.Main(func() int {
		code := jailtest.Main(m)
		if program.dir != "" {
			os.RemoveAll(program.dir)
		}
		return code
	}))
}

// limits are those of every test's policy that says none.
const limits = `
[fetch.limits]
requests = 1000
bytes_in = "64MiB"
bytes_out = "64MiB"
concurrent = 64
timeout = "2m"
`

// hanging is how long an answer may take before it counts as hanging.
const hanging = 2 * time.Minute

// notes are what a proxy has put on record.
type notes struct {
	mu      sync.Mutex
	intents []Intent
	ends    []Outcome
	refused []Refused
	fail    error
	// internal are the daemon's entries.
	internal []Internal
}

func (n *notes) Intend(i Intent) (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fail != nil {
		return "", n.fail
	}
	n.intents = append(n.intents, i)
	return theHost.any(outward(n.internal, i)), nil
}

func (n *notes) IntendAfter(ended []Outcome, i Intent) (string, error) {
	return intendAfter(n, ended, i)
}

func intendAfter(r recorder, ended []Outcome, i Intent) (string, error) {
	for _, o := range ended {
		r.Ended(o)
	}
	return r.Intend(i)
}

func (n *notes) Ended(o Outcome) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ends = append(n.ends, o)
}

func (n *notes) Refused(r Refused) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refused = append(n.refused, r)
}

func (n *notes) take() (intents []Intent, ends []Outcome, refused []Refused) {
	n.mu.Lock()
	defer n.mu.Unlock()
	intents, ends, refused = n.intents, n.ends, n.refused
	n.intents, n.ends, n.refused = nil, nil, nil
	return intents, ends, refused
}

// world is an internet with a name server, and the proxy under test.
type world struct {
	t     testing.TB
	names *fetchtest.Names
	ca    *fetchtest.Authority
	notes *notes
	setup Setup
	proxy *proxy
}

func newWorld(t testing.TB, profile string, change ...func(*Setup)) *world {
	t.Helper()
	w := &world{t: t, names: fetchtest.StartNames(t), ca: fetchtest.NewAuthority(t),
		notes: &notes{}}
	w.setup = setupOf(t, profile)
	w.setup.Servers = append(w.setup.Servers, w.names.Server)
	w.setup.Roots = w.ca.PEM
	for _, f := range change {
		f(&w.setup)
	}
	w.notes.internal = w.setup.Internal
	var err error
	if w.proxy, err = newProxy(w.setup, w.notes); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.forget)
	return w
}

// forget ends the connections that are kept.
func (w *world) forget() {
	w.proxy.hosts.pool.mu.Lock()
	defer w.proxy.hosts.pool.mu.Unlock()
	for _, list := range w.proxy.hosts.pool.idle {
		for _, u := range list {
			u.close()
		}
	}
	clear(w.proxy.hosts.pool.idle)
}

func setupOf(t testing.TB, profile string) Setup {
	t.Helper()
	if !strings.Contains(profile, "[fetch.limits]") {
		profile += limits
	}
	f, err := syntax.Parse(syntax.Request, "test.toml", []byte("policy = 1\n"+profile), nil)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(profile, "mode") {
		f.Policy.Fetch.Mode = policy.FetchEnforce
	}
	return Setup{Ceiling: "ceiling", Layers: []SetupLayer{
		{Name: "ceiling", Source: "built in", Fetch: policy.TopFetch()},
		{Name: "profile test", Source: "test.toml", Fetch: f.Policy.Fetch,
			Approve: f.Policy.Approve}}}
}

// stream returns the tool's end of a new stream to the proxy.
func (w *world) stream() *net.UnixConn {
	w.t.Helper()
	conn, _ := w.served()
	return conn
}

// served is stream, and says when the proxy is done with it.
func (w *world) served() (*net.UnixConn, <-chan struct{}) {
	w.t.Helper()
	a, f, err := control.Pair("test")
	if err != nil {
		w.t.Fatal(err)
	}
	ours, err := net.FileConn(f)
	if err != nil {
		w.t.Fatal(err)
	}
	theirs, err := net.FileConn(a.File())
	if err != nil {
		w.t.Fatal(err)
	}
	a.Close()
	f.Close()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); w.proxy.serve(ctx, theirs, w.proxy.scopes[0]) }()
	w.t.Cleanup(func() { ours.Close(); cancel(); <-done })
	if err := ours.SetDeadline(time.Now().Add(hanging)); err != nil {
		w.t.Fatal(err)
	}
	return ours.(*net.UnixConn), done
}

// send sends raw bytes on a new stream and returns all that comes back, when the proxy is done with
// it.
func (w *world) send(raw string) string {
	w.t.Helper()
	conn, done := w.served()
	defer func() { conn.Close(); <-done }()
	go func() {
		// The proxy may refuse before it has read all.
		_, _ = io.WriteString(conn, raw)
		_ = conn.CloseWrite()
	}()
	// What was said before a reset counts.
	out, _ := io.ReadAll(conn)
	return string(out)
}

// get asks for a URL and returns the status and the body.
func (w *world) get(url string, lines ...string) (int, string) {
	w.t.Helper()
	return w.ask("GET", url, "", lines...)
}

func (w *world) ask(method, url, body string, lines ...string) (int, string) {
	w.t.Helper()
	host := strings.SplitN(strings.SplitN(url, "//", 2)[1], "/", 2)[0]
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n", method, url, host)
	if body != "" {
		head += fmt.Sprintf("Content-Length: %d\r\n", len(body))
	}
	for _, l := range lines {
		head += l + "\r\n"
	}
	return w.parse(method, w.send(head+"\r\n"+body))
}

func (w *world) parse(method, raw string) (int, string) {
	w.t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(raw)),
		&http.Request{Method: method})
	if err != nil {
		w.t.Fatalf("the proxy answers %q: %v", raw, err)
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return resp.StatusCode, string(text) + " (" + err.Error() + ")"
	}
	return resp.StatusCode, string(text)
}

// plain serves HTTP/1.1 requests and answers each with what f writes.
func plain(f func(w io.Writer, r *http.Request, body string)) func(net.Conn) {
	return func(c net.Conn) {
		r := bufio.NewReader(c)
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			body, err := io.ReadAll(req.Body)
			if err != nil {
				return
			}
			f(c, req, string(body))
		}
	}
}

func says(text string) func(net.Conn) {
	return plain(func(w io.Writer, r *http.Request, _ string) {
		if r.Method == "HEAD" {
			fmt.Fprintf(w,
				"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n",
				len(text))
			return
		}
		fmt.Fprintf(w,
			"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s",
			len(text), text)
	})
}

const (
	upIP   = "93.184.216.34"
	upName = "up.example.com"
	anyTo  = "[[fetch.allow]]\nhost = \"**.example.com\"\nports = [80, 443, 8080]\n" +
		"methods = [\"*\"]\npaths = [\"/**\"]\nwebsocket = false\ntls = \"intercept\"\n"
)
