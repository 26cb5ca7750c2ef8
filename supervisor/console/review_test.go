package console

import (
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// A commit takes what was marked, and names the digest of what was shown.
func TestMarks(t *testing.T) {
	f := &fake{digest: "sha256:aa"}
	f.lines = append(append(modified("a", 3), modified("b", 1)...), modified(`c\x1b:d`, 2)...)
	c := newClient(t, Options{Daemon: f})
	body := c.get("/runs/r/review").Body.String()
	for _, want := range []string{`name="take" value="a"`, `name="hunk" value="2:a"`,
		`name="of" value="3:a"`, `name="of" value="1:b"`, `name="digest" value="sha256:aa"`,
		`value="1:c\\x1b:d"`} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s", want)
		}
	}
	for name, x := range map[string]struct {
		form string
		want *shadows.CommitRequest
		code int
	}{
		"a file": {"take=a", &shadows.CommitRequest{Paths: []string{"a"}}, 200},
		"hunks": {"hunk=2:a&hunk=0:a&of=3:a",
			&shadows.CommitRequest{Hunks: map[string][]int{"a": {2, 0}}}, 200},
		"a hunk twice": {"hunk=1:a&hunk=1:a&of=3:a",
			&shadows.CommitRequest{Hunks: map[string][]int{"a": {1}}}, 200},
		"all hunks": {"hunk=2:a&hunk=0:a&hunk=1:a&of=3:a",
			&shadows.CommitRequest{Paths: []string{"a"}}, 200},
		"a file and its hunk": {"take=a&hunk=1:a&of=3:a",
			&shadows.CommitRequest{Paths: []string{"a"}}, 200},
		"a name with a colon": {`hunk=1:c\\x1b:d&of=2:c\\x1b:d`,
			&shadows.CommitRequest{Hunks: map[string][]int{`c\\x1b:d`: {1}}}, 200},
		"both": {"take=b&hunk=1:a&of=3:a",
			&shadows.CommitRequest{Paths: []string{"b"}, Hunks: map[string][]int{"a": {1}}}, 200},
		"nothing":          {"of=3:a", nil, 400},
		"no number":        {"hunk=x:a", nil, 400},
		"a number below 0": {"hunk=-1:a", nil, 400},
		"no path":          {"hunk=1", nil, 400},
		"no digest":        {"take=a&digest=", nil, 400},
		"another digest":   {"take=a&digest=sha256:bb", nil, 409},
	} {
		f.committed = nil
		form, err := url.ParseQuery(x.form)
		if err != nil {
			t.Fatal(err)
		}
		if !form.Has("digest") {
			form.Set("digest", "sha256:aa")
		}
		w := c.post("/runs/r/commit", form)
		if w.Code != x.code || len(f.committed) > 0 != (x.want != nil) {
			t.Errorf("%s: %d, %v", name, w.Code, f.committed)
			continue
		}
		if x.want == nil {
			if !strings.Contains(w.Body.String(), "Nothing was done") ||
				!strings.Contains(w.Body.String(), "/runs/r/review") {
				t.Errorf("%s: no words: %s", name, w.Body)
			}
			continue
		}
		x.want.Digest, x.want.Exact, x.want.IncludeProtected = "sha256:aa", true, true
		if !reflect.DeepEqual(f.committed[0], *x.want) {
			t.Errorf("%s: %+v, want %+v", name, f.committed[0], *x.want)
		}
	}
	if w := c.post("/runs/r/commit", url.Values{"digest": {"sha256:aa"}, "what": {"all"},
		"pages": {"1"}, "take": {"a"}}); w.Code != 200 ||
		!reflect.DeepEqual(f.committed[len(f.committed)-1],
			shadows.CommitRequest{Digest: "sha256:aa"}) {
		t.Errorf("all: %d, %+v", w.Code, f.committed)
	}
	if w := c.post("/runs/r/commit", url.Values{"digest": {"sha256:aa"}, "what": {"all"},
		"pages": {"2"}}); w.Code != 400 || !strings.Contains(w.Body.String(), "other pages") {
		t.Errorf("all of two pages without a word for the other: %d", w.Code)
	}
}

// What may not be committed cannot be marked.
func TestShut(t *testing.T) {
	f := &fake{digest: "sha256:aa"}
	f.lines = modified("dev", 2)
	f.lines[0].Change.Refused = "a device"
	c := newClient(t, Options{Daemon: f})
	if body := c.get("/runs/r/review").Body.String(); strings.Contains(body, `name="take"`) ||
		strings.Contains(body, `name="hunk"`) || !strings.Contains(body,
		"never committed: a device") {
		t.Error(body)
	}
	f.lines = append([]api.ReviewLine{{Info: &shadows.WorkspaceInfo{Commit: "never"}}},
		modified("a", 2)...)
	if body := c.get("/runs/r/review").Body.String(); strings.Contains(body,
		`type="checkbox" name="take"`) || strings.Contains(body, "Commit what is marked") ||
		!strings.Contains(body, "allows no commit") {
		t.Error(body)
	}
}

