package api

import (
	"encoding/json"
	"net/http/httptest"
	"testing"

	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/service"
)

// TestUnknownRoute: a path or a method that the API does not have is answered as every other error
// of it, with a status of its own and the methods that there are.
func TestUnknownRoute(t *testing.T) {
	srv := NewServer(&service.Service{}, Version{}, nil)
	handler := srv.handler(srv.routes())
	for _, c := range []struct {
		method, path string
		status       int
		code, allow  string
	}{
		{"GET", "/", 404, problem.NotFound, ""},
		{"GET", "/v1/nothing", 404, problem.NotFound, ""},
		{"POST", "/v2/runs", 404, problem.NotFound, ""},
		{"PATCH", PathRuns, 405, problem.Usage, "GET, HEAD, POST"},
		{"DELETE", PathVersion, 405, problem.Usage, "GET, HEAD"},
	} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		var p Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Error == nil {
			t.Errorf("%s %s: %v in %q", c.method, c.path, err, w.Body)
			continue
		}
		h := w.Header()
		if w.Code != c.status || p.Error.Code != c.code || p.Error.Hint == "" ||
			h.Get("Allow") != c.allow || h.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s: %d %v %q %q", c.method, c.path, w.Code, h, p.Error.Message, p.Error.Hint)
		}
	}
}
