package agent_test

import (
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/supervisor/agents/jailed"
	"github.com/jail-sandbox/jail/supervisor/agents/manifest"
	"github.com/jail-sandbox/jail/supervisor/client"
	"github.com/jail-sandbox/jail/supervisor/models"
)

// TestModel: a model is asked by a jail with the credential that only the fetch proxy has; the answer
// is streamed as it comes, and an error is told by its status.
func TestModel(t *testing.T) {
	h := cmdtest.New(t)
	const key = "a-key-that-nobody-else-has"
	first := make(chan struct{})
	asked := make(chan *http.Request, 10)
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		asked <- r
		if string(body) != `{"a":1}` {
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprint(w, "slower")
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: 1\n\n")
		w.(http.Flusher).Flush()
		select {
		case <-first:
		case <-time.After(bound):
			t.Error("the first part has not come before the second was sent")
		}
		fmt.Fprint(w, "data: 2\n\n")
	}))
	defer srv.Close()
	secret, roots := filepath.Join(h.Root, "secret"), filepath.Join(h.Root, "roots.pem")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: srv.Certificate().Raw})
	port := srv.Listener.Addr().(*net.TCPAddr).Port
	settings := fmt.Sprintf("roots = %q\n[[credential]]\nname = \"model\"\nkind = \"bearer\"\nfile = %q\n"+
		"[[internal]]\nhost = \"model.example.com\"\naddresses = [\"127.0.0.1\"]\nports = [%d]\n"+
		"resolve = false\n", roots, secret, port)
	for file, text := range map[string]string{secret: key, roots: string(certificate),
		filepath.Join(h.State, "fetch.toml"): settings} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h.Daemon()
	j := jailed.New(client.Options{State: h.State, Socket: filepath.Join(h.State, "jail.sock"),
		Jaild: filepath.Join(h.Bin, "jaild")})
	role := manifest.Role{Form: "chat", URL: fmt.Sprintf("https://model.example.com:%d", port),
		Model: "m", Credential: "model"}
	asker := models.Jail{Sender: j.Sender()}
	res, err := asker.Ask(t.Context(), role, "agent:root:a/1/1", []byte(`{"a":1}`))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	part := make([]byte, 9)
	if _, err := io.ReadFull(res.Body, part); err != nil || res.Status != 200 {
		t.Fatalf("status %d, %v", res.Status, err)
	}
	close(first)
	rest, err := io.ReadAll(res.Body)
	if text := string(part) + string(rest); err != nil || text != "data: 1\n\ndata: 2\n\n" {
		t.Errorf("the stream is %q, %v", text, err)
	}
	r := <-asked
	if r.URL.Path != "/v1/chat/completions" || r.Header.Get("Authorization") != "Bearer "+key ||
		r.Header.Get("Idempotency-Key") != "agent:root:a/1/1" {
		t.Errorf("asked %s with %v", r.URL, r.Header)
	}
	busy, err := asker.Ask(t.Context(), role, "", []byte(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Body.Close()
	if text, err := io.ReadAll(busy.Body); busy.Status != 429 || string(text) != "slower" {
		t.Errorf("status %d, %q, %v", busy.Status, text, err)
	}
	// The key is on no record.
	if o := h.Jail("audit", "query", "--type", "fetch", "--json"); strings.Contains(o.Out, key) ||
		!strings.Contains(o.Out, "model.example.com") {
		t.Errorf("the records of the fetches are %s", o.Out)
	}
}
