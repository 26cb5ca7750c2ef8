// Package agentlib holds the libraries with which agents call their bindings, in five languages,
// and the example agent that "jail agent new" writes. An agent includes a copy of its library,
// since nothing is installed when it runs.
package agentlib

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
)

//go:embed go rust c js python/main.py python/jail_agent.py python/jail_agent_more.py python/jail_agent_data.py
var files embed.FS

// A language is a language for agents. Its files are in the folder with its name.
type language struct {
	name string
	// manifest is the part of the manifest about the program, below the directory for its sources.
	manifest, below string
	// compiler is the part of the Makefile that sets the compiler, build the build command, "" for
	// languages without one. In build and manifest, NAME stands for the agent's name.
	compiler, build string
}

// languages are all languages, in the order in which they are shown.
var languages = []language{
	{name: "python", manifest: "module = \"python/python3\"\nargs = [\"main.py\"]"},
	{name: "js", manifest: "module = \"js/qjs\"\nargs = [\"main.js\"]"},
	{name: "go", manifest: wasm,
		build: "GOOS=wasip1 GOARCH=wasm go build -trimpath -ldflags '-s -w' -o NAME.wasm ."},
	{name: "rust", manifest: wasm, below: "src",
		compiler: "# A rustc with the target wasm32-wasip1: rustc libstd-rust-dev-wasm32 lld.\n" +
			"RUSTC := rustc\n\n",
		// Older compilers call the target wasm32-wasi.
		build: "$(RUSTC) --edition 2021 -O -C strip=symbols --target $$($(RUSTC) --print target-list | " +
			"grep -x wasm32-wasip1 || echo wasm32-wasi) -o NAME.wasm src/main.rs"},
	{name: "c", manifest: wasm,
		compiler: "# A clang with wasi-libc: clang-19 lld-19 libclang-rt-19-dev-wasm32 wasi-libc.\n" +
			"CC := $(shell for c in clang-22 clang-21 clang-20 clang-19 clang-18 clang-17 clang-16; do \\\n" +
			"\tcommand -v $$c && exit; done; echo clang)\n\n",
		build: "$(CC) --target=wasm32-wasi -Os -Wall -o NAME.wasm main.c jail_agent.c jail_agent_data.c"},
}

const wasm = `module = "NAME.wasm"`

// Names returns the names of the languages.
func Names() (all []string) {
	for _, l := range languages {
		all = append(all, l.name)
	}
	return all
}

// New returns the files of a new agent called name in the language in, by path.
func New(in, name string) (map[string][]byte, error) {
	i := slices.IndexFunc(languages, func(l language) bool { return l.name == in })
	if i < 0 {
		return nil, fmt.Errorf("%q is none of %s", in, strings.Join(Names(), ", "))
	}
	l, out := languages[i], map[string][]byte{}
	if err := fs.WalkDir(files, in, func(from string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		to := path.Join(l.below, strings.TrimSuffix(strings.TrimPrefix(from, in), ".txt"))
		out[strings.TrimPrefix(to, "/")], err = files.ReadFile(from)
		return err
	}); err != nil {
		return nil, err
	}
	if l.build != "" {
		out["Makefile"] = fmt.Appendf(nil, "%sNAME.wasm: %s\n\t%s\n", l.compiler,
			strings.Join(slices.Sorted(maps.Keys(out)), " "), l.build)
	}
	out["agent.toml"] = fmt.Appendf(nil, manifestText, l.manifest)
	for _, file := range []string{"Makefile", "agent.toml"} {
		if text, ok := out[file]; ok {
			out[file] = bytes.ReplaceAll(text, []byte("NAME"), []byte(name))
		}
	}
	if in == "go" {
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
