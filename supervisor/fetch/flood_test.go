package fetch

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/jailtest"
	"github.com/jail-sandbox/jail/supervisor/fetch/fetchtest"
)

// gated is a record that takes nothing in until its gate opens.
type gated struct {
	notes
	gate chan struct{}
	// Closed when as many wait as may.
	full      chan struct{}
	once      sync.Once
	waiting   sync.Mutex
	now, most int
}

func (g *gated) Intend(i Intent) (string, error) {
	g.waiting.Lock()
	g.now++
	if g.most = max(g.most, g.now); g.now == maxRecording {
		g.once.Do(func() { close(g.full) })
	}
	g.waiting.Unlock()
	<-g.gate
	g.waiting.Lock()
	g.now--
	g.waiting.Unlock()
	return g.notes.Intend(i)
}

func (g *gated) IntendAfter(ended []Outcome, i Intent) (string, error) {
	return intendAfter(g, ended, i)
}

// TestFlood: a jail that asks for more than its log can take fills its own queue, which has an end,
// and no other's; and when the log takes records again, each of its requests is answered (T-249).
func TestFlood(t *testing.T) {
	const flood = 3 * maxRecording
	// No request ends by time while the gate is closed.
	w := newWorld(t, anyTo+strings.NewReplacer("concurrent = 64", "concurrent = 1000", `"2m"`,
		`"10m"`).Replace(limits))
	w.names.Set(upName, []string{upIP})
	fetchtest.StartHost(t, upIP+":80", nil, says("hi"))
	quiet := startProcess(t, w, func(error) {})
	g := &gated{gate: make(chan struct{}), full: make(chan struct{})}
	loud, err := Start(context.Background(), Spec{Exe: proxyProgram(t), Cgroup: jailtest.Slice() +
		"/y.fetch", Setup: w.setup, Record: g})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(conn io.ReadWriter) error {
		if _, err := io.WriteString(conn, firstLines+"\r\n"); err != nil {
			return err
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return err
		}
		if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 200 ||
			string(body) != "hi" {
			return fmt.Errorf("%d %q, %w", resp.StatusCode, body, err)
		}
		return nil
	}
	socket, other := control.New(loud.Door), control.New(quiet.Door)
	var all sync.WaitGroup
	failed := make(chan error, flood)
	for range flood {
		conn := openStream(t, socket)
		all.Go(func() {
			if err := ask(conn); err != nil {
				failed <- err
			}
		})
	}
	select {
	case <-g.full:
	case <-time.After(hanging):
		t.Fatal("the queue does not fill")
	}
	conn := openStream(t, other)
	for i := range 50 {
		if err := ask(conn); err != nil {
			t.Fatalf("request %d beside the flood: %v", i, err)
		}
	}
	if intents, ends, _ := g.take(); len(intents) > 0 || len(ends) > 0 {
		t.Errorf("%d requests of the flood are on record already", len(intents))
	}
	close(g.gate)
	all.Wait()
	close(failed)
	for err := range failed {
		t.Error(err)
	}
	for _, p := range []*Process{loud, quiet} {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	socket.Close()
	other.Close()
	if intents, ends, _ := g.take(); len(intents) != flood || len(ends) != flood ||
		g.most != maxRecording {
		t.Errorf("%d intents, %d ends, %d at one time", len(intents), len(ends), g.most)
	}
}

// TestRefusalRate: a run is told so many refusals a second and no more, however many it asks for;
// what is granted does not wait behind them (T-249).
func TestRefusalRate(t *testing.T) {
	w := newWorld(t, anyTo)
	w.names.Set(upName, []string{upIP})
	fetchtest.StartHost(t, upIP+":80", nil, says("hi"))
	now := time.Now()
	for i := range refusalRate {
		if wait := w.proxy.refused.paced.turn(now); wait != 0 {
			t.Fatalf("refusal %d waits %s", i, wait)
		}
	}
	refused := make(chan time.Duration, 1)
	go func() {
		if status, _ := w.get("http://127.0.0.1/"); status != 400 {
			t.Errorf("refused: %d", status)
		}
		refused <- time.Since(now)
	}()
	if status, body := w.get("http://up.example.com/"); status != 200 || body != "hi" {
		t.Errorf("granted: %d %q", status, body)
	}
	if took := <-refused; took < time.Second {
		t.Errorf("one more refusal came after %s", took)
	}
	ended := make(chan struct{})
	close(ended)
	for range 3 * refusalRate { // none of them waits
		w.proxy.refused.pace(ended)
	}
}
