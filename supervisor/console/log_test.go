package console

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// The pages of the log hold each record once, and conditions hold over pages.
func TestSearch(t *testing.T) {
	var entries []audit.Entry
	for i := range 350 {
		e := audit.Entry{Run: fmt.Sprintf("r%d", i), Event: audit.RunStarted{Tool: "sed"}}
		if i%2 == 1 {
			e.Event = audit.Denied{Layer: "wasi", What: fmt.Sprintf("read /etc/%d", i), Rule: "no"}
		}
		entries = append(entries, e)
	}
	c := newClient(t, Options{Log: newLog(t, entries...)})
	runs := regexp.MustCompile(`/runs/(r\d+)"`)
	for query, want := range map[string]int{"": 350, "?type=denied": 175,
		"?type=denied,run.started": 350, "?decision=denied&layer=wasi": 175,
		"?path=%2Fetc%2F1*": 60, "?run=r3": 1, "?since=90m": 350, "?until=90m": 0,
		"?tool=sed": 175, "?user=0": 350, "?user=root": 350, "?user=4000000000": 0,
		"?policy=ff": 0} {
		seen, pages := map[string]bool{}, 0
		for next := "/log" + query; next != "" && pages < 9; pages++ {
			w := c.get(next)
			if w.Code != 200 {
				t.Fatalf("%s: %d", next, w.Code)
			}
			for _, m := range runs.FindAllStringSubmatch(w.Body.String(), -1) {
				if seen[m[1]] {
					t.Errorf("%s: %s twice", query, m[1])
				}
				seen[m[1]] = true
			}
			next = ""
			if m := regexp.MustCompile(`href="` + c.base +
				`([^"]*)" rel="next"`).FindStringSubmatch(w.Body.String()); m != nil {
				next = strings.ReplaceAll(m[1], "&amp;", "&")
			}
		}
		if query == "?path=%2Fetc%2F1*" {
			want = 0
			for i := range 350 {
				if i%2 == 1 && strings.HasPrefix(fmt.Sprint(i), "1") {
					want++
				}
			}
		}
		if len(seen) != want || pages != max(1, (want+pageRecords-1)/pageRecords) {
			t.Errorf("%s: %d records on %d pages, want %d", query, len(seen), pages, want)
		}
	}
	for query, want := range map[string]string{"since=soon": "Since: want",
		"until=x": "Until: want", "user=no-such-user": "knows no user of the name no-such-user",
		"decision=maybe": "Decision: want", "path=[": "Path: "} {
		if w := c.get("/log?" + query); w.Code != 400 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d", query, w.Code)
		}
	}
	if w := c.get("/log?before=x&type=none.such"); w.Code != 200 ||
		!strings.Contains(w.Body.String(), "No record is like that") {
		t.Errorf("%d", w.Code)
	}
}

// forbidden is a log whose files are not for the user.
type forbidden struct{ Log }

func (forbidden) Page(context.Context, audit.Filter, uint64, int) (audit.Page, error) {
	return audit.Page{}, &fs.PathError{Op: "open", Path: "/var/log/jail/audit",
		Err: fs.ErrPermission}
}

