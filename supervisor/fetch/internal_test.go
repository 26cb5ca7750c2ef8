package fetch

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/supervisor/fetch/fetchtest"
)

const (
	corpName = "registry.corp.example.com"
	corpIP   = "10.1.0.7"
	corpRule = "[[fetch.allow]]\nhost = \"" + corpName + "\"\nports = [80, 443, 8080]\n" +
		"methods = [\"*\"]\npaths = [\"/**\"]\n"
)

// entries returns the entries of a file.
func entries(t testing.TB, text string) []Internal {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fetch.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := ReadSettings(path)
	if err != nil {
		t.Fatal(err)
	}
	return s.internal
}

func opens(t testing.TB, text string) func(*Setup) {
	list := entries(t, text)
	return func(s *Setup) { s.Internal = list }
}

func corpEntry(addresses string, more ...string) string {
	return fmt.Sprintf("[[internal]]\nhost = %q\nports = [80, 443]\naddresses = [%s]\n%s\n", corpName,
		addresses, strings.Join(more, "\n"))
}

// TestInternal: a host inside the operator's network is reached by the entry that lists its name,
// address and port, where a policy names it, and by nothing else. Each wall has its control beside
// it.
func TestInternal(t *testing.T) {
	network := `"10.1.0.0/16"`
	below := strings.Replace(corpRule, corpName, "**.example.com", 1)
	every := strings.Replace(corpRule, corpName, "*", 1)
	deny := "[[fetch.deny]]\nhost = \"" + corpName + "\"\n"
	for _, c := range []struct {
		name, policy, entry string
		port                string
		addresses           []string
		status              int
		code                string
	}{
		{name: "control", status: 200},
		{name: "no entry", entry: "queries = false\n", status: 403, code: codeFloor},
		{name: "by a name above it", policy: below, status: 200},
		{name: "by the host * alone", policy: every, status: 403, code: codeDenied},
		{name: "not granted", policy: anyTo, status: 403, code: codeDenied},
		{name: "denied", policy: corpRule + deny, status: 403, code: codeDenied},
		{name: "reported only", policy: "[fetch]\nmode = \"report\"\n" + strings.Replace(corpRule,
			corpName, "other.example.com", 1), status: 403, code: codeDenied},
		{name: "another port", port: ":8080", status: 403, code: codeFloor},
		{name: "rebound inside the network", addresses: []string{"10.2.0.7"}, status: 403,
			code: codeFloor},
		{name: "rebound to a public host", addresses: []string{upIP}, status: 403, code: codeFloor},
		{name: "rebound in part", addresses: []string{corpIP, "10.2.0.7"}, status: 403,
			code: codeFloor},
		{name: "rebound to metadata", addresses: []string{"169.254.169.254"}, status: 403,
			code: codeFloor},
		{name: "rebound to the loopback", addresses: []string{"127.0.0.1"}, status: 403,
			code: codeFloor},
		{name: "rebound, mapped", addresses: []string{"::ffff:10.2.0.7"}, status: 403,
			code: codeFloor},
		{name: "fixed", entry: corpEntry(`"`+corpIP+`"`, "resolve = false"),
			addresses: []string{"10.2.0.7"}, status: 200},
		{name: "a pattern", entry: strings.Replace(corpEntry(network), corpName,
			"*.corp.example.com", 1), status: 200},
		{name: "a pattern too short", entry: strings.Replace(corpEntry(network), corpName,
			"*.example.com", 1), status: 403, code: codeFloor},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.policy == "" {
				c.policy = corpRule
			}
			if c.policy == anyTo {
				c.policy = strings.Replace(anyTo, "**.example.com", "*.other.example", 1)
			}
			if c.entry == "" {
				c.entry = corpEntry(network)
			}
			if c.addresses == nil {
				c.addresses = []string{corpIP}
			}
			w := newWorld(t, c.policy, opens(t, c.entry))
			w.names.Set(corpName, c.addresses)
			var hosts []*fetchtest.Host
			for _, at := range []string{corpIP, "10.2.0.7", upIP, "169.254.169.254", "127.0.0.1"} {
				for _, port := range []string{":80", ":8080"} {
					hosts = append(hosts, fetchtest.StartHost(t, at+port, nil, says("inside")))
				}
			}
			status, body := w.get("http://" + corpName + c.port + "/x")
			if status != c.status || c.code != "" && !strings.Contains(body, `"code":"`+c.code+`"`) {
				t.Errorf("%d %s", status, body)
			}
			conns := 0
			for i, h := range hosts {
				_, _, n := h.Took()
				conns += n
				if n > 0 && i > 0 {
					t.Errorf("%s was dialled", h.Addr)
				}
			}
			intents, ends, refused := w.notes.take()
			if c.status == 200 {
				if conns != 1 || len(intents) != 1 || !intents[0].Internal ||
					ends[0].Address != corpIP+":80" {
					t.Errorf("%d connections, %+v %+v", conns, intents, ends)
				}
				return
			}
			if conns != 0 || len(intents) != 0 || len(refused) == 0 {
				t.Errorf("%d connections, %+v, %+v", conns, intents, refused)
			}
		})
	}
}

