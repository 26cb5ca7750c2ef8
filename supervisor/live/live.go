// Package live lists, inspects, verifies and ends live runs, of this daemon and of others on the
// same state directory, if the caller may.
package live

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/config"
	"github.com/jail-sandbox/jail/supervisor/detached"
	"github.com/jail-sandbox/jail/supervisor/ending"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/names"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/records"
	"github.com/jail-sandbox/jail/supervisor/run"
	"github.com/jail-sandbox/jail/supervisor/rundir"
	"github.com/jail-sandbox/jail/supervisor/rungroup"
)

// Runs gives callers access to the live runs of a host. Its methods may be called from several
// goroutines.
type Runs struct {
	// Own returns the run of this daemon with that id, or nil.
	Own func(id string) *run.Run
	// Dirs has the runs of all daemons on the same state directory.
	Dirs     *rundir.Store
	Slice    string
	Detached *detached.Runs
	Records  *records.Reader
	// Permissions returns what the ceiling in force permits a caller.
	Permissions func(caller.Caller) caller.Permissions
}

// maySee reports whether a caller may look at runs of user uid.
func (s *Runs) maySee(c caller.Caller, uid uint32) bool { return s.Permissions(c).Sees(uid) }

// List returns the live runs that the caller may see, also those of other daemons.
func (s *Runs) List(c caller.Caller) ([]message.RunInfo, error) {
	all, err := s.Dirs.Live()
	if err != nil {
		return nil, problem.New(problem.Failed, "runs: %w", err)
	}
	infos, may := []message.RunInfo{}, s.Permissions(c)
	for _, st := range all {
		if may.Sees(st.UID) {
			infos = append(infos, message.RunInfo{State: st, Usage: s.usageOf(st)})
		}
	}
	return infos, nil
}

// usageOf returns the usage of a run so far, or nil if it is not known. Fetches are included only
// for runs of this daemon.
func (s *Runs) usageOf(st rundir.State) *message.Usage {
	u := usageOf(st)
	r := s.Own(st.ID)
	if u == nil || r == nil {
		return u
	}
	f := r.Fetched()
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

// findRun returns a live run that the caller may see, or a not-found error.
func (s *Runs) findRun(c caller.Caller, id string) (rundir.State, error) {
	all, err := s.Dirs.Live()
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

// Inspect returns a live run, or the records of one that has ended.
func (s *Runs) Inspect(ctx context.Context, c caller.Caller,
	id string) (message.Inspection, error) {
	if st, err := s.findRun(c, id); err == nil {
		return message.Inspection{Live: &message.RunInfo{State: st, Usage: s.usageOf(st)}}, nil
	}
	return s.Records.OfRun(ctx, c, id)
}

// Wait waits for the end of a run and returns its result, without its output. A run that is not
// detached has a result only while it is live.
func (s *Runs) Wait(ctx context.Context, c caller.Caller, id string) (message.Result, error) {
	r := s.Own(id)
	_, detached := s.Detached.Owner(id)
	if detached || r == nil || !s.maySee(c, r.Job().Caller.UID) {
		return s.Detached.Wait(ctx, c, id)
	}
	if err := r.Wait(ctx); err != nil {
		return message.Result{}, err
	}
	return r.Result(), nil
}

// Kill ends a live run with SIGKILL. signal, 1 to 31, is the signal that its result names.
func (s *Runs) Kill(c caller.Caller, id string, signal int) error {
	if signal < 1 || signal > 31 {
		return problem.New(problem.Usage, "signal %d: want 1 to 31", signal)
	}
	r := s.Own(id)
	may := s.Permissions(c)
	if r != nil && may.Sees(r.Job().Caller.UID) {
		if err := may.Change(r.Job().Caller.UID, "run", id); err != nil {
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
	// For another daemon's run, its processes are killed, and that daemon records the end.
	leaf, err := cgroup.Open(rungroup.OfDead(s.Slice, st.Cgroup, st.ID, st.Session))
	if err != nil {
		return problem.New(problem.Failed, "run %s: %w", id, err)
	}
	if err := leaf.Kill(rungroup.KillWait); err != nil {
		return problem.New(problem.Failed, "run %s: %w", id, err)
	}
	return nil
}

// Verify checks with the kernel whether the jail of a live run matches its plan. It only reads. The
// run may belong to another daemon.
func (s *Runs) Verify(c caller.Caller, id string) (rundir.Verification, error) {
	st, err := s.findRun(c, id)
	if err != nil {
		return rundir.Verification{}, err
	}
	return s.Dirs.Verify(st)
}

// VerifyOwn verifies a run of the calling user that has a private daemon. Private daemons have a
// user namespace each and cannot look into each other's jails, but their user can from outside.
func VerifyOwn(c config.Config, id string) (rundir.Verification, error) {
	runs := &rundir.Store{Dir: filepath.Join(c.StateDir, "runs")}
	all, err := runs.Live()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return rundir.Verification{}, problem.New(problem.Failed, "runs: %w", err)
	}
	own := names.Name{UID: uint32(os.Getuid()), Name: id}
	named := names.At(filepath.Join(c.StateDir, "names")).Find(own)
	for _, st := range all {
		if st.ID == id || st.ID == named {
			v, err := runs.Verify(st)
			v.ID = id
			return v, err
		}
	}
	return rundir.Verification{}, noLiveRun(id)
}
