package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/wire"
)

// impostor listens where commands look for the daemon, and does something else with each
// connection.
func impostor(h *cmdtest.Host, do func(net.Conn)) (done func()) {
	h.T.Helper()
	l, err := net.Listen("unix", filepath.Join(h.State, "other.sock"))
	if err != nil {
		h.T.Fatal(err)
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go do(conn)
		}
	}()
	return func() { l.Close() }
}

// askImpostor is a command that asks the impostor.
func askImpostor(h *cmdtest.Host, args ...string) cmdtest.Outcome {
	h.T.Helper()
	cmd := h.Command(args...)
	cmd.Env = append(cmd.Env, "JAIL_SOCKET="+filepath.Join(h.State, "other.sock"))
	return h.Run(cmd)
}

// T-511: a daemon of another version serves a client if they have one API, and else both sides are
// named before anything is asked for.
func TestVersionSkew(t *testing.T) {
	h := cmdtest.New(t)
	d := h.Daemon()
	for number, want := range map[int]func(args ...string){
		api.Number: func(args ...string) { h.Wants(askImpostor(h, args...), 0, "") },
		api.Number + 1: func(args ...string) {
			h.Wants(askImpostor(h, args...), 125,
				fmt.Sprintf(
					`other.sock is jaild "9.9.9" and speaks API %d; this is jail [^ ]+, which speaks API %d\njail: hint: install`, api.Number+1, api.Number))
		},
	} {
		l, err := net.Listen("unix", filepath.Join(h.State, "other.sock"))
		if err != nil {
			t.Fatal(err)
		}
		asked := 0
		proxy := &httputil.ReverseProxy{
			Rewrite: func(r *httputil.ProxyRequest) {
				if r.In.URL.Path != api.PathVersion {
					asked++
				}
				r.SetURL(&url.URL{Scheme: "http", Host: "jail"})
			},
			Transport: &http.Transport{DisableKeepAlives: true,
				DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
					return new(net.Dialer).DialContext(ctx, "unix", d.Socket)
				}},
			ModifyResponse: func(r *http.Response) error {
				if r.Request.URL.Path != api.PathVersion {
					return nil
				}
				var v api.Version
				if err := json.NewDecoder(r.Body).Decode(&v); err != nil {
					return err
				}
				v.Version, v.API = "9.9.9", number
				text, err := json.Marshal(v)
				r.Body, r.ContentLength = io.NopCloser(strings.NewReader(string(text))),
					int64(len(text))
				r.Header.Del("Content-Length")
				return err
			},
		}
		// A daemon refuses a client that speaks another API and did not ask.
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter,
			r *http.Request) {
			speaks := r.Header.Get(wire.NumberHeader)
			if speaks != "" && speaks != strconv.Itoa(number) {
				http.Error(w, `{"error":{"code":"usage","message":"another API"}}`,
					http.StatusBadRequest)
				return
			}
			proxy.ServeHTTP(w, r)
		})}
		go server.Serve(l)
		want("ps")
		want("run", "--", "true")
		server.Close()
		if (asked > 0) != (number == api.Number) {
			t.Errorf("API %d: %d requests", number, asked)
		}
	}
}

// What listens on the socket and is no jaild is one sentence.
func TestNoJaildThere(t *testing.T) {
	h := cmdtest.New(t)
	for name, do := range map[string]func(net.Conn){
		"closes":         func(c net.Conn) { c.Close() },
		"closes, unread": func(c net.Conn) { c.Write([]byte("HTTP/1.1 ")); c.Close() },
		"garbage": func(c net.Conn) {
			c.Write([]byte("\x1b[31mgarbage\r\n\r\n"))
			c.Close()
		},
		"not found": func(c net.Conn) {
			c.Write([]byte("HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\n\x1b[31m"))
			c.Close()
		},
		"another object": func(c net.Conn) {
			c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{\"ok\": true}"))
			c.Close()
		},
		"no object": func(c net.Conn) {
			c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]"))
			c.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			h.T = t
			done := impostor(h, do)
			defer done()
			for _, args := range [][]string{{"ps"}, {"run", "--", "true"}} {
				o := askImpostor(h, args...)
				h.Wants(o, 125, "daemon|socket")
				if strings.ContainsAny(o.Err, "\x1b") || strings.Contains(o.Err, "http://jail") {
					t.Errorf("stderr %q", o.Err)
				}
			}
		})
	}
	h.T = t
}

// A daemon that dies while it answers is one sentence for each client, of whatever it waited for.
func TestDaemonDiesInAnAnswer(t *testing.T) {
	h := cmdtest.New(t)
	d := h.Daemon()
	h.Wants(h.Jail("run", "--detach", "--discard", "--input", "--id", "lasting", "--", h.Probe,
		"lines"), 0, "")
	h.Wants(h.Jail("session", "start", "--discard", "--id", "open"), 0, "")
	wait, logs, attach := h.Command("wait", "lasting"), h.Command("logs", "-f", "lasting"),
		h.Command("attach", "lasting")
	results := make(chan cmdtest.Outcome)
	stdin, err := attach.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	clients := []*exec.Cmd{wait, logs, attach}
	for _, cmd := range clients {
		var out, errOut bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errOut
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() {
			err := cmd.Wait()
			results <- cmdtest.Outcome{Code: h.ExitCode(cmd, err), Out: out.String(), Err: errOut.String()}
		}()
	}
	run := h.Live("run", "--discard")
	invocation := h.LiveWith(h.Command("session", "exec", "open", "--id", "invocation", "--",
		h.Probe, "lines"), "invocation")
	cmdtest.Eventually(t, "five clients are connected, and wait for an answer", func() bool {
		return acceptedClients(d) >= 5 && asleep(d.Cmd.Process.Pid) &&
			!slices.ContainsFunc(clients, func(c *exec.Cmd) bool { return !asleep(c.Process.Pid) })
	})
	// What is asked from here on has no answer.
	if err := d.Cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	d.Kill()
	for range 3 {
		h.Wants(<-results, 125, "the daemon (went away|is gone)")
	}
	h.Wants(run.Wait(), 125, "the daemon went away before the run ended\njail: hint: ")
	h.Wants(invocation.Wait(), 125, "the daemon went away before the run ended\njail: hint: ")
	h.Daemon().Stop()
	h.Discard(namesOf(h)...)
}

// acceptedClients counts the connections that the daemon has accepted.
func acceptedClients(d *cmdtest.SharedDaemon) int {
	text, _ := os.ReadFile("/proc/net/unix")
	n := 0
	for line := range strings.Lines(string(text)) {
		// Number, references, protocol, flags, type, state (3: connected), inode, path.
		f := strings.Fields(line)
		if len(f) == 8 && f[5] == "03" && f[7] == d.Socket {
			n++
		}
	}
	return n
}

func namesOf(h *cmdtest.Host) []string {
	var kept []string
	for _, e := range cmdtest.NamesIn(filepath.Join(h.State, "state", "workspaces")) {
		if id := strings.TrimSuffix(e, ".json"); !strings.HasPrefix(id, ".") && (len(kept) == 0 ||
			kept[len(kept)-1] != id) {
			kept = append(kept, id)
		}
	}
	return kept
}