// TestInternalRebind: the second look-up of a name is checked like the first.
func TestInternalRebind(t *testing.T) {
	w := newWorld(t, corpRule, opens(t, corpEntry(`"10.1.0.0/16"`)))
	w.names.Set(corpName, []string{corpIP}, []string{"10.2.0.7"})
	fetchtest.StartHost(t, corpIP+":80", nil, says("inside"))
	other := fetchtest.StartHost(t, "10.2.0.7:80", nil, says("wrong"))
	if status, body := w.get("http://"+corpName+"/", "Connection: close"); status != 200 {
		t.Fatal(status, body)
	}
	w.forget()
	if status, body := w.get("http://" + corpName + "/"); status != 403 ||
		!strings.Contains(body, "[[internal]]") {
		t.Errorf("%d %s", status, body)
	}
	if _, _, n := other.Took(); n != 0 {
		t.Error("the rebound address was dialled")
	}
}

// TestInternalCeiling: a ceiling that does not grant an internal host forbids it, whatever the
// entry and the profile say. A ceiling with the host * does not.
func TestInternalCeiling(t *testing.T) {
	for host, want := range map[string]int{"*": 200, "**.example.com": 200, "other.example.com": 403} {
		t.Run(host, func(t *testing.T) {
			ceiling, err := syntax.Parse(syntax.Request, "ceiling.toml",
				[]byte("policy = 1\n"+strings.Replace(corpRule, corpName, host, 1)+limits), nil)
			if err != nil {
				t.Fatal(err)
			}
			w := newWorld(t, corpRule, opens(t, corpEntry(`"10.1.0.0/16"`)), func(s *Setup) {
				s.Layers[0].Fetch = ceiling.Policy.Fetch
			})
			w.names.Set(corpName, []string{corpIP})
			up := fetchtest.StartHost(t, corpIP+":80", nil, says("inside"))
			status, body := w.get("http://" + corpName + "/")
			if _, _, n := up.Took(); status != want || (n > 0) != (want == 200) ||
				want != 200 && !strings.Contains(body, `"layer":"ceiling"`) {
				t.Errorf("%s: %d %s, %d connections", host, status, body, n)
			}
		})
	}
}

