// Package recovery cleans up after daemons that were killed: it finishes or undoes interrupted
// commits, ends jails, records the ends of runs, and frees shadows.
package recovery

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/daemonlog"
	"github.com/jail-sandbox/jail/supervisor/prewarm"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/rundir"
	"github.com/jail-sandbox/jail/supervisor/rungroup"
	"github.com/jail-sandbox/jail/supervisor/runlog"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// clockSlack is how far the host's clock may have been set back during a run without its records
// being missed.
const clockSlack = time.Hour

// A Recovery cleans up for one daemon.
type Recovery struct {
	// Slice is the control group above all jails. LogDir is the directory of the audit log.
	Slice, LogDir string
	Log           runlog.Appender
	// Runs are the directories of runs, Prewarmed those of prewarmed jails.
	Runs, Prewarmed *rundir.Store
	Workspaces      *shadows.Store
	// Sweep removes the rest of sessions that cannot be woken any more.
	Sweep func() error
}

// Settle cleans up after killed daemons, when this daemon starts: commits, prewarmed jails, runs
// and shadows.
func (s *Recovery) Settle(ctx context.Context) error {
	return errors.Join(s.Workspaces.Settle(ctx), s.thawDead(),
		prewarm.Clear(s.Prewarmed, s.Slice), s.clearDead(ctx), s.Workspaces.SweepTerms(),
		s.sweepRuns())
}

// thawDead thaws the control groups of dead daemons' sessions. A daemon that is killed during a
// review leaves the invocations frozen, and with cgroup v1 a frozen process does not die before it
// is thawed. SIGKILL is already pending, so it executes nothing.
func (s *Recovery) thawDead() error {
	dead, err := s.Runs.Dead()
	if err != nil {
		return problem.New(problem.Failed, "runs: %w", err)
	}
	for _, r := range dead {
		if leaf := s.leafOf(r.State); leaf != "" && r.State.Session == r.State.ID {
			err = errors.Join(err, thaw(rungroup.Session(leaf)))
		}
		err = errors.Join(err, r.Lock.Close())
	}
	if err != nil {
		return problem.New(problem.Failed, "thaw what a killed daemon had frozen: %w", err)
	}
	return nil
}

