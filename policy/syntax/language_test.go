package syntax_test

import (
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
)

// What is inherited can be taken out again, and nothing else can.
func TestWithout(t *testing.T) {
	find := files(map[string]string{
		"base": whole,
		"less": "policy = 1\ninclude = [\"base\"]\n[without]\ntools.allow = [\"python/*\"]\n" +
			"workspace.hide = [\".env\"]",
		"more": "policy = 1\ninclude = [\"base\"]\n",
	})
	text := "policy = 1\ninclude = [\"base\"]\n[without]\nmount = [\"/data/dict\"]\n" +
		"fetch.allow = [\"pypi.org\"]\nenv.set = [\"LANG\"]\nenv.pass = [\"TERM\"]\n" +
		"tools.allow = [\"core-utils/*\"]\nworkspace.protect = [\"Makefile\"]\n[tools]\n" +
		"allow = [\"core-utils/grep\"]\n"
	f, err := syntax.Parse(syntax.Profile, "x.toml", []byte(text), find)
	if err != nil {
		t.Fatal(err)
	}
	p := f.Policy
	if len(p.Mounts) != 0 || len(p.Fetch.Allow) != 0 || len(p.Env.Set.Values) != 0 ||
		len(p.Env.Pass) != 0 || p.Tools.Allow.String() != "[core-utils/grep python/*]" ||
		len(p.Workspace.Protect) != 0 || strings.Join(p.Workspace.Hide, " ") != "**/*.pem .env" {
		t.Errorf("left is %s", p)
	}
	if _, ok := f.At[`mount "/data/dict from /usr/share/dict read"`]; ok {
		t.Error("what was taken out still has a place")
	}
	// What one include takes out, another may give: the same file is there both ways.
	for _, include := range []string{`["less", "more"]`, `["more", "less"]`} {
		f, err := syntax.Parse(syntax.Profile, "x.toml", []byte("policy = 1\ninclude = "+include),
			find)
		if err != nil || f.Policy.Tools.Allow.String() != "[core-utils/* python/*]" {
			t.Errorf("%s: %v, %s", include, err, f.Policy.Tools)
		}
	}
	if f, err := syntax.Parse(syntax.Profile, "x.toml", []byte("policy = 1\ninclude = [\"less\"]"),
		find); err != nil || f.Policy.Tools.Allow.String() != "[core-utils/*]" {
		t.Errorf("less: %v, %s", err, f.Policy.Tools)
	}
	for _, tt := range []struct{ without, want string }{
		{"tools.allow = [\"python\"]",
			`3:16: without.tools.allow: "python" takes nothing out, since no policy that is included has it`},
		{"tools.alow = [\"python/*\"]", "did you mean `allow`"},
		{"tools.allow = [\"core-utils/grep\"]", "core-utils/*"},
		{"limits = [\"io_read\"]", "takes nothing out"},
		{"workspace.access = [\"x\"]", "unknown key"},
		{"env.set = { LANG = \"x\" }", "must be a list"},
		{"env.set = [1]", "must be a string"},
	} {
		_, err := syntax.Parse(syntax.Profile, "x.toml",
			[]byte("policy = 1\ninclude = [\"base\"]\nwithout."+strings.ReplaceAll(tt.without, "\n",
				"")), find)
		if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), "3:24", "3:16"),
			tt.want) {
			t.Errorf("%s: %v, want %q", tt.without, err, tt.want)
		}
	}
}

// A limit that is taken out has to be said, so nothing becomes unlimited by it.
func TestWithoutLimit(t *testing.T) {
	find := files(map[string]string{"base": whole})
	_, err := syntax.Parse(syntax.Profile, "x.toml",
		[]byte("policy = 1\ninclude = [\"base\"]\n[without]\nlimits = [\"memory\"]"), find)
	if err == nil || !strings.Contains(err.Error(), "[limits] has no memory") {
		t.Errorf("%v", err)
	}
}

