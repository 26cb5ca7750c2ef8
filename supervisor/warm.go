package supervisor

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
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
	// Of a session's jail that has more of the host than modules: the programs that it was told of, and what was mounted where.
	programs []inode
	mounts   [sha256.Size]byte
	later    bool // the shadow is to be attached
	// in is the session whose calls it waits for, nil where it waits for runs. One of a session is made whole: what its calls work on is there.
	in    *session
	taken bool // it is no spare one of the session's any more; under the session's mu
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
	return inodeIn(info), nil
}

func inodeIn(info os.FileInfo) inode {
	st := info.Sys().(*syscall.Stat_t)
	return inode{st.Dev, st.Ino}
}

// hostMounts says what is mounted where on the host, as the daemon sees it (proc_pid_mountinfo(5)): what is below a directory that a jail has of the host
// is what was mounted there when the jail was made.
func hostMounts() (sum [sha256.Size]byte, err error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	return sha256.Sum256(text), err
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
		if w.in != nil {
			defer w.in.gone(w)
		} else {
			defer w.ids.Release()
		}
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
	s.pool = pool.New(pool.Options[kindOf, *warmJail]{Size: s.config.Bounds.Warm, Make: s.warm, Room: kindOf.room, Stale: s.bundlesChanged,
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

// canBeWarm says for which runs there can be jails that wait. A terminal is a run's own, and so are the certificates that programs of the host trust, which are a
// file of its jail: its proxy makes them.
//
// Of those that are no session's calls it is runs of modules, that mount nothing of the host but modules that the daemon compiled, and whose workspace is
// a shadow, if they have one. A jail that waits with a directory of the host keeps the file system in use that this is on, when no run does any more. A
// session does so anyway, as long as it lasts. And a directory that is read-only by nothing but its mount is locked to a jail only if the jail starts
// with it.
func (j *job) canBeWarm() bool {
	switch {
	case j.compile || j.hold != nil || j.req.Learn || j.req.Terminal != nil:
		return false
	case j.in != nil:
		return j.tool.native == "" || j.plan.Fetch == nil
	case j.tool.native != "" || j.hasHost():
		return false
	}
	return j.plan.Workspace == nil || j.plan.Workspace.Shadow
}

// hasHost reports whether the jail has anything of the host but its workspace and modules.
func (j *job) hasHost() bool {
	return slices.ContainsFunc(j.plan.Mounts, func(m jail.Mount) bool { return m.Kind == jail.MountBind && !isCache(m) })
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
		return same && slices.Equal(w.binds, inodesOf(j.binds)) && w.hasNow(j) && w.proc.Ready() == nil && w.enters(j.in)
	})
	if !ok {
		return
	}
	if j.in == nil {
		j.ids.Release()
		j.ids = nil // they are the jail's until nothing is left of it
	}
	j.plan, r.warm, r.lone = plan, w, r.besides()
}

// hasNow reports whether what a jail has of the host below what it mounts is what a new one would have.
func (w *warmJail) hasNow(j *job) bool {
	if !j.hasHost() {
		return true
	}
	now, err := hostMounts()
	return err == nil && now == w.mounts && slices.Equal(w.programs, j.programs)
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
		r.lone()
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
	standing, h := kind.standing, kind.in
	w := &warmJail{later: standing.Workspace != nil && h == nil, in: h, programs: kind.programs}
	var undo []func()
	defer func() {
		for _, f := range slices.Backward(undo) {
			if err != nil {
				f()
			}
		}
	}()
	state := runState{}
	if h != nil {
		var stop context.CancelFunc
		ctx, stop = context.WithCancel(ctx)
		defer stop()
		if err = h.reserve(stop); err != nil {
			return nil, err
		}
		defer func() {
			h.made()
			if err != nil && ctx.Err() != nil {
				err = errors.Join(pool.ErrNoRoom, err) // a call came
			}
		}()
		undo = append(undo, func() { h.gone(w) })
		w.plan, state.Session = standing.Elsewhere(jail.NewID(), h.run.job.ids.Base), string(h.run.job.id)
	} else {
		if w.ids, err = idrange.Take(); err != nil {
			return nil, err
		}
		undo = append(undo, w.ids.Release)
		w.plan = standing.Elsewhere(jail.NewID(), w.ids.Base)
	}
	state.ID, state.Cgroup = string(w.plan.ID), w.plan.Cgroup.Path
	if w.dir, err = s.standing.add(state); err != nil {
		return nil, err
	}
	undo = append(undo, func() { _ = w.dir.remove() })
	if h != nil { // before anything is cloned: what is mounted in between makes it unfit
		if w.mounts, err = hostMounts(); err != nil {
			return nil, err
		}
	}
	binds, err := bindsOf(w.plan, kind.caller)
	defer func() {
		for _, f := range binds {
			f.Close()
		}
	}()
	if err != nil {
		return nil, err
	}
	w.binds = inodesOf(binds)
	files, shared := &openFiles{Files: launch.Files{Binds: binds}}, []string(nil)
	if h != nil {
		if files, shared, err = h.files(w.plan, binds); err != nil {
			return nil, err
		}
	}
	defer files.close()
	if w.pumps, err = newPumps(0, nil, nil); err != nil {
		return nil, err
	}
	undo = append(undo, w.pumps.close)
	if err = cgroup.MakeCeiling(w.plan); err != nil {
		return nil, err
	}
	undo = append(undo, func() { _ = errors.Join(clearCgroup(w.plan.Cgroup.Path), cgroup.RemoveCeiling(w.plan)) })
	order := control.Order{Plan: w.plan, RunDir: w.dir.path, Later: w.later, Shared: shared}
	in := w.pumps.jail
	w.proc, err = s.launcher.Start(ctx, order, launch.Stdio{In: in[0], Out: in[1], Err: in[2]}, files.Files)
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
