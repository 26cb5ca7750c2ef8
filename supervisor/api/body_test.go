package api

import (
	"net/http/httptest"
	"net/url"
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

// What is wrong with a body is said in words for users, without the names of Go's types.
func TestWrongBody(t *testing.T) {
	for body, want := range map[string]string{
		"":                                "it is empty",
		"{":                               "it ends within a value",
		"[]":                              "the whole: a JSON array does not belong there",
		`{"tool":1}`:                      "tool: a JSON number does not belong there",
		`{"limits":["a",{}]}`:             "limits: a JSON object does not belong there",
		`{"nosuch":1}`:                    `unknown field "nosuch"`,
		`{"Tool":"a"}`:                    `unknown field "Tool"`,
		`{"limits":[],"Limits":[]}`:       `unknown field "Limits"`,
		`{"script":{"Text":"x"}}`:         `unknown field "Text"`,
		`{"tool":"a","tool":"b"}`:         `the key "tool" is there twice, at byte 18`,
		`{"tool":"a"} x`:                  "something follows the JSON value",
		`{"tool":"a",}`:                   "invalid character '}' looking for beginning of object key string",
		strings.Repeat(" ", maxRequest+1): "it has more than 16777216 bytes",
	} {
		var req message.Request
		err := readJSON(httptest.NewRequest("POST", PathRuns, strings.NewReader(body)), &req)
		if err == nil || err.Error() != "body of the request: "+want {
			t.Errorf("%.60q: %v, want %s", body, err, want)
		}
	}
	for query, want := range map[string]string{"after=x": "want a whole number",
		"since=now": "want a time, as 2006-01-02T15:04:05Z", "x=1": "there is no such parameter"} {
		values, _ := url.ParseQuery(query)
		if _, err := readEvents(values); err == nil || !strings.HasSuffix(err.Error(), query+": "+want) {
			t.Errorf("%s: %v", query, err)
		}
	}
}
