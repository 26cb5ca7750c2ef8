package policy_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/policytest"
)

func resolve(t *testing.T, layers ...policy.Layer) policy.Effective {
	t.Helper()
	eff, err := policy.Resolve(layers...)
	if err != nil {
		t.Fatal(err)
	}
	return eff
}

// threeLayers has a ceiling, a profile and a request that each take something away.
func threeLayers(t *testing.T) policy.Effective {
	t.Helper()
	ceiling := policy.Top()
	ceiling.Workspace.Hide = []string{".env"}
	ceiling.Tools.Native = nil
	ceiling.Mounts = policy.Mounts{{Source: "/usr", Access: policy.Read | policy.Exec},
		{Access: policy.Tmpfs}}
	ceiling.Fetch.Allow = []policy.FetchRule{policy.TopFetchRule()}
	ceiling.Fetch.Allow[0].Host = host(t, "**.example.com")
	profile := policy.Policy{
		Workspace: policy.Workspace{Access: policy.WorkspaceShadow, Protect: []string{"Makefile"},
			Commit: policy.CommitAuto},
		Mounts: policy.Mounts{
			{Source: "/usr/share/dict", Target: "/data/dict", Access: policy.Read | policy.Write},
			{Source: "/home", Target: "/home", Access: policy.Read},
			{Target: "/tmp", Access: policy.Tmpfs},
		},
		Tools: policy.Tools{Allow: policy.MustGlobs("core-utils/*"),
			Modules: policy.MustGlobs("/opt/**"), Native: policy.MustGlobs("/usr/bin/git")},
		Fetch: policy.Fetch{
			Allow: []policy.FetchRule{
				{Host: host(t, "*.example.com"), Ports: policy.OnePort(443),
					Methods: policy.MustGlobs("GET"), Paths: policy.MustGlobs("/a/**")},
				{Host: host(t, "api.example.com"), Ports: policy.OnePort(443),
					Methods: policy.MustGlobs("GET"), Paths: policy.MustGlobs("/a/key/**"),
					Credential: "one"},
				{Host: host(t, "other.test"), Ports: policy.OnePort(443),
					Methods: policy.MustGlobs("GET"), Paths: policy.MustGlobs("/**")},
			},
			Limits: policy.TopFetchLimits(),
		},
		Env:      policy.Env{Pass: policy.MustGlobs("TERM"), Allow: policy.MustGlobs("APP_*")},
		Syscalls: policy.Syscalls{Groups: []string{"wasi", "native"}},
		Limits:   policy.TopLimits(),
	}
	request := policy.NewRequest()
	for _, err := range []error{request.Fetch("api.example.com"), request.Fetch("evil.test"),
		request.Limit("memory=64MiB")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	narrowed := request.Policy()
	narrowed.Tools.Allow = policy.MustGlobs("core-utils/g*")
	return resolve(t,
		policy.Layer{Name: "ceiling", Source: "/etc/jail/ceiling.toml", Policy: ceiling},
		policy.Layer{Name: "profile test", Source: "built in", Policy: profile},
		policy.Layer{Name: "request", Source: "command line", Policy: narrowed})
}

func TestDecide(t *testing.T) {
	eff := threeLayers(t)
	r, w, x := policy.Read, policy.Write, policy.Exec
	for _, tt := range []struct {
		q policy.Question
		// Of a yes, where it starts with +; of "needs a yes", with ?
		layer string
		rule  string
	}{
		{policy.Tool{Bundle: "core-utils", Command: "grep"}, "+request",
			`tools.allow "core-utils/g*"`},
		{policy.Tool{Bundle: "core-utils", Command: "sed"}, "request",
			"does not hold core-utils/sed"},
		{policy.Tool{Bundle: "python", Command: "grep"}, "profile test",
			"does not hold python/grep"},
		{policy.Tool{Bundle: "core-utils", Command: "../x"}, "ceiling", "no bundle"},
		{policy.Tool{Bundle: "", Command: "grep"}, "ceiling", "no bundle"},
		{policy.Module{Path: "/opt/a/b.wasm"}, "+profile test", `tools.modules "/opt/**"`},
		{policy.Module{Path: "/home/a.wasm"}, "profile test", "does not hold"},
		{policy.Module{Path: "opt/a.wasm"}, "ceiling", "clean absolute"},
		{policy.Module{Path: "/opt/../etc/a.wasm"}, "ceiling", "clean absolute"},
		{policy.Native{Path: "/usr/bin/git"}, "ceiling", "tools.native"},
		{policy.Native{Path: "git"}, "ceiling", "clean absolute"},

		{policy.Open{Path: "/workspace", Want: r}, "+ceiling", `workspace.access = "shadow"`},
		{policy.Open{Path: "/workspace/a", Want: r | w}, "+ceiling", `workspace.access`},
		{policy.Open{Path: "/workspace/a", Want: x}, "ceiling", `workspace.access`},
		{policy.Open{Path: "/workspace/a/.env", Want: r}, "ceiling", `workspace.hide ".env"`},
		{policy.Open{Path: "/data/dict/words", Want: r}, "+request",
			`"/data/dict from /usr/share/dict read"`},
		{policy.Open{Path: "/data/dict/words", Want: w}, "profile test", "only"},
		{policy.Open{Path: "/data/dictionary", Want: r}, "profile test", "no mount holds"},
		{policy.Open{Path: "/home/x", Want: r}, "profile test", ""},
		{policy.Open{Path: "/tmp/x", Want: r | w}, "+profile test", "tmpfs"},
		{policy.Open{Path: "/tmp/x", Want: x}, "profile test", "only"},
		{policy.Open{Path: "/etc/shadow", Want: r}, "profile test", "no mount holds"},
		{policy.Open{Path: "/tmp/../etc/shadow", Want: r}, "ceiling", "clean"},
		{policy.Open{Path: "/tmp/x", Want: 0}, "ceiling", "nothing is wanted"},
		{policy.Open{Path: "/tmp/x", Want: policy.Tmpfs}, "ceiling", "nothing is wanted"},

		{policy.Connect{Host: "api.example.com", Port: 443}, "+request", "fetch.allow"},
		{policy.Connect{Host: "API.example.com.", Port: 443, Method: "GET", Path: "/a/b"},
			"+request", "fetch.allow"},
		{policy.Connect{Host: "api.example.com", Port: 80}, "profile test",
			"no rule for api.example.com:80"},
		{policy.Connect{Host: "api.example.com", Port: 0}, "ceiling", "port 0"},
		{policy.Connect{Host: "www.example.com", Port: 443}, "request", "no rule"},
		{policy.Connect{Host: "evil.test", Port: 443}, "ceiling", "no rule"},
		{policy.Connect{Host: "other.test", Port: 443}, "ceiling", "no rule"},
		{policy.Connect{Host: "93.184.216.34", Port: 443}, "ceiling", "address"},
		{policy.Connect{Host: "api.example.com", Port: 443, Method: "POST", Path: "/a/b"},
			"profile test", "no rule"},
		{policy.Connect{Host: "api.example.com", Port: 443, Method: "get", Path: "/a/b"}, "ceiling",
			"method"},
		{policy.Connect{Host: "api.example.com", Port: 443, Method: "TRACE", Path: "/a/b"},
			"ceiling", "method"},
		{policy.Connect{Host: "api.example.com", Port: 443, Method: "*", Path: "/a/b"}, "ceiling",
			"method"},
		{policy.Connect{Host: "api.example.com", Port: 443, Method: "GET", Path: "/b"},
			"profile test", "no rule"},
		{policy.Connect{Host: "api.example.com", Port: 443, Method: "GET", Path: ""}, "ceiling",
			"slash"},
		{policy.Connect{Host: "api.example.com", Port: 443, Path: "/a"}, "ceiling",
			"without a method"},

		{policy.Commit{Path: "main.go"}, "+ceiling", `workspace.commit = "auto"`},
		{policy.Commit{Path: "Makefile"}, "?profile test", `protected "Makefile"`},
		{policy.Commit{Path: ".git/hooks/x"}, "?ceiling", "hooks"},
		{policy.Commit{Path: ".env"}, "ceiling", "workspace.hide"},
		{policy.Commit{Path: "../x"}, "ceiling", "clean"},
		{policy.Commit{Path: ""}, "ceiling", "clean"},

		{policy.EnvVar{Name: "APP_KEY"}, "+profile test", `env.allow "APP_*"`},
		{policy.EnvVar{Name: "LD_PRELOAD"}, "profile test", "does not hold LD_PRELOAD"},
		{policy.EnvVar{Name: "A=B"}, "ceiling", "character"},
	} {
		d := eff.Decide(tt.q)
		got := d.Layer
		switch {
		case d.Allowed:
			got = "+" + got
		case d.Ask:
			got = "?" + got
		}
		if got != tt.layer || !strings.Contains(d.Rule, tt.rule) || d.Source == "" || d.Rule == "" {
			t.Errorf("%s: %+v, want %s with %q", tt.q, d, tt.layer, tt.rule)
		}
	}
}

// T-228: paths that two servers could read in two ways are no paths.
func TestConnectPaths(t *testing.T) {
	all := policy.Fetch{Allow: []policy.FetchRule{policy.TopFetchRule()},
		Limits: policy.TopFetchLimits()}
	eff := resolve(t, policy.Layer{Name: "p", Policy: policy.Policy{Fetch: all}})
	ask := func(path string) bool {
		return eff.Decide(policy.Connect{Host: "example.com", Port: 443, Method: "GET",
			Path: path}).Allowed
	}
	for _, path := range []string{
		"a", "/a/../b", "/a/./b", "/..", "/a//b", "//", `/a\b`, "/a%2fb", "/a%2Fb", "/%2e%2e/a",
		"/a%5cb", "/a%00", "/a\x00", "/a?b", "/a#b",
		"/a;b", "/a%3Bb", "/a b", "/\xff", "/a\n", "/é", "/a%252fb", "/%40a", "/%61", "/%c3%a4",
		"/a+b",
	} {
		if ask(path) {
			t.Errorf("path %q is allowed", path)
		}
	}
	for _, path := range []string{"/", "/a", "/a/", "/a%20b", "/.well-known/x", "/a..b", "/~x",
		"/@a", "/%C3%A4", "/a%2Bb"} {
		if !ask(path) {
			t.Errorf("path %q is denied", path)
		}
	}
}

func TestCredential(t *testing.T) {
	eff := threeLayers(t)
	ask := func(path string) policy.Decision {
		return eff.Decide(policy.Connect{Host: "api.example.com", Port: 443, Method: "GET",
			Path: path})
	}
	if d := ask("/a/x"); !d.Allowed || d.Credential != "" {
		t.Errorf("no credential was asked for: %+v", d)
	}
	if d := ask("/a/key/x"); !d.Allowed || d.Credential != "one" {
		t.Errorf("credential one is attached: %+v", d)
	}
	if got := eff.Policy().Fetch.Credentials(); len(got) != 1 || got[0] != "one" {
		t.Errorf("credentials are %q", got)
	}
	rule := func(name string) policy.FetchRule {
		r := policy.TopFetchRule()
		r.Credential = name
		return r
	}
	two := resolve(t, policy.Layer{Name: "p",
		Policy: policy.Policy{Fetch: policy.Fetch{Allow: []policy.FetchRule{rule("one"),
			rule("two")}}}})
	if d := two.Decide(policy.Connect{Host: "example.com", Port: 443, Method: "GET",
		Path: "/"}); d.Allowed || !strings.Contains(d.Rule, "different credentials") {
		t.Errorf("two credentials for one request: %+v", d)
	}
}

func TestCommitRules(t *testing.T) {
	for _, tt := range []struct {
		w          policy.Workspace
		allow, ask bool
	}{
		{policy.Workspace{}, false, false},
		{policy.Workspace{Access: policy.WorkspaceRead, Commit: policy.CommitAuto}, false, false},
		{policy.Workspace{Access: policy.WorkspaceShadow}, false, false},
		{policy.Workspace{Access: policy.WorkspaceShadow, Commit: policy.CommitAsk}, false, true},
		{policy.Workspace{Access: policy.WorkspaceShadow, Commit: policy.CommitAuto}, true, false},
	} {
		d := resolve(t, policy.Layer{Name: "p", Policy: policy.Policy{Workspace: tt.w}}).Decide(
			policy.Commit{Path: "a"})
		if d.Allowed != tt.allow || d.Ask != tt.ask {
			t.Errorf("%s: %+v", tt.w, d)
		}
	}
}

func TestRunNeedsItsSyscalls(t *testing.T) {
	p := policy.Top()
	p.Syscalls = policy.Syscalls{}
	eff := resolve(t, policy.Layer{Name: "p", Policy: p})
	for _, q := range []policy.Question{policy.Tool{Bundle: "a", Command: "b"},
		policy.Module{Path: "/a"}, policy.Native{Path: "/a"}} {
		if d := eff.Decide(q); d.Allowed || !strings.Contains(d.Rule, "syscalls.groups") {
			t.Errorf("%s: %+v", q, d)
		}
	}
}

func questions() *rapid.Generator[policy.Question] {
	return rapid.Custom(func(t *rapid.T) policy.Question {
		path := policytest.Path().Draw(t, "path")
		return rapid.SampledFrom([]policy.Question{
			policy.Open{Path: "/data/" + path, Want: policy.Read}, policy.Open{Path: "/data/a/b",
				Want: policy.Read | policy.Exec},
			policy.Open{Path: "/usr/share/x", Want: policy.Write}, policy.Open{Path: "/workspace/" +
				path, Want: policy.Write},
			policy.Open{Path: "/workspace/secret", Want: policy.Read},
			policy.Tool{Bundle: "core-utils", Command: "grep"}, policy.Tool{Bundle: "python",
				Command: "x"},
			policy.Module{Path: "/opt/" + path + ".wasm"}, policy.Native{Path: "/usr/bin/git"},
			policy.Connect{Host: "a.example.com", Port: 85}, policy.Connect{Host: "example.com",
				Port: 443, Method: "GET", Path: "/simple/a"},
			policy.Commit{Path: path}, policy.Commit{Path: "build/out/x"},
			policy.EnvVar{Name: "LC_ALL"},
		}).Draw(t, "question")
	})
}

// T-523: whatever is resolved, an effective policy allows nothing that a layer does not,
// and it says so in one voice with the meet.
func TestDecideNarrows(t *testing.T) {
	valid := policytest.Checked()
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := valid.Draw(t, "a"), valid.Draw(t, "b"), valid.Draw(t, "c")
		eff, err := policy.Resolve(policy.Layer{Name: "a", Policy: a},
			policy.Layer{Name: "b", Policy: b}, policy.Layer{Name: "c", Policy: c})
		if err != nil && strings.Contains(err.Error(), "do not fit together") {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		met := eff.Policy()
		if !met.LessEq(a) || !met.LessEq(b) || !met.LessEq(c) {
			t.Fatal("the meet is wider than a layer")
		}
		alone := func(p policy.Policy, q policy.Question) policy.Decision {
			eff, err := policy.Resolve(policy.Layer{Name: "alone", Policy: p})
			if err != nil {
				t.Fatal(err)
			}
			return eff.Decide(q)
		}
		for range 10 {
			q := questions().Draw(t, "q")
			d := eff.Decide(q)
			if whole := alone(met, q); d.Allowed != whole.Allowed || d.Ask != whole.Ask ||
				d.Credential != whole.Credential {
				t.Fatalf("%s: %+v, but the meet says %+v", q, d, whole)
			}
			if d.Layer != "a" && d.Layer != "b" && d.Layer != "c" {
				t.Fatalf("%s: %+v names no layer", q, d)
			}
			for _, p := range []policy.Policy{a, b, c} {
				if own := alone(p, q); d.Allowed && !own.Allowed && !strings.Contains(own.Rule,
					"different credentials") {
					t.Fatalf("%s is allowed, but a layer says %+v", q, own)
				}
			}
		}
	})
}

