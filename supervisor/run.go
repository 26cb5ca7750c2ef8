package supervisor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/denials"
	"github.com/jail-sandbox/jail/jail/launch"
	"github.com/jail-sandbox/jail/jail/probe"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/audit"
)

// A run is one run from the moment that it is put on record to the moment that nothing is left of it.
type run struct {
	s    *Supervisor
	job  *job
	dir  *runDir
	warm *warmJail    // the jail that waited for it, nil where it gets a new one
	lone func()       // waits until nothing else of its session waits, with warm
	goes func() error // waits until it is on record that the run starts, where that is written meanwhile
	work *workspace.Workspace
	done chan struct{}

	mu    sync.Mutex
	cause *cause
	proc  *launch.Process
	leaf  *cgroup.Leaf // with proc
	pumps *pumps       // once the tool has been let go

	observing *observing // while it is to be learnt from
	watched   *fileWatch // while what it does with files is put on record

	fetch       *fetching        // while there is a proxy
	fetched     Usage            // of fetches, when it has ended
	fetchDenied []runners.Denial // by it

	span    AuditSpan
	result  Result
	met     []LimitHit // the one that ended the run first
	failure string     // what jail-init says went wrong with the module

	followed *denials.Jail     // while what Landlock refuses is collected
	refused  []control.Refused // system calls
	told     []toldDenial      // by the kernel, as the last entries of result.Denied
	atLeast  bool              // the kernel dropped some of what it tells
}

// Run runs a tool for a caller and returns when nothing of it is left but what the result says. ctx ends it, as a caller that went away does.
// Errors are in the result, so that there is always one.
func (s *Supervisor) Run(ctx context.Context, c Caller, req Request, streams Streams) Result {
	j, err := s.prepare(ctx, c, req, false)
	if err != nil {
		return s.refuse(c, req, j, err)
	}
	r := s.newRun(j)
	res := r.carry(ctx, streams)
	r.given()
	return res
}

func (s *Supervisor) newRun(j *job) *run {
	return &run{s: s, job: j, done: make(chan struct{}),
		result: Result{ID: string(j.id), Session: j.session(), Policy: j.eff.Digest(), Denied: []runners.Denial{}, Warnings: append(reportWarnings(j.eff), j.idleLimits()...)}}
}

// carry does a run that was decided.
func (r *run) carry(ctx context.Context, streams Streams) Result {
	s := r.s
	defer r.job.close()
	defer close(r.done)
	if h := r.job.hold; h != nil {
		defer s.endSession(string(r.job.id), h) // also where it never stood
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
		r.result.Error = AsError(err)
		r.result.ExitCode = r.result.Error.Exit()
	}
	r.result.Audit = r.span
	return r.result
}

// let does a run when there is room for it.
func (r *run) let(ctx context.Context, streams Streams) error {
	leave, err := r.admit(ctx)
	if err != nil {
		e := AsError(err)
		return errors.Join(e, r.record(audit.RunFinished{ExitCode: e.Exit(), Error: e.Message}))
	}
	defer leave()
	r.s.meters.queued.Observe(time.Since(r.job.begun))
	return r.whole(ctx, streams)
}

// record appends before anything is done that it tells of. What cannot be recorded is not done.
func (r *run) record(e audit.Event) error {
	if r.job.compile {
		return nil // part of the run that waits for it
	}
	entry := audit.Entry{Run: string(r.job.id), Session: r.job.session(), Actor: r.job.caller.actor(), Policy: r.job.eff.Digest(), Event: e}
	// Not the caller's context: the end of a run is recorded also when its caller has gone.
	seq, err := r.s.log.Append(context.Background(), entry)
	if err != nil {
		return failed(err, "make room for the log; nothing runs without it", "audit log: %v", err)
	}
	r.note(seq)
	return nil
}

// note takes a record into the run's span; the fetch proxy's are written beside the run's own.
func (r *run) note(seq uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.span.add(seq)
}

