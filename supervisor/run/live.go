package run

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/ending"
	"github.com/jail-sandbox/jail/supervisor/engine"
	"github.com/jail-sandbox/jail/supervisor/lifetime"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/prepare"
	"github.com/jail-sandbox/jail/supervisor/prewarm"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/rundir"
	"github.com/jail-sandbox/jail/supervisor/rungroup"
	"github.com/jail-sandbox/jail/supervisor/runlog"
	"github.com/jail-sandbox/jail/supervisor/runproxy"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// A Run is one run from the moment that it is decided to the moment that nothing is left of it. Its
// methods may be called from several goroutines.
type Run struct {
	ending.Stopper
	job     *prepare.Job
	records *runlog.Log
	// in is of the session that the run is an invocation of.
	in Within
	// holder is the session that the run holds open, or nil.
	holder Holder
	// paused stops the run's processes for a review of its shadow.
	paused pauser
	// proxy is nil while there is no fetch proxy.
	proxy network
	// done is closed when nothing is left of the run. The result is whole then.
	done   chan struct{}
	result message.Result
}

// A network is the fetch proxy of a run, nil while there is none.
type network struct {
	atomic.Pointer[runproxy.Proxy]
	// pauses are the times in which a request waited for an approval.
	pauses ending.Pauses
}

// Within is what an invocation has of the jail that holds its session.
type Within struct {
	// Files opens the descriptors of the launch.
	Files prewarm.FilesFunc
	// Shadow is the session's, or nil.
	Shadow *workspace.Workspace
	// Prewarmed has the prewarmed jails of the session.
	Prewarmed *prewarm.Session
	// Engines are the shared engines of the session, and Late takes the records of the ends of the
	// invocations in them; nil if it has none.
	Engines *engine.Set
	Late    *runlog.Late
	// After is called when the jail of the invocation has ended. It returns what was committed after
	// the invocation, or nil.
	After func() *shadows.AutoCommit
	// Keep takes what the shell of the invocation left to later ones, which may be nil, and returns
	// what of it was kept, or nil.
	Keep func(*runners.Kept) *message.Kept
	// News are warnings for the user of the session.
	News []string
}

// A Holder is a session that a run holds open.
type Holder interface {
	// Stands is called when there can be invocations. work is the session's shadow, or nil.
	Stands(st rundir.State, work *workspace.Workspace)
	// Ended is called when the jail has ended, with the cause if it was ended from outside. It
	// returns when no invocation is left that could write to the shadow.
	Ended(*ending.Cause)
	// Fate returns what the user who stopped the session wants of the shadow. It is called after
	// Ended.
	Fate() message.Fate
	// Sleeps reports whether the session can be woken after this end of its jail. It is called after
	// Ended.
	Sleeps() bool
	// Close is called last, just before the run is done, also where the jail never stood.
	Close()
}

func (s *Runner) newRun(j *prepare.Job) *Run {
	entry := audit.Entry{Run: string(j.ID), Session: j.Session(), Actor: j.Caller.Actor(),
		Policy: j.Policy.Digest()}
	return &Run{job: j, done: make(chan struct{}), records: runlog.New(s.Log, entry),
		result: message.Result{ID: string(j.ID), Session: j.Session(), Policy: j.Policy.Digest(),
			Denied: []runners.Denial{}, Warnings: j.Warnings()}}
}

// NewHolding returns the run of a job that holds a session open.
func (s *Runner) NewHolding(j *prepare.Job, h Holder) *Run {
	r := s.newRun(j)
	r.holder = h
	return r
}

// NewInvocation returns the run of a job that is an invocation of a session.
func (s *Runner) NewInvocation(j *prepare.Job, in Within) *Run {
	r := s.newRun(j)
	r.in = in
	r.result.Warnings = append(r.result.Warnings, in.News...)
	if in.Shadow != nil {
		r.result.Warnings = append(r.result.Warnings, in.Shadow.Warnings()...)
	}
	return r
}

// Job returns what was decided about the run.
func (r *Run) Job() *prepare.Job { return r.job }

// Fetched returns what the run has fetched so far.
func (r *Run) Fetched() message.Usage { return r.proxy.Load().Usage() }

// IsSession reports whether the run holds a session open.
func (r *Run) IsSession() bool { return r.job.Holds.For > 0 }

// Kill ends the run.
func (r *Run) Kill() { r.End(ending.Cause{Signal: int(syscall.SIGKILL)}) }

// gone ends the run, because nobody takes what it writes, or what it does cannot be recorded.
func (r *Run) gone() { r.End(ending.Cause{Gone: true}) }

