package supervisor

import (
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/launch"
	"github.com/jail-sandbox/jail/policy"
)

// A cause is why a run was ended from outside.
type cause struct {
	limit string // name of a limit
	peak  int64
	// the caller's: 2 for an interrupt
	signal int
	// why the daemon ends, where that ends the run
	daemon string
	gone   bool
	// a session that was told to end
	over bool
	// of the host: what the tool does from here on could not be kept
	fault error
}

// byOthers reports whether a caller or the daemon's own end ended the run. Nothing that the run did
// is the reason then.
func (c *cause) byOthers() bool { return c.limit == "" && !c.over && c.fault == nil }

// A stopper ends a run from outside. Its methods may be called from several goroutines.
type stopper struct {
	mu sync.Mutex
	// cause is the first cause for which the run was ended.
	cause *cause
	// proc and leaf are those of the jail, once it has been started.
	proc *launch.Process
	leaf *cgroup.Leaf
}

// end ends the run for the first cause that is given. A jail that has ended by itself is ended by a
// limit alone, since what it wrote is counted when it is read.
func (s *stopper) end(c cause) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause != nil || c.limit == "" && s.proc != nil && s.proc.Ended() {
		return
	}
	s.cause = &c
	s.kill()
}

// kill ends all of the jail's processes at once, if there is a jail: many that all want a CPU would
// let the first wait for its turn to die. s.mu is held.
func (s *stopper) kill() {
	if s.proc != nil {
		// The jail may have ended by itself.
		_ = errors.Join(s.proc.Kill(), s.leaf.KillAtOnce())
	}
}

// ended returns the cause for which the run was ended, or nil.
func (s *stopper) ended() *cause {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cause
}

// started notes the jail, and ends it at once if the run was ended meanwhile.
func (s *stopper) started(p *launch.Process, leaf *cgroup.Leaf) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proc, s.leaf = p, leaf
	if s.cause != nil {
		s.kill()
	}
}

// A watch ends a run when a limit that only the daemon sees is reached. It never relies on what
// runs inside.
type watch struct {
	limits jail.Limits
	leaf   *cgroup.Leaf
	end    func(cause)
	start  time.Time
	// a number: how fast CPU time can pass
	cpus time.Duration

	stop chan struct{}
	done sync.WaitGroup
}

func startWatch(p jail.Plan, leaf *cgroup.Leaf, end func(cause)) *watch {
	l := p.Limits
	w := &watch{limits: l, leaf: leaf, end: end, start: time.Now(), stop: make(chan struct{}),
		cpus: time.Duration(runtime.NumCPU())}
	if c := p.Cgroup; c.CPUQuota > 0 {
		w.cpus = min(w.cpus, time.Duration((c.CPUQuota+int64(c.CPUPeriod)-1)/int64(c.CPUPeriod)))
	}
	if l.Wall != policy.Unlimited {
		w.done.Go(w.wall)
	}
	if l.CPUTime != policy.Unlimited {
		w.done.Go(w.cpu)
	}
	return w
}

// Stop ends the watching; the run has ended.
func (w *watch) Stop() {
	close(w.stop)
	w.done.Wait()
}

func (w *watch) wall() {
	timer := time.NewTimer(w.limits.Wall)
	defer timer.Stop()
	select {
	case <-timer.C:
		w.end(cause{limit: "wall", peak: time.Since(w.start).Milliseconds()})
	case <-w.stop:
	}
}

// cpuTick is how late a breach of the limit of CPU time may be seen.
const cpuTick = 10 * time.Millisecond

// cpu looks again when the limit could be reached at the earliest, with all CPUs busy that the jail
// may use.
func (w *watch) cpu() {
	wait := w.limits.CPUTime / w.cpus
	for {
		timer := time.NewTimer(max(wait, cpuTick))
		select {
		case <-timer.C:
		case <-w.stop:
			timer.Stop()
			return
		}
		u, err := w.leaf.Usage()
		if err != nil {
			// the jail is gone; its end says so
			return
		}
		left := w.limits.CPUTime - u.CPU
		if left <= 0 {
			w.end(cause{limit: "cpu_time", peak: u.CPU.Milliseconds()})
			return
		}
		wait = left / w.cpus
	}
}
