package fetch_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const reportPolicy = `policy = 1
name = "rolling"
include = ["base"]
[tools]
modules = ["**"]
[fetch]
mode = "report"
[[fetch.allow]]
host = "up.example.com"
ports = [443]
methods = ["GET"]
paths = ["/a"]
`

// reported is what a run under report mode is told, whether it asks for what is not granted or not.
func (w *fetchWorld) reported(t *testing.T) {
	policy := filepath.Join(w.dir, "rolling.toml")
	for _, c := range []struct {
		mode, path string
		sent       bool
		denied     int
	}{{"report", "/a", true, 0}, {"report", "/b", true, 1}, {"enforce", "/a", true, 0},
		{"enforce", "/b", false, 1}} {
		if err := os.WriteFile(policy, []byte(strings.Replace(reportPolicy, "report", c.mode, 1)),
			0o600); err != nil {
			t.Fatal(err)
		}
		r := w.run(t, []string{"--policy", policy, "--no-workspace"}, "http://up.example.com:443"+
			c.path)
		warned := len(r.Warnings) == 1 && strings.Contains(r.Warnings[0], `fetch.mode = "report"`)
		if warned != (c.mode == "report") || len(r.Warnings) > 1 || strings.Contains(r.Stdout,
			"GET "+c.path) != c.sent || len(r.Denied) != c.denied {
			t.Errorf("%s of %s: %+v", c.mode, c.path, r)
		}
	}
}

// settings that are wrong are said to be, with the file that they are in and to whom they belong;
// nothing is fetched.
func (w *fetchWorld) settings(t *testing.T) {
	path := filepath.Join(w.state, "fetch.toml")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := os.WriteFile(path, good, 0o600); err != nil {
			t.Error(err)
		}
	}()
	w.up.Took()
	for text, says := range map[string]string{"resolvers = [\"x\"]\n": `"x" is no address`,
		"resolvers = \"x\"\n": "resolvers is a string", "nope = 1\n": `unknown field "nope"`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var r fetchResult
		out := w.jail(t, "run", "--json", "--profile", "fetch", "--no-workspace", "--", w.guest,
			"http://up.example.com:443/a")
		if err := json.Unmarshal(out, &r); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if r.ExitCode != 125 || r.Error == nil || strings.Count(r.Error.Message, path) != 1 ||
			!strings.Contains(r.Error.Message, says) || !strings.Contains(r.Error.Hint,
			"operator") {
			t.Errorf("%s: %+v, %+v", text, r, r.Error)
		}
	}
	if got, _, n := w.up.Took(); n > 0 {
		t.Errorf("the host was sent %q", got)
	}
}
