package detached

import (
	"context"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jail-sandbox/jail/jail/asuser"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/stdio"
)

// A client types and then stays silent until it goes.
type client struct {
	io.Reader
	gone <-chan struct{}
}

func (c client) Read(p []byte) (int, error) {
	if n, err := c.Reader.Read(p); err == nil {
		return n, nil
	}
	<-c.gone
	return 0, io.ErrUnexpectedEOF
}

// Of a client that goes while the tool does not read nothing stays: no goroutine, and nothing of
// what it typed for the tool to read after it.
func TestAttachedClientsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutputs(t)
		s := &Runs{o, Options{Permissions: everyone}}
		d := o.mustAdd(t, "typed", 7, time.Now())
		attach := func(text string) (leave func()) {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				s.Attach(ctx, caller.Caller{Caller: asuser.Caller{UID: 7}}, "typed",
					stdio.Streams{In: client{strings.NewReader(text), ctx.Done()}, Out: io.Discard,
						Err: io.Discard})
			}()
			synctest.Wait()
			return func() {
				cancel()
				<-done
				synctest.Wait()
			}
		}
		before := runtime.NumGoroutine()
		const clients = 50
		for range clients {
			attach(strings.Repeat("of one that goes ", 10000))()
		}
		if n := runtime.NumGoroutine(); n >= before+clients { // other tests have some
			t.Errorf("%d goroutines, %d before any client came", n, before)
		}
		leave := attach("of one that stays")
		buf := make([]byte, 64<<10)
		if n, err := d.in.Read(buf); err != nil || string(buf[:n]) != "of one that stays" {
			t.Errorf("the tool reads %.40q, %v", buf[:n], err)
		}
		o.finish(d, message.Result{ID: "typed"})
		leave()
		if n, err := d.in.Read(buf); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("after the end: %d, %v", n, err)
		}
	})
}
