package worker

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jail-sandbox/jail/supervisor/agents/manifest"
	"github.com/jail-sandbox/jail/supervisor/approvals"
	"github.com/jail-sandbox/jail/supervisor/fetchrun"
	"github.com/jail-sandbox/jail/supervisor/redact"
)

// sendFunc is a sender that reaches nobody.
type sendFunc func(ctx context.Context)

func (f sendFunc) Send(ctx context.Context, _ fetchrun.Request) (*fetchrun.Response, error) {
	f(ctx)
	return nil, errors.New("no daemon")
}

// TestEndIsTold: a coordinator that was too slow for the steps of a task is told its end.
func TestEndIsTold(t *testing.T) {
	to, err := url.Parse("https://coordinator.example.com")
	if err != nil {
		t.Fatal(err)
	}
	began, answer := make(chan struct{}), make(chan struct{})
	sent, first := 0, sync.OnceFunc(func() { close(began) })
	r := newReporter(Options{Task: manifest.Task{Coordinator: manifest.Coordinator{URL: to}},
		Sender: sendFunc(func(ctx context.Context) {
			first()
			select {
			case <-answer:
			case <-ctx.Done():
			}
			sent++
		})})
	r.report(Progress{Status: statusStarting})
	<-began
	for range maxQueued + 10 {
		r.report(Progress{Status: statusThinking})
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.end(Outcome{TaskID: "a"})
	}()
	close(answer)
	<-ended
	// The one that is being sent, those of the queue, and the end.
	if sent != 1+maxQueued+1 {
		t.Errorf("%d messages were sent, want %d", sent, 1+maxQueued+1)
	}
}

const written = `write_file {"path":"new","content":"x\n"}`

// TestSequence: a task tells its steps in order, makes one commit, pushes it and has a pull request
// made; without changes nothing is pushed, and a coordinator that does not answer changes nothing.
func TestSequence(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		w := newWorld(t, written, "Sums are sums again.")
		w.deaf = deaf
		out := w.do(t.Context())
		if !out.Success || !slices.Equal(out.FilesChanged, []string{"new"}) || out.Commit != hash("c") ||
			out.Summary != "Sums are sums again." || !strings.HasSuffix(out.PRURL, "/pull/1") ||
			out.Kept != "" || !w.discarded || len(w.pushes) != 1 {
			t.Fatalf("%+v, %d pushes", out, len(w.pushes))
		}
		push := []string{sendScript, "sh", w.task.Repo.String(), hash("a"), hash("c"), "agent/task-1",
			fmt.Sprintf("%x", sha256.Sum256([]byte("new\x00")))}
		if got := []string(w.pushes[0].Args[1:]); !slices.Equal(got, push) {
			t.Errorf("the push is given %q", got)
		}
		if !slices.Equal(w.commits, []string{"task-1: mend the sum"}) {
			t.Errorf("commits %q", w.commits)
		}
		want := []string{"starting", "cloning", "branching", "thinking", "tool", "thinking",
			"committing", "pushing", "creating_pr"}
		if got := w.statuses(); !slices.Equal(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}
		var got []string
		for _, p := range w.told("progress") {
			got = append(got, p["status"].(string))
			_, err := time.Parse(time.RFC3339, p["timestamp"].(string))
			call, _ := p["tool_call"].(map[string]any)
			if err != nil || p["task_id"] != "task-1" || (call != nil) != (p["status"] == "tool") ||
				call != nil && (call["name"] != "write_file" || call["input"] == nil) {
				t.Errorf("the coordinator got %v, %v", p, err)
			}
		}
		end := w.told("complete")
		if !slices.Equal(got, want) || len(end) != 1 || end[0]["success"] != true ||
			end[0]["summary"] != out.Summary || end[0]["prUrl"] != out.PRURL {
			t.Errorf("the coordinator got %q, and at the end %v", got, end)
		}
	}
	w := newWorld(t, "nothing to do")
	out := w.do(t.Context())
	if !out.Success || out.FilesChanged == nil || len(out.FilesChanged) != 0 || len(w.pushes) != 0 ||
		!strings.Contains(out.Summary, "nothing was pushed") || !w.discarded {
		t.Errorf("without changes: %+v, %d pushes", out, len(w.pushes))
	}
}

