package execute

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/config"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/wire"
)

// A daemon of the test's own: it speaks the streams of a run and does what the test says. The real
// one is in the tests from end to end.
type daemon struct {
	// After the switch to streams.
	run  func(conn io.ReadWriter)
	kill func(r *http.Request) int // returns the status
	// the signals that were asked for
	killed chan int
	socket string
}

func startDaemon(t *testing.T, d *daemon) *cli.Env {
	t.Helper()
	d.socket, d.killed = filepath.Join(t.TempDir(), "s"), make(chan int, 4)
	l, err := net.Listen("unix", d.socket)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+api.PathVersion, func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewEncoder(w).Encode(api.Version{API: api.Number}); err != nil {
			t.Error(err)
		}
	})
	mux.HandleFunc("POST "+api.PathRuns, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+
			api.Upgrade+"\r\n\r\n")
		d.run(struct {
			io.Reader
			io.Writer
		}{buffered, conn})
	})
	mux.HandleFunc("POST "+api.PathRuns+"/{id}/kill", func(w http.ResponseWriter, r *http.Request) {
		var req api.KillRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			t.Error(err)
		}
		d.killed <- req.Signal
		w.WriteHeader(d.kill(r))
		io.WriteString(w, `{"error":{"code":"not_found","message":"no such run"}}`)
	})
	server := &http.Server{Handler: mux}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	return &cli.Env{Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard,
		Config: config.Config{Socket: d.socket}}
}

func send(w io.Writer, kind api.FrameKind, content []byte) {
	w.Write(append(binary.BigEndian.AppendUint32([]byte{byte(kind)}, uint32(len(content))),
		content...))
}

func finish(w io.Writer, res message.Result) {
	text, _ := json.Marshal(res)
	send(w, wire.FrameResult, text)
}

func raise(t *testing.T, s syscall.Signal) {
	if err := syscall.Kill(os.Getpid(), s); err != nil {
		t.Error(err)
	}
}

func TestStreams(t *testing.T) {
	got := make(chan string, 1)
	env := startDaemon(t, &daemon{run: func(conn io.ReadWriter) {
		head := make([]byte, 5)
		io.ReadFull(conn, head)
		in := make([]byte, binary.BigEndian.Uint32(head[1:]))
		io.ReadFull(conn, in)
		got <- string(in)
		send(conn, wire.FrameOutput, []byte("out\x00\xff"))
		send(conn, wire.FrameErrorOutput, []byte("err"))
		finish(conn, message.Result{ExitCode: 3})
	}})
	var out, errOut bytes.Buffer
	env.Stdin, env.Stdout, env.Stderr = strings.NewReader("in"), &out, &errOut
	if c := env.Exit(Run(context.Background(), env, message.Request{ID: "r1"},
		Options{})); c != 3 {
		t.Errorf("exit code %d, want 3", c)
	}
	equal(t, <-got+"|"+out.String()+"|"+errOut.String(), "in|out\x00\xff|err")

	// The same as one object.
	out.Reset()
	errOut.Reset()
	env.Stdin = strings.NewReader("in")
	if c := env.Exit(Run(context.Background(), env, message.Request{ID: "r1"},
		Options{JSON: true})); c != 3 {
		t.Errorf("exit code %d, want 3", c)
	}
	if !strings.Contains(out.String(), `"stdout":{"base64":"b3V0AP8="},"stderr":"err"`) ||
		errOut.Len() > 0 {
		t.Errorf("object %s, stderr %q", out.String(), errOut.String())
	}
}

// T-419: the first signal ends the run by its name, and its end is waited for.
func TestFirstSignal(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP,
		syscall.SIGQUIT} {
		// Under nohup the test would ignore SIGHUP, and jail respects that.
		ours := make(chan os.Signal, 1)
		signal.Notify(ours, s)
		defer signal.Stop(ours)
		d := &daemon{kill: func(*http.Request) int { return http.StatusOK }}
		d.run = func(conn io.ReadWriter) {
			raise(t, s)
			finish(conn, message.Result{ExitCode: 128 + <-d.killed})
		}
		env := startDaemon(t, d)
		if c := env.Exit(Run(context.Background(), env, message.Request{ID: "r1"},
			Options{})); c != 128+int(s) {
			t.Errorf("%v: exit code %d, want %d", s, c, 128+int(s))
		}
	}
}

// T-419: a signal that comes before there is a run to end closes the connection, and so does a
// second one. There is a result in any case.
func TestCutOff(t *testing.T) {
	gone := make(chan error, 1)
	wait := func(conn io.ReadWriter) {
		raise(t, syscall.SIGTERM)
		// Until the client is gone.
		_, err := io.Copy(io.Discard, conn)
		gone <- err
	}
	for name, kill := range map[string]func(r *http.Request) int{
		"no run yet": func(*http.Request) int { return http.StatusNotFound },
		"second signal": func(r *http.Request) int {
			raise(t, syscall.SIGINT)
			<-r.Context().Done()
			return http.StatusOK
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			env := startDaemon(t, &daemon{run: wait, kill: kill})
			env.Stdout = &out
			if c := env.Exit(Run(context.Background(), env, message.Request{ID: "r1"},
				Options{JSON: true})); c != 143 {
				t.Errorf("exit code %d, want 143", c)
			}
			<-gone
			if !strings.HasPrefix(out.String(), `{"id":"r1","exit_code":143,"signal":"SIGTERM",`) {
				t.Errorf("result %s", out.String())
			}
		})
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// Output that cannot be written ends the run, and is told.
func TestOutputFull(t *testing.T) {
	gone := make(chan error, 1)
	env := startDaemon(t, &daemon{run: func(conn io.ReadWriter) {
		send(conn, wire.FrameOutput, []byte("x"))
		_, err := io.Copy(io.Discard, conn)
		gone <- err
	}})
	var errOut bytes.Buffer
	env.Stdout, env.Stderr = brokenWriter{}, &errOut
	if c := env.Exit(Run(context.Background(), env, message.Request{ID: "r1"},
		Options{})); c != problem.ExitFailed {
		t.Errorf("exit code %d", c)
	}
	<-gone
	equal(t, errOut.String(), "jail: error: standard output: no space left on device\n")
}

// A daemon that goes away is a failure of jail's, not an end of the tool's.
func TestDaemonGone(t *testing.T) {
	env := startDaemon(t, &daemon{run: func(io.ReadWriter) {}})
	err := Run(context.Background(), env, message.Request{ID: "r1"}, Options{})
	if c := env.Exit(err); c != problem.ExitFailed || errors.As(err, new(exit.Code)) {
		t.Errorf("exit code %d, %v", c, err)
	}
}

func equal(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}
