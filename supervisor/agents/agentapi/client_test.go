package agentapi

import (
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// TestCutTranscript: a list of events that ends within one is an answer that was cut, whether the
// connection breaks off or ends.
func TestCutTranscript(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"seq":1}`+"\n\n"+`{"seq":2}`+"\n")
		if !strings.Contains(r.URL.Path, "whole") {
			_, _ = io.WriteString(w, `{"seq":3,"te`)
		}
		if strings.Contains(r.URL.Path, "broken") {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	})}
	go func() { _ = s.Serve(l) }()
	defer s.Close()
	c := NewClient(socket)
	defer c.Close()
	if all, err := c.SessionEvents(t.Context(), "whole"); err != nil || len(all) != 2 ||
		all[1].Seq != 2 {
		t.Errorf("a whole list: %+v, %v", all, err)
	}
	for _, id := range []string{"broken", "short"} {
		if _, err := c.SessionEvents(t.Context(), id); err == nil ||
			!strings.Contains(err.Error(), "did not answer: unexpected EOF") {
			t.Errorf("a %s list: %v", id, err)
		}
	}
}
