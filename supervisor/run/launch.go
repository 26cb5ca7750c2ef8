package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/denials"
	"github.com/jail-sandbox/jail/jail/launch"
	"github.com/jail-sandbox/jail/jail/probe"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/approvals"
	"github.com/jail-sandbox/jail/supervisor/hostlayers"
	"github.com/jail-sandbox/jail/supervisor/mounts"
	"github.com/jail-sandbox/jail/supervisor/prepare"
	"github.com/jail-sandbox/jail/supervisor/prewarm"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/rundir"
	"github.com/jail-sandbox/jail/supervisor/rungroup"
	"github.com/jail-sandbox/jail/supervisor/runproxy"
	"github.com/jail-sandbox/jail/supervisor/stdio"
)

// Jails has what is needed to make the jails of runs.
type Jails struct {
	Launcher launch.Launcher
	Layers   hostlayers.Host
	// Pool is nil where no jails are prewarmed.
	Pool *prewarm.Pool
	// Maker makes the jails of shared engines.
	Maker prewarm.Options
	// Refusals reports what Landlock refuses; nil if that is not enabled.
	Refusals *denials.Watcher
}

// ready has what a run needs to start its jail.
type ready struct {
	claimed
	dir *rundir.Dir
	// work is the run's own shadow, or nil.
	work  *workspace.Workspace
	start intent
}

// jailed runs the tool in its jail and returns how it ended. Beside an error, the end has pipes if
// a tool may have run.
func (s *Runner) jailed(ctx context.Context, r *Run, has ready, streams stdio.Streams) (e end,
	err error) {
	pipes, err := has.pipes(r.job.Plan.IDs)
	if err != nil {
		return e, problem.New(problem.Failed, "pipes for the tool's streams: %w", err)
	}
	defer func() {
		if e.pipes == nil {
			pipes.Close()
		}
	}()
	if err := s.startFetch(ctx, r, has.claimed); err != nil {
		return e, err
	}
	// The proxy is only open here if an error is returned.
	defer func() { _, _, _ = r.proxy.Swap(nil).Close() }()
	dropGroups, err := s.makeGroups(r.job, has.claimed)
	if err != nil {
		return e, err
	}
	defer dropGroups()
	proc, err := s.launch(ctx, r, has, pipes)
	pipes.HandOver()
	if err != nil {
		err = pipes.Explain(err)
	} else {
		e, err = s.supervise(r, has, proc, pipes, streams)
	}
	if err != nil {
		// The shim takes the control group away, unless it was killed, at whatever step.
		err = errors.Join(err, rungroup.Clear(r.job.Plan.Cgroup.Path))
	}
	return e, err
}

// startFetch starts the fetch proxy of the run if the policy grants any fetch, or takes over the
// proxy of its prewarmed jail.
func (s *Runner) startFetch(ctx context.Context, r *Run, given claimed) error {
	j := r.job
	if j.Order.Compile || j.Holds.For > 0 || j.Plan.Fetch == nil {
		return nil
	}
	var proxy *runproxy.Proxy
	if given.jail != nil {
		proxy, _ = given.jail.TakeProxy().(*runproxy.Proxy)
	}
	if proxy == nil {
		setup, err := given.network, error(nil)
		if setup == nil {
			setup, err = s.Proxies.Prepare(ctx, proxySpec(j))
		}
		if err == nil {
			proxy, err = setup.Start(ctx, j.Plan.Cgroup.Path)
		}
		if err != nil {
			return err
		}
	}
	requests := runproxy.Run{Records: r.records, Caller: j.Caller, Asks: asks(j),
		InSession: j.In != nil, Left: r.proxy.pauses.Left,
		Fail: r.gone}
	requests.Asks.Waits = r.proxy.pauses.Note
	proxy.Serve(requests)
	r.proxy.Store(proxy)
	return nil
}

func proxySpec(j *prepare.Job) runproxy.Spec {
	spec := runproxy.Spec{Policy: j.Policy, Intercept: j.Tool.Native != ""}
	if j.Tool.Script != nil {
		spec.Scopes = j.Tool.Script.Scopes
	}
	return spec
}

// asks returns the run and policy of an approval request. The caller adds the fetch.
func asks(j *prepare.Job) approvals.FetchRequest {
	return approvals.FetchRequest{Run: cmp.Or(j.Session(), string(j.ID)), Policy: j.Policy.Digest()}
}

