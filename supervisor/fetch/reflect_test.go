package fetch

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/supervisor/fetch/fetchtest"
)

// TestReflection: a host that says the credential back, in whatever place of an answer, tells
// neither the tool nor the record (T-262, T-265).
func TestReflection(t *testing.T) {
	w := newWorld(t,
		"[[fetch.allow]]\nhost = \"up.example.com\"\nports = [443]\nmethods = [\"*\"]\n"+
			"paths = [\"/**\"]\ncredential = \"c\"\nwebsocket = true\n",
		func(s *Setup) {
			s.Secrets = map[string]Secret{"c": {Kind: secretBearer, Value: canary, Scrub: true}}
		})
	w.names.Set(upName, []string{upIP})
	answer := ""
	fetchtest.StartHost(t, upIP+":443", w.ca.Config(t, time.Now().Add(time.Hour), upName),
		func(c net.Conn) {
			if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				io.WriteString(c, answer)
			}
		})
	long := strings.Repeat("x", 40<<10)
	encoded := base64.StdEncoding.EncodeToString([]byte(canary))
	for name, text := range map[string]string{
		"the first line": canary + " 200 OK\r\n\r\n",
		"the version":    "HTTP/" + canary + " 200 OK\r\n\r\n",
		"the status":     "HTTP/1.1 " + canary + " OK\r\n\r\n",
		"the reason":     "HTTP/1.1 200 " + canary + "\r\nContent-Length: 0\r\n\r\n",
		"a header": "HTTP/1.1 200 OK\r\nX-A: " + canary +
			"\r\nContent-Length: 0\r\n\r\n",
		"a header in base64": "HTTP/1.1 200 OK\r\nX-A: b=" + encoded +
			"\r\nContent-Length: 0\r\n\r\n",
		"a header in a URL": "HTTP/1.1 200 OK\r\nX-A: b=" + url.QueryEscape(canary) +
			"\r\nContent-Length: 0\r\n\r\n",
		"a header line": "HTTP/1.1 200 OK\r\n" + canary + "\r\n\r\n",
		"a length":      "HTTP/1.1 200 OK\r\nContent-Length: " + canary + "\r\n\r\n",
		"a coding":      "HTTP/1.1 200 OK\r\nTransfer-Encoding: " + canary + "\r\n\r\n",
		"a type": "HTTP/1.1 200 OK\r\nContent-Type: " + canary +
			"\r\nContent-Length: 0\r\n\r\n",
		"a path of a redirect": "HTTP/1.1 302 Found\r\nLocation: /" + canary +
			"\r\nContent-Length: 0\r\n\r\n",
		"an escaped redirect": "HTTP/1.1 302 Found\r\nLocation: /" +
			strings.ReplaceAll(url.PathEscape(canary), "S", "%53") +
			"\r\nContent-Length: 0\r\n\r\n",
		"a host of a redirect": "HTTP/1.1 302 Found\r\nLocation: https://" +
			url.QueryEscape(canary) + ".example.com/\r\nContent-Length: 0\r\n\r\n",
		"a body": fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s",
			len(canary), canary),
		"the end of a long body": fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s%s",
			len(long+canary), long, canary),
		"an unfinished body": fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n%s",
			canary),
		"a size of a chunk": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + canary +
			"\r\n",
		"a trailer": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-T: " +
			canary + "\r\n\r\n",
		"a compressed body": "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n" +
			"\r\nabc",
		"an answer before": "HTTP/1.1 103 Early Hints\r\nLink: " + canary +
			"\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
		"an unasked switch": "HTTP/1.1 101 " + canary + "\r\nUpgrade: " + canary + "\r\n\r\n" +
			canary,
	} {
		answer = text
		out := w.send("GET https://up.example.com/ HTTP/1.1\r\nHost: up.example.com\r\n\r\n")
		if out == "" {
			t.Errorf("%s: no answer", name)
		}
		intents, ends, refused := w.notes.take()
		for what, said := range map[string]string{"the tool": out,
			"the record": fmt.Sprintf("%+v %+v %+v", intents, ends, refused)} {
			for _, form := range w.setup.Secrets["c"].forms() {
				if strings.Contains(said, string(form)) || what == "the record" &&
					strings.Contains(strings.ReplaceAll(said, "%53", "S"), "S3cret") {
					t.Errorf("%s: %s has %q", name, what, said)
				}
			}
		}
		w.forget()
	}
	// Of a websocket nothing is cut out, so it is none that brings such a credential along.
	answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n" + canary
	for _, scrub := range []bool{true, false} {
		s := w.setup.Secrets["c"]
		s.Scrub = scrub
		w.setup.Secrets["c"] = s
		out := w.send(
			"GET https://up.example.com/ HTTP/1.1\r\nHost: up.example.com\r\n" +
				"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" +
				"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
		intents, _, _ := w.notes.take()
		if scrub && (!strings.HasPrefix(out, "HTTP/1.1 403") || !strings.Contains(out,
			"scrub = false") || len(intents) > 0) {
			t.Errorf("a websocket: %q, %+v", out, intents)
		}
		if !scrub && (!strings.HasPrefix(out, "HTTP/1.1 101") || len(intents) != 1) {
			t.Errorf("a websocket that may say it back: %q, %+v", out, intents)
		}
	}
}
