// Package hostpolicy loads the policy files of a host's operator: the ceiling and the profiles.
// Each change is recorded before it takes effect, and a signed profile never goes back to an older
// version.
package hostpolicy

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/profiles"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// Options name the files and the functions that are called on changes.
type Options struct {
	// Profiles is the directory of the operator's profiles, and Ceiling the file of the ceiling.
	Profiles, Ceiling string
	// StateDir holds the file with the versions of signed profiles.
	StateDir string
	// Private is set if the daemon serves one client. The record of its run names the policy, so
	// the load at the start is not recorded.
	Private bool
	// Record writes an event to the audit log.
	Record func(context.Context, audit.Event) error
	// Changed is called before a valid change is recorded.
	Changed func()
}

// Policies are the loaded files.
type Policies struct {
	*profiles.Source
}

// Open reads the ceiling and the profiles. Each run gets the last valid state and keeps it.
func Open(ctx context.Context, o Options) (*Policies, error) {
	known, err := openVersions(o.StateDir)
	if err != nil {
		return nil, problem.New(problem.Failed, "%w", err).
			WithHint("look at the disk of jail's state directory, and put the file back from a " +
				"backup")
	}
	source, err := profiles.Open(profiles.Options{Dir: o.Profiles, Ceiling: o.Ceiling,
		Admit: known.admit, Record: func(c profiles.Change) error {
			if c.Err != nil {
				known.forget()
				return o.record(context.Background(), c)
			}
			o.Changed()
			return errors.Join(o.record(context.Background(), c), known.commit())
		}})
	if err != nil {
		return nil, problem.New(problem.Failed, "profiles: %w", err).
			WithHint("correct what is named; jail doctor looks at all policy files")
	}
	if err := known.commit(); err != nil {
		return nil, err
	}
	status := source.Status()
	if !o.Private && status.Digest != "" {
		if err := o.record(ctx, profiles.Change{New: status.Digest, Err: status.Err}); err != nil {
			return nil, err
		}
	}
	return &Policies{source}, nil
}

// record writes a change to the audit log, before the change takes effect.
func (o Options) record(ctx context.Context, c profiles.Change) error {
	e := audit.PolicyLoaded{Kind: "host", Path: o.Ceiling, Digest: c.New, Was: c.Old,
		Files: c.Names}
	if c.Err != nil {
		e.Error = oneLine(c.Err)
	}
	if err := o.Record(ctx, e); err != nil {
		return problem.New(problem.Failed, "audit log: %w", err).WithHint("make room for the log")
	}
	return nil
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// Watch follows changes of the files. Without kernel events, a check every few seconds and before
// each run finds changes.
func (p *Policies) Watch() error { return p.Source.Watch(profiles.Every) }

// Status says which policy files are in force, and whether they are those on the disk.
type Status struct {
	// Digest is that of the operator's files; empty if there are none.
	Digest string `json:"digest"`
	// Loaded is when they were read.
	Loaded time.Time `json:"loaded"`
	// Reloads counts the changes that were taken since the daemon started, and Failures those that
	// were refused.
	Reloads int64 `json:"reloads"`
	// Changes that were refused since the daemon started.
	Failures int64 `json:"failures"`
	// Error says why what is on the disk is not in force, or what of it cannot be used.
	Error string `json:"error,omitempty"`
}

// Status returns the current state without reading the disk.
func (p *Policies) Status() Status {
	s := p.Source.Status()
	out := Status{Digest: s.Digest, Loaded: s.Loaded, Reloads: s.Reloads, Failures: s.Failures}
	if s.Err != nil {
		out.Error = oneLine(s.Err)
	}
	return out
}
