package workspace

import (
	"encoding/json"
	"maps"
	"path"
	"slices"
)

// A Script is a command that a package manager runs by itself or by a name, and that a change to its file adds, changes or takes away. The hunks show
// the same, among everything else that such a file says; this is what runs.
type Script struct {
	Name   string  `json:"name"`             // where it stands: scripts.postinstall, bin.tool
	Before *string `json:"before,omitempty"` // nil: it is new
	After  *string `json:"after,omitempty"`  // nil: it is gone
}

// Bounds on what is told of one file: more of it is in its hunks.
const (
	maxScripts    = 100
	maxScriptText = 4 << 10 // bytes of each command
)

// scriptFiles are the files that are read for it, with the tables of commands in each. All are JSON.
var scriptFiles = map[string][]string{
	"package.json":  {"scripts", "bin"}, // npm, yarn, pnpm, bun: docs.npmjs.com/cli/using-npm/scripts
	"composer.json": {"scripts", "bin"},
	"deno.json":     {"tasks"},
}

// scriptsOf compares the commands before and after a change, or returns nil where the file has none, or is not what it should be.
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

// commands are those of one side by table and name. What is no text is told as it stands in the file.
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
