package audit

import (
	"slices"
	"strings"
	"time"
)

// Filter selects the records that match all of its fields. The zero value matches all records.
type Filter struct {
	// Run is the run's id or its user's name for it.
	Run     string
	Session string // as Run
	Types   []Type // any of them
	Since   time.Time
	Until   time.Time // zero: no end
	UID     *uint32
	// Policy is the digest of the effective policy, or a prefix of it.
	Policy string
	// Tool selects the records of all runs of a tool: grep, core-utils/grep.
	Tool string
	// Decision is "denied" for refusals and refused fetches, "allowed" for fetches that were sent.
	Decision string
	Layer    string // that refused
	// Host is the host of a fetch: a name, or *. and a name for its subdomains.
	Host string
	// Path reports whether a path of a file, program or request matches. nil matches all.
	Path func(string) bool
}

// ParseTime parses a time, or a duration before now. "" is the zero time.
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

// Matcher matches records, in order, against a filter. It remembers the runs of the filter's tool.
type Matcher struct {
	f    Filter
	runs map[string]bool
}

// NewMatcher returns a matcher for f.
func NewMatcher(f Filter) *Matcher { return &Matcher{f: f} }

// Wants reports whether the filter matches r. It must be called with all records, in order.
func (m *Matcher) Wants(r Record) bool {
	m.note(r)
	return (m.f.Run == "" || m.f.Run == r.Run || m.f.Run == r.RunID) &&
		(m.f.Session == "" || m.f.Session == r.Session || m.f.Session == r.SessionID) &&
		(len(m.f.Types) == 0 || slices.Contains(m.f.Types, r.Type)) &&
		!r.Time.Before(m.f.Since) && (m.f.Until.IsZero() || r.Time.Before(m.f.Until)) &&
		(m.f.UID == nil || *m.f.UID == r.Actor.UID) &&
		strings.HasPrefix(r.Policy, m.f.Policy) &&
		(m.f.Tool == "" || m.runs[r.ID()]) &&
		(m.f.Decision == "" || m.f.Decision == r.Decision()) &&
		(m.f.Layer == "" || m.f.Layer == r.Text("layer")) &&
		(m.f.Host == "" || hostMatches(m.f.Host, r.Text("host"))) &&
		(m.f.Path == nil || slices.ContainsFunc(r.paths(), m.f.Path))
}

// note remembers the runs of the filter's tool.
func (m *Matcher) note(r Record) {
	if m.f.Tool == "" || r.Run == "" {
		return
	}
	for _, name := range []string{r.Text("tool"), r.Text("program")} {
		if name != "" && (name == m.f.Tool || strings.HasSuffix(name, "/"+m.f.Tool)) {
			if m.runs == nil {
				m.runs = map[string]bool{}
			}
			m.runs[r.ID()] = true
		}
	}
}

func hostMatches(pattern, host string) bool {
	if suffix, below := strings.CutPrefix(pattern, "*."); below {
		return strings.HasSuffix(host, "."+suffix)
	}
	return host == pattern
}
