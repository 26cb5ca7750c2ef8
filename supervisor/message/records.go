package message

import (
	"time"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// An EventsRequest asks for records as they are written.
type EventsRequest struct {
	// only records with a larger number; nil: only those that come from now on
	After *uint64
	RecordsRequest
}

// A RecordsRequest asks for records of the log: those that all of its parts want.
type RecordsRequest struct {
	Run     string `json:"run,omitempty"`
	Session string `json:"session,omitempty"`
	// Any of them, such as denied or run.finished.
	Types []string  `json:"types,omitempty"`
	Since time.Time `json:"since,omitzero"`
	// Only before it.
	Until time.Time `json:"until,omitzero"`
	// of who asked for what was done
	UID *uint32 `json:"uid,omitempty"`
	// digest of the effective policy, or its beginning
	Policy string `json:"policy,omitempty"`
	Tool   string `json:"tool,omitempty"`
	// Decision is "denied" or "allowed".
	Decision string `json:"decision,omitempty"`
	Layer    string `json:"layer,omitempty"`
	// Of fetches: a name, or *. and a name for those below it.
	Host string `json:"host,omitempty"`
	// a pattern, such as /etc/**
	Path string `json:"path,omitempty"`
}

// Filter returns the request as a filter of the log, or a usage error.
func (r RecordsRequest) Filter() (audit.Filter, error) {
	f := audit.Filter{Run: r.Run, Session: r.Session, Since: r.Since, Until: r.Until, UID: r.UID,
		Policy: r.Policy, Tool: r.Tool, Decision: r.Decision,
		Layer: r.Layer, Host: r.Host}
	for _, t := range r.Types {
		f.Types = append(f.Types, audit.Type(t))
	}
	if r.Path != "" {
		g, err := policy.ParseGlob(r.Path)
		if err != nil {
			return f, problem.New(problem.Usage, "path: %v", err)
		}
		f.Path = g.Match
	}
	return f, nil
}