func TestResolve(t *testing.T) {
	if _, err := policy.Resolve(); !errors.Is(err, policy.ErrNoLayers) {
		t.Errorf("no layers: %v", err)
	}
	bad := policy.Policy{Mounts: policy.Mounts{{Source: "/proc", Target: "/x",
		Access: policy.Read}}}
	eff, err := policy.Resolve(policy.Layer{Name: "ceiling", Policy: policy.Top()},
		policy.Layer{Name: "profile", Source: "x.toml", Policy: bad})
	if err == nil || !strings.Contains(err.Error(), "policy profile (x.toml): mount[0]") {
		t.Errorf("a layer that does not pass: %v", err)
	}
	anywhere := func(any, source, target string) policy.Layer {
		return policy.Layer{Name: source, Policy: policy.Policy{Mounts: policy.Mounts{{Source: any,
			Access: policy.Read}, {Source: source, Target: target, Access: policy.Read}}}}
	}
	if _, err := policy.Resolve(anywhere("/srv", "/usr", "/data"), anywhere("/usr", "/srv",
		"/data/x")); err == nil || !strings.Contains(err.Error(), "do not fit together: mount[") {
		t.Errorf("layers that show different things below one place: %v", err)
	}
	for _, e := range []policy.Effective{{}, eff} {
		if d := e.Decide(policy.Module{Path: "/a"}); d.Allowed || d.Ask {
			t.Errorf("no policy allows something: %+v", d)
		}
		if !policytest.Same(e.Policy(), policy.Policy{}) {
			t.Error("no policy grants something")
		}
	}
}

