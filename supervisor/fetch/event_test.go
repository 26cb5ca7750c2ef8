package fetch

import (
	"context"
	"io"
	"net/http"
	"slices"
	"testing"

	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/supervisor/fetch/fetchtest"
)

// TestEventKeys: the requests of an event have keys, which a repeated event repeats. A key of the
// tool's own stays, requests outside of an event have none, and a name that is no field has none.
func TestEventKeys(t *testing.T) {
	w := newWorld(t, anyTo)
	w.names.Set(upName, []string{upIP})
	var keys []string
	fetchtest.StartHost(t, upIP+":80", nil, plain(func(w io.Writer, r *http.Request, _ string) {
		keys = append(keys, r.Header.Get(idempotencyKey))
		_, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	}))
	ours, theirs, err := control.Pair("socket")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); w.proxy.admit(ctx, ours) }()
	socket := control.New(theirs)
	t.Cleanup(func() { socket.Close(); cancel(); <-ended })
	get := func(lines ...string) {
		t.Helper()
		if status, text := w.get("http://"+upName+"/", lines...); status != http.StatusOK {
			t.Fatalf("%d %s", status, text)
		}
	}
	get()
	for _, event := range []string{"agent:a:b/7", "agent:a:b/7", "agent:a:b/8", "", "x\r\nEvil: 1"} {
		if err := socket.Send(control.OpenStream{Event: &event}); err != nil {
			t.Fatal(err)
		}
		var opened control.Opened
		if files, err := socket.Receive(&opened); err != nil || opened.Refused || len(files) != 0 {
			t.Fatalf("%+v, %d streams, %v", opened, len(files), err)
		}
		get()
		get("idempotency-key: own")
		get()
	}
	want := []string{"", "agent:a:b/7/f1", "own", "agent:a:b/7/f3", "agent:a:b/7/f1", "own",
		"agent:a:b/7/f3", "agent:a:b/8/f1", "own", "agent:a:b/8/f3", "", "own", "", "", "own", ""}
	if !slices.Equal(keys, want) {
		t.Errorf("%q\nwant %q", keys, want)
	}
}
