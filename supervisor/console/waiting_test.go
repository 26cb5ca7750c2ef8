package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/approvals"
	"github.com/jail-sandbox/jail/supervisor/console/consoletest"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// proposed is a daemon with three actions that wait and one that is stale.
func proposed() *fake {
	f := &fake{digest: "sha256:aa"}
	var info shadows.WorkspaceInfo
	info.ID, info.Path, info.Caller.UID = "r", "/work", 7
	f.lines = append([]api.ReviewLine{{Info: &info}}, append(modified("a", 2),
		modified("b", 1)...)...)
	now := time.Now()
	for i, id := range []string{"one", "two", "three", "old"} {
		a := approvals.Action{ID: id, SHA256: "digest of " + id, Type: "workspace.commit",
			State: approvals.Pending, UID: 7, Run: "r", Summary: "write it to /work",
			Words: "it is harmless", Reversible: true, Proposed: now.Add(time.Duration(i)),
			Commit: &approvals.Commit{Directory: "/work",
				Request: shadows.CommitRequest{Digest: "sha256:aa"}}}
		if id == "old" {
			a.State, a.Error = approvals.Stale, "it has changed since it was proposed"
		}
		f.actions = append(f.actions, a)
	}
	return f
}

func holds(t *testing.T, page string, wants, not []string) {
	t.Helper()
	for _, text := range wants {
		if !strings.Contains(page, text) {
			t.Errorf("the page has no %q: %s", text, page)
		}
	}
	for _, text := range not {
		if strings.Contains(page, text) {
			t.Errorf("the page has %q: %s", text, page)
		}
	}
}

// The page Waiting lists what waits, and apart from that what is over. The page of an action has
// the words of its proposer apart and marked, the differences that it would write, and keys for a
// decision and for the actions beside it.
func TestApprovals(t *testing.T) {
	f := proposed()
	c := newClient(t, Options{Daemon: f})
	list := c.get("/waiting").Body.String()
	waits, over, ok := strings.Cut(list, "<h2>Lately</h2>")
	if !ok {
		t.Fatalf("the page: %s", list)
	}
	holds(t, waits, []string{`/waiting/one" accesskey="j"`, "/waiting/three", "http-equiv"},
		[]string{"/waiting/old"})
	holds(t, over, []string{"/waiting/old", `class="state bad">stale`,
		"it has changed since it was proposed"}, []string{"/waiting/one"})
	holds(t, c.get("/waiting?live=no").Body.String(), []string{"Follow what waits"},
		[]string{"http-equiv"})
	holds(t, c.get("/waiting/two").Body.String(), []string{"write it to /work",
		"<b>The proposer says, and it may be wrong:</b> it is harmless",
		`/waiting/one" rel="prev" accesskey="k"`, `/waiting/three" rel="next" accesskey="j"`,
		`value="approve" accesskey="a"`, `value="reject" accesskey="r"`, "new 1</span>",
		`name="sha256" value="digest of two"`}, []string{"http-equiv", `name="take"`, "Stale"})
	holds(t, c.get("/waiting/old").Body.String(), []string{"it has changed"},
		[]string{`value="approve"`, `value="reject"`})
	if w := c.get("/waiting/none"); w.Code != http.StatusNotFound {
		t.Errorf("an action that is not there: %d", w.Code)
	}
	f.actions = nil
	holds(t, c.get("/waiting").Body.String(), []string{"Nothing waits for an approval"}, nil)
}

// A commit of a part is shown as that part.
func TestApprovalOfAPart(t *testing.T) {
	f := proposed()
	c := newClient(t, Options{Daemon: f})
	req := &f.actions[0].Commit.Request
	for name, x := range map[string]struct {
		req        shadows.CommitRequest
		wants, not []string
	}{
		"all":     {shadows.CommitRequest{}, []string{"<code>a</code>", "<code>b</code>"}, nil},
		"exactly": {shadows.CommitRequest{Exact: true, Paths: []string{"b"}}, []string{"<code>b</code>"}, []string{"<code>a</code>"}},
		"one hunk": {shadows.CommitRequest{Exact: true, Hunks: map[string][]int{"a": {1}}},
			[]string{"<code>a</code>", "new 1</span>"}, []string{"new 0</span>", "<code>b</code>"}},
		"hunks and a pattern": {shadows.CommitRequest{Paths: []string{"[b]"},
			Hunks: map[string][]int{"a": {1}}}, []string{"<code>b</code>", "new 1</span>"}, nil},
		"the workspace and a hunk": {shadows.CommitRequest{Paths: []string{"/"},
			Hunks: map[string][]int{"a": {1}}}, []string{"<code>b</code>", "new 0</span>"}, nil},
		"no path and a hunk": {shadows.CommitRequest{Paths: []string{""},
			Hunks: map[string][]int{"a": {1}}}, []string{"<code>b</code>", "new 0</span>"}, nil},
		"exactly, with a slash": {shadows.CommitRequest{Exact: true, Paths: []string{"b/"}},
			[]string{"<code>b</code>"}, []string{"<code>a</code>"}},
		"classes": {shadows.CommitRequest{Classes: []string{"plain"}},
			[]string{"only those of the classes plain"}, nil},
		"a branch": {shadows.CommitRequest{GitOnly: "main"}, []string{"sha256"},
			[]string{"<code>a</code>", "Nothing changed"}},
	} {
		*req = x.req
		req.Digest = "sha256:aa"
		t.Run(name, func(t *testing.T) {
			holds(t, c.get("/waiting/one").Body.String(), x.wants, x.not)
		})
	}
}

