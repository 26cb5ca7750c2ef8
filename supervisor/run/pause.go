package run

import (
	"errors"
	"sync"

	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/prepare"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/rungroup"
)

// A pauser stops the processes that may write to the shadow of a run, for a review of the shadow
// while the run lives. Its methods may be called from several goroutines.
type pauser struct {
	// mu is held as long as the processes are stopped.
	mu sync.Mutex
	// work is the shadow, nil before the tool runs and after the end of the jail.
	work *workspace.Workspace
	// group is the cgroup of the processes.
	group string
}

// open lets the shadow be reviewed. work may be nil.
func (p *pauser) open(j *prepare.Job, work *workspace.Workspace) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.work, p.group = work, j.Plan.Cgroup.Path
	if j.Holds.For > 0 {
		// In the session's own jail no tool runs.
		p.group = rungroup.Session(j.Plan.Cgroup.Path)
	}
}

// close ends that. It waits for a review that is under way.
func (p *pauser) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.work = nil
}

// Paused calls f with the shadow of the run while all processes that may write to the shadow are
// stopped, and lets them go on whatever f returns. ok is false if there is no such shadow now: the
// run has none of its own, or its jail does not run yet or no longer. One call waits for the other.
func (r *Run) Paused(f func(*workspace.Workspace) error) (ok bool, err error) {
	p := &r.paused
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.work == nil {
		return false, nil
	}
	leaf, err := cgroup.Open(p.group)
	if err != nil {
		return true, problem.New(problem.Failed, "stop the processes of run %s: %w", r.job.ID, err)
	}
	defer leaf.Close()
	thaw := func() error {
		err := leaf.Thaw()
		if err == nil {
			return nil
		}
		// Processes that stay stopped are of no use to anybody.
		r.Kill()
		return problem.New(problem.Failed,
			"run %s was ended, since its processes could not go on: %w", r.job.ID, err)
	}
	if err := leaf.Freeze(); err != nil {
		err = problem.New(problem.Busy, "the processes of run %s cannot be stopped: %w", r.job.ID,
			err).WithHint("try again")
		return true, errors.Join(err, thaw())
	}
	// A panic in f must not leave them stopped, either.
	defer func() { err = errors.Join(err, thaw()) }()
	return true, f(p.work)
}
