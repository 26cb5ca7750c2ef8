package prewarm

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/asuser"
	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/launch"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/hostlayers"
	"github.com/jail-sandbox/jail/supervisor/idrange"
	"github.com/jail-sandbox/jail/supervisor/mounts"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/rundir"
	"github.com/jail-sandbox/jail/supervisor/rungroup"
	"github.com/jail-sandbox/jail/supervisor/stdio"
)

// How a run got its jail, as its record says: made for it, or prewarmed.
const (
	StartCold = "cold"
	StartWarm = "warm"
)

// Options configure a Pool and how it makes jails.
type Options struct {
	// Size is how many prewarmed jails there may be, at least 1.
	Size int
	// Dirs keeps the directories of prewarmed jails, so that a later daemon can clear up.
	Dirs     *rundir.Store
	Launcher launch.Launcher
	Host     hostlayers.Host
	// Module opens the module with that digest. It returns false if the module is not stored.
	Module func(sum [sha256.Size]byte) (*os.File, bool)
	// Busy reports whether runs need the processors now.
	Busy func() bool
	// Outdated reports, once for each change, that bundles have changed.
	Outdated func() bool
}

// A Pool prewarms jails. A nil Pool never has one. Its methods may be called from several
// goroutines.
type Pool struct{ jails *demand[Spec, *Jail] }

// New starts a pool.
func New(o Options) *Pool {
	return &Pool{newDemand(options[Spec, *Jail]{size: o.Size, make: o.start, capacity: Spec.capacity,
		awaits: Spec.awaits, outdated: o.Outdated, busy: o.Busy})}
}

// A Spec describes the prewarmed jails of one kind.
type Spec struct {
	// Module is the digest of the module that each jail loads; zero for none. Only modules that are
	// installed or belong to an agent are loaded in advance.
	Module [sha256.Size]byte
	// Session is the session whose invocations may use the jails; nil for runs.
	Session *Session
	// Caller is the user with whose rights the bind mounts of a session's jails are opened.
	// Programs are the programs found on the host then.
	Caller   asuser.Caller
	Programs []mounts.Inode
	// Network makes the fetch proxy of each jail; nil for none.
	Network Network

	// plan is a run's plan without the parts that differ between runs.
	plan jail.Plan
}

// A Network makes the fetch proxies for prewarmed jails of one kind.
type Network interface {
	// StartAhead starts the proxy of the jail with that control group.
	StartAhead(ctx context.Context, cgroup string) (Proxy, error)
	// Same reports whether both would make equal proxies.
	Same(other Network) bool
}

// A Proxy is the fetch proxy of a prewarmed jail.
type Proxy interface {
	// Authority returns the certificates, in PEM, that programs in the jail are to trust.
	Authority() string
	// Dead reports whether the proxy has ended by itself.
	Dead() bool
	// Discard ends a proxy that was never used.
	Discard()
}

// A Jail is a jail that was started in advance, by the same code as any jail. It contains nothing
// of a run: no workspace and no invocation. Its module may be loaded, but none of its code has run.
// Only the daemon has the other ends of its pipes.
//
// A run gets the jail only if the run's own plan, made from the current policy and tools, is
// identical for the kernel. So a pool that was not drained in time does no harm.
type Jail struct {
	Process *launch.Process
	Pipes   *stdio.Pipes

	spec Spec
	plan jail.Plan
	dir  *rundir.Dir
	// ids are the jail's host ids; nil if it uses its session's ids.
	ids  *idrange.Range
	host onHost
	// claimed is guarded by the session's mutex. See [Session.claimed].
	claimed bool
	// module is the digest of the module that was loaded; zero for none.
	module [sha256.Size]byte
	// proxy is the jail's fetch proxy, until a run takes it; nil for none.
	proxy Proxy

	// release ends the jail once and waits for its shim.
	release func()
	once    sync.Once
}

// onHost identifies what a jail uses of the host, as it was when the jail was made.
type onHost struct {
	binds []mounts.Inode
	// mounted is the digest of the host's mounts, for a session's jail.
	mounted [sha256.Size]byte
}

// Clear removes the processes, control groups and directories that prewarmed jails of killed
// daemons have left.
func Clear(dirs *rundir.Store, slice string) error {
	dead, err := dirs.Dead()
	if err != nil {
		return problem.New(problem.Failed, "prewarmed jails: %w", err)
	}
	for _, d := range dead {
		leaf := rungroup.OfDead(slice, d.State.Cgroup, d.State.ID, d.State.Session)
		if err := errors.Join(rungroup.Clear(leaf), rungroup.ClearFetch(leaf),
			d.Remove()); err != nil {
			return problem.New(problem.Failed, "jail %s, left by a daemon that was killed: %w",
				d.State.ID, err)
		}
	}
	return nil
}

// HasHost reports whether a plan mounts anything of the host besides its workspace and compiled
// modules.
func HasHost(p jail.Plan) bool {
	return slices.ContainsFunc(p.Mounts, func(m jail.Mount) bool {
		return m.HasSource() && !mounts.IsModule(m)
	})
}

