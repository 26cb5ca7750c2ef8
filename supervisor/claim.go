package supervisor

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/jail-sandbox/jail/jail/launch"
	"github.com/jail-sandbox/jail/jail/rootless"
	"github.com/jail-sandbox/jail/supervisor/bundle"
	"github.com/jail-sandbox/jail/supervisor/prepare"
	"github.com/jail-sandbox/jail/supervisor/prewarm"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/rundir"
	"github.com/jail-sandbox/jail/supervisor/stdio"
)

// openPool starts the pool of prewarmed jails. A private daemon serves one command and has none. A
// daemon of an ordinary user has too few rights to attach a workspace to a jail that was started
// before.
func (s *Supervisor) openPool(dirs *rundir.Store) {
	if s.config.Private || s.config.Bounds.Warm < 1 || rootless.User() != nil {
		return
	}
	s.pool = prewarm.New(prewarm.Options{Size: s.config.Bounds.Warm, Dirs: dirs,
		Launcher: s.launcher,
		Host:     s.layers, Module: s.preparer.Module, Outdated: bundlesChanged(s.bundles),
		Busy: func() bool { return s.queue.Load().Runs > 0 }})
}

// bundlesChanged returns a function that reports, once for each change, that bundles were
// installed, removed or withdrawn.
func bundlesChanged(c *bundle.Catalog) func() bool {
	var last atomic.Pointer[bundle.Set]
	return func() bool {
		now, err := c.Now()
		if err != nil {
			now = nil
		}
		was := last.Swap(now)
		return was != nil && was != now
	}
}

// canBePrewarmed reports whether there can be prewarmed jails for the run. A terminal is the run's
// own. So are the certificates that programs of the host trust: they are a file of the run's jail,
// which its proxy makes.
//
// Of the runs outside of sessions it is those of modules that mount nothing of the host but
// compiled modules, and whose workspace, if they have one, is a shadow. A prewarmed jail with a
// directory of the host would keep a file system in use when no run does so any more. A session
// does that anyway, as long as it lasts. And a directory that only its mount makes read-only is
// locked to a jail only if the jail starts with it.
func canBePrewarmed(j *prepare.Job) bool {
	switch {
	case j.Compile || j.Holds > 0 || j.Req.Learn || j.Req.Terminal != nil:
		return false
	case j.In != nil:
		return j.Tool.Native == "" || j.Plan.Fetch == nil
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
	// recorded waits until it is on record that the run starts and what it executes. Both are
	// written while the jail is made ready.
	recorded func() error
}

// claim gives the run a prewarmed jail, if there is one for it.
func (r *run) claim(ctx context.Context) {
	j, p := r.job, r.s.pool
	if p == nil || !canBePrewarmed(j) {
		return
	}
	spec := prewarm.Spec{}
	if j.In != nil {
		spec.Session, spec.Caller, spec.Programs = r.session.prewarmed, j.Caller.Caller, j.Programs
	}
	if j.Script == nil && j.Tool.Native == "" {
		spec.Module = j.Tool.Sum
	}
	given, plan, ok := p.Claim(ctx, j.Plan, spec, j.Binds)
	if !ok {
		return
	}
	if j.In == nil {
		// The jail has ids of its own until nothing is left of it.
		j.IDs.Release()
		j.IDs = nil
	}
	j.Plan = plan
	r.warm = claimed{jail: given, alone: p.VacateMeanwhile(spec.Session, r.s.life.CleanUp)}
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

// attach makes the prewarmed jail the run's.
func (r *run) attach() (*launch.Process, error) {
	given := r.warm.jail
	if !given.AttachesLater() {
		return given.Process, nil
	}
	files, err := r.s.filesOf(r.job, r.work.Workspace())
	if err != nil {
		return nil, err
	}
	defer files.Close()
	if err = given.Process.Attach(files.Lower, files.Upper); err == nil {
		return given.Process, nil
	}
	given.End()
	if layer := (*launch.LayerError)(nil); errors.As(err, &layer) && r.Ended() == nil {
		return nil, r.s.layers.Missing(layer.Layer, layer.Reason, err)
	}
	return nil, notStarted(err)
}

// notStarted returns the error of a run whose jail could not be started. A jail that has ended
// before it got a tool did not end by itself: something killed it, or it had no thread left.
func notStarted(err error) *problem.Error {
	if errors.Is(err, launch.ErrNotThere) {
		return problem.New(problem.Busy, "the jail of the run has ended before its tool began").
			WithCause(err).
			WithHint("try again; if that does not help, the host has too few processes or too little memory: its log says which")
	}
	return problem.New(problem.Failed, "start of the jail: %w", err)
}

// newPipes returns the pipes of the run: those of its jail if that was prewarmed.
func (r *run) newPipes() (*stdio.Pipes, error) {
	if r.warm.jail == nil {
		return stdio.New(r.job.Plan.IDs)
	}
	return r.warm.jail.Pipes, nil
}
