package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// A live run has a button on both pages that show it; it leads to a page that asks, and ends the
// run only for who says how and that they mean it.
func TestKill(t *testing.T) {
	f := &fake{}
	var live message.RunInfo
	live.ID, live.Tool = "r", "core-utils/sleep"
	f.runs = []message.RunInfo{live}
	c := newClient(t, Options{Daemon: f})
	for _, page := range []string{"/", "/runs/r"} {
		if body := c.get(page).Body.String(); !strings.Contains(body, c.base+"/runs/r/kill") {
			t.Errorf("%s has no way to end the run", page)
		}
	}
	if w := c.get("/runs/r/kill"); w.Code != http.StatusOK || !strings.Contains(w.Body.String(),
		"core-utils/sleep") || strings.Contains(w.Body.String(), "http-equiv") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	for _, x := range []struct {
		form url.Values
		want int
	}{
		{url.Values{}, 400}, {url.Values{"signal": {"kill"}}, 400}, {url.Values{"sure": {"yes"}},
			400}, {url.Values{"sure": {"yes"}, "signal": {"19"}}, 400},
		{url.Values{"sure": {"yes"}, "signal": {"term"}}, 200},
		{url.Values{"sure": {"yes"}, "signal": {"kill"}}, 200},
	} {
		f.killed = nil
		if w := c.post("/runs/r/kill", x.form); w.Code != x.want ||
			(x.want == 200) != (len(f.killed) == 1) {
			t.Errorf("%v: %d, %v", x.form, w.Code, f.killed)
		}
	}
	if f.killed[0] != 9 {
		t.Errorf("signal %d", f.killed[0])
	}
	f.set(&problem.Error{Code: problem.NotFound, Message: "no run \"r\" is running"})
	if w := c.post("/runs/r/kill", url.Values{"sure": {"yes"}, "signal": {"kill"}}); w.Code != 404 {
		t.Errorf("a run that is gone: %d", w.Code)
	}
	f.set(nil)
	f.runs, f.records = nil, append(f.records, []byte(`{}`))
	if w := c.get("/runs/r/kill"); w.Code != http.StatusConflict ||
		!strings.Contains(w.Body.String(), "It has ended") {
		t.Errorf("a run that has ended: %d", w.Code)
	}
}

// A commit that stands has a button on the page of its run; the page behind it shows which commit
// it is, and only that one is undone.
func TestRevert(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	f := &fake{digest: "c2"}
	f.records = append(f.records, []byte(`{}`))
	f.lines = modified("a", 0)
	commit := func(id string, change func(*workspace.CommitRecord)) workspace.CommitRecord {
		r := workspace.CommitRecord{ID: id, Time: now.Add(-time.Hour), Paths: 3,
			Until: now.Add(time.Hour)}
		if change != nil {
			change(&r)
		}
		return r
	}
	c := newClient(t, Options{Daemon: f, now: func() time.Time { return now }})
	undone := func(r *workspace.CommitRecord) { r.Reverted = now }
	for name, x := range map[string]struct {
		commits []workspace.CommitRecord
		want    int
		// On the page that asks.
		shows  string
		button bool
	}{
		"none": {nil, 409, "No commit of the run r stands", false},
		"one":  {[]workspace.CommitRecord{commit("c1", nil)}, 200, `value="c1"`, true},
		"two": {[]workspace.CommitRecord{commit("c1", nil), commit("c2", nil)}, 200,
			`value="c2"`, true},
		"the last not": {[]workspace.CommitRecord{commit("c1", nil), commit("c2", undone)}, 200,
			`value="c1"`, true},
		"all undone": {[]workspace.CommitRecord{commit("c1", undone)}, 409,
			"No commit of the run r stands", false},
		"too old": {[]workspace.CommitRecord{commit("c1",
			func(r *workspace.CommitRecord) { r.Until = now.Add(-time.Second) })}, 409,
			"was kept until", false},
		"not kept": {[]workspace.CommitRecord{commit("c1",
			func(r *workspace.CommitRecord) { r.NotKept = "no room<b>" })}, 409, "no room&lt;b&gt;",
			false},
	} {
		var kept shadows.WorkspaceInfo
		kept.ID, kept.State, kept.Commits = "r", workspace.Committed, x.commits
		f.kept = []shadows.WorkspaceInfo{kept}
		if w := c.get("/runs/r/revert"); w.Code != x.want || !strings.Contains(w.Body.String(),
			x.shows) {
			t.Errorf("%s: %d, want %d and %q in %s", name, w.Code, x.want, x.shows, w.Body)
		}
		if has := strings.Contains(c.get("/runs/r").Body.String(),
			c.base+"/runs/r/revert"); has != x.button {
			t.Errorf("%s: the page of the run has a button: %v", name, has)
		}
	}
	if w := c.get("/runs/other/revert"); w.Code != 404 {
		t.Errorf("a run without a shadow: %d", w.Code)
	}
	for _, x := range []struct {
		form url.Values
		want int
	}{
		{url.Values{}, 400}, {url.Values{"commit": {"c2"}}, 400}, {url.Values{"sure": {"yes"}},
			400}, {url.Values{"sure": {"yes"}, "commit": {"c1"}}, 409},
		{url.Values{"sure": {"yes"}, "commit": {"c2"}}, 200},
	} {
		f.reverted = nil
		w := c.post("/runs/r/revert", x.form)
		if w.Code != x.want || (x.want == 200) != (len(f.reverted) == 1) {
			t.Errorf("%v: %d, %v", x.form, w.Code, f.reverted)
		}
		if x.want == 200 && !strings.Contains(w.Body.String(), "Undone: 1 change ") {
			t.Errorf("%s", w.Body)
		}
	}
}