func TestToolSections(t *testing.T) {
	find := files(map[string]string{"base": whole +
		"\n[tool.\"python/*\".limits]\nmemory = \"128MiB\"\npids = 20\n"})
	text := "policy = 1\ninclude = [\"base\"]\n[tool.\"python/*\".limits]\nmemory = \"64MiB\"\n" +
		"[[tool.\"python/python3\".fetch.allow]]\nhost = \"other.test\"\n" +
		"[tool.\"core-utils/grep\"]\nmount = []\n"
	f, err := syntax.Parse(syntax.Profile, "x.toml", []byte(text), find)
	if err != nil {
		t.Fatal(err)
	}
	eff, err := policy.Resolve(f.Layer("profile", "x.toml"))
	if err != nil {
		t.Fatal(err)
	}
	if p := eff.Policy(); p.Limits.Memory != 256<<20 || len(p.Mounts) != 1 {
		t.Errorf("a section narrows what it is not about: %s", p)
	}
	python := eff.For("python/python3").Policy()
	if python.Limits.Memory != 64<<20 || python.Limits.PIDs != 20 || len(python.Fetch.Allow) != 0 ||
		len(python.Mounts) != 1 {
		t.Errorf("python/python3 has %s", python)
	}
	if grep := eff.For("core-utils/grep").Policy(); len(grep.Mounts) != 0 ||
		grep.Limits.Memory != 256<<20 || len(grep.Fetch.Allow) != 1 {
		t.Errorf("grep has %s", grep)
	}
	if both := eff.For("core-utils/grep", "python/python3").Policy(); len(both.Mounts) != 0 ||
		both.Limits.Memory != 64<<20 {
		t.Errorf("both have %s", both)
	}
	if d := eff.For("python/python3").Decide(policy.Connect{Host: "pypi.org",
		Port: 443}); d.Allowed || d.Layer != `profile, tool "python/python3"` {
		t.Errorf("%+v", d)
	}
	if at := f.At[`tool."python/*".limits.memory`]; at.File != "x.toml" || at.Line != 4 {
		t.Errorf("memory of python is said at %s", at)
	}
	// What is written is read back.
	back, err := syntax.Parse(syntax.Profile, "y.toml", syntax.Render(f), nil)
	if err != nil {
		t.Fatalf("%v in\n%s", err, syntax.Render(f))
	}
	if string(syntax.Render(back)) != string(syntax.Render(f)) || len(back.Tools) != 3 {
		t.Errorf("read back as\n%s\nnot\n%s", syntax.Render(back), syntax.Render(f))
	}
	for _, tt := range [][2]string{
		{"[tool.python.limits]\nmemory = \"1GiB\"", "neither a bundle/command"},
		{"[tool.\"a/b\"]\nworkspace = 1", "unknown key"},
		{"[tool.\"a/b\".limits]\nmemory = 5", "must be a string"},
		{"[tool.\"a/b\".tool.\"c/d\"]\n", "unknown key"},
		{"[tool.\"a/b\".limits]\nmemroy = \"1MiB\"", "did you mean `memory`"},
	} {
		if _, err := syntax.Parse(syntax.Profile, "x.toml", []byte(whole+tt[0]), nil); err == nil ||
			!strings.Contains(err.Error(), tt[1]) {
			t.Errorf("%q: %v, want %q", tt[0], err, tt[1])
		}
	}
}

// There are two variables, each the start of a path of the host.
func TestVariables(t *testing.T) {
	at := syntax.Places{Home: "/home/ada", Workspace: "/src/it"}
	mount := func(source string) string {
		return whole + "[[mount]]\nsource = \"" + source +
			"\"\ntarget = \"/x\"\naccess = \"read\"\n"
	}
	for source, want := range map[string]string{"${home}/.cache": "/home/ada/.cache",
		"${workspace}": "/src/it", "/plain": "/plain"} {
		f, err := syntax.ParseFor(at, syntax.Profile, "x.toml", []byte(mount(source)), nil)
		if err != nil || f.Policy.Mounts[1].Source != want {
			t.Errorf("%s: %v, %s", source, err, f.Policy.Mounts)
		}
	}
	for source, want := range map[string]string{
		"${home}x": "a slash follows", "${HOME}/x": "there is no variable",
		"/a/${home}": "at the start", "${home}/../x": "no clean absolute path",
		"${home}/${workspace}": "at the start", "$HOME/x": "no clean absolute path",
		"~/x": "no clean absolute path", "${home": "a slash follows",
	} {
		if _, err := syntax.ParseFor(at, syntax.Profile, "x.toml", []byte(mount(source)),
			nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", source, err, want)
		}
	}
	if _, err := syntax.Parse(syntax.Profile, "x.toml", []byte(mount("${home}/x")),
		nil); err == nil || !strings.Contains(err.Error(), "has no value here") {
		t.Errorf("a home that nobody has: %v", err)
	}
	// A value of a variable of the tool is not one of these: nothing is filled in.
	f := parse(t, syntax.Profile, strings.Replace(whole, `LANG = "C.UTF-8"`, `LANG = "${home}"`, 1))
	if f.Policy.Env.Set.Values["LANG"] != "${home}" {
		t.Errorf("LANG is %q", f.Policy.Env.Set.Values["LANG"])
	}
	modules := strings.Replace(whole, `modules = ["**"]`, `modules = ["${home}/wasm/**"]`, 1)
	if f, err := syntax.ParseFor(at, syntax.Profile, "x.toml", []byte(modules), nil); err != nil ||
		!f.Policy.Tools.Modules.Match("/home/ada/wasm/a.wasm") ||
		f.Policy.Tools.Modules.Match("/etc/a") {
		t.Errorf("%v, %s", err, f.Policy.Tools)
	}
	at.Home = "/home/*"
	if _, err := syntax.ParseFor(at, syntax.Profile, "x.toml", []byte(modules), nil); err == nil {
		t.Error("a star in a caller's home is a pattern")
	}
}

