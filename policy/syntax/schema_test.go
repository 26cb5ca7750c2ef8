package syntax_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/jail-sandbox/jail/policy/syntax"
)

var update = flag.Bool("update", false, "write the schema anew")

const schemaFile = "../../docs/policy.schema.json"

func TestSchemaFile(t *testing.T) {
	if *update {
		if err := os.WriteFile(schemaFile, syntax.Schema(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(schemaFile)
	if err != nil || string(text) != string(syntax.Schema()) {
		t.Errorf("%s is not what the keys say: go test ./policy/syntax -run Schema -update (%v)",
			schemaFile, err)
	}
}

func validator(t *testing.T) func(text string) error {
	t.Helper()
	var s jsonschema.Schema
	if err := json.Unmarshal(syntax.Schema(), &s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return func(text string) error {
		v, err := syntax.Plain("x.toml", []byte(text))
		if err != nil {
			return err
		}
		body, err := json.Marshal(v)
		if err != nil {
			return err
		}
		var instance any
		if err := json.Unmarshal(body, &instance); err != nil {
			return err
		}
		return r.Validate(instance)
	}
}

// An editor finds nothing wrong with what is right.
func TestSchemaLetsThrough(t *testing.T) {
	valid := validator(t)
	shipped, err := filepath.Glob("../../profiles/*.toml")
	if err != nil || len(shipped) < 6 {
		t.Fatalf("%v, %v", shipped, err)
	}
	for _, path := range shipped {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := valid(string(text)); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, text := range []string{whole, commented,
		"policy = 1\nversion = 3\n[signed]\nby = [\"ops+5e4f8c11+AeAA\"]\n[profiles.\"*\"]\n" +
			"users = [\"root\"]\n[profiles.\"tools/python\"]\ngroups = [\"dev\", \"100\"]\n",
		"policy = 1\n[without]\ntools.allow = [\"x\"]\n[tool.\"a/b\".limits]\nmemory = \"1MiB\"\n",
		"policy = 1\n[[mount]]\nsource = \"${home}/x\"\ntarget = \"/x\"\naccess = \"read\"\n",
		"policy = 1\n[[fetch.allow]]\nhost = \"*\"\nports = [80, \"8000-8100\"]\nrate = 5\n" +
			"timeout = \"1m30s\"\ntls = \"opaque\"\nwebsocket = true\n[fetch]\nmode = \"report\"\n" +
			"limits.rate = 3\n[[fetch.deny]]\nhost = \"a.test\"",
		"policy = 1\n[outer]\nallow = [\"none\", \"runsc\"]\n[[approve]]\naction = \"tool\"\n" +
			"tool = \"curl\"\nmode = \"ask\"", "policy = 1\nouter.layer = \"crun\""} {
		if err := valid(text); err != nil {
			t.Errorf("%v in\n%s", err, text)
		}
	}
}

// What the parser refuses, the schema refuses, but for what no schema can say.
func TestSchemaRefuses(t *testing.T) {
	valid := validator(t)
	for _, tt := range wrongKeys {
		_, err := syntax.Parse(syntax.Profile, "x.toml", []byte(tt), nil)
		if err == nil {
			t.Errorf("the parser lets through\n%s", tt)
		}
		if valid(tt) == nil {
			t.Errorf("the schema lets through\n%s\nof which the parser says %v", tt, err)
		}
	}
	for why, text := range beyondSchema {
		if _, err := syntax.Parse(syntax.Profile, "x.toml", []byte(text), nil); err == nil {
			t.Errorf("%s: the parser lets it through", why)
		}
		if valid(text) != nil {
			t.Errorf("%s: the schema can say it after all; move it up", why)
		}
	}
}

// wrongKeys has each kind of error that the parser gives about one value.
var wrongKeys = []string{
	"policy = 1\nversion = 0", "policy = 1\nversion = \"1\"", "policy = 1\n[signed]",
	"policy = 1\n[signed]\nby = \"x\"", "policy = 1\n[profiles]\nbuild = []",
	"policy = 1\n[profiles.build]\nuser = [\"x\"]",
	"", "policy = 2", "policy = \"1\"", "policy = 1\nPolicy = 1", "policy = 1\nname = \"Upper\"",
	"policy = 1\nname = \"a//b\"", "policy = 1\nname = 3",
	"policy = 1\nabout = 1", "policy = 1\nabout = \"" + strings.Repeat("x", 501) + "\"",
	"policy = 1\ninclude = \"base\"", "policy = 1\ninclude = [\"Base\"]", "policy = 1\nlimit = 1",
	"policy = 1\n[workspace]\naccess = \"rw\"", "policy = 1\n[workspace]\naccess = 1",
	"policy = 1\n[workspace]\nhide = [\"a[b]\"]", "policy = 1\n[workspace]\nhide = [\"a\", \"a\"]",
	"policy = 1\n[workspace]\ncommit = \"yes\"", "policy = 1\n[workspace]\nprotect = \"x\"",
	"policy = 1\n[workspace]\nhides = []",
	"policy = 1\n[[mount]]\nsource = \"/a\"\ntarget = \"/b\"",
	"policy = 1\n[[mount]]\nsource = \"a\"\ntarget = \"/b\"\naccess = \"read\"",
	"policy = 1\n[[mount]]\nsource = \"\"\ntarget = \"/b\"\naccess = \"read\"",
	"policy = 1\n[[mount]]\nsource = \"/a\"\ntarget = \"/\"\naccess = \"read\"",
	"policy = 1\n[[mount]]\nsource = \"/a\"\ntarget = \"/b\"\naccess = \"exec\"",
	"policy = 1\n[[mount]]\nsource = \"${user}/a\"\ntarget = \"/b\"\naccess = \"read\"",
	"policy = 1\nmount = 3",
	"policy = 1\n[limits]\nmemory = 5", "policy = 1\n[limits]\nmemory = \"5\"",
	"policy = 1\n[limits]\nmemory = \"0MiB\"", "policy = 1\n[limits]\nmemory = \"-1MiB\"",
	"policy = 1\n[limits]\nmemory = \"1MB\"",
	"policy = 1\n[limits]\nmemory = \"1.5GiB\"", "policy = 1\n[limits]\nwall = \"30\"",
	"policy = 1\n[limits]\nwall = \"-1s\"", "policy = 1\n[limits]\nwall = \"1d\"",
	"policy = 1\n[limits]\nwall = 5",
	"policy = 1\n[limits]\npids = 0", "policy = 1\n[limits]\npids = -1",
	"policy = 1\n[limits]\npids = 1.5", "policy = 1\n[limits]\npids = \"5\"",
	"policy = 1\n[limits]\npids = 9999999999",
	"policy = 1\n[limits]\ncpus = 0", "policy = 1\n[limits]\ncpus = \"1\"",
	"policy = 1\n[limits]\ncpus = -1.0", "policy = 1\n[limits]\ncpus = 5000",
	"policy = 1\n[limits]\nmemroy = \"1MiB\"",
	"policy = 1\n[tools]\nallow = \"x/y\"", "policy = 1\n[tools]\nallow = [1]",
	"policy = 1\n[tools]\nallow = [\"\"]", "policy = 1\n[tools]\nallow = [\"a/b?\"]",
	"policy = 1\n[tools]\nalow = []",
	"policy = 1\n[tools]\nmodules = [\"a.wasm\"]", "policy = 1\n[tools]\nnative = [\"git\"]",
	"policy = 1\n[tools]\nnative = [\"/usr/\"]",
	"policy = 1\n[[fetch.allow]]\nports = [443]",
	"policy = 1\n[[fetch.allow]]\nhost = \"https://a.test\"",
	"policy = 1\n[[fetch.allow]]\nhost = \"a.test:443\"",
	"policy = 1\n[[fetch.allow]]\nhost = \"münchen.test\"",
	"policy = 1\n[[fetch.allow]]\nhost = \"a.*.test\"",
	"policy = 1\n[[fetch.allow]]\nhost = \"a_b.test\"",
	"policy = 1\n[[fetch.allow]]\nhost = \"a.test/x\"",
	"policy = 1\n[[fetch.allow]]\nhost = \"u@a.test\"",
	"policy = 1\n[[fetch.allow]]\nhost = \"a.test\"\nports = [0]",
	"policy = 1\n[[fetch.allow]]\nhost = \"a.test\"\nports = [65536]",
	"policy = 1\n[[fetch.allow]]\nhost = \"a.test\"\nports = [\"443\"]",
	"policy = 1\n[[fetch.allow]]\nhost = \"a.test\"\nmethods = [\"get\"]",
	"policy = 1\n[[fetch.allow]]\nhost = \"a.test\"\nmethods = [\"G@T\"]",
	"policy = 1\n[[fetch.allow]]\nhost = \"a.test\"\npaths = [\"x\"]",
	"policy = 1\n[[fetch.allow]]\nhost = \"a.test\"\ncredential = \"a b\"",
	"policy = 1\n[[fetch.allow]]\nhost = \"a.test\"\ntls = \"none\"",
	"policy = 1\n[[fetch.allow]]\nhost = \"a.test\"\nwebsocket = 1",
	"policy = 1\n[[fetch.allow]]\nhost = \"a.test\"\ntypes = [\"TEXT/html\"]",
	"policy = 1\n[[fetch.allow]]\nhost = \"a.test\"\nrate = 0",
	"policy = 1\n[[fetch.deny]]\nports = [1]", "policy = 1\n[fetch]\nmode = \"off\"",
	"policy = 1\n[fetch.limits]\nrequests = \"5\"", "policy = 1\n[fetch.limits]\nrates = 5",
	"policy = 1\n[env]\nset = [\"A=b\"]", "policy = 1\n[env]\nset = { A = 1 }",
	"policy = 1\n[env]\npass = \"A\"",
	"policy = 1\n[outer]\nlayers = [\"runsc\"]", "policy = 1\n[outer]\nmust = true",
	"policy = 1\n[[approve]]\naction = \"tool\"\nmode = \"ask\"\ntool = [\"curl\"]",
	"policy = 1\n[syscalls]\ngroups = [\"all\"]", "policy = 1\n[tool.python]\nlimits = {}",
	"policy = 1\n[tool.\"a/b\"]\nenv = {}", "policy = 1\n[without]\ntools = [\"a/b\"]",
	"policy = 1\n[without.tools]\nalow = [\"a/b\"]",
}

// beyondSchema has what only the parser can know, with why.
var beyondSchema = map[string]string{
	"what a profile lacks":     "policy = 1",
	"the size of a size":       "policy = 1\n[limits]\nmemory = \"9999TiB\"",
	"the length of a time":     "policy = 1\n[limits]\nwall = \"9000h\"",
	"the least of a time":      "policy = 1\n[limits]\nwall = \"1ns\"",
	"what a pattern can match": "policy = 1\n[tools]\nallow = [\"a/b/c\"]",
	"two mounts at one place": whole +
		"[[mount]]\nsource = \"/b\"\ntarget = \"/data/dict\"\naccess = \"read\"",
	"places that are the jail's": whole +
		"[[mount]]\nsource = \"/b\"\ntarget = \"/proc/x\"\naccess = \"read\"",
	"paths that are not clean": whole +
		"[[mount]]\nsource = \"/b/../c\"\ntarget = \"/x\"\naccess = \"read\"",
	"names that are addresses": "policy = 1\n[[fetch.allow]]\nhost = \"127.0.0.1\"",
	"hosts that nobody may name": "policy = 1\n[[fetch.allow]]\n" +
		"host = \"metadata.google.internal\"",
	"whole top-level domains": "policy = 1\n[[fetch.allow]]\nhost = \"*.com\"",
	"methods that nobody may name": "policy = 1\n[[fetch.allow]]\nhost = \"a.test\"\n" +
		"methods = [\"TRACE\"]",
	"ranges that go down": "policy = 1\n[[fetch.allow]]\nhost = \"a.test\"\n" +
		"ports = [\"90-80\"]",
	"what nobody includes":        whole + "[without]\ntools.allow = [\"x/y\"]",
	"policies that there are not": "policy = 1\ninclude = [\"nosuch\"]",
}
