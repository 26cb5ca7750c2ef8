package run_test

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// An imageRegistry answers on the loopback. With wrong it sends other bytes for each blob.
type imageRegistry struct {
	*httptest.Server
	wrong atomic.Bool
}

func newImageRegistry(t *testing.T) *imageRegistry {
	t.Helper()
	good := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	r := &imageRegistry{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if !r.wrong.Load() || !strings.Contains(q.URL.Path, "/blobs/") {
			good.ServeHTTP(w, q)
			return
		}
		said := httptest.NewRecorder()
		good.ServeHTTP(said, q)
		body := said.Body.Bytes()
		for i := range body {
			body[i] ^= 1
		}
		w.WriteHeader(said.Code)
		_, _ = w.Write(body)
	}))
	t.Cleanup(r.Close)
	return r
}

// push sends the image of a directory in the OCI image layout to the registry, and returns by what it
// is pulled.
func (r *imageRegistry) push(t *testing.T, dir, digest string) string {
	t.Helper()
	send := func(method, path, mediaType string, body []byte) {
		t.Helper()
		q, err := http.NewRequest(method, r.URL+"/v2/acme/small/"+path, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Content-Type", mediaType)
		answer, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusCreated {
			t.Fatalf("%s %s: %s", method, path, answer.Status)
		}
	}
	blobs := filepath.Join(dir, "blobs/sha256")
	all, err := os.ReadDir(blobs)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		text, err := os.ReadFile(filepath.Join(blobs, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		send("POST", "blobs/uploads/?digest=sha256:"+e.Name(), "application/octet-stream", text)
		if "sha256:"+e.Name() == digest {
			defer send("PUT", "manifests/latest", "application/vnd.oci.image.manifest.v1+json", text)
		}
	}
	return strings.TrimPrefix(r.URL, "http://") + "/acme/small@" + digest
}

// TestImagePulled adds an image of a registry by its digest, and runs it when the registry is gone. What
// has another digest is not taken.
func TestImagePulled(t *testing.T) {
	r, dir := newImageRegistry(t), t.TempDir()
	digest := cmdtest.WriteImage(t, dir, imageConfig, busybox(t)...)
	pinned := r.push(t, dir, digest)
	h := cmdtest.New(t)
	h.Daemon().Admit()
	add := func(reference string) cmdtest.Outcome {
		return h.Jail("image", "add", "--plain-http", "small", reference)
	}
	name, _, _ := strings.Cut(pinned, "@")
	h.Wants(add(name+":latest"), 2, "a digest is wanted")
	h.Wants(add(name+"@sha256:"+strings.Repeat("0", 64)), 127, "the registry has no such thing")
	h.Wants(h.Run(cmdtest.As(h.Command("image", "add", "--plain-http", "small", pinned),
		cmdtest.Stranger)), 126, "only root may add an image")
	r.wrong.Store(true)
	h.Wants(add(pinned), 126, "digest")
	h.Wants(h.Jail("run", "--discard", "--image", "small", "--", "id"), 127, "no image is called")
	r.wrong.Store(false)
	says(t, add(pinned), 0, "added small: "+digest)
	r.Close()
	says(t, h.Jail("run", "--discard", "--image", "small", "--", "id"), 0, "uid=")
	says(t, h.Jail("image", "list"), 0, pinned)
	says(t, h.Jail("audit", "query", "--type", "tool.installed", "--json"), 0, pinned)
	if left, err := os.ReadDir(filepath.Join(h.State, "tools/pull")); err != nil || len(left) != 0 {
		t.Errorf("of what was pulled is left: %v, %v", left, err)
	}
}

const signedImagesOnly = "policy = 1\n[signed]\nimages = true\n"

// TestImageSigned: where the ceiling admits signed images only, an image runs if keys that are in use
// have signed it for its name, and no other does (T-566). Without the rule all run.
func TestImageSigned(t *testing.T) {
	h := cmdtest.NewPolicyHost(t, map[string]string{"ceiling": signedImagesOnly})
	h.Listens()
	dir := t.TempDir()
	cmdtest.WriteImage(t, dir, imageConfig, busybox(t)...)
	image := "oci:" + dir
	runs := func(image string) cmdtest.Outcome {
		return h.Jail("run", "--discard", "--image", image, "--", "id")
	}
	sign := func(publisher, name string) string {
		t.Helper()
		o := h.Jail("image", "sign", "--key", publisher+".key", name, image)
		h.Wants(o, 0, "")
		path := filepath.Join(h.Root, publisher+"-"+name+".sig")
		if err := os.WriteFile(path, []byte(o.Out), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, publisher := range []string{"acme", "evil"} {
		h.Wants(h.Jail("tool", "key", "new", publisher), 0, "")
	}
	h.Wants(h.Jail("tool", "key", "add", "acme", "acme.pub"), 0, "")
	good := sign("acme", "tools")

	const unknown = "not signed by enough known keys"
	h.Wants(runs(image), 126, "the ceiling admits signed images only")
	for _, c := range []struct {
		flags []string
		says  string
	}{
		{nil, "it is not signed"},
		{[]string{"--signature", sign("evil", "tools")}, unknown},
		{[]string{"--signature", sign("acme", "other")}, "image:other of sha256:"},
	} {
		h.Wants(h.Jail(append(append([]string{"image", "add"}, c.flags...), "tools", image)...), 126, c.says)
		h.Wants(runs("tools"), 127, "no image is called")
	}
	says(t, h.Jail("image", "add", "--signature", good, "tools", image), 0, "added tools: ")
	says(t, h.Jail("image", "list"), 0, "acme")
	says(t, runs("tools"), 0, "uid=")
	// A key that is no longer in use counts for no run.
	h.Wants(h.Jail("tool", "key", "remove", "acme"), 0, "")
	h.Wants(runs("tools"), 126, unknown)
	h.Wants(h.Jail("tool", "key", "add", "acme", "acme.pub"), 0, "")
	says(t, runs("tools"), 0, "uid=")

	h.Write("ceiling", "policy = 1\n")
	says(t, runs(image), 0, "uid=")
	says(t, h.Jail("image", "add", "plain", image), 0, "added plain: ")
	says(t, runs("plain"), 0, "uid=")
	h.Write("ceiling", signedImagesOnly)
	h.Wants(runs("plain"), 126, "it is not signed")
}

// TestImageAtOnce: runs that use an image for the first time at once all run, and so do runs of
// another image beside them.
func TestImageAtOnce(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	var all sync.WaitGroup
	for i := range 2 {
		dir := t.TempDir()
		cmdtest.WriteImage(t, dir, imageConfig, busybox(t, cmdtest.ImageFile{Name: "etc/of-image",
			Text: fmt.Appendf(nil, "image %d", i), Mode: 0o644})...)
		for range 2 {
			cmd := h.Command("run", "--discard", "--no-workspace", "--image", "oci:"+dir)
			all.Go(func() { says(t, h.Run(cmd), 0, fmt.Sprintf("image %d", i)) })
		}
	}
	all.Wait()
}