// TestInternalOwn: an address of the daemon's host, and its loopback, need an entry with that very
// address; a range is not enough. The daemon decides it by its own entries.
func TestInternalOwn(t *testing.T) {
	const own = "10.1.0.99"
	if err := fetchtest.SetAddress(own, true); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := fetchtest.SetAddress(own, false); err != nil {
			t.Error(err)
		}
	}()
	for _, c := range []struct {
		address, entry, url string
		status              int
	}{
		{own, corpEntry(`"10.1.0.0/16"`), "", 403},
		{own, corpEntry(`"10.1.0.0/16", "` + own + `"`), "", 200},
		{"127.0.0.1", corpEntry(`"10.1.0.0/16"`), "", 403},
		{"127.0.0.1", corpEntry(`"127.0.0.1"`), "", 200},
		{"127.0.0.1", corpEntry(`"127.0.0.1"`), ":8080", 403},
		{"127.0.0.1", corpEntry(`"127.0.0.2"`), "", 403},
	} {
		t.Run(c.address+c.url, func(t *testing.T) {
			w := newWorld(t, corpRule, opens(t, c.entry))
			w.names.Set(corpName, []string{c.address})
			host := fetchtest.StartHost(t, c.address+":80", nil, says("inside"))
			status, body := w.get("http://" + corpName + c.url + "/")
			if _, _, n := host.Took(); status != c.status || (n > 0) != (c.status == 200) {
				t.Errorf("%+v: %d %s, %d connections", c, status, body, n)
			}
		})
	}
}

// TestOutward: the daemon takes no address of its host from a proxy that claims an internal host.
func TestOutward(t *testing.T) {
	list := entries(t, corpEntry(`"127.0.0.1"`))
	loop := []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	for _, c := range []struct {
		host string
		port uint16
		left int
	}{{corpName, 443, 0}, {corpName, 8080, 1}, {upName, 443, 1}} {
		got := outward(list, Intent{What: What{Host: c.host, Port: c.port, Internal: true},
			Addresses: loop})
		if len(got) != c.left {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestInternalSocket: the daemon connects to a Unix socket of the host for a request on record, by
// plain HTTP and by TLS, for a proxy that has no files of its own.
func TestInternalSocket(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "gateway.sock")
	entry := fmt.Sprintf("[[internal]]\nhost = %q\nports = [80]\nsocket = %q\n", corpName, path) +
		fmt.Sprintf("[[internal]]\nhost = %q\nports = [443]\nsocket = %q\n", corpName, path+".tls")
	w := newWorld(t, corpRule, opens(t, entry))
	serveSocket(t, path, func(l net.Listener) net.Listener { return l })
	config := w.ca.Config(t, time.Now().Add(time.Hour), corpName)
	serveSocket(t, path+".tls", func(l net.Listener) net.Listener { return tls.NewListener(l, config) })
	p := startProcess(t, w, func(err error) { t.Errorf("died: %v", err) })
	socket := control.New(p.Door)
	defer socket.Close()
	conn := openStream(t, socket)
	r := bufio.NewReader(conn)
	for _, scheme := range []string{"http", "http", "https"} {
		fmt.Fprintf(conn, "GET %s://%s/x HTTP/1.1\r\nHost: %s\r\n\r\n", scheme, corpName, corpName)
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 200 || string(body) != "by socket" {
			t.Errorf("%s: %d %s %v", scheme, resp.StatusCode, body, err)
		}
	}
	fmt.Fprintf(conn, "GET http://%s:8080/x HTTP/1.1\r\nHost: %s:8080\r\n\r\n", corpName, corpName)
	if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode == 200 {
		t.Errorf("another port: %+v %v", resp, err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if asked := w.names.Asked(); len(asked) != 1 {
		t.Errorf("looked up: %q, want the port without an entry only", asked)
	}
	intents, ends, _ := w.notes.take()
	if len(intents) != 3 || len(ends) != 3 || intents[0].Socket != path || !intents[2].Internal ||
		len(intents[0].Addresses) != 0 || !ends[1].Reused || ends[2].Address != "unix:"+path+".tls" {
		t.Errorf("%+v %+v", intents, ends)
	}
}

// serveSocket answers every request on a Unix socket.
func serveSocket(t *testing.T, path string, wrap func(net.Listener) net.Listener) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "by socket")
	})}
	done := make(chan error, 1)
	go func() { done <- server.Serve(wrap(l)) }()
	t.Cleanup(func() { server.Close(); <-done })
}

