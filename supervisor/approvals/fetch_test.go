package approvals

import (
	"context"
	"os"
	"strconv"
	"strings"
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

// Only a request that waits for a person stops the clock of its run: one that a grant covers does
// not, and neither does one that may not wait.
func TestFetchWaits(t *testing.T) {
	d := deskIn(t.TempDir())
	me := user(1, "run")
	req := posts("s", "https://a.example.com/x")
	var said []bool
	ctx, end := context.WithCancel(context.Background())
	req.Waits = func(begins bool) {
		if said = append(said, begins); begins {
			end()
		}
	}
	ask := func(ctx context.Context, wait time.Duration, want State) Action {
		t.Helper()
		a, err := d.Fetches().Ask(ctx, me, req, wait)
		if err != nil || a.State != want {
			t.Fatalf("%+v, want %s: %v", a, want, err)
		}
		return a
	}
	a := ask(context.Background(), 0, Pending)
	if len(said) > 0 {
		t.Errorf("it may not wait: %v", said)
	}
	ask(ctx, time.Hour, Pending)
	if len(said) != 2 || !said[0] || said[1] {
		t.Errorf("it waited: %v", said)
	}
	if _, err := d.approve(user(1, ""), a, "until=1h"); err != nil {
		t.Fatal(err)
	}
	said = nil
	for range 3 {
		ask(context.Background(), time.Hour, Applied)
	}
	if len(said) > 0 {
		t.Errorf("a grant covers it: %v", said)
	}
}

// A grant is for one kind of request, and for no other with the same method and URL.
func TestFetchGrantKind(t *testing.T) {
	d := deskIn(t.TempDir())
	me, ctx := user(1, "run"), context.Background()
	req := FetchRequest{Run: "r", Policy: "p", Fetch: Fetch{Kind: "request", Method: "GET",
		URL: "https://a.example.com/x"}}
	a, err := d.Fetches().Ask(ctx, me, req, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.approve(user(1, ""), a, "until=1h"); err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[string]State{"request": Applied, "websocket": Pending} {
		req.Fetch.Kind = kind
		if a, err := d.Fetches().Ask(ctx, me, req, 0); err != nil || a.State != want {
			t.Errorf("%s: %+v, %v", kind, a, err)
		}
	}
}

// A run that has ended gets no grant, and its id may be another run's later.
func TestFetchRunOver(t *testing.T) {
	for name, end := range map[string]func(*desk, string) error{
		"run":     func(d *desk, id string) error { return d.Fetches().End(id) },
		"session": func(d *desk, id string) error { return d.EndRun(id) },
	} {
		d := deskIn(t.TempDir())
		me, ctx := user(1, "run"), context.Background()
		ask := func(url string) Action {
			t.Helper()
			a, err := d.Fetches().Ask(ctx, me, posts("r", url), 0)
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
		a, rejected := ask("https://a.example.com/x"), ask("https://a.example.com/no")
		if _, err := d.Decide(ctx, user(1, ""), rejected.ID, DecideRequest{Decision: "reject",
			SHA256: rejected.SHA256}); err != nil {
			t.Fatal(err)
		}
		if a := ask("https://a.example.com/no"); a.ID != rejected.ID || a.State != Rejected {
			t.Errorf("%s: a rejection is asked again: %+v", name, a)
		}
		if other, err := d.Fetches().Ask(ctx, me, posts("other", "https://a.example.com/no"),
			0); err != nil || other.State != Pending {
			t.Errorf("%s: another run: %+v, %v", name, other, err)
		}
		if err := end(d, "r"); err != nil {
			t.Fatal(err)
		}
		if a := ask("https://a.example.com/no"); a.ID == rejected.ID || a.State != Pending {
			t.Errorf("%s: the rejection of another run: %+v", name, a)
		}
		if _, err := d.approve(user(1, ""), a, "session"); problem.From(err).Code != problem.Usage {
			t.Errorf("%s: a grant for what has ended: %v", name, err)
		}
		if g, err := d.Grants(user(1, "")); err != nil || len(g) > 0 {
			t.Errorf("%s: %+v, %v", name, g, err)
		}
		if _, err := d.approve(user(1, ""), a, "uses=2"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A grant that is newer than a rejection lets the request pass.
func TestFetchRejectedThenGranted(t *testing.T) {
	d := deskIn(t.TempDir())
	me, ctx := user(1, "run"), context.Background()
	ask := func(url string) Action {
		t.Helper()
		a, err := d.Fetches().Ask(ctx, me, posts("s", url), 0)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	a, b := ask("https://a.example.com/x?1"), ask("https://a.example.com/x?2")
	if _, err := d.Decide(ctx, user(1, ""), a.ID, DecideRequest{Decision: "reject",
		SHA256: a.SHA256}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.approve(user(1, ""), b, "session"); err != nil {
		t.Fatal(err)
	}
	if a := ask("https://a.example.com/x?1"); a.State != Applied {
		t.Errorf("%+v", a)
	}
}

// The log has the hash of a query, as the records of fetches do.
func TestFetchQueryOnRecord(t *testing.T) {
	d := deskIn(t.TempDir())
	a, err := d.Fetches().Ask(context.Background(), user(1, "run"),
		posts("r", "https://a.example.com/x?token=hunter2"), 0)
	if err != nil || !strings.Contains(a.Summary, "hunter2") {
		t.Fatalf("%+v, %v", a, err)
	}
	if err := Waits(a); strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
	if err := Refused(a); strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
	text, err := os.ReadFile(d.log.path)
	if err != nil || strings.Contains(string(text), "hunter2") ||
		!strings.Contains(string(text), "https://a.example.com/x?sha256:") {
		t.Errorf("%s, %v", text, err)
	}
}

// A request that nobody waits for any more uses no approval and makes no action.
func TestFetchEnded(t *testing.T) {
	d := deskIn(t.TempDir())
	me, ctx := user(1, "run"), context.Background()
	ended, end := context.WithCancel(ctx)
	end()
	req := posts("r", "https://a.example.com/x")
	if a, err := d.Fetches().Ask(ended, me, req, time.Hour); err == nil || a.ID != "" {
		t.Errorf("%+v, %v", a, err)
	}
	a, err := d.Fetches().Ask(ctx, me, req, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.approve(user(1, ""), a, ""); err != nil {
		t.Fatal(err)
	}
	if a, err := d.Fetches().Ask(ended, me, req, time.Hour); err != nil || a.State != Approved {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err := d.Fetches().Ask(ctx, me, req, 0); err != nil || a.State != Applied {
		t.Errorf("%+v, %v", a, err)
	}
}

// Every connection that proposed a request is kept from deciding on it, a restart of the daemon
// between or not.
func TestFetchProposers(t *testing.T) {
	d := deskIn(t.TempDir())
	var a Action
	for _, c := range []string{"one", "two", "two", "three"} {
		var err error
		if a, err = d.Fetches().Ask(context.Background(), user(1, c),
			posts("run of "+c, "https://a.example.com/x"), 0); err != nil {
			t.Fatal(err)
		}
	}
	next := deskIn(d.dir)
	for _, c := range []string{"one", "two", "three"} {
		if _, err := next.approve(user(1, c), a, ""); problem.From(err).Code != problem.Refused {
			t.Errorf("%s decides on its own request: %v", c, err)
		}
	}
	if _, err := next.approve(user(1, "person"), a, ""); err != nil {
		t.Error(err)
	}
}

// What a run asks for takes a part of what its owner's actions may take, root's too.
func TestFetchBytes(t *testing.T) {
	for _, uid := range []uint32{0, 1} {
		d := deskIn(t.TempDir())
		ctx, long := context.Background(), strings.Repeat("x", 15<<10)
		ask := func(run string, i int) error {
			_, err := d.Fetches().Ask(ctx, user(uid, "run"),
				posts(run, "https://a.example.com/"+long+strconv.Itoa(i)), 0)
			return err
		}
		asked, runs := 0, 0
		for ; runs < maxOwnBytes/maxOfRunBytes; runs++ {
			n := 0
			for ; n < maxOfRun && ask("r"+strconv.Itoa(runs), n+1000*runs) == nil; n++ {
			}
			if n > maxOfRunBytes/len(long) {
				t.Errorf("%d requests of one run wait", n)
			}
			if asked += n; n == 0 {
				break
			}
		}
		if asked*len(long) > maxOwnBytes/2 {
			t.Errorf("uid %d: %d requests of %d runs wait", uid, asked, runs)
		}
		if a := d.propose(t, held(uid, 1)); a.State != Pending {
			t.Errorf("uid %d: no room for a commit: %+v", uid, a)
		}
	}
}
