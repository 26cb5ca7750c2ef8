package supervisor

import (
	"context"
	"syscall"

	"github.com/jail-sandbox/jail/supervisor/ending"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// A liveRun is a run of this daemon, as the review of shadows sees one.
type liveRun struct{ r *run }

// IsSession reports whether the run holds a session open.
func (l liveRun) IsSession() bool { return l.r.job.Holds > 0 }

// Kill ends the run.
func (l liveRun) Kill() { l.r.End(ending.Cause{Signal: int(syscall.SIGKILL)}) }

// Wait returns when nothing is left to do for the run, or ctx ends; the run goes on all the same.
func (l liveRun) Wait(ctx context.Context) error {
	select {
	case <-l.r.done:
		return nil
	case <-ctx.Done():
		return problem.New(problem.Failed, "the caller went away").WithCause(ctx.Err())
	}
}
