//go:build clients

package mcp_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	neturl "net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// The tests here run the official inspector and the official conformance tests of the protocol: make
// clients-test, which installs them and names their programs in JAIL_CLIENTS.

// program returns a command line of one of the programs, which find their own node beside them.
func program(t *testing.T, h *cmdtest.Host, name string, args ...string) cmdtest.Outcome {
	t.Helper()
	bin := os.Getenv("JAIL_CLIENTS")
	if bin == "" {
		t.Fatal("JAIL_CLIENTS names no directory with the programs of the clients: make clients-test")
	}
	cmd := h.Program(filepath.Join(bin, name), args...)
	cmd.Env = append(cmd.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+t.TempDir())
	return h.Run(cmd)
}

// TestClientsInspector: the inspector finds no fault in the schemas of the tools, and calls them, over both
// transports and in both eras of the protocol: with and without sessions.
func TestClientsInspector(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	h.Files(map[string]string{"f": "old\n"})
	cmd, url, token := serve(t, h)
	jail := h.Command("mcp").Path
	// The inspector gives a server nothing of its own environment.
	stdio := []string{"-e", "JAIL_STATE=" + h.State, jail, "mcp"}
	for name, target := range map[string][]string{"stdio": stdio,
		"HTTP": {url, "--header", "Authorization: Bearer " + token}} {
		for _, era := range []string{"legacy", "modern"} {
			inspect := func(args ...string) (out map[string]any) {
				t.Helper()
				o := program(t, h, "inspector", slices.Concat([]string{"--cli", "--protocol-era", era}, target,
					args, []string{"--quiet"})...)
				if o.Code != 0 || json.Unmarshal([]byte(o.Out), &out) != nil {
					t.Errorf("%s, %s, %v: %d, %s%s", name, era, args, o.Code, o.Err, o.Out)
				}
				return out
			}
			call := func(tool string, args map[string]string, want string) {
				t.Helper()
				line := []string{"--method", "tools/call", "--tool-name", tool}
				for _, k := range slices.Sorted(maps.Keys(args)) {
					line = append(line, "--tool-arg", k+"="+args[k])
				}
				out, err := json.Marshal(inspect(line...))
				if err != nil || !strings.Contains(string(out), want) {
					t.Errorf("%s, %s, %s: %s, %v; want %s", name, era, tool, out, err, want)
				}
			}
			// What the tools say of themselves is the same for all.
			if name == "stdio" {
				tools, _ := inspect("--method", "tools/list", "--strict")["tools"].([]any)
				if len(tools) != len(names) {
					t.Errorf("%s, %s: %d tools", name, era, len(tools))
				}
			}
			call("bash", map[string]string{"command": "echo new >f; exit 3"}, `"exitCode":3`)
			call("commit", map[string]string{"message": "m"}, "waits for a person")
			out := inspect("--method", "resources/read", "--uri", "jail://diff/"+h.Sessions()[0].ID)
			if text, err := json.Marshal(out); err != nil || !strings.Contains(string(text), "+new") {
				t.Errorf("%s, %s: %s, %v", name, era, text, err)
			}
		}
	}
	// One that does not know the token.
	if o := program(t, h, "inspector", "--cli", url, "--method", "tools/list", "--quiet"); o.Code == 0 {
		t.Errorf("without the token: %s", o.Out)
	}
	if real(h, "f") != "old\n" {
		t.Error("the real directory changed")
	}
	interrupt(t, cmd)
	stop(h)
}

// conformance are the scenarios of the conformance tests that need no tools of the test's own.
var conformance = []string{"server-initialize", "ping", "tools-list", "resources-list",
	"server-sse-multiple-streams", "dns-rebinding-protection"}

// TestClientsConformance: the official conformance tests pass. They can send no token, so a proxy adds
// it; a control sees that a server without the check of the Host fails them.
func TestClientsConformance(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	cmd, url, token := serve(t, h)
	to, err := neturl.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	front := func(anyHost bool) string {
		var s *httptest.Server
		s = httptest.NewServer(&httputil.ReverseProxy{FlushInterval: -1,
			Rewrite: func(r *httputil.ProxyRequest) {
				r.Out.URL.Scheme, r.Out.URL.Host = to.Scheme, to.Host
				r.Out.Header.Set("Authorization", "Bearer "+token)
				own := strings.TrimPrefix(s.URL, "http://")
				// Names that are not the proxy's own reach the server as they are.
				if r.Out.Host = r.In.Host; anyHost || r.In.Host == own {
					r.Out.Host = to.Host
				}
				if origin := r.In.Header.Get("Origin"); anyHost {
					r.Out.Header.Del("Origin")
				} else if origin == s.URL {
					r.Out.Header.Set("Origin", "http://"+to.Host)
				}
			}})
		t.Cleanup(s.Close)
		return s.URL + to.Path
	}
	guarded := front(false)
	for _, scenario := range conformance {
		o := program(t, h, "conformance", "server", "--url", guarded, "--scenario", scenario)
		if o.Code != 0 || strings.Contains(o.Out, "0 passed") {
			t.Errorf("%s: %d, %s%s", scenario, o.Code, o.Err, o.Out)
		}
	}
	if o := program(t, h, "conformance", "server", "--url", front(true), "--scenario",
		"dns-rebinding-protection"); o.Code == 0 {
		t.Errorf("control: without the check of the Host: %s", o.Out)
	}
	if r, err := http.Post(url, "application/json", nil); err != nil || r.StatusCode != 401 {
		t.Errorf("without the proxy: %v, %v", r, err)
	}
	interrupt(t, cmd)
	stop(h)
}
