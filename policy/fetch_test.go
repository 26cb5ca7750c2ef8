package policy_test

import (
	"fmt"
	"testing"

	"github.com/jail-sandbox/jail/policy"
)

// One table for every way to ask, so that no entry of the proxy decides by other rules (T-227,
// T-230, T-231, T-235).
func TestFetchRules(t *testing.T) {
	rule := func(pattern string, ports policy.Ports, methods, paths policy.Globs) policy.FetchRule {
		return policy.FetchRule{Host: host(t, pattern), Ports: ports, Methods: methods,
			Paths: paths}
	}
	g := policy.MustGlobs
	eff := resolve(t, policy.Layer{Name: "profile",
		Policy: policy.Policy{Fetch: policy.Fetch{Allow: []policy.FetchRule{
			rule("pypi.org", policy.OnePort(443), g("GET", "HEAD"), g("/simple/**")),
			rule("*.files.example", policy.Ports{{Low: 8000, High: 8100}}, g("*"), g("/**")),
			rule("api.example", policy.AllPorts(), g("GET"),
				g("/v1/*/read", "/v2/*.json", "/exact")),
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
		d := eff.Decide(policy.Connect{Host: tt.host, Port: tt.port, Method: tt.method,
			Path: tt.path})
		if d.Allowed != tt.want || d.Rule == "" || d.Layer != "profile" {
			t.Errorf("%s %s:%d%s: %+v, want %v", tt.method, tt.host, tt.port, tt.path, d, tt.want)
		}
	}
}

// A rule that denies takes away what is asked whole, what it may hide, and nothing beside it
// (T-230).
func TestFetchDenies(t *testing.T) {
	g := policy.MustGlobs
	deny := func(pattern string, ports policy.Ports, methods, paths policy.Globs) policy.FetchDeny {
		return policy.FetchDeny{Host: host(t, pattern), Ports: ports, Methods: methods,
			Paths: paths}
	}
	top := policy.Top()
	top.Fetch.Deny = []policy.FetchDeny{
		deny("whole.example", policy.AllPorts(), g("*"), g("**")),
		deny("post.example", policy.OnePort(443), g("POST"), g("/a/**")),
		deny("slash.example", policy.AllPorts(), g("*"), g("/**")),
		deny("paths.example", policy.AllPorts(), g("*"), g("/a/**")),
		deny("ports.example", nil, g("*"), g("**")),
		deny("methods.example", policy.AllPorts(), nil, g("**")),
		deny("nopaths.example", policy.AllPorts(), g("*"), nil),
	}
	eff := resolve(t, policy.Layer{Name: "profile", Policy: top})
	for _, tt := range []struct {
		q    policy.Connect
		want bool
	}{
		{policy.Connect{Host: "whole.example", Port: 443}, false},
		{policy.Connect{Host: "whole.example", Port: 1, Method: "GET", Path: "/"}, false},
		{policy.Connect{Host: "whole.example", Port: 443, Tunnel: true}, false},
		{policy.Connect{Host: "slash.example", Port: 443}, false},
		{policy.Connect{Host: "paths.example", Port: 443}, true}, // some of it may be asked
		{policy.Connect{Host: "paths.example", Port: 443, Method: "GET", Path: "/b"}, true},
		{policy.Connect{Host: "paths.example", Port: 443, Method: "GET", Path: "/a/b"}, false},
		{policy.Connect{Host: "post.example", Port: 443}, true},
		{policy.Connect{Host: "post.example", Port: 443, Method: "POST", Path: "/a/b"}, false},
		{policy.Connect{Host: "post.example", Port: 443, Method: "GET", Path: "/a/b"}, true},
		{policy.Connect{Host: "post.example", Port: 443, Method: "POST", Path: "/b"}, true},
		{policy.Connect{Host: "post.example", Port: 80, Method: "POST", Path: "/a/b"}, true},
		{policy.Connect{Host: "post.example", Port: 443, Tunnel: true},
			false}, // of which nothing is seen
		{policy.Connect{Host: "post.example", Port: 80, Tunnel: true}, true},
		{policy.Connect{Host: "ports.example", Port: 443, Tunnel: true}, true},
		{policy.Connect{Host: "methods.example", Port: 443, Tunnel: true}, true},
		{policy.Connect{Host: "nopaths.example", Port: 443, Tunnel: true}, true},
		{policy.Connect{Host: "other.example", Port: 443, Tunnel: true}, true},
		{policy.Connect{Host: "other.example", Port: 443, Path: "/x"},
			false}, // a path of no request
		{policy.Connect{Host: "other.example", Port: 443, Method: "*", Path: "/x"}, false},
		{policy.Connect{Host: "metadata.google.internal", Port: 80}, false},
	} {
		if d := eff.Decide(tt.q); d.Allowed != tt.want {
			t.Errorf("%s: %+v, want %v", tt.q, d, tt.want)
		}
	}
}

// What a rule says beyond host, port, method and path.
func TestFetchRuleSays(t *testing.T) {
	g := policy.MustGlobs
	rule := policy.FetchRule{Host: host(t, "a.example"), Ports: policy.AllPorts(), Methods: g("*"),
		Paths: g("/**")}
	with := func(change func(*policy.FetchRule)) policy.Policy {
		r := rule
		change(&r)
		return policy.Policy{Fetch: policy.Fetch{Allow: []policy.FetchRule{r}}}
	}
	tunnel := policy.Connect{Host: "a.example", Port: 443, Tunnel: true}
	stream := policy.Connect{Host: "a.example", Port: 443, Method: "GET", Path: "/",
		WebSocket: true}
	opaque := func(r *policy.FetchRule) { r.TLS = policy.TLSOpaque }
	for name, tt := range map[string]struct {
		p    policy.Policy
		q    policy.Connect
		want bool
	}{
		"a tunnel": {with(opaque), tunnel, true},
		"a tunnel to all paths": {with(func(r *policy.FetchRule) {
			opaque(r)
			r.Paths = g("**")
		}), tunnel, true},
		"a tunnel that is seen": {with(func(*policy.FetchRule) {}), tunnel, false},
		"a tunnel to some paths": {with(func(r *policy.FetchRule) {
			opaque(r)
			r.Paths = g("/a/**")
		}), tunnel, false},
		"a tunnel by some methods": {with(func(r *policy.FetchRule) {
			opaque(r)
			r.Methods = g("GET", "POST")
		}), tunnel, false},
		"a stream":                   {with(func(r *policy.FetchRule) { r.WebSocket = true }), stream, true},
		"a stream of a rule without": {with(func(*policy.FetchRule) {}), stream, false},
		"a request of a rule with streams": {with(func(r *policy.FetchRule) { r.WebSocket = true }),
			policy.Connect{Host: "a.example", Port: 443, Method: "GET", Path: "/"}, true},
	} {
		if d := resolve(t, policy.Layer{Name: "p",
			Policy: tt.p}).Decide(tt.q); d.Allowed != tt.want || d.Allowed != (d.Fetch != nil) {
			t.Errorf("%s: %+v, want %v", name, d, tt.want)
		}
	}
	// Of several rules the one that attaches a credential is told, and two that attach different
	// ones are none.
	key := func(name string) policy.FetchRule { r := rule; r.Credential = name; return r }
	get := policy.Connect{Host: "a.example", Port: 443, Method: "GET", Path: "/"}
	for name, tt := range map[string]struct {
		rules []policy.FetchRule
		q     policy.Connect
		want  string
		yes   bool
	}{
		"one and none": {[]policy.FetchRule{rule, key("k")}, get, "k", true},
		"two":          {[]policy.FetchRule{key("k"), key("l")}, get, "", false},
		"the same twice": {[]policy.FetchRule{key("k"), {Host: rule.Host, Ports: rule.Ports,
			Methods: g("GET"), Paths: rule.Paths, Credential: "k", WebSocket: true}}, get, "k",
			true},
		"any is none": {[]policy.FetchRule{key("*")}, get, "", true},
		"two, not yet due": {[]policy.FetchRule{key("k"), key("l")},
			policy.Connect{Host: "a.example", Port: 443}, "", true},
	} {
		eff := resolve(t,
			policy.Layer{Name: "p", Policy: policy.Policy{Fetch: policy.Fetch{Allow: tt.rules}}})
		if d := eff.Decide(tt.q); d.Allowed != tt.yes || d.Credential != tt.want || tt.want != "" &&
			d.Fetch.Credential != tt.want {
			t.Errorf("%s: %+v", name, d)
		}
	}
	if got := (policy.Fetch{Allow: []policy.FetchRule{key("l"), key("*"), rule, key("k"),
		key("l")}}).Credentials(); len(got) != 2 || got[0] != "k" || got[1] != "l" {
		t.Errorf("credentials are %q", got)
	}
}

// Rules that share nothing count for nothing: lists of a hundred rules meet in what they share,
// long before the bound of a meet.
func TestFetchMeetOfMany(t *testing.T) {
	var f policy.Fetch
	f.Limits = policy.TopFetchLimits()
	for i := range 100 {
		f.Allow = append(f.Allow, policy.FetchRule{Host: host(t, fmt.Sprintf("h%d.example", i)),
			Ports: policy.AllPorts(), Methods: policy.MustGlobs("GET"),
			Paths: policy.MustGlobs("/**")})
	}
	if got := f.Meet(f); len(got.Allow) != 100 {
		t.Errorf("%d rules are left", len(got.Allow))
	}
}

// A bound of a rule is one that can be meant, or none.
func TestFetchBounds(t *testing.T) {
	for _, f := range policy.FetchBoundFields() {
		var b policy.FetchBounds
		most := int64(7)
		if f.Unit == policy.Duration {
			most *= 1e9
		}
		n, err := f.Unit.Parse(f.Unit.Format(most))
		if err != nil || n != most {
			t.Errorf("%s is %d: %v", f.Name, n, err)
		}
		if *f.At(&b) = n; b.String() != " "+f.Name+" "+f.Unit.Format(most) {
			t.Errorf("%s: %s", f.Name, b)
		}
		for _, bad := range []string{"", "0", "0B", "0s", "-1", "unlimited", "many"} {
			if _, err := f.Unit.Parse(bad); err == nil {
				t.Errorf("%s = %q is taken", f.Name, bad)
			}
		}
	}
	if (policy.FetchBounds{}).String() != "" {
		t.Error("no bound is shown")
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
			t.Errorf("%q ∧ %q ∧ %q attaches %q, want %q", tt.ceiling, tt.profile, tt.request,
				d.Credential, tt.want)
		}
	}
}

func TestQuestionStrings(t *testing.T) {
	for want, q := range map[string]policy.Question{
		"read /a":               policy.Open{Path: "/a", Want: policy.Read},
		"write /a":              policy.Open{Path: "/a", Want: policy.Read | policy.Write},
		"run core-utils/grep":   policy.Tool{Bundle: "core-utils", Command: "grep"},
		"run /a.wasm":           policy.Module{Path: "/a.wasm"},
		"run /bin/sh":           policy.Native{Path: "/bin/sh"},
		"connect a.example:443": policy.Connect{Host: "a.example", Port: 443},
		"connect GET a.example:443/x": policy.Connect{Host: "a.example", Port: 443, Method: "GET",
			Path: "/x"},
		"commit a/b": policy.Commit{Path: "a/b"},
		"set A":      policy.EnvVar{Name: "A"},
	} {
		if got := q.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
