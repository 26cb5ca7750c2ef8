package console

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/approvals"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/console/consoletest"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// naughty are texts that a tool might choose for whatever it may choose.
var naughty = consoletest.Hostile

// everything is one text of all of them, as long as a record takes.
var everything = strings.Join(naughty[:len(naughty)-2], "|")

// wicked is a console with hostile texts wherever a tool, a repository or a caller has a say.
func wicked(t testing.TB) Options {
	f := &fake{digest: "sha256:aa"}
	run := func(id string) (r message.RunInfo) {
		r.ID, r.Tool, r.Profile, r.Workspace, r.Args, r.Session, r.Policy = id, everything,
			everything, everything, append([]string{}, naughty...), everything, everything
		return r
	}
	f.runs = []message.RunInfo{run(everything), run("live")}
	var kept shadows.WorkspaceInfo
	kept.ID, kept.State, kept.Path, kept.Tool, kept.Commit, kept.Policy = everything,
		workspace.Frozen, workspace.Name(everything), everything, everything, everything
	kept.Commits = []workspace.CommitRecord{{ID: everything, Digest: everything,
		Until: time.Now().Add(time.Hour)}}
	notKept := kept
	notKept.ID, notKept.Commits = "r1", []workspace.CommitRecord{{ID: everything,
		NotKept: everything}}
	f.kept = []shadows.WorkspaceInfo{kept, notKept}
	f.lines = []api.ReviewLine{{Info: &kept}}
	text := everything
	for i, n := range append([]string{everything}, naughty...) {
		file := &workspace.Node{Type: workspace.File, Mode: 0o755, Size: 3, SHA256: n}
		link := &workspace.Node{Type: workspace.Link, Target: workspace.Name(n)}
		c := api.Change{Change: workspace.Change{Path: workspace.Name("d/" + n),
			Kind: workspace.Modified, Before: file, After: link, Conflict: n,
			Risks:   []workspace.Risk{{Class: "x", Why: n, Hold: true}},
			Scripts: []workspace.Script{{Name: n, After: &text}}}, Protected: n}
		if i%7 == 3 {
			c.Refused, c.Kind = n, workspace.Kind(n)
		}
		f.lines = append(f.lines, api.ReviewLine{Change: &c},
			api.ReviewLine{Patch: []byte("+" + n + "\n")})
		if i%2 == 0 {
			f.lines = append(f.lines, api.ReviewLine{Hunks: &workspace.FileHunks{Path: c.Path,
				Hunks: []workspace.Hunk{{Lines: []string{"+" + n, "-" + n, " " + n, `\` + n, n}},
					{Lines: []string{"+" + n}}}}})
		}
	}
	f.actions = wickedActions(kept)
	log := newLog(t, wickedRecords(everything)...)
	for r, err := range log.Run(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		f.records = append(f.records, json.RawMessage(r.Line))
	}
	return Options{Daemon: f, Approvals: fakeApprovals{f}, Log: log,
		Policies: fakePolicies{everything}, Agents: agentsOf(everything, new([]string))}
}

// wickedActions are actions that wait and one that is over, with hostile texts wherever a proposer
// has a say.
func wickedActions(of shadows.WorkspaceInfo) (list []approvals.Action) {
	for _, id := range []string{everything, "part", "gone", "over"} {
		a := approvals.Action{ID: id, SHA256: everything, Type: everything, State: approvals.Pending,
			Run: everything, Policy: everything, Summary: everything, Words: everything,
			Commit: &approvals.Commit{Directory: of.Path.String(),
				Protected: []string{everything}, Request: shadows.CommitRequest{
					Digest: "sha256:aa", Classes: naughty}}}
		switch id {
		case "part":
			a.Commit.Request.Exact = true
			a.Commit.Request.Paths = []string{of.Path.String()}
			a.Commit.Request.Hunks = map[string][]int{everything: {0}}
		case "gone":
			a.Run, a.Commit.Request.Digest = "gone", everything
		case "over":
			a.State, a.Error, a.Outcome = approvals.State(everything), everything, everything
			a.Decision = &approvals.Decision{Via: everything, Exe: everything, Scope: everything,
				Grant: everything}
		}
		list = append(list, a)
	}
	return list
}

func wickedRecords(s string) (list []audit.Entry) {
	c := audit.Changes{Added: 1}
	for _, e := range []audit.Event{
		audit.RunStarted{Tool: s, Digest: s, Argv: append([]string{s}, naughty[:60]...), Cwd: s,
			Workspace: s, Profile: s, Env: []string{s}, Warnings: []string{s}},
		audit.Exec{Program: s, Digest: s, Argv: []string{s}, Cwd: s},
		audit.Denied{Layer: s, What: "read /home/u/.ssh/id_rsa" + s, Rule: s, Count: 5},
		audit.Fetch{Decision: "denied", Method: s, Scheme: s, Host: s, Port: 443, Path: s, Rule: s},
		audit.Limit{Name: s, Limit: 1, Peak: 2, Action: s},
		audit.WorkspaceChanged{Workspace: s, Digest: s, Changes: c,
			Files: []string{"added sha256:00 .git/hooks/" + s}},
		audit.RunFinished{ExitCode: 3, Signal: s, Limit: s, Error: s},
		audit.WorkspaceCommitted{Workspace: s, Digest: s, Changes: c, Held: []string{s}, Error: s},
	} {
		list = append(list, audit.Entry{Run: "r1", Session: s, Policy: "sha256:dd",
			Actor: audit.Actor{Exe: s}, Event: e})
	}
	return list
}

// wickedPages are all the pages, each asked for with hostile questions.
func wickedPages() []string {
	q := "?" + url.Values{"path": {everything}, "run": {everything}, "type": {everything},
		"user": {everything}, "since": {everything}, "profile": {everything}, "why": {everything},
		"live": {everything}}.Encode()
	id, waiting := "/runs/"+url.PathEscape(everything), "/waiting/"+url.PathEscape(everything)
	pages := []string{"/", "/runs/r1", "/runs/live", "/runs/live/kill", id + "/kill",
		"/runs/r1/revert", id + "/revert", id, "/runs/r1/review", "/runs/r1/review?page=2",
		"/runs/r1/review?page=3", id + "/review", "/runs/r1/review?path=" +
			url.QueryEscape(workspace.Name("d/"+everything).String()),
		"/runs/r1/review" + q, "/log", "/log" + q, "/log?run=r1&decision=denied", "/policy",
		"/policy?why=" + url.QueryEscape("read:"+everything), "/policy?why=nonsense", "/policy" + q,
		"/waiting", "/waiting" + q, waiting, waiting + q, "/waiting/part", "/waiting/gone",
		"/waiting/over", "/waiting/none" + url.PathEscape(everything), "/agents", "/agents" + q,
		"/agents/a", "/agents/a" + q, "/agents/" + url.PathEscape(everything)}
	return pages
}

// T-547: wherever hostile text stands, a page holds no byte that a browser would obey, hide or
// reorder by.
func TestHostileText(t *testing.T) {
	c := newClient(t, wicked(t))
	check := func(name string, code int, body string) {
		t.Helper()
		if code == http.StatusInternalServerError || !utf8.ValidString(body) {
			t.Errorf("%s: %d, valid UTF-8 %v", name, code, utf8.ValidString(body))
		}
		for i, r := range body {
			if r != '\n' && r != '\t' && !strconv.IsPrint(r) ||
				unicode.In(r, unicode.Variation_Selector,
					unicode.Other_Default_Ignorable_Code_Point) {
				t.Errorf("%s: %q is in it as it is: …%q…", name, r,
					body[max(0, i-60):min(len(body), i+20)])
				break
			}
		}
		low := strings.ToLower(body)
		for _, bad := range []string{"<script", "<img", "<svg", "<iframe", "<math", "<base",
			"<body background", "<template", "<noscript", "<!--", "<?xml", `href="javascript`,
			`href="//`, `href="http`, `action="http`, `="data:`} {
			if i := strings.Index(low, bad); i >= 0 {
				t.Errorf("%s: %s is in it: …%q…", name, bad,
					body[max(0, i-60):min(len(body), i+60)])
			}
		}
	}
	for _, path := range wickedPages() {
		w := c.get(path)
		check(path[:min(len(path), 40)], w.Code, w.Body.String())
		if w.Body.Len() > 8<<20 {
			t.Errorf("%.40s: %d bytes", path, w.Body.Len())
		}
	}
	f := c.con.Daemon.(*fake)
	f.set(&problem.Error{Code: problem.Conflict, Message: everything, Hint: everything,
		Conflicts: []workspace.Conflict{{Path: workspace.Name(everything), Why: everything,
			Real:   &workspace.Node{Type: workspace.Link, Target: workspace.Name(everything)},
			Shadow: &workspace.Node{Type: workspace.Type(everything)}}}})
	w := c.post("/runs/"+url.PathEscape(everything)+"/commit",
		url.Values{"digest": {"x"}, "what": {"all"}, "pages": {"1"}})
	check("a refusal", w.Code, w.Body.String())
	if w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "Nothing was done") {
		t.Errorf("a refusal: %d", w.Code)
	}
	w = c.post("/waiting/part", url.Values{"decision": {"reject"}, "sha256": {everything}})
	check("a decision that is refused", w.Code, w.Body.String())
	f.set(nil)
	w = c.post("/waiting/part", url.Values{"decision": {"reject"}, "sha256": {everything}})
	check("a decision", w.Code, w.Body.String())
	if w.Code != http.StatusOK || len(f.decided) != 1 {
		t.Errorf("a decision: %d", w.Code)
	}
	f.digest = everything
	w = c.post("/runs/"+url.PathEscape(everything)+"/revert",
		url.Values{"commit": {everything}, "sure": {"yes"}})
	check("what was undone", w.Code, w.Body.String())
	if w.Code != http.StatusOK {
		t.Errorf("a revert: %d", w.Code)
	}
	if got := len(w.Result().Cookies()); got != 0 {
		t.Error("a text set a cookie")
	}
}

// T-547: what is shown of a text can be turned back into it.
func TestReversible(t *testing.T) {
	for _, s := range naughty {
		back, err := strconv.Unquote(`"` + strings.ReplaceAll(raw(s), `"`, `\"`) + `"`)
		if err != nil || back != s {
			t.Errorf("%q is shown as %q, which is %q, %v", s, raw(s), back, err)
		}
		if name := workspace.Name(s); s != "" {
			if back, err := workspace.ParseName(path(name)); err != nil || back != name {
				t.Errorf("the path %q is shown as %q, which is %q, %v", s, path(name), back, err)
			}
		}
		if shown := text(s); shown != s {
			if back, err := strconv.Unquote(`"` + strings.ReplaceAll(shown, `"`, `\"`) +
				`"`); err != nil || back != s {
				t.Errorf("the words %q are shown as %q, which is %q, %v", s, shown, back, err)
			}
		}
	}
}

// serve answers on a port of its own, with the clock and all that a browser needs.
func serve(t *testing.T, o Options) (con *Console, at string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.Hosts = []string{l.Addr().String()}
	if con, err = New(o); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	ctx, stop := context.WithCancel(context.Background())
	go func() { done <- con.Serve(ctx, l) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return con, "http://" + l.Addr().String()
}

// T-547 in a real browser: hostile text runs nothing, opens nothing, asks for nothing elsewhere and
// adds no element; and the control shows that the browser would have told us.
func TestHostileTextInChromium(t *testing.T) {
	b := consoletest.Start(t)
	con, at := serve(t, wicked(t))
	link, _ := con.Link()
	b.Open(at + link)
	waitFor(t, func() bool {
		return strings.HasPrefix(b.Peek("location.pathname"), sessionPath) &&
			b.Peek("document.readyState") == "complete"
	})
	base := at + baseOf.FindString(b.Text("location.pathname"))
	b.Seen()
	for _, path := range wickedPages() {
		b.Open(base + path)
		name := path[:min(len(path), 40)]
		if found := b.Text(
			`[...document.querySelectorAll("script,img,svg,iframe,object,embed,math,template,base,style,video,audio,link:not([href='/style.css'])")].map(e => e.outerHTML).join()`); found != "" {
			t.Errorf("%s: elements of somebody else: %s", name, found)
		}
		if found := b.Text(
			`[...document.querySelectorAll("*")].filter(e => [...e.attributes].some(a => /^on|^style$|^formaction$/.test(a.name))).map(e => e.outerHTML).join()`); found != "" {
			t.Errorf("%s: attributes of somebody else: %s", name, found)
		}
		if found := b.Text(
			`[...document.querySelectorAll("form,a")].map(e => e.action || e.href).filter(u => u && new URL(u).origin != location.origin).join()`); found != "" {
			t.Errorf("%s: it leads to %s", name, found)
		}
		if owned := b.Text("String(window.owned)"); owned != "undefined" {
			t.Errorf("%s: a text was run", name)
		}
		if n := b.Text(
			`document.querySelectorAll("h1").length + " " + document.querySelectorAll("main").length`); n != "1 1" {
			t.Errorf("%s: headings and places: %s", name, n)
		}
	}
	requests, dialogs, _ := b.Seen()
	for _, r := range requests {
		if !strings.HasPrefix(r, at+"/") {
			t.Errorf("the browser asked for %s", r)
		}
	}
	if len(dialogs) > 0 || len(requests) < len(wickedPages()) {
		t.Errorf("dialogs %v, %d requests", dialogs, len(requests))
	}
	b.Open("data:text/html,<body><img src=x onerror='window.owned=1'>")
	waitFor(t, func() bool { return b.Peek("String(window.owned)") == "1" }) // the control
}

func waitFor(t testing.TB, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it never came")
		}
	}
}

// The list has what it claims to have.
func TestHostileList(t *testing.T) {
	seen := map[string]bool{}
	invalid, control := 0, 0
	for _, s := range naughty {
		if seen[s] {
			t.Errorf("%q is there twice", s)
		}
		seen[s] = true
		if !utf8.ValidString(s) {
			invalid++
		}
		if strings.ContainsFunc(s, unicode.IsControl) {
			control++
		}
	}
	if len(naughty) < 250 || invalid < 10 || control < 30 {
		t.Errorf("%d texts, %d that are no UTF-8, %d with control characters", len(naughty),
			invalid, control)
	}
}