// thaw thaws a control group. It is no error if the group was removed.
func thaw(path string) error {
	group, err := cgroup.Open(path)
	if err == nil {
		err = group.Thaw()
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// sweepRuns removes half-made and half-removed directories of runs and prewarmed jails.
func (s *Recovery) sweepRuns() error {
	if err := errors.Join(s.Runs.Sweep(), s.Prewarmed.Sweep()); err != nil {
		return problem.New(problem.Failed, "runs that were half made: %w", err)
	}
	return nil
}

// Again cleans up at each tick until done is closed. What fails is tried again at the next tick.
func (s *Recovery) Again(ticks <-chan time.Time, done <-chan struct{}, log *daemonlog.Log) {
	for {
		select {
		case <-ticks:
			log.Check("sweep what killed daemons left",
				errors.Join(s.thawDead(), s.clearDead(context.Background()), s.sweepRuns(),
					s.Workspaces.Kept.Sweep(), s.Sweep()))
			caches := s.Workspaces.Kept.Caches()
			log.Check("keep caches", errors.Join(caches.Prune(time.Now(), nil), caches.Settle()))
		case <-done:
			return
		}
	}
}

// clearDead ends and removes the runs whose directories no daemon has locked, and records the ends
// that are not yet recorded. Their daemons were killed or could not write the record.
func (s *Recovery) clearDead(ctx context.Context) error {
	dead, err := s.Runs.Dead()
	if err != nil {
		return problem.New(problem.Failed, "runs: %w", err)
	}
	if len(dead) == 0 {
		return nil
	}
	defer func() {
		for _, r := range dead {
			// of a directory that stays, for the next try
			_ = r.Lock.Close()
		}
	}()
	for _, r := range dead {
		// leafOf checks the group in the file: an empty path would mean every process of the host.
		leaf := s.leafOf(r.State)
		if err := errors.Join(rungroup.Clear(leaf), rungroup.ClearFetch(leaf),
			s.Workspaces.Kept.Release(r.State.ID)); err != nil {
			return problem.New(problem.Failed, "run %s, left by a daemon that was killed: %w",
				r.State.ID, err)
		}
	}
	last, err := s.lastRecords(ctx, dead)
	if err != nil {
		return problem.New(problem.Failed, "audit log: %w", err)
	}
	if err := s.recordUnlisted(dead, last); err != nil {
		return err
	}
	for _, r := range dead {
		if last[r.State.ID].Type != audit.TypeRunFinished {
			if err := s.recordLost(r.State, r.End); err != nil {
				return err
			}
		}
		if r.State.Session == "" {
			s.Workspaces.Approvals().SessionEnded(r.State.ID)
		}
		if err := r.Remove(); err != nil {
			return problem.New(problem.Failed, "run %s: %w", r.State.ID, err)
		}
	}
	return s.clearGroups(dead)
}

// recordUnlisted records the ends of a dead session's invocations in shared engines. They may have
// a recorded start but no end, and have no directory.
func (s *Recovery) recordUnlisted(dead []*rundir.Dir, last map[string]audit.Record) error {
	listed, sessions := map[string]bool{}, map[string]bool{}
	for _, r := range dead {
		listed[r.State.ID] = true
		if r.State.Session == r.State.ID {
			sessions[r.State.ID] = true
		}
	}
	for id, r := range last {
		session := cmp.Or(r.SessionID, r.Session)
		if r.Type != audit.TypeRunStarted || listed[id] || !sessions[session] {
			continue
		}
		st := rundir.State{ID: id, Session: session, Policy: r.Policy}
		end := audit.RunFinished{ExitCode: problem.ExitFailed,
			Error: "the daemon was killed before the end of the invocation was on record"}
		if err := s.recordLost(st, &end); err != nil {
			return err
		}
	}
	return nil
}

// lastRecords returns the last start or end record of each run, by id, since the start of the
// oldest dead run.
func (s *Recovery) lastRecords(ctx context.Context, dead []*rundir.Dir) (map[string]audit.Record,
	error) {
	since := dead[0].State.Started
	for _, r := range dead {
		if r.State.Started.Before(since) {
			since = r.State.Started
		}
	}
	// It is zero if a directory has no file: then the whole log is read.
	if !since.IsZero() {
		since = since.Add(-clockSlack)
	}
	return audit.Last(ctx, s.LogDir, audit.Filter{Since: since,
		Types: []audit.Type{audit.TypeRunStarted, audit.TypeRunFinished}})
}

// recordLost records the end of a run that has no end in the log. end is nil if the daemon was
// killed.
func (s *Recovery) recordLost(st rundir.State, end *audit.RunFinished) error {
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
				Reason: "the daemon was killed: what the run did with files in its last seconds " +
					"is not on record", Count: -1}))
	}
	if w, err := s.Workspaces.Kept.Get(st.ID); err == nil {
		finished.Workspace = "kept"
		w.Close()
	}
	if _, _, err := s.Log.AppendAll(append(entries, entry(finished))); err != nil {
		return problem.New(problem.Failed, "audit log: %w", err)
	}
	return nil
}

// clearGroups removes the control groups of dead sessions, whose leaves were removed before.
func (s *Recovery) clearGroups(dead []*rundir.Dir) error {
	for _, r := range dead {
		leaf := s.leafOf(r.State)
		if leaf == "" || r.State.Session != r.State.ID {
			continue
		}
		if err := cgroup.Remove(rungroup.Session(leaf)); err != nil {
			return problem.New(problem.Failed, "session %s, left by a daemon that was killed: %w",
				r.State.ID, err)
		}
	}
	return nil
}

// leafOf returns the control group of a dead run's jail, or "" if the state names no valid one.
func (s *Recovery) leafOf(st rundir.State) string {
	return rungroup.OfDead(s.Slice, st.Cgroup, st.ID, st.Session)
}
