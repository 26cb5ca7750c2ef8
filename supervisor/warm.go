package supervisor

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/launch"
	"github.com/jail-sandbox/jail/jail/rootless"
	"github.com/jail-sandbox/jail/supervisor/idrange"
	"github.com/jail-sandbox/jail/supervisor/pool"
)

// How a run came to its jail, as its record says.
const (
	startCold = "cold"
	startWarm = "warm"
)

// A warmJail was started before anybody asked for it, by the same code and from the same kind of plan as any. No part of a run is in it: no workspace,
// no invocation; the module that it is made for is loaded, and nothing of that has run; pipes that nobody has the other ends of but the daemon.
//
// Whether a run can have it is decided by the run's own plan, made from the policy and the tools of now: the kernel must have been told the same of this
// jail, word for word. So a pool that is not drained in time gives out nothing that it should not.
type warmJail struct {
	plan  jail.Plan
	dir   *runDir // in the pool's own store, as long as the jail lives
	ids   *idrange.Range
	pumps *pumps
	proc  *launch.Process
	binds []inode
	later bool // the shadow is to be attached
	// module is the digest of what it was told to load; zero where nothing was.
	module [sha256.Size]byte

	end  func() // ends it, once, and waits for its shim
	once sync.Once
}

// An inode is a file or directory of the host, whatever its name is now.
type inode struct{ dev, ino uint64 }

func inodeOf(f *os.File) (inode, error) {
	info, err := f.Stat()
	if err != nil {
		return inode{}, err
	}
	st := info.Sys().(*syscall.Stat_t)
	return inode{st.Dev, st.Ino}, nil
}

// Ended reports whether the jail is no more.
func (w *warmJail) Ended() bool { return w.proc.Ended() }

// Close ends the jail and takes away what is left of it.
func (w *warmJail) Close() {
	w.end()
	w.pumps.close()
	w.leave()
}

// leave takes away what is left of the jail when it has ended. Its ids are another's then.
func (w *warmJail) leave() {
	w.once.Do(func() {
		defer w.ids.Release()
		// The shim has done it, unless it was killed. What stays is empty, and the next daemon removes it.
		if errors.Join(clearCgroup(w.plan.Cgroup.Path), cgroup.RemoveCeiling(w.plan)) == nil {
			_ = w.dir.remove()
		} else {
			w.dir.lock.Close()
		}
	})
}

// openPool starts the pool, where there is to be one. A private daemon serves one command and has none; one of an ordinary user has too few rights to
// attach a workspace to a jail that stands.
func (s *Supervisor) openPool() {
	if s.config.Private || s.config.Bounds.Warm < 1 || rootless.User() != nil {
		return
	}
	s.pool = pool.New(pool.Options[kindOf, *warmJail]{Size: s.config.Bounds.Warm, Make: s.warm, Stale: s.bundlesChanged,
		Busy: func() bool { return s.queue.load().runs > 0 }})
}

// drainPool ends what waits, since what it was made from may have changed.
func (s *Supervisor) drainPool() {
	if s.pool != nil {
		s.pool.Drain()
	}
}

func (s *Supervisor) closePool() {
	if s.pool != nil {
		s.pool.Close()
	}
}

// bundlesChanged reports, once for each change, that bundles were installed, removed or withdrawn.
func (s *Supervisor) bundlesChanged() bool {
	now, err := s.bundles.Now()
	if err != nil {
		now = nil
	}
	was := s.poolBundles.Swap(now)
	return was != nil && was != now
}

// canBeWarm says for which runs there can be jails that wait: those of modules, that mount nothing of the host but modules that the daemon compiled, and whose
// workspace is a shadow, if they have one. What else the host has at the path of a mount is looked up when a run asks for it, with its caller's rights;
// and a directory that is read-only by nothing but its mount is locked to a jail only if the jail starts with it.
func (j *job) canBeWarm() bool {
	if j.compile || j.hold != nil || j.in != nil || j.req.Learn || j.tool.native != "" {
		return false
	}
	if w := j.plan.Workspace; w != nil && !w.Shadow {
		return false
	}
	return !slices.ContainsFunc(j.plan.Mounts, func(m jail.Mount) bool {
		return m.Kind == jail.MountBind && !strings.HasPrefix(m.Target, jail.CacheDir+"/") || m.Kind == jail.MountPTS
	})
}

// claim gives the run a jail that waits, if there is one for it; else it is started as every run was before.
func (r *run) claim() {
	j, p := r.job, r.s.pool
	if p == nil || !j.canBeWarm() {
		return
	}
	standing := j.plan.Standing()
	text, err := json.Marshal(standing)
	if err != nil {
		return
	}
	key := sha256.Sum256(text)
	var plan jail.Plan
	w, ok := p.Claim(string(key[:]), j.kind(standing), func(w *warmJail) bool {
		var same bool
		plan, same = j.plan.In(w.plan)
		return same && slices.Equal(w.binds, inodesOf(j.binds)) && w.proc.Ready() == nil
	})
	if !ok {
		return
	}
	j.ids.Release()
	j.ids, j.plan, r.warm = nil, plan, w // the ids are the jail's until nothing is left of it
}

