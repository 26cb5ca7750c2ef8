package fetch_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/jail/jailtest/built"
)

// TestFetchGuests fetches in every way that a guest has, through the real proxy, on an internet of
// the test's own: the command of the bundle, plainly and in a script, and the libraries for Go, C,
// Rust and Python.
func TestFetchGuests(t *testing.T) {
	if !onTestInternet(t, "9m") {
		return
	}
	w := newFetchWorld(t, pythonModule())
	t.Run("command", w.command)
	t.Run("command refused", w.commandRefused)
	t.Run("script", w.script)
	t.Run("Go", w.goGuest)
	t.Run("C", w.cGuest)
	t.Run("Rust", w.rustGuest)
	t.Run("Python", w.pythonGuest)
}

// said runs jail and returns what there is to see of it.
func (w *fetchWorld) said(args ...string) (code int, stdout, stderr string) {
	cmd := exec.Command(filepath.Join(w.bin, "jail"), args...)
	cmd.Dir = w.dir
	cmd.Env = []string{"PATH=/usr/bin:/bin", "JAIL_STATE=" + w.state}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run() // the code says it
	if showsCanary(out.Bytes()) || showsCanary(errs.Bytes()) {
		w.leaked = append(w.leaked, strings.Join(args, " "))
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// needCommand skips where the bundle was built without a compiler for C.
func (w *fetchWorld) needCommand(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(w.bin, "bundles", "core-utils", "fetch.wasm")); err != nil {
		t.Skip("the bundle here was built from Go sources and has no fetch")
	}
}

var narrowed = []string{"--profile", "fetch", "--fetch", "up.example.com"}

func (w *fetchWorld) command(t *testing.T) {
	w.needCommand(t)
	w.up.Took()
	for _, c := range []struct {
		args   []string
		code   int
		stdout string
	}{
		{[]string{"https://up.example.com/a/%41?x=1"}, 0, `GET /a/A?x=1 auth=""`},
		{[]string{"-s", "-o", "out", "-w", "%{http_code} %{size_download}",
			"https://up.example.com/"}, 0, "200 13"},
		{[]string{"-sI", "https://up.example.com/"}, 0,
			"HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n"},
		{[]string{"-s", "https://no-such.example.com/"}, 7, ""},
	} {
		code, stdout, stderr := w.said(append(append([]string{"run"}, narrowed...),
			append([]string{"--", "fetch"}, c.args...)...)...)
		if code != c.code || stdout != c.stdout {
			t.Errorf("fetch %q: %d %q %q", c.args, code, stdout, stderr)
		}
	}
	if got, _, _ := w.up.Took(); len(got) == 0 {
		t.Error("the host was sent nothing")
	}
	for url, want := range map[string]int{"https://gone.example.com/": 6,
		"https://up.example.com:444/": 7} {
		if code, _, stderr := w.said("run", "--profile", "fetch", "--", "fetch",
			url); code != want || !strings.Contains(stderr, "fetch: (") {
			t.Errorf("%s: %d %s", url, code, stderr)
		}
	}
}

func (w *fetchWorld) commandRefused(t *testing.T) {
	w.needCommand(t)
	w.up.Took()
	code, _, stderr := w.said("run", "--", "fetch", "https://up.example.com/")
	if code != 126 || !strings.Contains(stderr, "the policy grants no fetch") ||
		!strings.Contains(stderr, "--profile fetch --fetch HOST") {
		t.Errorf("without a fetch: %d %s", code, stderr)
	}
	code, _, stderr = w.said(append(append([]string{"run"}, narrowed...), "--", "fetch",
		"https://api.example.com/")...)
	if code != 7 || !strings.Contains(stderr, "run again with --fetch api.example.com") {
		t.Errorf("another host: %d %s", code, stderr)
	}
	code, _, stderr = w.said(append(append([]string{"run"}, narrowed...), "--", "fetch", "-d", "x",
		"https://up.example.com/")...)
	if code != 7 || !strings.Contains(stderr, "POST") {
		t.Errorf("another method: %d %s", code, stderr)
	}
	if got, _, n := w.up.Took(); n > 0 {
		t.Errorf("the host was sent %q", got)
	}
}

func (w *fetchWorld) script(t *testing.T) {
	w.needCommand(t)
	text := `fetch -s https://up.example.com/x | tr a-z A-Z; echo; fetch -sf https://api.example.com/ || echo "code $?"; fetch -s -o f https://up.example.com/f && cat f`
	code, stdout, stderr := w.said(append(append([]string{"sh"}, narrowed...), "-c", text)...)
	if want := "GET /X AUTH=\"\"\ncode 7\nGET /f auth=\"\""; code != 0 || stdout != want {
		t.Errorf("%d %q %s", code, stdout, stderr)
	}
	code, stdout, stderr = w.said("sh", "-c",
		"fetch https://up.example.com/ || echo \"code $?\"; echo on")
	if code != 0 || stdout != "code 126\non\n" || !strings.Contains(stderr,
		"the policy grants no fetch") {
		t.Errorf("without a fetch: %d %q %s", code, stdout, stderr)
	}
}

// example runs a guest that prints the status and the body of each URL.
func (w *fetchWorld) example(t *testing.T, module string) {
	t.Helper()
	w.guest = module
	r := w.run(t, narrowed, "https://up.example.com/a?b=%2F", "http://up.example.com:443/",
		"https://api.example.com/")
	if r.ExitCode != 0 || !strings.HasPrefix(r.Stdout,
		"200 GET /a?b=%2F auth=\"\"\n200 GET / auth=\"\"\n403 {") || r.Usage.Requests != 2 ||
		len(r.Denied) != 1 {
		t.Errorf("%+v", r)
	}
	code, _, stderr := w.said("run", "--", module, "https://up.example.com/")
	if code == 0 || !strings.Contains(stderr, "the policy of this jail grants no fetch") &&
		!strings.Contains(stderr, "the policy grants no fetch") {
		t.Errorf("without a fetch: %d %s", code, stderr)
	}
}

func (w *fetchWorld) goGuest(t *testing.T) {
	module := filepath.Join(t.TempDir(), "get.wasm")
	if err := built.Program(module, []string{"GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0"},
		"-ldflags=-s -w", "./runners/wasi/guestlib/jailhttp/example"); err != nil {
		t.Fatal(err)
	}
	w.example(t, module)
	if r := w.run(t, narrowed,
		"https://up.example.com/?q=ü"); r.Stdout != "200 GET /?q=%C3%BC auth=\"\"\n" {
		t.Errorf("a query as it is meant: %+v", r)
	}
}

func (w *fetchWorld) cGuest(t *testing.T) {
	// What built it builds this.
	w.needCommand(t)
	version, err := exec.Command("sh", cmdtest.Tree("runners/tools/deps.sh"), "--clang").Output()
	if err != nil {
		t.Fatal(err)
	}
	v, library := strings.TrimSpace(string(version)), cmdtest.Tree("runners/wasi/guestlib/c")+"/"
	target := "wasm32-wasip1"
	if v == "16" {
		target = "wasm32-wasi"
	}
	root := t.TempDir()
	for at, to := range map[string]string{"include": "/usr/include/wasm32-wasi",
		"lib/" + target: "/usr/lib/wasm32-wasi"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, at)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, filepath.Join(root, at)); err != nil {
			t.Fatal(err)
		}
	}
	module := filepath.Join(root, "get.wasm")
	script := `set -e
for f in example jail_fetch; do clang-$V --target=$T --sysroot=$R -std=c11 -Wall -Wextra -Werror -Os -c -o $R/$f.o $L/$f.c; done
wasm-ld-$V -m wasm32 --strip-all -L$R/lib/$T $R/lib/$T/crt1-command.o $R/example.o $R/jail_fetch.o -lc /usr/lib/llvm-$V/lib/clang/$V/lib/wasi/libclang_rt.builtins-wasm32.a -o $M`
	build := exec.Command("sh", "-c", script)
	build.Env = append(os.Environ(), "V="+v, "T="+target, "R="+root, "L="+library, "M="+module)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	w.example(t, module)
	shown := string(w.jail(t, "audit", "show", "--log", filepath.Join(w.state, "audit"), "--json"))
	var fetches int
	for line := range strings.Lines(shown) {
		var r struct{ Type, Host string }
		if json.Unmarshal([]byte(line), &r) == nil && r.Type == "fetch" &&
			r.Host == "up.example.com" {
			fetches++
		}
	}
	if fetches < 4 {
		t.Errorf("%d records of fetches", fetches)
	}
}