// Who may not read the files is shown what the daemon tells, page for page, by the same conditions;
// and why, where it tells nothing.
func TestSearchByTheDaemon(t *testing.T) {
	var entries []audit.Entry
	for i := range 250 {
		entries = append(entries,
			audit.Entry{Run: fmt.Sprintf("r%d", i), Event: audit.RunStarted{Tool: "sed"}})
	}
	log := newLog(t, entries...)
	f := &fake{}
	for rec, err := range audit.Scan(log.Where(),
		audit.Filter{Types: []audit.Type{audit.TypeRunStarted}}) {
		if err != nil {
			t.Fatal(err)
		}
		f.records = append(f.records, rec.Line)
	}
	c := newClient(t, Options{Daemon: f, Log: forbidden{log}})
	seen, pages, first := map[string]bool{}, 0, ""
	for next := "/log?type=run.started&path=%2Fetc%2F*&user=0"; next != ""; pages++ {
		w := c.get(next)
		if w.Code != 200 || !strings.Contains(w.Body.String(), "what the daemon tells you of") {
			t.Fatalf("%s: %d %s", next, w.Code, w.Body)
		}
		for _, m := range regexp.MustCompile(`/runs/(r\d+)"`).FindAllStringSubmatch(w.Body.String(),
			-1) {
			if seen[m[1]] {
				t.Errorf("%s twice", m[1])
			}
			if seen[m[1]] = true; first == "" {
				first = m[1]
			}
		}
		next = ""
		if m := regexp.MustCompile(`href="` + c.base + `([^"]*)" rel="next"`).FindStringSubmatch(
			w.Body.String()); m != nil {
			next = strings.ReplaceAll(m[1], "&amp;", "&")
		}
	}
	if len(seen) != 250 || pages != 3 || first != "r249" {
		t.Errorf("%d runs on %d pages, the first is %s", len(seen), pages, first)
	}
	for _, req := range f.asked {
		if req.Path != "/etc/*" || req.UID == nil || *req.UID != 0 || len(req.Types) != 1 ||
			req.Types[0] != "run.started" {
			t.Errorf("it was asked %+v", req)
		}
	}
	f.set(&problem.Error{Code: problem.Busy, Message: "the log is being read for you already"})
	if w := c.get("/log"); w.Code != http.StatusServiceUnavailable ||
		!strings.Contains(w.Body.String(), "is being read for you already") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// The state of the log stands on the page: in order, altered, or out of reach.
func TestVerified(t *testing.T) {
	dir := newLog(t, audit.Entry{Run: "r", Event: audit.RunStarted{Tool: "sed"}},
		audit.Entry{Run: "r", Event: audit.RunFinished{}})
	state := func(dir Dir, again func()) string {
		c := newClient(t, Options{Log: dir})
		waitFor(t, func() bool { return !c.con.verify.known().Running })
		again()
		if w := c.post("/log/verify", url.Values{}); w.Code != http.StatusSeeOther ||
			w.Header().Get("Location") != c.base+"/" {
			t.Errorf("verify: %d to %s", w.Code, w.Header().Get("Location"))
		}
		waitFor(t, func() bool { return !c.con.verify.known().Running })
		return c.get("/").Body.String()
	}
	if body := state(dir, func() {}); !strings.Contains(body, "The log verifies") {
		t.Error(body)
	}
	segments, err := filepath.Glob(filepath.Join(string(dir), "*.jsonl"))
	if err != nil || len(segments) != 1 {
		t.Fatal(segments, err)
	}
	text, err := os.ReadFile(segments[0])
	if err != nil {
		t.Fatal(err)
	}
	body := state(dir, func() {
		if err := os.WriteFile(segments[0], []byte(strings.Replace(string(text), "sed", "sad", 1)),
			0o600); err != nil {
			t.Fatal(err)
		}
	})
	if !strings.Contains(body, "THE LOG DOES NOT VERIFY: record 1 is altered") {
		t.Error(body)
	}
	if body := state(Dir("/nonexistent/log"), func() {}); !strings.Contains(body,
		"could not be verified") || !strings.Contains(body, "The log cannot be read") {
		t.Error(body)
	}
}

// Who may connect to a socket is its owner; nothing that stands in its place is taken away.
func TestListenUnix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("left beside it: %v", left)
	}
	if _, err := ListenUnix(path); err == nil || !strings.Contains(err.Error(),
		"somebody listens there") {
		t.Errorf("a socket in use: %v", err)
	}
	accepted := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			conn.Close()
		}
		accepted <- err
	}()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if err := <-accepted; err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("the socket is left behind")
	}
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ListenUnix(path); err == nil || !strings.Contains(err.Error(), "is no socket") {
		t.Errorf("a file in its place: %v", err)
	}
	if text, _ := os.ReadFile(path); string(text) != "mine" {
		t.Error("the file is gone")
	}
}
