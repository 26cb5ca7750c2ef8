package console

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// T-545: a request by a name that resolves to this machine, or from another origin, is refused; the
// same request with the right names is served.
func TestHostAndOrigin(t *testing.T) {
	c := newClient(t, Options{})
	for host, want := range map[string]int{
		testHost:       200,
		"evil.example": 421, "evil.example:4711": 421, "localhost:4711": 421, "127.0.0.1": 421,
		"127.0.0.1:4712": 421, "127.0.0.1:4711.evil.example": 421, "0.0.0.0:4711": 421,
		"[::1]:4711": 421, "127.1:4711": 421, "2130706433:4711": 421, "127.0.0.1:04711": 421,
		"": 421, "127.0.0.1:4711 ": 421, "127.0.0.1.:4711": 421, "a@127.0.0.1:4711": 421,
	} {
		w := c.do("GET", c.base+"/", nil, func(r *http.Request) { r.Host = host })
		if w.Code != want {
			t.Errorf("GET with Host %q: %d, want %d", host, w.Code, want)
		}
		if want != 200 && (strings.Contains(w.Body.String(), "csrf") ||
			len(w.Result().Cookies()) > 0) {
			t.Errorf("GET with Host %q shows something: %s", host, w.Body)
		}
	}
	for _, x := range []struct {
		origin []string
		want   int
	}{
		{[]string{"http://" + testHost}, 303},
		{nil, 403}, {[]string{""}, 403}, {[]string{"null"}, 403}, {[]string{"https://" + testHost},
			403}, {[]string{"http://127.0.0.1:9999"}, 403}, {[]string{"http://localhost:4711"},
			403},
		{[]string{"http://evil.example"}, 403}, {[]string{"http://" + testHost + ".evil.example"},
			403}, {[]string{"http://" + testHost + "/"}, 403}, {[]string{"HTTP://" + testHost},
			403},
		{[]string{"http://" + testHost, "http://evil.example"}, 403},
		{[]string{"http://evil.example", "http://" + testHost}, 403}, {[]string{"file://"}, 403},
	} {
		w := c.do("POST", c.base+"/log/verify", url.Values{"csrf": {c.csrf}},
			func(r *http.Request) {
				r.Header["Origin"] = x.origin
				if x.origin == nil {
					r.Header.Del("Origin")
				}
			})
		if w.Code != x.want {
			t.Errorf("POST with Origin %q: %d, want %d", x.origin, w.Code, x.want)
		}
	}
}

// A console on a socket does not know the port that somebody forwards; it knows the names of this
// machine.
func TestHostOfASocket(t *testing.T) {
	c := newClient(t, Options{Hosts: []string{}})
	c.con.Hosts = nil
	for host, want := range map[string]int{"localhost:8080": 200, "127.0.0.1:1": 200,
		"[::1]:80": 200, "localhost": 200,
		"evil.example:8080": 421, "localhost.evil.example:8080": 421, "localhost:": 421,
		"localhost:8080:1": 421, "127.0.0.1:http": 421, "": 421, "10.0.0.1:8080": 421} {
		if w := c.do("GET", c.base+"/", nil,
			func(r *http.Request) { r.Host = host }); w.Code != want {
			t.Errorf("Host %q: %d, want %d", host, w.Code, want)
		}
	}
}

