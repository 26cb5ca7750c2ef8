package workspace

import (
	"encoding/json"
	"maps"
	"path"
	"slices"
)

// Script is a command that a package manager runs by itself or by name, and that a change adds,
// changes or removes. The hunks have the same, among everything else in the file.
type Script struct {
	// Name is its place: scripts.postinstall, bin.tool.
	Name string `json:"name"`
	// Missing: it is new.
	Before *string `json:"before,omitempty"`
	// Missing: it is gone.
	After *string `json:"after,omitempty"`
}

// Bounds of the scripts of one file: its hunks have the rest.
const (
	maxScripts = 100
	// Bytes of each command.
	maxScriptText = 4 << 10
)

// scriptFiles are the files with such commands, with their tables of commands. All are JSON.
var scriptFiles = map[string][]string{
	// For npm, yarn, pnpm, bun: docs.npmjs.com/cli/using-npm/scripts.
	"package.json":  {"scripts", "bin"},
	"composer.json": {"scripts", "bin"},
	"deno.json":     {"tasks"},
}

// scriptsOf compares the commands before and after a change. It returns nil if the file has none,
// or is malformed.
func (p *patcher) scriptsOf(c Change) []Script {
	tables := scriptFiles[path.Base(string(c.Path))]
	if tables == nil || c.Refused != "" || c.hidden {
		return nil
	}
	before, after, err := p.sides(c)
	if err != nil {
		return nil
	}
	return compareScripts(commands(before, tables), commands(after, tables))
}

func compareScripts(was, is map[string]string) (out []Script) {
	all := maps.Clone(was)
	maps.Copy(all, is)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		old, had := was[name]
		now, has := is[name]
		if had == has && old == now || len(out) == maxScripts {
			continue
		}
		s := Script{Name: name}
		if had {
			s.Before = &old
		}
		if has {
			s.After = &now
		}
		out = append(out, s)
	}
	return out
}

// commands returns the commands of one side by table and name. Values other than strings are JSON.
func commands(s *side, tables []string) map[string]string {
	out := map[string]string{}
	if s == nil {
		return out
	}
	var file map[string]json.RawMessage
	if json.Unmarshal([]byte(s.text), &file) != nil {
		return out
	}
	for _, table := range tables {
		var entries map[string]json.RawMessage
		if json.Unmarshal(file[table], &entries) != nil {
			entries = map[string]json.RawMessage{"": file[table]}
		}
		for name, raw := range entries {
			if text := command(raw); text != "" {
				out[dotted(table, name)] = text
			}
		}
	}
	return out
}

func dotted(table, name string) string {
	if name == "" {
		return table
	}
	return table + "." + name
}

func command(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		text = string(raw)
	}
	return text[:min(len(text), maxScriptText)]
}