// TestFails: each of the codes comes about, and what was changed is saved as work in progress. What
// cannot be pushed stays in its session.
func TestFails(t *testing.T) {
	for name, c := range map[string]struct {
		steps   []string
		set     func(w *world, cancel func())
		code    string
		again   bool
		asked   int
		saved   bool
		kept    bool
		message string
	}{
		"no clone": {steps: []string{"x"}, code: cloneFailed, message: "git clone",
			set: func(w *world, _ func()) { w.git["clone"] = 128 }},
		"no submodule": {steps: []string{"x"}, code: cloneFailed, message: "git submodule",
			set: func(w *world, _ func()) {
				w.git["submodule"], w.task.Submodules = 128, []*url.URL{w.task.Repo}
			}},
		"no base": {steps: []string{"x"}, code: cloneFailed, message: "has no branch none",
			set: func(w *world, _ func()) { w.task.Base = "none" }},
		"tools for ever": {steps: []string{written, `nothing {}`}, code: tooMany, asked: 50, saved: true},
		"refused":        {steps: []string{written, "400!no"}, code: apiError, asked: 2, saved: true},
		"busy": {steps: []string{written, "429!slower"}, code: apiError, again: true, asked: 5,
			saved: true},
		"broken": {steps: []string{written, "500!oh"}, code: apiError, again: true, asked: 3,
			saved: true},
		"too slow": {steps: []string{written, "hold"}, code: timedOut, asked: 2, saved: true,
			message: "30m0s"},
		"interrupted": {steps: []string{written, written}, code: toolFailed, asked: 2, saved: true,
			set: func(w *world, cancel func()) {
				w.during = func(int) {
					if w.asked == 2 {
						cancel()
					}
				}
			}},
		"jail itself": {steps: []string{written, written, "x"}, code: toolFailed, asked: 2,
			message: "no daemon", set: func(w *world, _ func()) {
				w.during = func(int) {
					if w.asked == 2 {
						w.broken = errors.New("no daemon")
					}
				}
			}},
		"the session is another one": {steps: []string{written, written, "x"}, code: toolFailed, asked: 2,
			message: "was stopped", set: func(w *world, _ func()) {
				w.during = func(int) {
					if w.asked == 2 {
						w.id = "two"
					}
				}
			}},
		"no pull request": {steps: []string{written, "x"}, code: prFailed, asked: 2,
			message: redact.Redacted, set: func(w *world, _ func()) {
				w.status, w.answer = 422, "no, https://me:secret@forge.example.com"
			}},
		"no push": {steps: []string{written, "x"}, code: pushFailed, asked: 2, kept: true,
			message: "the server refused it", set: func(w *world, _ func()) { w.push = 1 }},
		"no commit": {steps: []string{written, "x"}, code: pushFailed, asked: 2, kept: true,
			message: "git commit", set: func(w *world, _ func()) { w.git["commit"] = 128 }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.steps...)
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.set != nil {
					c.set(w, cancel)
				}
				out := w.do(ctx)
				if out.Success || out.Error == nil || out.Error.Code != c.code ||
					out.Error.Recoverable != c.again || w.asked != c.asked ||
					!strings.Contains(out.Error.Message, c.message) ||
					strings.Contains(out.Error.Message, "secret") {
					t.Fatalf("%+v, asked %d times; want %+v", out.Error, w.asked, c)
				}
				if told := w.told("error"); len(told) != 1 || !maps.Equal(told[0]["error"].(map[string]any),
					map[string]any{"code": c.code, "message": out.Error.Message, "recoverable": c.again}) {
					t.Errorf("the coordinator got %v", told)
				}
				got := w.statuses()
				if waited := slices.Contains(got, statusWaiting); waited != c.again {
					t.Errorf("told %q", got)
				}
				if recovering := slices.Contains(got, statusRecovering); recovering != (c.saved || c.kept) {
					t.Errorf("told %q", got)
				}
				wip := len(w.commits) > 0 && w.commits[len(w.commits)-1] == "[WIP] task-1: mend the sum"
				if wip != (c.saved || c.code == pushFailed && w.push != 0) ||
					c.saved != (wip && len(w.pushes) == 1 && out.Commit != "") {
					t.Errorf("commits %q, %d pushes", w.commits, len(w.pushes))
				}
				if (out.Kept != "") != c.kept || w.discarded == c.kept && c.code != cloneFailed {
					t.Errorf("kept %q, discarded %v", out.Kept, w.discarded)
				}
			})
		})
	}
}