// over ends the run, which has written so much output.
func (r *Run) over(seen int64) { r.End(ending.Cause{Limit: "output", Peak: seen}) }

// Done returns a channel that is closed when nothing is left of the run.
func (r *Run) Done() <-chan struct{} { return r.done }

// Wait returns when nothing is left to do for the run, or ctx ends; the run goes on all the same.
func (r *Run) Wait(ctx context.Context) error { return lifetime.Await(ctx, r.done) }

// Result returns how the run ended. The run is done.
func (r *Run) Result() message.Result { return r.result }

// active are the runs and sessions that are alive. Its methods may be called from several
// goroutines.
type active struct {
	mu   sync.Mutex
	runs map[string]*Run
	// started are the times at which the jails of runs were handed their tools.
	started map[*Run]time.Time
}

// add makes the run one that others can end. An id that is in use here stays the earlier run's.
func (a *active) add(r *Run) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := string(r.job.ID)
	if a.runs[id] != nil {
		return rundir.InUse(id, fs.ErrExist)
	}
	if a.runs == nil {
		a.runs = map[string]*Run{}
	}
	a.runs[id] = r
	return nil
}

func (a *active) remove(r *Run) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.runs, string(r.job.ID))
	delete(a.started, r)
}

// start notes that the jail of a run was handed its tool.
func (a *active) start(r *Run) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.started == nil {
		a.started = map[*Run]time.Time{}
	}
	a.started[r] = time.Now()
}

// Live returns the run or the holder of a session with that id that has not ended, or nil.
func (s *Runner) Live(id string) *Run {
	a := &s.active
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.runs[id]
}

// AllLive returns the runs and sessions that have not ended.
func (s *Runner) AllLive() []*Run {
	a := &s.active
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Values(a.runs))
}

// waking is how long an agent needs the processors after the start of its jail, for its module and
// for the event that woke it.
const waking = 50 * time.Millisecond

// Works reports whether a run needs the processors: any but sessions, whose invocations are runs of
// their own, and agents that are awake, which wait for events most of the time.
func (s *Runner) Works() bool {
	a := &s.active
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.runs {
		agent := r.job.Req.Agent
		started, ok := a.started[r]
		awake := agent != nil && !agent.Once && ok && time.Since(started) > waking
		if r.job.Holds.For == 0 && !awake {
			return true
		}
	}
	return false
}

// A pauser stops the processes that may write to the shadow of a run, for a review of the shadow
// while the run lives. Its methods may be called from several goroutines.
type pauser struct {
	// mu is held as long as the processes are stopped.
	mu sync.Mutex
	// work is the shadow, nil before the tool runs and after the end of the jail.
	work *workspace.Workspace
	// group is the cgroup of the processes.
	group string
}

// open lets the shadow be reviewed. work may be nil.
func (p *pauser) open(j *prepare.Job, work *workspace.Workspace) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.work, p.group = work, j.Plan.Cgroup.Path
	if j.Holds.For > 0 {
		// In the session's own jail no tool runs.
		p.group = rungroup.Session(j.Plan.Cgroup.Path)
	}
}

// close ends that. It waits for a review that is under way.
func (p *pauser) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.work = nil
}

// Paused calls f with the shadow of the run while all processes that may write to the shadow are
// stopped, and lets them go on whatever f returns. ok is false if there is no such shadow now: the
// run has none of its own, or its jail does not run yet or no longer. One call waits for the other.
func (r *Run) Paused(f func(*workspace.Workspace) error) (ok bool, err error) {
	p := &r.paused
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.work == nil {
		return false, nil
	}
	leaf, err := cgroup.Open(p.group)
	if err != nil {
		return true, problem.New(problem.Failed, "stop the processes of run %s: %w", r.job.ID, err)
	}
	defer leaf.Close()
	thaw := func() error {
		err := leaf.Thaw()
		if err == nil {
			return nil
		}
		// Processes that stay stopped are of no use to anybody.
		r.Kill()
		return problem.New(problem.Failed,
			"run %s was ended, since its processes could not go on: %w", r.job.ID, err)
	}
	if err := leaf.Freeze(); err != nil {
		err = problem.New(problem.Busy, "the processes of run %s cannot be stopped: %w", r.job.ID,
			err).WithHint("try again")
		return true, errors.Join(err, thaw())
	}
	// A panic in f must not leave them stopped, either.
	defer func() { err = errors.Join(err, thaw()) }()
	return true, f(p.work)
}
