package fetch

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/supervisor/fetch/fetchtest"
)

// holds holds POSTs to every host back, and everything to no.example.com.
const holds = anyTo + `
[[approve]]
action = "fetch"
methods = ["POST"]
mode = "ask"
[[approve]]
action = "fetch"
host = "no.example.com"
mode = "never"
`

// An askedNotes decides as the test says.
type askedNotes struct {
	notes
	questions chan Question
	verdicts  chan Verdict
}

func (n *askedNotes) Ask(ctx context.Context, q Question) (Verdict, error) {
	n.questions <- q
	select {
	case v := <-n.verdicts:
		return v, nil
	case <-ctx.Done():
		return Verdict{}, context.Cause(ctx)
	}
}

func newAskedWorld(t *testing.T) (*world, *askedNotes) {
	w := newWorld(t, holds)
	n := &askedNotes{questions: make(chan Question, 1), verdicts: make(chan Verdict, 1)}
	w.notes = &n.notes
	var err error
	if w.proxy, err = newProxy(w.setup, n); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{upName, "no.example.com"} {
		w.names.Set(name, []string{upIP})
	}
	fetchtest.StartHost(t, upIP+":443", w.ca.Config(t, time.Now().Add(time.Hour), upName),
		plain(func(to io.Writer, r *http.Request, body string) {
			said := r.Method + " " + r.URL.String() + " " + body
			fmt.Fprintf(to, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(said), said)
		}))
	return w, n
}

// post sends a request and leaves the stream open.
func post(conn net.Conn, path, body string, lines ...string) {
	fmt.Fprintf(conn, "POST https://%s%s HTTP/1.1\r\nHost: %[1]s\r\nContent-Length: %[3]d\r\n%s\r\n%s",
		upName, path, len(body), strings.Join(lines, ""), body)
}

func answerOf(t *testing.T, r *bufio.Reader) (*http.Response, string) {
	t.Helper()
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// TestAsk: a request that is held back is asked about with its whole URL and the digest of the very
// body that is sent, before anything is on record; the next request of the stream waits behind it.
func TestAsk(t *testing.T) {
	w, n := newAskedWorld(t)
	conn := w.stream()
	r := bufio.NewReader(conn)
	post(conn, "/a?q=1", "one")
	// It stays in the stream until the first has its answer.
	fmt.Fprintf(conn, "GET https://%s/b HTTP/1.1\r\nHost: %[1]s\r\n\r\n", upName)
	q := <-n.questions
	sum := sha256.Sum256([]byte("one"))
	if q.URL != "https://up.example.com/a?q=1" || q.Method != "POST" || q.Size != 3 ||
		q.Body != hex.EncodeToString(sum[:]) {
		t.Errorf("%+v", q)
	}
	if intents, _, _ := n.take(); len(intents) > 0 {
		t.Errorf("on record before the approval: %+v", intents)
	}
	n.verdicts <- Verdict{}
	if resp, body := answerOf(t, r); resp.StatusCode != 200 || body != "POST /a?q=1 one" {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	if resp, body := answerOf(t, r); resp.StatusCode != 200 || body != "GET /b " {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	post(conn, "/a", "two")
	<-n.questions
	n.verdicts <- Verdict{Code: "approval_pending", Message: "it waits", Next: "ask",
		Approval: "id"}
	resp, body := answerOf(t, r)
	if resp.StatusCode != 403 || resp.Header.Get("X-Jail-Fetch") != "approval_pending" ||
		resp.Header.Get("X-Jail-Approval") != "id" || !strings.Contains(body, `"approval":"id"`) {
		t.Errorf("%d %v %s", resp.StatusCode, resp.Header, body)
	}
}

// TestAskGone: a tool that has given up leaves the approval to its next try.
func TestAskGone(t *testing.T) {
	w, n := newAskedWorld(t)
	conn, done := w.served()
	post(conn, "/a", "one")
	<-n.questions
	conn.Close()
	<-done
	if intents, _, _ := n.take(); len(intents) > 0 {
		t.Errorf("sent for nobody: %+v", intents)
	}
}

// TestAskNever: no question is asked about what no approval would let pass, and none about a body
// that is too large to be shown as one.
func TestAskNever(t *testing.T) {
	w, n := newAskedWorld(t)
	if code, body := w.get("https://no.example.com/"); code != 403 ||
		!strings.Contains(body, "a rule of approve refuses it") {
		t.Errorf("%d %s", code, body)
	}
	if code, body := w.ask("POST", "https://"+upName+"/", strings.Repeat("x", wholeBody+1)); code != 413 {
		t.Errorf("%d %s", code, body)
	}
	select {
	case q := <-n.questions:
		t.Errorf("%+v", q)
	default:
	}
}

// TestAskNobody: without a daemon that decides, what is held back is not sent.
func TestAskNobody(t *testing.T) {
	w := newWorld(t, holds)
	if code, body := w.ask("POST", "https://"+upName+"/", "x"); code != 403 ||
		!strings.Contains(body, codeRecord) {
		t.Errorf("%d %s", code, body)
	}
}
