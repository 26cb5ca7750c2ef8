// Package learn makes the smallest policy under which a tool behaves as observed. It is pure: it
// turns observations into a draft, and its caller tries what can be left out. A person must be able
// to review a draft, so each line has its evidence. A draft never grants what looks like a secret,
// runs on the host later, or leads out of the jail; it lists these for a person.
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
	// Lost counts the events that the kernel could not report; Files is then incomplete.
	Lost    int64    `json:"lost,omitempty"`
	Imports []string `json:"imports,omitempty"` // of the module
	// files whose names no policy can say
	Unnamed int64 `json:"unnamed,omitempty"`
}

// File is the use of one file or directory, by its path in the jail.
type File struct {
	// In the jail, without links.
	Path     string `json:"path"`
	Opened   int64  `json:"opened,omitempty"`   // times
	Executed int64  `json:"executed,omitempty"` // times
	Written  bool   `json:"written,omitempty"`
	Dir      bool   `json:"dir,omitempty"`
	// Program: it is executed, or mapped as a library.
	Program bool `json:"program,omitempty"`
}

// Sayable reports whether a policy can name a path: it is absolute, clean and printable.
func Sayable(p string) bool {
	return utf8.ValidString(p) && path.IsAbs(p) && path.Clean(p) == p && len(p) < 1024 &&
		!strings.ContainsFunc(p, func(r rune) bool {
			return !unicode.IsPrint(r) || strings.ContainsRune(`*?[]{}\`, r)
		})
}

// Merge returns the sum of both observations.
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
		have.Written, have.Dir, have.Program = have.Written || f.Written, have.Dir || f.Dir,
			have.Program || f.Program
	}
	slices.SortFunc(out.Files, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	out.Imports = slices.Compact(slices.Sorted(slices.Values(slices.Concat(o.Imports, p.Imports))))
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
