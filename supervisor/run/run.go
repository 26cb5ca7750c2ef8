// Package run carries out the runs that package prepare has decided on. [Runner.steps] has the
// steps of a run, in order. A step that takes a resource returns a function that releases it.
//
//	admit.go    wait until the run may start
//	record.go   record the start, and later the end
//	launch.go   take a prewarmed jail or make one, start the tool
//	watch.go    limit and observe the jail while it lives
//	finish.go   find how the run ended, which limits it met and what was refused
//	live.go     list, end and pause live runs
//
// An invocation in a shared engine of its session skips the steps between the first and the last:
// see shared.go.
package run

import (
	"context"
	"errors"
	"time"

	"github.com/jail-sandbox/jail/supervisor/admission"
	"github.com/jail-sandbox/jail/supervisor/approvals"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/daemonlog"
	"github.com/jail-sandbox/jail/supervisor/lifetime"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/meters"
	"github.com/jail-sandbox/jail/supervisor/prepare"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/rundir"
	"github.com/jail-sandbox/jail/supervisor/runlog"
	"github.com/jail-sandbox/jail/supervisor/runproxy"
	"github.com/jail-sandbox/jail/supervisor/runshadow"
	"github.com/jail-sandbox/jail/supervisor/shadows"
	"github.com/jail-sandbox/jail/supervisor/stdio"
)

// A Runner carries out the runs of a daemon. Its fields do not change once a run has begun. Its
// methods may be called from several goroutines.
type Runner struct {
	Preparer *prepare.Preparer
	Queue    *admission.Queue
	Jails    Jails
	Proxies  *runproxy.Host
	Dirs     *rundir.Store
	Shadows  *shadows.Store
	Log      runlog.Appender
	Meters   *meters.Meters
	// Tools asks for approvals of tools that may not start without one.
	Tools approvals.Tools
	Life  *lifetime.Lifetime
	// Errors logs failed tasks that do not change the result of a run.
	Errors *daemonlog.Log

	active active
}

// Run runs a tool for a caller and returns when nothing of it is left but its result. The run ends
// if ctx does. Errors are in the result.
func (s *Runner) Run(ctx context.Context, c caller.Caller, req message.Request,
	streams stdio.Streams) message.Result {
	j, err := s.Preparer.Run(ctx, c, req)
	if err != nil {
		return s.Refuse(c, req, j, err)
	}
	res, pipes := s.Do(ctx, s.newRun(j), streams)
	pipes.Wait()
	return res
}

// Do carries out a run and closes its job. The caller may have to wait for output in the returned
// pipes, which are nil if no tool was started.
func (s *Runner) Do(ctx context.Context, r *Run, streams stdio.Streams) (message.Result,
	*stdio.Pipes) {
	defer r.job.Close()
	defer close(r.done)
	if r.holder != nil {
		// Close is also called if the jail never ran.
		defer r.holder.Close()
	}
	err := s.active.add(r)
	if streams.Tracked != nil {
		streams.Tracked()
	}
	var pipes *stdio.Pipes
	if err == nil {
		defer s.active.remove(r)
		stop := context.AfterFunc(ctx, r.gone)
		defer stop()
		r.result, pipes, err = s.steps(ctx, r, streams)
	}
	if err != nil {
		r.result.Error = problem.From(err)
		r.result.ExitCode = r.result.Error.Exit()
	}
	r.result.Audit = r.records.Span()
	s.Meters.Ended(&r.result, time.Since(r.job.Begun))
	return r.result, pipes
}

// steps carries out the steps of a run. An error is a failure of jail, not of the tool. The result
// is valid beside an error.
func (s *Runner) steps(ctx context.Context, r *Run, streams stdio.Streams) (res message.Result,
	pipes *stdio.Pipes, err error) {
	j, res := r.job, r.result
	leave, err := s.admit(ctx, j)
	if err != nil {
		return res, nil, unbegun(r.records, err)
	}
	defer leave()
	if err := s.approved(ctx, j); err != nil {
		return res, nil, unbegun(r.records, err)
	}
	if j.Shared() {
		return s.shared(ctx, r, res, streams)
	}
	if j.In != nil {
		r.in.Engines.Vacate()
	}
	given := s.claim(ctx, r)
	defer given.close(s.Life.CleanUp)
	state := j.State()
	if given.jail != nil {
		state.PID = given.jail.Process.PID
	}
	dir, err := s.Dirs.Add(state)
	if err != nil {
		// If the id is in use, its records belong to another run.
		if e := problem.From(err); e.Code == problem.Usage {
			return res, nil, e
		}
		return res, nil, unbegun(r.records, err)
	}
	var unrecorded *audit.RunFinished
	defer func() {
		if unrecorded != nil {
			// The next daemon puts it on record.
			err = errors.Join(err, dir.Leave(*unrecorded))
			return
		}
		// The caller does not wait for the removal.
		remove := dir.Retire()
		s.Life.CleanUp(func() { s.log(j, "remove the directory of the run", remove()) })
	}()
	if e := runshadow.InUse(s.Shadows, j); e != nil {
		return res, nil, e
	}
	if j.In == nil && j.Req.ID != "" && !j.Holds.Wakes {
		// An earlier run or session may have had the id, under a daemon that was killed.
		s.Shadows.Approvals().SessionEnded(j.Req.ID)
	}
	start, err := announce(r.records, j, given)
	if err != nil {
		return res, nil, err
	}
	s.Meters.Starts.Add(1, given.start())

	var e end
	shadow, err := runshadow.Prepare(runshadow.Options{Store: s.Shadows, Layers: s.Jails.Layers,
		Job: j, Records: r.records, Failed: s.Errors.Failed, CleanUp: s.Life.CleanUp,
		Ahead: s.Jails.Pool != nil})
	if w := shadow.Workspace(); w != nil {
		res.Warnings = append(res.Warnings, w.Warnings()...)
	}
	if err == nil {
		e, err = s.jailed(ctx, r, ready{given, dir, shadow.Workspace(), start}, streams)
		res.Observed = e.observed
	}
	if err == nil {
		res, err = s.conclude(r, res, e, shadow, given.end)
	}
	if err == nil {
		return res, e.pipes, nil
	}

	given.end()
	// The record of the start is before that of the end.
	failed := problem.From(errors.Join(err, start.wait()))
	shadow.Abandon(e.pipes != nil)
	if res.Workspace == "" && s.hasShadow(j) {
		res.Workspace = "kept"
	}
	finished := audit.RunFinished{ExitCode: failed.Exit(), Error: failed.Message,
		Workspace: res.Workspace}
	if err = r.records.Record(finished); err != nil {
		unrecorded = &finished
	}
	return res, e.pipes, errors.Join(failed, err)
}

// hasShadow reports whether the shadow of a run that failed through jail's fault still exists.
func (s *Runner) hasShadow(j *prepare.Job) bool {
	if j.Source == nil || j.In != nil {
		return false
	}
	w, err := s.Shadows.Kept.Get(string(j.ID))
	if err == nil {
		w.Close()
	}
	return err == nil
}

// log logs an error of a task that does not change the result of the run.
func (s *Runner) log(j *prepare.Job, task string, err error) {
	s.Errors.Failed(task, string(j.ID), err)
}
