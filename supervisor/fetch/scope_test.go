package fetch

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/fetch/fetchtest"
)

// A stream that is opened for some tools of a script has no more than they may have; one for a
// scope that there is not is refused.
func TestScopes(t *testing.T) {
	host, err := policy.ParseHost("other.example.com")
	if err != nil {
		t.Fatal(err)
	}
	rule := policy.TopFetchRule()
	rule.Host = host
	w := newWorld(t, anyTo, func(s *Setup) {
		s.Scopes = []SetupLayer{{Name: "bundle words", Source: "bundle.json",
			Fetch: policy.Fetch{Allow: []policy.FetchRule{rule}, Limits: policy.TopFetchLimits(),
				Mode: policy.FetchReport}},
			{Name: "bundle all", Source: "bundle.json", Fetch: policy.TopFetch()}}
	})
	w.names.Set(upName, []string{upIP})
	fetchtest.StartHost(t, upIP+":443", w.ca.Config(t, time.Now().Add(time.Hour), upName),
		says("hi"))
	ours, theirs, err := control.Pair("socket")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); w.proxy.admit(ctx, ours) }()
	socket := control.New(theirs)
	t.Cleanup(func() { socket.Close(); cancel(); <-ended })
	for _, c := range []struct {
		scope   int
		refused bool
		says    string
	}{
		{0, false, "\r\n\r\nhi"}, {1, false, "bundle words"}, {2, false, "\r\n\r\nhi"},
		{3, true, ""}, {-1, true, ""},
	} {
		if err := socket.Send(control.OpenStream{Scope: c.scope}); err != nil {
			t.Fatal(err)
		}
		var opened control.Opened
		files, err := socket.Receive(&opened)
		if err != nil || opened.Refused != c.refused || (len(files) == 0) != c.refused {
			t.Fatalf("scope %d: %+v, %d streams, %v", c.scope, opened, len(files), err)
		}
		if c.refused {
			continue
		}
		conn, err := net.FileConn(files[0])
		files[0].Close()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "GET https://%s/ HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n",
			upName, upName)
		if half, ok := conn.(*net.UnixConn); ok {
			// The proxy has read all that comes.
			_ = half.CloseWrite()
		}
		out, err := io.ReadAll(conn)
		conn.Close()
		if err != nil || !strings.Contains(string(out), c.says) {
			t.Errorf("scope %d: %q, %v; want %q", c.scope, out, err, c.says)
		}
	}
	if _, _, refused := w.notes.take(); len(refused) != 1 || refused[0].Layer != "bundle words" {
		t.Errorf("refused: %+v", refused)
	}
}
