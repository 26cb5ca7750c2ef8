package audit

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// Filter selects the records that match all of its parts. Its zero value matches all.
type Filter struct {
	// Its id, or the name that its user gave it.
	Run     string
	Session string // as Run
	Types   []Type // any of them
	Since   time.Time
	Until   time.Time // zero: no end
	UID     *uint32
	// Digest of the effective policy, or its beginning.
	Policy string
	// Tool is that of the run, as it was named or found: grep, core-utils/grep.
	Tool string
	// Decision is "denied" for refusals and refused fetches, "allowed" for fetches that were let
	// through.
	Decision string
	Layer    string // that refused
	// of fetches: a name, or *. and a name for those below it
	Host string
	// Path matches a path that a record names: of a file, a program, a request. nil matches all.
	Path func(string) bool
}

// ParseTime reads a time for a Filter, or how long before now it was. "" is the zero time.
func ParseTime(text string, now time.Time) (t time.Time, ok bool) {
	if text == "" {
		return t, true
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), true
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, true
		}
	}
	return t, false
}

// Decisions of a Filter.
const (
	DecisionDenied  = "denied"
	DecisionAllowed = "allowed"
)

// matcher is a filter that remembers the runs of its tool.
type matcher struct {
	Filter
	runs map[string]bool
}

func (m *matcher) wants(r Record) bool {
	m.note(r)
	return (m.Run == "" || m.Run == r.Run || m.Run == r.RunID) &&
		(m.Session == "" || m.Session == r.Session || m.Session == r.SessionID) &&
		(len(m.Types) == 0 || slices.Contains(m.Types, r.Type)) &&
		!r.Time.Before(m.Since) && (m.Until.IsZero() || r.Time.Before(m.Until)) &&
		(m.UID == nil || *m.UID == r.Actor.UID) &&
		strings.HasPrefix(r.Policy, m.Policy) &&
		(m.Tool == "" || m.runs[r.ID()]) &&
		(m.Decision == "" || m.Decision == r.Decision()) &&
		(m.Layer == "" || m.Layer == r.Text("layer")) &&
		(m.Host == "" || hostMatches(m.Host, r.Text("host"))) &&
		(m.Path == nil || slices.ContainsFunc(r.paths(), m.Path))
}

// note remembers the runs of the filter's tool.
func (m *matcher) note(r Record) {
	if m.Tool == "" || r.Run == "" {
		return
	}
	for _, name := range []string{r.Text("tool"), r.Text("program")} {
		if name != "" && (name == m.Tool || strings.HasSuffix(name, "/"+m.Tool)) {
			if m.runs == nil {
				m.runs = map[string]bool{}
			}
			m.runs[r.ID()] = true
		}
	}
	if r.Type == TypeRunFinished && !m.runs[r.ID()] {
		delete(m.runs, r.ID())
	}
}

func hostMatches(pattern, host string) bool {
	if suffix, below := strings.CutPrefix(pattern, "*."); below {
		return strings.HasSuffix(host, "."+suffix)
	}
	return host == pattern
}

// Field returns the value of one of the type's own fields, nil if it has none of that name.
func (r Record) Field(name string) json.RawMessage {
	for _, f := range r.Fields {
		if f.Name == name {
			return f.Value
		}
	}
	return nil
}

// Text returns a text field as the bytes that were recorded.
func (r Record) Text(name string) string {
	var s string
	if json.Unmarshal(r.Field(name), &s) != nil {
		return ""
	}
	return Original(s)
}

// Texts returns a list field as the bytes that were recorded.
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

// Int returns a number field, or 0.
func (r Record) Int(name string) int64 {
	var n int64
	if json.Unmarshal(r.Field(name), &n) != nil {
		return 0
	}
	return n
}

// Decision returns whether the record is about a refusal or about an allowed operation; "" for
// other records.
func (r Record) Decision() string {
	switch r.Type {
	case TypeDenied:
		return DecisionDenied
	case TypeFetch:
		return r.Text("decision")
	}
	return ""
}

// paths returns the paths that the record names.
func (r Record) paths() []string {
	var paths []string
	switch r.Type {
	// The text is "read /etc/shadow", perhaps with more after the last path.
	case TypeDenied:
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
