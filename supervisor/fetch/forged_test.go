package fetch

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"unicode"

	"github.com/jail-sandbox/jail/supervisor/fetch/fetchtest"
)

// TestForgedRecords: whatever a tool asks for and a host answers, what is put on record is plain
// text of one line, so that it can be taken for nothing else (T-272).
func TestForgedRecords(t *testing.T) {
	w := newWorld(t, anyTo)
	w.names.Set(upName, []string{upIP})
	answer := "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
	fetchtest.StartHost(t, upIP+":80", nil, func(c net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			io.WriteString(c, answer)
		}
	})
	const evil = "\x1b[2J\u202egnp\u0085\u009b\xff"
	plain := func(what string) {
		t.Helper()
		w.proxy.refused.settle()
		intents, ends, refused := w.notes.take()
		text, err := json.Marshal([]any{intents, ends, refused})
		if err != nil {
			t.Fatal(err)
		}
		if len(intents)+len(ends)+len(refused) == 0 {
			t.Errorf("%s: nothing is on record", what)
		}
		var all any
		if err := json.Unmarshal(text, &all); err != nil {
			t.Fatal(err)
		}
		eachText(all, func(s string) {
			if strings.ContainsFunc(s, func(r rune) bool {
				return !unicode.IsPrint(r) || r == unicode.ReplacementChar
			}) {
				t.Errorf("%s: on record is %q", what, s)
			}
		})
	}
	for _, raw := range []string{
		"GET http://up.example.com/" + evil + " HTTP/1.1\r\nHost: up.example.com\r\n\r\n",
		"GET http://up.example.com/%1b%E2%80%AE HTTP/1.1\r\nHost: up.example.com\r\n\r\n",
		"GET http://up.example.com/%E2%80%AE?%1b%0a HTTP/1.1\r\nHost: up.example.com\r\n\r\n",
		"GET http://" + evil + ".example.com/ HTTP/1.1\r\nHost: up.example.com\r\n\r\n",
		"G" + evil + " http://up.example.com/ HTTP/1.1\r\nHost: up.example.com\r\n\r\n",
		firstLines + "X-" + evil + ": a\r\n\r\n",
		firstLines + "X-A: " + evil + "\r\n\r\n",
		firstLines + "Connection: upgrade\r\nUpgrade: " + evil + "\r\n\r\n",
		"GET http://up.example.com/ HTTP/1.1\r\nHost: " + evil + "\r\n\r\n",
	} {
		w.send(raw)
		plain(raw)
	}
	for _, text := range []string{
		evil + " 200 OK\r\n\r\n",
		"HTTP/1.1 " + evil + " OK\r\n\r\n",
		"HTTP/1.1 200 " + evil + "\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 200 OK\r\n" + evil + ": a\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: " + evil + "\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: " + evil + "\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + evil + "\r\n",
		"HTTP/1.1 302 Found\r\nLocation: /\u202e\u0085\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 302 Found\r\nLocation: /%1b%0a\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 302 Found\r\nLocation: http://\u202e\u0085.example.com/\r\nContent-Length: 0\r\n" +
			"\r\n",
		"HTTP/1.1 302 Found\r\nLocation: \u202e:x\r\nContent-Length: 0\r\n\r\n",
	} {
		answer = text
		w.send(firstLines + "\r\n")
		plain(text)
		w.forget()
	}
}

// eachText calls f with every text in a value of JSON.
func eachText(v any, f func(string)) {
	switch v := v.(type) {
	case string:
		f(v)
	case []any:
		for _, e := range v {
			eachText(e, f)
		}
	case map[string]any:
		for _, e := range v {
			eachText(e, f)
		}
	}
}
