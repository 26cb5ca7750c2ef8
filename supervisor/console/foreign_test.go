package console

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/jail-sandbox/jail/supervisor/console/consoletest"
)

// A stranger is a server on another port of this host, which somebody who is logged in to the
// console visits. It notes what it is sent.
type stranger struct {
	*httptest.Server
	mu      sync.Mutex
	page    string
	cookies []string
}

func newStranger(t *testing.T) *stranger {
	s := &stranger{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cookies = append(s.cookies, r.Header.Get("Cookie"))
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, s.page)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *stranger) shows(page string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.page = page
}

// T-545, T-546, T-548 in a real browser: a page on another port of this host, which for a browser
// is the same site, cannot send forms, cannot read or embed pages, and is not sent the cookie; a
// name that is made to point to this machine shows nothing. That the stranger is told the secret
// path helps it no further.
func TestForeignPagesInChromium(t *testing.T) {
	b := consoletest.Start(t, "--host-resolver-rules=MAP evil.example 127.0.0.1")
	f := &fake{digest: "sha256:aa"}
	f.lines = modified("a", 0)
	con, at := serve(t, Options{Daemon: f, Log: newLog(t), Policies: fakePolicies{"x"}})
	link, _ := con.Link()
	other := newStranger(t)
	// The link stands in a page of the stranger's, as in a terminal in a browser: the login works
	// from there, too.
	other.shows(fmt.Sprintf(`<a id=link href=%q>link</a>`, at+link))
	b.Open(other.URL + "/terminal")
	b.Click("#link", true)
	waitFor(t, func() bool {
		return strings.HasPrefix(b.Peek("location.pathname"), sessionPath) &&
			strings.Contains(b.Page(), "Change sets")
	})
	base := at + baseOf.FindString(b.Text("location.pathname"))
	b.Text(`document.cookie = "control=1; path=/"`)

	other.shows(fmt.Sprintf(`<form id=f method=post action=%q><input name=take value=a><input name=digest value=sha256:aa><input name=csrf value=guessed><button id=go>go</button></form>
<iframe id=frame src=%q></iframe><img id=img src=%q>
<script>
fetch(%q, {credentials: "include"}).then(r => r.text()).then(x => window.cors = "read " + x.length, () => window.cors = "refused")
fetch(%q, {mode: "no-cors", credentials: "include"}).then(() => window.blind = "sent", () => window.blind = "refused")
fetch(%q, {method: "POST", mode: "no-cors", credentials: "include", headers: {"Content-Type": "application/x-www-form-urlencoded"}, body: "take=a&digest=sha256:aa"}).then(() => window.post = "sent", () => window.post = "refused")
</script>`, base+"/runs/r/commit", base+"/", base+"/", base+"/", base+"/", base+"/runs/r/commit"))
	b.Open(other.URL + "/")
	waitFor(t, func() bool {
		return b.Peek("[window.cors, window.blind, window.post].every(x => x)") == "true"
	})
	if got := b.Text(
		"[window.cors, window.blind, window.post].join()"); got != "refused,refused,refused" {
		t.Errorf("reading, asking and sending from another port: %s", got)
	}
	if got := b.Text(
		"(() => { try { return 'read ' + frames[0].document.body.innerText } catch (e) { return " +
			"e.name } })()"); got != "SecurityError" {
		t.Errorf("a frame: %s", got)
	}
	if got := b.Text("String(document.querySelector('#img').naturalWidth)"); got != "0" {
		t.Errorf("a picture: %s", got)
	}
	b.Click("#go", true)
	if page := b.Page(); !strings.Contains(page, "not sent by a page of this console") {
		t.Errorf("a form: %s", page)
	}
	f.mu.Lock()
	if len(f.committed) > 0 {
		t.Errorf("a form of another port was obeyed: %+v", f.committed)
	}
	f.mu.Unlock()

	other.mu.Lock()
	sent := strings.Join(other.cookies, "|")
	other.mu.Unlock()
	if strings.Contains(sent, cookieName) {
		t.Errorf("the cookie was sent to another port: %s", sent)
	}
	if !strings.Contains(sent, "control=1") {
		t.Errorf("control: a cookie for the whole host was not sent to another port: %q", sent)
	}

	_, port, err := net.SplitHostPort(strings.TrimPrefix(at, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/", "/login/" + secret(), strings.TrimPrefix(base, at) + "/"} {
		b.Open("http://evil.example:" + port + path)
		if page := b.Page(); !strings.Contains(page, "on its own address only") {
			t.Errorf("a name that points here, %s: %s", path, page)
		}
	}
	// The control: who is logged in, and types it.
	b.Open(base + "/runs/r/review")
	if page := b.Page(); !strings.Contains(page, "take this change") {
		t.Errorf("control: %s", page)
	}
}
