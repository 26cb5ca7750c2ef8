package audit

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// Filter says which records are wanted: those that all of its parts want. Its zero value wants all.
type Filter struct {
	Run      string
	Session  string
	Types    []Type // any of them
	Since    time.Time
	Until    time.Time // zero: no end
	UID      *uint32
	Policy   string // digest of the effective policy, or its beginning
	Tool     string // of runs of that tool, as it was named or found: grep, core-utils/grep
	Decision string // "denied": refusals and refused fetches; "allowed": fetches that were let through
	Layer    string // that refused
	Host     string // of fetches: a name, or *. and a name for those below it
	// Path reports whether a path is wanted, of those that a record names: of a file, a program, a request. nil wants all.
	Path func(string) bool
}

// Decisions that a Filter knows.
const (
	DecisionDenied  = "denied"
	DecisionAllowed = "allowed"
)

// matcher is a filter that remembers which runs were of its tool.
type matcher struct {
	Filter
	runs map[string]bool
}

func (m *matcher) wants(r Record) bool {
	m.note(r)
	return (m.Run == "" || m.Run == r.Run) &&
		(m.Session == "" || m.Session == r.Session) &&
		(len(m.Types) == 0 || slices.Contains(m.Types, r.Type)) &&
		!r.Time.Before(m.Since) && (m.Until.IsZero() || r.Time.Before(m.Until)) &&
		(m.UID == nil || *m.UID == r.Actor.UID) &&
		strings.HasPrefix(r.Policy, m.Policy) &&
		(m.Tool == "" || m.runs[r.Run]) &&
		(m.Decision == "" || m.Decision == r.Decision()) &&
		(m.Layer == "" || m.Layer == r.Text("layer")) &&
		(m.Host == "" || hostMatches(m.Host, r.Text("host"))) &&
		(m.Path == nil || slices.ContainsFunc(r.Paths(), m.Path))
}

// note remembers the runs of the tool that is asked for.
func (m *matcher) note(r Record) {
	if m.Tool == "" || r.Run == "" {
		return
	}
	for _, name := range []string{r.Text("tool"), r.Text("program")} {
		if name != "" && (name == m.Tool || strings.HasSuffix(name, "/"+m.Tool)) {
			if m.runs == nil {
				m.runs = map[string]bool{}
			}
			m.runs[r.Run] = true
		}
	}
	if r.Type == TypeRunFinished && !m.runs[r.Run] {
		delete(m.runs, r.Run)
	}
}

func hostMatches(pattern, host string) bool {
	if suffix, below := strings.CutPrefix(pattern, "*."); below {
		return strings.HasSuffix(host, "."+suffix)
	}
	return host == pattern
}

// Field returns the value of one of the type's own fields; nil where it has none of that name.
func (r Record) Field(name string) json.RawMessage {
	for _, f := range r.Fields {
		if f.Name == name {
			return f.Value
		}
	}
	return nil
}

// Text returns a field that is a text, as the bytes that were recorded.
func (r Record) Text(name string) string {
	var s string
	if json.Unmarshal(r.Field(name), &s) != nil {
		return ""
	}
	return Original(s)
}

// Texts returns a field that is a list of texts, as the bytes that were recorded.
func (r Record) Texts(name string) []string {
	var list []string
	if json.Unmarshal(r.Field(name), &list) != nil {
		return nil
	}
	for i, s := range list {
		list[i] = Original(s)
	}
	return list
}

// Int returns a field that is a number, or 0.
func (r Record) Int(name string) int64 {
	var n int64
	if json.Unmarshal(r.Field(name), &n) != nil {
		return 0
	}
	return n
}

// Decision says whether the record is of a refusal or of something that was let through; "" where it is about neither.
func (r Record) Decision() string {
	switch r.Type {
	case TypeDenied:
		return DecisionDenied
	case TypeFetch:
		return r.Text("decision")
	}
	return ""
}

// Paths returns the paths that the record names.
func (r Record) Paths() []string {
	var paths []string
	switch r.Type {
	case TypeDenied: // "read /etc/shadow", and after the last path perhaps more
		if _, path, found := strings.Cut(r.Text("what"), " "); found {
			paths = append(paths, path)
		}
	case TypeExec:
		paths = append(paths, r.Text("program"))
	case TypeFetch, TypeFile:
		paths = append(paths, r.Text("path"))
	case TypeRunStarted:
		paths = append(paths, r.Text("workspace"))
	}
	for _, file := range r.Texts("files") { // "added sha256:… a/b"
		if words := strings.SplitN(file, " ", 3); len(words) == 3 {
			paths = append(paths, words[2])
		}
	}
	return append(append(paths, r.Texts("paths")...), r.Texts("held")...)
}
