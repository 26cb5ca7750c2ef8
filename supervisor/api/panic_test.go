package api

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/supervisor/daemonlog"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/service"
	"github.com/jail-sandbox/jail/supervisor/stdio"
)

// T-509: a fault of ours in one request ends that request. Others go on, the one that is under way
// among them, and what happened is told.
func TestPanicEndsOneRequest(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	told := make(lines, 16)
	srv := NewServer(&service.Service{}, Version{}, daemonlog.New(told, false))
	routes := append(srv.routes(), route{method: "GET", path: "/v1/lasting",
		stream: func(w http.ResponseWriter, _ *http.Request) {
			close(began)
			<-release
			_, _ = io.WriteString(w, "done")
		}}, route{method: "GET", path: "/v1/fault", stream: func(http.ResponseWriter,
		*http.Request) {
		panic("a fault of ours")
	}}, route{method: "POST", path: "/v1/fault", stream: func(w http.ResponseWriter,
		_ *http.Request) {
		srv.streams.Add(1)
		defer srv.streams.Done()
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		srv.carry(conn, buffered.Reader, func(context.Context, stdio.Streams) message.Result {
			panic("a fault in a run")
		})
	}})
	srv.http.Handler = srv.quiet.count(measured(srv.hurried(srv.faulted(srv.handler(routes)))))
	socket := filepath.Join(t.TempDir(), "jail.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error)
	go func() { served <- srv.Serve(l) }()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn,
		error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	ask := func(method, path string) (string, error) {
		req, err := http.NewRequestWithContext(t.Context(), method, "http://jail"+path, http.NoBody)
		if err != nil {
			return "", err
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return string(text), err
	}
	lasting := make(chan error)
	go func() {
		text, err := ask("GET", "/v1/lasting")
		if text != "done" {
			err = errors.Join(err, errors.New("it says "+text))
		}
		lasting <- err
	}()
	<-began
	for _, method := range []string{"GET", "POST", "GET"} {
		if text, err := ask(method, "/v1/fault"); err == nil {
			t.Errorf("a request that failed was answered: %q", text)
		}
	}
	close(release)
	if err := <-lasting; err != nil {
		t.Errorf("the other request: %v", err)
	}
	// Nothing waits for what has failed.
	if err := srv.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	// The log has a fault of a switched connection after that is closed: Shutdown does not wait for
	// it.
	text := <-told + <-told + <-told
	for _, want := range []string{"a fault of ours", "a fault in a run", "panic_test.go"} {
		if !strings.Contains(text, want) {
			t.Errorf("the log does not tell of %q:\n%s", want, text)
		}
	}
}

// lines has each write to a log.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// The client of a request that has one answer learns of the fault, too.
func TestPanicIsAnError(t *testing.T) {
	srv := NewServer(&service.Service{}, Version{}, nil)
	_, err := srv.answered(func(call) (any, error) { panic("one") },
		call{Request: httptest.NewRequest("GET", "/", nil)})
	res := srv.resulting(func() message.Result { panic("two") })
	for want, got := range map[string]*problem.Error{
		"a fault of jail's own: one": problem.From(err),
		"a fault of jail's own: two": res.Error,
	} {
		if got == nil || got.Code != problem.Failed || got.Message != want {
			t.Errorf("%+v, want %s", got, want)
		}
	}
	if res.ExitCode != problem.ExitFailed {
		t.Errorf("exit code %d", res.ExitCode)
	}
}
