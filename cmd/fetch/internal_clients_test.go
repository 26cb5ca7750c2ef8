package fetch_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/supervisor/fetch/fetchtest"
)

// TestInternalClients: real clients install from registries inside the operator's network, at a
// private address that an [[internal]] entry names; without the entry nothing is dialled.
func TestInternalClients(t *testing.T) {
	if !onTestInternet(t, "8m") {
		return
	}
	h := cmdtest.New(t)
	names, ca := fetchtest.StartNames(t), fetchtest.NewAuthority(t)
	names.Set("up.example.com", []string{"10.1.2.3"})
	up := fetchtest.StartHost(t, "10.1.2.3:443",
		ca.Config(t, time.Now().Add(time.Hour), "up.example.com"),
		fetchtest.HTTP(t, newPackages(t, newRegistries(t, h.Root)).ServeHTTP))
	fetchSettings(h, names, ca)
	w := &nativeWorld{h: h, up: up}
	if err := os.WriteFile(filepath.Join(h.Root, "net.toml"), fmt.Appendf(nil, nativeNet, ""),
		0o600); err != nil {
		t.Fatal(err)
	}
	if r := w.net(t, "net", "--", "git", "ls-remote",
		"https://up.example.com/granted/git/repo.git"); r.ExitCode == 0 {
		t.Errorf("a private address without an entry: %+v", r)
	}
	if _, _, n := up.Took(); n != 0 {
		t.Errorf("%d connections to a private address without an entry", n)
	}
	settings := filepath.Join(h.State, "fetch.toml")
	text, err := os.ReadFile(settings)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(settings, append(text, "[[internal]]\nhost = \"up.example.com\"\n"+
		"ports = [443]\naddresses = [\"10.1.0.0/16\"]\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	const granted = "https://up.example.com/granted"
	for _, c := range []struct {
		name, program string
		flags         []string
		script, shows string
	}{
		{"git", "/usr/bin/git", nil, "git clone -q " + granted + "/git/repo.git /tmp/c && " +
			"cat /tmp/c/cloned", "over https"},
		{"pip", "/usr/bin/pip3", []string{"PIP_NO_INDEX=0", "PIP_DISABLE_PIP_VERSION_CHECK=1",
			"PIP_INDEX_URL=" + granted + "/simple"}, "/usr/bin/python3 -m pip install -q " +
			"--no-deps --target /tmp/d demo && ls /tmp/d/demo", "__init__.py"},
		{"npm", "/usr/bin/npm", []string{"npm_config_offline=false", "npm_config_audit=false",
			"npm_config_registry=" + granted + "/packages"}, "mkdir /tmp/p && cd /tmp/p && " +
			"npm install demo && node -e 'console.log(require(\"demo\"))'", "demo of npm"},
		{"go", "", []string{"GOPROXY=" + granted + "/go", "GONOSUMDB=*", "GOFLAGS=-mod=mod"},
			"mkdir /tmp/m && cd /tmp/m && go mod init x && " +
				"go mod download -json m.example.com/m@v1.0.0", `"Version": "v1.0.0"`},
		{"apt", "/usr/bin/apt-get", nil, aptScript, "demo of apt"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.program != "" {
				cmdtest.Have(t, c.program)
			}
			up.Took()
			var flags []string
			for _, v := range c.flags {
				flags = append(flags, "--env", v)
			}
			r := w.net(t, "net", append(flags, "--", "sh", "-c", c.script)...)
			if r.ExitCode != 0 || !strings.Contains(r.Stdout, c.shows) || r.Usage.Requests == 0 {
				t.Errorf("%+v", r)
			}
			if got, _, _ := up.Took(); len(got) == 0 {
				t.Error("the internal host was not reached")
			}
		})
	}
	if records := h.Jail("audit", "query", "--type", "fetch", "--json").Out; !strings.Contains(
		records, `"internal":true`) {
		t.Errorf("records: %s", records)
	}
}

// aptScript downloads a package with a configuration of its own below /tmp.
const aptScript = `set -e
mkdir -p /tmp/apt/etc/apt/apt.conf.d /tmp/apt/var/lib/apt/lists/partial /tmp/apt/var/lib/dpkg \
	/tmp/apt/var/cache/apt/archives/partial
: >/tmp/apt/var/lib/dpkg/status
echo 'deb [trusted=yes] https://up.example.com/granted/apt stable main' >/tmp/apt/etc/apt/sources.list
cat >/tmp/apt.conf <<END
Dir "/tmp/apt";
Dir::State::status "/tmp/apt/var/lib/dpkg/status";
Dir::Bin::methods "/usr/lib/apt/methods";
APT::Sandbox::User "";
Acquire::https::CaInfo "$SSL_CERT_FILE";
Acquire::Languages "none";
APT::Architecture "amd64";
END
export APT_CONFIG=/tmp/apt.conf
apt-get -q update
cd /tmp
apt-get -q download demo
cat demo_1.0_all.deb
`

// newPackages serves a package of npm's and an apt repository, beside what next serves.
func newPackages(t *testing.T, next http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", next)
	serve := func(path string, body []byte) {
		mux.HandleFunc(path, func(rw http.ResponseWriter, _ *http.Request) {
			// The client may have gone.
			_, _ = rw.Write(body)
		})
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	files := tar.NewWriter(z)
	for _, f := range []struct{ name, text string }{
		{"package/package.json", `{"name":"demo","version":"4.2.0","main":"m.js"}`},
		{"package/m.js", `module.exports = "demo of npm"`},
	} {
		err := files.WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.text)),
			Typeflag: tar.TypeReg})
		if err == nil {
			_, err = files.Write([]byte(f.text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := files.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	sum := sha512.Sum512(packed.Bytes())
	about, err := json.Marshal(map[string]any{"name": "demo",
		"dist-tags": map[string]string{"latest": "4.2.0"}, "versions": map[string]any{
			"4.2.0": map[string]any{"name": "demo", "version": "4.2.0", "dist": map[string]string{
				"tarball":   "https://up.example.com/granted/packages/demo.tgz",
				"integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:])}}}})
	if err != nil {
		t.Fatal(err)
	}
	serve("/granted/packages/demo", about)
	serve("/granted/packages/demo.tgz", packed.Bytes())

	deb := []byte("demo of apt\n")
	list := fmt.Appendf(nil, "Package: demo\nVersion: 1.0\nArchitecture: all\nMaintainer: t <t@t>\n"+
		"Description: d\nFilename: pool/demo.deb\nSize: %d\nSHA256: %x\n\n", len(deb),
		sha256.Sum256(deb))
	serve("/granted/apt/pool/demo.deb", deb)
	const index = "main/binary-amd64/Packages"
	serve("/granted/apt/dists/stable/"+index, list)
	serve("/granted/apt/dists/stable/Release", fmt.Appendf(nil, "Suite: stable\n"+
		"Codename: stable\nArchitectures: amd64\nComponents: main\n"+
		"Date: Mon, 01 Jan 2024 00:00:00 UTC\nSHA256:\n %x %d %s\n", sha256.Sum256(list),
		len(list), index))
	return mux
}

// TestInternalSocketClients: programs of the host reach a service that listens at a Unix socket of
// the host, by the proxy alone: an [[internal]] entry gives the socket a name. The socket itself is
// not in the jail, and without the entry nothing is dialled.
func TestInternalSocketClients(t *testing.T) {
	if !onTestInternet(t, "8m") {
		return
	}
	cmdtest.Have(t, "/usr/bin/curl", "/usr/bin/python3")
	h := cmdtest.New(t)
	names, ca := fetchtest.StartNames(t), fetchtest.NewAuthority(t)
	fetchSettings(h, names, ca)
	socket := filepath.Join(h.Root, "gateway.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		asked.Add(1)
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s says %s\n", r.Method, r.Host, r.URL.Path, body)
	})}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	settings := filepath.Join(h.State, "fetch.toml")
	without, err := os.ReadFile(settings)
	if err != nil {
		t.Fatal(err)
	}
	with := fmt.Appendf(nil, "%s[[internal]]\nhost = \"gateway.example.com\"\nports = [80]\n"+
		"socket = %q\n", without, socket)
	policy := strings.Replace(fmt.Sprintf(nativeNet, ""), "[443]", "[80]", 1)
	if err := os.WriteFile(filepath.Join(h.Root, "gateway.toml"), []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	w := &nativeWorld{h: h}
	const url = "http://gateway.example.com/granted/v1"
	for _, c := range []struct {
		name     string
		settings []byte
		script   string
		shows    string
		asked    int64
	}{
		{"curl", with, "curl -sS -d hello " + url,
			"POST gateway.example.com /granted/v1 says hello\n", 1},
		{"python", with, `python3 -c 'import urllib.request as u; print(u.urlopen(u.Request("` + url +
			`", data=b"hello")).read().decode())'`,
			"POST gateway.example.com /granted/v1 says hello\n", 1},
		{"another path", with, "curl -sS http://gateway.example.com/elsewhere", "fetch_denied", 0},
		{"the socket itself", with, "curl -sS --unix-socket " + socket + " http://x/ 2>&1",
			"curl: (7)", 0},
		{"without the entry", without, "curl -sS " + url, "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := os.WriteFile(settings, c.settings, 0o600); err != nil {
				t.Fatal(err)
			}
			asked.Store(0)
			r := w.net(t, "gateway", "--", "sh", "-c", c.script)
			if !strings.Contains(r.Stdout, c.shows) || asked.Load() != c.asked {
				t.Errorf("%+v; the service was asked %d times", r, asked.Load())
			}
		})
	}
}