// inodesOf is nil where one of them cannot be told.
func inodesOf(files []*os.File) []inode {
	all := []inode{}
	for _, f := range files {
		p, err := inodeOf(f)
		if err != nil {
			return nil
		}
		all = append(all, p)
	}
	return all
}

// start says how the run comes to its jail.
func (r *run) start() string {
	if r.warm != nil {
		return startWarm
	}
	return startCold
}

// endWarm takes away what is left of a jail that was claimed: all of it where the run did not get to use it. Where it did, nothing of the jail runs any
// more, and its control group is empty; the end of its shim, and with it of its mounts and groups, is nothing that the caller waits for. If the
// daemon is killed meanwhile, the shim does it, or the next daemon.
func (r *run) endWarm() {
	if w := r.warm; w != nil {
		r.s.clear(w.Close)
	}
}

// takeAway ends a jail that was claimed, if it has one, and returns when its shim has gone with all that the jail had mounted.
func (r *run) takeAway() {
	if r.warm != nil {
		r.warm.end()
	}
}

// takeWarm makes the jail that was claimed the run's.
func (r *run) takeWarm() (*launch.Process, error) {
	w := r.warm
	if !w.later {
		return w.proc, nil
	}
	files, err := r.job.files(r.work)
	if err != nil {
		return nil, err
	}
	defer files.close()
	if err = w.proc.Attach(files.Lower, files.Upper); err == nil {
		return w.proc, nil
	}
	w.end()
	if layer := (*launch.LayerError)(nil); errors.As(err, &layer) && r.ended() == nil {
		return nil, r.s.missingLayer(layer.Layer, layer.Reason, err)
	}
	return nil, failed(err, "", "start of the jail: %v", err)
}

// newPumps are the run's pipes: those of its jail, where that has waited for it.
func (r *run) newPumps() (*pumps, error) {
	over := func(seen int64) { r.end(cause{limit: "output", peak: seen}) }
	gone := func() { r.end(cause{gone: true}) }
	if r.warm == nil {
		return newPumps(r.job.plan.Limits.Output, over, gone)
	}
	p := r.warm.pumps
	p.limit, p.over, p.gone = r.job.plan.Limits.Output, over, gone
	return p, nil
}

// warm starts a jail for the pool.
func (s *Supervisor) warm(ctx context.Context, kind kindOf) (_ *warmJail, err error) {
	standing := kind.standing
	w := &warmJail{later: standing.Workspace != nil}
	var undo []func()
	defer func() {
		for _, f := range slices.Backward(undo) {
			if err != nil {
				f()
			}
		}
	}()
	if w.ids, err = idrange.Take(); err != nil {
		return nil, err
	}
	undo = append(undo, w.ids.Release)
	w.plan = standing.Elsewhere(jail.NewID(), w.ids.Base)
	if w.dir, err = s.standing.add(runState{ID: string(w.plan.ID), Cgroup: w.plan.Cgroup.Path}); err != nil {
		return nil, err
	}
	undo = append(undo, func() { _ = w.dir.remove() })
	var files launch.Files
	defer func() {
		for _, f := range files.Binds {
			f.Close()
		}
	}()
	if files.Binds, err = cachesOf(w.plan); err != nil {
		return nil, err
	}
	w.binds = inodesOf(files.Binds)
	if w.pumps, err = newPumps(0, nil, nil); err != nil {
		return nil, err
	}
	undo = append(undo, w.pumps.close)
	if err = cgroup.MakeCeiling(w.plan); err != nil {
		return nil, err
	}
	undo = append(undo, func() { _ = errors.Join(clearCgroup(w.plan.Cgroup.Path), cgroup.RemoveCeiling(w.plan)) })
	order := control.Order{Plan: w.plan, RunDir: w.dir.path, Later: w.later}
	in := w.pumps.jail
	w.proc, err = s.launcher.Start(ctx, order, launch.Stdio{In: in[0], Out: in[1], Err: in[2]}, files)
	w.pumps.handOver()
	if err != nil {
		return nil, fmt.Errorf("start of a jail that waits: %w", err)
	}
	w.end = sync.OnceFunc(w.proc.Release)
	if err = s.load(w, kind); err != nil {
		w.end()
		return nil, fmt.Errorf("a jail that waits: %w", err)
	}
	return w, nil
}

// cachesOf opens the compiled modules of a plan, which are all that a jail that waits has of the host.
func cachesOf(p jail.Plan) (all []*os.File, err error) {
	for _, m := range p.Mounts {
		if m.Kind != jail.MountBind {
			continue
		}
		f, err := os.Open(m.Source)
		if err != nil {
			return all, err
		}
		tree, err := launch.Clone(f)
		f.Close()
		if err != nil {
			return all, err
		}
		all = append(all, tree)
	}
	return all, nil
}

// clearStanding removes what jails that waited have left, of daemons that were killed.
func (s *Supervisor) clearStanding() error {
	dead, err := s.standing.dead()
	if err != nil {
		return failed(err, "", "jails that waited: %v", err)
	}
	for _, d := range dead {
		leaf := s.leafOf(d.state)
		if err := errors.Join(clearCgroup(leaf), clearFetchGroup(leaf), d.remove()); err != nil {
			return failed(err, "", "jail %s, left by a daemon that was killed: %v", d.state.ID, err)
		}
	}
	return nil
}
