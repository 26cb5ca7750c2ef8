package fetch

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/fetch/fetchtest"
)

// underWildcard is a world of one rule for every name below example.com.
func underWildcard(t *testing.T, bounds string,
	serve func(w io.Writer, r *http.Request, body string)) *world {
	t.Helper()
	w := newWorld(t,
		"[[fetch.allow]]\nhost = \"*.example.com\"\nports = [80]\nmethods = [\"*\"]\n"+
			"paths = [\"/**\"]\n"+bounds)
	for _, name := range []string{"a", "b", "c"} {
		w.names.Set(name+".example.com", []string{upIP})
	}
	fetchtest.StartHost(t, upIP+":80", nil, plain(serve))
	return w
}

func hundred(w io.Writer, _ *http.Request, _ string) {
	// The proxy may have gone.
	_, _ = io.WriteString(w,
		"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"+strings.Repeat("x", 100))
}

// TestWildcardBudgets: what a rule bounds is bounded for each host that it grants by itself, also
// where one pattern grants many; what the run bounds, for all of them together.
func TestWildcardBudgets(t *testing.T) {
	for name, c := range map[string]struct {
		bounds, body string
		// The answers for a, a, a, b, a, c.
		want string
		says string
	}{
		"requests of a host": {"requests = 2\n", "", "200 200 403 200 403 200",
			"fetch.allow.requests = 2"},
		"requests of the run": {strings.Replace(limits, "requests = 1000", "requests = 4", 1), "",
			"200 200 200 200 403 403", "fetch.limits.requests = 4"},
		"bytes in of a host": {"bytes_in = \"300B\"\n", "", "200 200 403 200 403 200",
			"fetch.allow.bytes_in"},
		"bytes in of the run": {strings.Replace(limits, "bytes_in = \"64MiB\"",
			"bytes_in = \"600B\"", 1), "", "200 200 200 200 403 403", "fetch.limits.bytes_in"},
		"bytes out of a host": {"bytes_out = \"300B\"\n", strings.Repeat("y", 70),
			"200 200 403 200 403 200", "fetch.allow.bytes_out"},
		"bytes out of the run": {strings.Replace(limits, "bytes_out = \"64MiB\"",
			"bytes_out = \"600B\"", 1), strings.Repeat("y", 70), "200 200 200 200 403 403",
			"fetch.limits.bytes_out"},
		"a host without bounds": {"", "", "200 200 200 200 200 200", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := underWildcard(t, c.bounds, hundred)
			var got []string
			said := ""
			for _, host := range []string{"a", "a", "a", "b", "a", "c"} {
				method := "GET"
				if c.body != "" {
					method = "POST"
				}
				status, body := w.ask(method, "http://"+host+".example.com/", c.body)
				if status == 200 && strings.Contains(body, "EOF") {
					// The head was there before the budget was used up.
					status = 403
					body = c.says
				}
				if status != 200 {
					said = body
				}
				got = append(got, fmt.Sprint(status))
			}
			if strings.Join(got, " ") != c.want || !strings.Contains(said, c.says) {
				t.Errorf("%v, want %s; %s", got, c.want, said)
			}
		})
	}
}

// TestWildcardTurns: one host under a pattern that is full, or slow, holds up no other.
func TestWildcardTurns(t *testing.T) {
	release := make(chan struct{})
	began := make(chan string, 16)
	w := underWildcard(t, "concurrent = 1\ntimeout = \"15s\"\n", func(to io.Writer, r *http.Request,
		body string) {
		began <- r.Host
		if r.Host == "a.example.com" {
			<-release
		}
		hundred(to, r, body)
	})
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if status, body := w.get("http://a.example.com/"); status != 200 {
				t.Errorf("a: %d %s", status, body)
			}
		})
	}
	if host := <-began; host != "a.example.com" {
		t.Errorf("%s began", host)
	}
	// One of a is on its way and two wait for it: b and c do not.
	for _, host := range []string{"b", "c", "b"} {
		if status, body := w.get("http://" + host + ".example.com/"); status != 200 {
			t.Errorf("%s: %d %s", host, status, body)
		}
		if got := <-began; got != host+".example.com" {
			t.Errorf("%s began", got)
		}
	}
	close(release)
	all.Wait()
	if n := len(began); n != 2 {
		t.Errorf("%d more began", n)
	}
}

// TestWildcardRate: the rate of one host is not another's, and that of a run is everybody's; after
// the first second requests start evenly. The budgets are asked, with a clock of their own.
func TestWildcardRate(t *testing.T) {
	w := underWildcard(t, "rate = 2\n", hundred)
	bounds := policy.FetchBounds{Rate: 2}
	now := time.Now()
	for _, host := range []string{"a.example.com", "b.example.com"} {
		p, err := w.proxy.budgets.of(host, bounds)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []time.Duration{0, 0, time.Second, 1500 * time.Millisecond,
			2 * time.Second} {
			if got := p.turn(now); got != want {
				t.Errorf("%s: request %d waits %s, want %s", host, i, got, want)
			}
		}
	}
	run := newBudget("fetch.limits", bounds)
	for i, want := range []time.Duration{0, 0, time.Second} {
		if got := run.turn(now); got != want {
			t.Errorf("the run's request %d waits %s, want %s", i, got, want)
		}
	}
	// Who would wait for longer than its time is refused at once, says of what, and neither keeps a
	// turn nor counts.
	short, over := context.WithTimeout(context.Background(), time.Second)
	defer over()
	full := newBudget("fetch.limits", bounds)
	full.started = []time.Time{now.Add(time.Hour), now.Add(time.Hour)}
	before := slices.Clone(full.started)
	if err := full.begin(short); err == nil || !strings.Contains(err.Error(),
		"fetch.limits.rate = 2") {
		t.Errorf("%v", err)
	}
	if full.requests != 0 || !slices.Equal(full.started, before) {
		t.Errorf("%d requests, %v started", full.requests, full.started)
	}
	// So is who is told while waiting.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := run.begin(ctx); err == nil || !strings.Contains(err.Error(),
		"fetch.limits.rate = 2") {
		t.Errorf("%v", err)
	}
}

// TestWildcardNames: under a pattern with bounds there is an end to the names too, so that a name
// is no way to make a budget anew without end (T-212).
func TestWildcardNames(t *testing.T) {
	w := underWildcard(t, "requests = 1\n", hundred)
	for i := range maxBudgets {
		if _, err := w.proxy.budgets.of(fmt.Sprintf("n%d.example.com", i),
			policy.FetchBounds{Requests: 1}); err != nil {
			t.Fatal(err)
		}
	}
	w.names.Asked()
	if status, body := w.get("http://a.example.com/"); status != 403 || !strings.Contains(body,
		"hosts of one run = 1024") {
		t.Errorf("%d %s", status, body)
	}
	if asked := w.names.Asked(); len(asked) > 0 {
		t.Errorf("asked for %v", asked)
	}
}

// TestWildcardLookups: without bounds of a rule, every name that is asked for is a request of the
// run, whether it is there or not (T-212).
func TestWildcardLookups(t *testing.T) {
	w := underWildcard(t, strings.Replace(limits, "requests = 1000", "requests = 3", 1), hundred)
	for i, want := range []int{502, 502, 502, 403} {
		if status, body := w.get(fmt.Sprintf("http://secret%d.example.com/", i)); status != want {
			t.Errorf("%d: %d %s", i, status, body)
		}
	}
	if asked := w.names.Asked(); len(asked) != 3 {
		t.Errorf("asked for %v", asked)
	}
}
