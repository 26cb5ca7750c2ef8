// Package learn makes the least policy that lets a tool do again what it was seen to do. It is pure: what was observed goes in, a draft of a policy comes
// out, and whoever holds it tries what can be left out. A draft grants what a person would have to read, so each line has its evidence beside it; what looks
// like a secret, runs on the host later or leads out of the jail is never granted, but written down for a person.
package learn

import (
	"cmp"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Observed is what a run was seen to do.
type Observed struct {
	Files []File `json:"files"`
	// Lost counts the times that there was more than could be told; Files is then not all.
	Lost    int64    `json:"lost,omitempty"`
	Imports []string `json:"imports,omitempty"` // of the module
	Unnamed int64    `json:"unnamed,omitempty"` // files whose names no policy can say
}

// A File is what was done to one file or directory, by its path in the jail.
type File struct {
	Path     string `json:"path"`
	Opened   int64  `json:"opened,omitempty"`   // times
	Executed int64  `json:"executed,omitempty"` // times
	Written  bool   `json:"written,omitempty"`
	Dir      bool   `json:"dir,omitempty"`
	Program  bool   `json:"program,omitempty"` // it is executed, or mapped as a library is
}

// Sayable reports whether a policy can name a path: absolute and in its shortest form, as text that a person can read.
func Sayable(p string) bool {
	return utf8.ValidString(p) && path.IsAbs(p) && path.Clean(p) == p && len(p) < 1024 &&
		!strings.ContainsFunc(p, func(r rune) bool { return !unicode.IsPrint(r) || strings.ContainsRune(`*?[]{}\`, r) })
}

// Merge is what both have seen.
func (o Observed) Merge(p Observed) Observed {
	at := map[string]int{}
	out := Observed{Files: []File{}, Lost: o.Lost + p.Lost, Unnamed: max(o.Unnamed, p.Unnamed)}
	for _, f := range slices.Concat(o.Files, p.Files) {
		i, ok := at[f.Path]
		if !ok {
			at[f.Path] = len(out.Files)
			out.Files = append(out.Files, f)
			continue
		}
		have := &out.Files[i]
		have.Opened += f.Opened
		have.Executed += f.Executed
		have.Written, have.Dir, have.Program = have.Written || f.Written, have.Dir || f.Dir, have.Program || f.Program
	}
	slices.SortFunc(out.Files, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	out.Imports = slices.Concat(o.Imports, p.Imports)
	slices.Sort(out.Imports)
	out.Imports = slices.Compact(out.Imports)
	return out
}

// Fetch is one request to the network as the proxy recorded it.
type Fetch struct {
	Host     string `json:"host"`
	Port     uint16 `json:"port"`
	Method   string `json:"method"`
	Path     string `json:"path"`
	Kind     string `json:"kind"`     // request, tunnel, websocket
	Decision string `json:"decision"` // allowed, denied
	Rule     string `json:"rule,omitempty"`
}

// Within reports whether p is dir or lies below it.
func Within(dir, p string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}
