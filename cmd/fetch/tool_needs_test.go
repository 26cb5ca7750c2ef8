package fetch_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/runners/wasi"
)

// needsPolicy grants more than either bundle asks for.
const needsPolicy = `policy = 1
name = "needs"
include = ["base"]
[tools]
allow = ["core-utils/*", "asks/*", "quiet/*"]
modules = ["**"]
[[mount]]
source = %q
target = "/data/dict"
access = "read"
[[fetch.allow]]
host = "up.example.com"
ports = [443]
[[fetch.allow]]
host = "api.example.com"
ports = [443]
`

// TestNeedsInScripts: a command of a pulled bundle is kept to what its own bundle asks for, in a
// run of its own and in a script, whatever the script's policy grants, and whatever the commands
// beside it may. Both bundles have the very same module.
func TestNeedsInScripts(t *testing.T) {
	if !onTestInternet(t, "8m") {
		return
	}
	w := newFetchWorld(t, cmdtest.Tree("bin/bundles/core-utils/toybox.wasm"))
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	dict, file := t.TempDir(), filepath.Join(w.dir, "needs.toml")
	if err := os.Chmod(dict, 0o755); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{filepath.Join(dict, "words"): "word\n",
		file: fmt.Sprintf(needsPolicy, dict)} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	w.jail(t, "tool", "key", "new", "acme")
	w.jail(t, "tool", "key", "add", "acme", "acme.pub")
	w.install(t, server.URL, "asks",
		map[string]any{"hosts": []string{"up.example.com"}, "mounts": []string{"/data/dict"}})
	w.install(t, server.URL, "quiet", nil)
	flags := []string{"--policy", file, "--no-workspace", "--json"}

	const up, api = "http://up.example.com:443/x", "http://api.example.com:443/x"
	const none = "there is no fetch proxy"
	for _, c := range []struct {
		script    string
		code      int
		out, err  string
		fetched   int64
		deniedFor string
	}{
		{w.guest + " " + up + " " + api, 0, "GET /x", "", 2,
			""}, // a module of nobody's has what the script has
		{"asks " + up, 0, "GET /x", "", 1, ""},
		{"asks " + api, 0, "403", "", 0, "bundle asks"},
		{"quiet " + up, 1, "", none, 0, ""},
		{"x=quiet; $x " + up, 1, "", none, 0, ""},
		{"echo " + up + " | xargs quiet", 123, "", none, 0, ""},
		{"asks " + up + " | quiet " + up, 1, "", none, 1, ""},
		{"for u in " + up + " " + api + "; do (asks $u); quiet $u || true; done", 0, "GET /x", none,
			1, "bundle asks"},
		{"asks -cat /data/dict/words && cat /data/dict/words", 0, "word\nword\n", "", 0, ""},
		{"quiet -cat /data/dict/words", 1, "", "words", 0, ""},
		{"cd /data/dict && asks -cat words && quiet -cat words", 126, "word",
			"bundle does not ask for that mount", 0, ""},
	} {
		t.Run(c.script, func(t *testing.T) {
			r := w.result(t, append(append([]string{"sh"}, flags...), "-c", c.script)...)
			if r.ExitCode != c.code || !strings.Contains(r.Stdout, c.out) || c.out == "" &&
				r.Stdout != "" || !strings.Contains(r.Stderr, c.err) ||
				r.Usage.Requests != c.fetched {
				t.Errorf("%+v", r)
			}
			if denied := fmt.Sprint(r.Denied); c.deniedFor != "" && !strings.Contains(denied,
				c.deniedFor) {
				t.Errorf("denied %s, want %s", denied, c.deniedFor)
			}
		})
	}

	// A run of its own is kept to the same.
	for tool, want := range map[string]fetchResult{"asks": {ExitCode: 0, Stdout: "200"},
		"quiet": {ExitCode: 1, Stderr: none}} {
		r := w.result(t, append(append([]string{"run"}, flags...), "--", tool, up)...)
		if r.ExitCode != want.ExitCode || !strings.Contains(r.Stdout, want.Stdout) ||
			!strings.Contains(r.Stderr, want.Stderr) {
			t.Errorf("run of %s: %+v", tool, r)
		}
		r = w.result(t,
			append(append([]string{"run"}, flags...), "--", tool, "-cat", "/data/dict/words")...)
		if r.ExitCode != want.ExitCode {
			t.Errorf("run of %s on a mount: %+v", tool, r)
		}
	}
	plan := string(w.jail(t, "plan", "--policy", file, "--no-workspace", "--sh",
		"asks "+up+"; quiet; cat"))
	for _, line := range []string{
		"(asks/asks; its bundle keeps it to hosts: up.example.com; mounts: /data/dict)",
		"(quiet/quiet; its bundle keeps it to hosts: none; mounts: none)", "(core-utils/cat)"} {
		if !strings.Contains(plan, line) {
			t.Errorf("the plan does not say %s:\n%s", line, plan)
		}
	}
}

// result is what jail says of a run with --json.
func (w *fetchWorld) result(t *testing.T, args ...string) (r fetchResult) {
	t.Helper()
	out := w.jail(t, args...)
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if r.Error != nil {
		t.Errorf("error: %s", r.Error.Message)
	}
	return r
}

// install publishes a bundle with one command of its name, which is the fetcher, and pulls it.
func (w *fetchWorld) install(t *testing.T, registry, name string, needs any) {
	t.Helper()
	code, err := os.ReadFile(w.guest)
	if err != nil {
		t.Fatal(err)
	}
	info, err := wasi.Check(code, wasi.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	imports := []string{}
	for _, im := range info.Imports {
		imports = append(imports, im.Module+"."+im.Name)
	}
	hash := func(b []byte) string { s := sha256.Sum256(b); return hex.EncodeToString(s[:]) }
	m := map[string]any{
		"format": 1, "name": name, "version": "1.0.0", "about": "for tests",
		"limits": map[string]int{"memory_bytes": 0, "wall_ms": 0},
		"licences": []any{map[string]any{"spdx": "MIT", "file": "LICENSE",
			"sha256": hash([]byte("free")), "size": 4}},
		"built_from": []any{},
		"modules": []any{map[string]any{"file": "m.wasm", "sha256": hash(code),
			"size": len(code), "layout": "preopens", "imports": imports}},
		"commands": []any{map[string]any{"name": name, "module": "m.wasm", "about": "Fetches."}},
	}
	if needs != nil {
		m["needs"] = needs
	}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(w.dir, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string][]byte{"m.wasm": code, "LICENSE": []byte("free"),
		"bundle.json": text} {
		if err := os.WriteFile(filepath.Join(dir, file), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	w.jail(t, "tool", "sign", "--key", "acme.key", dir)
	pinned := strings.TrimSpace(string(w.jail(t, "tool", "push", "--plain-http", dir,
		strings.TrimPrefix(registry, "http://")+"/acme/"+name)))
	// of streams
	args := []string{"tool", "pull", "--plain-http", "--accept", "sha256:" + hash(text), pinned}
	if out := w.jail(t, args...); !strings.Contains(string(out), "installed "+name) {
		t.Fatalf("pull of %s: %s", name, out)
	}
}
