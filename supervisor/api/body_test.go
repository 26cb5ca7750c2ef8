package api

import (
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/supervisor/message"
)

// TestBodyBounds sends bodies of maxRequest that are all one list. Each is refused before it is
// decoded, in a small part of the memory that its decoded form takes.
func TestBodyBounds(t *testing.T) {
	for name, body := range map[string]string{
		"arguments": `{"args":["` + strings.Repeat(`","`, maxRequest/4) + `"]}`,
		"limits":    `{"limits":["` + strings.Repeat(`","`, maxRequest/4) + `"]}`,
		"unknown":   `{"x":[` + strings.Repeat(`{},`, maxRequest/4) + `{}]}`,
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var req message.Request
		err := readJSON(httptest.NewRequest("POST", PathRuns, strings.NewReader(body)), &req)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), "more than 262144 values") {
			t.Errorf("%s: %v", name, err)
		}
		// The body, read into a growing buffer.
		if n := (after.TotalAlloc - before.TotalAlloc) >> 20; n > 100 {
			t.Errorf("%s: %d MiB were allocated", name, n)
		}
	}
	var req message.Request
	body := `{"tool":"ls","args":["` + strings.Repeat(`x","`, 200_000) + `"]}`
	if err := readJSON(httptest.NewRequest("POST", PathRuns, strings.NewReader(body)),
		&req); err != nil || len(req.Args) != 200_001 {
		t.Errorf("200,000 arguments: %d, %v", len(req.Args), err)
	}
}
