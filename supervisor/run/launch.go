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

// Jails are what jails are made with.
type Jails struct {
	Launcher launch.Launcher
	Layers   hostlayers.Host
	// Pool is nil where no jails are prewarmed.
	Pool *prewarm.Pool
	// Maker makes the jails of shared engines.
	Maker prewarm.Options
	// Refusals is nil where nobody tells what Landlock refuses.
	Refusals *denials.Watcher
}

// ready is what a run has when its jail is made.
type ready struct {
	claimed
	dir *rundir.Dir
	// work is the run's own shadow, or nil.
	work  *workspace.Workspace
	start intent
}

// jailed runs the tool in its jail and returns what is known of the end. With an error, the end has
// pipes if a tool may have run.
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
	// Where nobody has ended the proxy before, what failed is in err.
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

// startFetch starts the run's proxy, where the policy grants any fetch, or takes that of its
// prewarmed jail.
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

// asks returns what is asked for each request of the run that waits for an approval, but for the
// request.
func asks(j *prepare.Job) approvals.FetchRequest {
	return approvals.FetchRequest{Run: cmp.Or(j.Session(), string(j.ID)), Policy: j.Policy.Digest()}
}

// makeGroups makes the control groups that are above the jail's own: that of a session's
// invocations, with the session's limits on all of them together, and that of the host's ceiling. A
// prewarmed jail has the one that it was made in.
func (s *Runner) makeGroups(j *prepare.Job, given claimed) (drop func(), err error) {
	// A group that stays is empty, and the next daemon removes it.
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

// launch makes the jail of the run, or takes the prewarmed one.
func (s *Runner) launch(ctx context.Context, r *Run, has ready, p *stdio.Pipes) (*launch.Process,
	error) {
	// else it is jail-init that finds out
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

// attach makes the prewarmed jail the run's.
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

// notStarted returns the error of a run whose jail could not be started. A jail that has ended
// before it got a tool did not end by itself: something killed it, or it had no thread left.
func notStarted(err error) *problem.Error {
	if errors.Is(err, launch.ErrNotThere) {
		return problem.New(problem.Busy, "the jail of the run has ended before its tool began").
			WithCause(err).
			WithHint("try again; if that does not help, the host has too few processes or " +
				"too little memory: its log says which")
	}
	return problem.New(problem.Failed, "start of the jail: %w", err)
}

// files opens the descriptors of the run's launch, and returns the mounts that are another jail's
// too.
func (s *Runner) files(r *Run, work *workspace.Workspace) (*mounts.Files, []string, error) {
	if j := r.job; j.In != nil {
		return r.in.Files(j.Plan, j.Host.Binds)
	}
	files, err := s.ownFiles(r.job, work)
	return files, nil, err
}

// ownFiles opens the descriptors of the launch of a run that shares nothing with others.
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

// inputs are the descriptors that the invocation needs.
func (r *Run) inputs() []*os.File { return append(r.job.Modules(), r.proxy.Load().Door()...) }

// invoke hands the tool over to jail-init. The jail that holds a session open has none, and waits.
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
		// where jail-init has ended already, its end says why
		return nil
	}
	return problem.New(problem.Failed, "hand over to jail-init: %w", err)
}

// canBePrewarmed reports whether there can be prewarmed jails for the run. A terminal is the run's
// own.
//
// Of the runs outside of sessions it is those of modules that mount nothing of the host but
// compiled modules, and whose workspace, if they have one, is a shadow. A prewarmed jail with a
// directory of the host would keep a file system in use when no run does so any more. A session
// does that anyway, as long as it lasts. And a directory that only its mount makes read-only is
// locked to a jail only if the jail starts with it.
func canBePrewarmed(j *prepare.Job) bool {
	switch {
	case j.Plan.Outer != nil:
		// Attaching to a jail that stands enters its namespaces, which are those of another program.
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

// A claimed is the prewarmed jail that a run was given, if it was given one.
type claimed struct {
	jail *prewarm.Jail
	// alone waits until no other prewarmed jail of the run's session has processes.
	alone func()
	// network is the setup of the run's fetch proxy, if it was looked at.
	network *runproxy.Setup
}

// claim gives the run a prewarmed jail, if there is one for it. Else the run makes a jail of its
// own, and beside that there must be no prewarmed jails of its session.
func (s *Runner) claim(ctx context.Context, r *Run) claimed {
	given := s.prewarmed(ctx, r)
	if given.jail == nil {
		// it saves time and nothing else
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
		// The certificates that programs trust are made by the proxy, and are a file of the jail.
		var err error
		if setup, err = s.Proxies.Prepare(ctx, proxySpec(j)); err != nil {
			// The start of the proxy says so.
			return claimed{}
		}
		spec.Network = setup
	}
	given, plan, ok := p.Claim(ctx, j.Plan, spec, j.Host.Binds)
	if !ok {
		return claimed{network: setup}
	}
	if j.In == nil {
		// The jail has ids of its own until nothing is left of it.
		j.Host.IDs.Release()
		j.Host.IDs = nil
	}
	j.Plan = plan
	return claimed{jail: given, alone: p.VacateMeanwhile(spec.Session, s.Life.CleanUp)}
}

// start says in the words of the record how the run came to its jail.
func (c claimed) start() string {
	if c.jail != nil {
		return prewarm.StartWarm
	}
	return prewarm.StartCold
}

// close removes what is left of the jail: all of it if the run did not get to use it. If the run
// did, nothing of the jail runs any more and its control group is empty. The caller does not wait
// for the end of the jail's shim, and with it of its mounts and groups. If the daemon is killed
// meanwhile, the shim removes them, or the next daemon.
func (c claimed) close(cleanUp func(func())) {
	if c.jail != nil {
		c.alone()
		cleanUp(c.jail.Close)
	}
}

// end ends the jail and returns when its shim has gone with all that the jail had mounted.
func (c claimed) end() {
	if c.jail != nil {
		c.jail.End()
	}
}

// pipes returns the pipes of the jail, or new ones for a jail whose tool has ids.
func (c claimed) pipes(ids jail.IDs) (*stdio.Pipes, error) {
	if c.jail == nil {
		return stdio.New(ids)
	}
	return c.jail.Pipes, nil
}
