package approvals

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/supervisor/problem"
)

func posts(run, url string) FetchRequest {
	return FetchRequest{Run: run, Policy: "p", Fetch: Fetch{Kind: "request", Method: "POST", URL: url}}
}

// A decision on a request resumes it while it waits; on one that does not wait any more it is for
// the next one that is the same, of any run, once.
func TestFetchAsks(t *testing.T) {
	d := deskIn(t.TempDir())
	me, ctx := user(1, "run"), context.Background()
	ask := func(req FetchRequest, wait time.Duration, want State) Action {
		t.Helper()
		a, err := d.Fetches().Ask(ctx, me, req, wait)
		if err != nil || a.State != want {
			t.Fatalf("%+v, want %s: %v", a, want, err)
		}
		return a
	}
	req := posts("r1", "https://a.example.com/x?q=1")
	a := ask(req, 0, Pending)
	if again := ask(posts("r2", req.Fetch.URL), 0, Pending); again.ID != a.ID {
		t.Errorf("the same request waits twice: %+v", again)
	}
	if _, err := d.approve(me, a, ""); problem.From(err).Code != problem.Refused {
		t.Errorf("its own connection decides: %v", err)
	}
	if a, err := d.approve(user(1, ""), a, ""); err != nil || a.State != Approved {
		t.Fatalf("%+v: %v", a, err)
	}
	other := req
	other.Policy = "another"
	ask(other, 0, Pending)
	other = req
	other.Fetch.Body = "00"
	ask(other, 0, Pending)
	ask(posts("r3", req.Fetch.URL), 0, Applied)
	if next := ask(req, 0, Pending); next.ID == a.ID {
		t.Error("an approval counts twice")
	}

	for _, decision := range []string{"approve", "reject"} {
		done := make(chan Action, 1)
		waiting := posts("r1", "https://a.example.com/"+decision)
		go func() {
			a, _ := d.Fetches().Ask(ctx, me, waiting, time.Hour)
			done <- a
		}()
		var found Action
		for found.ID == "" {
			all, err := d.List(me, false)
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range all {
				if *a.Fetch == waiting.Fetch {
					found = a
				}
			}
		}
		if _, err := d.Decide(ctx, user(1, ""), found.ID, DecideRequest{Decision: decision,
			SHA256: found.SHA256}); err != nil {
			t.Fatal(err)
		}
		want := map[string]State{"approve": Applied, "reject": Rejected}[decision]
		if a := <-done; a.ID != found.ID || a.State != want {
			t.Errorf("%s: %+v", decision, a)
		}
	}
}

// A grant for fetches is for one method and URL, of the session or as often as it says.
func TestFetchGrants(t *testing.T) {
	d := deskIn(t.TempDir())
	me, ctx := user(1, "run"), context.Background()
	state := func(run, url string) State {
		t.Helper()
		a, err := d.Fetches().Ask(ctx, me, posts(run, url), 0)
		if err != nil {
			t.Fatal(err)
		}
		return a.State
	}
	a, err := d.Fetches().Ask(ctx, me, posts("s", "https://a.example.com/x?q=1"), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.approve(user(1, ""), a, "session"); err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		run, url string
		want     State
	}{
		{"s", "https://a.example.com/x?q=1", Applied}, // by the approval itself
		{"s", "https://a.example.com/x?q=1", Applied},
		{"s", "https://a.example.com/x?q=2", Applied},
		{"s", "https://a.example.com/y", Pending},
		{"s", "http://a.example.com/x", Pending},
		{"other", "https://a.example.com/x?q=3", Pending},
	} {
		if got := state(c.run, c.url); got != c.want {
			t.Errorf("%d: %+v is %s", i, c, got)
		}
	}
	if err := d.EndRun("s"); err != nil {
		t.Fatal(err)
	}
	if got := state("s", "https://a.example.com/x?q=4"); got != Pending {
		t.Errorf("after the end of the session: %s", got)
	}
	a, err = d.Fetches().Ask(ctx, me, posts("r", "https://a.example.com/n"), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.approve(user(1, ""), a, "uses=2"); err != nil {
		t.Fatal(err)
	}
	for i, want := range []State{Applied, Applied, Pending} {
		if got := state("r"+strconv.Itoa(i), "https://a.example.com/n"); got != want {
			t.Errorf("use %d: %s, want %s", i, got, want)
		}
	}
}

// The grant of one action lets another pass that waited before, and a run that has ended uses no
// approval.
func TestFetchLater(t *testing.T) {
	d := deskIn(t.TempDir())
	me := user(1, "run")
	ask := func(ctx context.Context, url string) Action {
		t.Helper()
		a, err := d.Fetches().Ask(ctx, me, posts("s", url), 0)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	ctx := context.Background()
	first, second := ask(ctx, "https://a.example.com/x?q=1"), ask(ctx, "https://a.example.com/x?q=2")
	if _, err := d.approve(user(1, ""), second, "session"); err != nil {
		t.Fatal(err)
	}
	if a := ask(ctx, "https://a.example.com/x?q=1"); a.ID != first.ID || a.State != Applied {
		t.Errorf("a grant leaves an action waiting: %+v", a)
	}

	waiting := posts("s", "https://a.example.com/y")
	ended, end := context.WithCancel(ctx)
	done := make(chan Action, 1)
	pending := ask(ctx, waiting.Fetch.URL)
	go func() {
		a, _ := d.Fetches().Ask(ended, me, waiting, time.Hour)
		done <- a
	}()
	end()
	if a := <-done; a.ID != pending.ID || a.State != Pending {
		t.Errorf("%+v", a)
	}
	if _, err := d.approve(user(1, ""), pending, ""); err != nil {
		t.Fatal(err)
	}
	if a := ask(ctx, waiting.Fetch.URL); a.ID != pending.ID || a.State != Applied {
		t.Errorf("%+v", a)
	}
}

// A run has at most maxOfRun actions that wait, and others have room.
func TestFetchFlood(t *testing.T) {
	d := deskIn(t.TempDir())
	me, ctx := user(1, "run"), context.Background()
	ask := func(run string, i int) (Action, error) {
		return d.Fetches().Ask(ctx, me, posts(run, "https://a.example.com/"+strconv.Itoa(i)), 0)
	}
	for i := range maxOfRun {
		if _, err := ask("r", i); err != nil {
			t.Fatal(i, err)
		}
	}
	if _, err := ask("r", maxOfRun); problem.From(err).Code != problem.Busy {
		t.Errorf("one more waits: %v", err)
	}
	if _, err := ask("r", 0); err != nil {
		t.Errorf("one that waits already: %v", err)
	}
	if _, err := ask("other", maxOfRun); err != nil {
		t.Errorf("another run: %v", err)
	}
}