// pythonGuest is the shipped CPython, which has the library among its own.
func (w *fetchWorld) pythonGuest(t *testing.T) {
	const policy = `policy = 1
name = "python"
include = ["base"]
[workspace]
access = "shadow"
commit = "ask"
[tools]
allow = ["python/*"]
[limits]
wall = "10m" # of a machine that does much else
cpu_time = "5m"
`
	const granted = `[[fetch.allow]]
host = "up.example.com"
ports = [443]
methods = ["GET"]
paths = ["/**"]
`
	for name, text := range map[string]string{"none.toml": policy,
		"python.toml": policy + granted} {
		if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.up.Took()
	const program = `
import http.client, json, urllib.error, urllib.request
print(urllib.request.urlopen("https://up.example.com/a?b=1").read().decode())
print(urllib.request.urlopen("http://up.example.com:443/plain").status)
c = http.client.HTTPSConnection("up.example.com")
c.request("GET", "/client")
print(c.getresponse().read().decode())
for url, data in ("https://api.example.com/", None), ("https://up.example.com/", b"x=1"):
    try:
        urllib.request.urlopen(url, data)
    except urllib.error.HTTPError as e:
        print(e.code, e.headers["X-Jail-Fetch"], json.loads(e.read())["error"]["next"])
`
	python := func(policy, program string) (int, string, string) {
		return w.said("run", "--policy", policy, "--discard", "--", "python3", "-c", program)
	}
	w.guest = "python3"
	r := w.run(t, []string{"--policy", "python.toml", "--discard"}, "-c", program)
	lines := strings.Split(r.Stdout, "\n")
	if r.ExitCode != 0 || r.Usage.Requests != 3 || len(r.Denied) != 2 || len(lines) != 6 ||
		strings.Join(lines[:3], "\n") != "GET /a?b=1 auth=\"\"\n200\nGET /client auth=\"\"" ||
		!strings.HasPrefix(lines[3], "403 fetch_denied ") || !strings.Contains(lines[3],
		"api.example.com") || !strings.HasPrefix(lines[4], "403 fetch_denied ") {
		t.Errorf("%+v", r)
	}
	// The proxy uses a connection again.
	if got, _, n := w.up.Took(); int64(len(got)) != r.Usage.Out || n < 1 || n > 3 {
		t.Errorf("%d bytes in %d connections reached the host, and %d are counted: %q", len(got), n,
			r.Usage.Out, got)
	}
	code, stdout, stderr := python("none.toml",
		"import jail_fetch; jail_fetch.install(); import urllib.request; urllib.request.urlopen('https://up.example.com/')")
	if code != 1 || !strings.Contains(stderr, "the policy of this jail grants no fetch") {
		t.Errorf("without a fetch: %d %q %s", code, stdout, stderr)
	}
	code, stdout, stderr = python("none.toml",
		"import socket; socket.create_connection(('93.184.216.34', 443))")
	if got, _, n := w.up.Took(); code == 0 || n > 0 {
		t.Errorf("a socket of its own: %d %q %s; the host was sent %q", code, stdout, stderr, got)
	}
}

// rustGuest is built by the compiler, the library and the linker of Debian.
func (w *fetchWorld) rustGuest(t *testing.T) {
	const rustc, linker = "/usr/bin/rustc", "/usr/lib/llvm-14/bin/lld"
	cmdtest.Have(t, rustc, linker, "/usr/lib/rustlib/wasm32-wasi")
	dir, library := t.TempDir(), cmdtest.Tree("runners/wasi/guestlib/rust")+"/"
	if err := os.Symlink(linker, filepath.Join(dir, "rust-lld")); err != nil {
		t.Fatal(err)
	}
	module, rlib := filepath.Join(dir, "get.wasm"), filepath.Join(dir, "libjail_fetch.rlib")
	for _, args := range [][]string{
		{"--crate-type", "rlib", "--crate-name", "jail_fetch", "-o", rlib, library + "src/lib.rs"},
		{"--crate-name", "get", "--extern", "jail_fetch=" + rlib, "-o", module,
			library + "examples/get.rs"},
	} {
		build := exec.Command(rustc, append([]string{"--edition", "2021", "--target", "wasm32-wasi",
			"-O", "-D", "warnings"}, args...)...)
		build.Env = []string{"PATH=" + dir + ":/usr/bin:/bin"}
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	w.example(t, module)
}
