package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/policy"
)

func TestCheck(t *testing.T) {
	if err := policy.Top().Check(); err != nil {
		t.Errorf("the top does not pass: %v", err)
	}
	if err := (policy.Policy{}).Check(); err != nil {
		t.Errorf("nothing does not pass: %v", err)
	}
	mount := func(source, target string, access policy.Rights) policy.Policy {
		return policy.Policy{Mounts: policy.Mounts{{Source: source, Target: target,
			Access: access}}}
	}
	rule := func(change func(*policy.FetchRule)) policy.Policy {
		r := policy.TopFetchRule()
		change(&r)
		return policy.Policy{Fetch: policy.Fetch{Allow: []policy.FetchRule{r}}}
	}
	denying := func(change func(*policy.FetchDeny)) policy.Policy {
		r := policy.DenyHost(policy.AnyHost)
		change(&r)
		return policy.Policy{Fetch: policy.Fetch{Deny: []policy.FetchDeny{r}}}
	}
	many := make([]string, 300)
	for i := range many {
		many[i] = fmt.Sprint("a", i)
	}
	for _, tt := range []struct {
		p   policy.Policy
		why string
	}{
		{policy.Policy{Workspace: policy.Workspace{Access: 9}}, "no value there is"},
		{policy.Policy{Workspace: policy.Workspace{Hide: []string{"../a"}}}, "workspace.hide"},
		{policy.Policy{Workspace: policy.Workspace{Protect: []string{"a//b"}}},
			"workspace.protect"},
		{policy.Policy{Workspace: policy.Workspace{Hide: many}}, "at most 256"},
		// T-126
		{mount("/usr", "", policy.Read|128), "grants nothing, or nothing that there is"},
		{mount("/usr", "usr", policy.Read), "clean absolute"},
		{mount("/usr", "/", policy.Read), "own root"},
		{mount("/usr", "/a/../b", policy.Read), "clean absolute"},
		{mount("/usr", "/a/", policy.Read), "clean absolute"},
		{mount("/usr", "/a//b", policy.Read), "clean absolute"},
		{mount("/usr", "/a\x00", policy.Read), "clean absolute"},
		{mount("~/x", "/a", policy.Read), "clean absolute"},
		{mount("/usr/*", "/a", policy.Read), "no pattern"},
		{mount("/usr", "/a/?", policy.Read), "no pattern"},
		{mount("$HOME", "/a", policy.Read), "clean absolute"},
		{mount("/a/../../etc", "/a", policy.Read), "clean absolute"},
		{mount("/usr", "/workspace", policy.Read), "makes itself"},
		{mount("/usr", "/workspace/a", policy.Read), "makes itself"},
		{mount("/usr", "/proc/self", policy.Read), "makes itself"},
		{mount("/usr", "/run", policy.Read), "would cover"},
		{mount("/proc", "/p", policy.Read), "more than files"},
		{mount("/sys/fs/cgroup", "/p", policy.Read), "more than files"},
		{mount("/dev/mem", "/p", policy.Read), "more than files"},
		{mount("", "/a", policy.Read), "source is missing"},
		{mount("/a", "/a", policy.Tmpfs), "no meaning for a tmpfs"},
		{mount("/a", "/a", 0), "grants nothing"},
		{policy.Policy{Mounts: policy.Mounts{{Source: "/a", Target: "/x", Access: policy.Read}, {Source: "/b", Target: "/x", Access: policy.Read}}},
			"shows something else"},
		{policy.Policy{Mounts: policy.Mounts{{Source: "/a", Target: "/x", Access: policy.Read},
			{Source: "/b", Target: "/x/y", Access: policy.Read}}}, "shows something else"},
		{policy.Policy{Mounts: policy.Mounts{{Source: "/a", Target: "/x", Access: policy.Read},
			{Source: "", Target: "/x/tmp", Access: policy.Tmpfs}}}, "shows something else"},
		{policy.Policy{Limits: policy.Limits{Memory: -1}}, "limits.memory is negative"},
		{policy.Policy{Fetch: policy.Fetch{Limits: policy.FetchLimits{Timeout: -1}}},
			"fetch.limits.timeout is negative"},
		{policy.Policy{Tools: policy.Tools{Allow: policy.MustGlobs("grep")}}, "tools.allow"},
		{policy.Policy{Tools: policy.Tools{Allow: policy.MustGlobs("a/b/c")}}, "tools.allow"},
		{policy.Policy{Tools: policy.Tools{Allow: policy.MustGlobs("/b")}}, "tools.allow"},
		{policy.Policy{Tools: policy.Tools{Allow: policy.Globs{{}}}}, "tools.allow"},
		{policy.Policy{Tools: policy.Tools{Modules: policy.MustGlobs("a/b.wasm")}},
			"matches no absolute path"},
		{policy.Policy{Tools: policy.Tools{Modules: policy.MustGlobs("/a/")}}, "ends with a slash"},
		{policy.Policy{Tools: policy.Tools{Native: policy.MustGlobs("git")}}, "no absolute path"},
		{policy.Policy{Tools: policy.Tools{Native: policy.MustGlobs("**/git")}},
			"no absolute path"},
		{policy.Policy{Tools: policy.Tools{Native: policy.MustGlobs("/usr/bin/")}},
			"ends with a slash"},
		{rule(func(r *policy.FetchRule) { r.Host = policy.Host{} }),
			"fetch.allow[0].host is missing"},
		{rule(func(r *policy.FetchRule) { r.Methods = policy.MustGlobs("get") }), "upper-case"},
		{rule(func(r *policy.FetchRule) { r.Methods = policy.MustGlobs("G*") }), "upper-case"},
		{rule(func(r *policy.FetchRule) { r.Methods = policy.MustGlobs("TRACE") }),
			"cannot be granted"},
		{rule(func(r *policy.FetchRule) { r.Paths = policy.MustGlobs("simple/**") }),
			"start with a slash"},
		{rule(func(r *policy.FetchRule) { r.Paths = policy.MustGlobs("/a%2fb") }), "%2f"},
		{rule(func(r *policy.FetchRule) { r.Credential = "a b" }), "credential"},
		{rule(func(r *policy.FetchRule) { r.Paths = policy.MustGlobs("**/x") }),
			"start with a slash"},
		{rule(func(r *policy.FetchRule) { r.Paths = policy.Globs{{}} }), "start with a slash"},
		{rule(func(r *policy.FetchRule) { r.Types = policy.MustGlobs("text") }),
			"fetch.allow[0].types: pattern \"text\" is no media type"},
		{rule(func(r *policy.FetchRule) { r.Types = policy.MustGlobs("text/html/x") }),
			"is no media type"},
		{rule(func(r *policy.FetchRule) { r.Types = policy.MustGlobs("text/html/**") }),
			"is no media type"},
		{rule(func(r *policy.FetchRule) { r.Types = policy.MustGlobs("Text/html") }),
			"is no media type"},
		{rule(func(r *policy.FetchRule) { r.Types = policy.Globs{{}} }), "is no media type"},
		{rule(func(r *policy.FetchRule) { r.TLS = 2 }), "fetch.allow[0].tls is no value there is"},
		{rule(func(r *policy.FetchRule) { r.Bounds.Rate = -1 }),
			"fetch.allow[0]: rate is negative"},
		{denying(func(r *policy.FetchDeny) { r.Host = policy.Host{} }),
			"fetch.deny[0].host is missing"},
		{denying(func(r *policy.FetchDeny) { r.Methods = policy.MustGlobs("get") }),
			"fetch.deny[0].methods"},
		{denying(func(r *policy.FetchDeny) { r.Paths = policy.MustGlobs("x") }),
			"fetch.deny[0].paths"},
		{policy.Policy{Fetch: policy.Fetch{Rate: -1}}, "fetch.limits.rate is negative"},
		{policy.Policy{Fetch: policy.Fetch{Mode: 2}}, "fetch.mode is no value there is"},
		{policy.Policy{Audit: policy.Audit{Files: 3}}, "audit.files is no value there is"},
		{policy.Policy{Workspace: policy.Workspace{Commit: 3}}, "no value there is"},
		{policy.Policy{Env: policy.Env{Pass: policy.MustGlobs("A/**")}}, "no name of a variable"},
		{policy.Policy{Env: policy.Env{Pass: policy.Globs{{}}}}, "no name of a variable"},
		{policy.Policy{Env: policy.Env{Set: policy.Vars{Values: map[string]string{"A=B": ""}}}},
			"env.set"},
		{policy.Policy{Env: policy.Env{Set: policy.Vars{Values: map[string]string{"A": "\x00"}}}},
			"NUL"},
		{policy.Policy{Env: policy.Env{Pass: policy.MustGlobs("A/B")}}, "no name of a variable"},
		{policy.Policy{Env: policy.Env{Allow: policy.MustGlobs("**")}}, "no name of a variable"},
		{policy.Policy{Syscalls: policy.Syscalls{Groups: []string{"all"}}},
			"there are loopback, native, wasi"},
	} {
		if err := tt.p.Check(); err == nil || !strings.Contains(err.Error(), tt.why) {
			t.Errorf("%s: %v, want an error with %q", tt.p, err, tt.why)
		}
	}
	for name, good := range map[string]policy.Policy{
		"the last words": {
			Workspace: policy.Workspace{Access: policy.WorkspaceShadow, Commit: policy.CommitAuto},
			Audit:     policy.Audit{Files: policy.FilesNone},
			Fetch:     policy.Fetch{Mode: policy.FetchReport},
		},
		"every type": rule(func(r *policy.FetchRule) { r.Types = policy.MustGlobs("**") }),
		"types": rule(func(r *policy.FetchRule) {
			r.Types = policy.MustGlobs("text/*", "application/vnd.x+json")
		}),
		"every path": rule(func(r *policy.FetchRule) { r.Paths = policy.MustGlobs("**") }),
		"a deny":     denying(func(*policy.FetchDeny) {}),
		"modules anywhere": {Tools: policy.Tools{Modules: policy.MustGlobs("**", "**/*.wasm",
			"/a/**")}},
		"programs anywhere":  {Tools: policy.Tools{Native: policy.MustGlobs("**", "/usr/**")}},
		"tools of any depth": {Tools: policy.Tools{Allow: policy.MustGlobs("**", "a/*", "*/b")}},
		"places unsaid": {Mounts: policy.Mounts{{Source: "/a", Target: "", Access: policy.Read},
			{Source: "/b", Target: "", Access: policy.Read}, {Source: "/c", Target: "/c", Access: policy.Read}, {Source: "", Target: "/tmp", Access: policy.Tmpfs}}},
	} {
		if err := good.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Two mounts at one place are reported once.
	twice := policy.Policy{Mounts: policy.Mounts{{Source: "/a", Target: "/x", Access: policy.Read},
		{Source: "/b", Target: "/x", Access: policy.Read}}}
	if err := twice.Check(); err == nil || strings.Contains(err.Error(), "\n") ||
		!strings.Contains(err.Error(), "mount[1]: target \"/x\" lies in mount[0]") {
		t.Errorf("two mounts at one place: %v", err)
	}
	nested := policy.Policy{Mounts: policy.Mounts{{Source: "/usr", Target: "/usr", Access: policy.Read},
		{Source: "/usr/bin", Target: "/usr/bin", Access: policy.Read | policy.Exec}}}
	if err := nested.Check(); err != nil {
		t.Errorf("a mount in another that shows the same: %v", err)
	}
}

// All that is wrong is said, not the first.
func TestCheckSaysAll(t *testing.T) {
	p := policy.Policy{Limits: policy.Limits{Memory: -1, PIDs: -1},
		Syscalls: policy.Syscalls{Groups: []string{"x", "y"}}}
	if got := strings.Count(p.Check().Error(), "\n") + 1; got != 4 {
		t.Errorf("%d things are wrong of 4: %v", got, p.Check())
	}
}

func TestWarnings(t *testing.T) {
	rule := func(pattern string, change func(*policy.FetchRule)) policy.Policy {
		r := policy.FetchRule{Host: host(t, pattern), Ports: policy.OnePort(443),
			Methods: policy.MustGlobs("GET"), Paths: policy.MustGlobs("/**")}
		change(&r)
		return policy.Policy{Fetch: policy.Fetch{Allow: []policy.FetchRule{r}}}
	}
	keep := func(*policy.FetchRule) {}
	mount := func(source string, access policy.Rights) policy.Policy {
		return policy.Policy{Mounts: policy.Mounts{{Source: source, Target: "/x", Access: access}}}
	}
	for _, tt := range []struct {
		p policy.Policy
		// A word of each warning.
		want []string
	}{
		{policy.Policy{}, nil},
		{rule("example.com", keep), nil},
		{rule("*.example.com", keep), nil},
		{rule("*", keep), []string{"any public host"}},
		{rule("*", func(r *policy.FetchRule) { r.Methods = policy.MustGlobs("*") }),
			[]string{"any public host", "change things"}},
		{rule("*.co.uk", keep), []string{"anyone may register"}},
		{rule("**.example.com", keep), []string{"names that it asks for"}},
		{rule("xn--e1afmkfd.example", keep), []string{"another script"}},
		{rule("example.com", func(r *policy.FetchRule) {
			r.Ports, r.Credential = policy.OnePort(80),
				"key"
		}), []string{"plain HTTP"}},
		{policy.Policy{Workspace: policy.Workspace{Access: policy.WorkspaceShadow,
			Commit: policy.CommitAuto}}, []string{"without anyone"}},
		{policy.Policy{Tools: policy.Tools{Native: policy.MustGlobs("/usr/bin/*")}},
			[]string{"any program"}},
		{policy.Policy{Tools: policy.Tools{Native: policy.MustGlobs("/usr/bin/git")}}, nil},
		{policy.Policy{Env: policy.Env{Pass: policy.MustGlobs("*")}}, []string{"secrets included"}},
		{policy.Policy{Env: policy.Env{Pass: policy.MustGlobs("TERM"),
			Allow: policy.MustGlobs("*")}}, nil},
		{mount("/usr", policy.Read|policy.Exec), nil},
		{mount("/data", policy.Read|policy.Write), []string{"writes to /data itself"}},
		{mount("/data", policy.Read|policy.Write|policy.Exec),
			[]string{"writes to /data itself", "it may run"}},
		{mount("/", policy.Read), []string{"whole host"}},
		{mount("/root/.ssh", policy.Read), []string{"holds keys"}},
		{mount("/run/docker.sock", policy.Read), []string{"sockets"}},
		{policy.Policy{Mounts: policy.Mounts{{Target: "/tmp", Access: policy.Tmpfs}}}, nil},
	} {
		got := resolve(t, policy.Layer{Name: "p", Policy: tt.p}).Warnings()
		if !slices.EqualFunc(got, tt.want, func(g, w string) bool {
			return strings.Contains(g, w)
		}) {
			t.Errorf("warnings are %q, want %q", got, tt.want)
		}
	}
}
