package gatekeepers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jail-sandbox/jail/supervisor/fetchrun"
)

const described = `{"openapi": "3.1.0", "info": {"title": "Customers"}, "servers": [{"url": "%s/v1"}],
"components": {"parameters": {"id": {"name": "id", "in": "path", "required": true}}},
"paths": {
  "/customers": {
    "get": {"operationId": "listCustomers", "parameters": [{"name": "city", "in": "query"}]},
    "post": {"operationId": "addCustomer", "requestBody": {}}},
  "/customers/{id}": {
    "parameters": [{"$ref": "#/components/parameters/id"}],
    "get": {"operationId": "getCustomer"},
    "put": {"operationId": "putCustomer", "requestBody": {}},
    "patch": {"operationId": "patchCustomer", "requestBody": {}},
    "delete": {"operationId": "deleteCustomer"}},
  "/files/{name}{suffix}": {
    "parameters": [{"name": "name", "in": "path"}, {"name": "suffix", "in": "path"}],
    "get": {"operationId": "getFile"}},
  "/settings": {
    "get": {"operationId": "getSettings", "parameters": [{"name": "of", "in": "query"}]},
    "put": {"operationId": "putSettings", "requestBody": {}, "parameters": [
      {"name": "of", "in": "query"}, {"name": "notify", "in": "query"}]}},
  "/secrets": {"get": {}, "post": {"parameters": [{"name": "X-Key", "in": "header"}]}}}}`

// A service is an HTTP API with customers, which knows each request by its key.
type service struct {
	mu        sync.Mutex
	customers map[string]string
	requests  []string
	// fail has the next write answered with a status.
	fail int
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r.Method+" "+r.URL.RequestURI()+" "+
		r.Header.Get("Idempotency-Key"))
	if r.URL.Path == "/v1/settings" {
		fmt.Fprintf(w, `{"of": %q}`, r.URL.Query().Get("of"))
		return
	}
	id := strings.TrimPrefix(r.URL.Path, "/v1/customers/")
	now, ok := s.customers[id]
	if s.fail > 0 && r.Method != http.MethodGet {
		w.WriteHeader(s.fail)
		return
	}
	tag := fmt.Sprintf("%q", sum(json.RawMessage(now)))
	if match := r.Header.Get("If-Match"); match != "" && match != tag {
		w.WriteHeader(http.StatusPreconditionFailed)
		return
	}
	body, _ := io.ReadAll(r.Body)
	switch {
	case r.URL.Path == "/v1/customers":
		fmt.Fprintf(w, `{"n": %d}`, len(s.customers))
	case !ok:
		w.WriteHeader(http.StatusNotFound)
	case r.Method == http.MethodGet:
		w.Header().Set("ETag", tag)
		fmt.Fprint(w, now)
	case r.Method == http.MethodDelete:
		delete(s.customers, id)
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodPatch:
		s.customers[id] = string(merged(json.RawMessage(now), body))
	default:
		s.customers[id] = string(body)
	}
}

