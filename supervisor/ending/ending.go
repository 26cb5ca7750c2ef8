// Package ending ends runs from outside: for a caller, for the end of the daemon, for a fault of
// the host, and for limits that only the daemon sees.
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
	// Limit is the name of a limit, Peak how much of it was used. Allowed is the limit itself if
	// the policy does not have it.
	Limit         string
	Peak, Allowed int64
	// Signal is the caller's: 2 for an interrupt.
	Signal int
	// Daemon is why the daemon ends, where that ends the run.
	Daemon string
	// Grant says which grant of a policy is over that the run was given.
	Grant string
	// Gone says that the caller is gone, or that what the run does cannot be recorded.
	Gone bool
	// Over says that a session was asked to end.
	Over bool
	// Fault is one of the host: what the tool does from here on could not be kept.
	Fault error
}

// Limits that end a run by the clock. The first two are the policy's, in milliseconds as all of
// them; the others are a session's: how long it may be unused, and how long it may last.
const (
	LimitWall    = "wall"
	LimitCPUTime = "cpu_time"
	LimitIdle    = "idle"
	LimitTime    = "time"
)

// IsTime reports whether a limit ends a run by the clock.
func IsTime(limit string) bool {
	switch limit {
	case LimitWall, LimitCPUTime, LimitIdle, LimitTime:
		return true
	}
	return false
}

// ByOthers reports whether a caller or the daemon's own end ended the run. Nothing that the run did
// is the reason then.
func (c *Cause) ByOthers() bool { return c.Limit == "" && !c.Over && c.Fault == nil }

// A Stopper ends a run from outside. Its methods may be called from several goroutines.
type Stopper struct {
	mu sync.Mutex
	// cause is the first cause for which the run was ended.
	cause *Cause
	jail  jailed
	// endedBy is closed when there is a cause; nil before anybody waits for that.
	endedBy chan struct{}
}

// A Call is a run in a process that it shares with others.
type Call interface {
	// Cancel ends the run and nothing else, or, where that does not help, the process.
	Cancel()
	// Ended reports whether the run has ended.
	Ended() bool
}

// jailed is the jail of a run; the zero value is one that has not started.
type jailed struct {
	proc *launch.Process
	leaf *cgroup.Leaf
	// call is that of a shared engine, which the run has in place of a jail.
	call Call
	// asked says that the processes were only asked to end so far.
	asked bool
}

// ended reports whether the jail has ended by itself.
func (j jailed) ended() bool {
	return j.proc != nil && j.proc.Ended() || j.call != nil && j.call.Ended()
}

// kill ends all of the jail's processes at once, if there is a jail: many that all want a CPU would
// let the first wait for its turn to die.
func (j jailed) kill() {
	if j.proc != nil {
		// The jail may have ended by itself.
		_ = errors.Join(j.proc.Kill(), j.leaf.KillAtOnce())
	}
	if j.call != nil {
		j.call.Cancel()
	}
}

// End ends the run for the first cause that is given. A jail that has ended by itself is ended by
// the limit of output alone, since what it wrote is counted when it is read.
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

// Called notes the call of a run in a shared engine, and cancels it at once if the run was ended
// meanwhile.
func (s *Stopper) Called(c Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jail.call = c
	if s.cause != nil {
		s.jail.kill()
	}
}

// Ask asks the processes of the jail to end, for a cause that is the run's from then on. They may
// take their time until End, whatever the cause of that.
func (s *Stopper) Ask(c Cause) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause != nil || s.jail.proc == nil || s.over(c) {
		return
	}
	s.cause, s.jail.asked = &c, true
	// End kills a jail that has no ear for it.
	_ = s.jail.proc.Signal(runners.SignalTerminate)
}

// over reports whether the jail has ended before the cause came. s.mu is held.
func (s *Stopper) over(c Cause) bool { return (c.Limit == "" || IsTime(c.Limit)) && s.jail.ended() }

// Ended returns the cause for which the run was ended, or nil.
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