// Claim returns a prewarmed jail that fits plan, and plan with the jail's ids and names. binds are
// the run's own descriptors of its bind mounts. It returns false if no jail fits. From then on the
// pool prewarms such jails.
func (p *Pool) Claim(ctx context.Context, plan jail.Plan, spec Spec, binds []*os.File) (*Jail,
	jail.Plan, bool) {
	if p == nil {
		return nil, plan, false
	}
	spec.plan = plan.Standing()
	text, err := json.Marshal(spec.plan)
	if err != nil {
		return nil, plan, false
	}
	key := sha256.Sum256(text)
	var as jail.Plan
	j, ok := p.jails.Claim(ctx, string(key[:]), spec, func(j *Jail) bool {
		var same bool
		as, same = plan.In(j.plan)
		return same && slices.Equal(j.host.binds, mounts.Inodes(binds)) && j.hasSameHost(plan, spec) &&
			j.hasSameNetwork(spec.Network) && j.Process.Ready() == nil && j.enter(spec.Session)
	})
	if !ok {
		return nil, plan, false
	}
	return j, as, true
}

// hasSameHost reports whether the mounts of the host are the same as when the jail was made.
func (j *Jail) hasSameHost(plan jail.Plan, spec Spec) bool {
	if !HasHost(plan) {
		return true
	}
	now, err := hostMounts()
	return err == nil && now == j.host.mounted && slices.Equal(j.spec.Programs, spec.Programs)
}

// hasSameNetwork reports whether the jail's proxy is alive and a new one would be configured the
// same, or both would have none.
func (j *Jail) hasSameNetwork(now Network) bool {
	if now == nil || j.proxy == nil {
		return now == nil && j.proxy == nil
	}
	return !j.proxy.Dead() && now.Same(j.spec.Network)
}

// TakeProxy returns the jail's fetch proxy, once, to the run that claimed the jail; nil if there is
// none.
func (j *Jail) TakeProxy() Proxy {
	p := j.proxy
	j.proxy = nil
	return p
}

// enter gives the jail to an invocation of s, or to a run if s is nil. It returns false if the jail
// was made for another session.
func (j *Jail) enter(s *Session) bool {
	if j.spec.Session != s {
		return false
	}
	if s != nil {
		s.claimed(j)
	}
	return true
}

// hostMounts returns the digest of the daemon's mount table (proc_pid_mountinfo(5)). A bind mount
// of a jail contains only the submounts that existed when the jail was made.
func hostMounts() (sum [sha256.Size]byte, err error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	return sha256.Sum256(text), err
}

// Make makes a jail from plan for a session, outside of any pool. The caller closes it.
func Make(ctx context.Context, o Options, spec Spec, plan jail.Plan) (*Jail, error) {
	spec.plan = plan
	return o.start(ctx, spec)
}

func (o Options) start(ctx context.Context, spec Spec) (_ *Jail, err error) {
	session := spec.Session
	j := &Jail{spec: spec}
	var undo []func()
	defer func() {
		for _, f := range slices.Backward(undo) {
			if err != nil {
				f()
			}
		}
	}()
	// The start of the jail ends with a move to a control group. See cgroup.Rouse.
	var roused sync.WaitGroup
	roused.Go(func() { _ = cgroup.Rouse() })
	defer roused.Wait()
	state := rundir.State{}
	if session != nil {
		var stop context.CancelFunc
		ctx, stop = context.WithCancel(ctx)
		defer stop()
		if err = session.reserve(stop); err != nil {
			return nil, err
		}
		defer func() {
			session.made()
			if err != nil && ctx.Err() != nil {
				// An invocation came.
				err = errors.Join(errNoCapacity, err)
			}
		}()
		undo = append(undo, func() { session.gone(j) })
		j.plan, state.Session = spec.plan.Elsewhere(jail.NewID(), session.base), session.id
	} else {
		if j.ids, err = idrange.Take(); err != nil {
			return nil, err
		}
		undo = append(undo, j.ids.Release)
		j.plan = spec.plan.Elsewhere(jail.NewID(), j.ids.Base)
	}
	state.ID, state.Cgroup = string(j.plan.ID), j.plan.Cgroup.Path
	if j.dir, err = o.Dirs.Add(state); err != nil {
		return nil, err
	}
	undo = append(undo, func() { _ = j.dir.Remove() })
	if session != nil {
		// Before any mount is cloned, so that a later mount makes the jail outdated.
		if j.host.mounted, err = hostMounts(); err != nil {
			return nil, err
		}
	}
	binds, err := mounts.Binds(j.plan, spec.Caller, o.Host)
	defer func() { control.CloseAll(binds) }()
	if err != nil {
		return nil, err
	}
	j.host.binds = mounts.Inodes(binds)
	files, shared := &mounts.Files{Files: launch.Files{Binds: binds}}, []string(nil)
	if session != nil {
		if files, shared, err = session.files(j.plan, binds); err != nil {
			return nil, err
		}
	}
	defer files.Close()
	if j.Pipes, err = stdio.New(j.plan.IDs); err != nil {
		return nil, err
	}
	undo = append(undo, j.Pipes.Close)
	if err = cgroup.MakeCeiling(j.plan); err != nil {
		return nil, err
	}
	undo = append(undo, func() {
		_ = errors.Join(rungroup.Clear(j.plan.Cgroup.Path), cgroup.RemoveCeiling(j.plan))
	})
	if spec.Network != nil {
		if j.proxy, err = spec.Network.StartAhead(ctx, j.plan.Cgroup.Path); err != nil {
			return nil, err
		}
		undo = append(undo, j.proxy.Discard)
	}
	order := control.Order{Plan: j.plan, RunDir: j.dir.Path, Later: j.AttachesLater(),
		Shared: shared}
	if j.proxy != nil {
		order.Plan = order.Plan.Trusting(j.proxy.Authority())
	}
	j.Process, err = o.Launcher.Start(ctx, order, j.Pipes.Jail(), files.Files)
	j.Pipes.HandOver()
	if err != nil {
		return nil, fmt.Errorf("start of a prewarmed jail: %w", err)
	}
	j.release = sync.OnceFunc(j.Process.Release)
	if err = o.load(j); err != nil {
		j.release()
		return nil, fmt.Errorf("a prewarmed jail: %w", err)
	}
	return j, nil
}

