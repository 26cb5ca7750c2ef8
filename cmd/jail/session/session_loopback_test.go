package session_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// server answers each connection with a word, and prints its port.
const server = `import socket
s = socket.create_server(("127.0.0.1", 0))
print(s.getsockname()[1], flush=True)
while True:
    c, _ = s.accept()
    c.sendall(b"served")
    c.close()
`

// client says what answers at the port that is its argument.
const client = `import socket, sys
try:
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as c:
        print(c.recv(100).decode())
except ConnectionRefusedError:
    print("refused")
`

// buildWith writes a profile that adds text to build.
func buildWith(h *cmdtest.Host, name, text string) string {
	h.T.Helper()
	path := filepath.Join(h.Root, name+".toml")
	text = fmt.Sprintf("policy = 1\nname = %q\ninclude = [\"build\"]\n%s\n", name, text)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		h.T.Fatal(err)
	}
	return path
}

// serve starts the server in the background of a session, and returns its port.
func serve(h *cmdtest.Host, session, id string) (port string) {
	h.T.Helper()
	if o := h.Exec(session, "--background", "--id", id, "--", "python3", "-c", server); o.Code != 0 {
		h.T.Fatalf("%s: %+v", id, o)
	}
	cmdtest.Eventually(h.T, "the server listens", func() bool {
		port = h.Jail("logs", id).Out
		return strings.HasSuffix(port, "\n")
	})
	return strings.TrimSpace(port)
}

// A server that one invocation has started answers the next one of that session, and nobody else
// (T-070): no other session, no run, and no process of the host. With loopback = "own" it answers
// none.
func TestSessionLoopback(t *testing.T) {
	h := cmdtest.NewNative(t)
	h.Daemon()
	shared := h.Session("--profile", "build", "--limit",
		"workspace=64MiB")
	port := serve(h, shared, "server")
	asks := func(who string, o cmdtest.Outcome, want string) {
		t.Helper()
		if o.Code != 0 || o.Out != want+"\n" {
			t.Errorf("%s: %+v, want %q", who, o, want)
		}
	}
	ask := []string{"--", "python3", "-c", client, port}
	asks("the next invocation", h.Exec(shared, ask...), "served")
	asks("the one after it", h.Exec(shared, ask...), "served")
	another := h.Session("--profile", "build", "--limit", "workspace=64MiB")
	asks("another session", h.Exec(another, ask...), "refused")
	asks("a run", h.Jail(append([]string{"run", "--profile", "build", "--limit", "workspace=64MiB"},
		ask...)...), "refused")
	// Something of the host may have the number, too.
	answer := make([]byte, 100)
	if c, err := net.Dial("tcp", "127.0.0.1:"+port); err == nil {
		n, _ := c.Read(answer)
		if c.Close(); string(answer[:n]) == "served" {
			t.Error("it answers a process of the host")
		}
	}
	asks("the session again", h.Exec(shared, ask...), "served")
	for id, want := range map[string]string{shared: "the session's", "server": "the session's"} {
		found := false
		for _, f := range cmdtest.Verification(h, id, 0).Findings {
			found = found || f.Layer == "namespaces" && f.What == "net" && f.Want == want
		}
		if !found {
			t.Errorf("verify %s says nothing of a namespace that is %s", id, want)
		}
	}
	own := h.Session("--policy", buildWith(h, "own", "[session]\nloopback = \"own\""),
		"--limit", "workspace=64MiB")
	port = serve(h, own, "alone")
	asks("with own", h.Exec(own, "--", "python3", "-c", client, port), "refused")
	cmdtest.Verification(h, "alone", 0)
}

// A ceiling with own narrows a profile that shares.
func TestSessionLoopbackPolicy(t *testing.T) {
	for name, text := range map[string]string{
		"ceiling": "policy = 1\n[session]\nloopback = \"own\"\n",
		"none":    "policy = 1\n",
	} {
		t.Run(name, func(t *testing.T) {
			h := cmdtest.NewPolicyHost(t, map[string]string{"ceiling": text})
			h.Listens()
			id := h.Session("--profile", "build")
			port := serve(h.Host, id, "server")
			want := map[string]string{"ceiling": "refused\n", "none": "served\n"}[name]
			if o := h.Exec(id, "--", "python3", "-c", client, port); o.Out != want {
				t.Errorf("%+v, want %q", o, want)
			}
		})
	}
}

// Invocations with one loopback have relays to their own fetch proxies, at addresses of their own.
// One with narrower fetch rules does not reach those of others: it has another loopback.
func TestSessionLoopbackFetch(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	id := h.Session("--policy", buildWith(h, "fetches",
		"[[fetch.allow]]\nhost = \"example.com\"\nports = [443]\nmethods = [\"GET\"]\npaths = [\"/**\"]\n"+
			"[fetch.limits]\nrequests = 10\nbytes_in = \"1MiB\"\nbytes_out = \"1MiB\"\nconcurrent = 2\n"+
			"timeout = \"30s\""))
	const relay = `import os, socket, sys, time
at = os.environ["HTTP_PROXY"].removeprefix("http://").split(":")
socket.create_connection((at[0], int(at[1]))).close()
print(at[0], flush=True)
time.sleep(float(sys.argv[1]))`
	o := h.Exec(id, "--background", "--id", "first", "--", "python3", "-c", relay, "1000")
	if o.Code != 0 {
		t.Fatalf("%+v", o)
	}
	var first string
	cmdtest.Eventually(t, "its relay listens", func() bool {
		first = h.Jail("logs", "first").Out
		return strings.HasSuffix(first, "\n")
	})
	second := h.Exec(id, "--", "python3", "-c", relay, "0")
	if second.Code != 0 || second.Out == first || !strings.HasPrefix(second.Out, "127.") {
		t.Errorf("relays at %q and %+v", first, second)
	}
	reach := []string{"--", "python3", "-c", `import socket, sys
try:
    socket.create_connection((sys.argv[1], 3128)).close()
    print("reached")
except ConnectionRefusedError:
    print("refused")`,
		strings.TrimSpace(first)}
	narrow := append([]string{"--limit", "fetch.requests=1"}, reach...)
	if o := h.Exec(id, narrow...); o.Out != "refused\n" {
		t.Errorf("one with narrower rules reaches the relay of another: %+v", o)
	}
	// The control.
	if o := h.Exec(id, reach...); o.Out != "reached\n" {
		t.Errorf("one with the same rules: %+v", o)
	}
}