// A page that leaves out lines, or the end of one, asks for a tick as several pages do.
func TestApprovalOfMore(t *testing.T) {
	const tick, whole = `name="sure"`, `name="pages" value="1"`
	wide := modified("wide", 1)
	wide[1].Hunks.Hunks[0].Lines[1] += strings.Repeat("x", maxLine)
	for name, lines := range map[string][]api.ReviewLine{
		"many lines": modified("long", fileLines), "a long line": wide,
	} {
		f := proposed()
		c := newClient(t, Options{Daemon: f})
		holds(t, c.get("/waiting/one").Body.String(), []string{whole}, []string{tick})
		f.lines = append(f.lines, lines...)
		t.Run(name, func(t *testing.T) {
			holds(t, c.get("/waiting/one").Body.String(), []string{tick}, []string{whole})
		})
	}
}

// What is no longer as it was proposed is shown as stale, and cannot be approved from the page.
func TestStaleApproval(t *testing.T) {
	for name, change := range map[string]func(*fake){
		"other changes":     func(f *fake) { f.digest = "sha256:bb" },
		"another directory": func(f *fake) { f.lines[0].Info.Path = "/other" },
		"another owner":     func(f *fake) { f.lines[0].Info.Caller.UID++ },
		"another shadow":    func(f *fake) { f.lines[0].Info.Prepared = time.Now() },
		"no shadow":         func(f *fake) { f.actions[0].Run = "gone" },
	} {
		f := proposed()
		change(f)
		c := newClient(t, Options{Daemon: f})
		t.Run(name, func(t *testing.T) {
			holds(t, c.get("/waiting/one").Body.String(), []string{"Stale:", `value="reject"`},
				[]string{`value="approve"`, "new 1</span>"})
		})
	}
}

// A decision names the digest that the page showed, comes by a form of this login, and for changes
// on several pages needs a tick.
func TestDecide(t *testing.T) {
	f := proposed()
	c := newClient(t, Options{Daemon: f})
	ok := url.Values{"decision": {"approve"}, "sha256": {"digest of one"}, "pages": {"1"}}
	with := func(key, value string) url.Values {
		v := url.Values{}
		for k := range ok {
			v.Set(k, ok.Get(k))
		}
		v.Set(key, value)
		return v
	}
	for name, x := range map[string]struct {
		form url.Values
		want int
	}{
		"approve":          {ok, 200},
		"reject":           {with("decision", "reject"), 200},
		"no decision":      {with("decision", ""), 400},
		"another":          {with("decision", "apply"), 400},
		"another digest":   {with("sha256", "digest of two"), 409},
		"no digest":        {with("sha256", ""), 409},
		"not all pages":    {with("pages", "2"), 400},
		"a page of one":    {with("pages", "0"), 400},
		"no pages":         {with("pages", ""), 400},
		"reject two pages": {url.Values{"decision": {"reject"}, "sha256": {"digest of one"}}, 200},
	} {
		f.decided = nil
		w := c.post("/waiting/one", x.form)
		if w.Code != x.want || (x.want == 200) != (len(f.decided) == 1) {
			t.Errorf("%s: %d, %v: %s", name, w.Code, f.decided, w.Body)
		}
		if x.want == 200 {
			if f.decided[0].Via != "console" || f.decided[0].SHA256 != "digest of one" ||
				f.decided[0].Scope != "" {
				t.Errorf("%s: %+v", name, f.decided[0])
			}
			holds(t, w.Body.String(), []string{`/waiting/two" accesskey="j"`}, nil)
		}
	}
	f.decided = nil
	if w := c.do("POST", c.base+"/waiting/one", ok, func(r *http.Request) {}); w.Code != 200 {
		t.Errorf("control: %d", w.Code)
	}
	ok.Del("csrf")
	if w := c.do("POST", c.base+"/waiting/one", ok, nil); w.Code != http.StatusForbidden {
		t.Errorf("without the token of the form: %d", w.Code)
	}
	if len(f.decided) != 1 {
		t.Errorf("decided: %v", f.decided)
	}
	f.set(problem.New(problem.Conflict, "action one is stale, and nothing was done"))
	if w := c.post("/waiting/one", with("csrf", "")); w.Code != http.StatusConflict ||
		!strings.Contains(w.Body.String(), "Nothing was done") {
		t.Errorf("a stale action: %d %s", w.Code, w.Body)
	}
}

// The keys j, k, a and r go through what waits and decide, in a real browser and without a script.
func TestApprovalsByKey(t *testing.T) {
	b := consoletest.Start(t)
	f := proposed()
	con, at := serve(t, Options{Daemon: f, Approvals: fakeApprovals{f}, Log: newLog(t),
		Policies: fakePolicies{"x"}})
	link, _ := con.Link()
	b.Scripts(false)
	b.Open(at + link)
	waitFor(t, func() bool { return strings.HasPrefix(b.Peek("location.pathname"), sessionPath) })
	b.Open(at + baseOf.FindString(b.Text("location.pathname")) + "/waiting?live=no")
	for _, step := range []struct{ key, leads string }{{"j", "/waiting/one"},
		{"j", "/waiting/two"}, {"k", "/waiting/one"}, {"j", "/waiting/two"}} {
		b.AccessKey(step.key)
		if here := b.Text("location.pathname"); !strings.HasSuffix(here, step.leads) {
			t.Errorf("the key %s leads to %s, want %s", step.key, here, step.leads)
		}
	}
	b.AccessKey("a")
	b.AccessKey("j")
	b.AccessKey("r")
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.decided) != 2 || f.decided[0].Decision != "approve" ||
		f.decided[0].SHA256 != "digest of two" || f.decided[1].Decision != "reject" ||
		f.decided[1].SHA256 != "digest of three" {
		t.Errorf("decided: %+v", f.decided)
	}
}
