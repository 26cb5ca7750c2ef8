package supervisor

import (
	"runtime"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/policy"
)

// A cause is why a run was ended from outside.
type cause struct {
	limit  string // name of a limit
	peak   int64
	signal int // the caller's: 2 for an interrupt
	gone   bool
	over   bool // a session that was told to end
}

// A watch ends a run when a limit that only the daemon sees is reached. It never relies on what runs inside.
type watch struct {
	limits jail.Limits
	leaf   *cgroup.Leaf
	end    func(cause)
	start  time.Time
	cpus   time.Duration // a number: how fast CPU time can pass

	stop chan struct{}
	done sync.WaitGroup
}

func startWatch(p jail.Plan, leaf *cgroup.Leaf, end func(cause)) *watch {
	l := p.Limits
	w := &watch{limits: l, leaf: leaf, end: end, start: time.Now(), stop: make(chan struct{}), cpus: time.Duration(runtime.NumCPU())}
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

// cpu looks again when the limit could be reached at the earliest, with all CPUs busy that the jail may use.
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
			return // the jail is gone; its end says so
		}
		left := w.limits.CPUTime - u.CPU
		if left <= 0 {
			w.end(cause{limit: "cpu_time", peak: u.CPU.Milliseconds()})
			return
		}
		wait = left / w.cpus
	}
}
