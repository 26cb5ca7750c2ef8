package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/runners/wasi/wasitest"
)

var update = flag.Bool("update", false, "write the schema anew")

const schemaFile = "../../../docs/agent.schema.json"

// whole has every key.
const whole = `agent = 1
type = "agent"
name = "triage"
runtime = "sandboxed"
module = "python/python3"
args = ["main.py"]
profile = "agent"
channels = ["team", "ops"]
handle = "Triage"
config = { repo = "acme/web", deep = { list = [1, 2.5, true] } }
capabilities = { network = false, ai = true, storage = true, facets = true, tools = ["core-utils/*"] }

[tools]
workspace = "/srv/web"
[storage]
size = "32MiB"
[ai]
roles = { fast = "anthropic/small", own = { url = "http://10.0.0.1:8000/x/", model = "m", form = "chat" } }
tokens_day = 200000
[wake]
heartbeat = "15m"
idle = "10s"
deadline = "20s"
batch = 8
retries = 0
[limits]
memory = "128MiB"
pids = 8
`

// onHost is one of the host's own folder.
const onHost = "agent = 1\ntype = \"agent\"\nname = \"a\"\nruntime = \"node\"\nnative = [\"./a\"]\n" +
	"capabilities = { network = true }\n"

const least = "agent = 1\ntype = \"agent\"\nname = \"a\"\nmodule = \"a.wasm\"\n"