// end ends the run from outside, for the first cause that is given. A jail that has ended by itself is
// ended by a limit alone, since what it wrote is counted when it is read.
func (r *run) end(c cause) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cause != nil || c.limit == "" && r.proc != nil && r.proc.Ended() {
		return
	}
	r.cause = &c
	r.kill()
}

// kill ends all of the jail's processes at once, if there is one: many that all want a CPU would let the first wait for its turn to die.
func (r *run) kill() {
	if r.proc != nil {
		_ = errors.Join(r.proc.Kill(), r.leaf.KillAtOnce()) // it may have ended by itself
	}
}

func (r *run) ended() *cause {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cause
}

// started notes the jail, and ends it at once if the run was ended meanwhile.
func (r *run) started(p *launch.Process, leaf *cgroup.Leaf) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.proc, r.leaf = p, leaf
	if r.cause != nil {
		r.kill()
	}
}

// whole does everything, in order. What it returns is a failure of jail's; the tool's are in the result.
func (r *run) whole(ctx context.Context, streams Streams) (err error) {
	j := r.job
	r.claim()
	defer r.endWarm()
	if r.warm == nil {
		r.s.later(func() { _ = cgroup.Rouse() }) // it saves time and nothing else
		r.alone()
	}
	if r.dir, err = r.s.runs.add(j.state()); err != nil {
		e := AsError(err)
		if e.Code == CodeUsage { // the id is another run's, and so are its records
			return e
		}
		return errors.Join(e, r.record(audit.RunFinished{ExitCode: e.Exit(), Error: e.Message}))
	}
	defer func() {
		if rmErr := r.dir.remove(); err == nil && rmErr != nil {
			err = failed(rmErr, "", "run directory: %v", rmErr)
		}
	}()
	if e := r.shadowKept(); e != nil {
		return e
	}
	started := j.started()
	started.Start = r.start()
	if err := r.intend(started); err != nil {
		return err
	}
	if !j.compile {
		r.s.meters.starts.Add(1, started.Start)
	}
	err = r.jailed(ctx, streams)
	if err != nil {
		r.takeAway()
		err = errors.Join(err, r.intended()) // its record is before that of its end
		e := AsError(err)
		r.discardUnused()
		r.keptAnyway()
		finished := audit.RunFinished{ExitCode: e.Exit(), Error: e.Message, Workspace: r.result.Workspace}
		return errors.Join(e, r.record(finished))
	}
	return nil
}

func (r *run) jailed(ctx context.Context, streams Streams) error {
	if err := r.prepareWorkspace(); err != nil {
		return err
	}
	pumps, err := r.newPumps()
	if err != nil {
		return failed(err, "", "pipes for the tool's streams: %v", err)
	}
	if err := r.startFetch(ctx); err != nil {
		pumps.close()
		return err
	}
	defer r.endFetch() // where nobody has before, what failed is in err
	if err := r.makeGroup(); err != nil {
		pumps.close()
		return err
	}
	defer r.dropGroup()
	if r.warm == nil { // else it has the one that it waited in
		if err := cgroup.MakeCeiling(r.job.plan); err != nil {
			pumps.close()
			return failed(err, "", "the ceiling's control group: %v", err)
		}
		defer func() { _ = cgroup.RemoveCeiling(r.job.plan) }() // one that stays is empty
	}
	proc, err := r.launch(ctx, pumps)
	pumps.handOver()
	if err != nil {
		pumps.close()
		return err
	}
	if err = r.supervise(proc, pumps, streams); err != nil {
		// The shim takes the control group away, unless it was killed.
		err = errors.Join(err, clearCgroup(r.job.plan.Cgroup.Path))
	}
	return err
}

