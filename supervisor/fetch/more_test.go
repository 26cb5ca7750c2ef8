package fetch

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/supervisor/fetch/fetchtest"
)

// TestTunnel: a tunnel is for the host that it was asked for, in TLS, where a rule lets it pass
// unseen (T-236, T-238, T-241).
func TestTunnel(t *testing.T) {
	w := newWorld(t,
		"[[fetch.allow]]\nhost = \"*.example.com\"\nports = [443]\nmethods = [\"*\"]\n"+
			"paths = [\"/**\"]\ntls = \"opaque\"\n"+
			"[[fetch.allow]]\nhost = \"*.example.org\"\nports = [443]\nmethods = [\"GET\"]\n"+
			"paths = [\"/**\"]\ntls = \"opaque\"\n"+
			"[[fetch.deny]]\nhost = \"part.example.com\"\npaths = [\"/secret/**\"]\n")
	for _, name := range []string{upName, "up.example.org", "part.example.com"} {
		w.names.Set(name, []string{upIP})
	}
	config := w.ca.Config(t, time.Now().Add(time.Hour), upName)
	up := fetchtest.StartHost(t, upIP+":443", config, says("inside"))
	connect := func(authority string) (net.Conn, string) {
		conn := w.stream()
		fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", authority, authority)
		// the rest of the head is an empty line
		line, err := bufio.NewReaderSize(conn, 16).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, make([]byte, 0)); err != nil {
			t.Fatal(err)
		}
		return conn, line
	}
	for _, authority := range []string{"up.example.org:443", "part.example.com:443",
		"up.example.com:80", "other.test:443"} {
		if _, line := connect(authority); !strings.Contains(line, " 403 ") {
			t.Errorf("CONNECT %s: %q", authority, line)
		}
	}
	if _, _, n := up.Took(); n > 0 {
		t.Error("a refused tunnel was dialled")
	}
	client := func(sni string, first []byte) (string, error) {
		conn := w.stream()
		fmt.Fprintf(conn, "CONNECT up.example.com:443 HTTP/1.1\r\nHost: up.example.com:443\r\n\r\n")
		r := bufio.NewReader(conn)
		resp, err := http.ReadResponse(r, &http.Request{Method: "CONNECT"})
		if err != nil || resp.StatusCode != 200 {
			return "", fmt.Errorf("%v, %v", resp, err)
		}
		if first != nil {
			if _, err := conn.Write(first); err != nil {
				return "", err
			}
			out, err := io.ReadAll(r)
			return string(out), err
		}
		c := tls.Client(conn, &tls.Config{ServerName: sni, InsecureSkipVerify: true})
		if err := c.Handshake(); err != nil {
			return "", err
		}
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: up.example.com\r\nConnection: close\r\n\r\n")
		got, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return "", err
		}
		body, err := io.ReadAll(got.Body)
		return string(body), err
	}
	if body, err := client(upName, nil); err != nil || body != "inside" {
		t.Errorf("%q, %v", body, err)
	}
	up.Took()
	for name, c := range map[string]struct {
		sni   string
		first []byte
	}{
		"another name":    {sni: "evil.example.com"},
		"no name":         {sni: ""},
		"an address":      {sni: "93.184.216.34"},
		"plain HTTP":      {first: []byte("GET / HTTP/1.1\r\nHost: up.example.com\r\n\r\n")},
		"SSH":             {first: []byte("SSH-2.0-OpenSSH_9.2\r\n")},
		"another CONNECT": {first: []byte("CONNECT evil.example.com:443 HTTP/1.1\r\n\r\n")},
		"a short record":  {first: []byte{22, 3, 1, 0, 1, 1}},
		"an alert":        {first: []byte{21, 3, 1, 0, 2, 2, 40}},
		"half a greeting": {first: append([]byte{22, 3, 1, 0, 200, 1, 0, 1, 0},
			make([]byte, 196)...)},
		"an endless record": {first: append([]byte{22, 3, 1, 0xff, 0xff}, make([]byte, 1<<16)...)},
	} {
		if out, err := client(c.sni, c.first); err == nil && out != "" {
			t.Errorf("%s: %q came back", name, out)
		}
		if got, _, _ := up.Took(); len(got) > 0 {
			t.Errorf("%s: the host was sent %q", name, got)
		}
	}
}