// TestSocketOf: no request has a connection to a socket but one whose intent is on record, whose
// outcome is not, and whose host has that socket in the daemon's entries.
func TestSocketOf(t *testing.T) {
	entry := fmt.Sprintf("[[internal]]\nhost = %q\nports = [80]\nsocket = \"/run/a.sock\"\n", corpName)
	n := &notes{}
	r := newRecording(n, entries(t, entry), make(chan struct{}))
	to := func(id uint64, host string, port uint16) Intent {
		return Intent{What: What{ID: id, Host: host, Port: port, Internal: true}, Socket: "/etc/x"}
	}
	r.intend(nil, to(1, corpName, 80))
	r.intend(nil, to(2, corpName, 81))
	r.intend(nil, to(3, upName, 80))
	n.fail = os.ErrClosed
	r.intend(nil, to(4, corpName, 80))
	for id, want := range map[uint64]string{1: "/run/a.sock", 2: "", 3: "", 4: "", 5: ""} {
		if got := r.socketOf(id); got != want {
			t.Errorf("%d: %q", id, got)
		}
	}
	r.outcome(Outcome{ID: 1})
	if got := r.socketOf(1); got != "" {
		t.Errorf("after its outcome: %q", got)
	}
	r.finish()
}

// TestInternalClients: curl and git reach an internal host by the proxy. Each is skipped where it
// is not installed.
func TestInternalClients(t *testing.T) {
	w := newWorld(t, corpRule, opens(t, corpEntry(`"10.1.0.0/16"`)))
	w.names.Set(corpName, []string{corpIP})
	fetchtest.StartHost(t, corpIP+":80", nil, func(c net.Conn) {
		defer c.Close()
		r := bufio.NewReader(c)
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		body := "by curl"
		if strings.HasSuffix(req.URL.Path, "/info/refs") {
			body = strings.Repeat("a", 40) + "\trefs/heads/main\n"
		}
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n"+
			"Connection: close\r\n\r\n%s",
			len(body), body)
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go w.proxy.serve(t.Context(), conn, w.proxy.scopes[0])
		}
	}()
	for _, c := range [][]string{
		{"by curl", "curl", "-sS", "--max-time", "20", "http://" + corpName + "/x"},
		{"refs/heads/main", "git", "ls-remote", "http://" + corpName + "/repo.git"},
	} {
		if _, err := exec.LookPath(c[1]); err != nil {
			t.Logf("%s is not installed", c[1])
			continue
		}
		cmd := exec.CommandContext(t.Context(), c[1], c[2:]...)
		cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + t.TempDir(), "GIT_CONFIG_NOSYSTEM=1",
			"http_proxy=http://" + l.Addr().String()}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), c[0]) {
			t.Errorf("%s: %s, %v", c[1], out, err)
		}
	}
}

