package run

import (
	"context"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/supervisor/prepare"
	"github.com/jail-sandbox/jail/supervisor/prewarm"
	"github.com/jail-sandbox/jail/supervisor/runproxy"
	"github.com/jail-sandbox/jail/supervisor/stdio"
)

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

// pid returns the first process of the jail, or 0.
func (c claimed) pid() int {
	if c.jail == nil {
		return 0
	}
	return c.jail.Process.PID
}

// proxy takes the fetch proxy of the jail, if there is one.
func (c claimed) proxy() *runproxy.Proxy {
	if c.jail == nil {
		return nil
	}
	p, _ := c.jail.TakeProxy().(*runproxy.Proxy)
	return p
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
