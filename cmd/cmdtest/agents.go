package cmdtest

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
)

// An Agentd is a jail-agentd with the state directory of a host.
type Agentd struct {
	Cmd *exec.Cmd
	*agentapi.Client

	h   *Host
	log *os.File
}

// StartAgentd starts jail-agentd and returns when it answers. It ends with the test.
func StartAgentd(h *Host) *Agentd {
	h.T.Helper()
	log, err := os.Create(filepath.Join(h.State, "agentd.log"))
	if err != nil {
		h.T.Fatal(err)
	}
	a := &Agentd{h: h, log: log, Client: agentapi.NewClient(filepath.Join(h.State, "agentd.sock"))}
	a.Start()
	h.T.Cleanup(func() {
		a.End(syscall.SIGTERM)
		// The one that jail-agentd started. It would end by itself, some seconds later.
		if pid := a.Jaild(); pid != 0 {
			_ = syscall.Kill(pid, syscall.SIGTERM)
		}
		if h.T.Failed() {
			text, err := os.ReadFile(log.Name())
			h.T.Logf("jail-agentd says (%v):\n%s", err, text)
		}
		log.Close()
	})
	return a
}

// Start starts it again after it has ended.
func (a *Agentd) Start() {
	a.h.T.Helper()
	// It may live for longer than a program of the test otherwise does.
	a.Cmd = exec.Command(filepath.Join(a.h.Bin, "jail-agentd"))
	a.Cmd.Dir, a.Cmd.Env, a.Cmd.Stderr = a.h.Work, a.h.Env, a.log
	if err := a.Cmd.Start(); err != nil {
		a.h.T.Fatal(err)
	}
	Eventually(a.h.T, "jail-agentd answers", func() bool {
		_, err := a.List(context.Background())
		return err == nil
	})
}

// End ends it by a signal.
func (a *Agentd) End(s syscall.Signal) {
	// It may have ended.
	_ = a.Cmd.Process.Signal(s)
	_ = a.Cmd.Wait()
}

// Jaild returns the daemon that jail-agentd started, 0 for none.
func (a *Agentd) Jaild() int {
	a.h.T.Helper()
	found, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		a.h.T.Fatal(err)
	}
	for _, file := range found {
		// A process may have ended meanwhile.
		text, _ := os.ReadFile(file)
		args := strings.Split(string(text), "\x00")
		if filepath.Base(args[0]) != "jaild" || !slices.Contains(args, "--until-idle") ||
			!slices.Contains(args, a.h.State) {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(file, "/proc/%d/", &pid); err == nil {
			return pid
		}
	}
	return 0
}

// ModelKey is the key of a ModelHost, which only the fetch proxy may have.
const ModelKey = "a-key-that-nobody-else-has"

// A ModelHost is the host of a language model with the API of chat completions, which answers by how
// many replies there are in a conversation.
type ModelHost struct {
	// Port is where it listens, as model.example.com.
	Port int

	t  *testing.T
	mu sync.Mutex
	// steps are the replies.
	steps []string
	// held is closed when replies that are "hold" may end.
	held  chan struct{}
	asked []map[string]any
	// during is called while the client waits for a reply.
	during func()
}

// StartModel starts a host of a model, which the jails of h reach, and writes the models.toml of h.
// Each step is a reply: a text, lines of NAME {INPUT} for a call each, "hold" for a stream that
// breaks off once Release is called, or "400!TEXT" for an error. A model that is given no tools
// answers "without tools". The host has pages, too, for GET.
func StartModel(h *Host, steps ...string) *ModelHost {
	h.T.Helper()
	m := &ModelHost{t: h.T, steps: steps, held: make(chan struct{})}
	srv := httptest.NewTLSServer(m)
	h.T.Cleanup(srv.Close)
	port := srv.Listener.Addr().(*net.TCPAddr).Port
	m.Port = port
	secret := filepath.Join(h.Root, "secret")
	TrustServer(h, srv)
	AddSettings(h, fmt.Sprintf("[[credential]]\nname = \"model\"\nkind = \"bearer\"\nfile = %q\n[[internal]]\n"+
		"host = \"model.example.com\"\naddresses = [\"127.0.0.1\"]\nports = [%d]\nresolve = false\n",
		secret, port))
	for file, text := range map[string]string{secret: ModelKey,
		filepath.Join(h.State, "models.toml"): fmt.Sprintf("[roles.fast]\nurl = "+
			"\"https://model.example.com:%d\"\nmodel = \"m1\"\ncredential = \"model\"\n", port),
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			h.T.Fatal(err)
		}
	}
	return m
}

