package fetch_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/supervisor/fetch/fetchtest"
)

// TestPythonIndex: the shipped profiles for Python read from the package index as they are, without
// a flag or a file of the user's. The index is the test's own, under the real names, with an
// authority that the operator trusts.
func TestPythonIndex(t *testing.T) {
	if !onTestInternet(t, "5m") {
		return
	}
	h := cmdtest.New(t)
	if err := cmdtest.Compiled(h.State, pythonModule()); err != nil {
		t.Fatal(err)
	}
	newIndex(t, h)
	t.Run("wasi", func(t *testing.T) { indexFromModule(t, h) })
	t.Run("native", func(t *testing.T) { indexFromHost(t, h) })
}

// newIndex serves pypi.org and files.pythonhosted.org with one package, and sets the host up to
// reach and to trust them.
func newIndex(t *testing.T, h *cmdtest.Host) {
	wheel := archive(t, map[string]string{"demo/__init__.py": "x = 1\n",
		"demo-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n",
		"demo-1.0.dist-info/WHEEL":    "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n", "demo-1.0.dist-info/RECORD": ""})
	const file = "demo-1.0-py3-none-any.whl"
	page := fmt.Sprintf(
		`<!DOCTYPE html><html><body><a href="https://files.pythonhosted.org/packages/%s#sha256=%x">%[1]s</a></body></html>`, file, sha256.Sum256(wheel))
	names, ca := fetchtest.StartNames(t), fetchtest.NewAuthority(t)
	serve := func(name, address, path, kind, body string) {
		mux := http.NewServeMux()
		mux.HandleFunc("GET "+path, func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", kind)
			// The client may have gone.
			_, _ = io.WriteString(rw, body)
		})
		names.Set(name, []string{address})
		fetchtest.StartHost(t, address+":443", ca.Config(t, time.Now().Add(time.Hour), name),
			fetchtest.HTTP(t, mux.ServeHTTP))
	}
	serve("pypi.org", "93.184.216.34", "/simple/", "text/html", page)
	serve("files.pythonhosted.org", "93.184.216.35", "/packages/"+file, "application/zip",
		string(wheel))
	fetchSettings(h, names, ca)
}

func fetched(h *cmdtest.Host, t *testing.T, args ...string) (r fetchResult) {
	t.Helper()
	o := h.Jail(append([]string{"run", "--json", "--discard"}, args...)...)
	if err := json.Unmarshal([]byte(o.Out), &r); err != nil {
		t.Fatalf("%v: %s%s", err, o.Out, o.Err)
	}
	return r
}

// indexFromModule: the shipped CPython, whose own library has neither TLS nor sockets.
func indexFromModule(t *testing.T, h *cmdtest.Host) {
	for name, c := range map[string]struct {
		program, want string
		requests      int64
	}{
		"urllib": {`
import urllib.request
page = urllib.request.urlopen("https://pypi.org/simple/demo/").read().decode()
url = page.split('"')[1].split("#")[0]
print(len(urllib.request.urlopen(url).read()) > 100)`, "True\n", 2},
		"http.client": {`
from http.client import HTTPSConnection
c = HTTPSConnection("pypi.org")
c.request("GET", "/simple/")
print(c.getresponse().status)`, "200\n", 1},
		"another host": {`
import urllib.error, urllib.request
try: urllib.request.urlopen("https://example.com/")
except urllib.error.HTTPError as e: print(e.code, e.headers["X-Jail-Fetch"])`, "403 fetch_denied\n", 0},
		"no fetch": {`
import sys
print("http.client" in sys.modules)`, "False\n", 0},
	} {
		r := fetched(h, t, "--profile", "python", "--", "python3", "-c", c.program)
		if r.ExitCode != 0 || r.Stdout != c.want || r.Usage.Requests != c.requests {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// indexFromHost: the host's Python, and its pip.
func indexFromHost(t *testing.T, h *cmdtest.Host) {
	cmdtest.Have(t, "/usr/bin/python3", "/usr/lib/python3/dist-packages/pip")
	r := fetched(h, t, "--profile", "python-native", "--", "python3", "-c", `
import urllib.request
print(urllib.request.urlopen("https://pypi.org/simple/").status)`)
	if r.ExitCode != 0 || r.Stdout != "200\n" {
		t.Errorf("urllib: %+v", r)
	}
	r = fetched(h, t, "--profile", "python-native", "--", "python3", "-m", "pip", "download",
		"--no-deps", "-d", "wheels", "demo")
	if r.ExitCode != 0 || !strings.Contains(r.Stdout, "Successfully downloaded demo") ||
		r.Usage.Requests < 2 {
		t.Errorf("pip: %+v", r)
	}
}
