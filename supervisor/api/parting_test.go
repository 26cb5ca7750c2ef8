package api

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/stdio"
	"github.com/jail-sandbox/jail/supervisor/wire"
)

// parted carries a run whose daemon ends, with its client at the other end of a connection on which
// each write waits for a read.
func parted(t *testing.T, end func(out io.Writer) error,
	client func(r *bufio.Reader)) (took time.Duration, wrote error) {
	srv := &Server{}
	srv.ending, srv.end = context.WithCancel(t.Context())
	theirs, ours := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		client(bufio.NewReaderSize(theirs, 16))
	}()
	begun := time.Now()
	srv.carry(ours, bufio.NewReader(ours), func(_ context.Context,
		s stdio.Streams) message.Result {
		srv.Hurry()
		synctest.Wait()
		wrote = end(s.Out)
		took = time.Since(begun)
		return message.Result{ID: "x", ExitCode: 143}
	})
	<-done
	theirs.Close()
	return took, wrote
}

// A client gets the end of its run however long that takes. A client that has stopped reading
// delays the end only once, for a moment.
func TestLastWords(t *testing.T) {
	slow := func(out io.Writer) error {
		for range 3 {
			time.Sleep(2 * lastWords) // killing, clearing away
			if _, err := out.Write([]byte("the last that it said")); err != nil {
				return err
			}
		}
		return nil
	}
	synctest.Test(t, func(t *testing.T) {
		var kind FrameKind
		_, wrote := parted(t, slow, func(r *bufio.Reader) {
			for err := error(nil); err == nil; {
				var k FrameKind
				if k, _, err = readFrame(r, nil, wire.MaxFrame); err == nil {
					kind = k
				}
			}
		})
		if wrote != nil || kind != wire.FrameResult {
			t.Errorf("a client that reads: %v, and the last frame is of kind %q", wrote, kind)
		}
	})
	flood := func(out io.Writer) error {
		for {
			if _, err := out.Write(make([]byte, 1000)); err != nil {
				_, again := out.Write(nil)
				return errors.Join(err, again)
			}
		}
	}
	for name, client := range map[string]func(r *bufio.Reader){
		"does not read": func(*bufio.Reader) {},
		"reads slowly": func(r *bufio.Reader) {
			for err := error(nil); err == nil; _, err = r.ReadByte() {
				time.Sleep(lastWords / 50)
			}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			if took, wrote := parted(t, flood, client); !errors.Is(wrote, os.ErrDeadlineExceeded) ||
				took != lastWords {
				t.Errorf("a client that %s: %v after %v, want an end after %v", name, wrote, took,
					lastWords)
			}
		})
	}
}

// lone is a listener with one connection.
type lone chan net.Conn

func (l lone) Accept() (net.Conn, error) {
	if c, ok := <-l; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (l lone) Close() error   { return nil }
func (l lone) Addr() net.Addr { return &net.UnixAddr{} }

// What is answered without a switch to streams holds the daemon's end up no longer.
func TestLastAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &Server{}
		srv.ending, srv.end = context.WithCancel(t.Context())
		theirs, ours := net.Pipe()
		var wrote error
		done := make(chan struct{})
		h := &http.Server{Handler: srv.hurried(http.HandlerFunc(func(w http.ResponseWriter,
			_ *http.Request) {
			defer close(done)
			for wrote == nil {
				_, wrote = w.Write(make([]byte, 1000))
			}
		}))}
		l := make(lone, 1)
		l <- ours
		go h.Serve(l)
		if _, err := io.WriteString(theirs, "GET / HTTP/1.1\r\nHost: jail\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		// While nothing ends it may take its time.
		time.Sleep(time.Hour)
		begun := time.Now()
		srv.Hurry()
		<-done
		if took := time.Since(begun); !errors.Is(wrote, os.ErrDeadlineExceeded) ||
			took != lastWords {
			t.Errorf("%v after %v, want an end after %v", wrote, took, lastWords)
		}
		close(l)
		theirs.Close()
		h.Close()
	})
}
