package run

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/launch"
	"github.com/jail-sandbox/jail/jail/verify"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/ending"
	"github.com/jail-sandbox/jail/supervisor/engine"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/prepare"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/rundir"
	"github.com/jail-sandbox/jail/supervisor/stdio"
)

// startShared is the start in the audit log of a run in a shared engine, without its own jail.
const startShared = "shared"

// quickRun is how long an invocation in a shared engine runs before it is listed among the live
// runs. Making its directory takes longer than most invocations.
const quickRun = 10 * time.Millisecond

// shared carries out an invocation in a shared engine of its session instead of its own jail. An
// error is a failure of jail, as in steps.
func (s *Runner) shared(ctx context.Context, r *Run, res message.Result,
	streams stdio.Streams) (message.Result, *stdio.Pipes, error) {
	j := r.job
	s.Jails.Pool.Vacate(r.in.Prewarmed, s.Life.CleanUp)
	call, err := r.in.Engines.Take(ctx, engine.Need{Policy: j.Policy.Digest(), Plan: j.Plan,
		Module: j.In.Module, Binds: j.Host.Binds, Caller: j.Caller.Caller})
	if err != nil {
		if layer, ok := errors.AsType[*launch.LayerError](err); ok {
			err = s.Jails.Layers.Missing(layer.Layer, layer.Reason, err)
		} else if _, ok := errors.AsType[*problem.Error](err); !ok {
			err = notStarted(err)
		}
		return res, nil, unbegun(r.records, err)
	}
	defer call.Leave()
	seen := s.appear(j, call.Engine())
	defer seen.end()
	// A run with a requested id, or that fetches, leaves traces that are found by the id.
	if j.Req.ID != "" || j.Plan.Fetch != nil {
		if err := seen.now(); err != nil {
			if e := problem.From(err); e.Code == problem.Usage {
				return res, nil, e
			}
			return res, nil, unbegun(r.records, err)
		}
	}
	started := j.Started()
	started.Start, started.Engine = startShared, call.Engine().ID()
	if err := r.records.BeginShared(r.in.Late, []audit.Event{started, j.Exec()}); err != nil {
		return res, nil, err
	}
	s.Meters.Starts.Add(1, startShared)
	e, err := s.called(ctx, r, call, streams)
	r.records.EndShared(r.in.Late)
	if err == nil {
		err = lostIn(r, call, e)
	}
	if err == nil {
		res, err = s.conclude(r, res, e, nil, func() {})
	}
	if err == nil {
		return res, e.pipes, nil
	}
	failed := problem.From(err)
	// The record is written later: its error is returned at the next start or the end of the
	// session.
	_ = r.records.Record(audit.RunFinished{ExitCode: failed.Exit(), Error: failed.Message})
	return res, e.pipes, failed
}

