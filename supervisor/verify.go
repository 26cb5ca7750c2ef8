package supervisor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/jail-sandbox/jail/jail/launch"
	"github.com/jail-sandbox/jail/jail/verify"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/config"
	"github.com/jail-sandbox/jail/supervisor/names"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/rundir"
)

// identifying writes down which process the run's jail is, while the tool is started. identified
// waits until that is written.
func (r *run) identifying(p *launch.Process) (identified func() error) {
	r.dir.State.PID = p.PID
	written := make(chan error, 1)
	go func() {
		var err error
		if r.warm.jail == nil {
			// A jail that was prewarmed has been in the state since the directory was made.
			err = r.dir.Save()
		}
		written <- errors.Join(err, r.identify(p))
	}()
	return sync.OnceValue(func() error { return <-written })
}

// identify writes what Verify needs to know of the run's jail.
func (r *run) identify(p *launch.Process) error {
	start, err := p.StartTime()
	if errors.Is(err, launch.ErrEnded) {
		return nil // its end says why
	}
	if err != nil {
		return err
	}
	return r.dir.SaveJail(verify.Jail{Plan: r.job.Plan, PID: p.PID, Start: start})
}

// Verify asks the kernel whether the jail of a live run is what its plan says. It reads, and
// attaches to nothing. The run may be another daemon's.
func (s *Supervisor) Verify(c caller.Caller, id string) (rundir.Verification, error) {
	st, err := s.findRun(c, id)
	if err != nil {
		return rundir.Verification{}, err
	}
	return s.runs.Verify(st)
}

// VerifyOwn is Verify for an ordinary user whose runs have private daemons, each in a user
// namespace of its own: none of them may look into the jails of another. The user may, from outside
// of them all, and is who calls it.
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
