package hostfetch

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/runners/wasi"
	"github.com/jail-sandbox/jail/runners/wasi/guest/linear"
)

// A guest calls the functions as a module would, with a proxy that each test writes.
type guest struct {
	t     testing.TB
	r     *Requests
	mem   []byte
	serve func(net.Conn)
	peers []net.Conn
}

func newGuest(t testing.TB, serve func(net.Conn)) *guest {
	g := &guest{t: t, mem: make([]byte, 1<<20), serve: serve}
	g.r = New(g.dial)
	t.Cleanup(func() {
		g.r.Close()
		for _, c := range g.peers {
			c.Close()
		}
	})
	return g
}

func (g *guest) dial() (*os.File, error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fds[1]), "stream")
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	g.peers = append(g.peers, conn)
	if g.serve != nil {
		go g.serve(conn)
	}
	return os.NewFile(uintptr(fds[0]), "stream"), nil
}

func (g *guest) do(name string, a ...uint64) linear.Errno {
	return g.r.Do(Lookup(name), g.mem, append(a, make([]uint64, 9)...))
}

func (g *guest) u32(at int) uint32 { return binary.LittleEndian.Uint32(g.mem[at:]) }

func (g *guest) open(method, url, headers string, length int64, ms uint64) (uint64, linear.Errno) {
	at := 1024
	var a []uint64
	for _, s := range []string{method, url, headers} {
		a = append(a, uint64(at), uint64(len(s)))
		at += copy(g.mem[at:], s)
	}
	e := g.do("open", append(a, uint64(length), ms, 0)...)
	return uint64(g.u32(0)), e
}

func (g *guest) write(h uint64, b []byte) linear.Errno {
	copy(g.mem[1024:], b)
	return g.do("write", h, 1024, uint64(len(b)))
}

func (g *guest) status(h uint64) (int, linear.Errno) {
	e := g.do("status", h, 4)
	return int(g.u32(4)), e
}

func (g *guest) text(name string, a ...uint64) string {
	if e := g.do(name, append(a, 1024, 4096, 8)...); e != linear.Success {
		return fmt.Sprint("error ", e)
	}
	return string(g.mem[1024 : 1024+min(g.u32(8), 4096)])
}

func (g *guest) body(h uint64, piece uint64) (string, linear.Errno) {
	var all []byte
	for {
		if e := g.do("read", h, 1024, piece, 12); e != linear.Success {
			return string(all), e
		}
		n := g.u32(12)
		if n == 0 {
			return string(all), linear.Success
		}
		all = append(all, g.mem[1024:1024+n]...)
	}
}

// says answers every request with the same bytes, and ends the stream.
func says(answer string) func(net.Conn) {
	return func(c net.Conn) {
		defer c.Close()
		req, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		io.WriteString(c, answer)
	}
}

func TestNames(t *testing.T) {
	for _, f := range wasi.FetchFunctions {
		if Lookup(f.Name) == nil {
			t.Errorf("no function %s", f)
		}
	}
	if Lookup("nothing") != nil {
		t.Error("a function that there is not")
	}
}

// What is asked for comes to the proxy as one plain request, and nothing of the guest's changes
// where it ends.
func TestRequest(t *testing.T) {
	got := make(chan string, 1)
	g := newGuest(t, func(c net.Conn) {
		raw, _ := io.ReadAll(c)
		got <- string(raw)
	})
	for _, tt := range []struct {
		method, url, headers string
		length               int64
		body, want           string
	}{
		{"GET", "https://a.example/x?y", "", 0, "",
			"GET https://a.example/x?y HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n"},
		{"POST", "http://a.example:81", "A: b\r\nC: d\n", 3, "xyz",
			"POST http://a.example:81 HTTP/1.1\r\nHost: a.example:81\r\nA: b\r\nC: d\r\n" +
				"Content-Length: 3\r\nConnection: close\r\n\r\nxyz"},
		{"PUT", "http://a.example/", "A:", -1, "xyz",
			"PUT http://a.example/ HTTP/1.1\r\nHost: a.example\r\nA:\r\n" +
				"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nxyz\r\n"},
		{"POST", "http://a.example/", "", 0, "",
			"POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\n" +
				"Connection: close\r\n\r\n"},
	} {
		h, e := g.open(tt.method, tt.url, tt.headers, tt.length, 0)
		if e != linear.Success || g.write(h, []byte(tt.body)) != linear.Success ||
			g.do("close", h) != linear.Success {
			t.Fatalf("%s: %d %s", tt.url, e, g.text("error"))
		}
		if raw := <-got; raw != tt.want {
			t.Errorf("%q, want %q", raw, tt.want)
		}
	}
}

