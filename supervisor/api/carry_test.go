package api

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/jail-sandbox/jail/supervisor/approvals"
)

// TestCarryReportsHostileTexts: whatever text a remote host has chosen, the report of what was done
// is one that a daemon takes.
func TestCarryReportsHostileTexts(t *testing.T) {
	hostile := "a\u202eb\x1b[2J\u0085\xff\t" + strings.Repeat("ä\n", 2000)
	reports := make(chan approvals.ReportRequest, 2)
	daemon := httptest.NewUnstartedServer(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/report") {
				var req approvals.ReportRequest
				if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
					t.Error(err)
				}
				reports <- req
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(approvals.Action{ID: "one", State: "applying"})
		}))
	socket := filepath.Join(t.TempDir(), "socket")
	var err error
	if daemon.Listener, err = net.Listen("unix", socket); err != nil {
		t.Fatal(err)
	}
	daemon.Start()
	t.Cleanup(daemon.Close)
	c, err := Dial(context.Background(), socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	for what, do := range map[string]func(approvals.Action) (string, error){
		"outcome": func(approvals.Action) (string, error) { return hostile, nil },
		"error":   func(approvals.Action) (string, error) { return "", errors.New(hostile) },
	} {
		// The error of do comes back.
		_, _ = c.Approvals().Carry(context.Background(), "one", "key", do)
		got := <-reports
		text := got.Outcome + got.Error
		hidden := func(r rune) bool { return r != '\n' && !unicode.IsGraphic(r) }
		if len(text) == 0 || len(text) > 1<<10 || strings.ContainsFunc(text, hidden) ||
			what == "outcome" && strings.Contains(text, "\n") {
			t.Errorf("%s: reported %d bytes: %.100q", what, len(text), text)
		}
	}
}