// called starts the invocation in the engine, waits for it and returns how it ended.
func (s *Runner) called(ctx context.Context, r *Run, call *engine.Call,
	streams stdio.Streams) (e end, err error) {
	j := r.job
	pipes, err := stdio.New(call.Engine().Jail().Plan().IDs)
	if err != nil {
		return e, problem.New(problem.Failed, "pipes for the tool's streams: %w", err)
	}
	if err := s.startFetch(ctx, r, claimed{}); err != nil {
		pipes.Close()
		return e, err
	}
	closeProxy := sync.OnceFunc(func() {
		proxy := r.proxy.Swap(nil)
		e.fetched, e.unfetched, err = proxy.Close()
		e.waits = proxy.Waiting()
	})
	defer closeProxy()
	in := pipes.Jail()
	cpu := j.Plan.Limits.CPUTime
	if cpu == policy.Unlimited {
		cpu = 0
	}
	files := append(j.Modules(), in.In, in.Out, in.Err)
	sendErr := call.Start(runners.Call{Invocation: j.Order.Invocation, CPUNanos: int64(cpu),
		Fetch: j.Plan.Fetch != nil, Joined: streams.Joined},
		append(files, r.proxy.Load().Door()...)...)
	pipes.HandOver()
	if sendErr != nil && !call.Ended() {
		// The engine has ended or cannot be reached.
		call.Cancel()
	}
	r.Called(call)
	pipes.Start(streams, j.Plan.Limits.Output, r.over, r.gone)
	e.pipes = pipes
	if wall := j.Plan.Limits.Wall; wall != policy.Unlimited {
		over := make(chan struct{})
		defer close(over)
		begun := time.Now()
		go func() {
			if passed, ok := r.proxy.pauses.Await(begun, wall, over); ok {
				r.End(ending.Cause{Limit: ending.LimitWall, Peak: passed.Milliseconds()})
			}
		}()
	}
	if streams.Started != nil {
		streams.Started()
	}
	ended := r.EndedBy()
	select {
	case <-call.Done():
	case <-ended:
		// Close its streams and proxy, so that the invocation can end.
		pipes.Abort()
		closeProxy()
		<-call.Done()
	}
	// The pipes are read to their end below, and what is found there ends nothing any more.
	cancelled := r.Ended() != nil
	pipes.Finish()
	closeProxy()
	answer, lost := call.Answer()
	e.answer, e.wall = checkAnswer(answer), call.Wall()
	e.usage = cgroup.Usage{CPU: call.CPU()}
	if rep := e.answer.Report; rep != nil {
		e.usage.MemoryPeak = min(max(rep.Usage.MemoryPeak, 0), j.Policy.Policy().Limits.Memory)
		e.status.Code = rep.ExitCode
		if rep.Stopped == runners.StoppedCPUTime {
			r.End(ending.Cause{Limit: ending.LimitCPUTime, Peak: call.CPU().Milliseconds()})
		}
		if rep.Stopped != "" {
			cancelled = true
		}
	} else if e.answer.Failure != "" {
		e.status.Code = problem.ExitFailed
	}
	if lost {
		end := call.End()
		e.status = end.Status
		if end.Usage.OOMKills > 0 && !cancelled {
			e.usage.OOMKills, e.usage.MemoryPeak = end.Usage.OOMKills, end.Usage.MemoryPeak
		}
	}
	if cancelled {
		// Report SIGKILL even if the end of its input ended the invocation first.
		e.status = control.Exited{Signal: int(syscall.SIGKILL)}
	}
	return e, err
}

// lostIn returns the error of an invocation whose engine ended during it for no known reason.
// Otherwise it returns nil.
func lostIn(r *Run, call *engine.Call, e end) error {
	if _, lost := call.Answer(); !lost || r.Ended() != nil || e.usage.OOMKills > 0 {
		return nil
	}
	end := call.End()
	why := end.Reason
	switch {
	case why != "":
	case end.Err != nil:
		why = end.Err.Error()
	case end.Status.Signal != 0:
		why = "it was ended by " + signalName(syscall.Signal(end.Status.Signal))
	default:
		why = fmt.Sprintf("it ended with code %d", end.Status.Code)
	}
	return problem.New(problem.Failed,
		"the shared engine of session %s ended while the tool ran in it: %s", r.job.Session(), why).
		WithHint("run it again: the next invocation gets a new engine")
}

// An appearance is the entry of an invocation in the list of live runs. Its methods may be called
// from several goroutines.
type appearance struct {
	s     *Runner
	state rundir.State
	jail  verify.Jail
	timer *time.Timer

	mu    sync.Mutex
	dir   *rundir.Dir
	ended bool
}

// appear lists the invocation after quickRun, unless end is called before.
func (s *Runner) appear(j *prepare.Job, e *engine.Engine) *appearance {
	p := e.Jail().Process
	a := &appearance{s: s, state: j.State(), jail: verify.Jail{Plan: e.Jail().Plan(), PID: p.PID}}
	a.state.PID, a.state.Cgroup = p.PID, e.Jail().Plan().Cgroup.Path
	a.jail.Start, _ = p.StartTime()
	a.timer = time.AfterFunc(quickRun, func() { s.log(j, "list the run", a.now()) })
	return a
}

// now lists the invocation at once. It does nothing if it is listed or over.
func (a *appearance) now() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended || a.dir != nil {
		return nil
	}
	dir, err := a.s.Dirs.Add(a.state)
	if err != nil {
		return err
	}
	a.dir = dir
	return dir.SaveJail(a.jail)
}

// end removes the invocation from the list, in the background.
func (a *appearance) end() {
	a.timer.Stop()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	if a.dir == nil {
		return
	}
	remove := a.dir.Retire()
	a.s.Life.CleanUp(func() {
		a.s.Errors.Failed("remove the directory of the run", a.state.ID, remove())
	})
}
