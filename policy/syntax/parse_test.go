package syntax_test

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/policytest"
	"github.com/jail-sandbox/jail/policy/syntax"
)

// whole is a profile with every key there is.
const whole = `policy = 1
name = "python"
about = "Run Python over a shadow of the current directory; PyPI read-only."

[workspace]
access  = "shadow"
hide    = [".env", "**/*.pem"]
protect = ["Makefile"]
commit  = "ask"

[[mount]]
source = "/usr/share/dict"
target = "/data/dict"
access = "read"

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
allow   = ["core-utils/*", "python/*"]
modules = ["**"]
native  = []

[[fetch.allow]]
host    = "pypi.org"
ports   = [443]
methods = ["GET", "HEAD"]
paths   = ["/simple/**"]
credential = ""

[fetch.limits]
requests = 100
bytes_in = "50MiB"
bytes_out = "1MiB"
concurrent = 8
timeout = "30s"

[env]
set  = { LANG = "C.UTF-8" }
pass = ["TERM"]

[syscalls]
groups = ["wasi"]
`

func parse(t *testing.T, kind syntax.Kind, text string) syntax.File {
	t.Helper()
	f, err := syntax.Parse(kind, "x.toml", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestParseWhole(t *testing.T) {
	f := parse(t, syntax.Profile, whole)
	pypi, err := policy.ParseHost("pypi.org")
	if err != nil {
		t.Fatal(err)
	}
	limits := policy.TopLimits()
	limits.Wall, limits.CPUTime, limits.CPUs = 30*time.Second, 20*time.Second, 1000
	limits.Memory, limits.PIDs, limits.OpenFiles = 256<<20, 32, 256
	limits.Output, limits.Workspace, limits.WorkspaceFiles = 1<<20, 512<<20, 10000
	limits.FileSize = 64 << 20
	want := policy.Policy{
		Workspace: policy.Workspace{Access: policy.WorkspaceShadow, Hide: []string{".env",
			"**/*.pem"}, Protect: []string{"Makefile"}, Commit: policy.CommitAsk},
		Mounts: policy.Mounts{{Source: "/usr/share/dict", Target: "/data/dict",
			Access: policy.Read}},
		Limits: limits,
		Tools: policy.Tools{Allow: policy.MustGlobs("core-utils/*", "python/*"),
			Modules: policy.MustGlobs("**")},
		Fetch: policy.Fetch{
			Allow: []policy.FetchRule{{Host: pypi, Ports: policy.OnePort(443),
				Methods: policy.MustGlobs("GET", "HEAD"), Paths: policy.MustGlobs("/simple/**")}},
			Limits: policy.FetchLimits{Requests: 100, BytesIn: 50 << 20, BytesOut: 1 << 20,
				Concurrent: 8, Timeout: 30 * time.Second},
		},
		Env: policy.Env{Set: policy.Vars{Values: map[string]string{"LANG": "C.UTF-8"}},
			Pass: policy.MustGlobs("TERM")},
		Syscalls: policy.Syscalls{Groups: []string{"wasi"}},
		Audit:    policy.TopAudit(),
		Session:  policy.Session{Engine: policy.EngineRequest},
		Outer:    policy.TopOuter(),
	}
	if !policytest.Same(f.Policy, want) {
		t.Errorf("read as\n%s\nwant\n%s", f.Policy, want)
	}
	if f.Name != "python" || !strings.HasPrefix(f.About, "Run Python") ||
		f.Kind != syntax.Profile || f.Source != "x.toml" {
		t.Errorf("file is %+v", f)
	}
	for key, line := range map[string]int{
		"limits.memory": 20, "workspace.access": 6, "tools.allow": 29, "tools.allow[1]": 29,
		`tools.allow "python/*"`: 29,
		`workspace.hide ".env"`:  7, `mount "/data/dict from /usr/share/dict read"`: 11,
		"fetch.limits.timeout": 45, "env.set.LANG": 48,
	} {
		if at := f.At[key]; at.Line != line || at.File != "x.toml" {
			t.Errorf("%s is at %s, want line %d", key, at, line)
		}
	}
}

// A Decision names its rule as At names its place.
func TestRulesHavePlaces(t *testing.T) {
	f := parse(t, syntax.Profile, whole)
	eff, err := policy.Resolve(policy.Layer{Name: "profile", Policy: f.Policy})
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []policy.Question{
		policy.Tool{Bundle: "python", Command: "python3"}, policy.Module{Path: "/a.wasm"},
		policy.Connect{Host: "pypi.org", Port: 443},
		policy.Open{Path: "/data/dict/words", Want: policy.Read},
		policy.Open{Path: "/workspace/.env", Want: policy.Read},
	} {
		if d := eff.Decide(q); f.At[d.Rule].Line == 0 {
			t.Errorf("%s: rule %s has no place", q, d.Rule)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		// Each error, with its line and column, in part.
		want []string
	}{
		{"no version", `name = "x"`, []string{"1:1: the version of the language is missing"}},
		{"other version", `policy = 2`, []string{"1:10: policy is the version"}},
		{"version of another type", `policy = "1"`, []string{"1:10: policy is the version"}},
		{"unknown key", "policy = 1\nmemory = 1",
			[]string{"2:1: unknown key \"memory\": `memory` belongs to [limits]"}},
		{"a host of a push",
			"policy = 1\n[[approve]]\naction = \"git.push\"\nhost = \"example.com\"\nmode = \"ask\"",
			[]string{"approve[0]: host and methods are of fetches"}},
		{"no action", "policy = 1\n[[approve]]\naction = \"push\"\nmode = \"ask\"",
			[]string{`3:10: approve[0].action: "push" is no action that can wait for an approval`}},
		{"a tool twice",
			"policy = 1\n[[approve]]\naction = \"tool:curl\"\ntool = \"wget\"\nmode = \"ask\"",
			[]string{"3:10: approve[0].action: the tool is named twice"}},
		{"near miss", "policy = 1\n[limits]\nmemmory = 1",
			[]string{"3:1: unknown key \"memmory\" in [limits]: did you mean `memory`?"}},
		{"swapped letters", "policy = 1\n[limits]\npisd = 1", []string{"did you mean `pids`?"}},
		{"case of a key", "policy = 1\n[Limits]\nmemory = \"1MiB\"",
			[]string{"2:2: unknown key \"Limits\": keys are in lower case: write `limits`"}},
		{"two keys that differ by case",
			"policy = 1\n[limits]\nmemory = \"1MiB\"\nMemory = \"2MiB\"",
			[]string{"4:1: unknown key \"Memory\""}},
		{"far from anything", "policy = 1\nzzzzzzzz = 1",
			[]string{"there are about, agent, approve, audit, env, fetch"}},
		{"key twice", "policy = 1\nname = \"a\"\nname = \"b\"",
			[]string{"3:1: \"name\" is said a second time, after line 2"}},
		{"section twice", "policy = 1\n[limits]\n[limits]",
			[]string{"3:2: \"limits\" is said a second time"}},
		{"dotted over inline", "policy = 1\nenv = {}\nenv.pass = []",
			[]string{"3:1: \"env\" is said a second time"}},
		{"section over dotted", "policy = 1\nlimits.pids = 1\n[limits]\npids = 2",
			[]string{"4:1: \"pids\" is said a second time"}},
		{"list over section", "policy = 1\n[mount]\n[[mount]]",
			[]string{"3:3: \"mount\" is said a second time"}},
		{"section over value", "policy = 1\n[policy.x]",
			[]string{"2:2: \"policy\" is said a second time"}},
		{"no TOML", "policy = 1\n[limits\n", []string{"2:8: is no TOML"}},
		{"open string", "policy = 1\nname = \"a\n", []string{"is no TOML"}},
		{"byte order mark", "\ufeffpolicy = 1",
			[]string{"1:1: the file starts with a byte order mark"}},
		{"not UTF-8", "policy = 1\nname = \"é\xff\"", []string{"2:11: the file is not UTF-8"}},
		{"UTF-16", "p\x00o\x00", []string{"is no TOML"}},
		{"too large", "#" + strings.Repeat("x", syntax.MaxBytes),
			[]string{"1:1: the file is larger than 1 MiB"}},
		{"deep list", "policy = 1\ninclude = " + strings.Repeat("[", 5000) + strings.Repeat("]",
			5000), []string{"nested deeper than 16"}},
		{"very deep list", "policy = 1\ninclude = " + strings.Repeat("[", 400000),
			[]string{"is no TOML"}},
		{"deep key", "policy = 1\n" + strings.Repeat("a.", 5000) + "a = 1",
			[]string{"nested deeper than 16"}},
		{"deep header", "policy = 1\n[" + strings.Repeat("a.", 5000) + "a]",
			[]string{"nested deeper than 16"}},
		{"deep inline", "policy = 1\nenv = " + strings.Repeat("{a=", 100) + "1" +
			strings.Repeat("}", 100), []string{"nested deeper than 16"}},
		{"section is a value", "policy = 1\nlimits = 3\ntools = [\"a\"]",
			[]string{"2:10: limits is a whole number, and must be a table",
				"tools is a list, and must be a table"}},
		{"value is a section", "policy = 1\n[name]",
			[]string{"name is a table, and must be a string"}},
		{"string is no number", "policy = 1\n[limits]\npids = \"32\"\ncpus = \"1\"",
			[]string{"3:8: limits.pids is a string, and must be a whole number",
				"limits.cpus is a string, and must be a number"}},
		{"number is no string", "policy = 1\n[limits]\nmemory = 268435456\nwall = 30",
			[]string{"must be a string with a unit, such as \"256MiB\"", "such as \"30s\""}},
		{"impossible limits",
			"policy = 1\n[limits]\nmemory = \"0MiB\"\nwall = \"-1s\"\npids = 0\ncpus = -1.5\n" +
				"open_files = -3\noutput = \"99999TiB\"\nfile_size = \"64MB\"\n" +
				"workspace_files = 99999999999999999999", []string{
				"3:10: limits.memory: 0MiB is no limit", "4:8: limits.wall: -1s",
				"5:8: limits.pids: 0",
				"limits.cpus: -1.5", "limits.open_files: -3",
				"limits.output: 99999TiB is more than 1024TiB",
				"limits.file_size: \"64MB\" is no size", "too large",
			}},
		{"endless limits", "policy = 1\n[limits]\ncpus = inf",
			[]string{"limits.cpus: inf is more than"}},
		{"no number", "policy = 1\n[limits]\ncpus = nan", []string{"limits.cpus"}},
		{"dates and truth", "policy = 1\nname = 1979-05-27\nabout = true",
			[]string{"name is a date or time", "about is true or false"}},
		{"words", "policy = 1\n[workspace]\naccess = \"shadw\"\ncommit = \"yes\"",
			[]string{"did you mean `shadow`?",
				"commit: \"yes\" is no value that it can have: it is one of never, ask, auto"}},
		{"names", "policy = 1\nname = \"../x\"\ninclude = [\"A\", \"a//b\", 3, \"\"]",
			[]string{"no name of lower-case", "include[0]", "include[1]",
				"include[2] is a whole number", "include[3]"}},
		{"about", "policy = 1\nabout = \"a\\u001b[31m\"", []string{"cannot be shown"}},
		{"patterns",
			"policy = 1\n[workspace]\nhide = [\"../x\", \"a[b]\", 1]\n[tools]\n" +
				"allow = [\"a\", \"a/b\", \"a/b\"]\nmodules = [\"x.wasm\"]\nnative = [\"git\"]", []string{
				"3:9: workspace.hide[0]", "3:17: workspace.hide[1]",
				"workspace.hide[2] is a whole number", "5:10: tools.allow[0]",
				"5:22: tools.allow[2]: \"a/b\" is in the list twice", "tools.modules[0]",
				"tools.native[0]",
			}},
		{"mounts", "policy = 1\n[[mount]]\nsource = \"../x\"\ntarget = \"/\"\naccess = \"raed\"\n" +
			"mode = 1\n[[mount]]\nsource = \"/a\"\n[[mount]]\nsource = \"/a\"\naccess = \"read\"\n" +
			"[[mount]]\ntarget = \"/x\"\naccess = \"read\"\n[[mount]]\nsource = \"\"", []string{
			"3:10: mount[0].source", "4:10: mount[0].target", "did you mean `read`?",
			"6:1: unknown key \"mode\" in [mount[0]]", "7:3: mount[1]: access is missing",
			"9:3: mount[2]: target is missing", "12:3: mount[3]: source is missing",
			"mount[4].source is empty",
		}},
		{"no list of mounts", "policy = 1\nmount = \"/x\"",
			[]string{"mount is a string, and must be a list of tables"}},
		{"mounts of another type", "policy = 1\nmount = [1]",
			[]string{"mount[0] is a whole number, and must be a table"}},
		{"hosts", "policy = 1\n[[fetch.allow]]\nhost = \"https://a.test\"\n[[fetch.allow]]\n" +
			"host = \"bücher.test\"\n[[fetch.allow]]\nhost = \"*.com\"\n[[fetch.allow]]\n" +
			"host = \"a.test:443\"\n[[fetch.allow]]\nports = [443]\n[[fetch.allow]]\n" +
			"host = \"10.0.0.0/8\"", []string{
			"3:8: fetch.allow[0].host", "scheme", "xn--", "top-level domain", "colon",
			"fetch.allow[4]: host is missing", "slash",
		}},
		{"rules", "policy = 1\n[[fetch.allow]]\nhost = \"a.test\"\n" +
			"ports = [0, 65536, \"443\", \"https\", true]\nmethods = [\"get\", \"TRACE\"]\n" +
			"paths = [\"x\", \"/%2f\", \"/%61dmin/**\", \"/%c3%a4/*\"]\ncredential = \"a b\"", []string{
			"ports[0]", "ports[1]", "write the number without quotes", "ports[3]",
			"ports[4] is true or false", "methods[0]", "methods[1]", "paths[0]", "paths[1]",
			`sent is "/admin/**"`, `sent is "/%C3%A4/*"`, "credential",
		}},
		{"environment",
			"policy = 1\n[env]\nset = { \"A=B\" = \"x\", C = 1 }\npass = [\"A/B\"]\nallow = \"*\"",
			[]string{"env.set.A=B", "env.set.C is a whole number", "env.pass[0]",
				"env.allow is a string, and must be a list"}},
		{"environment is no table", "policy = 1\n[env]\nset = [\"A=B\"]",
			[]string{"env.set is a list, and must be a table"}},
		{"groups", "policy = 1\n[syscalls]\ngroups = [\"everything\"]",
			[]string{"no syscall group is called \"everything\""}},
		{"limits are missing", "policy = 1\n[limits]\nmemory = \"1MiB\"",
			[]string{"2:2: limits are missing, and a limit that is missing grants nothing: " +
				"[limits] has no wall, cpu_time, cpus, pids, open_files, output, workspace, " +
				"workspace_files, file_size: add `include = [\"base\"]`"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := syntax.Parse(syntax.Profile, "x.toml", []byte(tt.text), nil)
			var all syntax.Errors
			if !errors.As(err, &all) {
				t.Fatalf("no errors, but %v", err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("no error has %q in\n%v", want, err)
				}
			}
			for _, one := range all {
				if one.File != "x.toml" || one.Line < 1 || one.Column < 1 ||
					strings.Contains(one.Message, "\n") {
					t.Errorf("error %+v has no place, or more than a line", one)
				}
			}
			if len(all.Unwrap()) != len(all) {
				t.Error("Unwrap loses errors")
			}
		})
	}
}

// All at once, in the order of the file.
// TestApproveTool: tool:NAME is short for the action tool with a tool of that name.
func TestApproveTool(t *testing.T) {
	short := parse(t, syntax.Ceiling, "policy = 1\n[[approve]]\naction = \"tool:curl\"\nmode = \"ask\"")
	long := parse(t, syntax.Ceiling, "policy = 1\n[[approve]]\naction = \"tool\"\ntool = \"curl\"\nmode = \"ask\"")
	if got, want := short.Policy.Approve, long.Policy.Approve; len(got) != 1 || got[0].String() != want[0].String() {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestAllErrorsAtOnce(t *testing.T) {
	_, err := syntax.Parse(syntax.Profile, "x.toml",
		[]byte("polcy = 1\nname = 3\n[limits]\nmemory = 1\npids = 0\n[tools]\nalow = []\n"), nil)
	var all syntax.Errors
	if !errors.As(err, &all) || len(all) != 6 {
		t.Fatalf("%d errors, want 6:\n%v", len(all), err)
	}
	for i := 1; i < len(all); i++ {
		if all[i].Line < all[i-1].Line {
			t.Errorf("errors are out of order:\n%v", err)
		}
	}
}

// T-226: what a key that is left out means.
func TestLeftOut(t *testing.T) {
	for _, kind := range []syntax.Kind{syntax.Ceiling, syntax.Request} {
		all := policy.Top()
		if kind == syntax.Ceiling {
			all.Outer = policy.KeepingOuter()
		}
		if f := parse(t, kind, "policy = 1"); !policytest.Same(f.Policy, all) {
			t.Errorf("an empty %s is %s", kind, f.Policy)
		}
		f := parse(t, kind,
			"policy = 1\nmount = []\n[limits]\nmemory = \"1GiB\"\n[tools]\nallow = []\n[fetch]\n"+
				"allow = []\n[env]\nset = {}")
		if f.Policy.Limits.Memory != 1<<30 || f.Policy.Limits.PIDs != policy.Unlimited {
			t.Errorf("limits of a %s are %s", kind, f.Policy.Limits)
		}
		if len(f.Policy.Tools.Allow) != 0 || len(f.Policy.Tools.Native) != 1 ||
			len(f.Policy.Fetch.Allow) != 0 || len(f.Policy.Mounts) != 0 || f.Policy.Env.Set.Any ||
			len(f.Policy.Env.Pass) != 1 {
			t.Errorf("empty lists of a %s are %s", kind, f.Policy)
		}
	}
	ceiling := parse(t, syntax.Ceiling,
		"policy = 1\n[[fetch.allow]]\nhost = \"*.example.com\"\n[[mount]]\nsource = \"/usr\"\n"+
			"access = \"read+exec\"")
	if r := ceiling.Policy.Fetch.Allow[0]; r.Ports.String() != "[*]" ||
		r.Methods.String() != "[*]" || r.Credential != policy.AnyCredential {
		t.Errorf("a rule of a ceiling is %s", r)
	}
	limits := strings.Split(whole, "[tools]")[0]
	bare := parse(t, syntax.Profile, limits)
	if !bare.Policy.Tools.Empty() || len(bare.Policy.Env.Allow) != 0 ||
		len(bare.Policy.Syscalls.Groups) != 0 {
		t.Errorf("a profile grants what it does not say: %s", bare.Policy)
	}
	for _, tt := range [][2]string{
		{"[tools]\nmodules = [\"**\"]", "need the system calls of the group wasi"},
		{"[tools]\nnative = [\"/bin/x\"]\n[syscalls]\ngroups = [\"wasi\"]",
			"needs the system calls of the group native"},
		{"[[fetch.allow]]\nhost = \"a.test\"", "[fetch.limits] has no requests"},
	} {
		if _, err := syntax.Parse(syntax.Profile, "x.toml", []byte(limits+tt[0]),
			nil); err == nil || !strings.Contains(err.Error(), tt[1]) {
			t.Errorf("%q: %v, want %q", tt[0], err, tt[1])
		}
	}
	fetch := parse(t, syntax.Profile,
		limits+"[[fetch.allow]]\nhost = \"a.test\"\n[fetch.limits]\nrequests = 1\n"+
			"bytes_in = \"1B\"\nbytes_out = \"1B\"\nconcurrent = 1\ntimeout = \"1s\"")
	if r := fetch.Policy.Fetch.Allow[0].String(); r != "a.test ports [443] methods [GET HEAD] "+
		"paths [/**]" {
		t.Errorf("a rule that says only a host is %s", r)
	}
}

// files is a finder over a map.
func files(texts map[string]string) syntax.Finder {
	return func(name string) (string, []byte, error) {
		text, ok := texts[name]
		if !ok {
			return "", nil, fmt.Errorf("finding %s: %w", name, fs.ErrNotExist)
		}
		if text == "forbidden" {
			return "", nil, errors.New("it is not trusted")
		}
		return name + ".toml", []byte(text), nil
	}
}

func TestInclude(t *testing.T) {
	find := files(map[string]string{
		"base": whole,
		"more": "policy = 1\ninclude = [\"base\"]\n[limits]\npids = 64\n[tools]\n" +
			"allow = [\"more/*\"]\n[env]\nset = { LANG = \"de\", X = \"1\" }\n[[mount]]\n" +
			"source = \"/opt\"\ntarget = \"/data/dict\"\naccess = \"read\"",
		"other": "policy = 1\ninclude = [\"base\"]\n[limits]\npids = 7\n[workspace]\n" +
			"hide = [\"other\"]",
		"broken": "policy = 1\nnam = 1",
	})
	f, err := syntax.Parse(syntax.Profile, "x.toml",
		[]byte("policy = 1\nname = \"x\"\ninclude = [\"more\", \"other\"]\n[limits]\n"+
			"memory = \"1GiB\"\n[workspace]\ncommit = \"never\"\nhide = [\".env\", \"own\"]"), find)
	if err != nil {
		t.Fatal(err)
	}
	p := f.Policy
	if p.Limits.Memory != 1<<30 || p.Limits.PIDs != 7 || p.Limits.Wall != 30*time.Second {
		t.Errorf("own keys come first, then the later include: %s", p.Limits)
	}
	if p.Workspace.Commit != policy.CommitNever || p.Workspace.Access != policy.WorkspaceShadow ||
		strings.Join(p.Workspace.Hide, " ") != "**/*.pem .env other own" {
		t.Errorf("workspace is %s", p.Workspace)
	}
	if p.Tools.Allow.String() != "[core-utils/* more/* python/*]" ||
		p.Env.Set.String() != `{LANG="de" X="1"}` {
		t.Errorf("lists are united: %s, %s", p.Tools, p.Env)
	}
	if p.Mounts.String() != "[/data/dict from /opt read]" {
		t.Errorf("a mount of one's own takes the place: %s", p.Mounts)
	}
	if f.Name != "x" || f.About != "" || strings.Join(f.Include, " ") != "more other" {
		t.Errorf("file is %+v", f)
	}
	for key, file := range map[string]string{"limits.memory": "x.toml", "limits.pids": "other.toml",
		"limits.wall": "base.toml", `tools.allow "more/*"`: "more.toml"} {
		if f.At[key].File != file {
			t.Errorf("%s is said in %s, want %s", key, f.At[key], file)
		}
	}
}

func TestIncludeErrors(t *testing.T) {
	texts := map[string]string{
		"self": "policy = 1\ninclude = [\"self\"]", "a": "policy = 1\ninclude = [\"b\"]",
		"b":      "policy = 1\ninclude = [\"a\"]",
		"broken": "policy = 1\nnam = 1", "secret": "forbidden", "base": whole,
		"clash": "policy = 1\n[[mount]]\nsource = \"/b\"\ntarget = \"/data\"\naccess = \"read\"",
	}
	for i := range 1000 {
		texts[fmt.Sprintf("deep%d", i)] = fmt.Sprintf("policy = 1\ninclude = [\"deep%d\"]", i+1)
	}
	var wide strings.Builder
	for i := range 100 {
		texts[fmt.Sprintf("wide%d", i)] = "policy = 1"
		fmt.Fprintf(&wide, "%q,", fmt.Sprintf("wide%d", i))
	}
	for include, want := range map[string]string{
		`"none"`:          `x.toml:2:12: include "none": there is no such policy`,
		`"secret"`:        `include "secret": it is not trusted`,
		`"self"`:          "self.toml:2:12: include goes round in a circle: self includes self",
		`"a"`:             "b.toml:2:12: include goes round in a circle: a includes b includes a",
		`"deep0"`:         "deep15.toml:2:12: include goes deeper than 16 files",
		`"broken"`:        "broken.toml:2:1: unknown key \"nam\": did you mean `name`?",
		wide.String():     "made of more than 64 files",
		`"base", "clash"`: "shows something else there",
	} {
		_, err := syntax.Parse(syntax.Profile, "x.toml", []byte("policy = 1\ninclude = ["+include+
			"]"), files(texts))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("include %.20s: %v, want %q", include, err, want)
		}
	}
	if _, err := syntax.Parse(syntax.Request, "x.toml", []byte("policy = 1\ninclude = [\"a\"]"),
		nil); err == nil || !strings.Contains(err.Error(), "no meaning here") {
		t.Errorf("include without a finder: %v", err)
	}
}

// T-522: nothing is interpolated.
func TestNoInterpolation(t *testing.T) {
	f := parse(t, syntax.Ceiling,
		"policy = 1\r\n[env]\r\nset = { A = \"$HOME ${HOME} ~ %h \\u0041\" }\r\n")
	if got := f.Policy.Env.Set.Values["A"]; got != "$HOME ${HOME} ~ %h A" {
		t.Errorf("A is %q", got)
	}
}

func TestKeys(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range syntax.Keys() {
		if k.About == "" || k.Example == "" || seen[k.Path] {
			t.Errorf("key %+v is not described, or twice", k)
		}
		seen[k.Path] = true
	}
	for _, path := range []string{"limits.memory", "fetch.limits.timeout", "mount.access"} {
		if !seen[path] {
			t.Errorf("key %s is not described", path)
		}
	}
}
