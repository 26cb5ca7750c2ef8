package supervisor

import (
	"context"
	"errors"
	"time"

	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/rundir"
	"github.com/jail-sandbox/jail/supervisor/rungroup"
)

// clockSlack is how far the host's clock may have been set back while a run was live, without the
// records of the run being missed.
const clockSlack = time.Hour

// clearDead ends and removes the runs whose directory no daemon has locked: those of daemons that
// were killed, and those whose end the log did not take. It records each end that is not on record
// yet.
func (s *Supervisor) clearDead(ctx context.Context) error {
	dead, err := s.runs.Dead()
	if err != nil {
		return problem.New(problem.Failed, "runs: %w", err)
	}
	if len(dead) == 0 {
		return nil
	}
	defer func() {
		for _, r := range dead {
			// of one that stays, for the next try
			_ = r.Lock.Close()
		}
	}()
	for _, r := range dead {
		// By its name and not by what its file says: a file that was cut short names no group, and
		// no group is every process of the host.
		leaf := s.leafOf(r.State)
		if err := errors.Join(rungroup.Clear(leaf), rungroup.ClearFetch(leaf),
			s.workspaces.Release(r.State.ID)); err != nil {
			return problem.New(problem.Failed, "run %s, left by a daemon that was killed: %w",
				r.State.ID, err)
		}
	}
	last, err := s.lastRecords(ctx, dead)
	if err != nil {
		return problem.New(problem.Failed, "audit log: %w", err)
	}
	for _, r := range dead {
		if last[r.State.ID].Type != audit.TypeRunFinished {
			if err := s.recordLost(r.State, r.End); err != nil {
				return err
			}
		}
		if err := r.Remove(); err != nil {
			return problem.New(problem.Failed, "run %s: %w", r.State.ID, err)
		}
	}
	return s.clearGroups(dead)
}

// lastRecords returns of each run the last record of its start or of its end.
func (s *Supervisor) lastRecords(ctx context.Context, dead []*rundir.Dir) (map[string]audit.Record,
	error) {
	since := dead[0].State.Started
	for _, r := range dead {
		if r.State.Started.Before(since) {
			since = r.State.Started
		}
	}
	// it is where a directory has no file: then all of the log is read
	if !since.IsZero() {
		since = since.Add(-clockSlack)
	}
	return audit.Last(ctx, s.config.LogDir, audit.Filter{Since: since,
		Types: []audit.Type{audit.TypeRunStarted, audit.TypeRunFinished}})
}

// recordLost records the end of a run of which there is no end on record. end is nil where the
// daemon was killed.
func (s *Supervisor) recordLost(st rundir.State, end *audit.RunFinished) error {
	entry := func(e audit.Event) audit.Entry {
		return audit.Entry{Run: st.ID, Session: st.Session, Policy: st.Policy, Event: e}
	}
	finished := audit.RunFinished{ExitCode: problem.ExitFailed,
		Error: "the daemon was killed while the tool ran"}
	var entries []audit.Entry
	if end != nil {
		finished = *end
	} else if st.Files {
		entries = append(entries,
			entry(audit.Gap{
				Reason: "the daemon was killed: what the run did with files in its last seconds is not on record", Count: -1}))
	}
	if w, err := s.workspaces.Get(st.ID); err == nil {
		finished.Workspace = "kept"
		w.Close()
	}
	if _, _, err := s.log.AppendAll(append(entries, entry(finished))); err != nil {
		return problem.New(problem.Failed, "audit log: %w", err)
	}
	return nil
}