// TestWebSocket: only where it is granted, and only with a host that agrees as it must (T-242,
// T-243).
func TestWebSocket(t *testing.T) {
	w := newWorld(t,
		"[[fetch.allow]]\nhost = \"up.example.com\"\nports = [80]\nmethods = [\"GET\"]\n"+
			"paths = [\"/**\"]\nwebsocket = true\n")
	w.names.Set(upName, []string{upIP})
	const key = "dGhlIHNhbXBsZSBub25jZQ=="
	agree, echoes := true, 0
	up := fetchtest.StartHost(t, upIP+":80", nil, func(c net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
			return
		}
		sum := sha1.Sum([]byte(key + webSocketGUID))
		accept := base64.StdEncoding.EncodeToString(sum[:])
		if !agree {
			accept = "x"
		}
		fmt.Fprintf(c,
			"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
				"Sec-WebSocket-Accept: %s\r\n\r\n", accept)
		buf := make([]byte, 4)
		if _, err := io.ReadFull(c, buf); err == nil {
			fmt.Fprintf(c, "echo %s%s", strings.Repeat(" ", echoes), buf)
		}
	})
	ask := "GET http://up.example.com/ws HTTP/1.1\r\nHost: up.example.com\r\n" +
		"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" +
		"Sec-WebSocket-Key: " + key + "\r\n\r\n"
	if out := w.send(ask + "ping"); !strings.HasPrefix(out, "HTTP/1.1 101") ||
		!strings.HasSuffix(out, "echo ping") {
		t.Errorf("%q", out)
	}
	if got, _, _ := up.Took(); !bytes.HasSuffix(got,
		[]byte("Connection: Upgrade\r\nUpgrade: websocket\r\n\r\nping")) {
		t.Errorf("the host was sent %q", got)
	}
	if intents, ends, _ := w.notes.take(); len(intents) != 1 || intents[0].Kind != kindWebSocket ||
		len(ends) != 1 || ends[0].Status != 101 || ends[0].BytesOut < int64(len("ping")) ||
		ends[0].BytesIn < int64(len("echo ping")) {
		t.Errorf("on record is %+v %+v", intents, ends)
	}
	echoes = 1000
	// The head of the answer, and not all that follows.
	w.proxy.budgets.run.bounds.BytesIn = w.proxy.budgets.run.in + 500
	if out := w.send(ask + "ping"); !strings.HasPrefix(out, "HTTP/1.1 101") ||
		strings.HasSuffix(out, "ping") {
		t.Errorf("beyond its bytes: %q", out)
	}
	if _, ends, refused := w.notes.take(); len(ends) != 1 || !ends[0].Truncated ||
		len(refused) != 1 || !strings.Contains(refused[0].Rule, "bytes_in") {
		t.Errorf("beyond its bytes on record is %+v %+v", ends, refused)
	}
	w.proxy.budgets.run.bounds.BytesIn = 64 << 20
	agree = false
	if out := w.send(ask + "ping"); !strings.HasPrefix(out, "HTTP/1.1 502") {
		t.Errorf("a host that does not agree: %q", out)
	}
	// An upgrade that nobody asked for is no answer.
	if out := w.send(strings.ReplaceAll(ask, "Connection: Upgrade\r\nUpgrade: websocket\r\n",
		"")); !strings.HasPrefix(out, "HTTP/1.1 502") {
		t.Errorf("an unasked switch: %q", out)
	}
}

const canary = "c4n4ry-S3cret+/=value"