// A shadow is thrown away with a yes, and only if it is still what was shown.
func TestDiscard(t *testing.T) {
	f := &fake{digest: "sha256:aa"}
	f.lines = modified("a", 1)
	c := newClient(t, Options{Daemon: f})
	for _, x := range []struct {
		form url.Values
		want int
	}{
		{url.Values{"digest": {"sha256:aa"}}, 400}, {url.Values{"sure": {"yes"},
			"digest": {"sha256:bb"}}, 409}, {url.Values{"sure": {"yes"}}, 409},
		{url.Values{"sure": {"yes"}, "digest": {"sha256:aa"}}, 200},
	} {
		f.discarded = nil
		if w := c.post("/runs/r/discard", x.form); w.Code != x.want ||
			(x.want == 200) != (len(f.discarded) == 1) {
			t.Errorf("%v: %d, %v", x.form, w.Code, f.discarded)
		}
	}
}

// A page is bounded, however large the change set is; the rest has pages of its own, and all of it
// can be reached.
func TestLargeChangeSet(t *testing.T) {
	f := &fake{digest: "sha256:aa"}
	for i := range 10*pageChanges + 1 {
		f.lines = append(f.lines, modified(fmt.Sprintf("many/%04d", i), 1)...)
	}
	c := newClient(t, Options{Daemon: f})
	seen := map[string]bool{}
	next, pages := "/runs/r/review", 0
	for next != "" {
		pages++
		body := c.get(next).Body.String()
		for _, m := range regexp.MustCompile(`name="take" value="([^"]*)"`).FindAllStringSubmatch(
			body, -1) {
			seen[m[1]] = true
		}
		next = ""
		if m := regexp.MustCompile(`href="` + c.base + `([^"]*)" rel="next"`).FindStringSubmatch(
			body); m != nil {
			next = m[1]
		}
	}
	if len(seen) != 10*pageChanges+1 || pages != 11 {
		t.Errorf("%d changes on %d pages", len(seen), pages)
	}
	if w := c.get("/runs/r/review?page=99999999999999999999"); w.Code != 200 {
		t.Errorf("a page that is none: %d", w.Code)
	}
	if body := c.get("/runs/r/review?page=77").Body.String(); strings.Contains(body,
		`name="take"`) {
		t.Error("changes on a page that is none")
	}
}

func TestLargeFile(t *testing.T) {
	file := &workspace.Node{Type: workspace.File, Mode: 0o644, Size: 1 << 20}
	var text strings.Builder
	const lines = 3*windowLines + 17
	for i := range lines {
		fmt.Fprintf(&text, "+line %d of it\n", i)
	}
	f := &fake{digest: "sha256:aa", lines: []api.ReviewLine{
		{Change: &api.Change{Change: workspace.Change{Path: "big", Kind: workspace.Added,
			After: file}}}, {Patch: []byte(text.String()[:70000])},
		{Patch: []byte(text.String()[70000:])},
		{Change: &api.Change{Change: workspace.Change{Path: "wide", Kind: workspace.Added,
			After: file}}}, {Patch: []byte("+" + strings.Repeat("x", 10<<20) + "\n")},
	}}
	f.lines = append(f.lines, modified("small", 1)...)
	c := newClient(t, Options{Daemon: f})
	w := c.get("/runs/r/review")
	body := w.Body.String()
	if len(body) > 200<<10 || !strings.Contains(body, fmt.Sprintf("Show more: %d lines of %d",
		lines-fileLines, lines)) || !strings.Contains(body, "bytes more in this line") ||
		!strings.Contains(body, "new 0") {
		t.Errorf("%d bytes: %.3000s", len(body), body)
	}
	next, got := "/runs/r/review?path=big", 0
	for pages := 0; next != "" && pages < 9; pages++ {
		body := c.get(next).Body.String()
		got += strings.Count(body, " of it</span>")
		next = ""
		if m := regexp.MustCompile(`href="` + c.base + `([^"]*)" rel="next"`).FindStringSubmatch(
			body); m != nil {
			next = strings.ReplaceAll(m[1], "&amp;", "&")
		}
	}
	if got != lines {
		t.Errorf("%d of %d lines can be reached", got, lines)
	}
	if w := c.get("/runs/r/review?path=none"); w.Code != 404 || !strings.Contains(w.Body.String(),
		"No change of this run has the path none") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// A console that is left open over a restart of the daemon says so, and works again; what was not
// done is said.
func TestDaemonGone(t *testing.T) {
	f := &fake{digest: "sha256:aa"}
	f.lines = modified("a", 1)
	c := newClient(t, Options{Daemon: f})
	f.set(refusedConnection())
	for _, path := range []string{"/", "/runs/r", "/runs/r/review"} {
		w := c.get(path)
		if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(),
			"The daemon does not answer") || !strings.Contains(w.Body.String(),
			`http-equiv="refresh"`) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	form := func() url.Values { return url.Values{"digest": {"sha256:aa"}, "take": {"a"}} }
	if w := c.post("/runs/r/commit", form()); w.Code != 503 || !strings.Contains(w.Body.String(),
		"Nothing was done") || strings.Contains(w.Body.String(), `http-equiv="refresh"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	f.set(fmt.Errorf("answer of the daemon: %w", http.ErrServerClosed))
	if w := c.post("/runs/r/commit", form()); w.Code != 502 || !strings.Contains(w.Body.String(),
		"not known whether") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	f.set(nil)
	if w := c.get("/runs/r/review"); w.Code != 200 {
		t.Errorf("back: %d", w.Code)
	}
	if w := c.post("/runs/r/commit", form()); w.Code != 200 || len(f.committed) != 1 {
		t.Errorf("back: %d", w.Code)
	}
	for _, path := range []string{"/runs/gone", "/runs/gone/review"} {
		if w := c.get(path); w.Code != 404 || !strings.Contains(w.Body.String(), "gone") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}
