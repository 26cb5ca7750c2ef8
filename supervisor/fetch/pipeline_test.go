package fetch

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/supervisor/fetch/fetchtest"
)

const (
	firstLines = "GET http://up.example.com/ok HTTP/1.1\r\nHost: up.example.com\r\n"
	postLines  = "POST http://up.example.com/ok HTTP/1.1\r\nHost: up.example.com\r\n"
)

var statusLine = regexp.MustCompile(`HTTP/1\.1 \d{3} `)

// TestSmuggling: not one byte of them reaches the host, and what follows them on the stream is not
// taken for a request (T-237, T-239, T-245, T-246).
func TestSmuggling(t *testing.T) {
	w := newWorld(t, anyTo)
	w.names.Set(upName, []string{upIP})
	up := fetchtest.StartHost(t, upIP+":80", nil, says("hi"))
	secure := fetchtest.StartHost(t, upIP+":443", nil, says("hi"))
	if len(fetchtest.Smuggled) < 60 {
		t.Errorf("only %d payloads", len(fetchtest.Smuggled))
	}
	for name, raw := range fetchtest.Smuggled {
		if !strings.HasPrefix(name, "an unfinished") {
			raw += firstLines + "\r\n"
		}
		out := w.send(raw)
		if !strings.HasPrefix(out, "HTTP/1.1 4") || len(statusLine.FindAllString(out, -1)) != 1 {
			t.Errorf("%s: answered %q", name, out)
		}
		if got, _, _ := up.Took(); len(got) > 0 {
			t.Errorf("%s: the host was sent %q", name, got)
		}
		if got, _, n := secure.Took(); len(got) > 0 || n > 0 {
			t.Errorf("%s: the host was sent %q over TLS", name, got)
		}
	}
	if intents, _, _ := w.notes.take(); len(intents) > 0 {
		t.Errorf("intents: %+v", intents)
	}
	// The control: the same lines without the trick arrive, once, in the form that was decided.
	if status, body := w.get("http://up.example.com/ok"); status != 200 || body != "hi" {
		t.Fatalf("%d %q", status, body)
	}
	if got, _, _ := up.Took(); string(got) != "GET /ok HTTP/1.1\r\nHost: up.example.com\r\n\r\n" {
		t.Errorf("the host was sent %q", got)
	}
}

// TestSent: what is sent is what was decided, and nothing that belongs to the connection or
// overrides it (T-227, T-244).
func TestSent(t *testing.T) {
	w := newWorld(t, anyTo)
	w.names.Set(upName, []string{upIP})
	up := fetchtest.StartHost(t, upIP+":80", nil, says("hi"))
	w.ask("POST", "http://UP.example.com./a%41/%c3%a4?x=1", "body",
		"Connection: X-Drop, keep-alive", "X-Drop: 1", "Proxy-Connection: X-Too", "X-Too: 1",
		"Proxy-Authorization: Basic eA==", "X-HTTP-Method-Override: DELETE",
		"X-Original-URL: /secret", "X-Forwarded-Host: evil.example",
		"X_HTTP_Method_Override: DELETE", "X_Original-URL: /secret", "x_forwarded_for: 10.0.0.1",
		"TE: trailers",
		"Keep-Alive: 5", "Accept: */*", "Authorization: Bearer mine")
	got, _, _ := up.Took()
	want := "POST /aA/%C3%A4?x=1 HTTP/1.1\r\nHost: up.example.com\r\nAccept: */*\r\n" +
		"Authorization: Bearer mine\r\nContent-Length: 4\r\n\r\nbody"
	if string(got) != want {
		t.Errorf("the host was sent %q, want %q", got, want)
	}
	big := strings.Repeat("x", 3*wholeBody)
	for _, c := range []struct{ lines, body string }{
		{fmt.Sprintf("Content-Length: %d\r\n", len(big)), big},
		{"Transfer-Encoding: chunked\r\n", fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(big), big)},
		{"Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n0\r\n\r\n"},
		{"Expect: 100-continue\r\nContent-Length: 3\r\n", "abc"},
	} {
		if out := w.send(postLines + c.lines + "\r\n" + c.body); !strings.Contains(out,
			"HTTP/1.1 200") {
			t.Errorf("%s: %.200q", c.lines, out)
		}
		got, _, _ := up.Took()
		req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(got)))
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(req.Body); err != nil || len(body) != 3 &&
			len(body) != len(big) || len(req.TransferEncoding) > 0 && len(body) == 3 {
			t.Errorf("%s: the host reads %d bytes, %v, %v", c.lines, len(body),
				req.TransferEncoding, err)
		}
	}
}

