package tool_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// pullPolicy grants the tools of the bundle that the test makes.
const pullPolicy = `policy = 1
name = "words"
about = "Run the tools of a bundle that was pulled."
include = ["base"]
[workspace]
access = "shadow"
[tools]
allow = ["words/*"]
`

// A pullWorld is a host, a registry, and a publisher with a key.
type pullWorld struct {
	*cmdtest.Host
	repository string
	dir        string // of the bundle
}

func newPullWorld(t *testing.T) *pullWorld {
	h := cmdtest.New(t)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	w := &pullWorld{h, strings.TrimPrefix(server.URL, "http://") + "/acme/words",
		filepath.Join(h.Root, "words")}
	if err := os.WriteFile(filepath.Join(h.Root, "words.toml"), []byte(pullPolicy),
		0o644); err != nil {
		t.Fatal(err)
	}
	w.Wants(w.Jail("tool", "key", "new", "acme"), 0, "")
	return w
}

// publish makes a version of the bundle, signs it, sends it to the registry and returns what it is
// pinned by.
func (w *pullWorld) publish(version string, hosts ...string) string {
	w.T.Helper()
	code, err := os.ReadFile(w.Probe)
	if err != nil {
		w.T.Fatal(err)
	}
	hash := func(b []byte) string { s := sha256.Sum256(b); return hex.EncodeToString(s[:]) }
	imports := []string{}
	for _, name := range []string{"args_get", "args_sizes_get", "clock_time_get", "environ_get",
		"environ_sizes_get", "fd_close", "fd_fdstat_get", "fd_fdstat_set_flags", "fd_filestat_get",
		"fd_filestat_set_size", "fd_filestat_set_times", "fd_pread", "fd_prestat_dir_name",
		"fd_prestat_get", "fd_pwrite", "fd_read", "fd_readdir", "fd_seek", "fd_sync", "fd_write",
		"path_create_directory", "path_filestat_get",
		"path_filestat_set_times", "path_link", "path_open", "path_readlink",
		"path_remove_directory", "path_rename", "path_symlink", "path_unlink_file", "poll_oneoff",
		"proc_exit",
		"random_get", "sched_yield"} {
		imports = append(imports, "wasi_snapshot_preview1."+name)
	}
	m := map[string]any{
		"format": 1, "name": "words", "version": version, "about": "for tests",
		"limits": map[string]int{"memory_bytes": 0, "wall_ms": 0},
		"licences": []any{map[string]any{"spdx": "MIT", "file": "LICENSE",
			"sha256": hash([]byte("free")), "size": 4}},
		"built_from": []any{},
		"modules": []any{map[string]any{"file": "probe.wasm", "sha256": hash(code),
			"size": len(code), "layout": "preopens", "imports": imports}},
		"commands": []any{map[string]any{"name": "probe-words", "module": "probe.wasm",
			"about": "Probes."}},
	}
	if len(hosts) > 0 {
		m["needs"] = map[string]any{"hosts": hosts, "mounts": []string{}}
	}
	text, err := json.Marshal(m)
	if err != nil {
		w.T.Fatal(err)
	}
	if err := errors.Join(os.RemoveAll(w.dir), os.Mkdir(w.dir, 0o755)); err != nil {
		w.T.Fatal(err)
	}
	for name, content := range map[string][]byte{"probe.wasm": code, "LICENSE": []byte("free"),
		"bundle.json": text} {
		if err := os.WriteFile(filepath.Join(w.dir, name), content, 0o644); err != nil {
			w.T.Fatal(err)
		}
	}
	w.Wants(w.Jail("tool", "sign", "--key", "acme.key", w.dir), 0, "")
	o := w.Jail("tool", "push", "--plain-http", w.dir, w.repository)
	w.Wants(o, 0, "")
	_, digest, _ := strings.Cut(strings.TrimSpace(o.Out), "@")
	return digest
}

func (w *pullWorld) pull(args ...string) cmdtest.Outcome {
	w.T.Helper()
	return w.Jail(append([]string{"tool", "pull", "--plain-http"}, args...)...)
}

func (w *pullWorld) runs() cmdtest.Outcome {
	w.T.Helper()
	return w.Jail("run", "--policy", filepath.Join(w.Root, "words.toml"), "--no-workspace", "--",
		"probe-words")
}

// doctor wants an answer of jail doctor about the bundles; the rest of what it says is the host's.
func (w *pullWorld) doctor(answer, detail string) {
	w.T.Helper()
	var said struct {
		Findings []struct{ Name, Answer, Detail string }
	}
	o := w.Jail("doctor", "--json")
	if err := json.Unmarshal([]byte(o.Out), &said); err != nil {
		w.T.Fatalf("%v: %+v", err, o)
	}
	for _, f := range said.Findings {
		if f.Name == "tool bundles" {
			if f.Answer != answer || !strings.Contains(f.Detail, detail) {
				w.T.Errorf("doctor says %+v, want %s and %q", f, answer, detail)
			}
			return
		}
	}
	w.T.Errorf("doctor says nothing of bundles: %s", o.Out)
}

