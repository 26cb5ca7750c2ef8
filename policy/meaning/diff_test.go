package meaning

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/policytest"
)

func resolve(t *rapid.T, p policy.Policy) policy.Effective {
	eff, err := policy.Resolve(policy.Layer{Name: "test", Policy: p})
	if err != nil {
		t.Fatal(err)
	}
	return eff
}

// near draws two policies that differ in few parts, or in none.
func near(t *rapid.T) (a, b policy.Policy) {
	a, other := policytest.Valid().Draw(t, "a"), policytest.Valid().Draw(t, "other")
	b = a
	switch rapid.IntRange(0, 6).Draw(t, "part") {
	case 0:
		b = other
	case 1:
		b.Fetch = other.Fetch
	case 2:
		b.Workspace = other.Workspace
	case 3:
		b.Tools = other.Tools
	case 4:
		b.Mounts = other.Mounts
	case 5:
		b.Env = other.Env
	}
	return a.Normal(), b.Normal()
}

func question(t *rapid.T) policy.Question {
	path := policytest.Path().Draw(t, "path")
	abs := rapid.SampledFrom([]string{"/data", "/data/a", "/data/a/b/c", "/usr", "/usr/bin/git",
		"/usr/share/x", "/opt/a.wasm", "/tmp/x",
		"/workspace/.env", "/workspace/a/x.pem", "/workspace/secret/y", "/workspace/" + path,
		"/" + path}).Draw(t, "abs")
	host := rapid.SampledFrom([]string{"example.com", "a.example.com", "b.a.example.com",
		"c.b.a.example.com", "evil-example.com",
		"example.com.evil.test", "x.evil.test", "elsewhere.org"}).Draw(t, "host")
	connect := policy.Connect{Host: host,
		Port: rapid.SampledFrom([]uint16{1, 80, 84, 90, 95, 101, 443, 444, 65535}).Draw(t, "port")}
	switch rapid.IntRange(0, 9).Draw(t, "kind") {
	case 0:
		return policy.Open{Path: abs, Want: rapid.SampledFrom([]policy.Rights{policy.Read,
			policy.Write, policy.Exec}).Draw(t, "want")}
	case 1:
		name := rapid.SampledFrom([]string{"core-utils", "python", "grep", "a"})
		return policy.Tool{Bundle: name.Draw(t, "bundle"), Command: name.Draw(t, "command")}
	case 2:
		return policy.Module{Path: abs}
	case 3:
		return policy.Native{Path: abs}
	case 4:
		return policy.Commit{Path: rapid.SampledFrom([]string{".env", "a/x.pem", "secret/y",
			"SECRET", "build/out/z", ".git/config", path}).Draw(t, "commit")}
	case 5:
		return policy.EnvVar{Name: rapid.SampledFrom([]string{"TERM", "LC_ALL", "LC_X", "MY_ALL",
			"A"}).Draw(t, "env")}
	case 6:
		connect.Tunnel = true
		return connect
	case 7:
		return connect
	}
	connect.Method = rapid.SampledFrom([]string{"GET", "HEAD", "POST", "PUT"}).Draw(t, "method")
	connect.Path = rapid.SampledFrom([]string{"/", "/a", "/simple/a", "/simple/b", "/simple/x/a",
		"/x"}).Draw(t, "url")
	connect.WebSocket = rapid.Bool().Draw(t, "websocket")
	return connect
}

// diff is DiffLayers for policies without sections of single tools.
func diff(a, b policy.Policy) (Difference, error) {
	d := &differ{seen: map[string]bool{}, out: Difference{Exact: true, Changes: []Change{}}}
	err := d.compare(a, b)
	return d.out, err
}