// makeGroups makes the control groups above the jail's own: for a session, the group that limits
// all its invocations together, and the group of the host's ceiling. A prewarmed jail already has
// its group. drop removes them.
func (s *Runner) makeGroups(j *prepare.Job, given claimed) (drop func(), err error) {
	// A group that is not removed is empty, and the next daemon removes it.
	var made []func()
	drop = func() {
		for _, remove := range slices.Backward(made) {
			remove()
		}
	}
	if c := j.Plan.Cgroup; j.Holds.For > 0 {
		group := rungroup.Session(c.Path)
		made = append(made, func() {
			s.log(j, "remove the control group of the session", cgroup.Remove(group))
		})
		err := cgroup.MakeBounded(group, cgroup.Ceiling{Memory: max(c.Memory, 0),
			PIDs: max(c.PIDs, 0), CPUQuota: c.CPUQuota, CPUPeriod: c.CPUPeriod})
		if err != nil {
			return nil, s.Jails.Layers.Failed("control groups", err)
		}
	}
	if given.jail != nil {
		return drop, nil
	}
	if err := cgroup.MakeCeiling(j.Plan); err != nil {
		drop()
		return nil, s.Jails.Layers.Failed("control groups",
			fmt.Errorf("the ceiling's control group: %w", err))
	}
	made = append(made, func() {
		s.log(j, "remove the control group of the run", cgroup.RemoveCeiling(j.Plan))
	})
	return drop, nil
}

// launch starts the jail of the run, or takes the prewarmed one.
func (s *Runner) launch(ctx context.Context, r *Run, has ready, p *stdio.Pipes) (*launch.Process,
	error) {
	// Without this check only jail-init would find out.
	if e := problem.Missing(probe.Landlock(), nil); e != nil {
		return nil, e
	}
	if has.jail != nil {
		return s.attach(r, has)
	}
	files, shared, err := s.files(r, has.work)
	if err != nil {
		return nil, err
	}
	defer files.Close()
	order := control.Order{Plan: r.job.Plan, RunDir: has.dir.Path, Shared: shared}
	if proxy := r.proxy.Load(); proxy != nil {
		order.Plan = order.Plan.Trusting(proxy.Authority())
	}
	if r.job.Plan.KernelInside() && r.job.Holds.For == 0 {
		files.Passed = r.inputs()
		order.Proxy = r.proxy.Load() != nil
	}
	proc, err := s.Jails.Launcher.Start(ctx, order, p.Jail(), files.Files)
	if layer, ok := errors.AsType[*launch.LayerError](err); ok {
		return nil, s.Jails.Layers.Missing(layer.Layer, layer.Reason, err)
	}
	if err != nil && r.Ended() == nil {
		return nil, notStarted(err)
	}
	return proc, err
}

// attach gives the prewarmed jail to the run and mounts the run's workspace in it.
func (s *Runner) attach(r *Run, has ready) (*launch.Process, error) {
	given := has.jail
	if !given.AttachesLater() {
		return given.Process, nil
	}
	files, err := s.ownFiles(r.job, has.work)
	if err != nil {
		return nil, err
	}
	defer files.Close()
	if err = given.Process.Attach(files.Lower, files.Upper, files.Frozen...); err == nil {
		return given.Process, nil
	}
	given.End()
	if layer, ok := errors.AsType[*launch.LayerError](err); ok && r.Ended() == nil {
		return nil, s.Jails.Layers.Missing(layer.Layer, layer.Reason, err)
	}
	return nil, notStarted(err)
}

// notStarted returns the error of a run whose jail could not be started. launch.ErrNotThere means
// that something killed the jail before it got a tool, or that no thread could be started.
func notStarted(err error) *problem.Error {
	if errors.Is(err, launch.ErrNotThere) {
		return problem.New(problem.Busy, "the jail of the run has ended before its tool began").
			WithCause(err).
			WithHint("try again; if that does not help, the host has too few processes or " +
				"too little memory: its log says which")
	}
	return problem.New(problem.Failed, "start of the jail: %w", err)
}

// files opens the descriptors for the launch of the run. It also returns the targets of the mounts
// that are shared with the jail of its session.
func (s *Runner) files(r *Run, work *workspace.Workspace) (*mounts.Files, []string, error) {
	if j := r.job; j.In != nil {
		return r.in.Files(j.Plan, j.Host.Binds)
	}
	files, err := s.ownFiles(r.job, work)
	return files, nil, err
}

// ownFiles opens the descriptors for the launch of a run that is not an invocation of a session.
func (s *Runner) ownFiles(j *prepare.Job, w *workspace.Workspace) (*mounts.Files, error) {
	files := &mounts.Files{}
	files.Binds, files.Lower = j.Host.Binds, j.Host.Agent.Dir()
	if j.Source == nil {
		return files, nil
	}
	var err error
	if w == nil {
		files.Lower, err = workspace.CloneLower(j.Source)
	} else if files.Lower, err = w.Lower(); err == nil {
		files.Own(files.Lower)
		if files.Upper, err = w.Upper(); err == nil {
			files.Own(files.Upper)
			files.Frozen, err = workspace.FrozenLayers(w)
			files.Own(files.Frozen...)
		}
	}
	if err != nil {
		files.Close()
		return nil, s.Jails.Layers.Failed("shadow workspaces", err)
	}
	if w == nil {
		files.Own(files.Lower)
	}
	return files, nil
}

// inputs returns the descriptors that are passed with the invocation: modules and proxy connection.
func (r *Run) inputs() []*os.File { return append(r.job.Modules(), r.proxy.Load().Door()...) }