func TestParse(t *testing.T) {
	m, err := Parse("agent.toml", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	if m.Name != "triage" || m.Handle != "Triage" || !m.Has("ops") || m.Storage != 32<<20 ||
		m.Wake != (Wake{15 * time.Minute, false, 10 * time.Second, 20 * time.Second, 8, 0}) ||
		!slices.Equal(m.Limits, []string{"memory=128MiB", "pids=8"}) || m.AI.TokensDay != 200000 ||
		m.AI.Roles["fast"] != (Role{Form: "messages", URL: "https://api.anthropic.com",
			Model: "small", Credential: "anthropic"}) ||
		m.AI.Roles["own"] != (Role{Form: "chat", URL: "http://10.0.0.1:8000/x", Model: "m"}) {
		t.Errorf("%+v", m)
	}
	if string(m.Config) != `{"deep":{"list":[1,2.5,true]},"repo":"acme/web"}` {
		t.Errorf("config: %s", m.Config)
	}
	if !slices.Equal(m.Bindings(), []string{"PUBSUB", "STORAGE", "AI", "HOST"}) {
		t.Errorf("bindings: %v", m.Bindings())
	}
	if len(m.Warnings) != 0 || !slices.Equal(m.Capabilities.Tools, []string{"core-utils/*"}) ||
		m.Tools.Workspace != "/srv/web" {
		t.Errorf("tools %+v, %+v, warnings: %v", m.Capabilities.Tools, m.Tools, m.Warnings)
	}
}

func TestDefaults(t *testing.T) {
	m, err := Parse("agent.toml", []byte(least))
	if err != nil {
		t.Fatal(err)
	}
	if m.Runtime != sandboxed || m.Profile != "agent" || !slices.Equal(m.Channels, []string{"main"}) ||
		m.Handle != "a" || string(m.Config) != "{}" || m.Storage != defaultStorage ||
		m.Wake != (Wake{0, false, defaultIdle, defaultDeadline, defaultBatch, defaultRetries}) ||
		!slices.Equal(m.Bindings(), []string{"PUBSUB", "HOST"}) || len(m.Warnings) != 0 {
		t.Errorf("%+v", m)
	}
	for text, want := range map[string]string{"workerd": sandboxed, "node": Host, "host": Host,
		"sandboxed": sandboxed} {
		what := "module = \"a.wasm\"\n"
		if want == Host {
			what = "native = [\"./a\"]\ncapabilities = { network = true }\n"
		}
		m, err := Parse("agent.toml", []byte(what+"agent = 1\ntype = \"agent\"\nname = \"a\"\n"+
			"runtime = \""+text+"\""))
		if err != nil || m.Runtime != want {
			t.Errorf("runtime %s: %v, %v", text, m, err)
		}
	}
}

// The same keys in JSON mean the same.
func TestJSON(t *testing.T) {
	values, err := syntax.Plain("x", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.MarshalIndent(values, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	a, err := Parse("agent.json", text)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := Parse("agent.toml", []byte(whole))
	a.Source, a.Warnings, b.Source, b.Warnings = "", nil, "", nil
	one, _ := json.Marshal(a)
	two, _ := json.Marshal(b)
	if !bytes.Equal(one, two) {
		t.Errorf("\n%s\n%s", one, two)
	}
	for text, want := range map[string]string{
		"{\n \"agent\": 1, \"type\": \"agent\", \"name\": \"a\", \"module\": \"a.wasm\",\n \"runtim\": \"node\"}": "agent.json:3:2: unknown key \"runtim\": did you mean `runtime`?",
		"{\"agent\": 1, \"agent\": 1}": "agent.json:1:21: is no JSON of a manifest: \"agent\" is said a second time",
		"[]":                           "the manifest is no object",
		"{\"agent\": 1":                "is no JSON of a manifest",
		"{} {}":                        "more than one value",
		strings.Repeat(`{"a":`, 40):    "deeper than 16 levels",
	} {
		if _, err := Parse("agent.json", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n%v\nwant %s", text, err, want)
		}
	}
}

// wrong has what is wrong behind the keys that a manifest must have, and what is said of it.
var wrong = map[string]string{
	"":                                   "agent.toml:1:1: the version of the manifest is missing: write `agent = 1` as the first line",
	"agent = 2":                          "agent.toml:1:1: agent is the version of the manifest, and there is only 1",
	least + "chanels = [\"a\"]":          "agent.toml:5:1: unknown key \"chanels\": did you mean `channels`?",
	least + "xyzzy = 1":                  "unknown key \"xyzzy\": there are agent, type, name",
	least + "[wake]\nhearbeat = \"1m\"":  "agent.toml:6:1: unknown key \"wake.hearbeat\": did you mean `heartbeat`?",
	least + "[limits]\nmemry = \"1MiB\"": "agent.toml:6:1: unknown key \"limits.memry\": did you mean `memory`?",
	least + "[limits]\nmemory = \"1MB\"": "agent.toml:6:1: limits.memory: ",
	least + "channels = \"team\"":        "agent.toml:5:1: channels must be a list of texts in quotes",
	least + "channels = [\"ok\", 3]":     "agent.toml:5:19: channels.1 must be text in quotes",
	least + "channels = [\"../x\"]":      "\"../x\" is no name of 1 to 128 lower-case letters",
	least + "channels = [\"a\", \"a\"]":  "channels: \"a\" is said twice: leave one of them out",
	least + "channels = []":              "channels is empty: leave it out for [\"main\"]",
	least + "runtime = \"sandbox\"":      "did you mean `sandboxed`?",
	least + "runtime = \"host\"":         "module: an agent with runtime = \"host\" is a program of the host",
	"agent = 1\ntype = \"agent\"\nname = \"a\"\nnative = [\"./a\"]\nruntime = \"host\"": "capabilities.network: an agent with runtime = \"host\" has the network of its user",
	"agent = 1\ntype = \"agent\"\nname = \"a\"\nnative = [\"./a\"]\nruntime = \"host\"\nprofile = \"agent\"\n" +
		"[capabilities]\nnetwork = true\n[limits]\nmemory = \"1MiB\"": "limits bounds a jail, and an agent with runtime = \"host\" has none",
	"agent = 1\ntype = \"agent\"\nname = \"a\"\nnative = [\"./a\"]\nruntime = \"host\"\nprofile = \"agent\"\n" +
		"[capabilities]\nnetwork = true\nfacets = true": "capabilities.facets: facets and loaded programs have a part of the jail",
	least + "native = [\"x\"]":                                                    "module and native exclude each other",
	least + "policy = \"../p.toml\"":                                              "is no .toml file below the agent's directory",
	least + "profile = \"x\"\npolicy = \"p.toml\"":                                "profile and policy exclude each other",
	least + "handle = \"a b\"":                                                    "is no handle of 1 to 63 letters",
	least + "config = 3":                                                          "config must be a table",
	least + "config = { at = 2020-01-01 }":                                        "a value that has no meaning here",
	least + "[capabilities]\nai = 1":                                              "capabilities.ai must be true or false",
	least + "[storage]\nsize = \"2GiB\"":                                          "storage.size: want 1MiB to 1GiB, not 2GiB",
	least + "[tools]\nworkspace = \"web\"":                                        "is no clean absolute path",
	least + "[storage]\nsize = 5":                                                 "storage.size must be text with a unit, such as \"64MiB\"",
	least + "[wake]\nidle = \"2h\"":                                               "wake.idle: want 100ms to 1h, not 2h",
	least + "[wake]\nbatch = 0":                                                   "wake.batch: want 1 to 1000, not 0",
	least + "[ai]\nroles = { a = \"x/y\" }":                                       "is no PROVIDER/MODEL with a provider of anthropic, openai",
	least + "[ai]\nroles = { a = { url = \"ftp://x\", model = \"m\" } }":          "is no URL of a model's host",
	least + "[ai]\nroles = { a = { url = \"https://x\" } }":                       "ai.roles.a: model is missing",
	"agent = 1\ntype = \"agent\"\nname = \"A\"\nmodule = \"a.wasm\"":              "is no name of 1 to 63 lower-case letters",
	"agent = 1\ntype = \"agent\"\nname = \"a\"":                                   "module is missing",
	"agent = 1\ntype = \"tool\"\nname = \"a\"\nmodule = \"a.wasm\"":               "type: \"tool\" is no value that it can have: it is one of agent",
	"agent = 1\ntype = \"agent\"\nname = \"a\"\nmodule = \"../a.wasm\"":           "is no file below the agent's directory",
	"agent = 1\ntype = \"agent\"\nname = \"a\"\nmodule = \"/a/b/c\"":              "is neither a .wasm file nor a command of a bundle",
	"agent = 1\ntype = \"agent\"\nname = \"a\"\nnative = []":                      "native is empty",
	"agent = 1\ntype = \"agent\"\nname = \"a\"\nnative = [\"x\"]\nargs = [\"y\"]": "args are those of a module",
	"agent = \n": "is no TOML",
}

func TestWrong(t *testing.T) {
	for text, want := range wrong {
		_, err := Parse("agent.toml", []byte(text))
		if _, ok := errors.AsType[syntax.Errors](err); !ok || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n%v\nwant %s", text, err, want)
		}
	}
	_, err := Parse("agent.toml", []byte(least+"a = 1\nb = 2\n[wake]\nc = 3\n"))
	if found, _ := errors.AsType[syntax.Errors](err); len(found) != 3 || found[2].Text != "c = 3" {
		t.Errorf("not all errors at once, with their lines: %v", err)
	}
}

func TestSchemaFile(t *testing.T) {
	if *update {
		if err := os.WriteFile(schemaFile, schema(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(schemaFile)
	if err != nil || string(text) != string(schema()) {
		t.Errorf("%s is not current: go test ./supervisor/agents/manifest -run Schema -update (%v)",
			schemaFile, err)
	}
}

// beyondSchema are errors that a schema cannot say.
var beyondSchema = []string{"../", "exclude", "limits.memory", "want 1MiB", "want 100ms",
	"neither a .wasm", "are those of a module", "said twice", "is no TOML", "no meaning here"}

func TestSchema(t *testing.T) {
	var s jsonschema.Schema
	if err := json.Unmarshal(schema(), &s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	valid := func(text string) error {
		values, err := syntax.Plain("x", []byte(text))
		if err != nil {
			return err
		}
		body, _ := json.Marshal(values)
		var instance any
		if err := json.Unmarshal(body, &instance); err != nil {
			return err
		}
		return r.Validate(instance)
	}
	for _, text := range []string{whole, least, onHost} {
		if err := valid(text); err != nil {
			t.Errorf("%v in\n%s", err, text)
		}
	}
	for text, want := range wrong {
		beyond := slices.ContainsFunc(beyondSchema, func(s string) bool {
			return strings.Contains(want, s) || strings.Contains(text, s)
		})
		if !beyond && valid(text) == nil {
			t.Errorf("the schema lets through\n%s\nof which is said: %s", text, want)
		}
	}
}

// dir makes a directory of files.
func dir(t *testing.T, files map[string]string) string {
	t.Helper()
	d := t.TempDir()
	for name, text := range files {
		path := filepath.Join(d, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// module returns a command that imports the functions, as module.name.
func module(imports ...string) string {
	m := wasitest.Module{Types: []wasitest.Type{{}}, Funcs: []wasitest.Func{{Type: 0}},
		Exports: []wasitest.Export{{Name: "_start", Index: uint32(len(imports))}}}
	for _, im := range imports {
		from, name, _ := strings.Cut(im, ".")
		m.Imports = append(m.Imports, wasitest.Import{Module: from, Name: name})
	}
	return string(m.Encode())
}

func TestLoad(t *testing.T) {
	const bundle = "agent = 1\ntype = \"agent\"\nname = \"a\"\nmodule = \"python/python3\"\nargs = [\"main.py\"]\n"
	d := dir(t, map[string]string{"agent.toml": bundle, "main.py": "x", ".git/config": "y",
		"__pycache__/x.pyc": "z"})
	a, err := Load(d, Options{})
	if err != nil || !slices.Equal(a.Files, []string{"agent.toml", "main.py"}) || !a.Script() {
		t.Fatalf("%+v, %v", a, err)
	}
	before := a.Digest
	if err := os.WriteFile(filepath.Join(d, "main.py"), []byte("changed"), 0o644); err != nil {
		t.Fatal(err)
	}
	if a, err = Load(d, Options{}); err != nil || a.Digest == before {
		t.Errorf("the digest stays %s, %v", before, err)
	}
	for want, files := range map[string]map[string]string{
		`module: there is no file "a.wasm"`:                            {"agent.toml": least},
		`args: there is no file "main.py"`:                             {"agent.toml": bundle},
		`policy: there is no file "p.toml"`:                            {"agent.toml": least + `policy = "p.toml"`, "a.wasm": module()},
		"an agent of a user runs in a jail":                            {"agent.toml": onHost, "a": "#!/bin/sh\n"},
		"agent.toml:4:1: module a.wasm: the file is not a WebAssembly": {"agent.toml": least, "a.wasm": "no module at all"},
		"it imports jail_agent_storage_v1.call, and capabilities.storage is false: write " +
			"capabilities.storage = true": {"agent.toml": least, "a.wasm": module("jail_agent_host_v1.wait",
			"jail_agent_storage_v1.call")},
		"it imports jail_agent_ai_v1.call, and capabilities.ai is false": {"agent.toml": least,
			"a.wasm": module("jail_agent_ai_v1.call")},
		"it imports jail_fetch_v1.open, and capabilities.network is false": {"agent.toml": least,
			"a.wasm": module("jail_fetch_v1.open")},
		"imports env.f, which is not granted": {"agent.toml": least, "a.wasm": module("env.f")},
	} {
		if _, err := Load(dir(t, files), Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
	// Of the host's folder every file is root's alone to change.
	d = dir(t, map[string]string{"agent.toml": onHost, "a": "#!/bin/sh\n", "lib/b": ""})
	if _, err := Load(d, Options{Host: true}); os.Geteuid() == 0 && err != nil {
		t.Errorf("an agent of root: %v", err)
	}
	if err := os.Chmod(filepath.Join(d, "lib"), 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(d, Options{Host: true}); err == nil ||
		!strings.Contains(err.Error(), "can be changed by others than root") {
		t.Errorf("a directory that all can write to: %v", err)
	}
	if _, err := Load(t.TempDir(), Options{}); !errors.Is(err, fs.ErrNotExist) ||
		!strings.Contains(err.Error(), "has no agent.toml") {
		t.Errorf("no manifest: %v", err)
	}
	if a, err := Load(dir(t, map[string]string{"agent.toml": least + "[capabilities]\nai = true\n" +
		"network = true\n", "a.wasm": module("jail_agent_pubsub_v1.call", "jail_agent_ai_v1.call",
		"jail_fetch_v1.open")}), Options{}); err != nil || a.Script() {
		t.Errorf("with its capabilities: %v", err)
	}
	link := dir(t, map[string]string{"agent.toml": bundle})
	if err := os.Symlink("/etc/passwd", filepath.Join(link, "main.py")); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(link, Options{}); err == nil || !strings.Contains(err.Error(), "neither a file nor") {
		t.Errorf("a link outward: %v", err)
	}
}

// A script that imports what an agent may not use is refused, with what to use instead; text that
// only looks like an import is not.
func TestScriptImports(t *testing.T) {
	const js = "agent = 1\ntype = \"agent\"\nname = \"a\"\nmodule = \"js/qjs\"\nargs = [\"main.js\"]\n"
	for name := range refusedImports {
		for _, form := range []string{
			`import x from "NAME";`, `import { a as b } from 'NAME'`, `import "NAME"`,
			"import * as x\nfrom /* where */ \"NAME\"", `export * from "NAME"`,
			`const x = require("NAME")`, "await import(`NAME`)", `var a = b / 2; require('NAME')`,
			"`a ${ require('NAME') } b`", `/"/.test(x); require("NAME")`,
		} {
			for _, prefix := range []string{"", "node:"} {
				text := strings.ReplaceAll("\n  "+form, "NAME", prefix+name)
				_, err := Load(dir(t, map[string]string{"agent.toml": js, "main.js": "", "lib/x.mjs": text}),
					Options{})
				want := "an agent may not import \"" + prefix + name + "\": " + refusedImports[name]
				if err == nil || !strings.Contains(err.Error(), want) ||
					!strings.Contains(err.Error(), "x.mjs:") {
					t.Errorf("%s\n%v", text, err)
				}
			}
		}
	}
	d := dir(t, map[string]string{"agent.toml": js, "main.js": "a;\n\n x = require(\"\\x66s\")"})
	if _, err := Load(d, Options{}); err == nil || !strings.Contains(err.Error(), "main.js:3:14: an agent may not import \"fs\"") {
		t.Errorf("%v", err)
	}
	for _, text := range []string{`import x from "./fs.js"`, `// import "fs"`, `/* require("fs") */`,
		`let a = "import 'fs'"`, "`require('fs')`", `print("fs")`, `x.requires("fs")`,
		`const r = /require("fs")/`, `import std from "std"`, "`${a}` + \"fs\""} {
		d := dir(t, map[string]string{"agent.toml": js, "main.js": text})
		if _, err := Load(d, Options{}); err != nil {
			t.Errorf("%s\n%v", text, err)
		}
	}
}

func FuzzScriptImports(f *testing.F) {
	f.Add([]byte("`${`${'\\u{66}'}`}` /[/]/ import('fs')"))
	f.Fuzz(func(_ *testing.T, text []byte) { scriptImports(text) })
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, source := range []string{"agent.toml", "agent.json"} {
			if m, err := Parse(source, text); (m == nil) == (err == nil) {
				t.Errorf("%v, %v", m, err)
			}
		}
	})
}
