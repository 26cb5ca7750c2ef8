package supervisor

import (
	"context"
	"time"

	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/ending"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/rundir"
	"github.com/jail-sandbox/jail/supervisor/rungroup"
)

// maySee reports whether a caller may look at what uid started.
func (s *Supervisor) maySee(c caller.Caller,
	uid uint32) bool {
	return s.permissionsOf(c).Sees(uid)
}

func (s *Supervisor) permissionsOf(c caller.Caller) caller.Permissions {
	return caller.PermissionsOf(s.policies.Current().Rules(), c)
}

// List returns the live runs that the caller may see, those of other daemons on the same state too.
func (s *Supervisor) List(c caller.Caller) ([]message.RunInfo, error) {
	all, err := s.runs.Live()
	if err != nil {
		return nil, problem.New(problem.Failed, "runs: %w", err)
	}
	infos, may := []message.RunInfo{}, s.permissionsOf(c)
	for _, st := range all {
		if may.Sees(st.UID) {
			infos = append(infos, message.RunInfo{State: st, Usage: s.usageOf(st)})
		}
	}
	return infos, nil
}

// usageOf is what a run has used so far: of its fetches only this daemon's own runs tell.
func (s *Supervisor) usageOf(st rundir.State) *message.Usage {
	u := usageOf(st)
	r := s.active.get(st.ID)
	if u == nil || r == nil {
		return u
	}
	f := r.proxy.Load().Usage()
	u.FetchRequests, u.FetchBytesIn, u.FetchBytesOut = f.FetchRequests, f.FetchBytesIn,
		f.FetchBytesOut
	return u
}

func usageOf(st rundir.State) *message.Usage {
	if st.PID == 0 {
		return nil
	}
	leaf, err := cgroup.Open(st.Cgroup)
	if err != nil {
		return nil
	}
	defer leaf.Close()
	u, err := leaf.Usage()
	if err != nil {
		return nil
	}
	return &message.Usage{WallMS: time.Since(st.Started).Milliseconds(), CPUMS: u.CPU.Milliseconds(),
		MemoryPeak: u.MemoryPeak, PIDsPeak: u.PIDsPeak}
}

// findRun finds a live run that the caller may see.
func (s *Supervisor) findRun(c caller.Caller, id string) (rundir.State, error) {
	all, err := s.runs.Live()
	if err != nil {
		return rundir.State{}, problem.New(problem.Failed, "runs: %w", err)
	}
	for _, st := range all {
		if st.ID == id && s.maySee(c, st.UID) {
			return st, nil
		}
	}
	return rundir.State{}, noLiveRun(id)
}

func noLiveRun(id string) *problem.Error {
	return problem.New(problem.NotFound, "no run %q is running", id).
		WithHint("jail ps lists what runs; jail audit show --run ID what ran")
}

// Inspect returns a live run, or what the log says of one that has ended. The log is read as by
// Records().
func (s *Supervisor) Inspect(ctx context.Context, c caller.Caller,
	id string) (message.Inspection, error) {
	if st, err := s.findRun(c, id); err == nil {
		return message.Inspection{Live: &message.RunInfo{State: st, Usage: s.usageOf(st)}}, nil
	}
	return s.records.OfRun(ctx, c, id)
}

// Wait waits for the end of a run and returns how it ended, without its output: of one that is
// detached, during it and afterwards; of any other, as long as it runs.
func (s *Supervisor) Wait(ctx context.Context, c caller.Caller, id string) (message.Result, error) {
	r := s.active.get(id)
	_, detached := s.detached.Owner(id)
	if detached || r == nil || !s.maySee(c, r.job.Caller.UID) {
		return s.detached.Wait(ctx, c, id)
	}
	select {
	case <-r.done:
		return r.result, nil
	case <-ctx.Done():
		return message.Result{}, problem.New(problem.Failed, "the caller went away").
			WithCause(ctx.Err())
	}
}

// Kill ends a live run with a signal's name in its result; nothing inside can refuse.
func (s *Supervisor) Kill(c caller.Caller, id string, signal int) error {
	if signal < 1 || signal > 31 {
		return problem.New(problem.Usage, "signal %d: want 1 to 31", signal)
	}
	r := s.active.get(id)
	may := s.permissionsOf(c)
	if r != nil && may.Sees(r.job.Caller.UID) {
		if err := may.Change(r.job.Caller.UID, "run", id); err != nil {
			return err
		}
		r.End(ending.Cause{Signal: signal})
		return nil
	}
	st, err := s.findRun(c, id)
	if err != nil {
		return err
	}
	if err := may.Change(st.UID, "run", id); err != nil {
		return err
	}
	// Another daemon's: its control group is emptied, and that daemon writes the record.
	leaf, err := cgroup.Open(rungroup.OfDead(s.config.Slice, st.Cgroup, st.ID,
		st.Session))
	if err != nil {
		return problem.New(problem.Failed, "run %s: %w", id, err)
	}
	if err := leaf.Kill(rungroup.KillWait); err != nil {
		return problem.New(problem.Failed, "run %s: %w", id, err)
	}
	return nil
}
