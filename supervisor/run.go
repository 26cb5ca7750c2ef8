package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/denials"
	"github.com/jail-sandbox/jail/jail/launch"
	"github.com/jail-sandbox/jail/jail/probe"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/admission"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/config"
	"github.com/jail-sandbox/jail/supervisor/ending"
	"github.com/jail-sandbox/jail/supervisor/filewatch"
	"github.com/jail-sandbox/jail/supervisor/hostlayers"
	"github.com/jail-sandbox/jail/supervisor/lifetime"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/meters"
	"github.com/jail-sandbox/jail/supervisor/mounts"
	"github.com/jail-sandbox/jail/supervisor/prepare"
	"github.com/jail-sandbox/jail/supervisor/prewarm"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/rundir"
	"github.com/jail-sandbox/jail/supervisor/rungroup"
	"github.com/jail-sandbox/jail/supervisor/runlog"
	"github.com/jail-sandbox/jail/supervisor/runproxy"
	"github.com/jail-sandbox/jail/supervisor/runshadow"
	"github.com/jail-sandbox/jail/supervisor/shadows"
	"github.com/jail-sandbox/jail/supervisor/stdio"
)

// A run is one run from the moment that it is put on record to the moment that nothing is left of
// it.
type run struct {
	ending.Stopper
	s   *runner
	job *prepare.Job
	// session is the one that the run holds open or is an invocation of, or nil.
	session *session
	dir     *rundir.Dir
	warm    claimed
	work    *runshadow.Shadow
	done    chan struct{}
	// pumps are the tool's streams, once the tool has been let go.
	pumps *stdio.Pipes
	// proxy is nil while there is no fetch proxy.
	proxy   atomic.Pointer[runproxy.Proxy]
	records *runlog.Log
	result  message.Result
}

// A runner carries out jobs.
type runner struct {
	jailer
	config     config.Config
	life       *lifetime.Lifetime
	log        runlog.Appender
	meters     *meters.Meters
	queue      *admission.Queue
	preparer   *prepare.Preparer
	workspaces *shadows.Store
	runs       *rundir.Store
	active     active
}

// A jailer is what jails are made with.
type jailer struct {
	launcher launch.Launcher
	layers   hostlayers.Host
	proxies  *runproxy.Host
	// pool is nil where no jails are prewarmed.
	pool *prewarm.Pool
	// refusals is nil where nobody tells what Landlock refuses.
	refusals *denials.Watcher
}

func newRunner(c config.Config) *runner {
	l := launch.Launcher{Shim: c.Shim, Init: c.Init}
	layers := hostlayers.Host{StateDir: c.StateDir, Slice: c.Slice}
	return &runner{config: c, life: lifetime.New(), queue: admission.New(c.Bounds),
		jailer: jailer{launcher: l, layers: layers,
			proxies: &runproxy.Host{Launcher: l, Layers: layers, Exe: c.Exe,
				Settings: c.Fetch}}}
}

// active are the runs and sessions that are alive. Its methods may be called from several
// goroutines.
type active struct {
	mu   sync.Mutex
	runs map[string]*run
}

// add makes the run one that others can end. An id that is in use here stays the earlier run's.
func (a *active) add(r *run) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := string(r.job.ID)
	if a.runs[id] != nil {
		return rundir.InUse(id, fs.ErrExist)
	}
	if a.runs == nil {
		a.runs = map[string]*run{}
	}
	a.runs[id] = r
	return nil
}

func (a *active) remove(r *run) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.runs, string(r.job.ID))
}

// get returns the run of an id, or nil.
func (a *active) get(id string) *run {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.runs[id]
}

func (a *active) all() []*run {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Values(a.runs))
}

// Run runs a tool for a caller and returns when nothing of it is left but what the result says. ctx
// ends it, as a caller that went away does. Errors are in the result, so that there is always one.
func (s *runner) Run(ctx context.Context, c caller.Caller, req message.Request,
	streams stdio.Streams) message.Result {
	j, err := s.preparer.Run(ctx, c, req)
	if err != nil {
		return s.refuse(c, req, j, err)
	}
	r := s.newRun(j, nil)
	res := r.carry(ctx, streams)
	r.pumps.Wait()
	return res
}

func (s *runner) newRun(j *prepare.Job, h *session) *run {
	entry := audit.Entry{Run: string(j.ID), Session: j.Session(), Actor: j.Caller.Actor(),
		Policy: j.Policy.Digest()}
	warnings := j.Warnings()
	if j.In != nil && h.run.work != nil {
		warnings = append(warnings, h.run.work.Workspace().Warnings()...)
	}
	return &run{s: s, job: j, session: h, done: make(chan struct{}),
		records: runlog.New(s.log, entry),
		result: message.Result{ID: string(j.ID), Session: j.Session(), Policy: j.Policy.Digest(),
			Denied: []runners.Denial{}, Warnings: warnings}}
}

