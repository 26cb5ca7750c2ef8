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

func newAskedWorld(t *testing.T, change ...func(*Setup)) (*world, *askedNotes) {
	w := newWorld(t, holds, change...)
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

// TestAskGoneBehind: a tool that has given up is noticed behind its next request, too; one that
// sends more than the proxy can look at is refused.
func TestAskGoneBehind(t *testing.T) {
	w, n := newAskedWorld(t)
	next := "GET https://" + upName + "/b HTTP/1.1\r\nHost: " + upName + "\r\n"
	conn, done := w.served()
	post(conn, "/a", "one")
	io.WriteString(conn, next+"\r\n")
	<-n.questions
	conn.Close()
	<-done
	if intents, _, _ := n.take(); len(intents) > 0 {
		t.Errorf("sent for nobody: %+v", intents)
	}
	conn = w.stream()
	post(conn, "/a", "one")
	io.WriteString(conn, next+"X-Long: "+strings.Repeat("x", 8<<10)+"\r\n\r\n")
	<-n.questions
	resp, body := answerOf(t, bufio.NewReader(conn))
	if resp.StatusCode != 403 || !strings.Contains(body, errBehind.Error()) {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// TestAskUsedUp: nobody is asked about a request that has no budget, or that its credential
// refuses.
func TestAskUsedUp(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Setup)
		line   string
		code   string
	}{
		"budget": {func(s *Setup) { s.Layers[1].Fetch.Limits.Requests = 1 }, "X-A: b", codeBudget},
		"credential": {func(s *Setup) {
			s.Secrets = map[string]Secret{"c": {Kind: secretSigV4, User: "U", Value: "V", Region: "r",
				Service: "s3"}}
			for i := range s.Layers[1].Fetch.Allow {
				s.Layers[1].Fetch.Allow[i].Credential = "c"
			}
		}, "X-Amz-Copy-Source: /other/object", codeBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			w, n := newAskedWorld(t, c.change)
			w.get("https://" + upName + "/")
			code, body := w.ask("POST", "https://"+upName+"/", "x", c.line)
			if code < 400 || !strings.Contains(body, c.code) {
				t.Errorf("%d %s", code, body)
			}
			select {
			case q := <-n.questions:
				t.Errorf("%+v", q)
			default:
			}
		})
	}
}

// TestQuestionNames: the URL that people are shown is that of the request that is decided on.
func TestQuestionNames(t *testing.T) {
	what := What{Kind: kindRequest, Scheme: "https", Host: "a.example.com", Port: 443, Path: "/x",
		Query: hashedQuery("?q=1")}
	plain, tunnel, other := what, what, what
	plain.Query = ""
	tunnel.Kind = kindTunnel
	other.Kind = "other"
	for _, c := range []struct {
		what What
		url  string
		want bool
	}{
		{what, "https://a.example.com/x?q=1", true},
		{what, "https://a.example.com/x?q=2", false},
		{what, "https://a.example.com/x", false},
		{plain, "https://a.example.com/x", true},
		{plain, "https://a.example.com/xyz", false},
		{plain, "http://a.example.com/x", false},
		{plain, "https://a.example.com:8443/x", false},
		{plain, "https://b.example.com/x", false},
		{tunnel, "a.example.com:443", true},
		{tunnel, "a.example.com:8443", false},
		{other, "https://a.example.com/x?q=1", false},
	} {
		if got := names(Question{What: c.what, URL: c.url}); got != c.want {
			t.Errorf("%s %s: %v", c.what.Kind, c.url, got)
		}
	}
}

// TestReturnedApproval: no host can send what the proxy says of an approval.
func TestReturnedApproval(t *testing.T) {
	out, _ := returned(http.Header{"X-Jail-Approval": {"id"}, "X_jail_approval": {"id"},
		"X-Jail-Fetch": {"approval_pending"}}, nil)
	if len(out) > 0 {
		t.Errorf("%+v", out)
	}
}

// unapproved is a log that lets no intent pass.
type unapproved struct{ askedNotes }

func (n *unapproved) Intend(Intent) (string, error) { return "", &heldError{"it is not approved"} }

func (n *unapproved) IntendAfter([]Outcome, Intent) (string, error) {
	return "it is not approved", nil
}

// TestUnapproved: a request that the daemon does not let pass is refused as such, not as one to an
// address.
func TestUnapproved(t *testing.T) {
	r := newRecording(&unapproved{}, nil, make(chan struct{}))
	if a := r.intend(nil, Intent{What: What{ID: 1}}); a.Code != codeDenied || a.Refuse == "" {
		t.Errorf("%+v", a)
	}
	w, n := newAskedWorld(t)
	var err error
	if w.proxy, err = newProxy(w.setup, &unapproved{askedNotes{questions: n.questions,
		verdicts: n.verdicts}}); err != nil {
		t.Fatal(err)
	}
	if code, body := w.get("https://" + upName + "/"); code != 403 ||
		!strings.Contains(body, codeDenied) || !strings.Contains(body, "it is not approved") {
		t.Errorf("%d %s", code, body)
	}
}