// What any question finds, the difference says, and in the right direction; what it says, its own
// question finds.
func TestDiffIsWhatDecideSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := near(t)
		d, err := diff(a, b)
		if err != nil {
			t.Fatal(err)
		}
		if !d.Exact {
			t.Skip("too many states")
		}
		ea, eb := resolve(t, a), resolve(t, b)
		for range 40 {
			q := question(t)
			x, y := ea.Decide(q), eb.Decide(q)
			if level(x) < level(y) && !d.Has(Wider) || level(x) > level(y) && !d.Has(Narrower) ||
				x.Credential != y.Credential && len(d.Changes) == 0 {
				t.Fatalf("%s: %+v and %+v, but the difference is %+v\na = %s\nb = %s", q, x, y,
					d.Changes, a, b)
			}
		}
		for _, c := range d.Changes {
			if c.Question == nil || c.Rule == "" || c.Part == "credential" || c.Part == "limit" ||
				strings.HasPrefix(c.What, "receive ") {
				continue
			}
			x, y := level(ea.Decide(c.Question)), level(eb.Decide(c.Question))
			if c.Way == Wider && x >= y || c.Way == Narrower && x <= y {
				t.Fatalf("%+v: %d and %d", c, x, y)
			}
		}
	})
}

// A policy that was written another way is no other policy.
func TestDiffOfTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := policytest.Valid().Draw(t, "a")
		b := a
		b.Fetch.Allow = nil
		// A rule for each range of ports and each method.
		for _, r := range a.Fetch.Allow {
			for _, p := range r.Ports {
				for _, m := range r.Methods {
					one := r
					one.Ports, one.Methods = policy.Ports{p}, policy.Globs{m}
					b.Fetch.Allow = append(b.Fetch.Allow, one)
				}
			}
		}
		// ** is its names of one segment and all others
		if len(a.Tools.Modules) > 0 {
			b.Tools.Modules = nil
			for _, g := range a.Tools.Modules {
				if g.String() == "**" {
					b.Tools.Modules = append(b.Tools.Modules, policy.MustGlobs("/*", "/*/*/**")...)
				} else {
					b.Tools.Modules = append(b.Tools.Modules, g)
				}
			}
		}
		// A rule without its own TLS tunnel for every method is no longer one for every request.
		for _, r := range a.Fetch.Allow {
			if r.TLS == policy.TLSOpaque {
				b.Fetch.Allow = a.Fetch.Allow
			}
			// Then the order of rules counts.
			if len(r.Types) > 0 || r.Credential != "" || r.Bounds != (policy.FetchBounds{}) {
				b.Fetch.Allow = a.Fetch.Allow
			}
		}
		d, err := diff(a, b)
		if err != nil || len(d.Changes) > 0 {
			t.Fatalf("%v, %+v\na = %s\nb = %s", err, d.Changes, a, b)
		}
	})
}

// anywhere counts the mounts for which the policy names no place, as a ceiling may.
func anywhere(p policy.Policy) (n int) {
	for _, m := range p.Mounts {
		if m.Target == "" {
			n++
		}
	}
	return n
}

// What a ceiling leaves of a policy is never wider.
func TestDiffOfMeet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, c := policytest.Valid().Draw(t, "a"), policytest.Valid().Draw(t, "ceiling")
		m := a.Meet(c)
		if m.Check() != nil || anywhere(a) > 0 {
			t.Skip("two mounts that contradict each other, or one of which only a ceiling is " +
				"made: it names no place")
		}
		d, err := diff(a, m)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range d.Changes {
			// Two rules that attach two credentials refuse what each alone grants, and of two rules
			// that grant a request the first by name counts: so less can be more, of one request.
			if w.Way == Wider && w.Part != "connect" && w.Part != "credential" &&
				w.Part != "limit" {
				t.Fatalf("%+v\na = %s\nm = %s", w, a, m)
			}
		}
	})
}