// T-546: forms of other pages, on other sites and on other ports of this one, do nothing; pages
// cannot be embedded, and their answers say so.
func TestForeignForms(t *testing.T) {
	f := &fake{digest: "sha256:aa"}
	f.lines = modified("a", 0)
	c := newClient(t, Options{Daemon: f})
	form := func() url.Values {
		return url.Values{"csrf": {c.csrf}, "digest": {"sha256:aa"}, "take": {"a"}, "sure": {"yes"},
			"signal": {"kill"}, "commit": {"sha256:aa"}}
	}
	acts := map[string]func() int{"commit": func() int { return len(f.committed) },
		"discard": func() int { return len(f.discarded) },
		"revert":  func() int { return len(f.reverted) },
		"kill":    func() int { return len(f.killed) }}
	tell := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	for name, x := range map[string]struct {
		form   func(url.Values)
		change func(*http.Request)
		want   int
	}{
		"ours": {want: 200},
		"an old browser": {want: 200,
			change: func(r *http.Request) { r.Header.Del("Sec-Fetch-Site") }},
		"another site": {want: 403, change: tell("Sec-Fetch-Site", "cross-site")},
		"another port": {want: 403, change: tell("Sec-Fetch-Site", "same-site")},
		"a site that lies twice": {want: 403,
			change: func(r *http.Request) {
				r.Header["Sec-Fetch-Site"] = []string{"same-origin", "cross-site"}
			}},
		"no token": {want: 403, form: func(v url.Values) { v.Del("csrf") }},
		"another token": {want: 403, form: func(v url.Values) {
			v.Set("csrf", secret())
		}},
		"a token in the address": {want: 403, form: func(v url.Values) { v.Del("csrf") },
			change: func(r *http.Request) { r.URL.RawQuery = "csrf=" + c.csrf }},
		"no cookie":      {want: 401, change: func(r *http.Request) { r.Header.Del("Cookie") }},
		"another cookie": {want: 401, change: tell("Cookie", cookieName+"="+secret())},
		"another cookie and ours": {want: 200, change: tell("Cookie", cookieName+"="+secret()+"; "+
			cookieName+"="+c.cookie)},
		"another path": {want: 401,
			change: func(r *http.Request) {
				r.URL.Path = strings.Replace(r.URL.Path, c.base, sessionPath+secret(), 1)
			}},
		"JSON":       {want: 415, change: tell("Content-Type", "application/json")},
		"plain text": {want: 415, change: tell("Content-Type", "text/plain")},
		"no type":    {want: 415, change: func(r *http.Request) { r.Header.Del("Content-Type") }},
		"by GET": {want: 405,
			change: func(r *http.Request) { r.Method = "GET"; r.URL.RawQuery = form().Encode() }},
		"PUT": {want: 405, change: func(r *http.Request) { r.Method = "PUT" }},
		"a question of CORS": {want: 405,
			change: func(r *http.Request) {
				r.Method = "OPTIONS"
				r.Header.Set("Access-Control-Request-Method", "POST")
			}},
	} {
		v := form()
		if x.form != nil {
			x.form(v)
		}
		var w *httptest.ResponseRecorder
		for act, done := range acts {
			f.committed, f.discarded, f.reverted, f.killed = nil, nil, nil, nil
			w = c.do("POST", c.base+"/runs/r/"+act, v, x.change)
			want := x.want
			if name == "by GET" && (act == "kill" || act == "revert") {
				// The page that asks, of a run that is not there.
				want = http.StatusNotFound
			}
			if w.Code != want || (x.want == 200) != (done() == 1) {
				t.Errorf("%s, %s: %d, want %d; it was done %d times", act, name, w.Code, want,
					done())
			}
		}
		for header, value := range headers {
			if w.Header().Get(header) != value {
				t.Errorf("%s: %s is %q", name, header, w.Header().Get(header))
			}
		}
		for header := range w.Header() {
			if strings.HasPrefix(header, "Access-Control") {
				t.Errorf("%s: %s", name, header)
			}
		}
	}
	for name, x := range map[string]struct {
		site, mode, dest, path string
		want                   int
	}{
		"a page of ours":            {"same-origin", "navigate", "document", c.base + "/", 200},
		"the address bar":           {"none", "navigate", "document", c.base + "/", 200},
		"a picture on another port": {"same-site", "no-cors", "image", c.base + "/", 403},
		"a script of another site":  {"cross-site", "no-cors", "script", c.base + "/", 403},
		"a frame":                   {"cross-site", "navigate", "iframe", "/", 403},
		"a link of another port": {"same-site", "navigate", "document",
			c.base + "/runs/r/review", 403},
		"the login, of a terminal in web": {"cross-site", "navigate", "document", "/", 401},
		"our style":                       {"same-origin", "no-cors", "style", "/style.css", 200},
		"our style elsewhere":             {"cross-site", "no-cors", "style", "/style.css", 403},
	} {
		w := c.do("GET", x.path, nil, func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", x.site)
			r.Header.Set("Sec-Fetch-Mode", x.mode)
			r.Header.Set("Sec-Fetch-Dest", x.dest)
		})
		if w.Code != x.want {
			t.Errorf("%s: %d, want %d", name, w.Code, x.want)
		}
	}
}

// The policy of every page is a contract with the browser: it is written out here a second time.
func TestHeaders(t *testing.T) {
	c := newClient(t, Options{})
	for _, path := range []string{"/", "/style.css", "/nothing", c.base + "/", c.base + "/log",
		c.base + "/nothing", "/login/x"} {
		h := c.do("GET", path, nil, nil).Header()
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; style-src 'self'; form-action 'self'; " +
				"frame-ancestors 'none'; base-uri 'none'", "Cache-Control": "no-store",
			"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
			"Referrer-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
			"Cross-Origin-Opener-Policy": "same-origin",
		} {
			if got := h.Values(name); len(got) != 1 || got[0] != want {
				t.Errorf("%s: %s is %q", path, name, got)
			}
		}
	}
}