// An error says which line it is about.
func TestErrorsQuote(t *testing.T) {
	_, err := syntax.Parse(syntax.Profile, "x.toml",
		[]byte("policy = 1\n[limits]\n  memroy = \"1MiB\" # much\n"), nil)
	all, ok := err.(syntax.Errors)
	if !ok || all[0].Text != "  memroy = \"1MiB\" # much" ||
		all[0].Hint != "did you mean `memory`?" {
		t.Errorf("%+v", err)
	}
}

const commented = `# The profile of the build farm.
policy = 1 # always

[tools] # what runs
allow = [
  "core-utils/*", # all of them
  # more to come
]
modules = []

[limits]
memory = "1GiB" # "not" more, see #12
`

// An edit changes what it is about, and not a byte beside it.
func TestEdits(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit syntax.Edit
		old  string
		new  string
	}{
		{"into a list of lines", syntax.AddItem("tools", "allow", "python/*"), "# all of them\n",
			"# all of them\n  \"python/*\",\n"},
		{"into an empty list", syntax.AddItem("tools", "modules", "/a.wasm"), "modules = []",
			"modules = [\"/a.wasm\"]"},
		{"a new key", syntax.AddItem("tools", "native", "/bin/a"), "[tools] # what runs\n",
			"[tools] # what runs\nnative = [\"/bin/a\"]\n"},
		{"another value", syntax.SetLimit("limits", "memory", policy.Bytes, 2<<30), "\"1GiB\" #",
			"\"2GiB\" #"},
		{"a new section", syntax.SetKey("workspace", "access", "read"), "see #12\n",
			"see #12\n\n[workspace]\naccess = \"read\"\n"},
		{"a table", syntax.AddMount(policy.Mount{Source: "/a", Target: "/b", Access: policy.Read}),
			"see #12\n",
			"see #12\n\n[[mount]]\nsource = \"/a\"\ntarget = \"/b\"\naccess = \"read\"\n"},
	} {
		got, err := tt.edit.Apply([]byte(commented))
		if want := strings.Replace(commented, tt.old, tt.new, 1); err != nil ||
			string(got) != want {
			t.Errorf("%s: %v\n%s\nwant\n%s", tt.name, err, got, want)
		}
	}
	one := "policy = 1\n[tools]\nallow = [\"a/b\"]"
	if got, err := syntax.AddItem("tools", "allow", "c/d").Apply([]byte(one)); err != nil ||
		string(got) != "policy = 1\n[tools]\nallow = [\"a/b\", \"c/d\"]" {
		t.Errorf("%v: %s", err, got)
	}
	for _, text := range []string{"policy = ", "tools = { allow = [\"a/b\"] }",
		"[tools]\nallow = 3"} {
		if got, err := syntax.AddItem("tools", "allow", "c/d").Apply([]byte(text)); err == nil &&
			!strings.Contains(string(got), "c/d") {
			t.Errorf("%q became %q", text, got)
		}
	}
}

// An edit is taken back where its key has a line of its own, and else refused.
func TestEditUndo(t *testing.T) {
	e := syntax.Edit{Section: "mcp.jail", Key: "mode", Value: `"on"`}
	for _, tt := range []struct{ old, new string }{
		{"[mcp.jail]\nmode = \"on\"\nmine = 1\n", "[mcp.jail]\nmine = 1\n"},
		{"a = 1\n\n[mcp.jail]\nmode = \"on\"\n", "a = 1\n"},
		{"[mcp.jail]\nmode = \"off\"\n", "[mcp.jail]\nmode = \"off\"\n"},
		{"mcp.jail = { mode = \"on\", mine = 1 }\n", ""},
		{"[mcp]\njail = { mine = 1, mode = \"on\" }\n", ""},
		{"mcp.jail.mode = \"on\"\n", ""},
	} {
		got, err := e.Undo([]byte(tt.old), "")
		if string(got) != tt.new || (err == nil) != (tt.new != "") {
			t.Errorf("%q became %q, %v", tt.old, got, err)
		}
	}
}

// Whatever the text is, an edit gives TOML with all of its lines, or an error.
func FuzzEdit(f *testing.F) {
	for _, seed := range []string{commented, whole, "policy = 1", "[tools]\nallow=[ 'a' ,\n'b'\n]",
		"tools.allow = []", "[tools]\nallow = [\"\"\"a\"\"\"]", "\"tools\" = {}"} {
		f.Add(seed, "core-utils/grep")
	}
	f.Fuzz(func(t *testing.T, text, item string) {
		for _, e := range []syntax.Edit{syntax.AddItem("tools", "allow", item),
			syntax.SetKey("workspace", "access", "read"), syntax.AddMount(policy.Mount{Target: "/a",
				Access: policy.Tmpfs})} {
			out, err := e.Apply([]byte(text))
			if err != nil {
				continue
			}
			if _, err := syntax.Plain("x.toml", out); err != nil {
				if _, before := syntax.Plain("x.toml", []byte(text)); before == nil {
					t.Fatalf("%q became %q: %v", text, out, err)
				}
			}
			if strings.Count(string(out), "#") < strings.Count(text, "#") {
				t.Fatalf("a comment is lost: %q became %q", text, out)
			}
		}
	})
}
