package fetch_test

import (
	"archive/zip"
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/jail/jailtest/kernel"
	"github.com/jail-sandbox/jail/supervisor/fetch/fetchtest"
)

// TestNativeFetch: programs of the host reach what their policy grants, by the proxy on their
// jail's own loopback, with the settings that they have from their surroundings alone; and nothing
// else, by no other way.
func TestNativeFetch(t *testing.T) {
	if !onTestInternet(t, "8m") {
		return
	}
	w := newNativeWorld(t)
	t.Run("clients", w.clients)
	t.Run("refused", w.refused)
	t.Run("opaque", w.opaque)
	t.Run("layers", w.layers)
}

const nativeNet = `policy = 1
name = "net"
include = ["build"]
[[fetch.allow]]
host = "*.example.com"
ports = [443]
methods = ["GET", "HEAD", "POST"]
paths = ["/granted/**"]
%s
`

type nativeWorld struct {
	h  *cmdtest.Host
	up *fetchtest.Host
}

func newNativeWorld(t *testing.T) *nativeWorld {
	h := cmdtest.New(t)
	names, ca := fetchtest.StartNames(t), fetchtest.NewAuthority(t)
	names.Set("up.example.com", []string{"93.184.216.34"})
	names.Set("other.example.org", []string{"93.184.216.35"})
	w := &nativeWorld{h: h}
	serve := fetchtest.HTTP(t, newRegistries(t, h.Root).ServeHTTP)
	w.up = fetchtest.StartHost(t, "93.184.216.34:443",
		ca.Config(t, time.Now().Add(time.Hour), "up.example.com"), serve)
	fetchSettings(h, names, ca)
	for path, text := range map[string]string{
		filepath.Join(h.Root, "net.toml"): fmt.Sprintf(nativeNet, ""),
		filepath.Join(h.Root, "narrow.toml"): fmt.Sprintf(nativeNet,
			"[without.syscalls]\ngroups = [\"loopback\"]"),
		filepath.Join(h.Root,
			"opaque.toml"): strings.NewReplacer(`methods = ["GET", "HEAD", "POST"]`,
			"methods = [\"*\"]\ntls = \"opaque\"", `"/granted/**"`,
			`"/**"`).Replace(fmt.Sprintf(nativeNet, "")),
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// newRegistries serves a page, a git repository, a package index of Python's, one of npm's, and a
// Go module proxy, each below a directory of its own.
func newRegistries(t *testing.T, root string) http.Handler {
	mux := http.NewServeMux()
	page := func(path, kind, text string) {
		mux.HandleFunc(path, func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", kind)
			// The client may have gone.
			_, _ = rw.Write([]byte(text))
		})
	}
	page("/granted/hello", "text/plain", "hello from outside\n")
	page("/elsewhere", "text/plain", "no policy grants this\n")

	repo := filepath.Join(root, "repo.git")
	for _, args := range [][]string{{"init", "-q", "--bare", repo},
		{"init", "-q", filepath.Join(root, "src")}} {
		gitRun(t, root, args...)
	}
	src := filepath.Join(root, "src")
	if err := os.WriteFile(filepath.Join(src, "cloned"), []byte("over https\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	gitRun(t, src, "add", "cloned")
	gitRun(t, src, "-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "-qm", "one")
	gitRun(t, src, "push", "-q", repo, "HEAD:refs/heads/master")
	path := strings.TrimSpace(gitRun(t, root, "--exec-path")) + "/git-http-backend"
	mux.Handle("/granted/git/", &cgi.Handler{Path: path, Root: "/granted/git",
		Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1",
			"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"}})

	wheel := archive(t, map[string]string{"demo/__init__.py": "x = 1\n",
		"demo-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n",
		"demo-1.0.dist-info/WHEEL":    "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n", "demo-1.0.dist-info/RECORD": ""})
	page("/granted/simple/demo/", "text/html",
		fmt.Sprintf(
			`<!DOCTYPE html><html><body><a href="/granted/wheels/demo-1.0-py3-none-any.whl#sha256=%x">demo-1.0-py3-none-any.whl</a></body></html>`, sha256.Sum256(wheel)))
	page("/granted/wheels/demo-1.0-py3-none-any.whl", "application/zip", string(wheel))

	sum1, sum512 := sha1.Sum(nil), sha512.Sum512(nil)
	about, err := json.Marshal(map[string]any{"_id": "demo", "name": "demo",
		"dist-tags": map[string]string{"latest": "4.2.0"}, "versions": map[string]any{
			"4.2.0": map[string]any{"name": "demo", "version": "4.2.0",
				"dist": map[string]string{"shasum": fmt.Sprintf("%x", sum1),
					"tarball":   "https://up.example.com/granted/npm/demo.tgz",
					"integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum512[:])}}}})
	if err != nil {
		t.Fatal(err)
	}
	page("/granted/npm/demo", "application/json", string(about))

	const mod, base = "module m.example.com/m\n\ngo 1.20\n", "/granted/go/m.example.com/m/@v/"
	page(base+"list", "text/plain", "v1.0.0\n")
	page(base+"v1.0.0.info", "application/json",
		`{"Version":"v1.0.0","Time":"2024-01-01T00:00:00Z"}`)
	page(base+"v1.0.0.mod", "text/plain", mod)
	page(base+"v1.0.0.zip", "application/zip",
		string(archive(t, map[string]string{"m.example.com/m@v1.0.0/go.mod": mod,
			"m.example.com/m@v1.0.0/m.go": "package m\n"})))
	return mux
}

func gitRun(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, said.String())
	}
	return out.String()
}

func archive(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, text := range files {
		f, err := z.Create(name)
		if err == nil {
			_, err = f.Write([]byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// net runs a program with a policy of the world's.
func (w *nativeWorld) net(t *testing.T, policy string, args ...string) (r fetchResult) {
	t.Helper()
	flags := []string{"run", "--json", "--discard", "--policy",
		filepath.Join(w.h.Root, policy+".toml")}
	o := w.h.Jail(append(flags, args...)...)
	if err := json.Unmarshal([]byte(o.Out), &r); err != nil {
		t.Fatalf("%v: %s%s", err, o.Out, o.Err)
	}
	if r.Error != nil {
		t.Errorf("error: %s", r.Error.Message)
	}
	return r
}

// clients: each uses its own habits; nothing but its surroundings tells it of the proxy.
func (w *nativeWorld) clients(t *testing.T) {
	const up = "https://up.example.com/granted"
	for _, c := range []struct {
		name, program string
		flags         []string
		script, shows string
	}{
		{"curl", "/usr/bin/curl", nil, "curl -sS " + up + "/hello", "hello from outside"},
		{"wget", "/usr/bin/wget", nil, "wget -qO- " + up + "/hello", "hello from outside"},
		{"git", "/usr/bin/git", nil, "git clone -q " + up +
			"/git/repo.git /tmp/c && cat /tmp/c/cloned", "over https"},
		{"python", "/usr/bin/python3", nil,
			"python3 -c 'import urllib.request; print(urllib.request.urlopen(\"" + up +
				"/hello\").read())'", "hello from outside"},
		{"pip", "/usr/bin/pip3", []string{"--env", "PIP_NO_INDEX=0", "--env", "PIP_INDEX_URL=" +
			up + "/simple", "--env", "PIP_DISABLE_PIP_VERSION_CHECK=1"},
			"python3 -m pip download -q --no-deps -d /tmp/d demo && ls /tmp/d",
			"demo-1.0-py3-none-any.whl"},
		{"npm", "/usr/bin/npm", []string{"--env", "npm_config_offline=false", "--env",
			"npm_config_registry=" + up + "/npm"}, "npm view demo version", "4.2.0"},
		{"go", "", []string{"--env", "GOPROXY=" + up + "/go", "--env", "GONOSUMDB=*", "--env",
			"GONOSUMCHECK=1", "--env", "GOFLAGS=-mod=mod"},
			"mkdir /tmp/m && cd /tmp/m && go mod init -q x 2>/dev/null || go mod init x; go mod download -json m.example.com/m@v1.0.0", `"Version": "v1.0.0"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.program != "" {
				cmdtest.Have(t, c.program)
			}
			w.up.Took()
			r := w.net(t, "net", append(c.flags, "--", "sh", "-c", c.script)...)
			if r.ExitCode != 0 || !strings.Contains(r.Stdout, c.shows) || r.Usage.Requests == 0 {
				t.Errorf("%+v", r)
			}
			if got, wrote, _ := w.up.Took(); len(got) == 0 || r.Usage.In == 0 ||
				r.Usage.In > wrote {
				t.Errorf("usage %+v; the host had %d bytes and sent %d", r.Usage, len(got), wrote)
			}
			for _, d := range r.Denied {
				if d.Layer == "fetch" {
					t.Errorf("denied: %+v", d)
				}
			}
		})
	}
}

// refused: what no rule grants is refused by the proxy, in words, there is no way round it, and
// nobody inside can take its place. T-070, T-076.
func (w *nativeWorld) refused(t *testing.T) {
	cmdtest.Have(t, "/usr/bin/curl")
	w.up.Took()
	other := fetchtest.StartHost(t, "93.184.216.35:443", nil, func(net.Conn) {})
	local := fetchtest.StartHost(t, "127.0.0.1:8080", nil, func(net.Conn) {})
	for _, c := range []struct{ name, script, shows string }{
		{"path", "curl -sS https://up.example.com/elsewhere", "fetch_denied"},
		{"method", "curl -sS -X DELETE https://up.example.com/granted/hello", "fetch_denied"},
		{"host", "curl -sS https://other.example.org/granted/hello", "403"},
		{"plain", "curl -sS http://up.example.com/granted/hello", "fetch_denied"},
		{"address", "curl -sS https://93.184.216.34/granted/hello", "400"},
		{"around", "curl -sS -m 5 --noproxy '*' --resolve up.example.com:443:93.184.216.34 https://up.example.com/granted/hello", "curl: ("},
		{"the host's loopback", "curl -sS -m 5 --noproxy '*' http://127.0.0.1:8080/", "curl: ("},
		{"the host's loopback by the proxy", "curl -sS -m 5 --noproxy '' http://127.0.0.1:8080/",
			"addresses cannot be granted"},
		{"trust of others",
			"env -u SSL_CERT_FILE -u CURL_CA_BUNDLE curl -sS --cacert /dev/null https://up.example.com/granted/hello", "curl: ("},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := w.net(t, "net", "--", "sh", "-c", c.script)
			if !strings.Contains(r.Stdout+r.Stderr, c.shows) || strings.Contains(r.Stdout,
				"hello from outside") {
				t.Errorf("%+v", r)
			}
		})
	}
	for name, h := range map[string]*fetchtest.Host{"granted": w.up, "other": other,
		"loopback": local} {
		if got, _, n := h.Took(); n > 0 {
			t.Errorf("the %s host had %d connections: %q", name, n, got)
		}
	}
	// Where the policy does not grant the loopback, all of it but the proxy's port is closed, and
	// nobody else can have that.
	r := w.net(t, "narrow", "--", "python3", "-c", `
import socket, urllib.request
def tries(what, f):
    try: print(what, f() or "yes")
    except OSError as e: print(what, e.errno)
tries("listen", lambda: socket.create_server(("127.0.0.1", 9999)).close())
tries("connect", lambda: socket.create_connection(("127.0.0.1", 9999)).close())
tries("own", lambda: socket.create_server(("127.0.0.1", 3128)).close())
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
tries("reuse", lambda: s.bind(("127.0.0.1", 3128)))
print(urllib.request.urlopen("https://up.example.com/granted/hello").read())
`)
	want := "listen 13\nconnect 13\nown 98\nreuse 98\nb'hello from outside"
	// Whose Landlock knows no ports: the loopback is the jail's own all the same, with nothing on
	// it but the proxy.
	if kernel.OlderThan(t, 6, 7) {
		want = "listen yes\nconnect 111\nown 98\nreuse 98\nb'hello from outside"
	}
	if !strings.HasPrefix(r.Stdout, want) {
		t.Errorf("%+v\nwant %s", r, want)
	}
}

// layers: the proxy is the same inside an outer layer, whose kernel may be another.
func (w *nativeWorld) layers(t *testing.T) {
	cmdtest.Have(t, "/usr/bin/curl")
	for _, l := range cmdtest.OuterLayers(t) {
		w.up.Took()
		r := w.net(t, "net", "--outer", l.Name, "--", "sh", "-c",
			"curl -sS https://up.example.com/granted/hello https://up.example.com/elsewhere")
		if !strings.Contains(r.Stdout, "hello from outside") || !strings.Contains(r.Stdout, "fetch_denied") ||
			r.Usage.Requests == 0 {
			t.Errorf("%s: %+v", l.Name, r)
		}
		if !strings.Contains(fmt.Sprintf("%+v", r.Denied), "Layer:fetch ") {
			t.Errorf("%s: denied %+v, want a refusal of the proxy", l.Name, r.Denied)
		}
		if _, _, n := w.up.Took(); n != 1 {
			t.Errorf("%s: the host had %d connections, want that of the granted page", l.Name, n)
		}
	}
}

// opaque: the tool's own TLS goes through, and the certificate that it sees is the host's.
func (w *nativeWorld) opaque(t *testing.T) {
	cmdtest.Have(t, "/usr/bin/curl")
	r := w.net(t, "opaque", "--", "curl", "-sSv", "https://up.example.com/granted/hello")
	if r.ExitCode != 0 || !strings.Contains(r.Stdout, "hello from outside") ||
		!strings.Contains(r.Stderr, "issuer: CN=test") {
		t.Errorf("%+v", r)
	}
	r = w.net(t, "net", "--", "curl", "-sSv", "https://up.example.com/granted/hello")
	if r.ExitCode != 0 || !strings.Contains(r.Stderr, "issuer: CN=jail fetch proxy of one run") {
		t.Errorf("%+v", r)
	}
}
