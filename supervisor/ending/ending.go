// Package ending ends runs from outside: for a caller, when the daemon ends, after a fault of the
// host, and at limits that only the daemon watches.
package ending

import (
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/launch"
	"github.com/jail-sandbox/jail/jail/tick"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/runners"
)

// A Cause is why a run was ended from outside.
type Cause struct {
	// Limit is the name of the limit that was reached, Peak how much of it was used. Allowed is the
	// bound of a limit that is not in the policy.
	Limit         string
	Peak, Allowed int64
	// Signal is the signal number of the caller's request: 2 for an interrupt.
	Signal int
	// Daemon is why the daemon ends, if that ends the run.
	Daemon string
	// Grant is the expired grant of a policy on which the run depends.
	Grant string
	// Gone says that the caller is gone, or that the run cannot be recorded.
	Gone bool
	// Over says that a session was stopped.
	Over bool
	// Fault is a fault of the host after which the tool's work could not be stored.
	Fault error
}

// Time limits that end a run. Wall and CPU time are in the policy, in milliseconds. A session has
// the others: how long it may be idle, and how long it may last.
const (
	LimitWall    = "wall"
	LimitCPUTime = "cpu_time"
	LimitIdle    = "idle"
	LimitTime    = "time"
)

// IsTime reports whether limit is one of the time limits.
func IsTime(limit string) bool {
	switch limit {
	case LimitWall, LimitCPUTime, LimitIdle, LimitTime:
		return true
	}
	return false
}

// ByOthers reports whether a caller or the end of the daemon ended the run, rather than something
// that the run did.
func (c *Cause) ByOthers() bool { return c.Limit == "" && !c.Over && c.Fault == nil }

// A Stopper ends a run from outside. Its methods may be called from several goroutines.
type Stopper struct {
	mu sync.Mutex
	// cause is the first cause for which the run was ended.
	cause *Cause
	jail  jailed
	// endedBy is closed when there is a cause; nil before EndedBy was called.
	endedBy chan struct{}
}

// A Call is a run in a shared engine process.
type Call interface {
	// Cancel ends the run. If the run does not stop, it ends the whole process.
	Cancel()
	// Ended reports whether the run has ended.
	Ended() bool
}

// jailed is the jail of a run; the zero value is a jail that has not started.
type jailed struct {
	proc *launch.Process
	leaf *cgroup.Leaf
	// call is the call to a shared engine, instead of a jail.
	call Call
	// asked says that the processes were only sent SIGTERM so far.
	asked bool
}

// ended reports whether the jail has ended by itself.
func (j jailed) ended() bool {
	return j.proc != nil && j.proc.Ended() || j.call != nil && j.call.Ended()
}

// kill kills all processes of the jail at once, if there is a jail. Processes that compete for the
// CPU would delay the death of the first one.
func (j jailed) kill() {
	if j.proc != nil {
		// The jail may have ended by itself.
		_ = errors.Join(j.proc.Kill(), j.leaf.KillAtOnce())
	}
	if j.call != nil {
		j.call.Cancel()
	}
}

// End ends the run with cause c, unless it has a cause already. If the jail has ended by itself,
// only the output limit still counts, since output is counted when it is read.
func (s *Stopper) End(c Cause) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause == nil && !s.over(c) {
		s.cause = &c
		if s.endedBy != nil {
			close(s.endedBy)
		}
		s.jail.kill()
	} else if s.jail.asked {
		s.jail.asked = false
		s.jail.kill()
	}
}

// EndedBy returns a channel that is closed when the run is ended from outside.
func (s *Stopper) EndedBy() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.endedBy == nil {
		s.endedBy = make(chan struct{})
		if s.cause != nil {
			close(s.endedBy)
		}
	}
	return s.endedBy
}

// Called sets the call of a run in a shared engine, and cancels the call at once if the run was
// ended meanwhile.
func (s *Stopper) Called(c Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jail.call = c
	if s.cause != nil {
		s.jail.kill()
	}
}

// Ask sends SIGTERM to the processes of the jail and sets the cause of the run. They may run on
// until End is called, with any cause.
func (s *Stopper) Ask(c Cause) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause != nil || s.jail.proc == nil || s.over(c) {
		return
	}
	s.cause, s.jail.asked = &c, true
	// End kills a jail that ignores the signal.
	_ = s.jail.proc.Signal(runners.SignalTerminate)
}

// over reports whether the jail ended before cause c, so that c does not count. s.mu is held.
func (s *Stopper) over(c Cause) bool { return (c.Limit == "" || IsTime(c.Limit)) && s.jail.ended() }

// Ended returns the cause for which the run was ended from outside, or nil.
func (s *Stopper) Ended() *Cause {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cause
}

// Process returns the first process of the jail, nil before Started.
func (s *Stopper) Process() *launch.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.jail.proc
}

// Started sets the jail, and kills it at once if the run was ended meanwhile.
func (s *Stopper) Started(p *launch.Process, leaf *cgroup.Leaf) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jail = jailed{proc: p, leaf: leaf}
	if s.cause != nil {
		s.jail.kill()
	}
}