func TestEffectiveIsAValue(t *testing.T) {
	eff := threeLayers(t)
	before := eff.Digest()
	p := eff.Policy()
	p.Workspace.Hide[0] = "changed"
	p.Tools.Allow[0] = policy.MustGlob("**")
	p.Fetch.Allow[0].Methods[0] = policy.MustGlob("*")
	p.Fetch.Allow[0].Ports[0].High = 9999
	p.Mounts[0].Access = policy.AllRights
	for _, l := range eff.Layers() {
		if len(l.Policy.Env.Pass) > 0 {
			l.Policy.Env.Pass[0] = policy.MustGlob("CHANGED")
		}
	}
	if eff.Digest() != before {
		t.Error("a copy of the policy shares memory with it")
	}
}

func TestDigest(t *testing.T) {
	a := policy.Policy{
		Tools:     policy.Tools{Allow: policy.MustGlobs("b/b", "a/*", "a/a")},
		Env:       policy.Env{Set: policy.Vars{Values: map[string]string{"A": "1", "B": "2"}}},
		Workspace: policy.Workspace{Access: policy.WorkspaceRead, Hide: []string{"y", "x", "x"}},
		Syscalls:  policy.Syscalls{Groups: []string{"wasi", "native"}},
	}
	b := policy.Policy{
		Tools: policy.Tools{Allow: policy.MustGlobs("a/*", "b/b")},
		Env:   policy.Env{Set: policy.Vars{Values: map[string]string{"B": "2", "A": "1"}}},
		Workspace: policy.Workspace{Access: policy.WorkspaceRead, Hide: []string{"x", "y"},
			Commit: policy.CommitAuto}, Syscalls: policy.Syscalls{Groups: []string{"native",
			"wasi"}},
	}
	if a.Digest() != b.Digest() {
		t.Errorf("policies that grant the same differ:\n%s\n%s", a, b)
	}
	if d := a.Digest(); len(d) != len("sha256:")+64 || !strings.HasPrefix(d, "sha256:") {
		t.Errorf("digest is %q", d)
	}
	b.Limits.Wall = time.Nanosecond
	if a.Digest() == b.Digest() {
		t.Error("policies that differ in a limit have one digest")
	}
	// The digest of nothing is part of what the log is verified by: it changes only on purpose.
	const nothing = "sha256:ee23c27f321dde301c00cf5c7c5c1d8bea6719ec6454c7523c2ed8d4538f9760"
	if got := (policy.Policy{}).Digest(); got != nothing {
		t.Errorf("the digest of the zero policy is %s, was %s", got, nothing)
	}
}

func TestJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := policytest.Checked().Draw(t, "p").Normal()
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var again policy.Policy
		if err := json.Unmarshal(text, &again); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		if !policytest.Same(p, again) {
			t.Fatalf("%s\nreads as\n%s", p, again)
		}
	})
	for _, bad := range []string{`{"tools":{"allow":["a**"]}}`,
		`{"fetch":{"allow":[{"host":"1.2.3.4"}]}}`, `{"workspace":{"access":"write"}}`,
		`{"workspace":{"commit":"yes"}}`, `{"mounts":[{"access":"all"}]}`} {
		var p policy.Policy
		if err := json.Unmarshal([]byte(bad), &p); err == nil {
			t.Errorf("%s is let through", bad)
		}
	}
}

func TestDecideImage(t *testing.T) {
	pol := policy.Policy{Tools: policy.Tools{Images: policy.MustGlobs("debian-*", "oci:/srv/**")},
		Syscalls: policy.Syscalls{Groups: []string{policy.GroupNative}},
		Approve:  policy.Approve{{Action: policy.ActionTool, Tool: policy.MustGlobs("/bin/rm"), Mode: policy.ApproveAsk}}}
	for q, want := range map[policy.Image]string{
		{Name: "debian-12", Program: "/bin/ls"}:     "yes",
		{Name: "debian", Program: "/bin/ls"}:        "no",
		{Name: "debian-12/x", Program: "/bin/ls"}:   "no",
		{Name: "oci:/srv/a/b", Program: "/bin/ls"}:  "yes",
		{Name: "oci:/srv2/a", Program: "/bin/ls"}:   "no",
		{Name: "debian-12", Program: "bin/ls"}:      "no",
		{Name: "debian-12", Program: "/bin/../ls"}:  "no",
		{Name: "debian-12", Program: "/bin/rm"}:     "ask",
		{Name: "oci:/srv/a", Program: "/usr/bin/x"}: "yes",
	} {
		d := resolve(t, policy.Layer{Name: "profile", Policy: pol}).Decide(q)
		got := "no"
		if d.Allowed {
			got = "yes"
		} else if d.Ask {
			got = "ask"
		}
		if got != want {
			t.Errorf("%s: %s (%s), want %s", q, got, d.Rule, want)
		}
	}
	for text, want := range map[string]bool{"debian": true, "*": true, "**": true, "deb*": true,
		"oci:/a": true, "oci:/**": true, "a/b": false, "/a": false, "oci:/a/": false, "**/a": true} {
		if err := policy.FieldOf("tools.images").CheckGlob(policy.MustGlob(text)); (err == nil) != want {
			t.Errorf("pattern %q: %v", text, err)
		}
	}
}
