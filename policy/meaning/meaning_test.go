package meaning

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
)

const profile = `policy = 1
name = "mine"
[workspace]
access = "shadow"
hide = [".env"]
commit = "ask"
[[mount]]
source = "/usr"
target = "/usr"
access = "read+exec"
[limits]
wall = "30s"
cpu_time = "20s"
cpus = 1.0
memory = "256MiB"
pids = 32
open_files = 256
output = "1MiB"
workspace = "512MiB"
workspace_files = 10000
file_size = "64MiB"
[tools]
allow = ["core-utils/*"]
native = ["/usr/bin/git"]
[[fetch.allow]]
host = "pypi.org"
[fetch.limits]
requests = 100
bytes_in = "50MiB"
bytes_out = "1MiB"
concurrent = 8
timeout = "30s"
[env]
allow = ["LC_*"]
[syscalls]
groups = ["wasi", "native"]
`

func layers(t *testing.T) []Source {
	t.Helper()
	ceiling, err := syntax.Parse(syntax.Ceiling, "ceiling.toml",
		[]byte("policy = 1\n[limits]\nmemory = \"128MiB\"\n[tools]\nallow = [\"core-utils/grep\"]\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	file, err := syntax.Parse(syntax.Profile, "mine.toml", []byte(profile), nil)
	if err != nil {
		t.Fatal(err)
	}
	r := policy.NewRequest()
	if err := r.Limit("pids=16"); err != nil {
		t.Fatal(err)
	}
	return []Source{{ceiling.Layer("ceiling", "ceiling.toml"), &ceiling},
		{file.Layer("profile mine", "mine.toml"), &file},
		{policy.Layer{Name: "request", Source: "command line", Policy: r.Policy()}, nil}}
}

func names(command string) []string {
	if command == "grep" || command == "sed" {
		return []string{"core-utils"}
	}
	return nil
}

// Each answer names its layer and line, and what it suggests does turn it.
func TestWhy(t *testing.T) {
	for _, tt := range []struct {
		question, layer string
		// Of the rule, 0 where there is none.
		line    int
		allowed bool
		// In a line of it.
		change string
	}{
		{"read:/usr/bin/x", "profile mine", 7, true, ""},
		{"read:/etc/passwd", "profile mine", 0, false, `target = "/etc/passwd"`},
		{"write:/usr/bin/x", "profile mine", 7, false, `access = "write"`},
		{"read:.env", "profile mine", 5, false, "take that pattern out of workspace.hide"},
		{"read:src/a", "profile mine", 4, true, `hide = […, "/src/a"]`},
		{"exec:grep", "profile mine", 23, true, ""},
		{"exec:sed", "ceiling", 5, false, `allow = […, "core-utils/sed"]`},
		{"exec:python/python3", "ceiling", 5, false, `allow = […, "python/python3"]`},
		{"exec:git", "profile mine", 24, true, ""},
		{"exec:/usr/bin/make", "profile mine", 24, false, `native = […, "/usr/bin/make"]`},
		{"exec:/a.wasm", "profile mine", 0, false, `modules = […, "/a.wasm"]`},
		{"connect:pypi.org:443", "profile mine", 25, true, `host = "pypi.org"`},
		{"connect:pypi.org:80", "profile mine", 0, false, "ports = [80]"},
		{"connect:POST https://pypi.org/upload", "profile mine", 0, false, `paths = ["/upload"]`},
		{"connect:POST https://pypi.org/%75pload", "profile mine", 0, false, `paths = ["/upload"]`},
		{"env:LC_ALL", "profile mine", 34, true, ""},
		{"env:HOME", "profile mine", 34, false, `allow = […, "HOME"]`},
		{"commit:src/a", "profile mine", 6, false, `commit = "auto"`},
		{"commit:.git/hooks/x", "ceiling", 0, false, "names it"},
		{"limit:memory", "ceiling", 3, true, ""},
		{"limit:memory=1GiB", "ceiling", 3, false, `memory = "1GiB"`},
		{"limit:pids=32", "request", 0, false, "leave out --limit pids"},
	} {
		all := layers(t)
		verb, object, _ := strings.Cut(tt.question, ":")
		ask, err := ParseAsk(verb, object, all[1].Layer.Policy, names)
		if err != nil {
			t.Errorf("%s: %v", tt.question, err)
			continue
		}
		a, err := Why(ask, all)
		if err != nil {
			t.Fatal(err)
		}
		line := 0
		if a.At != nil {
			line = a.At.Line
		}
		if a.Allowed != tt.allowed || a.Layer != tt.layer || line != tt.line {
			t.Errorf("%s: %v by %s, line %d", tt.question, a.Allowed, a.Layer, line)
		}
		if tt.change != "" && !strings.Contains(a.Text(), tt.change) {
			t.Errorf("%s: want %q in\n%s", tt.question, tt.change, a.Text())
		}
		for _, s := range a.Change {
			if _, ok := s.Edit(); ok && !s.Verified && verb != "exec" && verb != "limit" {
				t.Errorf("%s: the change was not seen to turn it: %+v", tt.question, s)
			}
		}
	}
}

// The lines that are suggested, put into the file, do what is said of them.
func TestWhyTurns(t *testing.T) {
	for _, question := range []string{"read:/etc/passwd", "connect:pypi.org:80",
		"connect:POST https://pypi.org/upload", "exec:/a.wasm", "env:HOME", "commit:src/a"} {
		all := layers(t)[1:2]
		verb, object, _ := strings.Cut(question, ":")
		ask, err := ParseAsk(verb, object, all[0].Layer.Policy, names)
		if err != nil {
			t.Fatal(err)
		}
		a, err := Why(ask, all)
		if err != nil || a.Allowed || len(a.Change) != 1 {
			t.Fatalf("%s: %v, %+v", question, err, a)
		}
		edit, ok := a.Change[0].Edit()
		if !ok {
			t.Fatalf("%s: no edit", question)
		}
		text, err := edit.Apply([]byte(profile))
		if err != nil {
			t.Fatal(err)
		}
		file, err := syntax.Parse(syntax.Profile, "mine.toml", text, nil)
		if err != nil {
			t.Fatalf("%s: %v in\n%s", question, err, text)
		}
		eff, err := policy.Resolve(file.Layer("profile mine", "mine.toml"))
		if err != nil {
			t.Fatal(err)
		}
		if _, d := decide(ask, eff); !d.Allowed {
			t.Errorf("%s: %+v with\n%s", question, d, text)
		}
	}
}

func TestAskErrors(t *testing.T) {
	for question, want := range map[string]string{
		"read:": "missing", "look:/a": "nothing that can be asked", "read:/a/../b": "no clean path",
		"connect:a.test:0": "port", "connect:a.test:x": "port",
		"connect:1.2.3.4:80": "address", "connect:ftp://a.test/": "https:// or http://",
		"connect:GET a.test:443": "whole address", "env:A=B": "character",
		"commit:../x": "no clean path", "limit:memry": "no limit", "limit:memory=5": "no unit",
		"exec:a/b/c": "bundle/command", "exec:a.wasm": "absolute path",
	} {
		verb, object, _ := strings.Cut(question, ":")
		if _, err := ParseAsk(verb, object, policy.Policy{}, nil); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", question, err, want)
		}
	}
}

func TestExplain(t *testing.T) {
	x, err := Explain(layers(t))
	if err != nil {
		t.Fatal(err)
	}
	find := func(items []Item, key, value string) *Item {
		i := slices.IndexFunc(items, func(i Item) bool { return i.Key == key && i.Value == value })
		if i < 0 {
			t.Fatalf("no %s %s in %+v", key, value, items)
		}
		return &items[i]
	}
	if m := find(x.Items, "limits.memory", "128MiB"); m.Given.At.Line != 15 ||
		len(m.Narrowed) != 1 || m.Narrowed[0].Layer != "ceiling" || m.Narrowed[0].At.Line != 3 {
		t.Errorf("memory: %+v", m)
	}
	if p := find(x.Items, "limits.pids", "16"); p.Given.Layer != "profile mine" ||
		p.Narrowed[0].Layer != "request" {
		t.Errorf("pids: %+v", p)
	}
	if g := find(x.Items, "tools.allow", "core-utils/grep"); g.Given.Rule != "core-utils/*" ||
		len(g.Narrowed) != 1 || g.Narrowed[0].Layer != "ceiling" {
		t.Errorf("grep: %+v", g)
	}
	if l := find(x.Lost, "tools.allow", "core-utils/*"); l.Narrowed[0].Layer != "ceiling" {
		t.Errorf("lost: %+v", l)
	}
	// What no rule grants is refused, which nobody has to say.
	find(x.Items, "fetch.mode", "enforce")
	if n := find(x.Items, "tools.native", "/usr/bin/git"); n.Given.At.Line != 24 ||
		len(n.Narrowed) != 0 {
		t.Errorf("git: %+v", n)
	}
}

func TestExpectations(t *testing.T) {
	text := "# about mine\npolicy mine\nallow read /usr/bin/x # comment\n" +
		"deny connect evil.test:443\nask commit Makefile\nallow limit memory=64MiB\n" +
		"file \"a b.txt\" \"one\\ntwo\"\nrun grep -r 'x y' . => exit 1\nrun curl => refused\n" +
		"run sort => limit memory\nallow connect GET https://pypi.org/x\n"
	e, err := ParseExpectations("mine.test", []byte(text))
	if err != nil || e.Policy != "mine" || len(e.Lines) != 9 {
		t.Fatalf("%v, %+v", err, e)
	}
	if f := e.Lines[4]; f.File != "a b.txt" || f.Content != "one\ntwo" {
		t.Errorf("%+v", f)
	}
	if r := e.Lines[5]; strings.Join(r.Command, "|") != "grep|-r|x y|." || r.Outcome.Exit != 1 {
		t.Errorf("%+v", r)
	}
	eff, err := resolveAll(layers(t)[1:2])
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range e.Lines {
		if x.Verb == "" {
			continue
		}
		if f, err := x.Judge(eff, names); err != nil || !f.OK {
			t.Errorf("%v, %+v", err, f)
		}
	}
	for _, bad := range []string{"allow", "allow read", "allow see /x", "permit read /x", "run x",
		"run => exit 0", "run x => exit", "run x => exit 256", "run x => limit x", "policy a b",
		"allow read /x\npolicy late", "file ../x y", "file /x y", "allow read 'x",
		"deny connect evil.test:99999"} {
		if _, err := ParseExpectations("x.test", []byte(bad)); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
	_, err = ParseExpectations("x.test", []byte("allow\n\ndeny see /x\n"))
	if all, ok := err.(syntax.Errors); !ok || len(all) != 2 || all[1].Line != 3 {
		t.Errorf("not all at once: %v", err)
	}
}

func FuzzExpectations(f *testing.F) {
	f.Add("policy mine\nallow read /x\nrun 'a b' \"c\\n\" => exit 0\nfile a b\n")
	f.Fuzz(func(t *testing.T, text string) {
		e, _ := ParseExpectations("x.test", []byte(text))
		for _, x := range e.Lines {
			if x.Verb != "" {
				if _, err := ParseAsk(x.Verb, x.Object, policy.Policy{}, names); err != nil {
					t.Fatalf("%q was read, and cannot be asked: %v", x.Text, err)
				}
			}
		}
	})
}

func FuzzAsk(f *testing.F) {
	for _, v := range Verbs() {
		f.Add(v, "/usr/bin/git")
	}
	f.Add("connect", "POST https://a.test:8080/x")
	f.Fuzz(func(t *testing.T, verb, object string) {
		a, err := ParseAsk(verb, object, policy.Policy{}, names)
		if err != nil || a.Limit != "" {
			return
		}
		eff, err := policy.Resolve(policy.Layer{Name: "none"})
		if err != nil {
			t.Fatal(err)
		}
		if _, d := decide(a, eff); d.Allowed || d.Ask {
			t.Fatalf("%s: a policy that grants nothing answers %+v", a, d)
		}
	})
}

// A policy that grants less never has a higher score, and the worst there is has all points but
// those of system calls.
func TestScore(t *testing.T) {
	p := layers(t)[1].Layer.Policy
	s := Measure(p, Calls{100, 400})
	var parts []string
	for _, part := range s.Parts {
		parts = append(parts, part.Name+" "+strconv.Itoa(part.Points))
	}
	if got := strings.Join(parts,
		", "); got != "system calls 5, writable and executable 0, files 2, network 2, secrets 0, "+
		"missing limits 0" || s.Points != 9 {
		t.Errorf("%s, %d", got, s.Points)
	}
	if s := Measure(policy.Policy{}, Calls{0, 400}); s.Points != 0 {
		t.Errorf("nothing at all has %+v", s)
	}
	worst := policy.Top()
	worst.Mounts = policy.Mounts{{Source: "/", Target: "/host",
		Access: policy.Read | policy.Write | policy.Exec}, {Source: "/root", Target: "/root",
		Access: policy.Read | policy.Write | policy.Exec}}
	if s := Measure(worst, Calls{400, 400}); s.Points < 95 {
		t.Errorf("everything has %+v", s)
	}
	narrowed := p
	narrowed.Fetch = policy.Fetch{}
	if Measure(narrowed, Calls{}).Points > Measure(p, Calls{}).Points {
		t.Error("less is more")
	}
}

// The formula that is documented is the one that counts.
func TestScoreIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range Measure(policy.Policy{}, Calls{}).Parts {
		if want := "| " + p.Name + " | " + strconv.Itoa(p.Max) +
			" |"; !strings.Contains(string(text), want) {
			t.Errorf("docs/policy.md has no line %q", want)
		}
	}
}
