package supervisor

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/profiles"
	"github.com/jail-sandbox/jail/supervisor/audit"
)

// openPolicies reads the ceiling and the profiles. From here on a run has what was read and checked last, and keeps it.
func (s *Supervisor) openPolicies(ctx context.Context) error {
	known, err := openVersions(s.config.StateDir)
	if err != nil {
		return failed(err, "", "%v", err)
	}
	s.policies, err = profiles.Open(profiles.Options{Dir: s.config.Profiles, Ceiling: s.config.Ceiling, Admit: known.admit, Record: func(c profiles.Change) error {
		if c.Err != nil {
			known.forget()
			return s.recordPolicies(context.Background(), c)
		}
		s.drainPool() // what was made by the old ones is for nobody, and takes up room
		return errors.Join(s.recordPolicies(context.Background(), c), known.commit())
	}})
	if err != nil {
		return failed(err, "", "profiles: %v", err)
	}
	if err := known.commit(); err != nil {
		return err
	}
	status := s.policies.Status()
	if s.config.Private || status.Digest == "" {
		return nil // what the run records says which policy it has
	}
	return s.recordPolicies(ctx, profiles.Change{New: status.Digest, Err: status.Err})
}

// recordPolicies puts on record what was found on the disk, before it counts.
func (s *Supervisor) recordPolicies(ctx context.Context, c profiles.Change) error {
	e := audit.PolicyLoaded{Kind: "host", Path: s.config.Ceiling, Digest: c.New, Was: c.Old, Files: c.Names}
	if c.Err != nil {
		e.Error = oneLine(c.Err)
	}
	if _, err := s.log.Append(ctx, audit.Entry{Event: e}); err != nil {
		return failed(err, "make room for the log", "audit log: %v", err)
	}
	return nil
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// watchPolicies follows changes of the files. Without the kernel's events the look every few seconds, and the one before each run, have to do.
func (s *Supervisor) watchPolicies() { _ = s.policies.Watch(profiles.Every) }

// Reload reads the ceiling and the profiles anew, as SIGHUP asks for. Where they cannot be used, those that were in force stay so.
func (s *Supervisor) Reload(context.Context) error { return s.policies.Reload() }

// PolicyStatus says which policy files are in force, and whether they are those on the disk.
type PolicyStatus struct {
	Digest   string    `json:"digest"`          // of the operator's files; empty where there are none
	Loaded   time.Time `json:"loaded"`          // when they were read
	Reloads  int64     `json:"reloads"`         // changes that were taken since the daemon started
	Failures int64     `json:"failures"`        // changes that were refused
	Error    string    `json:"error,omitempty"` // why what is on the disk is not in force, or what of it cannot be used
}

// PolicyStatus looks at nothing but what is known.
func (s *Supervisor) PolicyStatus() PolicyStatus {
	status := s.policies.Status()
	out := PolicyStatus{Digest: status.Digest, Loaded: status.Loaded, Reloads: status.Reloads, Failures: status.Failures}
	if status.Err != nil {
		out.Error = oneLine(status.Err)
	}
	return out
}
