// Package agentlib holds the libraries by which agents call their bindings, in five languages, and
// the small agent with which "jail agent new" begins. An agent takes its library with it, since
// nothing is looked up when it runs.
package agentlib

import (
	"embed"
	"fmt"
	"io/fs"
	"maps"
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
	// Build is the command of the Makefile, "" for languages that need none. In it NAME is the
	// agent's.
	build string
}

// Languages returns them, in the order in which they are shown.
func Languages() []Language {
	return []Language{
		{"python", "module = \"python/python3\"\nargs = [\"main.py\"]", ""},
		{"js", "module = \"js/qjs\"\nargs = [\"main.js\"]", ""},
		{"go", "module = \"NAME.wasm\"",
			"GOOS=wasip1 GOARCH=wasm go build -trimpath -ldflags '-s -w' -o NAME.wasm ."},
		{"rust", "module = \"NAME.wasm\"",
			// Older compilers call the target wasm32-wasi.
			"$(RUSTC) --edition 2021 -O -C strip=symbols --target $$($(RUSTC) --print target-list | " +
				"grep -x wasm32-wasip1 || echo wasm32-wasi) -o NAME.wasm src/main.rs"},
		{"c", "module = \"NAME.wasm\"",
			"$(CC) --target=wasm32-wasi -Os -Wall -o NAME.wasm main.c jail_agent.c jail_agent_data.c"},
	}
}

// filesOf returns the files of the package for a language, by their names in the directory of an
// agent.
func filesOf(language string) (map[string]string, error) {
	all := map[string]string{}
	return all, fs.WalkDir(files, language, func(from string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		to := strings.TrimSuffix(strings.TrimPrefix(from, language+"/"), ".txt")
		if language == "rust" {
			to = "src/" + to
		}
		all[to] = from
		return nil
	})
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
	names, err := filesOf(language)
	if err != nil {
		return nil, err
	}
	for to, from := range names {
		text, err := fs.ReadFile(files, from)
		if err != nil {
			return nil, err
		}
		out[to] = text
	}
	out["agent.toml"] = []byte(strings.ReplaceAll(fmt.Sprintf(manifestText, l.manifest), "NAME",
		name))
	if l.build != "" {
		out["Makefile"] = []byte(strings.ReplaceAll(makefile(l, slices.Sorted(maps.Keys(names))),
			"NAME", name))
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

func makefile(l Language, from []string) string {
	var b strings.Builder
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