// carry does a run that was decided.
func (r *run) carry(ctx context.Context, streams stdio.Streams) message.Result {
	s := r.s
	defer r.job.Close()
	defer close(r.done)
	if r.job.Holds > 0 {
		// also where it never stood
		defer r.session.drop()
	}
	err := s.active.add(r)
	if streams.Tracked != nil {
		streams.Tracked()
	}
	if err == nil {
		defer s.active.remove(r)
		stop := context.AfterFunc(ctx, func() { r.End(ending.Cause{Gone: true}) })
		defer stop()
		err = r.let(ctx, streams)
	}
	defer func() { s.meters.Ended(&r.result, time.Since(r.job.Begun)) }()
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
	r.s.meters.Queued.Observe(time.Since(r.job.Begun))
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
		// Beside the run there must be no prewarmed jails of its session.
		if j.In != nil {
			r.s.pool.Vacate(r.session.prewarmed, r.s.life.CleanUp)
		}
	}
	state := j.State()
	if r.warm.jail != nil {
		state.PID = r.warm.jail.Process.PID
	}
	if r.dir, err = r.s.runs.Add(state); err != nil {
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
		// The caller does not wait for the removal.
		remove := r.dir.Retire()
		r.s.life.CleanUp(func() { r.log("remove the directory of the run", remove()) })
	}()
	if e := runshadow.InUse(r.s.workspaces, j); e != nil {
		return e
	}
	started := j.Started()
	started.Start = r.warm.start()
	if err := r.intend(started); err != nil {
		return err
	}
	if !j.Compile {
		r.s.meters.Starts.Add(1, started.Start)
	}
	err = r.jailed(ctx, streams)
	if err != nil {
		r.warm.end()
		// its record is before that of its end
		err = errors.Join(err, r.intended())
		e := problem.From(err)
		r.work.Abandon(r.pumps != nil)
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
	var err error
	r.work, err = runshadow.Prepare(runshadow.Options{Store: r.s.workspaces, Layers: r.s.layers,
		Job: r.job, Records: r.records, Failed: r.s.config.Log.Failed, CleanUp: r.s.life.CleanUp,
		Ahead: r.s.pool != nil})
	if w := r.work.Workspace(); w != nil {
		r.result.Warnings = append(r.result.Warnings, w.Warnings()...)
	}
	if err != nil {
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
	defer func() { _, _, _ = r.proxy.Swap(nil).Close() }()
	if err := r.makeGroup(); err != nil {
		pumps.Close()
		return err
	}
	defer r.dropGroup()
	// else it has the one that it waited in
	if r.warm.jail == nil {
		if err := cgroup.MakeCeiling(r.job.Plan); err != nil {
			pumps.Close()
			return r.s.layers.Failed("control groups", fmt.Errorf("the ceiling's control group: %w",
				err))
		}
		// One that stays is empty.
		defer func() {
			r.log("remove the control group of the run",
				cgroup.RemoveCeiling(r.job.Plan))
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
		err = errors.Join(err, rungroup.Clear(r.job.Plan.Cgroup.Path))
	}
	return err
}

// startFetch starts the run's proxy, where the policy grants any fetch.
func (r *run) startFetch(ctx context.Context) error {
	j := r.job
	if j.Compile || j.Holds > 0 || j.Plan.Fetch == nil {
		return nil
	}
	spec := runproxy.Spec{Policy: j.Policy, Intercept: j.Tool.Native != "",
		Cgroup: j.Plan.Cgroup.Path, Records: r.records,
		Fail: func() { r.End(ending.Cause{Gone: true}) }}
	if j.Script != nil {
		spec.Scopes = j.Script.Scopes
	}
	proxy, err := r.s.proxies.Start(ctx, spec)
	if err == nil {
		r.proxy.Store(proxy)
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
	order := control.Order{Plan: planFor(r.job.Plan, r.proxy.Load()), RunDir: r.dir.Path,
		Shared: shared}
	proc, err := r.s.launcher.Start(ctx, order, p.Jail(), files.Files)
	if layer := (*launch.LayerError)(nil); errors.As(err, &layer) {
		return nil, r.s.layers.Missing(layer.Layer, layer.Reason, err)
	}
	if err != nil && r.Ended() == nil {
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
	leaf, err := cgroup.Open(r.job.Plan.Cgroup.Path)
	if err != nil {
		p.Close()
		return r.s.layers.Failed("control groups", err)
	}
	defer leaf.Close()
	if err := r.limitIO(leaf); err != nil {
		p.Close()
		return err
	}
	identified := r.identifying(proc)
	// A directory that is being removed gets no more files.
	defer func() { _ = identified() }()
	learner, recorder, err := r.watchFiles(proc)
	if err != nil {
		p.Close()
		return err
	}
	// Both are closed again, with their results, once the jail has ended. Here they are closed for
	// a run that fails before.
	defer func() {
		_ = recorder.Close()
		if seen, _ := learner.Close(r.job.Tool.Imports); seen != nil {
			r.result.Observed = seen
		}
	}()
	landlock := r.follow(proc)
	defer func() {
		if landlock != nil {
			landlock.Drop()
		}
	}()
	r.Started(proc, leaf)
	if err := r.recordExec(); err != nil {
		p.Close()
		return err
	}
	if err := r.invoke(proc); err != nil {
		p.Close()
		return err
	}
	over := func(seen int64) { r.End(ending.Cause{Limit: "output", Peak: seen}) }
	gone := func() { r.End(ending.Cause{Gone: true}) }
	p.Start(streams, r.job.Plan.Limits.Output, over, gone)
	r.pumps = p
	if r.job.Req.Terminal != nil {
		go resize(proc, streams.Sizes, r.done)
	}
	w := ending.StartWatch(r.job.Plan, leaf, r.endByLimit)
	stopDisk := watchDisk(r.work.Workspace(), r.End)
	// Who is told that the tool runs may ask for its jail at once.
	unidentified := identified()
	if unidentified != nil {
		gone()
	}
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
	wall := time.Since(w.Start)
	w.Stop()
	stopDisk()
	r.endInvocations()
	// Nothing may write to the workspace any more when it is looked at.
	err = errors.Join(err, unidentified, leaf.Kill(rungroup.KillWait))
	p.Finish()
	usage, usageErr := r.usageOf(leaf)
	observed, learnErr := learner.Close(r.job.Tool.Imports)
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
	fetched, unfetched, err := r.proxy.Swap(nil).Close()
	if err != nil {
		return err
	}
	told := endFollowing(landlock, r.job.Plan)
	landlock = nil
	if told.atLeast {
		r.result.Warnings = append(r.result.Warnings,
			"the kernel dropped some of what it tells of refused paths: there may be more of them than denied says")
	}
	told.addCalls(r.job.Plan, calls)
	return r.finish(end{status, usage, wall, checkAnswer(said), p, fetched, unfetched,
		told})
}

// An end is everything that is known of how a run ended.
type end struct {
	status control.Exited
	usage  cgroup.Usage
	wall   time.Duration
	answer runners.Answer
	pumps  *stdio.Pipes
	// fetched has the fields of fetches, unfetched what the proxy refused.
	fetched   message.Usage
	unfetched []runners.Denial
	told      kernelDenials
}

// watchFiles starts to learn from what the jail does with files and to record it, as the request
// and the policy ask. A run that is to be watched is watched, or does not start. Both may be nil.
func (r *run) watchFiles(proc *launch.Process) (*filewatch.Learner, *filewatch.Recorder, error) {
	var learner *filewatch.Learner
	var err error
	if r.job.Compile {
		return nil, nil, nil
	}
	if r.job.Req.Learn {
		if learner, err = filewatch.Learn(proc.PID); err != nil {
			return nil, nil, r.s.layers.Missing("file events", err.Error(), err)
		}
	}
	files := r.job.Policy.Policy().Audit.Files
	if files == policy.FilesNone {
		return learner, nil, nil
	}
	fail := func() { r.End(ending.Cause{Gone: true}) }
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
	runs, memory := 1, r.job.Policy.Policy().Limits.Memory
	switch {
	case r.job.Holds > 0:
		runs = 0
	case r.job.In != nil:
		memory = 0
	}
	return r.s.queue.Enter(ctx, r.job.Caller.UID, runs, memory)
}

// filesOf opens the descriptors of one launch.
func (s *runner) filesOf(j *prepare.Job, w *workspace.Workspace) (*mounts.Files, error) {
	files := &mounts.Files{}
	files.Binds = j.Binds
	if j.Source == nil {
		return files, nil
	}
	var err error
	if w == nil {
		files.Lower, err = workspace.CloneLower(j.Source)
	} else if files.Lower, err = w.Lower(); err == nil {
		files.Own(files.Lower)
		files.Upper, err = w.Upper()
	}
	if err != nil {
		files.Close()
		return nil, s.layers.Failed("shadow workspaces", err)
	}
	if w == nil {
		files.Own(files.Lower)
	} else {
		files.Own(files.Upper)
	}
	return files, nil
}

// planFor is the plan with what is known only when the run's proxy stands. proxy may be nil.
func planFor(p jail.Plan, proxy *runproxy.Proxy) jail.Plan {
	if proxy == nil {
		return p
	}
	p.Files = slices.Clone(p.Files)
	for i := range p.Files {
		if p.Files[i].Path == jail.AuthorityFile {
			p.Files[i].Text = proxy.Authority()
		}
	}
	return p
}

// resize tells the jail's terminal what becomes of the caller's.
func resize(p *launch.Process, sizes <-chan runners.Terminal, done <-chan struct{}) {
	for {
		select {
		case size, ok := <-sizes:
			if !ok || p.Invoke(size) != nil {
				return
			}
		case <-done:
			return
		}
	}
}
