package run

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/denials"
	"github.com/jail-sandbox/jail/jail/launch"
	"github.com/jail-sandbox/jail/jail/tick"
	"github.com/jail-sandbox/jail/jail/verify"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/learn"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/ending"
	"github.com/jail-sandbox/jail/supervisor/filewatch"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/prepare"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/rundir"
	"github.com/jail-sandbox/jail/supervisor/rungroup"
	"github.com/jail-sandbox/jail/supervisor/stdio"
)

// An end is what is known of how the jail of a run ended.
type end struct {
	status control.Exited
	usage  cgroup.Usage
	wall   time.Duration
	answer runners.Answer
	// pipes are the tool's streams, nil before the tool starts.
	pipes *stdio.Pipes
	// observed is what the run needed, if the request asks to learn.
	observed *learn.Observed
	// fetched has only the usage of fetches. unfetched are the refusals of the proxy.
	fetched   message.Usage
	unfetched []runners.Denial
	// waits is the error if a request of the run still waits for an approval, or nil.
	waits error
	told  kernelDenials
}

// supervise starts the tool, watches the jail and returns how it ended.
func (s *Runner) supervise(r *Run, has ready, proc *launch.Process, p *stdio.Pipes,
	streams stdio.Streams) (e end, err error) {
	j := r.job
	// A prewarmed jail is removed later, by claimed.close or claimed.end.
	release := func() {}
	if has.jail == nil {
		release = sync.OnceFunc(proc.Release)
	}
	defer release()
	leaf, err := cgroup.Open(j.Plan.Cgroup.Path)
	if err != nil {
		return e, s.Jails.Layers.Failed("control groups", err)
	}
	defer leaf.Close()
	if err := limitIO(s.Jails.Layers.StateDir, j, r.shadow(has.work), leaf); err != nil {
		return e, err
	}
	identified := identifying(has, j, proc)
	// Wait, so that no file is written to a directory that is being removed.
	defer func() { _ = identified() }()
	seen, err := s.observe(r, proc)
	if err != nil {
		return e, err
	}
	defer func() {
		if learned := seen.drop(j); learned != nil {
			e.observed = learned
		}
	}()
	r.Started(proc, leaf)
	r.paused.open(j, has.work)
	// The later steps use the shadow alone.
	defer r.paused.close()
	if err := has.start.execute(r.records, j); err != nil {
		return e, err
	}
	if err := s.invoke(r, has.claimed, proc, streams); err != nil {
		return e, err
	}
	if j.Host.Agent != nil {
		p.Messages()
	}
	p.Start(streams, j.Plan.Limits.Output, r.over, r.gone)
	s.active.start(r)
	e.pipes = p
	if j.Req.Terminal != nil {
		go resize(proc, streams.Sizes, r.done)
	}
	var ask func(ending.Cause)
	if j.Tool.Native != "" {
		ask = r.Ask
	}
	w := ending.StartWatch(j.Plan, leaf, &r.proxy.pauses, r.endByLimit, ask)
	stopDisk := watchDisk(has.work, r.End)
	// A caller may look at the jail as soon as it knows that the tool runs.
	unidentified := identified()
	if unidentified != nil {
		r.gone()
	}
	if r.holder != nil {
		r.holder.Stands(has.dir.State, has.work)
	}
	if streams.Started != nil {
		streams.Started()
	}
	answer := make(chan runners.Answer, 1)
	go func() {
		var a runners.Answer
		// A killed jail reports nothing; its exit status is enough.
		_ = proc.Report(&a)
		answer <- a
	}()

	e.status, err = proc.Wait()
	calls := proc.Refused()
	e.wall = time.Since(w.Start)
	w.Stop()
	stopDisk()
	if r.holder != nil {
		r.holder.Ended(r.Ended())
	}
	// Nothing may write to the workspace when it is reviewed.
	err = errors.Join(err, unidentified, leaf.Kill(rungroup.KillWait))
	p.Finish()
	var usageErr, seenErr error
	e.usage, usageErr = usageOf(j, leaf)
	e.observed, seenErr = seen.end(j)
	// The report of jail-init waits in its socket, and release would lose it. All writers have
	// ended, so the reader ends too, even on a busy machine.
	err = errors.Join(err, seenErr, proc.EndReport())
	e.answer = checkAnswer(<-answer)
	release()
	if err = errors.Join(err, usageErr); err != nil {
		return e, problem.New(problem.Failed, "end of the jail: %w", err)
	}
	proxy := r.proxy.Swap(nil)
	if e.fetched, e.unfetched, err = proxy.Close(); err != nil {
		return e, err
	}
	e.waits = proxy.Waiting()
	e.told = seen.refused(j, calls)
	return e, nil
}

// shadow returns the shadow that the run works on: own, or the session's for an invocation. It may
// be nil.
func (r *Run) shadow(own *workspace.Workspace) *workspace.Workspace {
	if r.job.In != nil {
		return r.in.Shadow
	}
	return own
}

// endByLimit ends the run because of a watched limit. For a session, the wall limit becomes the
// limit on its time.
func (r *Run) endByLimit(c ending.Cause) {
	if r.job.Holds.For > 0 && c.Limit == ending.LimitWall {
		c.Limit, c.Allowed = ending.LimitTime, r.job.Holds.For.Milliseconds()
	}
	r.End(c)
}

// identifying saves the jail's process in the run's directory, in the background while the tool
// starts. identified waits until that is done.
func identifying(has ready, j *prepare.Job, p *launch.Process) (identified func() error) {
	has.dir.State.PID = p.PID
	written := make(chan error, 1)
	go func() {
		var err error
		if has.jail == nil {
			// A jail that was prewarmed has been in the state since the directory was made.
			err = has.dir.Save()
		}
		written <- errors.Join(err, identify(has.dir, j, p))
	}()
	return sync.OnceValue(func() error { return <-written })
}

