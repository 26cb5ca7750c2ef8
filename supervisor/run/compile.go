package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/prepare"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/runlog"
	"github.com/jail-sandbox/jail/supervisor/stdio"
)

// Compile runs a compilation of a module in a jail of its own and writes the compiled module to
// out. It is not recorded, since it belongs to the run that waits for it. failure says why the
// module could not be compiled; err is a failure of jail.
func (s *Runner) Compile(ctx context.Context, sub *prepare.Job, out io.Writer) (failure string,
	err error) {
	// The run that waits for the compilation has the records.
	r := &Run{job: sub, done: make(chan struct{}), records: runlog.New(nil, audit.Entry{})}
	defer close(r.done)
	stop := context.AfterFunc(ctx, r.gone)
	defer stop()
	dir, err := s.Dirs.Add(sub.State())
	if err != nil {
		return "", problem.From(err)
	}
	e, err := s.jailed(ctx, r, ready{dir: dir}, stdio.Streams{Out: out, Err: io.Discard})
	var res message.Result
	if err == nil {
		res, _ = outcome(sub, r.Ended(), message.Result{}, e, nil)
		err = s.failure(sub, r.Ended(), res, e)
	}
	err = errors.Join(err, dir.Remove())
	e.pipes.Wait()
	if err != nil {
		return "", problem.From(err)
	}
	switch {
	case res.Limit != nil:
		return beyond(*res.Limit), nil
	case e.answer.Failure != "":
		// The run that waits for the module reports what is wrong with it.
		return e.answer.Failure, nil
	case res.ExitCode != 0:
		return fmt.Sprintf("the compiler ended with code %d", res.ExitCode), nil
	}
	return "", nil
}

// beyond describes the limit that ended a compilation, with its unit. A module that an ordinary
// compiler made stays far below these limits.
func beyond(l message.LimitHit) string {
	const advice = "; it is no module that a compiler made for people, or split it"
	switch l.Name {
	case "cpu_time", "wall":
		return fmt.Sprintf("compiling it takes more than %v (%s)%s",
			time.Duration(l.Limit)*time.Millisecond, l.Name, advice)
	case "memory", "file_size", "output":
		return fmt.Sprintf("compiling it takes more than %d MiB (%s)%s", l.Limit>>20, l.Name,
			advice)
	}
	return fmt.Sprintf("compiling it reached the limit %s of %d", l.Name, l.Limit)
}