// T-546: a cookie goes to every port of a host, so ours has a path that nobody can guess, and no
// script reads it.
func TestCookie(t *testing.T) {
	c := newClient(t, Options{})
	path, _ := c.con.Link()
	cookie := c.do("GET", path, nil, nil).Result().Cookies()[0]
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode ||
		!baseOf.MatchString(cookie.Path) || cookie.Domain != "" || len(cookie.Value) != 43 {
		t.Errorf("%+v", cookie)
	}
	if strings.Contains(cookie.Path, cookie.Value) {
		t.Error("the path tells the cookie")
	}
}

// T-548: a link is good once and for a while, is not spent by what only looks, and what it gives
// ends.
func TestLogin(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	c := newClient(t, Options{now: func() time.Time { return now }})
	// It asks the clock, too.
	waitFor(t, func() bool { return !c.con.verify.known().Running })
	redeem := func(path string, change func(*http.Request)) int {
		return c.do("GET", path, nil, change).Code
	}
	link, until := c.con.Link()
	if !until.Equal(now.Add(linkLife)) || len(link) != len("/login/")+43 {
		t.Errorf("%s until %s", link, until)
	}
	if w := c.do("HEAD", link, nil, nil); w.Code == 200 || len(w.Result().Cookies()) > 0 {
		t.Errorf("HEAD: %d", w.Code)
	}
	for _, header := range []string{"Sec-Purpose", "Purpose"} {
		if code := redeem(link, func(r *http.Request) {
			r.Header.Set(header, "prefetch;prerender")
		}); code != 503 {
			t.Errorf("%s: %d", header, code)
		}
	}
	if code := redeem(link, nil); code != 200 {
		t.Errorf("a good link: %d", code)
	}
	if w := c.do("GET", link, nil, nil); w.Code != 403 || len(w.Result().Cookies()) > 0 ||
		!strings.Contains(w.Body.String(), "good once") {
		t.Errorf("a link twice: %d, %s", w.Code, w.Body)
	}
	late, _ := c.con.Link()
	now = now.Add(linkLife)
	if code := redeem(late, nil); code != 403 {
		t.Errorf("a link too late: %d", code)
	}
	for _, bad := range []string{"/login/x", "/login/" + secret(),
		"/login/" + strings.ToLower(link[7:]), link + "x", "/login/" + c.cookie} {
		if code := redeem(bad, nil); code != 403 {
			t.Errorf("%s: %d", bad, code)
		}
	}
	if w := c.get("/"); w.Code != 200 {
		t.Errorf("a login within its time: %d", w.Code)
	}
	now = now.Add(sessionLife)
	if w := c.get("/"); w.Code != 401 || !strings.Contains(w.Body.String(), "press Enter") {
		t.Errorf("a login behind its time: %d", w.Code)
	}
	c.login()
	if w := c.post("/logout", url.Values{}); w.Code != 200 {
		t.Errorf("logout: %d", w.Code)
	}
	if w := c.get("/"); w.Code != 401 {
		t.Errorf("after the logout: %d", w.Code)
	}
	seen := map[string]bool{}
	// And only so many at a time.
	for range 1000 {
		link, _ := c.con.Link()
		if seen[link] {
			t.Fatal("a link twice")
		}
		seen[link] = true
	}
	if n := len(c.con.logins.links); n > maxLinks {
		t.Errorf("%d links are good", n)
	}
}

// T-548: no page holds the link or the cookie, and no page sends its address to another origin.
func TestNothingLeaks(t *testing.T) {
	c := newClient(t, Options{})
	link, _ := c.con.Link()
	w := c.do("GET", link, nil, nil)
	if strings.Contains(w.Body.String(), link[7:]) {
		t.Error("the page of the login holds the link")
	}
	for _, path := range []string{"/", "/log", "/policy"} {
		if body := c.get(path).Body.String(); strings.Contains(body, c.cookie) {
			t.Errorf("%s holds the cookie", path)
		}
	}
}

// T-549: no address but one of the loopback interface is listened on.
func TestLoopback(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:0": true, "127.0.0.1:8080": true, "[::1]:0": true, "127.5.5.5:1": true,
		"0.0.0.0:0": false, "[::]:0": false, ":0": false, ":8080": false, "localhost:0": false,
		"10.0.0.1:80": false, "[::ffff:127.0.0.1]:0": false, "[fe80::1%lo]:0": false,
		"127.0.0.1": false, "": false, "127.1:80": false, "[::ffff:10.0.0.1]:0": false,
		"192.168.1.1:0": false, "169.254.169.254:80": false,
	} {
		if _, ok := Loopback(address); ok != want {
			t.Errorf("%q: %v, want %v", address, ok, want)
		}
	}
}
