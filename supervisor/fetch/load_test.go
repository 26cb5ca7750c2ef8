package fetch

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/supervisor/fetch/fetchtest"
)

// TestIdleClients: a thousand streams that say nothing, or half a head, are in nobody's way, and
// beyond the most there is a refusal, not a wait (T-249).
func TestIdleClients(t *testing.T) {
	w := newWorld(t, anyTo)
	w.names.Set(upName, []string{upIP})
	fetchtest.StartHost(t, upIP+":80", nil, says("hi"))
	var rest []net.Conn
	for i := range maxStreams - 24 {
		conn := w.stream()
		rest = append(rest, conn)
		if i%2 == 0 {
			fmt.Fprint(conn, firstLines)
		}
	}
	if len(rest) < 1000 {
		t.Fatalf("only %d streams", len(rest))
	}
	for range 20 {
		if status, body := w.get("http://up.example.com/", "Connection: close"); status != 200 ||
			body != "hi" {
			t.Fatalf("beside %d idle streams: %d %s", len(rest), status, body)
		}
	}
	for len(w.proxy.streams) < maxStreams {
		before := len(w.proxy.streams)
		rest = append(rest, w.stream())
		for len(w.proxy.streams) == before {
			time.Sleep(time.Millisecond)
		}
	}
	if out := w.send(firstLines + "\r\n"); out != "" {
		t.Errorf("beyond the most: %q", out)
	}
	for _, c := range rest[:10] {
		c.Close()
	}
	for len(w.proxy.streams) == maxStreams {
		time.Sleep(time.Millisecond)
	}
	if status, _ := w.get("http://up.example.com/"); status != 200 {
		t.Errorf("after some have gone: %d", status)
	}
}

// TestExhaustion: heads without end, and hosts that are slow, endless or explode, end at a bound of
// the policy, on record (T-248, T-249).
func TestExhaustion(t *testing.T) {
	w := newWorld(t,
		anyTo+"[fetch.limits]\nrequests = 100\nbytes_in = \"1MiB\"\nbytes_out = \"8MiB\"\n"+
			"concurrent = 8\ntimeout = \"2s\"\n")
	fast := newWorld(t, anyTo)
	for _, x := range []*world{w, fast} {
		x.names.Set(upName, []string{upIP})
	}
	for name, raw := range map[string]string{
		"a long line": "GET http://up.example.com/" + strings.Repeat("a", 1<<20) +
			" HTTP/1.1\r\nHost: up.example.com\r\n\r\n",
		"many headers":  firstLines + strings.Repeat("A: b\r\n", 100_000) + "\r\n",
		"a long header": firstLines + "A: " + strings.Repeat("b", 1<<20) + "\r\n\r\n",
		"no line end":   strings.Repeat("x", 1<<20),
	} {
		if out := fast.send(raw); !strings.HasPrefix(out, "HTTP/1.1 400") {
			t.Errorf("%s: %.200q", name, out)
		}
	}
	serve := map[string]func(net.Conn){
		"endless": func(c net.Conn) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
			for {
				if _, err := c.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		},
		"slow": func(c net.Conn) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
			for {
				if _, err := c.Write([]byte("x")); err != nil {
					return
				}
				time.Sleep(50 * time.Millisecond)
			}
		},
		"slow head": func(c net.Conn) {
			for {
				if _, err := c.Write([]byte("H")[:1]); err != nil {
					return
				}
				time.Sleep(50 * time.Millisecond)
			}
		},
		"silent": func(c net.Conn) { _, _ = io.ReadAll(c) },
		"endless chunk sizes": func(c net.Conn) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
			for {
				if _, err := c.Write(bytes.Repeat([]byte("0"), 4096)); err != nil {
					return
				}
			}
		},
		"endless chunk extensions": func(c net.Conn) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;")
			for {
				if _, err := c.Write(bytes.Repeat([]byte("a"), 4096)); err != nil {
					return
				}
			}
		},
	}
	var mu sync.Mutex
	mode := ""
	fetchtest.StartHost(t, upIP+":80", nil, func(c net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			mu.Lock()
			f := serve[mode]
			mu.Unlock()
			f(c)
		}
	})
	for name := range serve {
		mu.Lock()
		mode = name
		mu.Unlock()
		w.notes.take()
		out := w.send(firstLines + "\r\n")
		_, ends, _ := w.notes.take()
		if len(ends) != 1 || ends[0].Error == "" || len(out) > 2<<20 {
			t.Errorf("%s: %d bytes, on record is %+v", name, len(out), ends)
		}
		if name == "slow" && !ends[0].Truncated {
			t.Errorf("%s: %+v", name, ends)
		}
		w.proxy.budgets.run.mu.Lock()
		// Each has the whole budget.
		w.proxy.budgets.run.in = 0
		w.proxy.budgets.run.mu.Unlock()
	}
}