// What an operator does with a bundle of somebody else, from the first pull to the last, and what
// is refused on the way.
func TestPull(t *testing.T) {
	w := newPullWorld(t)
	first := w.publish("1.2.0")
	pinned := w.repository + "@" + first

	w.Wants(w.pull(w.repository+":1.2.0"), 2, "a digest is wanted")
	w.Wants(w.pull(pinned), 126, "not signed by enough known keys")
	w.Wants(w.runs(), 127, "not installed")
	w.Wants(w.Jail("tool", "key", "add", "acme", "acme.pub"), 0, "")
	o := w.pull(pinned)
	w.Wants(o, 0, "")
	if !strings.HasPrefix(o.Out, "installed words 1.2.0 of acme: 1 command, "+first) {
		t.Errorf("pull says %q", o.Out)
	}
	w.Wants(w.runs(), 0, "")
	w.Wants(w.Jail("tool", "verify", "words"), 0, "")
	w.doctor("yes", "of them pulled")
	if o := w.Jail("tool", "show", "words"); !strings.Contains(o.Out, "publisher") ||
		!strings.Contains(o.Out, pinned) {
		t.Errorf("show says %s", o.Out)
	}

	// An update that asks for more, and one that is older.
	second := w.repository + "@" + w.publish("1.3.0", "example.com")
	o = w.pull(second)
	w.Wants(o, 126, "asks for more than was accepted: host example.com")
	_, manifest, _ := strings.Cut(o.Err, "manifest ")
	manifest, _, _ = strings.Cut(manifest, ")")
	w.Wants(w.pull("--accept", manifest, second), 0, "")
	w.Wants(w.runs(), 0, "")
	w.Wants(w.pull(pinned), 126, "older than what was seen")

	// Without a network, and fetched by somebody who may not install.
	stick := filepath.Join(w.Root, "stick")
	if err := errors.Join(os.Mkdir(stick, 0o777), os.Chmod(stick, 0o777)); err != nil {
		t.Fatal(err)
	}
	asOther := func(args ...string) cmdtest.Outcome {
		cmd := w.Command(append([]string{"tool", "pull", "--plain-http"}, args...)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534,
			Gid: 65534}}
		return w.Run(cmd)
	}
	w.Wants(asOther(second), 126, "only root may install")
	w.Wants(asOther("--output", stick+"/words", second), 0, "")
	_, digest, _ := strings.Cut(second, "@")
	w.Wants(asOther("oci-layout:"+stick+"/words@"+digest), 126, "")
	w.Wants(w.pull("oci-layout:"+stick+"/words"), 2, "by its digest only")
	w.Wants(w.pull("oci-layout:"+stick+"/words@"+digest), 0, "")

	// What lies on the disk is verified at each use; trust that is withdrawn is withdrawn at once.
	modules, err := filepath.Glob(filepath.Join(w.State, "tools/store/*/words/probe.wasm"))
	if err != nil || len(modules) == 0 {
		t.Fatal(modules, err)
	}
	for _, m := range modules {
		if err := os.Truncate(m, 100); err != nil {
			t.Fatal(err)
		}
	}
	w.Wants(w.runs(), 125, "not what the manifest names")
	w.Wants(w.Jail("tool", "verify", "words"), 1, "")
	w.doctor("no", "not what the manifest names")
	w.Wants(w.pull(second), 0, "")
	w.Wants(w.runs(), 0, "")
	w.Wants(w.Jail("tool", "key", "remove", "acme"), 0, "")
	w.Wants(w.runs(), 127, "not signed by enough known keys")
	w.Wants(w.Jail("tool", "remove", "words"), 0, "")
	w.Wants(w.Jail("tool", "remove", "words"), 127, "not installed")

	refused := 0
	for _, r := range w.Records("", "tool.installed") {
		if r.Error != "" {
			refused++
		}
	}
	if all := len(w.Records("", "tool.installed")); all-refused != 4 || refused != 2 {
		t.Errorf("%d installations on record, %d of them refused; want 4 and 2", all-refused,
			refused)
	}
	if keys, removed := w.Records("", "tool.keys"), w.Records("", "tool.removed"); len(keys) != 2 ||
		len(removed) != 1 {
		t.Errorf("%d changes of keys and %d removals on record, want 2 and 1", len(keys),
			len(removed))
	}
}
