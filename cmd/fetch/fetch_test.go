package fetch_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/supervisor/fetch/fetchtest"
)

// onTestInternet runs the rest of the test that calls it in a new process, on an internet of the
// test's own, for at most so long. It returns false in the process that started that one.
func onTestInternet(t *testing.T, timeout string) bool {
	t.Helper()
	cmdtest.NeedBuilt(t)
	if !fetchtest.Inside() {
		// Each has a namespace and hosts of its own, and waits much.
		t.Parallel()
		// Here, so that all such processes share it.
		cmdtest.Must(cmdtest.Installed())(t)
		cmd := fetchtest.Command("-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout="+timeout)
		out, err := cmd.CombinedOutput()
		if t.Logf("%s", out); err != nil {
			t.Fatal(err)
		}
		return false
	}
	if err := fetchtest.Enter(); err != nil {
		t.Fatal(err)
	}
	return true
}

// pythonModule is the shipped CPython.
func pythonModule() string { return filepath.Join(cmdtest.Built, "bundles/python/python.wasm") }

// fetcherModule is testdata/fetcher as a guest.
var fetcherModule = cmdtest.Build("fetcher.wasm", "./testdata/fetcher", "GOOS=wasip1",
	"GOARCH=wasm")

// fetchSettings has fetches ask names for addresses, and trust ca.
func fetchSettings(h *cmdtest.Host, names *fetchtest.Names, ca *fetchtest.Authority) {
	h.T.Helper()
	roots := filepath.Join(h.State, "roots.pem")
	settings := fmt.Sprintf("resolvers = [%q]\nroots = %q\n", names.Server, roots)
	for path, text := range map[string]string{roots: string(ca.PEM),
		filepath.Join(h.State, "fetch.toml"): settings} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			h.T.Fatal(err)
		}
	}
	h.Foreign["roots.pem"], h.Foreign["fetch.toml"] = true, true
}

// TestFetch is what a user sees of the network, on an internet of the test's own: guests reach what
// the policy grants and nothing else, the record says so, and a credential is nowhere but on the
// wire.
func TestFetch(t *testing.T) {
	if !onTestInternet(t, "8m") {
		return
	}
	w := newFetchWorld(t)
	t.Run("granted", w.granted)
	t.Run("refused", w.refused)
	t.Run("no proxy", w.noProxy)
	t.Run("reported", w.reported)
	t.Run("settings", w.settings)
	t.Run("internal", w.internal)
	t.Run("credential", w.credential)
	t.Run("killed", w.killed)
	t.Run("record", w.record)
}

type fetchWorld struct {
	bin, state, dir, guest string
	up                     *fetchtest.Host
	// What showed the canary: processes while a request was on its way, and commands.
	leaked []string
}