// TestCredentials: attached where it was decided and verified, and nowhere else; not read, chosen,
// overridden or reflected (T-260 to T-263, T-267).
func TestCredentials(t *testing.T) {
	for kind, c := range map[string]struct {
		secret Secret
		sent   string
	}{
		"bearer": {Secret{Kind: secretBearer, Value: canary, Scrub: true},
			"Authorization: Bearer " + canary + "\r\n"},
		"basic": {Secret{Kind: secretBasic, User: "u", Value: canary, Scrub: true},
			"Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("u:"+canary))},
		"header": {Secret{Kind: secretHeader, Name: "X-Api-Key", Value: canary, Scrub: true},
			"X-Api-Key: " + canary + "\r\n"},
		"query": {Secret{Kind: secretQuery, Name: "key", Value: canary, Scrub: true},
			"GET /a?b=c&key=c4n4ry-S3cret%2B%2F%3Dvalue HTTP/1.1"},
		"sigv4": {Secret{Kind: secretSigV4, User: "AKIDEXAMPLE", Value: canary, Region: "r",
			Service: "s", Scrub: true}, "Authorization: AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/"},
	} {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t,
				"[[fetch.allow]]\nhost = \"up.example.com\"\nports = [80, 443]\n"+
					"methods = [\"GET\"]\npaths = [\"/a\"]\ncredential = \"c\"\n"+
					"[[fetch.allow]]\nhost = \"*.example.com\"\nports = [80, 443]\n"+
					"methods = [\"GET\"]\npaths = [\"/**\"]\ncredential = \"\"\n",
				func(s *Setup) { s.Secrets = map[string]Secret{"c": c.secret} })
			w.names.Set(upName, []string{upIP})
			w.names.Set("evil.example.com", []string{upIP})
			config := w.ca.Config(t, time.Now().Add(time.Hour), upName, "evil.example.com")
			var got bytes.Buffer
			echo := plain(func(wr io.Writer, r *http.Request, _ string) {
				fmt.Fprintf(&got, "%s %s HTTP/1.1\r\n", r.Method, r.RequestURI)
				_ = r.Header.Write(&got)
				body := fmt.Sprintf("%s %v %s", r.RequestURI, r.Header,
					base64.StdEncoding.EncodeToString([]byte(canary)))
				fmt.Fprintf(wr,
					"HTTP/1.1 302 Found\r\nLocation: https://evil.example.com%s\r\nX-Echo: %s\r\n"+
						"Set-Cookie: token=x\r\nTransfer-Encoding: chunked\r\n\r\n", r.RequestURI, r.Header.Get(
						"Authorization"))
				// in single bytes, so that no piece holds a secret
				for i := range len(body) {
					fmt.Fprintf(wr, "1\r\n%s\r\n", body[i:i+1])
				}
				io.WriteString(wr, "0\r\n\r\n")
			})
			up := fetchtest.StartHost(t, upIP+":443", config, echo)
			clear80 := fetchtest.StartHost(t, upIP+":80", nil, echo)
			out := w.send(
				"GET https://up.example.com/a?b=c HTTP/1.1\r\nHost: up.example.com\r\n" +
					"Authorization: Bearer mine\r\nX-Api-Key: mine\r\nCookie: mine=1\r\n" +
					"Connection: Authorization, X-Api-Key, close\r\nX-Amz-Date: mine\r\n\r\n")
			if !strings.Contains(got.String(), c.sent) ||
				strings.Contains(strings.ReplaceAll(got.String(), "X-Amz-Date: mine", ""),
					"mine") || kind == "sigv4" && strings.Contains(got.String(), "mine") {
				t.Errorf("the host was sent %q", got.String())
			}
			if !strings.HasPrefix(out, "HTTP/1.1 302") || strings.Contains(out, "Set-Cookie") {
				t.Errorf("answered %q", out)
			}
			for _, form := range c.secret.forms() {
				if strings.Contains(out, string(form)) {
					t.Errorf("the tool reads %q", out)
				}
			}
			intents, ends, _ := w.notes.take()
			if len(intents) != 1 || intents[0].Credential != "c" || len(ends) != 1 ||
				!ends[0].Scrubbed {
				t.Errorf("%+v %+v", intents, ends)
			}
			if text := fmt.Sprintf("%+v %+v", intents, ends); strings.Contains(text, canary) ||
				strings.Contains(text, "key=") {
				t.Errorf("the record holds it: %s", text)
			}
			up.Took()
			// Neither without TLS, nor to another host, path or method.
			if status, body := w.get("http://up.example.com/a"); status != 403 ||
				!strings.Contains(body, "without TLS") {
				t.Errorf("without TLS: %d %s", status, body)
			}
			if sent, _, n := clear80.Took(); n > 0 {
				t.Errorf("without TLS the host was sent %q", sent)
			}
			got.Reset()
			for _, url := range []string{"https://up.example.com/other",
				"https://evil.example.com/a"} {
				w.get(url, "Connection: close")
			}
			if strings.Contains(got.String(), canary) || strings.Contains(got.String(),
				"Authorization") || strings.Contains(got.String(), "key=") {
				t.Errorf("elsewhere the host was sent %q", got.String())
			}
			if kind == "query" {
				for _, query := range []string{"x=1&%6bey=mine", "x=1;key=mine", "KEY=mine;x=1"} {
					if status, _ := w.get("https://up.example.com/a?" + query); status != 400 {
						t.Errorf("%s, a parameter of the tool's own: %d", query, status)
					}
				}
			}
			if kind == "header" {
				got.Reset()
				w.get("https://up.example.com/a", "X_Api_Key: mine", "x-api_key: mine",
					"Connection: close")
				if !strings.Contains(got.String(), c.sent) || strings.Contains(got.String(),
					"mine") {
					t.Errorf("beside names that are read alike the host was sent %q", got.String())
				}
			}
		})
	}
}

