// Package hostpolicy keeps the policy files of a host's operator in force: the ceiling and the
// profiles. Each change is on record before it counts, and what is signed never goes back to an
// older version.
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

// Options name the files, and the functions that are called for changes.
type Options struct {
	// Profiles is the directory of the operator's profiles, and Ceiling the file of the ceiling.
	Profiles, Ceiling string
	// StateDir has the file that remembers the versions of signed profiles.
	StateDir string
	// Private says that the daemon serves one client: the record of its run names the policy, so
	// what is found at the start needs no record of its own.
	Private bool
	// Record puts an event on record.
	Record func(context.Context, audit.Event) error
	// Changed is called before a change that can be used is put on record.
	Changed func()
}

// Policies are the files in force.
type Policies struct {
	*profiles.Source
}

// Open reads the ceiling and the profiles. From then on a run gets what was read and checked last,
// and keeps it.
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

// record puts on record what was found on the disk, before it counts.
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

// Watch follows changes of the files. Where the kernel reports no events, a check every few
// seconds and the one before each run find the changes.
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

// Status returns what is known, without a look at the disk.
func (p *Policies) Status() Status {
	s := p.Source.Status()
	out := Status{Digest: s.Digest, Loaded: s.Loaded, Reloads: s.Reloads, Failures: s.Failures}
	if s.Err != nil {
		out.Error = oneLine(s.Err)
	}
	return out
}
