package fetch_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/supervisor/fetch/fetchtest"
)

const internalPolicy = `policy = 1
name = "inside"
include = ["base"]
[tools]
modules = ["**"]
[[fetch.allow]]
host = %q
ports = [80]
methods = ["GET"]
paths = ["/**"]
`

// internal hosts are reached by the operator's entry and a policy that names them: by address and
// by socket. The record, explain and doctor say so; without either, and for metadata, nothing is
// dialled.
func (w *fetchWorld) internal(t *testing.T) {
	path := filepath.Join(w.state, "fetch.toml")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := os.WriteFile(path, good, 0o600); err != nil {
			t.Error(err)
		}
	}()
	answer := func(text string) func(net.Conn) {
		return func(c net.Conn) {
			defer c.Close()
			// Until the head is there.
			if _, err := c.Read(make([]byte, 4096)); err == nil {
				fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n"+
					"Connection: close\r\n\r\n%s", len(text), text)
			}
		}
	}
	inner := fetchtest.StartHost(t, "10.1.2.3:80", nil, answer("by address"))
	socket := filepath.Join(t.TempDir(), "gateway.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go answer("by socket")(c)
		}
	}()
	settings := func(addresses string) {
		text := string(good) + fmt.Sprintf("[[internal]]\nhost = \"inner.example.com\"\n"+
			"ports = [80]\naddresses = [%q]\n", addresses) +
			fmt.Sprintf("[[internal]]\nhost = \"gateway.example.com\"\nports = [80]\n"+
				"socket = %q\n", socket)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	policy := filepath.Join(w.dir, "inside.toml")
	for _, c := range []struct{ addresses, granted, host, want string }{
		{"10.1.0.0/16", "**.example.com", "inner.example.com", "by address"},
		{"10.1.0.0/16", "**.example.com", "gateway.example.com", "by socket"},
		{"10.1.0.0/16", "*", "inner.example.com", ""},
		{"10.1.0.0/16", "up.example.com", "inner.example.com", ""},
		{"10.2.0.0/16", "**.example.com", "inner.example.com", ""},
	} {
		settings(c.addresses)
		if err := os.WriteFile(policy, []byte(fmt.Sprintf(internalPolicy, c.granted)),
			0o600); err != nil {
			t.Fatal(err)
		}
		inner.Took()
		r := w.run(t, []string{"--policy", policy, "--no-workspace"}, "http://"+c.host+"/x")
		if c.want != "" && !strings.Contains(r.Stdout, c.want) ||
			c.want == "" && len(r.Denied) != 1 {
			t.Errorf("%+v: %+v", c, r)
		}
		if _, _, n := inner.Took(); (n > 0) != (c.want == "by address") {
			t.Errorf("%+v: %d connections", c, n)
		}
		why := string(w.jail(t, "policy", "explain", "--policy", policy, "--why",
			"connect:"+c.host+":80"))
		if !strings.Contains(why, "internal: "+path+":") ||
			strings.Contains(why, ": yes\n") != (c.granted == "**.example.com") {
			t.Errorf("%+v: %s", c, why)
		}
	}
	if out := string(w.jail(t, "doctor")); !strings.Contains(out,
		"2 internal hosts: inner.example.com, ports 80, at 10.2.0.0/16; gateway.example.com") {
		t.Errorf("doctor: %s", out)
	}
	records := string(w.jail(t, "audit", "query", "--type", "fetch", "--json"))
	if !strings.Contains(records, `"address":"unix:`+socket+`"`) || !strings.Contains(records,
		`"internal":true`) {
		t.Errorf("records: %s", records)
	}
	settings("169.254.169.254")
	var r fetchResult
	out := w.jail(t, "run", "--json", "--policy", policy, "--no-workspace", "--", w.guest,
		"http://inner.example.com/x")
	if err := json.Unmarshal(out, &r); err != nil || r.ExitCode != 125 || r.Error == nil ||
		!strings.Contains(r.Error.Message, "credentials of its machines") {
		t.Errorf("%v: %s", err, out)
	}
	if out := string(w.jail(t, "doctor")); !strings.Contains(out, "credentials of its machines") {
		t.Errorf("doctor: %s", out)
	}
}
