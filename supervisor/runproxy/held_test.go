package runproxy

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/supervisor/approvals"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/fetch"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// holding is a run whose policy holds every request back.
func holding(t *testing.T, host *Host, left time.Duration) *held {
	t.Helper()
	f, err := syntax.Parse(syntax.Request, "test.toml", []byte(`policy = 1
[[fetch.allow]]
host = "*"
[[approve]]
action = "fetch"
mode = "ask"
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	eff, err := policy.Resolve(policy.Layer{Name: "request", Policy: f.Policy})
	if err != nil {
		t.Fatal(err)
	}
	return &held{host: host, policy: eff, run: Run{Left: func() time.Duration { return left },
		Asks: approvals.FetchRequest{Run: "r"}}, approved: map[uint64]fetch.What{},
		pending: map[string]*problem.Error{}}
}

func questionOf(id uint64) fetch.Question {
	return fetch.Question{What: fetch.What{ID: id, Kind: "request", Method: "POST",
		Scheme: "https", Host: "a.example.com", Port: 443, Path: "/x"},
		URL: "https://a.example.com/x"}
}

// An asked queue answers as the test says.
type asked struct {
	ask  func(ctx context.Context, wait time.Duration) (approvals.Action, error)
	look func(id string) (approvals.Action, error)
}

func (a asked) Ask(ctx context.Context, _ caller.Caller, _ approvals.FetchRequest,
	wait time.Duration) (approvals.Action, error) {
	return a.ask(ctx, wait)
}

func (a asked) Look(id string) (approvals.Action, error) { return a.look(id) }

func (a asked) End(string) error { return nil }

// TestWaits: as many requests as may be asked about wait their whole minute at one time, and none
// waits longer than is left of the time of the run.
func TestWaits(t *testing.T) {
	const many = 64
	for _, left := range []time.Duration{10 * time.Minute, time.Second, 0} {
		var all, ended sync.WaitGroup
		all.Add(many)
		h := holding(t, &Host{Queue: asked{ask: func(_ context.Context,
			wait time.Duration) (approvals.Action, error) {
			all.Done()
			all.Wait()
			if wait != min(maxWait, left) {
				t.Errorf("%s are left, and a request waits %s", left, wait)
			}
			return approvals.Action{ID: "a", State: approvals.Pending}, nil
		}}}, left)
		for id := range many {
			ended.Go(func() {
				if v := h.ask(context.Background(), questionOf(uint64(id)+1)); v.Approval != "a" {
					t.Error(strconv.Itoa(id), v)
				}
			})
		}
		ended.Wait()
	}
}

// TestUnanswered: an error of the queue tells the tool nothing about the host or other users.
func TestUnanswered(t *testing.T) {
	for code, err := range map[string]error{
		problem.Busy:   problem.New(problem.Busy, "too many actions wait: 9, 7 of them of uid 4321"),
		problem.Failed: errors.New("open /var/lib/jail/approvals/journal: input/output error"),
	} {
		h := holding(t, &Host{Queue: asked{ask: func(context.Context,
			time.Duration) (approvals.Action, error) {
			return approvals.Action{}, err
		}}}, time.Minute)
		v := h.ask(context.Background(), questionOf(1))
		if said := fmt.Sprint(v); v.Code != code || strings.Contains(said, "4321") ||
			strings.Contains(said, "/var") {
			t.Errorf("%+v", v)
		}
		if err := h.waiting(); err != nil {
			t.Errorf("it waits: %v", err)
		}
	}
}

// TestWaiting: a run waits for an approval as long as its action does. One that was approved too late
// says so, and one that is over is waited for no more.
func TestWaiting(t *testing.T) {
	for state, want := range map[approvals.State]string{
		approvals.Pending:  "it waits for an approval",
		approvals.Approved: "too late",
		approvals.Rejected: "",
		approvals.Applied:  "",
		approvals.Expired:  "",
	} {
		a := approvals.Action{ID: "a", State: approvals.Pending}
		h := holding(t, &Host{Queue: asked{
			ask: func(context.Context, time.Duration) (approvals.Action, error) { return a, nil },
			look: func(id string) (approvals.Action, error) {
				return approvals.Action{ID: id, State: state}, nil
			}}}, time.Minute)
		if v := h.ask(context.Background(), questionOf(1)); v.Code != problem.ApprovalPending {
			t.Errorf("%+v", v)
		}
		err := h.waiting()
		if e := problem.From(err); want == "" && err != nil || want != "" && (err == nil ||
			e.Code != problem.ApprovalPending || e.Approval != "a" || !strings.Contains(e.Message, want)) {
			t.Errorf("%s: %v", state, err)
		}
	}
}
