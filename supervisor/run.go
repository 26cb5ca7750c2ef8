package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/launch"
	"github.com/jail-sandbox/jail/jail/probe"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/filewatch"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/rundir"
	"github.com/jail-sandbox/jail/supervisor/rungroup"
	"github.com/jail-sandbox/jail/supervisor/runlog"
	"github.com/jail-sandbox/jail/supervisor/stdio"
)

// A run is one run from the moment that it is put on record to the moment that nothing is left of
// it.
type run struct {
	stopper
	s    *Supervisor
	job  *job
	dir  *rundir.Dir
	warm claimed
	work *workspace.Workspace
	done chan struct{}
	// pumps are the tool's streams, once the tool has been let go.
	pumps *stdio.Pipes
	// fetch is nil while there is no fetch proxy.
	fetch   atomic.Pointer[fetching]
	records *runlog.Log
	result  Result
	// failure is what jail-init says went wrong with the module.
	failure string
}

// Run runs a tool for a caller and returns when nothing of it is left but what the result says. ctx
// ends it, as a caller that went away does. Errors are in the result, so that there is always one.
func (s *Supervisor) Run(ctx context.Context, c caller.Caller, req Request,
	streams stdio.Streams) Result {
	j, err := s.prepare(ctx, c, req, false)
	if err != nil {
		return s.refuse(c, req, j, err)
	}
	r := s.newRun(j)
	res := r.carry(ctx, streams)
	r.pumps.Wait()
	return res
}

func (s *Supervisor) newRun(j *job) *run {
	entry := audit.Entry{Run: string(j.id), Session: j.session(), Actor: j.caller.Actor(),
		Policy: j.eff.Digest()}
	warnings := append(reportWarnings(j.eff), j.idleLimits()...)
	if j.in != nil && j.in.run.work != nil {
		warnings = append(warnings, j.in.run.work.Warnings()...)
	}
	return &run{s: s, job: j, done: make(chan struct{}), records: runlog.New(s.log, entry),
		result: Result{ID: string(j.id), Session: j.session(), Policy: j.eff.Digest(),
			Denied: []runners.Denial{}, Warnings: warnings}}
}

// carry does a run that was decided.
func (r *run) carry(ctx context.Context, streams stdio.Streams) Result {
	s := r.s
	defer r.job.close()
	defer close(r.done)
	if h := r.job.hold; h != nil {
		// also where it never stood
		defer s.endSession(string(r.job.id), h)
	}
	err := s.track(r)
	if streams.Tracked != nil {
		streams.Tracked()
	}
	if err == nil {
		defer s.untrack(r)
		stop := context.AfterFunc(ctx, func() { r.end(cause{gone: true}) })
		defer stop()
		err = r.let(ctx, streams)
	}
	defer func() { s.meters.ended(&r.result, time.Since(r.job.begun)) }()
	if err != nil {
		r.result.Error = problem.From(err)
		r.result.ExitCode = r.result.Error.Exit()
	}
	r.result.Audit = r.records.Span()
	return r.result
}

// let does a run when there is room for it.
func (r *run) let(ctx context.Context, streams stdio.Streams) error {
	leave, err := r.admit(ctx)
	if err != nil {
		e := problem.From(err)
		return errors.Join(e, r.records.Record(audit.RunFinished{ExitCode: e.Exit(),
			Error: e.Message}))
	}
	defer leave()
	r.s.meters.queued.Observe(time.Since(r.job.begun))
	return r.whole(ctx, streams)
}

// whole does everything, in order. What it returns is a failure of jail's; the tool's are in the
// result.
func (r *run) whole(ctx context.Context, streams stdio.Streams) (err error) {
	j := r.job
	r.claim(ctx)
	defer func() { r.warm.close(r.s.life.CleanUp) }()
	if r.warm.jail == nil {
		// it saves time and nothing else
		r.s.life.Go(func() { _ = cgroup.Rouse() })
		r.vacate()
	}
	if r.dir, err = r.s.runs.Add(j.state()); err != nil {
		e := problem.From(err)
		// the id is another run's, and so are its records
		if e.Code == problem.Usage {
			return e
		}
		return errors.Join(e, r.records.Record(audit.RunFinished{ExitCode: e.Exit(),
			Error: e.Message}))
	}
	var unrecorded *audit.RunFinished
	defer func() {
		if unrecorded != nil {
			err = errors.Join(err, r.dir.Leave(*unrecorded))
			return
		}
		if rmErr := r.dir.Remove(); err == nil && rmErr != nil {
			err = problem.New(problem.Failed, "run directory: %w", rmErr)
		}
	}()
	if e := r.shadowKept(); e != nil {
		return e
	}
	started := j.started()
	started.Start = r.warm.start()
	if err := r.intend(started); err != nil {
		return err
	}
	if !j.compile {
		r.s.meters.starts.Add(1, started.Start)
	}
	err = r.jailed(ctx, streams)
	if err != nil {
		r.warm.end()
		// its record is before that of its end
		err = errors.Join(err, r.intended())
		e := problem.From(err)
		r.discardUnused()
		r.keptAnyway()
		finished := audit.RunFinished{ExitCode: e.Exit(), Error: e.Message,
			Workspace: r.result.Workspace}
		recErr := r.records.Record(finished)
		if recErr != nil {
			unrecorded = &finished
		}
		return errors.Join(e, recErr)
	}
	return nil
}