// A Watch ends a run when a limit that the daemon watches is reached. It trusts nothing inside the
// jail.
type Watch struct {
	limits jail.Limits
	leaf   *cgroup.Leaf
	end    func(Cause)
	// ask is nil for a jail that cannot be asked to end.
	ask func(Cause)
	// Start is when the watch began.
	Start time.Time
	// pauses do not count as wall time.
	pauses *Pauses
	// number of CPUs that the jail can use at once
	cpus time.Duration

	stop chan struct{}
	done sync.WaitGroup
}

// StartWatch watches the wall and CPU time limits of a plan for the jail in leaf, until Stop. It
// calls end once, when the first limit is reached. At the wall limit, which pauses do not count
// for, it first calls ask, if not nil, and end after a grace period.
func StartWatch(p jail.Plan, leaf *cgroup.Leaf, pauses *Pauses, end, ask func(Cause)) *Watch {
	l := p.Limits
	w := &Watch{limits: l, leaf: leaf, end: end, ask: ask, Start: time.Now(), pauses: pauses,
		stop: make(chan struct{}),
		cpus: time.Duration(runtime.NumCPU())}
	if c := p.Cgroup; c.CPUQuota > 0 {
		w.cpus = min(w.cpus, time.Duration((c.CPUQuota+int64(c.CPUPeriod)-1)/int64(c.CPUPeriod)))
	}
	// The first reading opens the counters, so that the last one, which delays the result, is fast.
	w.done.Go(func() { _, _ = leaf.Usage() })
	if l.Wall != policy.Unlimited {
		w.done.Go(w.wall)
	}
	if l.CPUTime != policy.Unlimited {
		w.done.Go(w.cpu)
	}
	return w
}

// Stop ends the watch, after the run has ended.
func (w *Watch) Stop() {
	close(w.stop)
	w.done.Wait()
}

func (w *Watch) wall() {
	taken, ok := w.pauses.Await(w.Start, w.limits.Wall, w.stop)
	if !ok {
		return
	}
	c := Cause{Limit: LimitWall, Peak: taken.Milliseconds()}
	if w.ask != nil {
		w.ask(c)
		timer := time.NewTimer(grace(w.limits.Wall))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-w.stop:
			return
		}
	}
	w.end(c)
}

// grace returns how long a program may take to end after SIGTERM at the wall limit: wall, at most
// two seconds.
func grace(wall time.Duration) time.Duration { return min(2*time.Second, wall) }

// cpuTick is the shortest time between two checks of CPU time.
const cpuTick = 10 * time.Millisecond

// cpu checks the CPU time each time that the limit could be reached, if all CPUs of the jail were
// busy.
func (w *Watch) cpu() {
	wait := w.limits.CPUTime / w.cpus
	for tick.Wait(w.stop, max(wait, cpuTick)) {
		u, err := w.leaf.Usage()
		if err != nil {
			// The jail has ended.
			return
		}
		left := w.limits.CPUTime - u.CPU
		if left <= 0 {
			w.end(Cause{Limit: LimitCPUTime, Peak: u.CPU.Milliseconds()})
			return
		}
		wait = left / w.cpus
	}
}

// maxPause bounds the sum of the pauses of a run.
const maxPause = 10 * time.Minute

// Pauses are the times in which a run waits for approvals. They do not count as wall time, up to
// maxPause in total. The zero value is a run that has not waited. Its methods may be called from
// several goroutines.
type Pauses struct {
	mu sync.Mutex
	// waiting is how many requests of the run wait now. begun is when the first of them began to.
	waiting int
	begun   time.Time
	// sum is the duration of the pauses that are over.
	sum time.Duration
}

// Note notes that a request of the run begins (true) or ceases (false) to wait.
func (p *Pauses) Note(begins bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case begins && p.waiting == 0:
		p.begun = time.Now()
	case !begins && p.waiting == 1:
		p.sum += time.Since(p.begun)
	}
	if begins {
		p.waiting++
	} else {
		p.waiting--
	}
}

// since returns the wall time since start, without pauses.
func (p *Pauses) since(start time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	return now.Sub(start) - p.taken(now)
}

// taken returns how long the run has waited until now, at most maxPause. p.mu is held.
func (p *Pauses) taken(now time.Time) time.Duration {
	taken := p.sum
	if p.waiting > 0 {
		taken += now.Sub(p.begun)
	}
	return min(taken, maxPause)
}

// Left returns for how much longer requests of the run may wait.
func (p *Pauses) Left() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maxPause - p.taken(time.Now())
}

// leastWait is the shortest time between two checks of a waiting run by Await.
const leastWait = 10 * time.Millisecond

// Await waits until wall time, without pauses, has passed since start and returns the time passed.
// ok is false if stop is closed first.
func (p *Pauses) Await(start time.Time, wall time.Duration,
	stop <-chan struct{}) (passed time.Duration, ok bool) {
	timer := time.NewTimer(wall - p.since(start))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-stop:
			return 0, false
		}
		if passed = p.since(start); passed >= wall {
			return passed, true
		}
		timer.Reset(max(wall-passed, leastWait))
	}
}
