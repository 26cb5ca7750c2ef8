package console

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/jail/gitrepo"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/policy/meaning"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/approvals"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// fake is a daemon of the tests' own.
type fake struct {
	mu        sync.Mutex
	runs      []message.RunInfo
	kept      []shadows.WorkspaceInfo
	lines     []api.ReviewLine
	records   []json.RawMessage
	digest    string
	git       []gitrepo.Report
	down      error // every answer
	committed []shadows.CommitRequest
	discarded []string
	reverted  []string
	killed    []int
	asked     []message.RecordsRequest
	actions   []approvals.Action
	decided   []approvals.DecideRequest
}

func (f *fake) err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.down
}

func (f *fake) set(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = err
}

func (f *fake) Version(context.Context) (api.Version, error) {
	return api.Version{Version: "1", PID: 7}, f.err()
}

func (f *fake) AuditRecords(_ context.Context,
	req message.RecordsRequest) iter.Seq2[audit.Record, error] {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, req)
	return func(yield func(audit.Record, error) bool) {
		if f.down != nil {
			yield(audit.Record{}, f.down)
			return
		}
		for _, line := range f.records {
			if rec, err := audit.ParseRecord(line); !yield(rec, err) || err != nil {
				return
			}
		}
	}
}

func (f *fake) Runs(context.Context) ([]message.RunInfo, error) { return f.runs, f.err() }

func (f *fake) Workspaces(context.Context) ([]shadows.WorkspaceInfo, error) {
	return f.kept, f.err()
}

func (f *fake) Inspect(_ context.Context, id string) (api.Records, error) {
	for i := range f.runs {
		if f.runs[i].ID == id {
			return api.Records{Live: &f.runs[i]}, f.err()
		}
	}
	if f.err() == nil && (id == "gone" || len(f.records) == 0) {
		return api.Records{}, &problem.Error{Code: problem.NotFound,
			Message: fmt.Sprintf("no run is called %q", id), Hint: "jail ps lists what runs"}
	}
	return api.Records{Records: f.records}, f.err()
}

func (f *fake) Changes(_ context.Context, id, _ string,
	_ ...string) iter.Seq2[api.ReviewLine, error] {
	return func(yield func(api.ReviewLine, error) bool) {
		if f.err() != nil || id == "gone" {
			yield(api.ReviewLine{}, errors.Join(f.err(),
				map[bool]error{true: &problem.Error{Code: problem.NotFound,
					Message: "no shadow is kept for run \"gone\""}}[id == "gone"]))
			return
		}
		for _, l := range f.lines {
			if !yield(l, nil) {
				return
			}
		}
		s := api.ReviewSummary{}
		s.Git = f.git
		s.Digest = f.digest
		for _, l := range f.lines {
			if l.Change != nil {
				s.Modified++
			}
		}
		yield(api.ReviewLine{Summary: &s}, nil)
	}
}

func (f *fake) Commit(_ context.Context, _ string, req shadows.CommitRequest) (workspace.Result,
	error) {
	if f.err() != nil {
		return workspace.Result{}, f.err()
	}
	if req.Digest != f.digest {
		return workspace.Result{}, &problem.Error{Code: problem.Conflict,
			Message: "workspace x: the changes are not those that were reviewed",
			Hint:    "jail diff x shows what there is now"}
	}
	f.committed = append(f.committed, req)
	return workspace.Result{State: workspace.Frozen, Digest: f.digest}, nil
}

func (f *fake) Discard(_ context.Context, id string) error {
	if f.err() == nil {
		f.discarded = append(f.discarded, id)
	}
	return f.err()
}

func (f *fake) Revert(_ context.Context, id string, req shadows.RevertRequest) (workspace.Reverted,
	error) {
	if f.err() != nil {
		return workspace.Reverted{}, f.err()
	}
	if req.Commit != f.digest {
		return workspace.Reverted{}, &problem.Error{Code: problem.Conflict,
			Message: "another commit is the last that stands"}
	}
	f.reverted = append(f.reverted, id)
	r := workspace.Reverted{Commit: req.Commit, State: workspace.Frozen, Left: []string{id}}
	for _, l := range f.lines {
		if l.Change != nil {
			r.Changes = append(r.Changes, l.Change.Change)
		}
	}
	return r, nil
}

func (f *fake) Kill(_ context.Context, _ string, signal int) error {
	if f.err() == nil {
		f.killed = append(f.killed, signal)
	}
	return f.err()
}

// fakeApprovals is the queue of a fake.
type fakeApprovals struct{ *fake }

func (f fakeApprovals) List(_ context.Context, all bool) ([]approvals.Action, error) {
	var list []approvals.Action
	for _, a := range f.actions {
		if all || !a.State.Over() {
			list = append(list, a)
		}
	}
	return list, f.err()
}

func (f fakeApprovals) Get(_ context.Context, id string) (approvals.Action, error) {
	for _, a := range f.actions {
		if a.ID == id {
			return a, f.err()
		}
	}
	return approvals.Action{}, cmp.Or(f.err(), error(problem.New(problem.NotFound,
		"no action %q waits for an approval, or did", id)))
}