// TestApprovals: a push waits for a person. What nobody approves while the task has time is taken
// back, and neither that nor what a person rejects is proposed again; its work stays.
func TestApprovals(t *testing.T) {
	for _, c := range []struct {
		name      string
		decided   approvals.State
		code      string
		withdrawn int
	}{
		{"approved", approvals.Approved, "", 0},
		{"rejected", approvals.Rejected, pushFailed, 0},
		{"nobody", "", timedOut, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, written, "done")
			synctest.Test(t, func(t *testing.T) {
				w.decision, w.decided = approvals.Pending, c.decided
				out := w.do(t.Context())
				code := ""
				if out.Error != nil {
					code = out.Error.Code
				}
				if code != c.code || w.withdrawn != c.withdrawn || (out.Kept == "") != (c.code == "") {
					t.Errorf("%+v, %+v, withdrawn %d", out, out.Error, w.withdrawn)
				}
				want := 2
				if c.code != "" {
					want = 1
				}
				if len(w.proposals) != want || len(w.pushes) != want-1 {
					t.Errorf("%d proposals, %d pushes", len(w.proposals), len(w.pushes))
				}
				if !slices.Contains(w.statuses(), statusWaiting) {
					t.Errorf("told %q", w.statuses())
				}
			})
		})
	}
}

// TestForges: the request for a pull request is that of the forge.
func TestForges(t *testing.T) {
	for _, c := range []struct{ kind, api, url, accept, version string }{
		{"github", "https://api.github.com", "https://api.github.com/repos/acme/web/pulls",
			"application/vnd.github+json", "2022-11-28"},
		{"github", "https://git.example.com/api/v3", "https://git.example.com/api/v3/repos/acme/web/pulls",
			"application/vnd.github+json", "2022-11-28"},
		{"gitea", "https://forge.example.com", "https://forge.example.com/api/v1/repos/acme/web/pulls",
			"application/json", ""},
	} {
		w := newWorld(t, written, "Sums\x1b are sums.")
		w.task.Forge.Kind, w.task.Coordinator.URL = c.kind, nil
		var err error
		if w.task.Forge.API, err = url.Parse(c.api); err != nil {
			t.Fatal(err)
		}
		if out := w.do(t.Context()); !out.Success || len(w.sent) != 1 {
			t.Fatalf("%s: %+v, %+v", c.kind, out.Error, w.sent)
		}
		r := w.sent[0]
		var body map[string]string
		if err := json.Unmarshal(r.Body, &body); err != nil {
			t.Fatal(err)
		}
		if r.Method != "POST" || r.URL.String() != c.url || r.Credential != "forge-api" ||
			r.Header["Accept"] != c.accept || r.Header["X-GitHub-Api-Version"] != c.version ||
			!maps.Equal(body, map[string]string{"title": "task-1: mend the sum", "head": "agent/task-1",
				"base": "main", "body": "Sums are sums."}) {
			t.Errorf("%s: %s %s %v %q", c.kind, r.Method, r.URL, r.Header, r.Body)
		}
	}
}

// TestHostileAnswers: what a forge or a model says is not taken for more than it may be.
func TestHostileAnswers(t *testing.T) {
	for text, want := range map[string]bool{
		"https://forge.example.com/acme/web/pulls/1":  true,
		"http://127.0.0.1:3000/acme/web/pulls/1":      true,
		"":                                            false,
		"javascript:alert(1)":                         false,
		"/acme/web/pulls/1":                           false,
		"https://forge.example.com/":                  true,
		"https://me:secret@forge.example.com/pulls/1": false,
		"https://forge.example.com/\u202e1":           false,
		"https://forge.example.com/" + strings.Repeat("a", 1000): false,
	} {
		if isPage(text) != want {
			t.Errorf("isPage(%.60q) = %v", text, !want)
		}
	}
	if got := seen("a\n\tb\x1b[2J\u202e\u200d\r\xff"); got != "a\n\tb[2J\uFFFD" {
		t.Errorf("seen: %q", got)
	}
}
