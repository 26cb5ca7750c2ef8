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

// A Run is one run, from the decision to start it until nothing of it is left. Its methods may be
// called from several goroutines.
type Run struct {
	ending.Stopper
	job     *prepare.Job
	records *runlog.Log
	// in has what an invocation needs of its session.
	in Within
	// holder is the session that the run holds open, or nil.
	holder Holder
	// paused stops the run's processes for a review of its shadow.
	paused pauser
	// proxy is nil while there is no fetch proxy.
	proxy network
	// done is closed when nothing of the run is left. result is complete then.
	done   chan struct{}
	result message.Result
}

// A network is the fetch proxy of a run, nil while there is none.
type network struct {
	atomic.Pointer[runproxy.Proxy]
	// pauses counts how long requests waited for an approval.
	pauses ending.Pauses
}

// Within has what an invocation uses of its session.
type Within struct {
	// Files opens the descriptors of the launch.
	Files prewarm.FilesFunc
	// Shadow is the session's shadow, or nil.
	Shadow *workspace.Workspace
	// Prewarmed has the prewarmed jails of the session.
	Prewarmed *prewarm.Session
	// Engines are the shared engines of the session, nil if it has none. Late records the ends of
	// the invocations in them.
	Engines *engine.Set
	Late    *runlog.Late
	// After is called when the jail of the invocation has ended. It returns the automatic commit
	// that followed, or nil.
	After func() *shadows.AutoCommit
	// Keep takes the environment that the shell of the invocation leaves to later ones, and returns
	// what was kept of it. Both may be nil.
	Keep func(*runners.Kept) *message.Kept
	// News are warnings for the user of the session.
	News []string
}

// A Holder is a session that a run holds open.
type Holder interface {
	// Stands is called when invocations may begin. work is the session's shadow, or nil.
	Stands(st rundir.State, work *workspace.Workspace)
	// Ended is called when the jail has ended, with the cause if it was ended from outside. It
	// returns after the last invocation that could write to the shadow has ended.
	Ended(*ending.Cause)
	// Fate returns what the user who stopped the session wants done with the shadow. It is called
	// after Ended.
	Fate() message.Fate
	// Sleeps reports whether the session can be woken later. It is called after Ended.
	Sleeps() bool
	// Close is called last, just before the run is done, even if the jail never ran.
	Close()
}

func (s *Runner) newRun(j *prepare.Job) *Run {
	entry := audit.Entry{Run: string(j.ID), Session: j.Session(), Actor: j.Caller.Actor(),
		Policy: j.Policy.Digest()}
	return &Run{job: j, done: make(chan struct{}), records: runlog.New(s.Log, entry),
		result: message.Result{ID: string(j.ID), Session: j.Session(), Policy: j.Policy.Digest(),
			Denied: []runners.Denial{}, Warnings: j.Warnings()}}
}

// NewHolding returns the run whose jail holds session h open.
func (s *Runner) NewHolding(j *prepare.Job, h Holder) *Run {
	r := s.newRun(j)
	r.holder = h
	return r
}

// NewInvocation returns the run of an invocation of a session.
func (s *Runner) NewInvocation(j *prepare.Job, in Within) *Run {
	r := s.newRun(j)
	r.in = in
	r.result.Warnings = append(r.result.Warnings, in.News...)
	if in.Shadow != nil {
		r.result.Warnings = append(r.result.Warnings, in.Shadow.Warnings()...)
	}
	return r
}

// Job returns the decided job of the run: request, policy and plan.
func (r *Run) Job() *prepare.Job { return r.job }

// Fetched returns the fetch usage of the run so far.
func (r *Run) Fetched() message.Usage { return r.proxy.Load().Usage() }

// IsSession reports whether the run holds a session open.
func (r *Run) IsSession() bool { return r.job.Holds.For > 0 }

// Kill ends the run.
func (r *Run) Kill() { r.End(ending.Cause{Signal: int(syscall.SIGKILL)}) }

// gone ends the run because its caller went away or its records cannot be written.
func (r *Run) gone() { r.End(ending.Cause{Gone: true}) }

// over ends the run because its output reached the limit. seen is in bytes.
func (r *Run) over(seen int64) { r.End(ending.Cause{Limit: "output", Peak: seen}) }

// Done returns a channel that is closed when nothing of the run is left.
func (r *Run) Done() <-chan struct{} { return r.done }

// Wait waits until the run is done or ctx ends. It does not end the run.
func (r *Run) Wait(ctx context.Context) error { return lifetime.Await(ctx, r.done) }

// Result returns the result. Call it only after Done is closed.
func (r *Run) Result() message.Result { return r.result }

// active has the runs and sessions that have not ended. Its methods may be called from several
// goroutines.
type active struct {
	mu   sync.Mutex
	runs map[string]*Run
	// started has the times at which jail-init got the tools.
	started map[*Run]time.Time
}

// add adds the run, so that others can end it. It returns an error if the id is in use.
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

// start notes that jail-init of a run got its tool.
func (a *active) start(r *Run) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.started == nil {
		a.started = map[*Run]time.Time{}
	}
	a.started[r] = time.Now()
}

// Live returns the live run, or the run that holds the session, with this id; nil if there is none.
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

// waking is how long an agent counts as busy after its jail starts, to load its module and handle
// the event that woke it.
const waking = 50 * time.Millisecond

// Works reports whether any run needs the processors. Sessions do not, since their invocations
// count, and agents do not after waking, since they mostly wait for events.
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

// open permits reviews of the shadow. work may be nil.
func (p *pauser) open(j *prepare.Job, work *workspace.Workspace) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.work, p.group = work, j.Plan.Cgroup.Path
	if j.Holds.For > 0 {
		// No tool runs in the session's own jail.
		p.group = rungroup.Session(j.Plan.Cgroup.Path)
	}
}

// close permits no more reviews. It waits for a review that is under way.
func (p *pauser) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.work = nil
}

// Paused stops all processes that may write to the run's shadow, calls f with the shadow, and lets
// them go on. ok is false if the run has no shadow of its own, or its jail does not run. Calls wait
// for each other.
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
	// They must go on even if f panics.
	defer func() { err = errors.Join(err, thaw()) }()
	return true, f(p.work)
}
