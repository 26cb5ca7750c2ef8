package supervisor

import (
	"context"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/rundir"
	"github.com/jail-sandbox/jail/supervisor/rungroup"
)

// A RunInfo is a live run, as `jail ps` and `jail inspect` show it.
type RunInfo struct {
	rundir.State
	// The id that no other run has. `id` is the name that its user gave to it, where there is
	// one.
	GlobalID string `json:"global_id,omitempty"`
	Usage    *Usage `json:"usage,omitempty"` // so far
}

// maySee reports whether a caller may look at what uid started.
func (s *Supervisor) maySee(c caller.Caller,
	uid uint32) bool {
	return s.permissionsOf(c).Sees(uid)
}

func (s *Supervisor) permissionsOf(c caller.Caller) caller.Permissions {
	return caller.PermissionsOf(s.policies.Current().Rules(), c)
}

// List returns the live runs that the caller may see, those of other daemons on the same state too.
func (s *Supervisor) List(c caller.Caller) ([]RunInfo, error) {
	all, err := s.runs.Live()
	if err != nil {
		return nil, problem.New(problem.Failed, "runs: %w", err)
	}
	infos, may := []RunInfo{}, s.permissionsOf(c)
	for _, st := range all {
		if may.Sees(st.UID) {
			infos = append(infos, RunInfo{State: st, Usage: s.usageOf(st)})
		}
	}
	return infos, nil
}

// usageOf is what a run has used so far: of its fetches only this daemon's own runs tell.
func (s *Supervisor) usageOf(st rundir.State) *Usage {
	u := usageOf(st)
	s.mu.Lock()
	r := s.active[st.ID]
	s.mu.Unlock()
	if u == nil || r == nil {
		return u
	}
	f := r.fetch.Load()
	if f == nil {
		return u
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	u.FetchRequests, u.FetchBytesIn, u.FetchBytesOut = f.usage.FetchRequests, f.usage.FetchBytesIn,
		f.usage.FetchBytesOut
	return u
}

func usageOf(st rundir.State) *Usage {
	if st.PID == 0 {
		return nil
	}
	leaf, err := cgroup.Open(st.Cgroup)
	if err != nil {
		return nil
	}
	u, err := leaf.Usage()
	if err != nil {
		return nil
	}
	return &Usage{WallMS: time.Since(st.Started).Milliseconds(), CPUMS: u.CPU.Milliseconds(),
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

// Inspection is what is known of a run: live, or from the record.
type Inspection struct {
	Live      *RunInfo
	Records   []audit.Record // the first maxInspected
	Truncated bool           // there are more
}

// maxInspected bounds the records of an Inspection, which are in memory together. Records gives all
// of a run.
const maxInspected = 10_000

// Inspect returns a live run, or what the log says of one that has ended. The log is read as by
// Records.
func (s *Supervisor) Inspect(ctx context.Context, c caller.Caller, id string) (Inspection, error) {
	if st, err := s.findRun(c, id); err == nil {
		return Inspection{Live: &RunInfo{State: st, Usage: s.usageOf(st)}}, nil
	}
	var in Inspection
	all, err := s.Records(ctx, c, RecordsRequest{Run: id})
	if err != nil {
		return in, err
	}
	for r, err := range all {
		if err != nil {
			return in, err
		}
		if in.Truncated = len(in.Records) == maxInspected; in.Truncated {
			break
		}
		in.Records = append(in.Records, r)
	}
	switch {
	case ctx.Err() != nil:
		return in, problem.New(problem.Failed, "the caller went away").WithCause(ctx.Err())
	case len(in.Records) == 0:
		return in, problem.New(problem.NotFound, "no run is called %q", id).
			WithHint("jail ps lists what runs; jail audit show what ran")
	}
	return in, nil
}

// Kill ends a live run with a signal's name in its result; nothing inside can refuse.
func (s *Supervisor) Kill(c caller.Caller, id string, signal int) error {
	if signal < 1 || signal > 31 {
		return problem.New(problem.Usage, "signal %d: want 1 to 31", signal)
	}
	s.mu.Lock()
	r := s.active[id]
	s.mu.Unlock()
	may := s.permissionsOf(c)
	if r != nil && may.Sees(r.job.caller.UID) {
		if err := may.Change(r.job.caller.UID, "run", id); err != nil {
			return err
		}
		r.end(cause{signal: signal})
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
	leaf, err := cgroup.Open(s.leafOf(st))
	if err != nil {
		return problem.New(problem.Failed, "run %s: %w", id, err)
	}
	if err := leaf.Kill(rungroup.KillWait); err != nil {
		return problem.New(problem.Failed, "run %s: %w", id, err)
	}
	return nil
}

// Plan makes the plan of a request and starts nothing. The range of host ids in it is one that is
// free now.
func (s *Supervisor) Plan(ctx context.Context, c caller.Caller, req Request) (jail.Plan, error) {
	j, err := s.prepare(ctx, c, req, true)
	defer j.close()
	return j.plan, err
}