// TrustServer lets the fetch proxy of the host trust the certificate of a server.
func TrustServer(h *Host, srv *httptest.Server) {
	h.T.Helper()
	roots := filepath.Join(h.Root, "roots.pem")
	addTo(h, roots, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: srv.Certificate().Raw})))
	if settings := filepath.Join(h.State, "fetch.toml"); !exists(settings) {
		addTo(h, settings, fmt.Sprintf("roots = %q\n", roots))
	}
}

// AddSettings adds to the fetch.toml of a host.
func AddSettings(h *Host, text string) {
	h.T.Helper()
	addTo(h, filepath.Join(h.State, "fetch.toml"), text)
}

func addTo(h *Host, file, text string) {
	h.T.Helper()
	old, err := os.ReadFile(file)
	if err == nil || os.IsNotExist(err) {
		err = os.WriteFile(file, append(old, text...), 0o600)
	}
	if err != nil {
		h.T.Fatal(err)
	}
}

// Set has the host answer with other steps, and forgets what it was asked.
func (m *ModelHost) Set(steps ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.steps, m.asked = steps, nil
}

// During has a function called at each request, while the client waits for the reply.
func (m *ModelHost) During(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.during = f
}

// Release ends the replies that are "hold", and those to come.
func (m *ModelHost) Release() { close(m.held) }

// Asked returns the bodies of the requests.
func (m *ModelHost) Asked() []map[string]any {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.asked)
}

// ServeHTTP is the host.
func (m *ModelHost) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		fmt.Fprint(w, "the page ", r.URL)
		return
	}
	body, err := io.ReadAll(r.Body)
	var asked map[string]any
	if err != nil || json.Unmarshal(body, &asked) != nil {
		m.t.Errorf("asked %.500q, %v", body, err)
		return
	}
	if got := r.Header.Get("Authorization"); got != "Bearer "+ModelKey {
		m.t.Errorf("the credential is %q", got)
	}
	n := 0
	for _, raw := range asked["messages"].([]any) {
		if raw.(map[string]any)["role"] == "assistant" {
			n++
		}
	}
	m.mu.Lock()
	m.asked = append(m.asked, asked)
	step := "nothing more"
	if asked["tools"] == nil {
		step = "without tools"
	} else if n < len(m.steps) {
		step = m.steps[n]
	}
	during := m.during
	m.mu.Unlock()
	if during != nil {
		during()
	}
	if status, why, ok := strings.Cut(step, "!"); ok && status == "400" {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, why)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	data := func(v any) {
		text, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(w, "data: %s\n\n", text)
		w.(http.Flusher).Flush()
	}
	type o = map[string]any
	if step == "hold" {
		data(o{"choices": []o{{"delta": o{"content": "thinking"}}}})
		select {
		case <-m.held:
			// The stream breaks off, and the client asks again.
		case <-r.Context().Done():
		}
		return
	}
	for i, line := range strings.Split(step, "\n") {
		if name, input, ok := strings.Cut(line, " {"); ok {
			data(o{"choices": []o{{"delta": o{"tool_calls": []o{{"index": i,
				"id":       fmt.Sprint("c", n, "-", i),
				"function": o{"name": name, "arguments": "{" + input}}}}}}})
		} else {
			data(o{"choices": []o{{"delta": o{"content": line}}}})
		}
	}
	data(o{"choices": []o{{"finish_reason": "stop"}}})
	fmt.Fprint(w, "data: [DONE]\n\n")
}
