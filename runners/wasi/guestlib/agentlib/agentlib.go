// Package agentlib holds the libraries by which agents call their bindings, in five languages, and
// the small agent with which "jail agent new" begins. An agent takes its library with it, since
// nothing is looked up when it runs.
package agentlib

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

//go:embed go rust c js python/main.py python/jail_agent.py python/jail_agent_more.py python/jail_agent_data.py
var files embed.FS

// A Language is one in which an agent can be written.
type Language struct {
	Name string
	// Module, or Native, is what the manifest says.
	manifest string
	// Files of the package by their names in the directory of an agent.
	files map[string]string
	// Build is the command of the Makefile, "" for languages that need none. In it NAME is the
	// agent's.
	build string
}

// Languages returns them, in the order in which they are shown.
func Languages() []Language {
	return []Language{
		{"python", "module = \"python/python3\"\nargs = [\"main.py\"]", map[string]string{
			"main.py": "python/main.py", "jail_agent.py": "python/jail_agent.py",
			"jail_agent_more.py": "python/jail_agent_more.py",
			"jail_agent_data.py": "python/jail_agent_data.py"}, ""},
		{"js", "module = \"js/qjs\"\nargs = [\"main.js\"]", map[string]string{
			"main.js": "js/main.js", "jail_agent.js": "js/jail_agent.js",
			"jail_agent_data.js": "js/jail_agent_data.js",
			"jail_agent_more.js": "js/jail_agent_more.js"}, ""},
		{"go", "module = \"NAME.wasm\"", map[string]string{"main.go": "go/main.go.txt",
			"jailagent/jailagent.go": "go/jailagent/jailagent.go",
			"jailagent/abi.go":       "go/jailagent/abi.go",
			"jailagent/storage.go":   "go/jailagent/storage.go",
			"jailagent/ai.go":        "go/jailagent/ai.go",
			"jailagent/facets.go":    "go/jailagent/facets.go",
			"jailagent/gate.go":      "go/jailagent/gate.go",
			"jailagent/data.go":      "go/jailagent/data.go",
			"jailagent/tick.go":      "go/jailagent/tick.go",
			"jailagent/approve.go":   "go/jailagent/approve.go",
			"jailagent/elsewhere.go": "go/jailagent/elsewhere.go"},
			"GOOS=wasip1 GOARCH=wasm go build -trimpath -ldflags '-s -w' -o NAME.wasm ."},
		{"rust", "module = \"NAME.wasm\"", map[string]string{"src/main.rs": "rust/main.rs",
			"src/jail_agent.rs":      "rust/jail_agent.rs",
			"src/jail_agent_data.rs": "rust/jail_agent_data.rs"},
			// Older compilers call the target wasm32-wasi.
			"$(RUSTC) --edition 2021 -O -C strip=symbols --target $$($(RUSTC) --print target-list | " +
				"grep -x wasm32-wasip1 || echo wasm32-wasi) -o NAME.wasm src/main.rs"},
		{"c", "module = \"NAME.wasm\"", map[string]string{"main.c": "c/main.c",
			"jail_agent.c": "c/jail_agent.c", "jail_agent.h": "c/jail_agent.h",
			"jail_agent_data.c": "c/jail_agent_data.c", "jail_agent_data.h": "c/jail_agent_data.h"},
			"$(CC) --target=wasm32-wasi -Os -Wall -o NAME.wasm main.c jail_agent.c jail_agent_data.c"},
	}
}

// Names returns the names of the languages.
func Names() (all []string) {
	for _, l := range Languages() {
		all = append(all, l.Name)
	}
	return all
}

// New returns the files of a new agent, by their names.
func New(language, name string) (map[string][]byte, error) {
	i := slices.IndexFunc(Languages(), func(l Language) bool { return l.Name == language })
	if i < 0 {
		return nil, fmt.Errorf("%q is none of %s", language, strings.Join(Names(), ", "))
	}
	l, out := Languages()[i], map[string][]byte{}
	for to, from := range l.files {
		text, err := fs.ReadFile(files, from)
		if err != nil {
			return nil, err
		}
		out[to] = text
	}
	out["agent.toml"] = []byte(strings.ReplaceAll(fmt.Sprintf(manifestText, l.manifest), "NAME",
		name))
	if l.build != "" {
		out["Makefile"] = []byte(strings.ReplaceAll(makefile(l), "NAME", name))
	}
	if language == "go" {
		out["go.mod"] = []byte("module agent\n\ngo 1.24\n")
	}
	return out, nil
}

const manifestText = `agent = 1
type = "agent"
name = "NAME"
%s
channels = ["NAME"]

# What is false is not there. See the guide: docs/agents/agents.md.
[capabilities]
network = false
ai = false
storage = true

[wake]
idle = "30s"
deadline = "60s"
`

func makefile(l Language) string {
	var b bytes.Buffer
	var from []string
	for to := range l.files {
		if path.Ext(to) != ".md" {
			from = append(from, to)
		}
	}
	slices.Sort(from)
	switch l.Name {
	case "c":
		b.WriteString("# A clang with wasi-libc: clang-19 lld-19 libclang-rt-19-dev-wasm32 wasi-libc.\n" +
			"CC := $(shell for c in clang-22 clang-21 clang-20 clang-19 clang-18 clang-17 clang-16; do \\\n" +
			"\tcommand -v $$c && exit; done; echo clang)\n\n")
	case "rust":
		b.WriteString("# A rustc with the target wasm32-wasip1: rustc libstd-rust-dev-wasm32 lld.\n" +
			"RUSTC := rustc\n\n")
	}
	fmt.Fprintf(&b, "NAME.wasm: %s\n\t%s\n", strings.Join(from, " "), l.build)
	return b.String()
}