// newFetchWorld returns a host on which testdata/fetcher and other modules are compiled.
func newFetchWorld(t *testing.T, modules ...string) *fetchWorld {
	bin, err := filepath.Abs(cmdtest.Built)
	if err != nil {
		t.Fatal(err)
	}
	state, err := os.MkdirTemp("", "jail-state-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(state) })
	if err := cmdtest.CompileSlowly(state); err != nil {
		t.Fatal(err)
	}
	w := &fetchWorld{bin: bin, state: state, dir: t.TempDir(), guest: cmdtest.Must(fetcherModule())(t)}
	if err := cmdtest.Compiled(state, append(modules, w.guest)...); err != nil {
		t.Fatal(err)
	}
	// Whatever the tests did: before the directory goes.
	t.Cleanup(func() {
		if found := append(w.leaked, filesWithCanary(t, w.state, "secret")...); len(found) > 0 {
			t.Errorf("the credential is shown by %q", found)
		}
	})
	names, ca := fetchtest.StartNames(t), fetchtest.NewAuthority(t)
	names.Set("up.example.com", []string{"93.184.216.34"})
	names.Set("api.example.com", []string{"93.184.216.34"})
	names.Set("inner.example.com", []string{"10.1.2.3"})
	names.Set("kill.example.com", []string{"93.184.216.50"})
	w.up = fetchtest.StartHost(t, "93.184.216.34:443",
		ca.Config(t, time.Now().Add(time.Hour), "up.example.com", "api.example.com"), w.serve)
	roots, secret := filepath.Join(state, "roots.pem"), filepath.Join(state, "secret")
	settings := fmt.Sprintf(
		"resolvers = [%q]\nroots = %q\n[[credential]]\nname = \"api\"\nkind = \"bearer\"\nfile = %q\n", names.Server, roots, secret)
	for path, text := range map[string]string{roots: string(ca.PEM), secret: fetchCanary + "\n",
		filepath.Join(state, "fetch.toml"): settings} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// serve says back what it is asked, and looks meanwhile for the canary in what every process shows
// of itself.
func (w *fetchWorld) serve(c net.Conn) {
	r := bufio.NewReader(c)
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		for _, pattern := range []string{"/proc/[0-9]*/cmdline", "/proc/[0-9]*/environ"} {
			paths, _ := filepath.Glob(pattern)
			for _, p := range paths {
				if text, err := os.ReadFile(p); err == nil && showsCanary(text) {
					w.leaked = append(w.leaked, p)
				}
			}
		}
		body := fmt.Sprintf("%s %s auth=%q", req.Method, req.RequestURI,
			req.Header.Get("Authorization"))
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
}

// fetchResult is what the test reads of a result.
type fetchResult struct {
	ExitCode int `json:"exit_code"`
	Stdout   string
	Stderr   string
	Denied   []struct{ Layer, What, Rule string }
	Warnings []string
	Usage    struct {
		In       int64 `json:"fetch_bytes_in"`
		Out      int64 `json:"fetch_bytes_out"`
		Requests int64 `json:"fetch_requests"`
	}
	Error *struct{ Message, Hint string }
}

func (w *fetchWorld) jail(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(filepath.Join(w.bin, "jail"), args...)
	cmd.Dir = w.dir
	cmd.Env = []string{"PATH=/usr/bin:/bin", "JAIL_STATE=" + w.state}
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if showsCanary(out) || showsCanary(said.Bytes()) {
		w.leaked = append(w.leaked, strings.Join(args, " "))
	}
	if err != nil {
		t.Logf("jail %q: %v %s", args, err, said.String())
	}
	return out
}

func (w *fetchWorld) run(t *testing.T, flags []string, args ...string) (r fetchResult) {
	t.Helper()
	out := w.jail(t,
		append(append(append([]string{"run", "--json"}, flags...), "--", w.guest), args...)...)
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if r.Error != nil {
		t.Errorf("error: %s", r.Error.Message)
	}
	return r
}

func (w *fetchWorld) granted(t *testing.T) {
	w.up.Took()
	r := w.run(t, []string{"--profile", "fetch", "--fetch", "up.example.com"},
		"http://up.example.com:443/a/%41?x=1", "http://up.example.com:443/b")
	if r.ExitCode != 0 || !strings.Contains(r.Stdout, "GET /a/A?x=1") || !strings.Contains(r.Stdout,
		"GET /b") || len(r.Denied) > 0 {
		t.Errorf("%+v", r)
	}
	got, wrote, _ := w.up.Took()
	if r.Usage.Requests != 2 || r.Usage.Out != int64(len(got)) || r.Usage.In > wrote ||
		r.Usage.In < wrote-4096 {
		t.Errorf("usage %+v; the host had %d and sent %d", r.Usage, len(got), wrote)
	}
}

func (w *fetchWorld) refused(t *testing.T) {
	w.up.Took()
	inner := fetchtest.StartHost(t, "10.1.2.3:443", nil, func(c net.Conn) { _, _ = io.ReadAll(c) })
	narrow := []string{"--profile", "fetch", "--fetch", "up.example.com"}
	for _, c := range []struct {
		flags, args []string
		says, rule  string
	}{
		{narrow, []string{"http://api.example.com:443/"}, "run again with --fetch api.example.com",
			"request: "},
		{narrow, []string{"-X", "POST", "http://up.example.com:443/"}, "fetch.allow",
			"profile fetch: "},
		{[]string{"--profile", "fetch"}, []string{"http://inner.example.com:443/"}, "10.1.2.3",
			"fetch: floor: private"},
		{[]string{"--profile", "fetch"}, []string{"http://metadata.google.internal/"}, "metadata",
			"ceiling: "},
		{append(narrow, "--limit", "fetch.requests=1"), []string{"http://up.example.com:443/",
			"http://up.example.com:443/"}, "fetch.limits.requests", "fetch: "},
	} {
		r := w.run(t, c.flags, c.args...)
		if !strings.Contains(r.Stdout, "403") || !strings.Contains(r.Stdout, c.says) ||
			len(r.Denied) != 1 || r.Denied[0].Layer != "fetch" ||
			!strings.HasPrefix(r.Denied[0].Rule, c.rule) {
			t.Errorf("%q: %+v", c.args, r)
		}
	}
	if got, _, n := inner.Took(); n > 0 {
		t.Errorf("a private host was sent %q", got)
	}
}

func (w *fetchWorld) noProxy(t *testing.T) {
	r := w.run(t, []string{"--profile", "default"}, "http://up.example.com:443/")
	if r.ExitCode != 1 || !strings.Contains(r.Stderr, "there is no fetch proxy") {
		t.Errorf("%+v", r)
	}
}

func (w *fetchWorld) credential(t *testing.T) {
	policy := filepath.Join(w.dir, "api.toml")
	text := `policy = 1
name = "api"
include = ["base"]
[workspace]
access = "shadow"
commit = "ask"
[tools]
modules = ["**"]
[[fetch.allow]]
host = "api.example.com"
ports = [443]
methods = ["GET"]
paths = ["/v1/**"]
credential = "api"
`
	if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w.up.Took()
	r := w.run(t, []string{"--policy", policy}, "-H", "Authorization:mine",
		"http://api.example.com:443/v1/x")
	if r.ExitCode != 0 || !strings.Contains(r.Stdout, `auth="Bearer *`) ||
		showsCanary([]byte(r.Stdout+r.Stderr)) {
		t.Errorf("%+v", r)
	}
	if len(w.leaked) > 0 {
		t.Errorf("the credential is shown by %v", w.leaked)
	}
	shown := string(w.jail(t, "audit", "show", "--log", filepath.Join(w.state, "audit"), "--json"))
	if !strings.Contains(shown, `"credential.used"`) || showsCanary([]byte(shown)) {
		t.Errorf("the record: %s", shown)
	}
	if found := filesWithCanary(t, w.state, "secret"); len(found) > 0 {
		t.Errorf("on disk: %q", found)
	}
}

// killed: a proxy that is killed in the middle of a run is the end of the network for it: the guest
// sees an error, and the run is on record with what is known.
func (w *fetchWorld) killed(t *testing.T) {
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	fetchtest.StartHost(t, "93.184.216.50:80", nil, func(c net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
			return
		}
		paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		// Of this namespace alone, which is this test's.
		for _, p := range paths {
			text, err := os.ReadFile(p)
			ns, nsErr := os.Readlink(filepath.Join(filepath.Dir(p), "ns/net"))
			pid, pidErr := strconv.Atoi(filepath.Base(filepath.Dir(p)))
			if err == nil && nsErr == nil && pidErr == nil && ns == own && bytes.HasSuffix(text,
				[]byte("\x00fetch-proxy\x00")) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		_, _ = io.ReadAll(c)
	})
	r := w.run(t, []string{"--profile", "fetch"}, "-again", "http://kill.example.com/",
		"http://up.example.com:443/")
	if r.ExitCode != 1 || strings.Contains(r.Stdout, "GET /") || strings.Count(r.Stderr,
		"fetcher: ") != 3 || len(r.Denied) != 1 || r.Denied[0].Layer != "fetch" ||
		!strings.Contains(r.Denied[0].Rule, "ended before the run") {
		t.Errorf("%+v", r)
	}
	shown := string(w.jail(t, "audit", "show", "--log", filepath.Join(w.state, "audit"), "--json"))
	if !strings.Contains(shown, "unknown: the proxy ended before the request did") ||
		!strings.Contains(shown[strings.LastIndex(shown, "kill.example.com"):], `"run.finished"`) {
		t.Errorf("the record: %s", shown)
	}
}

func (w *fetchWorld) record(t *testing.T) {
	log := filepath.Join(w.state, "audit")
	if out := w.jail(t, "audit", "verify", "--log", log); !bytes.Contains(out, []byte("verified")) {
		t.Errorf("%s", out)
	}
	begun, ended, denied := 0, 0, 0
	for line := range strings.Lines(string(w.jail(t, "audit", "show", "--log", log, "--json"))) {
		var r struct {
			Type, Decision string
			Begun          bool
			Cause          uint64
		}
		if json.Unmarshal([]byte(line), &r) != nil || r.Type != "fetch" {
			continue
		}
		switch {
		case r.Begun:
			begun++
		case r.Decision == "denied":
			denied++
		case r.Cause > 0:
			ended++
		}
	}
	if begun == 0 || begun != ended || denied < 5 {
		t.Errorf("%d fetches were begun, %d ended, %d denied", begun, ended, denied)
	}
}
