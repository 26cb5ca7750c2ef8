package policy_test

import (
	"testing"
	"time"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/policytest"
)

func host(t *testing.T, text string) policy.Host {
	t.Helper()
	h, err := policy.ParseHost(text)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestGlobsMean(t *testing.T) {
	g := policy.MustGlobs
	policytest.Meanings(t, []policytest.Meaning[policy.Globs]{
		{Name: "nothing is less than something", Less: nil, More: g("a")},
		{Name: "a name is less than a star", Less: g("core-utils/grep"), More: g("core-utils/*")},
		{Name: "a star is less than two", Less: g("core-utils/*"), More: g("**")},
		{Name: "one item is less than two", Less: g("a"), More: g("a", "b")},
		{Name: "two stars more than one", Less: g("a/*/b"), More: g("a/**/b")},
		{Name: "a fixed beginning is less", Less: g("/opt/**/*.wasm"), More: g("**/*.wasm")},
		{Name: "a star with text is less than one alone", Less: g("lib*"), More: g("*")},
		{Name: "beginning and end", Less: g("/opt/**"), More: g("**/*.wasm"), Apart: true,
			Both: g("/opt/**/*.wasm")},
		{Name: "different names", Less: g("a"), More: g("b"), Apart: true},
		{Name: "different depth", Less: g("a/*"), More: g("*"), Apart: true},
		{Name: "text that overlaps", Less: g("ab*"), More: g("*bc"), Apart: true,
			Both: g("ab*bc", "abc")},
		{Name: "text that overlaps before two stars", Less: g("ab*/**"), More: g("*bc/**"),
			Apart: true, Both: g("ab*bc/**", "abc/**")},
		{Name: "segments that overlap", Less: g("a/**"), More: g("**/*a"), Apart: true,
			Both: g("a/**/*a", "a")},
		{Name: "lists that share an item", Less: g("a", "b"), More: g("b", "c"), Apart: true,
			Both: g("b")},
		{Name: "free stars beside two stars", Less: g("a/**/*/*"), More: g("a/*/**")},
	})
}

func TestHostMeans(t *testing.T) {
	h := func(s string) policy.Host { return host(t, s) }
	policytest.Meanings(t, []policytest.Meaning[policy.Host]{
		{Name: "nothing is less than a name", Less: policy.Host{}, More: h("example.com")},
		{Name: "a name is less than any", Less: h("example.com"), More: policy.AnyHost},
		{Name: "a name one below", Less: h("a.example.com"), More: h("*.example.com")},
		{Name: "a name two below", Less: h("b.a.example.com"), More: h("**.example.com")},
		{Name: "one label is less than any number", Less: h("*.example.com"),
			More: h("**.example.com")},
		{Name: "below a name below", Less: h("**.a.example.com"), More: h("**.example.com")},
		{Name: "one label below a name below", Less: h("*.a.example.com"),
			More: h("**.example.com")},
		{Name: "the apex is not below itself", Less: h("example.com"), More: h("*.example.com"),
			Apart: true},
		{Name: "nor with two stars", Less: h("example.com"), More: h("**.example.com"),
			Apart: true},
		{Name: "two labels are not one", Less: h("b.a.example.com"), More: h("*.example.com"),
			Apart: true},
		{Name: "a suffix is not a label", Less: h("evil-example.com"), More: h("**.example.com"),
			Apart: true},
		{Name: "a prefix is not a label", Less: h("example.com.evil.test"),
			More: h("**.example.com"), Apart: true},
		{Name: "stars one label apart", Less: h("*.a.example.com"), More: h("*.example.com"),
			Apart: true},
	})
}

func TestPortsMean(t *testing.T) {
	policytest.Meanings(t, []policytest.Meaning[policy.Ports]{
		{Name: "nothing is less than a port", Less: nil, More: policy.OnePort(443)},
		{Name: "a port is less than all", Less: policy.OnePort(443), More: policy.AllPorts()},
		{Name: "a port in a range", Less: policy.OnePort(85),
			More: policy.Ports{{Low: 80, High: 90}}},
		{Name: "ranges that touch are one", Less: policy.Ports{{Low: 85, High: 95}},
			More: policy.Ports{{Low: 80, High: 90}, {Low: 91, High: 99}}},
		{Name: "ranges that overlap", Less: policy.Ports{{Low: 80, High: 90}},
			More: policy.Ports{{Low: 85, High: 99}}, Apart: true, Both: policy.Ports{{Low: 85,
				High: 90}}},
		{Name: "http is not https", Less: policy.OnePort(80), More: policy.OnePort(443),
			Apart: true},
		{Name: "port 0 is none", Less: policy.Ports{{Low: 0, High: 0}}, More: policy.OnePort(1)},
	})
}

func TestFetchMeans(t *testing.T) {
	limits := policy.FetchLimits{Requests: 10, BytesIn: 10, BytesOut: 10, Concurrent: 1,
		Timeout: time.Second}
	with := func(change func(*policy.FetchRule)) policy.Fetch {
		r := policy.FetchRule{
			Host: host(t, "*.example.com"), Ports: policy.Ports{{Low: 80, High: 443}},
			Methods: policy.MustGlobs("GET", "POST"), Paths: policy.MustGlobs("/a/**"),
			Credential: "one",
		}
		change(&r)
		return policy.Fetch{Allow: []policy.FetchRule{r}, Limits: limits}
	}
	same := with(func(*policy.FetchRule) {})
	fewer := same
	fewer.Limits.Requests = 9
	two := policy.Fetch{Allow: append(same.Allow, with(func(r *policy.FetchRule) {
		r.Host = host(t, "other.test")
	}).Allow...), Limits: limits}
	but := func(change func(*policy.Fetch)) policy.Fetch { f := same; change(&f); return f }
	deny := func(change func(*policy.FetchDeny)) policy.Fetch {
		r := policy.DenyHost(host(t, "a.example.com"))
		change(&r)
		return but(func(f *policy.Fetch) { f.Deny = []policy.FetchDeny{r} })
	}
	denied := deny(func(*policy.FetchDeny) {})
	rate := func(n int64) policy.Fetch { return but(func(f *policy.Fetch) { f.Rate = n }) }
	report := but(func(f *policy.Fetch) { f.Mode = policy.FetchReport })
	types := func(texts ...string) policy.Fetch {
		return with(func(r *policy.FetchRule) { r.Types = policy.MustGlobs(texts...) })
	}
	table := []policytest.Meaning[policy.Fetch]{
		{Name: "a host that is denied", Less: denied, More: same},
		{Name: "one that is denied whole, and in part", Less: denied,
			More: deny(func(r *policy.FetchDeny) { r.Methods = policy.MustGlobs("POST") })},
		{Name: "denied at one port, and at all", Less: denied,
			More: deny(func(r *policy.FetchDeny) { r.Ports = policy.OnePort(80) })},
		{Name: "denied some paths, and all", Less: denied,
			More: deny(func(r *policy.FetchDeny) { r.Paths = policy.MustGlobs("/a/b/**") })},
		{Name: "all below denied, and one", Less: deny(func(r *policy.FetchDeny) {
			r.Host = host(t, "*.example.com")
		}), More: denied},
		{Name: "a deny of no host takes nothing",
			Less: deny(func(r *policy.FetchDeny) { r.Host = policy.Host{} }), More: same,
			Same: true},
		{Name: "a deny at no port takes nothing",
			Less: deny(func(r *policy.FetchDeny) { r.Ports = nil }), More: same, Same: true},
		{Name: "a deny of no method takes nothing",
			Less: deny(func(r *policy.FetchDeny) { r.Methods = nil }), More: same, Same: true},
		{Name: "a deny of no path takes nothing",
			Less: deny(func(r *policy.FetchDeny) { r.Paths = nil }), More: same, Same: true},
		{
			Name: "what either denies", Less: denied,
			More:  deny(func(r *policy.FetchDeny) { r.Host = host(t, "b.example.com") }),
			Apart: true,
			Both: but(func(f *policy.Fetch) {
				f.Deny = []policy.FetchDeny{policy.DenyHost(host(t, "a.example.com")),
					policy.DenyHost(host(t, "b.example.com"))}
			}),
		},
		{Name: "a rule of no host grants nothing",
			Less: with(func(r *policy.FetchRule) { r.Host = policy.Host{} }), More: policy.Fetch{},
			Same: true},
		{Name: "a rule of no port grants nothing",
			Less: with(func(r *policy.FetchRule) { r.Ports = nil }), More: policy.Fetch{},
			Same: true},
		{Name: "a rule of no method grants nothing",
			Less: with(func(r *policy.FetchRule) { r.Methods = nil }), More: policy.Fetch{},
			Same: true},
		{Name: "a rule of no path grants nothing",
			Less: with(func(r *policy.FetchRule) { r.Paths = nil }), More: policy.Fetch{},
			Same: true},
		{Name: "a rate is less than none", Less: rate(5), More: same},
		{Name: "a smaller rate", Less: rate(4), More: rate(5)},
		{Name: "no rate is no bound, however it is written", Less: rate(-1), More: same,
			Same: true},
		{Name: "to refuse is less than to report", Less: same, More: report},
		{Name: "to report nothing is nothing", Less: policy.Fetch{Mode: policy.FetchReport},
			More: policy.Fetch{}, Same: true},
		{Name: "some types of answers", Less: types("text/*"), More: same},
		{Name: "one type of some", Less: types("text/html"), More: types("text/*")},
		{Name: "every type, named", Less: types("**"), More: same, Same: true},
		{Name: "types that share nothing", Less: types("text/*"), More: types("image/*"),
			Apart: true},
		{Name: "no stream", Less: same,
			More: with(func(r *policy.FetchRule) { r.WebSocket = true })},
		{Name: "TLS that is seen", Less: same,
			More: with(func(r *policy.FetchRule) { r.TLS = policy.TLSOpaque })},
		{Name: "nothing", Less: policy.Fetch{}, More: same},
		{Name: "limits alone grant nothing", Less: policy.Fetch{Limits: policy.TopFetchLimits()},
			More: same},
		{Name: "fewer requests", Less: fewer, More: same},
		{Name: "one host of many", Less: with(func(r *policy.FetchRule) {
			r.Host = host(t, "a.example.com")
		}), More: same},
		{Name: "one port of many",
			Less: with(func(r *policy.FetchRule) { r.Ports = policy.OnePort(443) }), More: same},
		{Name: "one method of two",
			Less: with(func(r *policy.FetchRule) { r.Methods = policy.MustGlobs("GET") }),
			More: same},
		{Name: "one path of many",
			Less: with(func(r *policy.FetchRule) { r.Paths = policy.MustGlobs("/a/b") }),
			More: same},
		{Name: "no credential", Less: with(func(r *policy.FetchRule) { r.Credential = "" }),
			More: same},
		{Name: "one credential of any", Less: same,
			More: with(func(r *policy.FetchRule) { r.Credential = policy.AnyCredential })},
		{Name: "one rule of two", Less: same, More: two},
		{Name: "a rule without ports grants nothing",
			Less: with(func(r *policy.FetchRule) { r.Ports = nil }), More: same},
		{
			Name: "different credentials", Less: same,
			More: with(func(r *policy.FetchRule) { r.Credential = "two" }), Apart: true,
			Both: with(func(r *policy.FetchRule) { r.Credential = "" }),
		},
		{
			Name:  "GET here and POST there",
			Less:  with(func(r *policy.FetchRule) { r.Methods = policy.MustGlobs("GET") }),
			More:  with(func(r *policy.FetchRule) { r.Methods = policy.MustGlobs("POST") }),
			Apart: true,
		},
	}
	for _, b := range policy.FetchBoundFields() {
		bound := func(text string) policy.Fetch {
			return with(func(r *policy.FetchRule) {
				n, err := b.Unit.Parse(text)
				if err != nil {
					t.Fatal(err)
				}
				*b.At(&r.Bounds) = n
			})
		}
		name, one, two := b.Name, "1", "2"
		if b.Unit == policy.Bytes {
			one, two = "1B", "2B"
		} else if b.Unit == policy.Duration {
			one, two = "1s", "2s"
		}
		table = append(table,
			policytest.Meaning[policy.Fetch]{Name: name + " of a rule", Less: bound(one),
				More: same},
			policytest.Meaning[policy.Fetch]{Name: "less " + name + " of a rule", Less: bound(one),
				More: bound(two)})
	}
	policytest.Meanings(t, table)
}

func TestLimitsMean(t *testing.T) {
	var base policy.Limits
	for _, name := range policy.LimitNames() {
		base.Put(name, 10)
	}
	table := []policytest.Meaning[policy.Limits]{
		{Name: "nothing", Less: policy.Limits{}, More: base},
		{Name: "no bound", Less: base, More: policy.TopLimits()},
	}
	for _, name := range policy.LimitNames() {
		smaller, larger := base, base
		n, _, _ := base.Get(name)
		smaller.Put(name, n-1)
		larger.Put(name, n+1)
		table = append(table,
			policytest.Meaning[policy.Limits]{Name: "less " + name, Less: smaller, More: base},
			policytest.Meaning[policy.Limits]{Name: "more " + name, Less: base, More: larger})
	}
	a, b, both := base, base, base
	a.Memory, both.Memory = 1, 1
	b.PIDs, both.PIDs = 1, 1
	policytest.Meanings(t, append(table, policytest.Meaning[policy.Limits]{Name: "each its own",
		Less: a, More: b, Apart: true, Both: both}))
}

func TestWorkspaceMeans(t *testing.T) {
	shadow := policy.Workspace{Access: policy.WorkspaceShadow, Commit: policy.CommitAsk}
	read := policy.Workspace{Access: policy.WorkspaceRead}
	with := func(change func(*policy.Workspace)) policy.Workspace {
		w := shadow
		change(&w)
		return w
	}
	hideA := with(func(w *policy.Workspace) { w.Hide = []string{"a"} })
	hideB := with(func(w *policy.Workspace) { w.Hide = []string{"b"} })
	policytest.Meanings(t, []policytest.Meaning[policy.Workspace]{
		{Name: "nothing", Less: policy.Workspace{}, More: read},
		{Name: "to read is less than to write", Less: read, More: shadow},
		{Name: "never is less than ask",
			Less: with(func(w *policy.Workspace) { w.Commit = policy.CommitNever }), More: shadow},
		{Name: "ask is less than auto", Less: shadow, More: policy.Top().Workspace},
		{Name: "to hide is less", Less: hideA, More: shadow},
		{Name: "to protect is less",
			Less: with(func(w *policy.Workspace) { w.Protect = []string{"Makefile"} }),
			More: shadow},
		{Name: "holes add up", Less: hideA, More: hideB, Apart: true,
			Both: with(func(w *policy.Workspace) { w.Hide = []string{"a", "b"} })},
		{Name: "holes stay where only reading is left",
			Less: policy.Workspace{Access: policy.WorkspaceRead, Hide: []string{"a"}}, More: hideA},
		{Name: "read, and hide", Less: read, More: hideA, Apart: true,
			Both: policy.Workspace{Access: policy.WorkspaceRead, Hide: []string{"a"}}},
	})
}

func TestMountsMean(t *testing.T) {
	m := func(source, target string, access policy.Rights) policy.Mounts {
		return policy.Mounts{{Source: source, Target: target, Access: access}}
	}
	cache := func(name, target string, size int64) policy.Mounts {
		return policy.Mounts{{Target: target, Access: policy.Cache, Name: name, Size: size}}
	}
	r, rx, rw := policy.Read, policy.Read|policy.Exec, policy.Read|policy.Write
	policytest.Meanings(t, []policytest.Meaning[policy.Mounts]{
		{Name: "nothing", Less: nil, More: m("/usr", "/usr", r)},
		{Name: "to read is less than to run", Less: m("/usr", "/usr", r),
			More: m("/usr", "/usr", rx)},
		{Name: "to read is less than to write", Less: m("/usr", "/usr", r),
			More: m("/usr", "/usr", rw)},
		{Name: "a part is less than the whole", Less: m("/usr/share", "/usr/share", r),
			More: m("/usr", "/usr", r)},
		{Name: "one place is less than anywhere", Less: m("/usr", "/usr", r),
			More: m("/usr", "", r)},
		{Name: "anything below a source, anywhere", Less: m("/usr/share/dict", "/data/dict", r),
			More: m("/usr", "", r)},
		{Name: "one is less than two", Less: m("/a", "/a", r),
			More: policy.Mounts{{Source: "/a", Target: "/a", Access: r}, {Source: "/b", Target: "/b", Access: r}}},
		{Name: "memory", Less: m("", "/tmp", policy.Tmpfs), More: m("", "", policy.Tmpfs)},
		{Name: "to run and to write leave to read", Less: m("/usr", "/usr", rx),
			More: m("/usr", "/usr", rw), Apart: true, Both: m("/usr", "/usr", r)},
		{Name: "a ceiling that is deeper moves the place", Less: m("/usr", "/host", r),
			More: m("/usr/share", "", r), Apart: true, Both: m("/usr/share", "/host/share", r)},
		{Name: "another source at the place", Less: m("/a", "/data", r), More: m("/b", "/data", r),
			Apart: true},
		{Name: "another place of the source", Less: m("/a", "/x", r), More: m("/a", "/y", r),
			Apart: true},
		{Name: "a name is no prefix", Less: m("/usrlocal", "/usrlocal", r), More: m("/usr", "", r),
			Apart: true},
		{Name: "a cache", Less: cache("go", "/c", 1<<20), More: cache("go", "/c", 2<<20)},
		{Name: "a cache of any name at any place", Less: cache("go", "/c", 1<<20),
			More: cache("", "", policy.Unlimited)},
		{Name: "another cache", Less: cache("go", "/c", 1<<20), More: cache("npm", "/c", 1<<20),
			Apart: true},
		{Name: "a ceiling bounds a cache", Less: cache("go", "/c", 4<<20),
			More: cache("", "", 1<<20), Apart: true, Both: cache("go", "/c", 1<<20)},
		{Name: "a cache is no memory", Less: cache("go", "/c", 1<<20),
			More: m("", "", policy.Tmpfs), Apart: true},
		{Name: "a cache is no directory", Less: cache("go", "/c", 1<<20), More: m("/", "", rw),
			Apart: true},
		{Name: "memory is no directory", Less: m("", "/data", policy.Tmpfs),
			More: m("/data", "/data", rw), Apart: true},
	})
}

func TestToolsMean(t *testing.T) {
	all := policy.Tools{Allow: policy.MustGlobs("core-utils/*"), Modules: policy.MustGlobs("**"),
		Native: policy.MustGlobs("/usr/bin/*")}
	without := func(change func(*policy.Tools)) policy.Tools { x := all; change(&x); return x }
	policytest.Meanings(t, []policytest.Meaning[policy.Tools]{
		{Name: "nothing", Less: policy.Tools{}, More: all},
		{Name: "one command",
			Less: without(func(x *policy.Tools) { x.Allow = policy.MustGlobs("core-utils/grep") }),
			More: all},
		{Name: "some modules",
			Less: without(func(x *policy.Tools) { x.Modules = policy.MustGlobs("/opt/**") }),
			More: all},
		{Name: "no native", Less: without(func(x *policy.Tools) { x.Native = nil }), More: all},
	})
}

func TestEnvMeans(t *testing.T) {
	e := func(pass string, values map[string]string) policy.Env {
		return policy.Env{Pass: policy.MustGlobs(pass), Set: policy.Vars{Values: values}}
	}
	lang := map[string]string{"LANG": "C"}
	policytest.Meanings(t, []policytest.Meaning[policy.Env]{
		{Name: "nothing", Less: policy.Env{}, More: e("TERM", nil)},
		{Name: "one name", Less: e("LC_ALL", nil), More: e("LC_*", nil)},
		{Name: "no constant", Less: e("TERM", nil), More: e("TERM", lang)},
		{Name: "a constant of any", Less: policy.Env{Set: policy.Vars{Values: lang}},
			More: policy.Env{Set: policy.Vars{Any: true}}},
		{Name: "what a caller may give", Less: policy.Env{Allow: policy.MustGlobs("A")},
			More: policy.Env{Allow: policy.MustGlobs("*")}},
		{Name: "two values of one name", Less: e("TERM", lang),
			More: e("TERM", map[string]string{"LANG": "D"}), Apart: true, Both: e("TERM", nil)},
		{Name: "pass does not allow", Less: policy.Env{Pass: policy.MustGlobs("A")},
			More: policy.Env{Allow: policy.MustGlobs("A")}, Apart: true},
	})
}

func TestAuditMeans(t *testing.T) {
	a := func(f policy.FileAudit) policy.Audit { return policy.Audit{Files: f} }
	policytest.Meanings(t, []policytest.Meaning[policy.Audit]{
		{Name: "opens are recorded", Less: a(policy.FilesOpens), More: a(policy.FilesChanges)},
		{Name: "changes are recorded", Less: a(policy.FilesChanges), More: a(policy.FilesNone)},
		{Name: "nothing granted, all recorded", Less: policy.Audit{}, More: policy.TopAudit()},
	})
}

func TestApproveMeans(t *testing.T) {
	a := func(modes ...policy.ApproveMode) (out policy.Approve) {
		for _, m := range modes {
			out = append(out, policy.ApproveRule{Action: policy.ActionCommit, Mode: m})
		}
		return out
	}
	policytest.Meanings(t, []policytest.Meaning[policy.Approve]{
		{Name: "a question is less than none", Less: a(policy.ApproveAsk), More: nil},
		{Name: "a refusal is less than a question", Less: a(policy.ApproveNever),
			More: a(policy.ApproveAsk)},
		{Name: "the strictest of two rules counts",
			Less: a(policy.ApproveNever), More: a(policy.ApproveAuto, policy.ApproveAsk)},
	})
	if got := a(policy.ApproveAuto, policy.ApproveAsk).Mode(policy.ActionCommit); got !=
		policy.ApproveAsk {
		t.Errorf("auto and ask: %s", got)
	}
	if got := a(policy.ApproveAuto).Normal(); got != nil {
		t.Errorf("auto holds back: %s", got)
	}
	fetch := func(mode policy.ApproveMode, host string, methods ...string) policy.Approve {
		r := policy.ApproveRule{Action: policy.ActionFetch, Mode: mode,
			Methods: policy.MustGlobs(methods...)}
		if host != "" {
			h, err := policy.ParseHost(host)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = h
		}
		return policy.Approve{r}
	}
	tool := func(mode policy.ApproveMode, text string) policy.Approve {
		g, err := policy.ParseApproveTool(text)
		if err != nil {
			t.Fatal(err)
		}
		return policy.Approve{{Action: policy.ActionTool, Tool: g, Mode: mode}}
	}
	policytest.Meanings(t, []policytest.Meaning[policy.Approve]{
		{Name: "every host is more held back than one", Less: fetch(policy.ApproveAsk, ""),
			More: fetch(policy.ApproveAsk, "example.com")},
		{Name: "two methods are more held back than one",
			Less: fetch(policy.ApproveAsk, "*.example.com", "POST", "PUT"),
			More: fetch(policy.ApproveAsk, "a.example.com", "POST")},
		{Name: "each tool is more held back than one", Less: tool(policy.ApproveAsk, "**"),
			More: tool(policy.ApproveAsk, "curl")},
	})
	rules := append(fetch(policy.ApproveAsk, "*.example.com", "POST"),
		append(fetch(policy.ApproveNever, "b.example.com"), tool(policy.ApproveAsk, "curl")...)...)
	for _, c := range []struct {
		q    policy.Connect
		want policy.ApproveMode
	}{
		{policy.Connect{Host: "a.example.com", Port: 443, Method: "POST"}, policy.ApproveAsk},
		{policy.Connect{Host: "a.example.com", Port: 443, Method: "GET"}, policy.ApproveAuto},
		{policy.Connect{Host: "a.example.com", Port: 443, Tunnel: true}, policy.ApproveAsk},
		{policy.Connect{Host: "a.example.com", Port: 443, Method: "GET", WebSocket: true},
			policy.ApproveAsk},
		{policy.Connect{Host: "b.example.com", Port: 443, Method: "POST"}, policy.ApproveNever},
		{policy.Connect{Host: "example.com", Port: 443, Method: "POST"}, policy.ApproveAuto},
	} {
		if got := rules.Fetch(c.q).Mode; got != c.want {
			t.Errorf("%s: %s, want %s", c.q, got, c.want)
		}
	}
	for name, want := range map[string]policy.ApproveMode{"net-utils/curl": policy.ApproveAsk,
		"/usr/bin/curl": policy.ApproveAsk, "net-utils/curler": policy.ApproveAuto} {
		if got := rules.ForTool(name).Mode; got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	void := policy.Policy{Approve: a(policy.ApproveAsk)}.Normal()
	if void.Approve != nil {
		t.Errorf("without a shadow there is a rule for its commit: %s", void)
	}
}

func TestSessionMeans(t *testing.T) {
	s := func(e policy.EngineRule) policy.Session { return policy.Session{Engine: e} }
	policytest.Meanings(t, []policytest.Meaning[policy.Session]{
		{Name: "a ceiling forbids", Less: s(policy.EngineOwn), More: s(policy.EngineRequest)},
		{Name: "on request", Less: s(policy.EngineRequest), More: s(policy.EngineShared)},
		{Name: "own loopback", Less: policy.Session{Engine: policy.EngineShared},
			More: policy.TopSession()},
		{Name: "the one or the other", Less: policy.Session{Engine: policy.EngineShared},
			More: policy.Session{Loopback: policy.LoopbackShared}, Apart: true},
		{Name: "nothing granted, nothing shared", Less: policy.Session{},
			More: policy.TopSession()},
	})
}

func TestOuterMeans(t *testing.T) {
	o := policy.OuterOf
	policytest.Meanings(t, []policytest.Meaning[policy.Outer]{
		{Name: "a ceiling demands one", Less: o("runsc"), More: o("none", "runsc")},
		{Name: "a ceiling forbids one", Less: o("none", "crun"), More: o("none", "crun", "runsc")},
		{Name: "nothing is left", Less: o(), More: o("none")},
		{Name: "silent ceiling", Less: policy.KeepingOuter(), More: policy.TopOuter()},
	})
	for _, c := range []struct {
		a, b policy.Outer
		want string
	}{
		{o("none", "runsc"), o("runsc"), "runsc"}, {policy.TopOuter(), o("none"), "none"},
		{policy.TopOuter(), policy.TopOuter(), "none"}, {o("crun", "runc"), o("runc", "none"), "runc"},
		{o("runsc"), o("none"), ""}, {o("runsc"), policy.KeepingOuter(), ""},
		{o("crun", "runc"), policy.TopOuter(), ""},
	} {
		got, err := c.a.Meet(c.b).Choose()
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s and %s choose %q, %v; want %q", c.a, c.b, got, err, c.want)
		}
	}
}

func TestAgentMeans(t *testing.T) {
	a := func(bindings ...string) policy.Agents { return policy.Agents{Bindings: bindings} }
	policytest.Meanings(t, []policytest.Meaning[policy.Agents]{
		{Name: "no agent", Less: a(), More: a("host")},
		{Name: "one binding", Less: a("host"), More: policy.TopAgents()},
		{Name: "one of two", Less: a("storage"), More: a("host", "storage")},
		{Name: "the one or the other", Less: a("ai"), More: a("pubsub"), Apart: true},
	})
}

func TestSyscallsMean(t *testing.T) {
	s := func(groups ...string) policy.Syscalls { return policy.Syscalls{Groups: groups} }
	policytest.Meanings(t, []policytest.Meaning[policy.Syscalls]{
		{Name: "nothing", Less: s(), More: s("wasi")},
		{Name: "one", Less: s("wasi"), More: policy.TopSyscalls()},
		{Name: "not the same", Less: s("wasi"), More: s("native"), Apart: true},
		{Name: "no such group grants nothing", Less: s("everything"), More: s("wasi")},
	})
}

func TestPolicyMeans(t *testing.T) {
	base := policy.Policy{
		Workspace: policy.Workspace{Access: policy.WorkspaceRead},
		Mounts:    policy.Mounts{{Source: "/usr", Target: "/usr", Access: policy.Read}},
		Limits:    policy.Limits{Memory: 10},
		Tools:     policy.Tools{Allow: policy.MustGlobs("a/b")},
		Fetch: policy.Fetch{Allow: []policy.FetchRule{policy.TopFetchRule()},
			Limits: policy.FetchLimits{Requests: 1}},
		Env:      policy.Env{Pass: policy.MustGlobs("TERM")},
		Syscalls: policy.Syscalls{Groups: []string{"wasi"}},
		Audit:    policy.TopAudit(),
		Agent:    policy.Agents{Bindings: []string{policy.BindingHost}},
	}
	table := []policytest.Meaning[policy.Policy]{
		{Name: "nothing", Less: policy.Policy{}, More: base},
		{Name: "everything", Less: base, More: policy.Top()},
	}
	for name, drop := range map[string]func(*policy.Policy){
		"workspace": func(p *policy.Policy) { p.Workspace = policy.Workspace{} },
		"mounts":    func(p *policy.Policy) { p.Mounts = nil },
		"limits":    func(p *policy.Policy) { p.Limits = policy.Limits{} },
		"tools":     func(p *policy.Policy) { p.Tools = policy.Tools{} },
		"fetch":     func(p *policy.Policy) { p.Fetch = policy.Fetch{} },
		"env":       func(p *policy.Policy) { p.Env = policy.Env{} },
		"syscalls":  func(p *policy.Policy) { p.Syscalls = policy.Syscalls{} },
		"audit":     func(p *policy.Policy) { p.Audit = policy.Audit{} },
		"agent":     func(p *policy.Policy) { p.Agent = policy.Agents{} },
	} {
		less := base
		drop(&less)
		table = append(table,
			policytest.Meaning[policy.Policy]{Name: "no " + name, Less: less, More: base})
	}
	policytest.Meanings(t, table)
}
