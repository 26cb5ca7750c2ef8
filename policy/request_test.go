package policy_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/policytest"
)

func TestEmptyRequestNarrowsNothing(t *testing.T) {
	if p := policy.NewRequest().Policy(); !policytest.Same(p, policy.Top()) {
		t.Errorf("an empty request is %s", p)
	}
}

func TestRequest(t *testing.T) {
	r := policy.NewRequest()
	for _, text := range []string{"memory=64MiB", "memory=128MiB", "wall=1s", "fetch.requests=3"} {
		if err := r.Limit(text); err != nil {
			t.Error(err)
		}
	}
	r.Workspace(policy.WorkspaceRead)
	if err := r.Fetch("Example.com"); err != nil {
		t.Error(err)
	}
	p := r.Policy()
	if p.Limits.Memory != 64<<20 || p.Limits.Wall != time.Second ||
		p.Limits.PIDs != policy.Unlimited || p.Fetch.Limits.Requests != 3 {
		t.Errorf("limits are %s, %s", p.Limits, p.Fetch.Limits)
	}
	if p.Workspace.Access != policy.WorkspaceRead || len(p.Fetch.Allow) != 1 ||
		p.Fetch.Allow[0].Host.String() != "example.com" {
		t.Errorf("request is %s", p)
	}
	if err := p.Check(); err != nil {
		t.Errorf("a request does not pass: %v", err)
	}
}

func TestRequestNoFetch(t *testing.T) {
	r := policy.NewRequest()
	if err := r.Fetch("example.com"); err != nil {
		t.Fatal(err)
	}
	r.NoFetch()
	if f := r.Policy().Fetch; len(f.Allow) != 0 || f.Mode != (policy.Fetch{}).Mode {
		t.Errorf("%+v", f)
	}
	r = policy.NewRequest()
	for _, limit := range []string{"fetch.requests=0", "fetch.requests=5"} {
		if err := r.Limit(limit); err != nil {
			t.Fatal(err)
		}
	}
	if f := r.Policy().Fetch; len(f.Allow) != 0 {
		t.Errorf("no requests: %+v", f)
	}
}

func TestRequestWorkspace(t *testing.T) {
	r := policy.NewRequest()
	r.Workspace(policy.WorkspaceNone)
	if got := r.Policy().Workspace; got.Access != policy.WorkspaceNone {
		t.Errorf("workspace is %s", got)
	}
}

func TestRequestErrors(t *testing.T) {
	r := policy.NewRequest()
	for _, text := range []string{"", "memory", "memory=", "memory=64", "memory=-1B", "memory=0B",
		"nothing=1", "fetch.nothing=1", "fetch.requests=x", "Memory=1MiB"} {
		if err := r.Limit(text); err == nil {
			t.Errorf("limit %q is let through", text)
		}
	}
	for _, text := range []string{"", "*.com", "http://x.test", "1.2.3.4", "x.test:80"} {
		if err := r.Fetch(text); err == nil {
			t.Errorf("host %q is let through", text)
		}
	}
	for _, text := range []string{"", "A", "=x", "A B=x", "A=\x00", "A*=x",
		"A=" + strings.Repeat("x", 200<<10)} {
		if err := r.Env(text); err == nil {
			t.Errorf("variable %.20q is let through", text)
		}
	}
	if p := r.Policy(); !policytest.Same(p, policy.Top()) || len(r.Given()) != 0 {
		t.Errorf("what was refused has left %s", p)
	}
}

// Whatever is asked for, the profile and the ceiling stay above it.
func TestRequestOnlyNarrows(t *testing.T) {
	valid := policytest.Checked()
	rapid.Check(t, func(t *rapid.T) {
		profile := valid.Draw(t, "profile")
		r := policy.NewRequest()
		if rapid.Bool().Draw(t, "limit") {
			_ = r.Limit("memory=1024TiB")
		}
		for _, h := range rapid.SliceOfN(rapid.SampledFrom([]string{"*", "a.example.com",
			"**.evil.test"}), 0, 3).Draw(t, "hosts") {
			_ = r.Fetch(h)
		}
		r.Workspace(rapid.SampledFrom([]policy.WorkspaceAccess{policy.WorkspaceNone,
			policy.WorkspaceRead, policy.WorkspaceShadow}).Draw(t, "access"))
		eff, err := policy.Resolve(policy.Layer{Name: "profile", Policy: profile},
			policy.Layer{Name: "request", Policy: r.Policy()})
		if err != nil {
			t.Fatal(err)
		}
		if !eff.Policy().LessEq(profile) {
			t.Fatalf("%s\nis wider than\n%s", eff, profile)
		}
	})
}

// T-087: the environment is what the policy names, and nothing else.
func TestEnviron(t *testing.T) {
	e := policy.Env{
		Set: policy.Vars{Values: map[string]string{"LANG": "C.UTF-8", "TERM": "dumb",
			"APP": "policy"}},
		Pass:  policy.MustGlobs("TERM", "LC_*"),
		Allow: policy.MustGlobs("APP*"),
	}
	inherited := map[string]string{
		"TERM": "xterm", "LC_ALL": "C", "LC_BAD": "a\x00b", "HOME": "/root", "LD_PRELOAD": "/x.so",
		"AWS_SECRET_ACCESS_KEY": "s",
		"BASH_ENV":              "/x", "GIT_SSH_COMMAND": "x", "PATH": "/bin", "": "x",
		"APP": "caller",
	}
	environ, refused := e.Environ(map[string]string{"APP": "given", "LD_PRELOAD": "/y.so",
		"APP_X": "\x00"}, inherited)
	if want := []string{"APP=given", "LANG=C.UTF-8", "LC_ALL=C",
		"TERM=xterm"}; !slices.Equal(environ, want) {
		t.Errorf("environment is %q, want %q", environ, want)
	}
	if want := []string{"APP_X", "LD_PRELOAD"}; !slices.Equal(refused, want) {
		t.Errorf("refused are %q, want %q", refused, want)
	}
	if environ, refused := (policy.Env{}).Environ(map[string]string{"A": "1"},
		inherited); len(environ) != 0 || len(refused) != 1 {
		t.Errorf("no policy gives %q, and refuses %q", environ, refused)
	}
	r := policy.NewRequest()
	if err := r.Env("A=b=c"); err != nil || r.Given()["A"] != "b=c" {
		t.Errorf("A is %q, %v", r.Given()["A"], err)
	}
}

func TestStrings(t *testing.T) {
	if got := (policy.Policy{}).String(); strings.Count(got, "\n") != 9 || !strings.Contains(got,
		"tools: allow ∅") {
		t.Errorf("nothing is shown as %s", got)
	}
	for _, tt := range [][2]string{
		{policy.Rights(0).String(), "∅"}, {policy.Exec.String(), "exec"},
		{policy.AllRights.String(), "read|exec|write|tmpfs|cache"},
		{(policy.Read | policy.Exec).String(), "read+exec"},
		{policy.WorkspaceAccess(7).String(), "invalid(7)"},
		{policy.TopEnv().String(), "set any pass [*] allow [*]"},
		{policy.TopSyscalls().String(), "[loopback native wasi]"},
	} {
		if tt[0] != tt[1] {
			t.Errorf("%q, want %q", tt[0], tt[1])
		}
	}
	if len(policy.SyscallGroups()) != 3 || len(policy.Rights(0).Choices()) != 6 ||
		len(policy.CommitRule(0).Choices()) != 3 || len(policy.WorkspaceAccess(0).Choices()) != 3 {
		t.Error("a list of words is wrong")
	}
}
