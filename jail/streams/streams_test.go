package streams_test

import (
	"errors"
	"io"
	"os"
	"sync"
	"testing"

	"github.com/hashicorp/yamux"

	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/internal/sys"
	"github.com/jail-sandbox/jail/jail/streams"
)

// proxy answers for a fetch proxy: each stream echoes what it gets until its end, and then says bye.
// Scope 9 is refused.
func proxy(t *testing.T, conn *control.Conn) {
	for {
		var open control.OpenStream
		if _, err := conn.Receive(&open); err != nil {
			return
		}
		if open.Scope == 9 {
			if conn.Send(control.Opened{Refused: true}) != nil {
				return
			}
			continue
		}
		own, other, err := control.Pair("stream")
		if err != nil {
			t.Error(err)
			return
		}
		err = conn.Send(control.Opened{}, other)
		other.Close()
		if err != nil {
			own.Close()
			return
		}
		go func() {
			defer own.Close()
			_, _ = io.Copy(own.File(), own.File())
			_, _ = own.File().Write([]byte("bye"))
		}()
	}
}

// serve returns the inside of a jail, and what Serve returns.
func serve(t *testing.T) (*os.File, chan error) {
	t.Helper()
	toProxy, door, err := control.Pair("proxy")
	if err != nil {
		t.Fatal(err)
	}
	host, inside, err := control.Pair("streams")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { toProxy.Close(); inside.Close() })
	go proxy(t, toProxy)
	served := make(chan error, 1)
	go func() { served <- streams.Serve(host.File(), door) }()
	return inside, served
}

func TestStreams(t *testing.T) {
	inside, served := serve(t)
	client, err := streams.NewClient(inside)
	if err != nil {
		t.Fatal(err)
	}
	if f, err := client.Open(9); err == nil {
		f.Close()
		t.Error("a refused stream was given")
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			f, err := client.Open(0)
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close()
			_, err = f.Write([]byte("hello, "))
			// The other direction stays open.
			err = errors.Join(err, sys.ShutdownWrite(f))
			got, readErr := io.ReadAll(f)
			if err != nil || readErr != nil || string(got) != "hello, bye" {
				t.Errorf("%q, %v, %v", got, err, readErr)
			}
		})
	}
	all.Wait()
	inside.Close()
	if err := <-served; err != nil {
		t.Errorf("at the end of the jail: %v", err)
	}
}

// What is no stream ends the streams of that jail, and nothing else.
func TestHostileStreams(t *testing.T) {
	for _, text := range []string{"GET / HTTP/1.1\r\n\r\n", "\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
		"\x00\x00\x00\x01\x00\x00\x00\x01\xff\xff\xff\xff"} {
		inside, served := serve(t)
		if _, err := inside.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		inside.Close()
		// It ends, whatever it says.
		<-served
	}
}

// TestTooManyStreams: a jail is refused more streams than it may have, and loses all when it goes on.
func TestTooManyStreams(t *testing.T) {
	inside, served := serve(t)
	session, err := yamux.Client(inside, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	for range 10 * streams.MaxStreams {
		stream, err := session.OpenStream()
		if err != nil {
			break
		}
		// Never a scope. What is written opens the stream on the other side.
		if _, err := stream.Write([]byte{0}); err != nil {
			break
		}
		if session.NumStreams() > streams.MaxStreams {
			var given [1]byte
			if _, err := io.ReadFull(stream, given[:]); err != nil {
				break
			}
			if given[0] != 0 {
				t.Fatalf("stream %d was given", session.NumStreams())
			}
		}
	}
	session.Close()
	if err := <-served; !errors.Is(err, streams.ErrTooMany) {
		t.Errorf("%v", err)
	}
}