// TestBounds: what a rule and a run may use, each with the answer that says so (T-248, T-274).
func TestBounds(t *testing.T) {
	rule := "[[fetch.allow]]\nhost = \"up.example.com\"\nports = [80]\nmethods = [\"*\"]\n" +
		"paths = [\"/**\"]\n"
	answer := "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n" +
		"Content-Length: 100\r\n\r\n" + strings.Repeat("x", 100)
	chunk := "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n" +
		strings.Repeat("64\r\n"+strings.Repeat("y", 100)+"\r\n", 20) + "0\r\n\r\n"
	for name, c := range map[string]struct {
		policy, url, body, answer string
		status                    int
		says                      string
	}{
		"all is well": {rule, "/", "", answer, 200, "xxx"},
		"a type that is let through": {rule + "types = [\"text/*\"]\n", "/", "", answer, 200,
			"xxx"},
		"a type that is not": {rule + "types = [\"application/json\"]\n", "/", "", answer,
			403, "text/html"},
		"no type": {rule + "types = [\"text/*\"]\n", "/", "",
			"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", 403, "types"},
		"an answer of known length": {rule + "response_size = \"99B\"\n", "/", "", answer, 502,
			"100 bytes"},
		"an answer of unknown length": {rule + "response_size = \"1000B\"\n", "/", "", chunk, 200,
			"(unexpected EOF)"},
		"a body that is too large": {rule + "request_size = \"3B\"\n", "/", "four", answer, 413,
			"3 bytes"},
		"bytes in": {rule + strings.Replace(limits, "bytes_in = \"64MiB\"",
			"bytes_in = \"1KiB\"", 1), "/", "", chunk, 403, "bytes_in"},
		"bytes out": {rule + strings.Replace(limits, "bytes_out = \"64MiB\"",
			"bytes_out = \"50B\"", 1), "/", "much that is more than that", answer, 403,
			"bytes_out"},
		"a time that is over": {rule + "timeout = \"300ms\"\n", "/", "", "", 504, "300ms"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.policy)
			w.names.Set(upName, []string{upIP})
			release := make(chan struct{})
			up := fetchtest.StartHost(t, upIP+":80", nil, plain(func(wr io.Writer, _ *http.Request,
				_ string) {
				if c.answer == "" {
					<-release
				}
				io.WriteString(wr, c.answer)
			}))
			method := "GET"
			if c.body != "" {
				method = "POST"
			}
			status, body := w.ask(method, "http://up.example.com"+c.url, c.body)
			close(release)
			if name == "bytes in" && status == 200 && strings.Contains(body, "(unexpected EOF)") {
				// the head came in a piece of its own
				return
			}
			if status != c.status || !strings.Contains(body, c.says) {
				t.Errorf("%d %.300q, want %d and %q", status, body, c.status, c.says)
			}
			if got, _, _ := up.Took(); name == "bytes out" && len(got) > 0 {
				t.Errorf("the host was sent %q", got)
			}
		})
	}
	w := newWorld(t, rule+"requests = 2\n")
	w.names.Set(upName, []string{upIP})
	fetchtest.StartHost(t, upIP+":80", nil, says("hi"))
	for i, want := range []int{200, 200, 403} {
		if status, body := w.get("http://up.example.com/"); status != want {
			t.Errorf("request %d: %d %s", i, status, body)
		}
	}
}

