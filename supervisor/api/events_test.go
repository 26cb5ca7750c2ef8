package api

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// onePipe is a listener with one connection, on which each write waits for a read.
type onePipe struct {
	conn chan net.Conn
}

func (l onePipe) Accept() (net.Conn, error) {
	if c, ok := <-l.conn; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (l onePipe) Close() error   { return nil }
func (l onePipe) Addr() net.Addr { return &net.UnixAddr{} }

// streamed has a server answer one request by stream, of a client that has sent it.
func streamed(t *testing.T, stream func(e *eventStream, r *http.Request),
	client func(r *bufio.Reader, c net.Conn)) {
	theirs, ours := net.Pipe()
	l, done := onePipe{make(chan net.Conn, 1)}, make(chan struct{})
	l.conn <- ours
	close(l.conn)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(done)
		stream(newEventStream(w, stalledBound), r)
	})}
	go srv.Serve(l)
	if _, err := theirs.Write([]byte("GET /v1/events HTTP/1.1\r\nHost: jail\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	client(bufio.NewReader(theirs), theirs)
	<-done
	if err := srv.Close(); err != nil {
		t.Error(err)
	}
	theirs.Close()
}

// TestEventsStalled: a client that reads no more is let go after a while, also where it has read
// until then; one that is slow is not.
func TestEventsStalled(t *testing.T) {
	for name, slow := range map[string]int{"nothing": 0, "some": 100} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reads := slow
				streamed(t, func(e *eventStream, _ *http.Request) {
					err, begun := e.begin(7), time.Now()
					sent := 0
					for ; err == nil; sent++ {
						begun = time.Now()
						err = e.record(audit.Record{Seq: 8,
							Line: []byte(strings.Repeat("x", 1000))})
					}
					if took := time.Since(begun); !errors.Is(err, os.ErrDeadlineExceeded) ||
						took > stalledBound || sent < slow {
						t.Errorf("after %d records the stream ends in %v: %v", sent, took, err)
					}
				}, func(r *bufio.Reader, _ net.Conn) {
					if reads == 0 {
						return
					}
					resp, err := http.ReadResponse(r, nil)
					if err != nil {
						t.Fatal(err)
					}
					for lines := bufio.NewReader(resp.Body); reads > 0; reads-- {
						if _, err := lines.ReadBytes('\n'); err != nil {
							t.Fatal(err)
						}
						time.Sleep(stalledBound / 2)
					}
				})
			})
		})
	}
}

// TestEventsAlive: where nothing comes, empty lines do, and by them the server finds out that the
// client is gone.
func TestEventsAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		streamed(t, func(e *eventStream, r *http.Request) {
			// Not the request's, which would end, too.
			ctx, cancel := context.WithCancelCause(context.Background())
			defer cancel(nil)
			if err := e.begin(7); err != nil {
				t.Error(err)
			}
			defer e.stayAlive(ctx, aliveEvery, cancel)()
			<-ctx.Done()
		}, func(r *bufio.Reader, c net.Conn) {
			resp, err := http.ReadResponse(r, nil)
			if err != nil || resp.Header.Get(afterHeader) != "7" ||
				resp.Header.Get("Content-Type") != "application/x-ndjson" {
				t.Fatalf("%v %v", resp, err)
			}
			begun, lines := time.Now(), bufio.NewReader(resp.Body)
			for range 4 {
				if line, err := lines.ReadString('\n'); line != "\n" || err != nil {
					t.Errorf("%q %v", line, err)
				}
			}
			if took := time.Since(begun); took != 4*aliveEvery {
				t.Errorf("four signs of life in %v", took)
			}
			c.Close()
		})
	})
}

// TestEventsEnd: what goes wrong later is the last line, and the end of the daemon says from where
// on to go on.
func TestEventsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		streamed(t, func(e *eventStream, _ *http.Request) {
			if err := errors.Join(e.begin(7),
				e.record(audit.Record{Seq: 9, Line: []byte(`{"seq":9}`)})); err != nil {
				t.Error(err)
			}
			e.end(errEnding)
		}, func(r *bufio.Reader, _ net.Conn) {
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewReader(resp.Body)
			line, _ := lines.ReadString('\n')
			last, err := lines.ReadString('\n')
			_, told := readEvent([]byte(strings.TrimSpace(last)))
			var e *problem.Error
			if line != "{\"seq\":9}\n" || err != nil || !errors.As(told, &e) ||
				e.Code != problem.Ending || !strings.Contains(e.Hint, "after record 9") {
				t.Errorf("%q %q %v", line, last, told)
			}
		})
	})
}

// TestEventsQuery: every condition of a search can be one of a stream, and what is none is refused.
func TestEventsQuery(t *testing.T) {
	after, uid := uint64(1742), uint32(1000)
	full := message.EventsRequest{After: &after, RecordsRequest: message.RecordsRequest{
		Run: "r", Session: "s", Types: []string{"denied", "exec"}, Since: time.Unix(1, 5).UTC(),
		Until: time.Unix(2, 0).UTC(), UID: &uid, Policy: "sha256:1", Tool: "grep",
		Decision: "denied", Layer: "wasi", Host: "*.example.com", Path: "/etc/**"}}
	for _, v := range []reflect.Value{reflect.ValueOf(full), reflect.ValueOf(full.RecordsRequest)} {
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Fatalf("%s is not tried", v.Type().Field(i).Name)
			}
		}
	}
	for _, req := range []message.EventsRequest{{}, full} {
		if got, err := readEvents(values(req)); err != nil || !reflect.DeepEqual(got, req) {
			t.Errorf("%+v comes as %+v: %v", req, got, err)
		}
	}
	for _, bad := range []string{"after=-1", "after=", "after=x", "after=1&after=2",
		"uid=4294967296", "since=yesterday", "until=1", "run=a&run=b", "follow=1", "After=1",
		"=1"} {
		q, err := url.ParseQuery(bad)
		if err != nil {
			t.Fatal(err)
		}
		var e *problem.Error
		if _, err := readEvents(q); !errors.As(err, &e) || e.Code != problem.Usage {
			t.Errorf("%s: %v", bad, err)
		}
	}
	var described, known []string
	for _, p := range readDocument(t).Paths[pathEvents]["get"].Parameters {
		described = append(described, p.Name)
	}
	for name := range values(full) {
		known = append(known, name)
	}
	slices.Sort(described)
	slices.Sort(known)
	if !slices.Equal(described, known) {
		t.Errorf("described are %v, read are %v", described, known)
	}
}
