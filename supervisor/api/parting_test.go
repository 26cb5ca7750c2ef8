package api

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jail-sandbox/jail/supervisor"
)

// parted carries a run whose daemon ends, with its client at the other end of a connection on which each write waits for a read.
func parted(t *testing.T, end func(out io.Writer) error, client func(r *bufio.Reader)) (wrote error, took time.Duration) {
	srv := &Server{}
	srv.ending, srv.end = context.WithCancel(t.Context())
	theirs, ours := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		client(bufio.NewReaderSize(theirs, 16))
	}()
	begun := time.Now()
	srv.carry(ours, bufio.NewReader(ours), func(_ context.Context, s supervisor.Streams) supervisor.Result {
		srv.Hurry()
		synctest.Wait()
		wrote = end(s.Out)
		took = time.Since(begun)
		return supervisor.Result{ID: "x", ExitCode: 143}
	})
	<-done
	theirs.Close()
	return wrote, took
}

// However long a run takes to end, its client is told of it; a client that has stopped reading holds that up for a moment, once.
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
		wrote, _ := parted(t, slow, func(r *bufio.Reader) {
			for err := error(nil); err == nil; {
				var k FrameKind
				if k, _, err = readFrame(r, nil, maxFrame); err == nil {
					kind = k
				}
			}
		})
		if wrote != nil || kind != FrameResult {
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
			if wrote, took := parted(t, flood, client); !errors.Is(wrote, os.ErrDeadlineExceeded) || took != lastWords {
				t.Errorf("a client that %s: %v after %v, want an end after %v", name, wrote, took, lastWords)
			}
		})
	}
}
