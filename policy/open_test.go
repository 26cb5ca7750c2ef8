package policy_test

import (
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/policy"
)

// rightsOf asks for each right by itself, and says which are granted: "r", "rx", "rw", "".
func rightsOf(eff policy.Effective, path string) string {
	out := ""
	for _, one := range []struct {
		right policy.Rights
		name  string
	}{{policy.Read, "r"}, {policy.Exec, "x"}, {policy.Write, "w"}} {
		if eff.Decide(policy.Open{Path: path, Want: one.right}).Allowed {
			out += one.name
		}
	}
	return out
}

// Rights on a path are the union of what the mounts at it and above it grant.
func TestRightsAreAUnion(t *testing.T) {
	eff := resolve(t, policy.Layer{Name: "profile", Policy: policy.Policy{Mounts: policy.Mounts{
		{Source: "/usr", Target: "/usr", Access: policy.Read},
		{Source: "/usr/bin", Target: "/usr/bin", Access: policy.Read | policy.Exec},
		{Source: "/usr/local/var", Target: "/usr/local/var", Access: policy.Read | policy.Write},
		{Source: "/srv/data", Target: "/data", Access: policy.Read | policy.Exec | policy.Write},
		{Source: "/etc/hosts", Target: "/etc/hosts", Access: policy.Read},
		{Target: "/tmp", Access: policy.Tmpfs},
	}}})
	for path, want := range map[string]string{
		"/usr":             "r",
		"/usr/share/dict":  "r",
		"/usr/bin":         "rx",
		"/usr/bin/git":     "rx",
		"/usr/binary":      "r",
		"/usr/local":       "r",
		"/usr/local/var/x": "rw",
		"/usrlocal":        "",
		"/data":            "rxw",
		"/data/a/b":        "rxw",
		// The path in the jail counts, not that on the host.
		"/srv/data":  "",
		"/etc/hosts": "r",
		// What lies above a mount is not granted by it.
		"/etc":                 "",
		"/etc/hosts.allow":     "",
		"/tmp":                 "rw",
		"/tmp/a":               "rw",
		"/":                    "",
		"/workspace":           "",
		"/workspace/a":         "",
		"relative":             "",
		"":                     "",
		"/usr/":                "",
		"/usr/../etc/hosts":    "",
		"/usr/./bin":           "",
		"//usr":                "",
		"/usr/share\x00/x":     "",
		"/usr/bin/../../data/": "",
	} {
		if got := rightsOf(eff, path); got != want {
			t.Errorf("rights on %q are %q, want %q", path, got, want)
		}
	}
}

// Several rights at once are granted where each of them is, by whichever mount.
func TestRightsTogether(t *testing.T) {
	eff := resolve(t, policy.Layer{Name: "profile", Policy: policy.Policy{Mounts: policy.Mounts{
		{Source: "/a", Target: "/a", Access: policy.Read | policy.Exec},
		{Source: "/a/b", Target: "/a/b", Access: policy.Read | policy.Write},
	}}})
	all := policy.Read | policy.Exec | policy.Write
	if d := eff.Decide(policy.Open{Path: "/a/b/c", Want: all}); !d.Allowed || strings.Count(d.Rule,
		"from") != 2 {
		t.Errorf("two mounts together: %+v", d)
	}
	if d := eff.Decide(policy.Open{Path: "/a/c", Want: all}); d.Allowed {
		t.Errorf("one of them: %+v", d)
	}
}

// Two layers that mount different things at one place grant neither, though each grants
// its own.
func TestMountsOfTwoLayersMustAgree(t *testing.T) {
	layer := func(name, source string) policy.Layer {
		return policy.Layer{Name: name, Source: name + ".toml",
			Policy: policy.Policy{Mounts: policy.Mounts{{Source: source, Target: "/data",
				Access: policy.Read}}}}
	}
	q := policy.Open{Path: "/data/x", Want: policy.Read}
	if d := resolve(t, layer("ceiling", "/a"), layer("profile", "/a")).Decide(q); !d.Allowed {
		t.Errorf("the same source: %+v", d)
	}
	d := resolve(t, layer("ceiling", "/a"), layer("profile", "/b")).Decide(q)
	if d.Allowed || d.Layer != "profile" || d.Source != "profile.toml" || d.Rule == "" {
		t.Errorf("another source: %+v", d)
	}
}

