package worker

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jail-sandbox/jail/supervisor/agents/manifest"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/approvals"
	"github.com/jail-sandbox/jail/supervisor/client"
	"github.com/jail-sandbox/jail/supervisor/fetchrun"
	"github.com/jail-sandbox/jail/supervisor/toolsession"
)

// TestEndIsTold: a coordinator that was too slow for the steps of a task is told its end.
func TestEndIsTold(t *testing.T) {
	to, err := url.Parse("https://coordinator.example.com")
	if err != nil {
		t.Fatal(err)
	}
	began, answer := make(chan struct{}), make(chan struct{})
	sent, first := 0, sync.OnceFunc(func() { close(began) })
	r := newReporter(Options{Task: manifest.Task{Coordinator: manifest.Coordinator{URL: to}},
		Sender: fetchrun.Sender{Client: func(ctx context.Context) (*client.Client, error) {
			first()
			select {
			case <-answer:
			case <-ctx.Done():
			}
			sent++
			return nil, errors.New("no daemon")
		}}})
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

// TestUnapproved: what nobody approves while the task has time is taken back, and is not done.
func TestUnapproved(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var mu sync.Mutex
	var asked []string
	daemon := httptest.NewUnstartedServer(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			asked = append(asked, r.Method)
			mu.Unlock()
			state := approvals.Pending
			switch r.Method {
			case http.MethodGet:
				// The time of the task is over while it waits.
				stop()
			case http.MethodDelete:
				state = "withdrawn"
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(approvals.Action{ID: "one", State: state})
		}))
	socket := filepath.Join(t.TempDir(), "socket")
	var err error
	if daemon.Listener, err = net.Listen("unix", socket); err != nil {
		t.Fatal(err)
	}
	daemon.Start()
	t.Cleanup(daemon.Close)
	c, err := api.Dial(ctx, socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	o := Options{Client: c}
	w := &worker{o: o, jail: &toolsession.Session{}, progress: newReporter(o)}
	_, err = w.approved(ctx, api.ProposeRequest{}, func(approvals.Action) (string, error) {
		t.Error("it was done")
		return "", nil
	})
	mu.Lock()
	defer mu.Unlock()
	if !errors.Is(err, context.Canceled) || asked[len(asked)-1] != http.MethodDelete ||
		slices.Contains(asked[1:], http.MethodPost) {
		t.Errorf("%v; asked %q", err, asked)
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