// load lets a jail load its module, if it has one. All layers of the jail are set up by then, even
// if the workspace is attached later.
func (o Options) load(j *Jail) error {
	if j.spec.Module == [sha256.Size]byte{} {
		return nil
	}
	module, ok := o.Module(j.spec.Module)
	if !ok {
		// The run loads it.
		return nil
	}
	defer module.Close()
	j.module = j.spec.Module
	order := runners.Order{Prepare: true, Invocation: runners.Invocation{
		CacheDir: filepath.Join(jail.CacheDir, "0"), MemoryLimit: j.spec.plan.Cgroup.Memory}}
	return j.Process.Invoke(order, module)
}

// Plan returns the plan of the jail.
func (j *Jail) Plan() jail.Plan { return j.plan }

// Outdated reports whether a jail that is made now for plan would mount something else. binds are
// the current sources of its bind mounts.
func (j *Jail) Outdated(plan jail.Plan, binds []*os.File) bool {
	return !slices.Equal(j.host.binds, mounts.Inodes(binds)) || !j.hasSameHost(plan, j.spec)
}

// AttachesLater reports whether a run attaches its shadow workspace, or the state of its agent, to
// the jail. The jails of a session already have its shadow.
func (j *Jail) AttachesLater() bool {
	p := j.spec.plan
	return (p.Workspace != nil || p.HostsAgent()) && j.spec.Session == nil
}

// Loaded reports whether the module with that digest is loaded in the jail. j may be nil.
func (j *Jail) Loaded(sum [sha256.Size]byte) bool {
	return j != nil && j.module != [sha256.Size]byte{} && j.module == sum
}

// Ended reports whether the jail has ended.
func (j *Jail) Ended() bool { return j.Process.Ended() }

// End ends the jail and waits until its shim has unmounted everything.
func (j *Jail) End() { j.release() }

// Close ends the jail, removes what is left of it and releases its ids.
func (j *Jail) Close() {
	j.End()
	j.Pipes.Close()
	j.once.Do(func() {
		if p := j.TakeProxy(); p != nil {
			p.Discard()
		}
		if j.spec.Session != nil {
			defer j.spec.Session.gone(j)
		} else {
			defer j.ids.Release()
		}
		// The shim has done so, unless it was killed. The groups are empty then, and the next
		// daemon removes them.
		if errors.Join(rungroup.Clear(j.plan.Cgroup.Path), cgroup.RemoveCeiling(j.plan)) == nil {
			_ = j.dir.Remove()
		} else {
			j.dir.Lock.Close()
		}
	})
}

// vacate kills the jail's processes and waits for their end. If that fails, the jail still counts
// as unclaimed until it is gone.
func (j *Jail) vacate() {
	leaf, err := cgroup.Open(j.plan.Cgroup.Path)
	if err == nil {
		err = leaf.Kill(rungroup.KillWait)
	}
	if err == nil {
		j.spec.Session.claimed(j)
	}
}

// Drain ends all prewarmed jails and forgets all claims. It is called after a policy change.
func (p *Pool) Drain() {
	if p != nil {
		p.jails.Drain()
	}
}

// Wake has the pool look again for jails to make. It is called after capacity has been freed.
func (p *Pool) Wake() {
	if p != nil {
		p.jails.Wake()
	}
}

// Close ends all prewarmed jails, makes no more, and returns when all are removed.
func (p *Pool) Close() {
	if p != nil {
		p.jails.Close()
	}
}

// Prewarmed returns how many jails are prewarmed now.
func (p *Pool) Prewarmed() int {
	if p == nil {
		return 0
	}
	return p.jails.Stats().Prewarmed
}