func (r *run) jailed(ctx context.Context, streams stdio.Streams) error {
	if err := r.prepareWorkspace(); err != nil {
		return err
	}
	pumps, err := r.newPipes()
	if err != nil {
		return problem.New(problem.Failed, "pipes for the tool's streams: %w", err)
	}
	if err := r.startFetch(ctx); err != nil {
		pumps.Close()
		return err
	}
	// Where nobody has ended the proxy before, what failed is in err.
	defer func() { _, _ = r.endFetch() }()
	if err := r.makeGroup(); err != nil {
		pumps.Close()
		return err
	}
	defer r.dropGroup()
	// else it has the one that it waited in
	if r.warm.jail == nil {
		if err := cgroup.MakeCeiling(r.job.plan); err != nil {
			pumps.Close()
			return r.s.layers.Failed("control groups", fmt.Errorf("the ceiling's control group: %w",
				err))
		}
		// One that stays is empty.
		defer func() {
			r.log("remove the control group of the run",
				cgroup.RemoveCeiling(r.job.plan))
		}()
	}
	proc, err := r.launch(ctx, pumps)
	pumps.HandOver()
	if err != nil {
		err = pumps.Explain(err)
		pumps.Close()
	} else {
		err = r.supervise(proc, pumps, streams)
	}
	if err != nil {
		// The shim takes the control group away, unless it was killed, at whatever step.
		err = errors.Join(err, rungroup.Clear(r.job.plan.Cgroup.Path))
	}
	return err
}

func (r *run) launch(ctx context.Context, p *stdio.Pipes) (*launch.Process, error) {
	// else it is jail-init that finds out
	if e := problem.Missing(probe.Landlock(), nil); e != nil {
		return nil, e
	}
	if r.warm.jail != nil {
		return r.attach()
	}
	files, shared, err := r.launchFiles()
	if err != nil {
		return nil, err
	}
	defer files.Close()
	order := control.Order{Plan: r.planFor(), RunDir: r.dir.Path, Shared: shared}
	proc, err := r.s.launcher.Start(ctx, order, p.Jail(), files.Files)
	if layer := (*launch.LayerError)(nil); errors.As(err, &layer) {
		return nil, r.s.layers.Missing(layer.Layer, layer.Reason, err)
	}
	if err != nil && r.ended() == nil {
		return nil, notStarted(err)
	}
	return proc, err
}