// T-110: what could be a second request, or another one than it looks, never leaves the guest. No
// stream is opened for it.
func TestBadRequests(t *testing.T) {
	g := newGuest(t, nil)
	for _, tt := range []struct {
		method, url, headers string
		length               int64
	}{
		{"", "http://a/", "", 0}, {"get", "http://a/", "", 0}, {"GET /", "http://a/", "", 0},
		{"G\r\nX", "http://a/", "", 0}, {"CONNECT", "http://a/", "", 0},
		{strings.Repeat("A", 33), "http://a/", "", 0}, {"GET", "", "", 0}, {"GET", "/x", "", 0},
		{"GET", "ftp://a/", "", 0}, {"GET", "http://", "", 0}, {"GET", "http:///x", "", 0},
		{"GET", "http://a/ b", "", 0}, {"GET", "http://a/\r\nX: y", "", 0}, {"GET", "http://a/\x00",
			"", 0}, {"GET", "http://a/\tb", "", 0}, {"GET", "http://a/#f", "", 0},
		{"GET", "http://" + strings.Repeat("a", maxURL), "", 0},
		{"GET", "http://a/", strings.Repeat("A: b\n", maxHeaders/5+1), 0},
		{"GET", "http://a/", "no colon", 0}, {"GET", "http://a/", ": x", 0}, {"GET", "http://a/",
			"a b: c", 0}, {"GET", "http://a/", "A: b\n\nGET", 0}, {"GET", "http://a/", "A: b\rX: y",
			0},
		{"GET", "http://a/", "A: b\x00", 0}, {"GET", "http://a/", "\n", 0},
		{"GET", "http://a/", " A: b", 0}, {"GET", "http://a/", "A\t: b", 0},
		{"POST", "http://a/", "Host: b", 3}, {"POST", "http://a/", "content-length: 9", 3},
		{"POST", "http://a/", "Transfer-Encoding: chunked", 3},
		{"POST", "http://a/", "Connection: x", 3}, {"POST", "http://a/", "Upgrade: websocket", 3},
		{"POST", "http://a/", "EXPECT: 100-continue", 3},
		{"POST", "http://a/", "Proxy-Authorization: x", 3},
		{"POST", "http://a/", "", -2},
	} {
		if h, e := g.open(tt.method, tt.url, tt.headers, tt.length, 0); e != linear.BadArgument {
			t.Errorf("%.40q %.40q %.40q: %d, handle %d", tt.method, tt.url, tt.headers, e, h)
		}
		if said := g.text("error"); said == "" || strings.ContainsAny(said, "\r\n\x00") ||
			len(said) > 2*linear.MaxError {
			t.Errorf("%q", said)
		}
	}
	if len(g.peers) != 0 {
		t.Errorf("%d streams were opened", len(g.peers))
	}
}

