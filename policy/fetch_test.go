package policy_test

import (
	"testing"

	"github.com/jail-sandbox/jail/policy"
)

// One table for every way to ask, so that no entry of the proxy decides by other rules.
func TestFetchRules(t *testing.T) {
	rule := func(pattern string, ports policy.Ports, methods, paths policy.Globs) policy.FetchRule {
		return policy.FetchRule{Host: host(t, pattern), Ports: ports, Methods: methods, Paths: paths}
	}
	g := policy.MustGlobs
	eff := resolve(t, policy.Layer{Name: "profile", Policy: policy.Policy{Fetch: policy.Fetch{Allow: []policy.FetchRule{
		rule("pypi.org", policy.OnePort(443), g("GET", "HEAD"), g("/simple/**")),
		rule("*.files.example", policy.Ports{{Low: 8000, High: 8100}}, g("*"), g("/**")),
		rule("api.example", policy.AllPorts(), g("GET"), g("/v1/*/read", "/v2/*.json", "/exact")),
		rule("empty.example", nil, g("*"), g("/**")),
		rule("none.example", policy.AllPorts(), nil, g("/**")),
	}}}})
	for _, tt := range []struct {
		host   string
		port   uint16
		method string
		path   string
		want   bool
	}{
		{"pypi.org", 443, "", "", true},
		{"pypi.org", 443, "GET", "/simple/x/", true},
		{"pypi.org", 443, "HEAD", "/simple", true},
		{"PyPI.org.", 443, "GET", "/simple/x", true},
		{"pypi.org..", 443, "GET", "/simple/x", false},
		{"pypi.org", 80, "", "", false},
		{"pypi.org", 443, "POST", "/simple/x", false},
		{"pypi.org", 443, "get", "/simple/x", false},
		{"pypi.org", 443, "GET", "/simplex", false},
		{"pypi.org", 443, "GET", "/", false},
		{"pypi.org", 443, "GET", "/simple/../x", false},
		{"pypi.org", 443, "GET", "/Simple/x", false},
		{"xpypi.org", 443, "", "", false},
		{"pypi.org.evil.test", 443, "", "", false},
		{"www.pypi.org", 443, "", "", false},

		{"a.files.example", 8000, "DELETE", "/x", true},
		{"a.files.example", 8100, "PUT", "/", true},
		{"a.files.example", 7999, "", "", false},
		{"a.files.example", 8101, "", "", false},
		{"files.example", 8000, "", "", false},
		{"b.a.files.example", 8000, "", "", false},
		{"a.files.example", 8000, "TRACE", "/x", false},
		{"a.files.example", 8000, "CONNECT", "/x", true},

		{"api.example", 1, "GET", "/v1/users/read", true},
		{"api.example", 65535, "GET", "/v2/a.json", true},
		{"api.example", 443, "GET", "/exact", true},
		{"api.example", 443, "GET", "/exact/", false},
		{"api.example", 443, "GET", "/v1/users/write", false},
		{"api.example", 443, "GET", "/v1/a/b/read", false},
		{"api.example", 443, "GET", "/v2/a.json/x", false},
		{"api.example", 443, "HEAD", "/exact", false},
		{"api.example", 0, "GET", "/exact", false},

		{"empty.example", 443, "", "", false},
		{"none.example", 443, "GET", "/", false},
		{"none.example", 443, "", "", false},
		{"", 443, "", "", false},
		{"*.files.example", 8000, "", "", false},
		{"[::1]", 443, "", "", false},
		{"127.0.0.1", 443, "", "", false},
		{"localhost", 443, "", "", false},
		{"a.files.example\x00.evil.test", 8000, "", "", false},
	} {
		d := eff.Decide(policy.Connect{Host: tt.host, Port: tt.port, Method: tt.method, Path: tt.path})
		if d.Allowed != tt.want || d.Rule == "" || d.Layer != "profile" {
			t.Errorf("%s %s:%d%s: %+v, want %v", tt.method, tt.host, tt.port, tt.path, d, tt.want)
		}
	}
}

func TestCredentialsMeet(t *testing.T) {
	with := func(name string) policy.Layer {
		p := policy.Top()
		p.Fetch.Allow[0].Credential = name
		return policy.Layer{Name: "layer", Policy: p}
	}
	for _, tt := range []struct{ ceiling, profile, request, want string }{
		{"*", "one", "*", "one"},
		{"one", "*", "*", "one"},
		{"one", "one", "one", "one"},
		{"one", "two", "*", ""},
		{"", "one", "*", ""},
		{"*", "", "one", ""},
		{"*", "*", "*", ""}, // nobody has said which
	} {
		d := resolve(t, with(tt.ceiling), with(tt.profile), with(tt.request)).
			Decide(policy.Connect{Host: "a.example", Port: 443, Method: "GET", Path: "/"})
		if !d.Allowed || d.Credential != tt.want {
			t.Errorf("%q ∧ %q ∧ %q attaches %q, want %q", tt.ceiling, tt.profile, tt.request, d.Credential, tt.want)
		}
	}
}

func TestQuestionStrings(t *testing.T) {
	for want, q := range map[string]policy.Question{
		"read /a":                     policy.Open{Path: "/a", Want: policy.Read},
		"write /a":                    policy.Open{Path: "/a", Want: policy.Read | policy.Write},
		"run core-utils/grep":         policy.Tool{Bundle: "core-utils", Command: "grep"},
		"run /a.wasm":                 policy.Module{Path: "/a.wasm"},
		"run /bin/sh":                 policy.Native{Path: "/bin/sh"},
		"connect a.example:443":       policy.Connect{Host: "a.example", Port: 443},
		"connect GET a.example:443/x": policy.Connect{Host: "a.example", Port: 443, Method: "GET", Path: "/x"},
		"commit a/b":                  policy.Commit{Path: "a/b"},
		"set A":                       policy.EnvVar{Name: "A"},
	} {
		if got := q.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