// Started notes the jail, and ends it at once if the run was ended meanwhile.
func (s *Stopper) Started(p *launch.Process, leaf *cgroup.Leaf) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jail = jailed{proc: p, leaf: leaf}
	if s.cause != nil {
		s.jail.kill()
	}
}

// A Watch ends a run when a limit that only the daemon sees is reached. It never relies on what
// runs inside.
type Watch struct {
	limits jail.Limits
	leaf   *cgroup.Leaf
	end    func(Cause)
	// ask is nil for a jail that cannot be asked to end.
	ask func(Cause)
	// Start is when the watch began.
	Start time.Time
	// pauses are not part of the wall time.
	pauses *Pauses
	// a number: how fast CPU time can pass
	cpus time.Duration

	stop chan struct{}
	done sync.WaitGroup
}

// StartWatch watches the limits of wall and CPU time of a plan, for the jail in leaf, and calls end
// once for the first that is reached, until Stop. At the limit of wall time, of which the pauses are
// no part, it calls ask before, if that is not nil, and end after the grace.
func StartWatch(p jail.Plan, leaf *cgroup.Leaf, pauses *Pauses, end, ask func(Cause)) *Watch {
	l := p.Limits
	w := &Watch{limits: l, leaf: leaf, end: end, ask: ask, Start: time.Now(), pauses: pauses,
		stop: make(chan struct{}),
		cpus: time.Duration(runtime.NumCPU())}
	if c := p.Cgroup; c.CPUQuota > 0 {
		w.cpus = min(w.cpus, time.Duration((c.CPUQuota+int64(c.CPUPeriod)-1)/int64(c.CPUPeriod)))
	}
	// The first reading opens the counters. The last one is on the way to the answer.
	w.done.Go(func() { _, _ = leaf.Usage() })
	if l.Wall != policy.Unlimited {
		w.done.Go(w.wall)
	}
	if l.CPUTime != policy.Unlimited {
		w.done.Go(w.cpu)
	}
	return w
}

// Stop ends the watching; the run has ended.
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

// grace is how long a program may take to end after SIGTERM at the limit of wall time: as long as
// the limit, and two seconds at most.
func grace(wall time.Duration) time.Duration { return min(2*time.Second, wall) }

// cpuTick is how late a breach of the limit of CPU time may be seen.
const cpuTick = 10 * time.Millisecond

// cpu looks again when the limit could be reached at the earliest, with all CPUs busy that the jail
// may use.
func (w *Watch) cpu() {
	wait := w.limits.CPUTime / w.cpus
	for tick.Wait(w.stop, max(wait, cpuTick)) {
		u, err := w.leaf.Usage()
		if err != nil {
			// the jail is gone; its end says so
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

// maxPause bounds the pauses of a run together.
const maxPause = 10 * time.Minute

// Pauses are the times in which a run waits for somebody's approval. They are no part of its wall
// time, as far as maxPause goes. The zero value is of a run that has not waited. Its methods may be called from several
// goroutines.
type Pauses struct {
	mu sync.Mutex
	// waiting is how many requests of the run wait now, the first of them since begun.
	waiting int
	begun   time.Time
	// sum is how long the pauses took that are over.
	sum time.Duration
}

// Note notes that a request of the run begins to wait, or ends to.
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

// since returns how much wall time has passed since start.
func (p *Pauses) since(start time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	return now.Sub(start) - p.taken(now)
}

// taken returns how long the run has waited, at most maxPause.
func (p *Pauses) taken(now time.Time) time.Duration {
	taken := p.sum
	if p.waiting > 0 {
		taken += now.Sub(p.begun)
	}
	return min(taken, maxPause)
}

// Left returns for how much longer the requests of the run may wait.
func (p *Pauses) Left() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maxPause - p.taken(time.Now())
}

// leastWait bounds how often Await looks at a run that waits.
const leastWait = 10 * time.Millisecond

// Await returns how much wall time has passed since start, once that is wall, or false when stop is
// closed before.
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