// Answers in every framing, read in pieces of every size.
func TestAnswers(t *testing.T) {
	for _, tt := range []struct {
		method, answer string
		code           int
		status         linear.Errno
		head, body     string
		read           linear.Errno
	}{
		{"GET", "HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
			200, 0, "HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 5\r\n", "hello", 0},
		{"GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0A;x=y\r\n" +
			"0123456789\r\n0\r\nT: x\r\n\r\n", 200, 0, "HTTP/1.1 200 OK\r\n", "abc0123456789", 0},
		{"GET", "HTTP/1.1 404 No\r\nX-Jail-Fetch: x\r\n\r\nuntil the end", 404, 0,
			"HTTP/1.1 404 No\r\nX-Jail-Fetch: x\r\n", "until the end", 0},
		{"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", 200, 0,
			"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n", "", 0},
		{"GET", "HTTP/1.1 204 None\r\n\r\n", 204, 0, "HTTP/1.1 204 None\r\n", "", 0},
		{"GET", "HTTP/1.1 103 Hints\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
			200, 0, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n", "", 0},
		{"GET", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", 200, 0,
			"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n", "hello", cutShort},
		{"GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", 200, 0,
			"HTTP/1.1 200 OK\r\n", "hel", cutShort},
		{"GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n", 200, 0,
			"HTTP/1.1 200 OK\r\n", "abc", badAnswer},
		{"GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", 200, 0,
			"HTTP/1.1 200 OK\r\n", "", badAnswer},
		{"GET", "", 0, cutShort, "", "", 0}, {"GET", "HTTP/1.1 200", 0, cutShort, "", "", 0},
		{"GET", "SSH-2.0\r\n", 0, badAnswer, "", "", 0},
		{"GET", "HTTP/1.1 101 Switch\r\n\r\n", 0, badAnswer, "", "", 0},
		{"GET", "HTTP/1.1 +20 X\r\n\r\n", 0, badAnswer, "", "", 0},
		{"GET", "HTTP/1.1 200 OK\nA: b\n\n", 0, badAnswer, "", "", 0},
		{"GET", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", 0, badAnswer, "", "", 0},
		{"GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", 0, badAnswer, "", "", 0},
		{"GET", "HTTP/1.1 200 OK\r\n" + strings.Repeat("A: "+strings.Repeat("b", 1000)+"\r\n",
			600) + "\r\n", 0, badAnswer, "", "", 0},
		{"GET", strings.Repeat("HTTP/1.1 103 Hints\r\n\r\n", 9), 0, badAnswer, "", "", 0},
	} {
		for _, piece := range []uint64{1, 2, 7, 4096} {
			g := newGuest(t, says(tt.answer))
			h, e := g.open(tt.method, "http://a/", "", 0, 0)
			if e != linear.Success {
				t.Fatal(g.text("error"))
			}
			code, e := g.status(h)
			if e != tt.status || e == linear.Success && code != tt.code {
				t.Errorf("%.60q: status %d, error %d %s", tt.answer, code, e, g.text("error"))
			}
			if e != linear.Success {
				continue
			}
			if head := g.text("head", h); head != tt.head {
				t.Errorf("%.60q: head %q", tt.answer, head)
			}
			if body, e := g.body(h, piece); body != tt.body || e != tt.read {
				t.Errorf("%.60q by %d: %q, error %d", tt.answer, piece, body, e)
			}
		}
	}
}

// A large body goes out and a large answer comes in, as long as the other side takes and gives.
func TestLarge(t *testing.T) {
	const size = 16 << 20
	for _, length := range []int64{size, -1} {
		g := newGuest(t, func(c net.Conn) {
			defer c.Close()
			req, err := http.ReadRequest(bufio.NewReader(c))
			if err != nil {
				return
			}
			n, _ := io.Copy(io.Discard, req.Body)
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", n)
			c.Write(bytes.Repeat([]byte("x"), int(n)))
		})
		h, e := g.open("POST", "http://a/", "", length, 0)
		for sent := 0; e == linear.Success && sent < size; sent += 512 << 10 {
			e = g.write(h, make([]byte, 512<<10))
		}
		code, e2 := g.status(h)
		body, e3 := g.body(h, 512<<10)
		if e != linear.Success || e2 != linear.Success || e3 != linear.Success || code != 200 ||
			len(body) != size {
			t.Errorf("length %d: %d %d %d, status %d, %d bytes: %s", length, e, e2, e3, code,
				len(body), g.text("error"))
		}
	}
}

// The order of the calls, and what is wrong with the wrong one.
func TestOrder(t *testing.T) {
	g := newGuest(t, says("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
	h, _ := g.open("POST", "http://a/", "", 5, 0)
	check := func(what string, got, want linear.Errno) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %d, want %d", what, got, want)
		}
	}
	check("head too early", g.do("head", h, 1024, 10, 0), linear.BadArgument)
	check("read too early", g.do("read", h, 1024, 10, 0), linear.BadArgument)
	_, e := g.status(h)
	check("a body is missing", e, linear.BadArgument)
	check("a body too long", g.write(h, []byte("123456")), linear.BadArgument)
	check("a part", g.write(h, []byte("123")), linear.Success)
	check("none", g.write(h, nil), linear.Success)
	check("the rest", g.write(h, []byte("45")), linear.Success)
	for range 2 {
		_, e = g.status(h)
		check("status", e, linear.Success)
	}
	check("a body after the answer", g.write(h, []byte("x")), bodyClosed)
	check("read of nothing", g.do("read", h, 1024, 0, 0), linear.Success)
	body, e := g.body(h, 10)
	if body != "ok" || e != linear.Success {
		t.Errorf("%q %d", body, e)
	}
	check("close", g.do("close", h), linear.Success)
	for _, name := range []string{"close", "status", "head", "read", "write"} {
		check(name+" of a closed request", g.do(name, h, 1024, 10, 0), linear.BadHandle)
	}
	check("made up", g.do("close", 1<<32-1), linear.BadHandle)
	copy(g.mem[1024:], "GEThttp://a/")
	none := New(nil)
	if e := none.Do(Lookup("open"), g.mem,
		[]uint64{1024, 3, 1027, 9, 0, 0, 0, 0, 0}); e != noFetch {
		t.Errorf("without a proxy: %d %s", e, none.last)
	}
	broken := New(func() (*os.File, error) { return nil, errors.New("gone") })
	if e := broken.Do(Lookup("open"), g.mem,
		[]uint64{1024, 3, 1027, 9, 0, 0, 0, 0, 0}); e != noStream {
		t.Errorf("without a proxy: %d", e)
	}
}

// No more requests than there may be, and all of them again.
func TestManyRequests(t *testing.T) {
	g := newGuest(t, nil)
	for range 3 {
		for i := range maxRequests {
			if h, e := g.open("GET", "http://a/", "", 0, 0); e != linear.Success || h != uint64(i) {
				t.Fatalf("%d: handle %d, error %d", i, h, e)
			}
		}
		if _, e := g.open("GET", "http://a/", "", 0, 0); e != linear.TooMany {
			t.Errorf("one more: %d", e)
		}
		for i := range maxRequests {
			g.do("close", uint64(i))
		}
	}
	if len(g.peers) != 3*maxRequests {
		t.Errorf("%d streams", len(g.peers))
	}
}

// A time bounds each wait: for room, for the answer, and for its bytes.
func TestTime(t *testing.T) {
	silent := newGuest(t, nil)
	h, _ := silent.open("GET", "http://a/", "", 0, 50)
	if _, e := silent.status(h); e != timedOut {
		t.Errorf("no answer: %d", e)
	}
	h, _ = silent.open("POST", "http://a/", "", -1, 50)
	var e linear.Errno
	for e == linear.Success {
		e = silent.write(h, make([]byte, 512<<10))
	}
	if e != timedOut {
		t.Errorf("no room: %d", e)
	}
	stuck := newGuest(t, func(c net.Conn) {
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")
	})
	h, _ = stuck.open("GET", "http://a/", "", 0, 300)
	if _, e := stuck.status(h); e == linear.Success {
		if body, e := stuck.body(h, 100); body != "abc" || e != timedOut {
			t.Errorf("no more: %q %d", body, e)
		}
	} else if e != timedOut {
		// A machine so slow that nothing had come.
		t.Errorf("%d", e)
	}
}

// Every function with pointers at and beyond the end of memory: none panics, and none takes a byte
// that it cannot hand over.
func TestPointers(t *testing.T) {
	edges := []uint64{0, 1, 63, 64, 4095, 4096, 1<<31 - 1, 1 << 31, 1<<32 - 8, 1<<32 - 1, 1<<64 - 1}
	for _, size := range []int{0, 64, 4096} {
		g := newGuest(t, says("HTTP/1.1 200 OK\r\n\r\nx"))
		h, _ := g.open("GET", "http://a/", "", 0, 0)
		g.status(h)
		g.mem = make([]byte, size)
		for _, f := range wasi.FetchFunctions {
			for _, x := range edges {
				for _, y := range edges {
					for _, first := range []uint64{0, x} {
						a := []uint64{first, x, y, x, y, x, y, x, y}
						if f.Name == "close" && first == 0 {
							continue
						}
						g.do(f.Name, a...)
					}
				}
			}
		}
	}
	g := newGuest(t, says("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
	h, _ := g.open("GET", "http://a/", "", 0, 0)
	g.status(h)
	if e := g.do("read", h, 1024, 10, uint64(len(g.mem)-3)); e != linear.BadPointer {
		t.Errorf("%d", e)
	}
	if body, _ := g.body(h, 10); body != "ok" {
		t.Errorf("bytes were lost: %q", body)
	}
}

// FuzzFetch makes any calls with any answers.
func FuzzFetch(f *testing.F) {
	f.Add([]byte("\x03\x00\x00\x06\x00\x00\x05\x00\x04\x02\x00\x00"), []byte("GET http://a/ A: b"),
		[]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"))
	f.Add([]byte("\x03\x01\x05\x06\x00\x00\x05\x00\xff\x00\x00\x00"), []byte("POST http://a/ "),
		[]byte("HTTP/1.1 103 X\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab"))
	f.Fuzz(func(t *testing.T, program, memory, answer []byte) {
		g := newGuest(t, func(c net.Conn) {
			c.SetDeadline(time.Now().Add(time.Second))
			c.Write(answer)
			c.Close()
		})
		copy(g.mem, memory)
		method := bytes.IndexByte(memory, ' ')
		for n := 0; len(program) >= 3 && n < 60; n, program = n+1, program[3:] {
			f := wasi.FetchFunctions[int(program[0])%len(wasi.FetchFunctions)]
			x, y := uint64(program[1]), uint64(program[2])
			a := []uint64{x % 3, 512 + x, y * y, 4 * x}
			if f.Name == "open" {
				a = []uint64{0, uint64(max(method, 0)), uint64(method + 1), x, uint64(method+1) + x,
					y, x - 1, 100, 256}
			}
			g.do(f.Name, a...)
		}
	})
}