// supervise lets the tool run and sees it to its end.
func (r *run) supervise(proc *launch.Process, p *stdio.Pipes, streams stdio.Streams) error {
	// one that waited is taken away behind the answer, or by who needs it gone
	release := func() {}
	if r.warm.jail == nil {
		release = sync.OnceFunc(proc.Release)
	}
	defer release()
	leaf, err := cgroup.Open(r.job.plan.Cgroup.Path)
	if err != nil {
		p.Close()
		return r.s.layers.Failed("control groups", err)
	}
	if err := r.limitIO(leaf); err != nil {
		p.Close()
		return err
	}
	r.dir.State.PID = proc.PID
	if err := errors.Join(r.dir.Save(), r.identify(proc)); err != nil {
		p.Close()
		return err
	}
	learner, recorder, err := r.watchFiles(proc)
	if err != nil {
		p.Close()
		return err
	}
	// Both are closed again, with their results, once the jail has ended. Here they are closed for
	// a run that fails before.
	defer func() {
		_ = recorder.Close()
		if seen, _ := learner.Close(r.job.tool.imports); seen != nil {
			r.result.Observed = seen
		}
	}()
	landlock := r.follow(proc)
	defer func() {
		if landlock != nil {
			landlock.Drop()
		}
	}()
	r.started(proc, leaf)
	if err := r.recordExec(); err != nil {
		p.Close()
		return err
	}
	if err := r.invoke(proc); err != nil {
		p.Close()
		return err
	}
	over := func(seen int64) { r.end(cause{limit: "output", peak: seen}) }
	gone := func() { r.end(cause{gone: true}) }
	p.Start(streams, r.job.plan.Limits.Output, over, gone)
	r.pumps = p
	if r.job.req.Terminal != nil {
		go r.resize(proc, streams.Sizes)
	}
	w := startWatch(r.job.plan, leaf, r.endByLimit)
	stopDisk := r.watchDisk()
	r.running(streams)
	answer := make(chan runners.Answer, 1)
	go func() {
		var a runners.Answer
		// a jail that was killed says nothing; its exit does
		_ = proc.Report(&a)
		answer <- a
	}()
	status, err := proc.Wait()
	calls := proc.Refused()
	wall := time.Since(w.start)
	w.Stop()
	stopDisk()
	r.endInvocations()
	// Nothing may write to the workspace any more when it is looked at.
	err = errors.Join(err, leaf.Kill(rungroup.KillWait))
	p.Finish()
	usage, usageErr := r.usageOf(leaf)
	observed, learnErr := learner.Close(r.job.tool.imports)
	r.result.Observed = observed
	err = errors.Join(err, learnErr, recorder.Close())
	// What jail-init said lies in its socket, and a release would throw it away. Nobody is left who
	// could say more, so the reader comes to an end, however long a busy machine lets it wait.
	err = errors.Join(err, proc.EndReport())
	said := <-answer
	release()
	if err = errors.Join(err, usageErr); err != nil {
		return problem.New(problem.Failed, "end of the jail: %w", err)
	}
	fetched, err := r.endFetch()
	if err != nil {
		return err
	}
	told := endFollowing(landlock, r.job.plan)
	landlock = nil
	if told.atLeast {
		r.result.Warnings = append(r.result.Warnings,
			"the kernel dropped some of what it tells of refused paths: there may be more of them than denied says")
	}
	told.addCalls(r.job.plan, calls)
	return r.finish(end{status, usage, wall, checkAnswer(said), p, fetched, told})
}

// An end is everything that is known of how a run ended.
type end struct {
	status  control.Exited
	usage   cgroup.Usage
	wall    time.Duration
	answer  runners.Answer
	pumps   *stdio.Pipes
	fetched fetched
	told    kernelDenials
}

// track makes the run one that others can end. An id that is in use here stays the earlier run's.
func (s *Supervisor) track(r *run) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := string(r.job.id)
	if s.active[id] != nil {
		return rundir.InUse(id, fs.ErrExist)
	}
	s.active[id] = r
	return nil
}

func (s *Supervisor) untrack(r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.active, string(r.job.id))
}

// watchFiles starts to learn from what the jail does with files and to record it, as the request
// and the policy ask. A run that is to be watched is watched, or does not start. Both may be nil.
func (r *run) watchFiles(proc *launch.Process) (*filewatch.Learner, *filewatch.Recorder, error) {
	var learner *filewatch.Learner
	var err error
	if r.job.compile {
		return nil, nil, nil
	}
	if r.job.req.Learn {
		if learner, err = filewatch.Learn(proc.PID); err != nil {
			return nil, nil, r.s.layers.Missing("file events", err.Error(), err)
		}
	}
	files := r.job.eff.Policy().Audit.Files
	if files == policy.FilesNone {
		return learner, nil, nil
	}
	fail := func() { r.end(cause{gone: true}) }
	recorder, err := filewatch.Record(proc.PID, files, r.records.RecordAll, fail)
	if err != nil {
		_, _ = learner.Close(nil)
		return nil, nil, err
	}
	return learner, recorder, nil
}

// admit waits until the run may start. The jail of a session counts with its memory only, and an
// invocation counts as a run without memory, so an idle session takes no place.
func (r *run) admit(ctx context.Context) (leave func(), err error) {
	runs, memory := 1, r.job.eff.Policy().Limits.Memory
	switch {
	case r.job.hold != nil:
		runs = 0
	case r.job.in != nil:
		memory = 0
	}
	return r.s.queue.Enter(ctx, r.job.caller.UID, runs, memory)
}