// TestTurns: a rate and a number at one time make requests wait for their turn, those of one host
// apart from the run's.
func TestTurns(t *testing.T) {
	rule := "[[fetch.allow]]\nhost = \"%s.example.com\"\nports = [80]\nmethods = [\"GET\"]\n" +
		"paths = [\"/**\"]\n"
	w := newWorld(t, fmt.Sprintf(rule, "up")+"concurrent = 2\n"+fmt.Sprintf(rule, "slow")+
		"rate = 5\n")
	w.names.Set(upName, []string{upIP})
	w.names.Set("slow.example.com", []string{upIP})
	var now, most atomic.Int64
	fetchtest.StartHost(t, upIP+":80", nil, plain(func(wr io.Writer, r *http.Request, _ string) {
		if r.Host == upName {
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(20 * time.Millisecond)
			now.Add(-1)
		}
		io.WriteString(wr, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
	}))
	start := time.Now()
	var all sync.WaitGroup
	var failed atomic.Int64
	for i := range 12 {
		all.Go(func() {
			host := upName
			if i%2 == 0 {
				host = "slow.example.com"
			}
			if out := w.send("GET http://" + host + "/ HTTP/1.1\r\nHost: " + host +
				"\r\n\r\n"); !strings.HasPrefix(out, "HTTP/1.1 200") {
				failed.Add(1)
			}
		})
	}
	all.Wait()
	if failed.Load() > 0 || most.Load() > 2 || most.Load() == 0 {
		t.Errorf("%d failed, %d at one time", failed.Load(), most.Load())
	}
	if took := time.Since(start); took < time.Second {
		// the sixth starts a second after the first
		t.Errorf("6 requests at a rate of 5 took %s", took)
	}
}

// TestAgain: a kept connection that its host ends at the wrong moment costs no answer, and each
// attempt is on record.
func TestAgain(t *testing.T) {
	w := newWorld(t, anyTo)
	w.names.Set(upName, []string{upIP})
	first := true
	var mu sync.Mutex
	up := fetchtest.StartHost(t, upIP+":80", nil, func(c net.Conn) {
		r := bufio.NewReader(c)
		for n := 0; ; n++ {
			if _, err := http.ReadRequest(r); err != nil {
				return
			}
			mu.Lock()
			// the second request of the first connection is read and not answered
			leave := first && n == 1
			first = first && !leave
			mu.Unlock()
			if leave {
				return
			}
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
		}
	})
	for i := range 2 {
		if status, body := w.get("http://up.example.com/"); status != 200 || body != "hi" {
			t.Errorf("request %d: %d %s", i, status, body)
		}
	}
	intents, ends, _ := w.notes.take()
	if _, _, conns := up.Took(); len(intents) != 3 || len(ends) != 3 || ends[1].Error == "" ||
		ends[2].Status != 200 || conns != 2 || intents[1].ID == intents[2].ID {
		t.Errorf("%d connections, %+v %+v", conns, intents, ends)
	}
	if status, _ := w.ask("POST", "http://up.example.com/", "x"); status != 200 {
		t.Error("a POST is not sent on a connection that may have ended")
	}
}

// TestKeptApart: a connection that is kept for one run serves no other's (T-210).
func TestKeptApart(t *testing.T) {
	one, two := newWorld(t, anyTo), newWorld(t, anyTo)
	up := fetchtest.StartHost(t, upIP+":80", nil, says("hi"))
	asked := func(w *world, conns int) {
		t.Helper()
		w.names.Set(upName, []string{upIP})
		if status, body := w.get("http://up.example.com/"); status != 200 || body != "hi" {
			t.Errorf("%d %s", status, body)
		}
		if _, _, n := up.Took(); n != conns {
			t.Errorf("%d new connections, want %d", n, conns)
		}
	}
	asked(one, 1)
	asked(one, 0)
	asked(two, 1)
}

// TestChain: a redirect that the tool follows is recorded as the next step of a chain, and decided
// like any other request (T-247).
func TestChain(t *testing.T) {
	w := newWorld(t, anyTo)
	w.names.Set(upName, []string{upIP})
	w.names.Set("inner.example.com", []string{"10.1.2.3"})
	to := map[string]string{"/d%20e/a": "b?x=1", "/d%20e/b?x=1": "//up.example.com/c",
		"/c": "http://inner.example.com/d"}
	fetchtest.StartHost(t, upIP+":80", nil, plain(func(wr io.Writer, r *http.Request, _ string) {
		fmt.Fprintf(wr,
			"HTTP/1.1 307 Temporary Redirect\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n",
			to[r.RequestURI])
	}))
	for _, u := range []string{"/d%20e/a", "/d%20e/b?x=1", "/c"} {
		if status, _ := w.get("http://up.example.com" + u); status != 307 {
			t.Errorf("%s: %d", u, status)
		}
	}
	if status, _ := w.get("http://inner.example.com/d"); status != 403 {
		t.Errorf("the last step: %d", status)
	}
	intents, ends, refused := w.notes.take()
	if len(intents) != 3 || len(refused) != 1 || len(ends) != 3 {
		t.Fatalf("%+v %+v", intents, refused)
	}
	if a, b, c, d := intents[0], intents[1], intents[2], refused[0]; a.After != 0 ||
		b.After != a.ID || c.After != b.ID || d.After != c.ID || d.Hops != 3 {
		t.Errorf("%+v %+v %+v %+v", a, b, c, d)
	}
	if ends[0].Redirect != "http://up.example.com/d%20e/b" {
		t.Errorf("%+v", ends[0])
	}
}

// TestKilledAnywhere: a proxy that is killed at any moment leaves a record of every request that a
// host has seen (T-270).
func TestKilledAnywhere(t *testing.T) {
	points := 6
	if os.Getenv("JAIL_TEST_LONG") != "" {
		points = 40
	}
	for i := range points {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			killedAfter(t, time.Duration(i)*3*time.Millisecond)
		})
	}
}