// TestPipelined: each request of a stream is decided anew, and a refusal ends the stream (T-240).
func TestPipelined(t *testing.T) {
	w := newWorld(t,
		"[[fetch.allow]]\nhost = \"up.example.com\"\nports = [80]\nmethods = [\"GET\"]\n"+
			"paths = [\"/ok/**\"]\n")
	w.names.Set(upName, []string{upIP})
	w.names.Set("evil.example.com", []string{upIP})
	up := fetchtest.StartHost(t, upIP+":80", nil, says("hi"))
	one := "GET http://up.example.com/ok/%d HTTP/1.1\r\nHost: up.example.com\r\n\r\n"
	for _, second := range []string{
		"GET http://evil.example.com/ok/ HTTP/1.1\r\nHost: evil.example.com\r\n\r\n",
		"GET http://up.example.com/no HTTP/1.1\r\nHost: up.example.com\r\n\r\n",
		"DELETE http://up.example.com/ok/ HTTP/1.1\r\nHost: up.example.com\r\n\r\n"} {
		out := w.send(fmt.Sprintf(one, 1) + fmt.Sprintf(one, 2) + second + fmt.Sprintf(one, 3))
		if strings.Count(out, "HTTP/1.1 200") != 2 || strings.Count(out, "HTTP/1.1 403") != 1 {
			t.Errorf("%q: %q", second, out)
		}
		if got, _, _ := up.Took(); bytes.Count(got, []byte("GET ")) != 2 || bytes.Contains(got,
			[]byte("evil")) || bytes.Contains(got, []byte("/no")) {
			t.Errorf("the host was sent %q", got)
		}
	}
	if asked := w.names.Asked(); slices.Contains(asked, "evil.example.com.") {
		t.Error("a name that no rule grants was asked for") // T-212
	}
}

// TestAddresses: one address of the floor refuses them all, one lookup serves one request, and what
// is dialled is what was checked (T-203, T-205, T-207 to T-209, T-231).
func TestAddresses(t *testing.T) {
	w := newWorld(t, anyTo)
	var judges []*fetchtest.Host
	for _, addr := range []string{"10.1.2.3:80", "169.254.169.254:80", "168.63.129.16:80",
		"127.0.0.1:80", fetchtest.Own + ":80", "100.100.100.200:80", "[::1]:80"} {
		judges = append(judges, fetchtest.StartHost(t, addr, nil, says("secret")))
	}
	up := fetchtest.StartHost(t, upIP+":80", nil, says("hi"))
	fetchtest.StartHost(t, "[2606:2800::5]:80", nil, says("six"))
	for i, answers := range [][]string{
		{"127.0.0.1"}, {"10.1.2.3"}, {"169.254.169.254"}, {"168.63.129.16"}, {"100.100.100.200"},
		{"::1"}, {"::ffff:127.0.0.1"}, {"64:ff9b::7f00:1"},
		{"2002:7f00:1::"}, {fetchtest.Own}, {upIP, "10.1.2.3"}, {"10.1.2.3", upIP}, {upIP, "::1"},
		{"2606:2800::5", "fd00:ec2::254"}, {"0.0.0.0"}, {"::"},
	} {
		name := fmt.Sprintf("n%d.example.com", i)
		w.names.Set(name, answers)
		if status, body := w.get("http://" + name + "/"); status != 403 || !strings.Contains(body,
			codeFloor) {
			t.Errorf("%v: %d %s", answers, status, body)
		}
	}
	for _, j := range judges {
		if got, _, n := j.Took(); n > 0 {
			t.Errorf("%s was dialled and sent %q", j.Addr, got)
		}
	}
	w.names.Set("six.example.com", []string{"2606:2800::5"})
	if status, body := w.get("http://six.example.com/"); status != 200 || body != "six" {
		t.Errorf("IPv6: %d %s", status, body)
	}
	w.names.Set("rebind.example.com", []string{upIP}, []string{"127.0.0.1"})
	w.names.Asked()
	if status, _ := w.get("http://rebind.example.com/", "Connection: close"); status != 200 {
		t.Errorf("first: %d", status)
	}
	if asked := w.names.Asked(); len(asked) != 1 {
		t.Errorf("one request asked for %v", asked)
	}
	w.forget()
	if status, _ := w.get("http://rebind.example.com/"); status != 403 {
		t.Errorf("second: %d", status)
	}
	many := make([]string, maxAddresses+1)
	for i := range many {
		many[i] = fmt.Sprintf("93.184.216.%d", i+1)
	}
	w.names.Set("many.example.com", many)
	for _, url := range []string{"http://many.example.com/", "http://none.example.com/",
		"http://empty.example.com/"} {
		w.names.Set("empty.example.com", []string{})
		if status, body := w.get(url); status != 502 {
			t.Errorf("%s: %d %s", url, status, body)
		}
	}
	for _, url := range []string{"http://localhost/", "http://metadata.google.internal/",
		"http://93.184.216.34/", "http://up.example.org/"} {
		w.names.Asked()
		if status, _ := w.get(url); status != 403 && status != 400 {
			t.Errorf("%s: %d", url, status)
		}
		if asked := w.names.Asked(); len(asked) > 0 {
			t.Errorf("%s: asked for %v", url, asked)
		}
	}
	if got, _, _ := up.Took(); !bytes.Contains(got, []byte("Host: rebind.example.com")) {
		t.Errorf("the host was sent %q", got)
	}
}

