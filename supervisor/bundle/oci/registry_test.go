package oci

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/jail-sandbox/jail/supervisor/bundle"
	"github.com/jail-sandbox/jail/supervisor/bundle/trust"
)

// A hostile registry is a good one behind something that a test puts before it.
type hostile struct {
	t      *testing.T
	server *httptest.Server
	good   http.Handler

	mu sync.Mutex
	// Answers itself, or returns false.
	wrong func(w http.ResponseWriter, r *http.Request) bool
	asked []string
}

func newRegistry(t *testing.T) *hostile {
	t.Helper()
	h := &hostile{t: t, good: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
	h.server = httptest.NewServer(h)
	t.Cleanup(h.server.Close)
	return h
}

func (h *hostile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	h.asked = append(h.asked, r.Method+" "+r.URL.Path)
	wrong := h.wrong
	h.mu.Unlock()
	if wrong == nil || !wrong(w, r) {
		h.good.ServeHTTP(w, r)
	}
}

func (h *hostile) be(wrong func(w http.ResponseWriter, r *http.Request) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wrong, h.asked = wrong, nil
}

// askedFor counts the requests for a digest.
func (h *hostile) askedFor(digest string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, a := range h.asked {
		if strings.HasPrefix(a, "GET ") && strings.HasSuffix(a, digest) {
			n++
		}
	}
	return n
}

func (h *hostile) ref(digest string) Reference {
	h.t.Helper()
	text := strings.TrimPrefix(h.server.URL, "http://") + "/acme/words"
	if digest != "" {
		text += "@" + digest
	}
	ref, err := ParseReference(text)
	if err != nil {
		h.t.Fatal(err)
	}
	return ref
}

func newClient() *Client { return &Client{PlainHTTP: true, Stall: 20 * time.Second} }

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

var moduleBytes = append([]byte("\x00asm\x01\x00\x00\x00"),
	bytes.Repeat([]byte("words "), 50000)...)

// words makes a signed bundle.
func words(t *testing.T) *bundle.Bundle {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "words")
	more := []byte("\x00asm\x01\x00\x00\x00more")
	m := bundle.Manifest{Format: bundle.Format, Name: "words", Version: "1.2.0", About: "for tests",
		Licences: []bundle.Licence{{SPDX: "0BSD", File: "LICENSE", SHA256: hexSum([]byte("free")),
			Size: 4}},
		BuiltFrom: []bundle.Source{{Name: "source", Version: "1", SHA256: hexSum(nil)}},
		Modules: []bundle.ModuleEntry{
			{File: "words.wasm", SHA256: hexSum(moduleBytes), Size: int64(len(moduleBytes)),
				Layout: bundle.LayoutRooted, Imports: []string{}},
			{File: "more.wasm", SHA256: hexSum(more), Size: int64(len(more)),
				Layout: bundle.LayoutRooted, Imports: []string{}}},
		Commands: []bundle.CommandEntry{{Name: "count", Module: "words.wasm", About: "Counts."}}}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	private, _, err := trust.NewKey("acme")
	if err != nil {
		t.Fatal(err)
	}
	signed, err := trust.NewStatement(m.Name, m.Version, text, time.Now(),
		time.Now().Add(time.Hour)).Sign(private, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"words.wasm": moduleBytes, "more.wasm": more,
		"LICENSE": []byte("free"), bundle.ManifestFile: text,
		bundle.SignatureFile: []byte(signed)} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := bundle.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (h *hostile) push(b *bundle.Bundle) string {
	h.t.Helper()
	digest, err := newClient().Push(h.t.Context(), b, h.ref(""))
	if err != nil {
		h.t.Fatal(err)
	}
	return digest
}

func yes([]byte, string) error { return nil }

func readAll(t *testing.T, p *Pulled) []byte {
	t.Helper()
	r := p.Files(t.Context())
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// put stores a document in the registry as a manifest of that media type, under its digest or a
// tag, whatever it says.
func (h *hostile) put(name, mediaType string, v any) (digest string, size int64) {
	h.t.Helper()
	text, ok := v.([]byte)
	if !ok {
		var err error
		if text, err = json.Marshal(v); err != nil {
			h.t.Fatal(err)
		}
	}
	digest = "sha256:" + hexSum(text)
	if name == "" {
		name = digest
	}
	req, err := http.NewRequest("PUT",
		fmt.Sprintf("%s/v2/acme/words/manifests/%s", h.server.URL, name), bytes.NewReader(text))
	if err != nil {
		h.t.Fatal(err)
	}
	req.Header.Set("Content-Type", mediaType)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		h.t.Fatalf("put %s: %s", name, resp.Status)
	}
	return digest, int64(len(text))
}
