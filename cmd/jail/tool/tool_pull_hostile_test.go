package tool_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// A layoutDir is a directory in the OCI image layout that a test may spoil.
type layoutDir struct {
	t   *testing.T
	dir string
}

// blobOf finds the blob that has a text in it.
func (l layoutDir) blobOf(text string) string {
	l.t.Helper()
	blobs, err := filepath.Glob(filepath.Join(l.dir, "blobs/sha256/*"))
	for _, b := range blobs {
		if content, err := os.ReadFile(b); err == nil && strings.Contains(string(content), text) {
			return b
		}
	}
	l.t.Fatalf("no blob has %q in it: %v, %v", text, blobs, err)
	return ""
}

// replace puts what make makes in place of a file.
func replace(path string, make func(path string) error) error {
	return errors.Join(os.RemoveAll(path), make(path))
}

func withText(text string) func(string) error {
	return func(path string) error { return os.WriteFile(path, []byte(text), 0o644) }
}

func aDirectory(path string) error { return os.Mkdir(path, 0o755) }

func aPipe(path string) error { return syscall.Mkfifo(path, 0o644) }

func aLoop(path string) error { return os.Symlink(path, path) }

func nothing(string) error { return nil }

func flipped(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	content[len(content)/2] ^= 1
	return os.WriteFile(path, content, 0o644)
}

// TestPullHostileLayout: whatever is wrong with a directory that a bundle is pulled from is said of
// the directory, as what is refused or not there, and neither of the daemon nor of jail.
func TestPullHostileLayout(t *testing.T) {
	w := newPullWorld(t)
	digest := w.publish("1.2.0")
	whole := filepath.Join(w.Root, "whole")
	w.Wants(w.Jail("tool", "key", "add", "acme", "acme.pub"), 0, "")
	w.Wants(w.pull("--output", whole, w.repository+"@"+digest), 0, "")
	index := func(l layoutDir) string { return filepath.Join(l.dir, "index.json") }
	module := func(l layoutDir) string { return l.blobOf("\x00asm") }
	root := func(l layoutDir) string {
		return filepath.Join(l.dir, "blobs/sha256", strings.TrimPrefix(digest, "sha256:"))
	}
	manifest := func(l layoutDir) string { return l.blobOf(`"built_from"`) }
	put := func(what func(layoutDir) string, make func(string) error) func(layoutDir) error {
		return func(l layoutDir) error { return replace(what(l), make) }
	}
	for name, c := range map[string]struct {
		spoil func(layoutDir) error
		code  int
		words string
	}{
		"a module with another byte": {func(l layoutDir) error { return flipped(module(l)) }, 126,
			"has other content"},
		"a module that is cut": {func(l layoutDir) error {
			return os.Truncate(module(l), 1000)
		}, 126, "has other content"},
		"no module":                {put(module, nothing), 126, "the directory has no blobs/"},
		"a directory for a module": {put(module, aDirectory), 126, "no regular file"},
		"a pipe for a module":      {put(module, aPipe), 126, "no regular file"},
		"a link for a module":      {put(module, aLoop), 126, "symbolic link"},
		"an index with another byte": {func(l layoutDir) error { return flipped(root(l)) }, 126,
			"mismatch"},
		"an index that is no JSON": {put(root, withText("no JSON")), 126, "mismatch|size"},
		"no manifest":              {put(manifest, nothing), 126, "the directory has no blobs/"},
		"a pipe for the manifest":  {put(manifest, aPipe), 126, "no regular file"},
		"a manifest of another byte": {func(l layoutDir) error { return flipped(manifest(l)) }, 126,
			"mismatch"},
		"no index.json":            {put(index, nothing), 126, "has no index.json"},
		"index.json is no JSON":    {put(index, withText("{")), 126, "index.json"},
		"index.json names nothing": {put(index, withText("{}")), 126, "0 things"},
		"a directory index.json":   {put(index, aDirectory), 126, "no regular file"},
		"a pipe index.json":        {put(index, aPipe), 126, "no regular file"},
		"a link index.json":        {put(index, aLoop), 126, "symbolic link"},
		"a long index.json":        {put(index, withText(strings.Repeat(" ", 2<<20))), 126, "longer than"},
		"no directory": {func(l layoutDir) error { return os.RemoveAll(l.dir) }, 127,
			"no such directory"},
		"a file for the directory": {func(l layoutDir) error {
			return replace(l.dir, withText(""))
		}, 127, "is no directory"},
	} {
		l := layoutDir{t: t, dir: filepath.Join(w.Root, "spoilt")}
		if err := os.RemoveAll(l.dir); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("cp", "-a", whole, l.dir).CombinedOutput(); err != nil {
			t.Fatalf("cp: %v: %s", err, out)
		}
		if err := c.spoil(l); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		blames(w.Host, name, w.pull("oci-layout:"+l.dir+"@"+digest), c.code, c.words)
	}
	w.Wants(w.pull("oci-layout:"+whole+"@"+digest), 0, "")
}

// TestPullHostileRegistry: so it is with a registry.
func TestPullHostileRegistry(t *testing.T) {
	w := newPullWorld(t)
	answers := func(code int) string {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter,
			_ *http.Request) {
			rw.WriteHeader(code)
			fmt.Fprintln(rw, "<html>no</html>")
		}))
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.Start()
		t.Cleanup(server.Close)
		return strings.TrimPrefix(server.URL, "http://")
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := silent.Addr().String()
	silent.Close()
	for name, c := range map[string]struct {
		registry string
		code     int
		words    string
	}{
		"nobody listens": {nobody, 125, "connection refused"},
		"a web server":   {answers(200), 126, "not a bundle|no answer of a registry"},
		"not found":      {answers(404), 127, "no such thing"},
		"a login":        {answers(401), 126, "--auth"},
		"forbidden":      {answers(403), 126, "--auth"},
		"broken":         {answers(500), 125, "500"},
	} {
		blames(w.Host, name, w.pull("--output", filepath.Join(w.Root, "out"),
			c.registry+"/acme/words@sha256:"+strings.Repeat("0", 64)), c.code, c.words)
	}
}

// blames wants an error with that code and those words, which blames neither jail nor its daemon.
func blames(h *cmdtest.Host, name string, o cmdtest.Outcome, code int, words string) {
	h.T.Helper()
	if o.Code != code || !regexp.MustCompile(words).MatchString(o.Err) ||
		!cmdtest.Sentence.MatchString(o.Err) || cmdtest.Blame.MatchString(o.Err) {
		h.T.Errorf("%s: exit code %d, want %d and %q: %s", name, o.Code, code, words, o.Err)
	}
}