// A ceiling that names a source without a place limits what a profile mounts, and where
// the ceiling is deeper than the profile, only that part is left.
func TestCeilingOfMounts(t *testing.T) {
	ceiling := policy.Top()
	ceiling.Mounts = policy.Mounts{{Source: "/usr/share", Access: policy.Read}}
	profile := policy.Policy{Mounts: policy.Mounts{
		{Source: "/usr", Target: "/host", Access: policy.Read | policy.Exec},
		{Source: "/usr/share/dict", Target: "/dict", Access: policy.Read | policy.Write},
		{Source: "/etc", Target: "/etc", Access: policy.Read},
		{Target: "/tmp", Access: policy.Tmpfs},
	}}
	eff := resolve(t, policy.Layer{Name: "ceiling", Policy: ceiling},
		policy.Layer{Name: "profile", Policy: profile})
	if got, want := eff.Policy().Mounts.String(),
		"[/dict from /usr/share/dict read /host/share from /usr/share read]"; got != want {
		t.Errorf("mounts are %s, want %s", got, want)
	}
	for path, want := range map[string]string{"/host/share/x": "r", "/host/bin": "",
		"/dict/words": "r", "/etc/passwd": "", "/tmp/x": ""} {
		if got := rightsOf(eff, path); got != want {
			t.Errorf("rights on %q are %q, want %q", path, got, want)
		}
	}
}

func TestWorkspaceRights(t *testing.T) {
	native := policy.MustGlobs("/workspace/bin/*", "/usr/bin/git")
	for _, tt := range []struct {
		name string
		p    policy.Policy
		want map[string]string
	}{
		{"none", policy.Policy{Tools: policy.Tools{Native: native}},
			map[string]string{"/workspace": "", "/workspace/bin/x": ""}},
		{"read", policy.Policy{Workspace: policy.Workspace{Access: policy.WorkspaceRead}},
			map[string]string{"/workspace": "r", "/workspace/a/b": "r", "/workspaces": ""}},
		{"shadow", policy.Policy{Workspace: policy.Workspace{Access: policy.WorkspaceShadow}},
			map[string]string{"/workspace": "rw", "/workspace/a": "rw"}},
		{
			"programs of the workspace may run where the policy names them",
			policy.Policy{Workspace: policy.Workspace{Access: policy.WorkspaceShadow},
				Tools: policy.Tools{Native: native}},
			map[string]string{"/workspace/bin/x": "rxw", "/workspace/x": "rw",
				"/workspace/bin/x/y": "rw"},
		},
		{
			"what is hidden is not there, by no right, whatever is granted",
			policy.Policy{Workspace: policy.Workspace{Access: policy.WorkspaceShadow,
				Hide: []string{".env", "bin/secret"}}, Tools: policy.Tools{Native: native}},
			map[string]string{"/workspace/.env": "", "/workspace/a/.env": "",
				"/workspace/a/.env/b": "", "/workspace/bin/secret": "",
				"/workspace/bin/other": "rxw", "/workspace/.envrc": "rw", "/workspace": "rw"},
		},
	} {
		eff := resolve(t, policy.Layer{Name: "profile", Policy: tt.p})
		for path, want := range tt.want {
			if got := rightsOf(eff, path); got != want {
				t.Errorf("%s: rights on %q are %q, want %q", tt.name, path, got, want)
			}
		}
	}
}

// A hole that any layer makes stays a hole.
func TestHolesAddUp(t *testing.T) {
	layer := func(name string, hide ...string) policy.Layer {
		p := policy.Top()
		p.Workspace.Hide = hide
		return policy.Layer{Name: name, Source: name + ".toml", Policy: p}
	}
	eff := resolve(t, layer("ceiling", "a"), layer("profile", "b"), layer("request", "c"))
	for path, want := range map[string]string{"/workspace/a": "ceiling",
		"/workspace/x/b": "profile", "/workspace/c/d": "request"} {
		if d := eff.Decide(policy.Open{Path: path, Want: policy.Read}); d.Allowed ||
			d.Layer != want || !strings.HasPrefix(d.Rule, "workspace.hide ") {
			t.Errorf("%s: %+v, want a no of %s", path, d, want)
		}
	}
	if d := eff.Decide(policy.Open{Path: "/workspace/d", Want: policy.Read}); !d.Allowed {
		t.Errorf("what no layer hides: %+v", d)
	}
}
