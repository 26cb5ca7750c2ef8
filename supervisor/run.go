package supervisor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/control"
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
	work *workspace.Workspace
	done chan struct{}

	mu    sync.Mutex
	cause *cause
	proc  *launch.Process
	leaf  *cgroup.Leaf // with proc

	fetch       *fetching        // while there is a proxy
	fetched     Usage            // of fetches, when it has ended
	fetchDenied []runners.Denial // by it

	span    AuditSpan
	result  Result
	met     []LimitHit // the one that ended the run first
	failure string     // what jail-init says went wrong with the module

	refused []control.Refused // system calls, in the order of the last entries of result.Denied
}

// Run runs a tool for a caller and returns when nothing of it is left but what the result says. ctx ends it, as a caller that went away does.
// Errors are in the result, so that there is always one.
func (s *Supervisor) Run(ctx context.Context, c Caller, req Request, streams Streams) Result {
	j, err := s.prepare(ctx, c, req, false)
	if err != nil {
		return s.refuse(c, req, j, err)
	}
	defer j.close()
	r := &run{s: s, job: j, done: make(chan struct{})}
	defer close(r.done)
	r.result = Result{ID: string(j.id), Policy: j.eff.Digest(), Denied: []runners.Denial{}}
	if err = s.track(r); err == nil {
		defer s.untrack(r)
		stop := context.AfterFunc(ctx, func() { r.end(cause{gone: true}) })
		defer stop()
		err = r.whole(ctx, streams)
	}
	if err != nil {
		r.result.Error = AsError(err)
		r.result.ExitCode = r.result.Error.Exit()
	}
	r.result.Audit = r.span
	return r.result
}

// refuse puts a run on record that never started.
func (s *Supervisor) refuse(c Caller, req Request, j *job, err error) Result {
	e := AsError(err)
	res := Result{ID: req.ID, ExitCode: e.Exit(), Error: e, Denied: e.Denied}
	entry := audit.Entry{Run: req.ID, Actor: c.actor()}
	if j != nil {
		defer j.close()
		res.ID, entry.Run = string(j.id), string(j.id)
		if j.resolved {
			res.Policy = j.eff.Digest()
			entry.Policy = res.Policy
		}
	}
	if res.Denied == nil {
		res.Denied = []runners.Denial{}
	}
	for _, d := range res.Denied {
		entry.Event = audit.Denied{Layer: d.Layer, What: d.What, Rule: d.Rule, Count: int64(d.Count)}
		seq, err := s.log.Append(context.Background(), entry)
		if err != nil {
			res.Error = failed(err, "", "audit log: %v", err)
			return res
		}
		res.Audit.add(seq)
	}
	entry.Event = audit.RunFinished{ExitCode: res.ExitCode, Error: e.Message}
	seq, err := s.log.Append(context.Background(), entry)
	if err != nil {
		res.Error = failed(err, "", "audit log: %v", err)
		return res
	}
	res.Audit.add(seq)
	return res
}

func (a *AuditSpan) add(seq uint64) {
	if a.First == 0 {
		a.First = seq
	}
	a.Last = seq
}

// record appends before anything is done that it tells of. What cannot be recorded is not done.
func (r *run) record(e audit.Event) error {
	if r.job.compile {
		return nil // part of the run that waits for it
	}
	entry := audit.Entry{Run: string(r.job.id), Actor: r.job.caller.actor(), Policy: r.job.eff.Digest(), Event: e}
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

// end ends the run from outside, for the first cause that is given.
func (r *run) end(c cause) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cause != nil {
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
	if err := r.record(j.started()); err != nil {
		return err
	}
	err = r.jailed(ctx, streams)
	if err != nil {
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
	pumps, err := newPumps(r.job.plan.Limits.Output,
		func(seen int64) { r.end(cause{limit: "output", peak: seen}) },
		func() { r.end(cause{gone: true}) })
	if err != nil {
		return failed(err, "", "pipes for the tool's streams: %v", err)
	}
	if err := r.startFetch(ctx); err != nil {
		pumps.close()
		return err
	}
	defer r.endFetch() // where nobody has before, what failed is in err
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
	files, err := r.job.files(r.work)
	if err != nil {
		return nil, err
	}
	defer files.close()
	order := control.Order{Plan: r.planFor(), RunDir: r.dir.path}
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
	released := false
	release := func() {
		if !released {
			released = true
			proc.Release()
		}
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
	if err := errors.Join(r.dir.save(), r.identify(proc), r.record(r.job.exec())); err != nil {
		p.close()
		return err
	}
	r.started(proc, leaf)
	// Where jail-init has ended already, its end says why.
	if err := proc.Invoke(r.job.order(), append(r.job.modules(), r.door()...)...); err != nil && r.ended() == nil && !errors.Is(err, syscall.EPIPE) {
		p.close()
		return failed(err, "", "hand over to jail-init: %v", err)
	}
	p.start(streams)
	if r.job.req.Terminal != nil {
		go r.resize(proc, streams.Sizes)
	}
	w := startWatch(r.job.plan, leaf, r.end)
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
	// Nothing may write to the workspace any more when it is looked at.
	err = errors.Join(err, leaf.Kill(killWait))
	p.finish()
	usage, usageErr := leaf.Usage()
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