// invoke sends the order to run the tool to jail-init. A jail that holds a session open gets none.
func (s *Runner) invoke(r *Run, given claimed, proc *launch.Process, streams stdio.Streams) error {
	if r.job.Holds.For > 0 {
		return nil
	}
	if given.jail != nil {
		given.alone()
	}
	order := r.job.Order
	order.Joined, order.NoInput = streams.Joined, streams.In == nil
	order.Prepared = r.job.Tool.Script == nil && given.jail.Loaded(r.job.Tool.Sum)
	inputs := r.inputs()
	if r.job.Plan.KernelInside() {
		// They were passed at the start.
		order.Passed, inputs = len(inputs), nil
	}
	err := proc.Invoke(order, inputs...)
	if err == nil && r.job.In == nil && !r.job.Order.Compile {
		s.Meters.Begin.Observe(time.Since(r.job.Begun))
	}
	if err == nil || r.Ended() != nil || errors.Is(err, syscall.EPIPE) {
		// If jail-init has ended already, its end tells why.
		return nil
	}
	return problem.New(problem.Failed, "hand over to jail-init: %w", err)
}

// canBePrewarmed reports whether the run may use a prewarmed jail. A run with a terminal may not.
//
// Outside of sessions, only modules may that mount nothing of the host but compiled modules, and
// whose workspace, if any, is a shadow: a prewarmed jail with a directory of the host would keep
// its file system busy after all runs have ended, which a session does anyway. A directory that
// only its mount makes read-only can be locked only when the jail starts with it.
func canBePrewarmed(j *prepare.Job) bool {
	switch {
	case j.Plan.Outer != nil:
		// Attaching enters the jail's namespaces, which belong to another program here.
		return false
	case j.Order.Compile || j.Holds.For > 0 || j.Req.Learn || j.Req.Terminal != nil:
		return false
	case j.In != nil:
		return true
	case j.Tool.Native != "" || prewarm.HasHost(j.Plan):
		return false
	}
	return j.Plan.Workspace == nil || j.Plan.Workspace.Shadow
}

// A claimed has the prewarmed jail that a run was given, or nil.
type claimed struct {
	jail *prewarm.Jail
	// alone waits until no other prewarmed jail of the run's session has processes.
	alone func()
	// network is the prepared fetch proxy of the run, or nil.
	network *runproxy.Setup
}

// claim gives the run a prewarmed jail if one fits. Otherwise the run makes its own jail, and the
// prewarmed jails of its session are removed.
func (s *Runner) claim(ctx context.Context, r *Run) claimed {
	given := s.prewarmed(ctx, r)
	if given.jail == nil {
		// Rouse only saves time, so its error does not matter.
		s.Life.Go(func() { _ = cgroup.Rouse() })
		if r.job.In != nil {
			s.Jails.Pool.Vacate(r.in.Prewarmed, s.Life.CleanUp)
		}
	}
	return given
}

func (s *Runner) prewarmed(ctx context.Context, r *Run) claimed {
	j, p := r.job, s.Jails.Pool
	if p == nil || !canBePrewarmed(j) {
		return claimed{}
	}
	spec := prewarm.Spec{}
	if j.In != nil {
		spec.Session, spec.Caller, spec.Programs = r.in.Prewarmed, j.Caller.Caller, j.Host.Programs
	}
	if j.Tool.Script == nil && j.Tool.Native == "" {
		spec.Module = j.Tool.Sum
	}
	var setup *runproxy.Setup
	if j.Plan.Fetch != nil && j.Tool.Native != "" {
		// The proxy makes the certificate that programs trust, which is a file of the jail.
		var err error
		if setup, err = s.Proxies.Prepare(ctx, proxySpec(j)); err != nil {
			// startFetch reports the error.
			return claimed{}
		}
		spec.Network = setup
	}
	given, plan, ok := p.Claim(ctx, j.Plan, spec, j.Host.Binds)
	if !ok {
		return claimed{network: setup}
	}
	if j.In == nil {
		// The prewarmed jail keeps its own ids until it is removed.
		j.Host.IDs.Release()
		j.Host.IDs = nil
	}
	j.Plan = plan
	return claimed{jail: given, alone: p.VacateMeanwhile(spec.Session, s.Life.CleanUp)}
}

// start returns how the run got its jail, as the audit log names it: prewarmed or made for it.
func (c claimed) start() string {
	if c.jail != nil {
		return prewarm.StartWarm
	}
	return prewarm.StartCold
}

// close removes the prewarmed jail in the background, whether the run used it or not. After a run,
// no process of the jail is left, but its shim still has to remove mounts and control groups. If
// the daemon is killed meanwhile, the shim or the next daemon removes them.
func (c claimed) close(cleanUp func(func())) {
	if c.jail != nil {
		c.alone()
		cleanUp(c.jail.Close)
	}
}

// end ends the prewarmed jail and waits until its shim has unmounted everything.
func (c claimed) end() {
	if c.jail != nil {
		c.jail.End()
	}
}

// pipes returns the pipes of the prewarmed jail, or new ones for a tool with these ids.
func (c claimed) pipes(ids jail.IDs) (*stdio.Pipes, error) {
	if c.jail == nil {
		return stdio.New(ids)
	}
	return c.jail.Pipes, nil
}