func (r *run) launch(ctx context.Context, p *pumps) (*launch.Process, error) {
	if e := Missing(probe.Landlock(), nil); e != nil { // else it is jail-init that finds out
		return nil, e
	}
	if r.warm != nil {
		return r.takeWarm()
	}
	files, shared, err := r.launchFiles()
	if err != nil {
		return nil, err
	}
	defer files.close()
	order := control.Order{Plan: r.planFor(), RunDir: r.dir.path, Shared: shared}
	stdio := launch.Stdio{In: p.jail[0], Out: p.jail[1], Err: p.jail[2]}
	proc, err := r.s.launcher.Start(ctx, order, stdio, files.Files)
	if layer := (*launch.LayerError)(nil); errors.As(err, &layer) {
		return nil, r.s.missingLayer(layer.Layer, layer.Reason, err)
	}
	if err != nil && r.ended() == nil {
		return nil, failed(err, "", "start of the jail: %v", err)
	}
	return proc, err
}

// supervise lets the tool run and sees it to its end.
func (r *run) supervise(proc *launch.Process, p *pumps, streams Streams) error {
	release := func() {} // one that waited is taken away behind the answer, or by who needs it gone
	if r.warm == nil {
		release = sync.OnceFunc(proc.Release)
	}
	defer release()
	leaf, err := cgroup.Open(r.job.plan.Cgroup.Path)
	if err != nil {
		p.close()
		return failed(err, "", "%v", err)
	}
	if err := r.limitIO(leaf); err != nil {
		p.close()
		return err
	}
	r.dir.state.PID = proc.PID
	if err := errors.Join(r.dir.save(), r.identify(proc)); err != nil {
		p.close()
		return err
	}
	if err := r.observe(proc); err != nil {
		p.close()
		return err
	}
	defer r.endObserving() // where nobody has before, what failed is in err
	if err := r.watchFiles(proc); err != nil {
		p.close()
		return err
	}
	defer r.endFiles() // as above
	r.follow(proc)
	defer r.dropFollowed()
	r.started(proc, leaf)
	if err := r.recordExec(); err != nil {
		p.close()
		return err
	}
	if err := r.invoke(proc); err != nil {
		p.close()
		return err
	}
	p.start(streams)
	r.pumps = p
	if r.job.req.Terminal != nil {
		go r.resize(proc, streams.Sizes)
	}
	w := startWatch(r.job.plan, leaf, r.endByLimit)
	r.running(streams)
	answer := make(chan runners.Answer, 1)
	go func() {
		var a runners.Answer
		_ = proc.Report(&a) // a jail that was killed says nothing; its exit does
		answer <- a
	}()
	status, err := proc.Wait()
	r.refused = proc.Refused()
	wall := time.Since(w.start)
	w.Stop()
	r.endInvocations()
	// Nothing may write to the workspace any more when it is looked at.
	err = errors.Join(err, leaf.Kill(killWait))
	p.finish()
	usage, usageErr := r.usageOf(leaf)
	err = errors.Join(err, r.endObserving(), r.endFiles())
	// What jail-init said lies in its socket, and a release would throw it away. The socket has an end, since nobody else has it any more.
	var said runners.Answer
	select {
	case said = <-answer:
		release()
	case <-time.After(killWait):
		release()
		said = <-answer
	}
	if err = errors.Join(err, usageErr); err != nil {
		return failed(err, "", "end of the jail: %v", err)
	}
	if err := r.endFetch(); err != nil {
		return err
	}
	r.endFollowing()
	return r.finish(end{status, usage, wall, checkAnswer(said), p})
}

// An end is everything that is known of how a run ended.
type end struct {
	status control.Exited
	usage  cgroup.Usage
	wall   time.Duration
	answer runners.Answer
	pumps  *pumps
}

// track makes the run one that others can end. An id that is in use here stays the earlier run's.
func (s *Supervisor) track(r *run) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := string(r.job.id)
	if s.active[id] != nil {
		return inUse(id, fs.ErrExist)
	}
	s.active[id] = r
	return nil
}

func (s *Supervisor) untrack(r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.active, string(r.job.id))
}

// openFiles are descriptors that a launch hands over and then closes.
type openFiles struct {
	launch.Files
	own []*os.File
}

func (f *openFiles) close() {
	for _, file := range f.own {
		file.Close()
	}
}
