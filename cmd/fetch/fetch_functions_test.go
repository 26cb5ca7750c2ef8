package fetch_test

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/supervisor/fetch/fetchtest"
)

// serveOK answers each request of a connection.
func serveOK(c net.Conn) error {
	r := bufio.NewReader(c)
	for {
		req, err := http.ReadRequest(r)
		if err == nil {
			_, err = io.Copy(io.Discard, req.Body)
		}
		if err == nil {
			_, err = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
		if err != nil {
			return err
		}
	}
}

// functionFraming puts every trick into each argument of the host functions. In a method, a URL or
// a header it is refused; taken apart into what a call is made of, it is refused or is the one
// request that these arguments say; and in a body it is that body, to the byte.
func (w *vectorWorld) functionFraming(t *testing.T, way vectorWay) {
	const up = "http://up.example.com/ok"
	var all []rawSay
	// What the host gets of a call that goes through.
	sent := map[string]string{}
	say := func(name string, s rawSay, want string) {
		s.Name, s.Way = name, way.way
		all = append(all, s)
		sent[name] = want
	}
	// What ends with LF is a line, too.
	lines := strings.NewReplacer("\r\n", "\r\n", "\n", "\r\n")
	for _, name := range slices.Sorted(maps.Keys(fetchtest.Smuggled)) {
		raw := fetchtest.Smuggled[name]
		say(name+" in the method", rawSay{Method: raw, URL: up}, "")
		say(name+" in the URL", rawSay{Method: "GET", URL: up + " HTTP/1.1\r\n" + raw}, "")
		say(name+" in a header", rawSay{Method: "GET", URL: up, Headers: "X-A: 1\r\n\r\n" + raw},
			"")
		whole := fmt.Sprintf(
			"POST /ok HTTP/1.1\r\nHost: up.example.com\r\nContent-Length: %d\r\n\r\n%s", len(raw),
			raw)
		say(name+" as the body",
			rawSay{Method: "POST", URL: up, Body: []byte(raw), Length: int64(len(raw))}, whole)
		say(name+" as chunks", rawSay{Method: "POST", URL: up, Body: []byte(raw), Length: -1},
			whole)
		head, body, _ := strings.Cut(raw, "\r\n\r\n")
		first, headers, _ := strings.Cut(head, "\r\n")
		method, target, _ := strings.Cut(first, " ")
		target, _, _ = strings.Cut(target, " HTTP/")
		if headers = strings.Replace(headers+"\r\n", "Host: up.example.com\r\n", "",
			1); headers == "\r\n" {
			headers = ""
		}
		plain := fmt.Sprintf("%s /ok HTTP/1.1\r\nHost: up.example.com\r\n%s", method,
			lines.Replace(headers))
		if len(body) > 0 || method == "POST" {
			plain += fmt.Sprintf("Content-Length: %d\r\n", len(body))
		}
		say(name+" taken apart", rawSay{Method: method, URL: target, Headers: headers,
			Body: []byte(body), Length: int64(len(body))}, plain+"\r\n"+body)
	}
	if len(all) < 60*6 {
		t.Errorf("only %d calls", len(all))
	}
	w.quiet(t)
	var want strings.Builder
	bodies, apart := 0, 0
	for _, r := range w.hear(t, way.tool, all) {
		switch {
		case r.refused():
		case r.Errno == 0 && strings.HasPrefix(r.First, "HTTP/1.1 200 ") && sent[r.Name] != "":
			want.WriteString(sent[r.Name])
			if strings.HasSuffix(r.Name, "taken apart") {
				apart++
			} else {
				bodies++
			}
		default:
			t.Errorf("%+v", r)
		}
	}
	if got, _, _ := w.up.Took(); string(got) != want.String() {
		at := 0
		for at < min(len(got), want.Len()) && got[at] == want.String()[at] {
			at++
		}
		from := max(at-200, 0)
		t.Errorf("the host was sent, from byte %d on, %.400q\nwant %.400q", from, got[from:],
			want.String()[from:])
	}
	if bodies != 2*len(fetchtest.Smuggled) || apart == 0 || apart > 10 {
		t.Errorf("%d bodies arrived, and %d tricks taken apart", bodies, apart)
	}
	w.quiet(t)
}