// TestRecords: the intent is there before the first byte, the outcome after it, and the bytes are
// those of the wire; neither headers nor the words of a query are in them (T-270, T-271, T-273).
func TestRecords(t *testing.T) {
	w := newWorld(t, anyTo)
	w.names.Set(upName, []string{upIP})
	up := fetchtest.StartHost(t, upIP+":443", w.ca.Config(t, time.Now().Add(time.Hour), upName),
		says("hello"))
	if status, body := w.get("https://up.example.com/a?token=s3cr3t", "Connection: close",
		"Authorization: Bearer s3cr3t", "Cookie: a=s3cr3t", "X-Token: s3cr3t"); status != 200 ||
		body != "hello" {
		t.Fatalf("%d %s", status, body)
	}
	w.forget()
	intents, ends, refused := w.notes.take()
	if len(intents) != 1 || len(ends) != 1 || len(refused) != 0 {
		t.Fatalf("%d intents, %d outcomes, %d refusals", len(intents), len(ends), len(refused))
	}
	if said := fmt.Sprintf("%+v %+v", intents, ends); strings.Contains(said, "s3cr3t") {
		t.Errorf("on record is %s", said)
	}
	i, o := intents[0], ends[0]
	if i.Decision != Allowed || i.Host != upName || i.Port != 443 || i.Path != "/a" ||
		!strings.HasPrefix(i.Query, "sha256:") || i.Layer != "profile test" {
		t.Errorf("%+v", i)
	}
	if o.Status != 200 || o.Version != "TLS 1.3" || !strings.HasPrefix(o.Peer, "sha256:") ||
		o.Address != upIP+":443" || o.Total <= 0 {
		t.Errorf("%+v", o)
	}
	got, wrote, _ := up.Took()
	if o.BytesOut != int64(len(got)) || o.BytesIn > wrote || o.BytesIn < wrote-4096 {
		t.Errorf("out %d, the host had %d; in %d, the host sent %d", o.BytesOut, len(got),
			o.BytesIn, wrote)
	}
	// What cannot be recorded is not sent.
	w.notes.fail = io.ErrShortWrite
	if status, _ := w.get("https://up.example.com/"); status != 503 {
		t.Errorf("without a record: %d", status)
	}
	if got, _, n := up.Took(); n > 0 {
		t.Errorf("without a record the host was sent %q", got)
	}
}

// TestTLS: a host is who it was decided that it is, by the operator's roots (T-252).
func TestTLS(t *testing.T) {
	w := newWorld(t, anyTo)
	other := fetchtest.NewAuthority(t)
	soon := time.Now().Add(time.Hour)
	for n, c := range map[string]struct {
		start func() *fetchtest.Host
		want  int
	}{
		"93.184.216.41": {func() *fetchtest.Host {
			return fetchtest.StartHost(t, "93.184.216.41:443", w.ca.Config(t, soon, upName),
				says("x"))
		}, 200},
		"93.184.216.42": {func() *fetchtest.Host {
			return fetchtest.StartHost(t, "93.184.216.42:443",
				w.ca.Config(t, time.Now().Add(-time.Hour), upName), says("x"))
		}, 502},
		"93.184.216.43": {func() *fetchtest.Host {
			return fetchtest.StartHost(t, "93.184.216.43:443", other.Config(t, soon, upName),
				says("x"))
		}, 502},
		"93.184.216.44": {func() *fetchtest.Host {
			return fetchtest.StartHost(t, "93.184.216.44:443",
				w.ca.Config(t, soon, "other.example.com"), says("x"))
		}, 502},
		"93.184.216.45": {func() *fetchtest.Host {
			return fetchtest.StartHost(t, "93.184.216.45:443", nil, says("x"))
		}, 502},
	} {
		c.start()
		w.names.Set(upName, []string{n})
		for _, url := range []string{"https://up.example.com/", "http://up.example.com:443/"} {
			if status, body := w.get(url); status != c.want {
				t.Errorf("%s %s: %d %s", n, url, status, body)
			}
		}
		w.forget()
	}
}
