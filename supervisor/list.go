package supervisor

import (
	"context"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/supervisor/audit"
)

// A RunInfo is a live run, as `jail ps` and `jail inspect` show it.
type RunInfo struct {
	runState
	Usage *Usage `json:"usage,omitempty"` // so far
}

// mayControl reports whether it is the caller's own, or the caller is root.
func (c Caller) mayControl(uid uint32) bool { return c.UID == 0 || c.UID == uid }

// maySee reports whether a caller may look at what uid started.
func (s *Supervisor) maySee(c Caller, uid uint32) bool { return s.permissionsOf(c).sees(uid) }

// List returns the live runs that the caller may see, those of other daemons on the same state too.
func (s *Supervisor) List(c Caller) ([]RunInfo, error) {
	all, err := s.runs.live()
	if err != nil {
		return nil, failed(err, "", "runs: %v", err)
	}
	infos, may := []RunInfo{}, s.permissionsOf(c)
	for _, st := range all {
		if may.sees(st.UID) {
			infos = append(infos, RunInfo{st, s.usageOf(st)})
		}
	}
	return infos, nil
}

// usageOf is what a run has used so far: of its fetches only this daemon's own runs tell.
func (s *Supervisor) usageOf(st runState) *Usage {
	u := usageOf(st)
	s.mu.Lock()
	r := s.active[st.ID]
	s.mu.Unlock()
	if u == nil || r == nil {
		return u
	}
	r.mu.Lock()
	f := r.fetch
	r.mu.Unlock()
	if f == nil {
		return u
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	u.FetchRequests, u.FetchBytesIn, u.FetchBytesOut = f.usage.FetchRequests, f.usage.FetchBytesIn, f.usage.FetchBytesOut
	return u
}

func usageOf(st runState) *Usage {
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
	return &Usage{WallMS: time.Since(st.Started).Milliseconds(), CPUMS: u.CPU.Milliseconds(), MemoryPeak: u.MemoryPeak, PIDsPeak: u.PIDsPeak}
}

// findRun finds a live run that the caller may see.
func (s *Supervisor) findRun(c Caller, id string) (runState, error) {
	all, err := s.runs.live()
	if err != nil {
		return runState{}, failed(err, "", "runs: %v", err)
	}
	for _, st := range all {
		if st.ID == id && s.maySee(c, st.UID) {
			return st, nil
		}
	}
	return runState{}, notFound("jail ps lists what runs; jail audit show --run ID what ran", "no run %q is running", id)
}

// Inspection is what is known of a run: live, or from the record.
type Inspection struct {
	Live      *RunInfo
	Records   []audit.Record // the first maxInspected
	Truncated bool           // there are more
}

// maxInspected bounds the records of an Inspection, which are in memory together. Records gives all of a run.
const maxInspected = 10_000

// Inspect returns a live run, or what the log says of one that has ended. The log is read as by Records.
func (s *Supervisor) Inspect(ctx context.Context, c Caller, id string) (Inspection, error) {
	if st, err := s.findRun(c, id); err == nil {
		return Inspection{Live: &RunInfo{st, s.usageOf(st)}}, nil
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
		return in, failed(ctx.Err(), "", "the caller went away")
	case len(in.Records) == 0:
		return in, notFound("jail ps lists what runs; jail audit show what ran", "no run is called %q", id)
	}
	return in, nil
}

// Kill ends a live run with a signal's name in its result; nothing inside can refuse.
func (s *Supervisor) Kill(c Caller, id string, signal int) error {
	if signal < 1 || signal > 31 {
		return usage("signal %d: want 1 to 31", signal)
	}
	s.mu.Lock()
	r := s.active[id]
	s.mu.Unlock()
	may := s.permissionsOf(c)
	if r != nil && may.sees(r.job.caller.UID) {
		if err := may.change(r.job.caller.UID, "run", id); err != nil {
			return err
		}
		r.end(cause{signal: signal})
		return nil
	}
	st, err := s.findRun(c, id)
	if err != nil {
		return err
	}
	if err := may.change(st.UID, "run", id); err != nil {
		return err
	}
	// Another daemon's: its control group is emptied, and that daemon writes the record.
	leaf, err := cgroup.Open(s.leafOf(st))
	if err != nil {
		return failed(err, "", "run %s: %v", id, err)
	}
	if err := leaf.Kill(killWait); err != nil {
		return failed(err, "", "run %s: %v", id, err)
	}
	return nil
}

// Plan makes the plan of a request and starts nothing. The range of host ids in it is one that is free now.
func (s *Supervisor) Plan(ctx context.Context, c Caller, req Request) (jail.Plan, error) {
	j, err := s.prepare(ctx, c, req, true)
	defer j.close()
	return j.plan, err
}
