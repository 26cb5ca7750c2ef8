package bundle

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	want := sound("core-utils", code("x"), "grep", "sha3sum", "x_y-z.2")
	got, err := Parse(encode(t, want))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v, %v", got, err)
	}
}

// Each case changes one thing of a sound manifest, as text; the error has to name
// what was wrong.
func TestParseRefuses(t *testing.T) {
	sha := hexSum(code("x"))
	cases := []struct{ name, old, new, want string }{
		{"unknown key", `"format":1`, `"format":1,"exec":"/bin/sh"`, `"exec"`},
		{"unknown key inside", `"layout":`, `"post_install":"x","layout":`, `"post_install"`},
		{"key twice", `"format":1`, `"format":1,"format":1`, "twice"},
		{"key twice inside", `"layout":`, `"size":1,"layout":`, "twice"},
		{"key in other case", `"format":1`, `"Format":1`, `"Format"`},
		{"key in another's place", `"format":1`, `"format":1,"spdx":"x"`, `"spdx"`},
		{"trailing text", `"wall_ms":0}}`, `"wall_ms":0}} x`, "something follows"},
		{"two values", `"wall_ms":0}}`, `"wall_ms":0}}{}`, "something follows"},
		{"byte order mark", `{"format"`, "\ufeff" + `{"format"`, "invalid character"},
		{"null", `"about":"for tests"`, `"about":null`, "null"},
		{"deep", `"about":"for tests"`, `"about":[[[[[[]]]]]]`, "cannot unmarshal"},
		{"other format", `"format":1`, `"format":2`, "format 2"},
		{"huge number", `"format":1`, `"format":1e400`, "number"},
		{"fraction", `"format":1`, `"format":1.5`, "number"},
		{"no name", `"name":"b"`, `"name":""`, "name"},
		{"name with slash", `"name":"b"`, `"name":"../b"`, "name"},
		{"name in capitals", `"name":"b"`, `"name":"B"`, "name"},
		{"homoglyph", `"name":"grep"`, `"name":"grеp"`, "ASCII"},
		{"command with slash", `"name":"grep"`, `"name":"a/b"`, "command"},
		{"command with a space", `"name":"grep"`, `"name":"a b"`, "command"},
		{"command like an option", `"name":"grep"`, `"name":"-grep"`, "command"},
		{"command twice", `"name":"grep"`, `"name":"sed"`, "command sed: named twice"},
		{"control character", `"about":"Does grep."`, `"about":"\u001b[2J"`, "printable"},
		{"long text", `"about":"Does grep."`, `"about":"` + strings.Repeat("x", 500) + `"`,
			"longer"},
		{"version", `"version":"1.2.3"`, `"version":"1.2"`, "version"},
		{"version spelled otherwise", `"version":"1.2.3"`, `"version":"1.02.3"`, "version"},
		{"module with slash", `"file":"all.wasm"`, `"file":"../all.wasm"`, "module file"},
		{"hidden module", `"file":"all.wasm"`, `"file":".wasm"`, "module file"},
		{"module of another kind", `"file":"all.wasm"`, `"file":"all.so"`, "module file"},
		{"command without module", `"module":"all.wasm"`, `"module":"none.wasm"`,
			"not in the bundle"},
		{"short digest", sha, sha[1:], "sha256"},
		{"digest in capitals", sha, strings.ToUpper(sha), "sha256"},
		{"no size", `"size":9`, `"size":0`, "size"},
		{"negative size", `"size":9`, `"size":-1`, "size"},
		{"huge size", `"size":9`, `"size":9223372036854775807`, "size"},
		{"size as text", `"size":9`, `"size":"9"`, "cannot unmarshal"},
		{"layout", `"layout":"rooted"`, `"layout":"host"`, "layout"},
		{"licence elsewhere", `"file":"LICENSE"`, `"file":"/etc/passwd"`, "licence"},
		{"no source digest", `"sha256":"` + hexSum(nil) + `"`, `"sha256":""`, "source"},
		{"negative limit", `"memory_bytes":0`, `"memory_bytes":-1`, "negative"},
		{"no imports", `,"imports":["a.b"]`, ``, "imports"},
		{"no licences", `"licences":[{"spdx":"0BSD","file":"LICENSE"}],`, ``, "licences"},
		{"no commands", `"commands":[`, `"commands":[],"x":[`, `"x"`},
		{"cut off", `"limits"`, ``, "invalid character"},
	}
	base := string(encode(t, sound("b", code("x"), "grep", "sed")))
	if _, err := Parse([]byte(base)); err != nil {
		t.Fatal("control, unchanged:", err)
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			text := strings.Replace(base, c.old, c.new, 1)
			if text == base {
				t.Fatalf("%s is not in %s", c.old, base)
			}
			m, err := Parse([]byte(text))
			if !errors.Is(err, ErrManifest) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v, %v; want %q", m, err, c.want)
			}
		})
	}
}

func TestParseBounds(t *testing.T) {
	many := sound("b", code("x"))
	for i := range maxCommands + 1 {
		many.Commands = append(many.Commands,
			CommandEntry{Name: fmt.Sprintf("c%d", i), Module: "all.wasm"})
	}
	modules := sound("b", code("x"), "run")
	for i := range maxModules {
		more := modules.Modules[0]
		more.File = fmt.Sprintf("m%d.wasm", i)
		modules.Modules = append(modules.Modules, more)
	}
	imports := sound("b", code("x"), "run")
	imports.Modules[0].Imports = make([]string, maxImports+1)
	twice := sound("b", code("x"), "run")
	twice.Modules = append(twice.Modules, twice.Modules[0])
	for name, m := range map[string]Manifest{
		"commands": many, "modules": modules, "imports": imports, "a module twice": twice,
		"no commands": sound("b", code("x")), "nothing": {Format: Format},
	} {
		if _, err := Parse(encode(t, m)); !errors.Is(err, ErrManifest) {
			t.Errorf("%s: %v", name, err)
		}
	}
	huge := append(encode(t, sound("b", code("x"), "run")), make([]byte, maxManifest)...)
	if _, err := Parse(huge); !errors.Is(err, ErrManifest) || !strings.Contains(err.Error(),
		"larger") {
		t.Errorf("huge: %v", err)
	}
	wide := []byte(`{"modules":[` + strings.Repeat("{},", 300_000) + `{}]}`)
	if _, err := Parse(wide); !errors.Is(err, ErrManifest) || !strings.Contains(err.Error(),
		"values") {
		t.Errorf("wide: %v", err)
	}
}

// An accepted manifest has the same content when it is read again, and names no file outside of its
// folder.
func FuzzParse(f *testing.F) {
	text, err := json.Marshal(sound("b", code("x"), "grep", "sed"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"format":1,"format":1}`))
	f.Add([]byte(`{"modules":[{"file":"../x.wasm"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := Parse(text)
		if err != nil {
			if !errors.Is(err, ErrManifest) {
				t.Fatalf("%v is no ErrManifest", err)
			}
			return
		}
		again, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if second, err := Parse(again); err != nil || fmt.Sprint(second) != fmt.Sprint(m) {
			t.Fatalf("read again: %+v, %v; first %+v", second, err, m)
		}
		for _, mod := range m.Modules {
			if strings.ContainsAny(mod.File, "/\\\x00") || mod.File[0] == '.' {
				t.Fatalf("module file %q", mod.File)
			}
		}
	})
}
