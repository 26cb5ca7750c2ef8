package api

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/wire"
)

// passing is a daemon of one run, whose tool is do. Without do it passes nothing.
func passing(t *testing.T, do func(stdin io.Reader, stdout io.Writer)) *Client {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "socket"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		conn, err := l.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		r := bufio.NewReader(conn)
		req, err := http.ReadRequest(r)
		if err != nil || req.URL.Query().Get(wire.QueryStreams) != wire.StreamsPassed {
			t.Errorf("%v, %v", req, err)
			return
		}
		io.Copy(io.Discard, req.Body)
		head := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + Upgrade + "\r\n"
		if do == nil {
			io.WriteString(conn, head+"\r\n")
			if got := frames(t, r, 2); got != "iaske" {
				t.Errorf("input %q", got)
			}
			sendFrame(t, conn, wire.FrameOutput, "said")
			sendResult(t, conn, message.Result{ExitCode: 7})
			return
		}
		io.WriteString(conn, head+wire.StreamsHeader+": "+wire.StreamsPassed+"\r\n\r\n")
		stdin, in, err := os.Pipe()
		if err != nil {
			t.Error(err)
			return
		}
		out, stdout, err := os.Pipe()
		if err != nil {
			t.Error(err)
			return
		}
		if err := newParting(conn).pass(in, out); err != nil {
			t.Error(err)
		}
		in.Close()
		out.Close()
		do(stdin, stdout)
		stdin.Close()
		stdout.Close()
		sendResult(t, conn, message.Result{ExitCode: 7})
	}()
	return newClient(func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", l.Addr().String())
	}, nil)
}

// Input and output go through the pipes that the daemon passes, to the last byte, and through frames
// where it passes none.
func TestRunPassed(t *testing.T) {
	for name, do := range map[string]func(io.Reader, io.Writer){
		"passed": func(stdin io.Reader, stdout io.Writer) {
			if got, err := io.ReadAll(stdin); string(got) != "ask" || err != nil {
				t.Errorf("input %q, %v", got, err)
			}
			io.WriteString(stdout, "said")
		},
		"an older daemon": nil,
	} {
		t.Run(name, func(t *testing.T) {
			c := passing(t, do)
			var out bytes.Buffer
			res, err := RunPassed(t.Context(), c, message.Request{}, bytes.NewReader([]byte("ask")), &out,
				io.Discard)
			if err != nil || res.ExitCode != 7 || out.String() != "said" {
				t.Errorf("%+v, %v, %q", res, err, out.String())
			}
		})
	}
}

// Only the streams of agents may be passed: the output of other runs has a limit.
func TestPasses(t *testing.T) {
	for _, c := range []struct {
		req  any
		want bool
	}{{&message.Request{Agent: &message.Agent{}}, true}, {&message.Request{}, false},
		{&struct{}{}, false}} {
		if got := passes(c.req); got != c.want {
			t.Errorf("passes(%T) = %v", c.req, got)
		}
	}
}

// A read that fails returns no negative count: bufio.Reader panics on one.
func TestPassedReaderFails(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	theirs, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	// It ends with something unread.
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	r := bufio.NewReader(&passedReader{UnixConn: conn.(*net.UnixConn)})
	if _, err := r.ReadByte(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v", err)
	}
}