// Send sends a request without a jail.
func (s *service) Send(ctx context.Context, r fetchrun.Request) (*fetchrun.Response, error) {
	if r.Credential != "crm" {
		return nil, errors.New("no credential")
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL.String(), bytes.NewReader(r.Body))
	if err != nil {
		return nil, err
	}
	for name, v := range r.Header {
		req.Header.Set(name, v)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	return &fetchrun.Response{Status: res.StatusCode, Header: res.Header, Body: res.Body}, nil
}

func newService(t *testing.T) (*service, *httpAPI) {
	t.Helper()
	s := &service{customers: map[string]string{"1": `{"name":"Ann","city":"Bern"}`}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "crm.json")
	if err := os.WriteFile(path, fmt.Appendf(nil, described, server.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	return s, &httpAPI{Settings{File: path, Credential: "crm"}, s}
}

func (s *service) customer(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.customers[id]
}

// writes are the requests that could change something.
func (s *service) writes() (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.requests {
		if !strings.HasPrefix(r, "GET ") {
			all = append(all, r)
		}
	}
	return all
}

func TestAPI(t *testing.T) {
	s, a := newService(t)
	ctx := t.Context()
	d, err := a.Describe(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range append(d.Reads, d.Actions...) {
		names = append(names, fmt.Sprintf("%s %t", m.Name, m.Reversible))
	}
	if got := strings.Join(names, ", "); got != "getCustomer false, getFile false, getSettings false, "+
		"get_secrets false, listCustomers false, addCustomer false, deleteCustomer false, "+
		"patchCustomer true, post_secrets false, putCustomer true, putSettings true" {
		t.Errorf("operations: %s", got)
	}
	out, err := a.Read(ctx, "getCustomer", raws(object{"params": object{"id": 1}}))
	if got, _ := json.Marshal(out); err != nil ||
		string(got) != `{"status":200,"body":{"name":"Ann","city":"Bern"}}` {
		t.Errorf("%s %v", got, err)
	}
	if _, err = a.Read(ctx, "listCustomers", raws(object{"params": object{"city": "a&b=c"}})); err != nil ||
		!strings.HasPrefix(s.requests[len(s.requests)-1], "GET /v1/customers?city=a%26b%3Dc ") {
		t.Errorf("%q %v", s.requests, err)
	}
	ann := s.customer("1")
	for action, c := range map[string]struct{ args, after string }{
		"patchCustomer": {`{"params":{"id":"1"},"body":{"city":"Zug"}}`, `{"city":"Zug","name":"Ann"}`},
		"putCustomer":   {`{"params":{"id":"1"},"body":{"name":"Eve"}}`, `{"name":"Eve"}`},
	} {
		s.requests = nil
		change, err := a.Propose(ctx, action, json.RawMessage(c.args))
		if err != nil || !change.Reversible || !same(change.Before, json.RawMessage(ann)) ||
			!same(change.After, json.RawMessage(c.after)) || len(s.writes()) > 0 {
			t.Fatalf("%s: %+v, %v, %q", action, change, err, s.writes())
		}
		outcome, err := a.Apply(ctx, "id-1", change)
		if err != nil || !same(json.RawMessage(s.customer("1")), json.RawMessage(c.after)) {
			t.Fatalf("%s: %q, %s, %v", action, outcome, s.customer("1"), err)
		}
		if err := a.Revert(ctx, "id-1", outcome, change); err != nil || !same(
			json.RawMessage(s.customer("1")), json.RawMessage(ann)) {
			t.Errorf("%s, reverted: %s, %v", action, s.customer("1"), err)
		}
		if w := s.writes(); len(w) != 2 || !strings.HasSuffix(w[0], " id-1") ||
			!strings.HasSuffix(w[1], " id-1/revert") {
			t.Errorf("%s: %q", action, w)
		}
	}
	change, err := a.Propose(ctx, "deleteCustomer", json.RawMessage(`{"params":{"id":1}}`))
	if err != nil || change.Reversible || string(change.After) != "null" {
		t.Fatalf("%+v, %v", change, err)
	}
	// A change between the proposal and the approval.
	s.customers["1"] = `{"name":"Other"}`
	if _, err := a.Apply(ctx, "id-2", change); !errors.Is(err, errChanged) || s.customer("1") == "" {
		t.Errorf("%v, %q", err, s.customer("1"))
	}
	change, err = a.Propose(ctx, "patchCustomer", json.RawMessage(`{"params":{"id":1},"body":{"x":1}}`))
	if err != nil {
		t.Fatal(err)
	}
	outcome, err := a.Apply(ctx, "id-3", change)
	if err != nil {
		t.Fatal(err)
	}
	// A change between the action and the wish to undo it.
	s.customers["1"] = `{"name":"Third"}`
	if err := a.Revert(ctx, "id-3", outcome, change); !errors.Is(err, errChanged) ||
		!strings.Contains(s.customer("1"), "Third") {
		t.Errorf("%v, %q", err, s.customer("1"))
	}
	s.fail = 503
	change, err = a.Propose(ctx, "addCustomer", json.RawMessage(`{"body":{"name":"Dan"}}`))
	if err != nil || change.Reversible {
		t.Fatalf("%+v, %v", change, err)
	}
	if _, err := a.Apply(ctx, "id-4", change); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("a request that failed: %v", err)
	}
	if _, known, err := a.Settle(ctx, "id-4", change, false); known || err != nil {
		t.Errorf("it says how a request ended that nobody saw the end of: %v", err)
	}
}

// What a query names is read before it is changed, and is not said to be undone: a PUT without the
// query would change something else.
func TestQueries(t *testing.T) {
	s, a := newService(t)
	c, err := a.Propose(t.Context(), "putSettings",
		json.RawMessage(`{"params":{"of":"team","notify":true},"body":{"of":"x"}}`))
	if err != nil || c.Reversible || string(c.Before) != `{"of": "team"}` {
		t.Fatalf("%+v, %s, %v", c, c.Before, err)
	}
	outcome, err := a.Apply(t.Context(), "a", c)
	if w := s.writes(); err != nil || len(w) != 1 || w[0] != "PUT /v1/settings?notify=true&of=team a" {
		t.Errorf("%q, %v", w, err)
	}
	if err := a.Revert(t.Context(), "a", outcome, c); err == nil || len(s.writes()) != 1 {
		t.Errorf("%q, %v", s.writes(), err)
	}
	c, err = a.Propose(t.Context(), "putSettings", json.RawMessage(`{"body":{"of":"x"}}`))
	if err != nil || !c.Reversible {
		t.Errorf("%+v, %v", c, err)
	}
}

// An action is sent as people were shown it, whatever the document says later.
func TestOtherDocument(t *testing.T) {
	s, a := newService(t)
	c, err := a.Propose(t.Context(), "deleteCustomer", json.RawMessage(`{"params":{"id":1}}`))
	if err != nil {
		t.Fatal(err)
	}
	a.Operations = []string{"deleteCustomer"}
	if _, err := a.Apply(t.Context(), "a", c); !errors.Is(err, errChanged) || len(s.writes()) > 0 {
		t.Errorf("without the GET that was shown: %v, %q", err, s.writes())
	}
	a.Operations, a.URL = nil, "http://127.0.0.1:1"
	if _, err := a.Apply(t.Context(), "a", c); !errors.Is(err, errChanged) || len(s.writes()) > 0 {
		t.Errorf("at another host: %v, %q", err, s.writes())
	}
}

func TestRefusedRequests(t *testing.T) {
	s, a := newService(t)
	for _, c := range []struct{ method, args string }{
		{"patchCustomer", `{"params":{"id":1}}`}, {"nothing", `{}`}, {"getCustomer", `{}`},
		{"getCustomer", `{"params":{"id":""}}`}, {"getCustomer", `{"params":{"id":".."}}`},
		{"getCustomer", `{"params":{"id":"1/../../x"}}`}, {"getCustomer", `{"params":{"id":"a\\b"}}`},
		{"getCustomer", `{"params":{"id":"a\r\nb"}}`}, {"getCustomer", `{"params":{"id":{}}}`},
		{"getCustomer", `{"params":{"id":1,"host":"x"}}`}, {"getCustomer", `{"params":{"id":1},"body":1}`},
		{"getCustomer", `{"params":{"id":1},"url":"http://x"}`}, {"getCustomer", `{"Params":{"id":1}}`},
		{"getFile", `{"params":{"name":".","suffix":"."}}`},
	} {
		if out, err := a.Read(t.Context(), c.method, json.RawMessage(c.args)); err == nil {
			t.Errorf("%s %s: %+v", c.method, c.args, out)
		}
	}
	for _, c := range []struct{ method, args string }{
		{"getCustomer", `{"params":{"id":1}}`}, {"deleteCustomer", `{"params":{"id":1},"body":{}}`},
		{"post_secrets", `{"params":{"X-Key":"x"}}`},
	} {
		if out, err := a.Propose(t.Context(), c.method, json.RawMessage(c.args)); err == nil {
			t.Errorf("%s %s: %+v", c.method, c.args, out)
		}
	}
	if len(s.requests) > 0 {
		t.Errorf("sent: %q", s.requests)
	}
	a.Operations = []string{"listCustomers"}
	if out, err := a.Read(t.Context(), "getCustomer", json.RawMessage(`{"params":{"id":1}}`)); err == nil {
		t.Errorf("an operation that the owner has not given: %+v", out)
	}
}