// TestBadInternal: a mistake in an entry is refused with its line and a sentence.
func TestBadInternal(t *testing.T) {
	entry := "queries = false\n\n[[internal]]\nhost = \"a.corp\"\n"
	for text, says := range map[string]string{
		entry + "ports = [443]\n":                                                                      ":3:",
		entry + "addresses = [\"10.0.0.1\"]\n":                                                         "ports are missing",
		entry + "ports = [0]\naddresses = [\"10.0.0.1\"]\n":                                            ":5:1: [[internal]]: port 0",
		entry + "ports = [70000]\naddresses = [\"10.0.0.1\"]\n":                                        ":5:1: internal.ports",
		entry + "port = [443]\naddresses = [\"10.0.0.1\"]\n":                                           `:5:1: unknown field "port"`,
		entry + "ports = [443]\naddresses = \"10.0.0.1\"\n":                                            ":6:1: internal.addresses is a string",
		entry + "ports = [443]\naddresses = [\"corp\"]\n":                                              `:6:1: [[internal]]: "corp" is neither`,
		entry + "ports = [443]\naddresses = [\"10.0.0.1/8\"]\n":                                        "write 10.0.0.0/8",
		entry + "ports = [443]\naddresses = [\"169.254.169.254\"]\n":                                   ":6:1: [[internal]]: 169.254.169.254 holds",
		entry + "ports = [443]\naddresses = [\"169.254.0.0/16\"]\n":                                    "credentials of its machines",
		entry + "ports = [443]\naddresses = [\"100.64.0.0/10\"]\n":                                     "100.100.100.200",
		entry + "ports = [443]\naddresses = [\"168.63.129.16\"]\n":                                     "credentials of its machines",
		entry + "ports = [443]\naddresses = [\"fd00::/8\"]\n":                                          "fd00:ec2::/32",
		entry + "ports = [443]\naddresses = [\"fd20:ce::254\"]\n":                                      "credentials of its machines",
		entry + "ports = [443]\naddresses = [\"0.0.0.0/0\"]\n":                                         "credentials of its machines",
		entry + "ports = [443]\naddresses = [\"::/0\"]\n":                                              "credentials of its machines",
		entry + "ports = [443]\naddresses = [\"127.0.0.0/8\"]\n":                                       "loopback",
		entry + "ports = [443]\naddresses = [\"127.0.0.0/31\"]\n":                                      "loopback",
		entry + "ports = [443]\naddresses = [\"0.0.0.0\"]\n":                                           "this network",
		entry + "ports = [443]\naddresses = [\"169.254.3.3\"]\n":                                       "link-local",
		entry + "ports = [443]\naddresses = [\"::ffff:10.0.0.1\"]\n":                                   "IPv4-mapped",
		entry + "ports = [443]\naddresses = [\"::10.0.0.1\"]\n":                                        "IPv4-compatible",
		entry + "ports = [443]\naddresses = [\"64:ff9b::a00:1\"]\n":                                    "NAT64",
		entry + "ports = [443]\naddresses = [\"fe80::1%eth0\"]\n":                                      "neither an address",
		entry + "ports = [443]\nsocket = \"run/a\"\n":                                                  ":6:1: [[internal]]: socket \"run/a\"",
		entry + "ports = [443]\nsocket = \"/a\"\naddresses = [\"10.0.0.1\"]\n":                         "exclude each other",
		entry + "ports = [443]\nsocket = \"/a\"\nresolve = false\n":                                    "not looked up",
		entry + "ports = [443]\naddresses = [\"10.0.0.0/8\"]\nresolve = false\n":                       "is a range",
		"[[internal]]\nhost = \"*\"\nports = [443]\naddresses = [\"10.0.0.1\"]\n":                      ":2:1: [[internal]]: host \"*\"",
		"[[internal]]\nhost = \"10.0.0.1\"\nports = [443]\naddresses = [\"10.0.0.1\"]\n":               "is an address, not a name",
		"[[internal]]\nhost = \"metadata.google.internal\"\nports = [80]\nsocket = \"/a\"\n":           "metadata service",
		strings.Repeat("[[internal]]\nhost = \"*.corp.example\"\nports = [443]\nsocket = \"/a\"\n", 2): "share hosts at port 443",
	} {
		path := filepath.Join(t.TempDir(), "fetch.toml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadSettings(path); err == nil || !strings.Contains(err.Error(), says) ||
			!strings.HasPrefix(err.Error(), path+":") {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
	good := entry + "ports = [443, 8443]\n" +
		"addresses = [\"10.0.0.0/8\", \"127.0.0.1\", \"::1\", \"fd12::/16\", \"100.65.0.0/16\", " +
		"\"93.184.216.34\"]\n" +
		"[[internal]]\nhost = \"*.x.corp\"\nports = [80]\nsocket = \"/run/gateway.sock\"\n"
	if list := entries(t, good); len(list) != 2 || list[0].Line != 3 || list[0].Host !=
		must(policy.ParseHost("a.corp")) {
		t.Errorf("%+v", list)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