func killedAfter(t *testing.T, after time.Duration) {
	w := newWorld(t, anyTo)
	w.names.Set(upName, []string{upIP})
	up := fetchtest.StartHost(t, upIP+":80", nil, says("hi"))
	died := make(chan error, 1)
	p := startProcess(t, w, func(err error) { died <- err })
	socket := control.New(p.Door)
	conn := openStream(t, socket)
	kill := time.AfterFunc(after, func() { _ = syscall.Kill(p.PID, syscall.SIGKILL) })
	r := bufio.NewReader(conn)
	for n := 0; ; n++ {
		if _, err := fmt.Fprintf(conn,
			"GET http://up.example.com/%d HTTP/1.1\r\nHost: up.example.com\r\n\r\n",
			n); err != nil {
			break
		}
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			break
		}
		_, _ = io.Copy(io.Discard, resp.Body)
	}
	<-died
	kill.Stop()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	socket.Close()
	got, _, _ := up.Took()
	intents, ends, _ := w.notes.take()
	var known []string
	for _, i := range intents {
		known = append(known, i.Path)
	}
	for line := range strings.Lines(string(got)) {
		if path, ok := strings.CutPrefix(line, "GET "); ok && !slices.Contains(known,
			strings.Fields(path)[0]) {
			t.Errorf("the host has seen %q, of which there is no record", line)
		}
	}
	if len(ends) != len(intents) {
		t.Errorf("%d intents and %d ends", len(intents), len(ends))
	}
}
