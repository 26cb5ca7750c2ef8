package fetch

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/supervisor/fetch/fetchtest"
)

// keyHosts are hosts of the world, with TLS and without, that note the keys of their requests.
type keyHosts struct {
	mu   sync.Mutex
	keys []string
}

func newKeyHosts(t *testing.T, w *world) *keyHosts {
	k := &keyHosts{}
	w.names.Set(upName, []string{upIP})
	answer := plain(func(w io.Writer, r *http.Request, _ string) {
		k.mu.Lock()
		k.keys = append(k.keys, r.Header.Get(idempotencyKey))
		k.mu.Unlock()
		_, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	})
	fetchtest.StartHost(t, upIP+":80", nil, answer)
	fetchtest.StartHost(t, upIP+":443", w.ca.Config(t, time.Now().Add(time.Hour), upName), answer)
	return k
}

func (k *keyHosts) wants(t *testing.T, want ...string) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	if !slices.Equal(k.keys, want) {
		t.Errorf("%q\nwant %q", k.keys, want)
	}
	k.keys = nil
}

// events returns a function that names the event on which the tool works, as the host of an agent
// does.
func events(t *testing.T, p *proxy) func(name string) {
	t.Helper()
	ours, theirs, err := control.Pair("socket")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); p.admit(ctx, ours) }()
	socket := control.New(theirs)
	t.Cleanup(func() { socket.Close(); cancel(); <-ended })
	return func(name string) {
		t.Helper()
		if err := socket.Send(control.OpenStream{Event: &name}); err != nil {
			t.Fatal(err)
		}
		var opened control.Opened
		if files, err := socket.Receive(&opened); err != nil || opened.Refused || len(files) != 0 {
			t.Fatalf("%+v, %d streams, %v", opened, len(files), err)
		}
	}
}

// TestEventKeys: the requests of an event have keys, which a repeated event repeats. A key of the
// tool's own stays, requests outside of an event have none, and a name that is no field has none.
func TestEventKeys(t *testing.T) {
	w := newWorld(t, anyTo, intercepts)
	hosts, begin := newKeyHosts(t, w), events(t, w.proxy)
	get := func(scheme string, lines ...string) {
		t.Helper()
		if status, text := w.get(scheme+"://"+upName+"/", lines...); status != http.StatusOK {
			t.Fatalf("%d %s", status, text)
		}
	}
	get("http")
	hosts.wants(t, "")
	for _, c := range []struct{ event, first, third string }{
		{"agent:a:b/7", "agent:a:b/7/f1", "agent:a:b/7/f3"},
		{"agent:a:b/7", "agent:a:b/7/f1", "agent:a:b/7/f3"},
		{"agent:a:b/8", "agent:a:b/8/f1", "agent:a:b/8/f3"}, {}, {event: "x\r\nEvil: 1"}} {
		begin(c.event)
		get("http")
		get("http", "idempotency-key: own")
		get("https")
		hosts.wants(t, c.first, "own", c.third)
	}
	// Inside a tunnel, which is no request itself.
	begin("agent:a:b/9")
	const one = "GET / HTTP/1.1\r\nHost: " + upName + "\r\n%s\r\n"
	for range 2 {
		w.sendInside(upName, 443, fmt.Sprintf(one, "")+fmt.Sprintf(one, "Idempotency-Key: own\r\n"))
	}
	hosts.wants(t, "agent:a:b/9/f1", "own", "agent:a:b/9/f3", "own")
}

// TestEventKeysOfRefused: a request that is refused, or waits for an approval, has one number as
// any other. So a repeated event gives the same keys to the same requests when one of them is
// approved meanwhile.
func TestEventKeysOfRefused(t *testing.T) {
	w := newWorld(t, holds)
	n := &askedNotes{questions: make(chan Question, 1), verdicts: make(chan Verdict, 1)}
	w.notes = &n.notes
	var err error
	if w.proxy, err = newProxy(w.setup, n); err != nil {
		t.Fatal(err)
	}
	hosts, begin := newKeyHosts(t, w), events(t, w.proxy)
	for _, verdict := range []Verdict{{Code: "approval_pending", Message: "it waits", Approval: "id"}, {}} {
		begin("agent:a:b/7")
		n.verdicts <- verdict
		want := []string{"agent:a:b/7/f1", "agent:a:b/7/f3"}
		status, text := w.ask("POST", "http://"+upName+"/", "x")
		<-n.questions
		if verdict.Code != "" {
			want = want[1:]
		}
		if (status == http.StatusOK) != (verdict.Code == "") {
			t.Errorf("%d %s", status, text)
		}
		if status, text := w.get("http://no.example.com/"); status != http.StatusForbidden {
			t.Errorf("%d %s", status, text)
		}
		if status, text := w.get("http://" + upName + "/"); status != http.StatusOK {
			t.Errorf("%d %s", status, text)
		}
		hosts.wants(t, want...)
	}
}