// identify saves the plan, PID and start time of the run's jail for verify.
func identify(dir *rundir.Dir, j *prepare.Job, p *launch.Process) error {
	start, err := p.StartTime()
	if errors.Is(err, launch.ErrEnded) {
		// The result of the run says why.
		return nil
	}
	if err != nil {
		return err
	}
	return dir.SaveJail(verify.Jail{Plan: j.Plan, PID: p.PID, Start: start})
}

// usageOf returns the resource usage of the run. For a session it includes all invocations.
func usageOf(j *prepare.Job, leaf *cgroup.Leaf) (cgroup.Usage, error) {
	u, err := leaf.Usage()
	if j.Holds.For == 0 || err != nil {
		return u, err
	}
	all, err := cgroup.Open(rungroup.Session(j.Plan.Cgroup.Path))
	if err != nil {
		return u, err
	}
	defer all.Close()
	sum, err := all.Usage()
	if err != nil {
		return u, err
	}
	sum.CPU += u.CPU
	// The invocations report their own.
	sum.PIDsDenied, sum.OOMKills = 0, u.OOMKills
	return sum, nil
}

// observers watch a jail while it lives. Any of them may be nil.
type observers struct {
	learner  *filewatch.Learner
	recorder *filewatch.Recorder
	landlock *denials.Jail
}

// observe starts to watch the jail before the tool runs: its files, to learn or record as the
// request and policy ask, and refusals of Landlock. If it fails, the run must not start.
func (s *Runner) observe(r *Run, proc *launch.Process) (*observers, error) {
	o := &observers{}
	var err error
	if r.job.Order.Compile {
		return o, nil
	}
	if r.job.Req.Learn {
		if o.learner, err = filewatch.Learn(proc.PID, r.job.Plan); err != nil {
			return nil, s.Jails.Layers.Missing("file events", err.Error(), err)
		}
	}
	if files := r.job.Policy.Policy().Audit.Files; files != policy.FilesNone {
		if o.recorder, err = filewatch.Record(proc.PID, r.job.Plan, files, r.records.RecordAll,
			r.gone); err != nil {
			_, _ = o.learner.Close(nil)
			return nil, err
		}
	}
	o.landlock = s.Jails.follow(r.job, proc)
	return o, nil
}

// end stops to watch files and returns what was learned.
func (o *observers) end(j *prepare.Job) (*learn.Observed, error) {
	learned, err := o.learner.Close(j.Tool.Imports)
	return learned, errors.Join(err, o.recorder.Close())
}

// drop stops all observers of a run that fails, and returns what was learned. It does nothing after
// end and refused.
func (o *observers) drop(j *prepare.Job) *learn.Observed {
	_ = o.recorder.Close()
	learned, _ := o.learner.Close(j.Tool.Imports)
	if o.landlock != nil {
		o.landlock.Drop()
	}
	return learned
}

// refused returns what the kernel refused in the jail: by Landlock, and the system calls by the
// inner filter. The jail's processes have ended.
func (o *observers) refused(j *prepare.Job, calls []control.Refused) kernelDenials {
	told := endFollowing(o.landlock, j.Plan)
	o.landlock = nil
	told.addCalls(j.Plan, calls)
	return told
}

// limitIO sets io.max for the disks that the jail can reach: those of its mounts and its workspace,
// of the daemon's state and of its shadow. work may be nil.
func limitIO(stateDir string, j *prepare.Job, work *workspace.Workspace, leaf *cgroup.Leaf) error {
	c := j.Plan.Cgroup
	if c.IORead == 0 && c.IOWrite == 0 {
		return nil
	}
	state, err := os.Open(stateDir)
	if err != nil {
		return problem.New(problem.Failed, "%w", err)
	}
	defer state.Close()
	files := append([]*os.File{state}, j.Host.Binds...)
	if j.Host.Agent.Dir() != nil {
		files = append(files, j.Host.Agent.Dir())
	}
	if j.Source != nil {
		files = append(files, j.Source)
	}
	if work != nil {
		loop, err := work.Device()
		if err != nil {
			return problem.New(problem.Failed, "%w", err)
		}
		if loop != nil {
			files = append(files, loop)
		}
	}
	done := map[string]bool{}
	for _, f := range files {
		disk, err := cgroup.Disk(f)
		if err == nil && !done[disk] {
			done[disk] = true
			err = leaf.LimitIO(disk, c.IORead, c.IOWrite)
		}
		if err != nil {
			return problem.MissingLayer("control groups",
				fmt.Sprintf("limits io_read and io_write: %v", err),
				"take io_read and io_write out of the policy, "+
					"or keep the workspace and the daemon's state on a disk", errors.Unwrap(err))
		}
	}
	return nil
}

// resize passes new sizes of the caller's terminal to the jail until done is closed.
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

// diskTick is how often the shadow is checked for failed writes to the disk.
const diskTick = time.Second

// watchDisk ends a run if the disk did not take a write to its shadow, which the tool may not
// notice. work may be nil. Call stop when the jail has ended.
func watchDisk(work *workspace.Workspace, end func(ending.Cause)) (stop func()) {
	if work == nil {
		return func() {}
	}
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for range tick.Each(ended, diskTick) {
			if err := work.Check(); err != nil {
				end(ending.Cause{Fault: err})
				return
			}
		}
	}()
	return func() {
		close(ended)
		<-done
	}
}
