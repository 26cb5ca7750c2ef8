// Command mkbundle writes the bundle.json of a tool bundle that was just built,
// so that what it says of each module (digest, size, imports) is read off the
// module and never typed.
//
// The template is a bundle.json without those; the rest comes from the lock file
// of the sources and, for toybox, from its list of commands and their help.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

type manifest struct {
	Format    int       `json:"format"`
	Name      string    `json:"name"`
	Version   string    `json:"version"`
	About     string    `json:"about"`
	Licences  []licence `json:"licences"`
	BuiltFrom []source  `json:"built_from"`
	Modules   []module  `json:"modules"`
	Commands  []command `json:"commands"`
	Limits    limits    `json:"limits"`
	Needs     *needs    `json:"needs,omitempty"`
}

type needs struct {
	Hosts  []string `json:"hosts"`
	Mounts []string `json:"mounts"`
}

type licence struct {
	SPDX   string `json:"spdx"`
	File   string `json:"file"`
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
}

func (l *licence) read(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, l.File))
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	l.SHA256, l.Size = hex.EncodeToString(sum[:]), int64(len(text))
	return nil
}

type source struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	SHA256  string `json:"sha256"`
}

type module struct {
	File    string   `json:"file"`
	SHA256  string   `json:"sha256"`
	Size    int64    `json:"size"`
	Layout  string   `json:"layout"`
	Imports []string `json:"imports"`
}

type command struct {
	Name   string `json:"name"`
	Module string `json:"module"`
	About  string `json:"about"`
}

type limits struct {
	MemoryBytes int64 `json:"memory_bytes"`
	WallMS      int64 `json:"wall_ms"`
}

func main() {
	dir := flag.String("dir", "", "the bundle's folder, with its modules in it")
	template := flag.String("template", "", "bundle.json without what is read off the modules")
	lock := flag.String("lock", "", "lines of source, version, file and sha256")
	toybox := flag.String("toybox", "", "the list of toybox.wasm's commands")
	help := flag.String("help", "", "toybox's generated help.h")
	stripped := flag.Bool("strip", false, "take names and debugging data out of the modules first")
	into := flag.String("into", "", "the module that files are put into, which are the arguments")
	without := flag.String("without", "", "entries of its archive that make room for them, with "+
		"commas")
	flag.Parse()
	if *stripped {
		if err := stripAll(*dir); err != nil {
			fmt.Fprintln(os.Stderr, "mkbundle:", err)
			os.Exit(1)
		}
	}
	if *into != "" {
		if err := carryAll(*dir, *into, flag.Args(), strings.Split(*without, ",")); err != nil {
			fmt.Fprintln(os.Stderr, "mkbundle:", err)
			os.Exit(1)
		}
	}
	if err := write(*dir, *template, *lock, *toybox, *help); err != nil {
		fmt.Fprintln(os.Stderr, "mkbundle:", err)
		os.Exit(1)
	}
}

func write(dir, template, lock, toybox, help string) error {
	text, err := os.ReadFile(template)
	if err != nil {
		return err
	}
	var m manifest
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&m); err != nil {
		return fmt.Errorf("%s: %w", template, err)
	}
	if m.BuiltFrom, err = readLock(lock); err != nil {
		return err
	}
	if toybox != "" {
		more, err := toyboxCommands(toybox, help, m.Commands)
		if err != nil {
			return err
		}
		m.Commands = append(m.Commands, more...)
	}
	slices.SortFunc(m.Commands, func(a, b command) int { return strings.Compare(a.Name, b.Name) })
	for i := range m.Modules {
		if err := m.Modules[i].read(dir); err != nil {
			return err
		}
	}
	for i := range m.Licences {
		if err := m.Licences[i].read(dir); err != nil {
			return err
		}
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(m); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "bundle.json"), out.Bytes(), 0o644)
}

func (m *module) read(dir string) error {
	code, err := os.ReadFile(filepath.Join(dir, m.File))
	if err != nil {
		return err
	}
	sum := sha256.Sum256(code)
	m.SHA256 = hex.EncodeToString(sum[:])
	m.Size = int64(len(code))
	if m.Imports, err = imports(code); err != nil {
		return fmt.Errorf("%s: %w", m.File, err)
	}
	return nil
}

func readLock(name string) ([]source, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var sources []source
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) == 0 || strings.HasPrefix(f[0], "#") {
			continue
		}
		if len(f) != 4 {
			return nil, fmt.Errorf("%s: not four fields: %q", name, line)
		}
		sources = append(sources, source{Name: f[0], Version: f[1], SHA256: f[3]})
	}
	return sources, nil
}