// A cache of any name, as a ceiling grants it, is more than one by name.
func TestDiffOfCaches(t *testing.T) {
	with := func(names ...string) (p policy.Policy) {
		for _, name := range names {
			p.Mounts = append(p.Mounts, policy.Mount{Target: "/data", Access: policy.Cache,
				Name: name, Size: 1 << 20})
		}
		return p
	}
	for _, tt := range []struct {
		a, b            policy.Policy
		wider, narrower bool
	}{
		{with(""), with(""), false, false},
		{with(""), with("npm"), false, true},
		{with("npm"), with(""), true, false},
		{with("npm"), with("go-build"), true, true},
	} {
		d, err := diff(tt.a, tt.b)
		if err != nil {
			t.Fatal(err)
		}
		if d.Has(Wider) != tt.wider || d.Has(Narrower) != tt.narrower {
			t.Errorf("%s, then %s: %+v", tt.a.Mounts, tt.b.Mounts, d.Changes)
		}
	}
}

// What a difference is called, by examples that a person would judge.
func TestDiffMeans(t *testing.T) {
	base := policy.Policy{
		Workspace: policy.Workspace{Access: policy.WorkspaceShadow, Hide: []string{".env"},
			Commit: policy.CommitAsk},
		Mounts: policy.Mounts{{Source: "/usr", Target: "/usr", Access: policy.Read | policy.Exec}},
		Tools: policy.Tools{Allow: policy.MustGlobs("core-utils/*"),
			Native: policy.MustGlobs("/usr/bin/*")},
		Syscalls: policy.Syscalls{Groups: []string{"wasi", "native"}},
		Limits:   policy.TopLimits(),
		Env:      policy.Env{Allow: policy.MustGlobs("LC_*"), Pass: policy.MustGlobs("TERM")},
	}
	for name, tt := range map[string]struct {
		change func(*policy.Policy)
		// Of each change: way, part and what.
		want []string
	}{
		"nothing": {func(*policy.Policy) {}, nil},
		"hidden no more": {func(p *policy.Policy) { p.Workspace.Hide = nil },
			[]string{"wider read", "wider write", "wider commit"}},
		"protected": {func(p *policy.Policy) { p.Workspace.Protect = []string{"Makefile"} },
			[]string{"narrower commit"}},
		"protected already": {func(p *policy.Policy) { p.Workspace.Protect = []string{".bashrc"} },
			nil},
		"read only": {func(p *policy.Policy) { p.Workspace.Access = policy.WorkspaceRead },
			[]string{"narrower write", "narrower commit"}},
		"another source": {func(p *policy.Policy) { p.Mounts[0].Source = "/opt" },
			[]string{"wider read see /opt", "narrower read see /usr"}},
		"one tool less": {func(p *policy.Policy) {
			p.Tools.Allow = policy.MustGlobs("core-utils/grep")
		}, []string{"narrower tool"}},
		"another program": {func(p *policy.Policy) {
			p.Tools.Native = append(p.Tools.Native, policy.MustGlob("/opt/x"))
		},
			[]string{"wider program"}},
		"a limit": {func(p *policy.Policy) { p.Limits.Memory = 1 << 20 },
			[]string{"narrower limit use 1MiB of memory"}},
		"a variable": {func(p *policy.Policy) { p.Env.Pass = policy.MustGlobs("TERM", "HOME") },
			[]string{"wider env see the caller's variable HOME"}},
		"no more wasi": {func(p *policy.Policy) { p.Syscalls.Groups = []string{"native"} },
			[]string{"narrower tool", "narrower syscalls"}},
		"unwatched": {func(p *policy.Policy) { p.Audit = policy.TopAudit() },
			[]string{"wider audit open files without a record"}},
	} {
		b := base
		b.Mounts = append(policy.Mounts{}, base.Mounts...)
		tt.change(&b)
		d, err := diff(base, b)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range d.Changes {
			got = append(got, c.Way+" "+c.Part+" "+c.What)
		}
		if len(got) != len(tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
			continue
		}
		for i := range got {
			if !strings.HasPrefix(got[i], tt.want[i]) {
				t.Errorf("%s: %q, want %q", name, got[i], tt.want[i])
			}
		}
	}
}
