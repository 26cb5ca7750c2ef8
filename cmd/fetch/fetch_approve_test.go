package fetch_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/supervisor/approvals"
	"github.com/jail-sandbox/jail/supervisor/fetch/fetchtest"
)

const askFirst = `policy = 1
name = "asking"
include = ["%s"]
%s
[limits]
wall = "30s"
[[fetch.allow]]
host = "up.example.com"
ports = [443]
methods = ["GET", "POST"]
paths = ["/**"]
[fetch.limits]
timeout = "30s"
[[approve]]
action = "fetch"
host = "*.example.com"
methods = ["POST"]
mode = "ask"
`

// askWorld is a host where a POST waits for an approval, after the wall time of the run and the
// timeout of the request.
type askWorld struct {
	*cmdtest.Host
	guest, policy, native string

	mu sync.Mutex
	// got counts what the host was sent.
	got map[string]int
}

func newAskWorld(t *testing.T) *askWorld {
	h := cmdtest.New(t)
	w := &askWorld{Host: h, got: map[string]int{}, policy: filepath.Join(h.Root, "ask.toml"),
		native: filepath.Join(h.Root, "native.toml"),
		guest:  cmdtest.Must(fetcherModule())(t)}
	if err := errors.Join(cmdtest.Compiled(h.State, w.guest),
		cmdtest.CompiledForEngines(h.State, w.guest)); err != nil {
		t.Fatal(err)
	}
	names, ca := fetchtest.StartNames(t), fetchtest.NewAuthority(t)
	names.Set("up.example.com", []string{"93.184.216.34"})
	fetchtest.StartHost(t, "93.184.216.34:443",
		ca.Config(t, time.Now().Add(time.Hour), "up.example.com"),
		fetchtest.HTTP(t, func(rw http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			w.mu.Lock()
			w.got[r.Method+" "+r.URL.String()]++
			w.mu.Unlock()
			fmt.Fprintf(rw, "got %s %s %s", r.Method, r.URL, body)
		}))
	fetchSettings(h, names, ca)
	for path, text := range map[string]string{
		w.policy: fmt.Sprintf(askFirst, "base", "[tools]\nmodules = [\"**\"]"),
		w.native: fmt.Sprintf(askFirst, "build", ""),
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h.Daemon()
	return w
}

// A run that is under way.
type askedRun struct {
	done chan struct{}
	out  cmdtest.Outcome
}

func (w *askWorld) start(args ...string) *askedRun { return w.run(w.Command(args...)) }

func (w *askWorld) run(cmd *exec.Cmd) *askedRun {
	r := &askedRun{done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.out = w.Run(cmd)
	}()
	return r
}

// post starts a run of a program of the host that posts a body.
func (w *askWorld) post(body string, flags ...string) *askedRun {
	args := append([]string{"run", "--json", "--policy", w.native}, flags...)
	return w.start(append(args, curl(body)...)...)
}

func curl(body string, flags ...string) []string {
	return append([]string{"--", "curl", "-s", "-d", body,
		"https://up.example.com/things?q=" + body}, flags...)
}

type askedResult struct {
	fetchResult
	Error *struct{ Code, Approval string }
}

// ended waits for the end of a run.
func (w *askWorld) ended(r *askedRun, code int) (res askedResult) {
	w.T.Helper()
	select {
	case <-r.done:
	case <-time.After(cmdtest.Bound + 2*time.Minute):
		w.T.Fatal("the run does not end")
	}
	if err := json.Unmarshal([]byte(r.out.Out), &res); err != nil || r.out.Code != code {
		w.T.Fatalf("%v, want code %d: %+v", err, code, r.out)
	}
	return res
}

func (w *askWorld) actions(flags ...string) (all []approvals.Action) {
	w.T.Helper()
	o := w.Jail(append([]string{"approvals", "list", "--json"}, flags...)...)
	if err := json.Unmarshal([]byte(o.Out), &all); err != nil {
		w.T.Fatalf("%v: %+v", err, o)
	}
	return all
}

// waits returns the action of a request of the run that waits, as soon as there is one with that
// body.
func (w *askWorld) waits(run *askedRun, body string) approvals.Action {
	w.T.Helper()
	for end := time.Now().Add(2 * cmdtest.Bound); time.Now().Before(end); {
		for _, a := range w.actions() {
			if a.State == approvals.Pending && strings.HasSuffix(a.Fetch.URL, "?q="+body) {
				return a
			}
		}
		select {
		case <-run.done:
			w.T.Fatalf("the run has ended and waits for nothing: %+v", run.out)
		default:
		}
	}
	w.T.Fatalf("nothing with the body %q waits for an approval", body)
	return approvals.Action{}
}

// TestFetchWaits: a request that its policy holds back waits for an approval, of a run and of a
// session, of a guest and of a program of the host. Each approval counts once.
func TestFetchWaits(t *testing.T) {
	if !onTestInternet(t, "8m") {
		return
	}
	w := newAskWorld(t)
	// The one that nobody decides on waits for a minute, beside the others.
	left := w.post("left")
	shared := w.Session("--policy", w.policy, "--shared-engine")
	ofShared := w.start("session", "exec", "--json", shared, "--", w.guest, "-X", "POST", "-d",
		"shared", "http://up.example.com:443/things?q=shared")
	t.Run("not asked", func(t *testing.T) {
		r := w.ended(w.start("run", "--json", "--policy", w.native, "--", "curl", "-s",
			"https://up.example.com/free"), 0)
		if !strings.Contains(r.Stdout, "got GET /free") {
			t.Errorf("%+v", r)
		}
	})
	t.Run("approved", func(t *testing.T) { w.approved(w.post("now", "--id", "approved")) })
	t.Run("rejected", func(t *testing.T) {
		run := w.post("no")
		a := w.waits(run, "no")
		w.Wants(w.Jail("approvals", "reject", a.ID), 0, "")
		if r := w.ended(run, 0); r.Error != nil || !strings.Contains(r.Stdout, `"code":"refused"`) ||
			!strings.Contains(r.Stdout, "is rejected") {
			t.Errorf("%+v", r)
		}
	})
	t.Run("session", w.session)
	t.Run("gone", w.gone)
	t.Run("guest", w.ofGuest)
	t.Run("left", func(t *testing.T) {
		a := w.waits(left, "left")
		// The minute is longer than the wall time of the run, of an invocation of an engine, too.
		if r := w.ended(ofShared, 126); r.Error == nil || r.Error.Code != "approval_pending" {
			t.Errorf("%+v", r)
		}
		r := w.ended(left, 126)
		if !strings.Contains(r.Stdout, `"code":"approval_pending"`) || r.Error == nil || r.Error.Code != "approval_pending" || r.Error.Approval != a.ID {
			t.Fatalf("%+v", r)
		}
		w.Wants(w.Jail("approvals", "approve", a.ID), 0, "")
		if r := w.ended(w.post("left"), 0); !strings.Contains(r.Stdout, "got POST /things?q=left") {
			t.Errorf("%+v", r)
		}
		third := w.post("left")
		if next := w.waits(third, "left"); next.ID == a.ID {
			t.Error("an approval is used twice")
		} else {
			w.Wants(w.Jail("approvals", "reject", next.ID), 0, "")
		}
		w.ended(third, 0)
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.got["POST /things?q=left"] != 1 || w.got["POST /things?q=gone"] != 1 ||
		w.got["POST /things?q=no"] != 0 {
		t.Errorf("the host was sent %v", w.got)
	}
}

// approved approves a request while it waits. The log has the approval before the request.
func (w *askWorld) approved(run *askedRun) {
	t := w.T
	a := w.waits(run, "now")
	if a.Fetch.Method != "POST" || a.Fetch.Size != 3 || len(a.Fetch.Body) != 64 ||
		!strings.HasPrefix(a.Summary, "send POST ") {
		t.Errorf("%+v", a)
	}
	w.Wants(w.Jail("approvals", "approve", a.ID), 0, "")
	if r := w.ended(run, 0); !strings.Contains(r.Stdout, "got POST /things?q=now now") {
		t.Errorf("%+v", r)
	}
	var got []string
	for line := range strings.Lines(w.Jail("audit", "query", "--run", "approved", "--json").Out) {
		var r struct {
			Type, State string
			Begun       bool
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		switch {
		case r.Type == "approval":
			got = append(got, r.State)
		case r.Type == "fetch" && r.Begun:
			got = append(got, "intent")
		}
	}
	if want := "pending approved applied intent"; strings.Join(got, " ") != want {
		t.Errorf("records %q, want %q", got, want)
	}
}

func (w *askWorld) session(t *testing.T) {
	id := w.Session("--policy", w.native)
	post := func(body string) *askedRun {
		return w.start(append([]string{"session", "exec", "--json", id}, curl(body)...)...)
	}
	first := post("first")
	a := w.waits(first, "first")
	if a.Run != id {
		t.Errorf("%+v", a)
	}
	w.Wants(w.Jail("approvals", "approve", "--scope", "session", a.ID), 0, "")
	w.ended(first, 0)
	// The grant is for the URL, whatever its query.
	if r := w.ended(post("second"), 0); !strings.Contains(r.Stdout, "got POST /things?q=second") {
		t.Errorf("%+v", r)
	}
	w.Jail("session", "stop", id)
	if o := w.Jail("approvals", "grants", "--json"); strings.TrimSpace(o.Out) != "[]" {
		t.Errorf("grants after the end of the session: %s", o.Out)
	}
}

// gone ends a program while its request waits, and approves the next one.
func (w *askWorld) gone(t *testing.T) {
	cmd := w.Command("run", "--json", "--policy", w.native, "--", "sh", "-c",
		strings.Join(curl("gone")[1:], " ")+" & read line; kill $!; wait")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	gone := w.run(cmd)
	a := w.waits(gone, "gone")
	// The shell ends curl now.
	if _, err := io.WriteString(in, "\n"); err != nil {
		t.Fatal(err)
	}
	if r := w.ended(gone, 126); r.Error == nil || r.Error.Approval != a.ID {
		t.Fatalf("%+v", r)
	}
	w.Wants(w.Jail("approvals", "approve", a.ID), 0, "")
	if r := w.ended(w.post("gone"), 0); !strings.Contains(r.Stdout, "got POST /things?q=gone") {
		t.Errorf("%+v", r)
	}
}

// ofGuest approves a request of a WebAssembly module while it waits.
func (w *askWorld) ofGuest(t *testing.T) {
	run := w.start("run", "--json", "--no-workspace", "--policy", w.policy, "--", w.guest, "-X",
		"POST", "-d", "guest", "http://up.example.com:443/things?q=guest")
	a := w.waits(run, "guest")
	w.Wants(w.Jail("approvals", "approve", a.ID), 0, "")
	if r := w.ended(run, 0); !strings.Contains(r.Stdout, "got POST /things?q=guest guest") {
		t.Errorf("%+v", r)
	}
}