func (f fakeApprovals) Decide(ctx context.Context, id string,
	req approvals.DecideRequest) (approvals.Action, error) {
	a, err := f.Get(ctx, id)
	if err == nil && req.SHA256 != a.SHA256 {
		err = problem.New(problem.Conflict, "the digest is not that of action %s", id)
	}
	if err != nil {
		return a, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.decided = append(f.decided, req)
	a.State = map[string]approvals.State{"approve": approvals.Applied,
		"reject": approvals.Rejected}[req.Decision]
	return a, nil
}

// refusedConnection is what a client says when nobody listens on the socket.
func refusedConnection() error {
	return &url.Error{Op: "Get", URL: "http://jail/v1/runs",
		Err: &net.OpError{Op: "dial", Net: "unix", Err: syscall.ECONNREFUSED}}
}

type fakePolicies struct{ answer string }

func (p fakePolicies) Profiles() []Profile { return []Profile{{Name: "default"}} }

func (p fakePolicies) Explain(string) (meaning.Explanation, error) {
	at := &syntax.Position{File: "/etc/" + p.answer, Line: 3, Column: 1}
	item := meaning.Item{Key: "fetch/" + p.answer, Value: p.answer,
		Given:    &meaning.Origin{Layer: p.answer, At: at},
		Narrowed: []meaning.Origin{{Layer: p.answer, Rule: p.answer}}}
	return meaning.Explanation{Digest: "sha256:00", Items: []meaning.Item{item},
		Lost: []meaning.Item{item}, Warnings: []string{p.answer}}, nil
}

func (p fakePolicies) Why(_, question string) (meaning.Answer, error) {
	if strings.HasPrefix(question, "nonsense") {
		return meaning.Answer{}, errors.New("no such question: " + p.answer)
	}
	return meaning.Answer{Question: question, Layer: p.answer, Rule: p.answer,
		Layers: []meaning.Verdict{{Layer: p.answer, Source: p.answer, Rule: p.answer}}}, nil
}

// newLog is a log with what the entries say, below the directory of the test.
func newLog(t testing.TB, entries ...audit.Entry) Dir {
	t.Helper()
	dir := t.TempDir()
	l, err := audit.Open(audit.Options{Dir: filepath.Join(dir, "log"),
		KeyDir: filepath.Join(dir, "keys")})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if _, err := l.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return Dir(filepath.Join(dir, "log"))
}

// A client is a browser as simple as can be: it keeps one cookie, and says of itself what a test
// wants.
type client struct {
	t      testing.TB
	con    *Console
	host   string
	base   string
	cookie string
	csrf   string
}

const testHost = "127.0.0.1:4711"

func newClient(t testing.TB, o Options) *client {
	t.Helper()
	if o.Daemon == nil {
		o.Daemon = &fake{digest: "sha256:aa"}
	}
	if f, ok := o.Daemon.(*fake); ok && o.Approvals == nil {
		o.Approvals = fakeApprovals{f}
	}
	if o.Log == nil {
		o.Log = newLog(t)
	}
	if o.Policies == nil {
		o.Policies = fakePolicies{"x"}
	}
	if o.Hosts == nil {
		o.Hosts = []string{testHost}
	}
	con, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	c := &client{t: t, con: con, host: testHost}
	c.login()
	return c
}

var (
	baseOf = regexp.MustCompile(`/c/[A-Za-z0-9_-]{43}`)
	csrfOf = regexp.MustCompile(`name="csrf" value="([A-Za-z0-9_-]{43})"`)
)

func (c *client) login() {
	c.t.Helper()
	path, _ := c.con.Link()
	w := c.do("GET", path, nil, nil)
	cookies := w.Result().Cookies()
	if w.Code != http.StatusOK || len(cookies) != 1 {
		c.t.Fatalf("login: %d, %v", w.Code, cookies)
	}
	c.base, c.cookie = baseOf.FindString(w.Body.String()), cookies[0].Value
	if m := csrfOf.FindStringSubmatch(c.do("GET", c.base+"/", nil, nil).Body.String()); m != nil {
		c.csrf = m[1]
	}
}

// do asks as a browser does that is on a page of ours; change makes it something else.
func (c *client) do(method, path string, form url.Values,
	change func(*http.Request)) *httptest.ResponseRecorder {
	c.t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(form.Encode()))
	r.Host = c.host
	if c.cookie != "" {
		r.Header.Set("Cookie", cookieName+"="+c.cookie)
	}
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	r.Header.Set("Sec-Fetch-Mode", "navigate")
	r.Header.Set("Sec-Fetch-Dest", "document")
	if method == "POST" {
		r.Header.Set("Origin", "http://"+c.host)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	c.con.ServeHTTP(w, r)
	return w
}

func (c *client) get(path string) *httptest.ResponseRecorder {
	c.t.Helper()
	return c.do("GET", c.base+path, nil, nil)
}

// post sends a form of ours.
func (c *client) post(path string, form url.Values) *httptest.ResponseRecorder {
	c.t.Helper()
	form.Set("csrf", c.csrf)
	return c.do("POST", c.base+path, form, nil)
}

// modified is a change of a file with that many hunks.
func modified(path string, hunks int) []api.ReviewLine {
	file := &workspace.Node{Type: workspace.File, Mode: 0o644, Size: 3}
	lines := []api.ReviewLine{{Change: &api.Change{Change: workspace.Change{
		Path: workspace.Name(path), Kind: workspace.Modified, Before: file, After: file}}}}
	if hunks == 0 {
		return lines
	}
	h := &workspace.FileHunks{Path: workspace.Name(path)}
	for i := range hunks {
		h.Hunks = append(h.Hunks, workspace.Hunk{From: 10 * i, FromLines: 1, To: 10 * i, ToLines: 1,
			Lines: []string{"-old", fmt.Sprintf("+new %d", i)}})
	}
	return append(lines, api.ReviewLine{Hunks: h})
}
