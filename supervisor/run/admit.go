package run

import (
	"context"
	"errors"
	"time"

	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/prepare"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/runlog"
)

// admit waits until the run may start. The jail of a session counts with its memory only, and an
// invocation counts as a run without memory, so an idle session takes no place.
func (s *Runner) admit(ctx context.Context, j *prepare.Job) (leave func(), err error) {
	runs, memory := 1, j.Policy.Policy().Limits.Memory
	switch {
	case j.Holds.For > 0:
		runs = 0
	case j.In != nil:
		memory = 0
	}
	leave, err = s.Queue.Enter(ctx, j.Caller.UID, j.Session(), runs, memory)
	if err == nil {
		s.Meters.Queued.Observe(time.Since(j.Begun))
	}
	return leave, err
}

// unbegun puts the end of a run on record of which nothing has begun.
func unbegun(records *runlog.Log, err error) error {
	e := problem.From(err)
	return errors.Join(e, records.Record(audit.RunFinished{ExitCode: e.Exit(), Error: e.Message}))
}
