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

// An end is everything that is known of how the jail of a run ended.
type end struct {
	status control.Exited
	usage  cgroup.Usage
	wall   time.Duration
	answer runners.Answer
	// pipes are the tool's streams, once the tool has been let go.
	pipes *stdio.Pipes
	// observed is what the run was seen to need, where the request asks to learn.
	observed *learn.Observed
	// fetched has the fields of fetches, unfetched what the proxy refused.
	fetched   message.Usage
	unfetched []runners.Denial
	// waits is the error for a run one of whose requests still waits for an approval, or nil.
	waits error
	told  kernelDenials
}

// supervise lets the tool run and sees it to its end.
func (s *Runner) supervise(r *Run, has ready, proc *launch.Process, p *stdio.Pipes,
	streams stdio.Streams) (e end, err error) {
	j := r.job
	// A prewarmed jail is removed after the answer, or by who needs it gone.
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
	// A directory that is being removed gets no more files.
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
	// The steps after the jail have the shadow for themselves.
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
	// A caller that learns that the tool runs may ask for its jail at once.
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
		// a jail that was killed says nothing; its exit does
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
	// Nothing may write to the workspace any more when it is looked at.
	err = errors.Join(err, unidentified, leaf.Kill(rungroup.KillWait))
	p.Finish()
	var usageErr, seenErr error
	e.usage, usageErr = usageOf(j, leaf)
	e.observed, seenErr = seen.end(j)
	// What jail-init said lies in its socket, and a release would throw it away. Nobody is left who
	// could say more, so the reader comes to an end, however long a busy machine lets it wait.
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

// shadow returns the one that the run works on, its own or its session's, or nil.
func (r *Run) shadow(own *workspace.Workspace) *workspace.Workspace {
	if r.job.In != nil {
		return r.in.Shadow
	}
	return own
}

// endByLimit ends the run for a limit that is watched. A session's time is another limit than a
// run's.
func (r *Run) endByLimit(c ending.Cause) {
	if r.job.Holds.For > 0 && c.Limit == ending.LimitWall {
		c.Limit, c.Allowed = ending.LimitTime, r.job.Holds.For.Milliseconds()
	}
	r.End(c)
}

// identifying writes down which process the run's jail is, while the tool is started. identified
// waits until that is written.
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

// identify writes what Verify needs to know of the run's jail.
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

// usageOf is what the run used: of a session, all its invocations.
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

// observers watch what a jail does, each for as long as the jail lives. Any of them may be nil.
type observers struct {
	learner  *filewatch.Learner
	recorder *filewatch.Recorder
	landlock *denials.Jail
}

// observe starts to watch the jail before the tool runs: what it does with files, to learn from it
// and to record it as the request and the policy ask, and what Landlock refuses. A run that is to
// be watched is watched, or does not start.
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

// end ends the watching of files and returns what was learned.
func (o *observers) end(j *prepare.Job) (*learn.Observed, error) {
	learned, err := o.learner.Close(j.Tool.Imports)
	return learned, errors.Join(err, o.recorder.Close())
}

// drop ends all watching for a run that fails. After end and refused it does nothing.
func (o *observers) drop(j *prepare.Job) *learn.Observed {
	_ = o.recorder.Close()
	learned, _ := o.learner.Close(j.Tool.Imports)
	if o.landlock != nil {
		o.landlock.Drop()
	}
	return learned
}

// refused returns what the kernel refused in the jail, whose processes have ended: by Landlock, and
// the calls by the inner filter.
func (o *observers) refused(j *prepare.Job, calls []control.Refused) kernelDenials {
	told := endFollowing(o.landlock, j.Plan)
	o.landlock = nil
	told.addCalls(j.Plan, calls)
	return told
}

// limitIO bounds how fast the jail uses the disks that it can reach: those of its workspace, of
// the daemon's state, where its shadow lies, and the shadow's own. work may be nil.
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

// diskTick is how often it is asked whether the disk takes what a tool writes to its shadow.
const diskTick = time.Second

// watchDisk ends a run when the disk of its shadow did not take something that the tool wrote,
// since the tool does not learn of it. The run stops the watch when its jail is gone.
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