// TestLyingHosts: whatever a host answers, the tool gets one answer that is whole or shows that it
// is not (T-248).
func TestLyingHosts(t *testing.T) {
	w := newWorld(t, anyTo+limits)
	w.names.Set(upName, []string{upIP})
	answer := ""
	fetchtest.StartHost(t, upIP+":80", nil, func(c net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			io.WriteString(c, answer)
		}
	})
	endless := "HTTP/1.1 200 OK\r\n" + strings.Repeat("X-A: "+strings.Repeat("b", 1000)+"\r\n", 400)
	for name, c := range map[string]struct {
		answer, want string
	}{
		"splitting": {
			"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhiHTTP/1.1 200 OK\r\n" +
				"Content-Length: 4\r\n\r\nevil", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"},
		"no answer":    {"", "HTTP/1.1 502"},
		"nonsense":     {"SSH-2.0\r\n\r\n", "HTTP/1.1 502"},
		"endless head": {endless, "HTTP/1.1 502"},
		"many 1xx": {strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", 100),
			"HTTP/1.1 502"},
		"some 1xx": {strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 3) +
			"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
			"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"},
		"CL and TE": {
			"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n" +
				"0\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n" +
				"0\r\n\r\n"},
		"two lengths": {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nhi",
			"HTTP/1.1 502"},
		"a short body": {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhi",
			"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhi"},
		"no length": {"HTTP/1.1 200 OK\r\n\r\nhi",
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"},
		"controls": {"HTTP/1.1 200 OK\r\nX-A: \x1b[2J\r\nContent-Length: 2\r\n\r\nhi",
			"HTTP/1.1 502"},
		"hop by hop": {
			"HTTP/1.1 200 OK\r\nConnection: X-A\r\nX-A: 1\r\nAlt-Svc: h3\r\nUpgrade: h2c\r\n" +
				"Keep-Alive: 1\r\nContent-Length: 2\r\n\r\nhi", "HTTP/1.1 200 OK\r\n" +
				"Content-Length: 2\r\n\r\nhi"},
		"a redirect": {
			"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1/x?token=y\r\n" +
				"Content-Length: 0\r\n\r\n", "HTTP/1.1 307 Temporary Redirect\r\n" +
				"Location: http://127.0.0.1/x?token=y\r\nContent-Length: 0\r\n\r\n"},
		"a reason of ours": {"HTTP/1.1 200 \x1b]0;x\r\nContent-Length: 2\r\n\r\nhi",
			"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"},
	} {
		answer = c.answer
		out := w.send(firstLines + "\r\n")
		if out != c.want && (len(c.want) > 12 || !strings.HasPrefix(out, c.want)) {
			t.Errorf("%s: %q, want %q", name, out, c.want)
		}
		w.forget()
		_, ends, _ := w.notes.take()
		if name == "a short body" && (len(ends) != 1 || !ends[0].Truncated) ||
			name == "a redirect" && (len(ends) != 1 || ends[0].Redirect != "http://127.0.0.1/x") {
			t.Errorf("%s: on record is %+v", name, ends)
		}
	}
}

// TestReport: what no rule grants is sent and said, but not past the ceiling, a rule that denies,
// or the floor.
func TestReport(t *testing.T) {
	w := newWorld(t, "[fetch]\nmode = \"report\"\n"+anyTo+
		"[[fetch.deny]]\nhost = \"denied.example.org\"\n")
	for name, addr := range map[string]string{upName: upIP, "up.example.org": upIP,
		"denied.example.org": upIP, "floor.example.org": "10.1.2.3"} {
		w.names.Set(name, []string{addr})
	}
	fetchtest.StartHost(t, upIP+":80", nil, says("hi"))
	for url, want := range map[string]int{"http://up.example.com/": 200,
		"http://up.example.org/": 200, "http://denied.example.org/": 403,
		"http://floor.example.org/": 403} {
		if status, body := w.get(url); status != want {
			t.Errorf("%s: %d %s", url, status, body)
		}
	}
	intents, _, _ := w.notes.take()
	seen := map[string]string{}
	for _, i := range intents {
		seen[i.Host] = i.Decision
	}
	if seen[upName] != Allowed || seen["up.example.org"] != Reported || len(seen) != 2 {
		t.Errorf("%v", seen)
	}
	enforced := newWorld(t, "[fetch]\nmode = \"report\"\n"+anyTo,
		func(s *Setup) { s.Layers[0].Fetch.Mode = 0 })
	if status, _ := enforced.get("http://up.example.org/"); status != 403 {
		t.Errorf("a ceiling that enforces: %d", status)
	}
}
