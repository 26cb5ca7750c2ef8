// Package supervisor turns a request into a run: it resolves the policy, makes the plan, prepares
// the workspace, writes the record, launches the jail, watches its limits and says how it ended. It
// is the only part that sees a whole run.
package supervisor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail/denials"
	"github.com/jail-sandbox/jail/jail/launch"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/admission"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/bundle"
	"github.com/jail-sandbox/jail/supervisor/config"
	"github.com/jail-sandbox/jail/supervisor/hostlayers"
	"github.com/jail-sandbox/jail/supervisor/hostpolicy"
	"github.com/jail-sandbox/jail/supervisor/lifetime"
	"github.com/jail-sandbox/jail/supervisor/names"
	"github.com/jail-sandbox/jail/supervisor/prewarm"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/rundir"
	"github.com/jail-sandbox/jail/supervisor/rungroup"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// A Supervisor runs tools. Its methods may be called from several goroutines.
type Supervisor struct {
	config     config.Config
	launcher   launch.Launcher
	log        *timedLog
	meters     *meters
	queue      *admission.Queue
	bundles    *bundle.Catalog
	workspaces *shadows.Store
	policies   *hostpolicy.Policies
	runs       *rundir.Store
	names      *names.Store
	outputs    *outputStore
	modules    toolFiles
	pool       *prewarm.Pool // nil without one
	// the directories of the pool's jails
	prewarmed *rundir.Store
	host      hostChecks
	layers    hostlayers.Host
	// nil where none are told
	refusals *denials.Watcher

	filter proxyFilter

	life *lifetime.Lifetime

	mu       sync.Mutex
	active   map[string]*run
	sessions map[string]*session

	keeper logKeeper // of the log
	// of what the log has
	readers *readers
	// of what comes to it
	following *readers
}

// New opens the state and the log, clears what dead daemons left, and puts the start on record.
// Without a log there is no supervisor.
func New(ctx context.Context, c config.Config) (*Supervisor, error) {
	s := &Supervisor{config: c, launcher: launch.Launcher{Shim: c.Shim, Init: c.Init},
		active: map[string]*run{}, sessions: map[string]*session{},
		life: lifetime.New(), layers: hostlayers.Host{StateDir: c.StateDir, Slice: c.Slice},
		readers: newReaders(1), following: newReaders(maxFollowing)}
	for _, binary := range []string{c.Shim, c.Init} {
		if _, err := os.Stat(binary); err != nil {
			return nil, problem.New(problem.Failed, "%w", err).
				WithHint("install jail-shim and jail-init beside jaild")
		}
	}
	if err := os.MkdirAll(c.StateDir, 0o700); err != nil {
		return nil, problem.New(problem.Failed, "state directory: %w", err)
	}
	if err := os.MkdirAll(c.LogDir, 0o700); err != nil {
		return nil, problem.New(problem.Failed, "audit log: %w", err)
	}
	s.queue, s.meters = admission.New(c.Bounds), newMeters(s)
	var err error
	if s.names, err = names.Open(filepath.Join(c.StateDir, "names")); err != nil {
		return nil, problem.New(problem.Failed, "names of runs: %w", err)
	}
	log, settings, err := openLog(c)
	if err != nil {
		return nil, err
	}
	s.log = &timedLog{Log: log, s: s}
	s.openRefusals()
	if err := s.open(ctx); err != nil {
		s.closeRefusals()
		return nil, errors.Join(err, s.log.Close())
	}
	s.keepLog(settings)
	return s, nil
}

func (s *Supervisor) open(ctx context.Context) error {
	c := s.config
	var err error
	if s.bundles, err = bundle.OpenCatalog(c.Places()); err != nil {
		return problem.New(problem.Failed, "tool bundles: %w", err)
	}
	kept, err := workspace.Open(filepath.Join(c.StateDir, "workspaces"))
	if err != nil {
		return problem.New(problem.Failed, "workspaces: %w", err)
	}
	s.workspaces = shadows.New(kept, shadows.Options{Terms: filepath.Join(c.StateDir, "terms"),
		Log: s.log, Permissions: s.permissionsOf,
		Live: s.live, PruneNames: func() error { return s.names.Prune(s.isThere) },
		Background: s.life.Go, Check: c.Log.Check})
	if err = s.modules.open(c); err != nil {
		return problem.New(problem.Failed, "compiled modules: %w", err)
	}
	if s.outputs, err = openOutputs(filepath.Join(c.StateDir, "output")); err != nil {
		return problem.New(problem.Failed, "outputs of detached runs: %w", err)
	}
	s.outputs.log = c.Log
	if s.runs, err = rundir.Open(filepath.Join(c.StateDir, "runs")); err != nil {
		return problem.New(problem.Failed, "runs: %w", err)
	}
	if s.prewarmed, err = rundir.Open(filepath.Join(c.StateDir, "pool")); err != nil {
		return problem.New(problem.Failed, "prewarmed jails: %w", err)
	}
	started := audit.DaemonStarted{Version: c.Version, Socket: c.Socket, State: c.StateDir,
		Private: c.Private}
	if _, err := s.log.Append(ctx, audit.Entry{Event: started}); err != nil {
		return problem.New(problem.Failed, "audit log: %w", err).
			WithHint("without a record nothing runs; make room for it")
	}
	record := func(ctx context.Context, e audit.Event) error {
		_, err := s.log.Append(ctx, audit.Entry{Event: e})
		return err
	}
	// A jail that was made under the old policies is for nobody, and takes up room.
	if s.policies, err = hostpolicy.Open(ctx, hostpolicy.Options{Profiles: c.Profiles,
		Ceiling:  c.Ceiling,
		StateDir: c.StateDir, Private: c.Private, Record: record,
		Changed: func() { s.pool.Drain() }}); err != nil {
		return err
	}
	if err := s.recover(ctx); err != nil || c.Private {
		return err
	}
	s.openPool()
	s.config.Log.Check("watch policies", s.policies.Watch())
	s.life.Go(s.workspaces.ForgetOld)
	s.life.Go(func() {
		ticker := time.NewTicker(sweepEvery)
		defer ticker.Stop()
		s.sweepAgain(ticker.C)
	})
	return nil
}

// Workspaces are the shadows that are kept.
func (s *Supervisor) Workspaces() *shadows.Store { return s.workspaces }

// live returns the run or session of an id that this daemon has not ended.
func (s *Supervisor) live(id string) shadows.Live {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.active[id]; r != nil {
		return liveRun{r}
	}
	return nil
}

// Policies are the policy files of the host that are in force.
func (s *Supervisor) Policies() *hostpolicy.Policies { return s.policies }

// recover settles what daemons that were killed left: commits that were cut off, jails that waited,
// some of them in sessions, runs, shadows.
func (s *Supervisor) recover(ctx context.Context) error {
	return errors.Join(s.workspaces.Settle(ctx), prewarm.Clear(s.prewarmed, s.config.Slice),
		s.clearDead(ctx), s.workspaces.SweepTerms(), s.sweepRuns())
}

// sweepRuns removes what killed daemons left of runs that they had only begun to make.
func (s *Supervisor) sweepRuns() error {
	if err := errors.Join(s.runs.Sweep(), s.prewarmed.Sweep()); err != nil {
		return problem.New(problem.Failed, "runs that were half made: %w", err)
	}
	return nil
}

// sweepEvery is how often a daemon looks for what others, killed meanwhile, have left half made.
const sweepEvery = 10 * time.Minute

// sweepAgain sweeps at each tick until nothing may begin any more. What stays is tried at the next.
func (s *Supervisor) sweepAgain(ticks <-chan time.Time) {
	for {
		select {
		case <-ticks:
			s.config.Log.Check("sweep what killed daemons left",
				errors.Join(s.clearDead(context.Background()), s.sweepRuns(), s.workspaces.Sweep()))
		case <-s.life.Done():
			return
		}
	}
}

// leafOf returns the control group of the jail of a run, as a daemon left it, or "".
func (s *Supervisor) leafOf(st rundir.State) string {
	return rungroup.OfDead(s.config.Slice, st.Cgroup, st.ID, st.Session)
}

// Enter announces that something begins. See [lifetime.Lifetime.Enter].
func (s *Supervisor) Enter() (leave func(), err error) { return s.life.Enter() }

// Connections is how many of its clients' may be open at one time, 0 for a daemon that serves one
// client and needs no bound.
func (s *Supervisor) Connections() int {
	if s.config.Private {
		return 0
	}
	return s.config.Bounds.Connections
}

// Active is how many runs and sessions are alive.
func (s *Supervisor) Active() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.active)
}

// Idle returns when no run is active, or with ctx's error.
func (s *Supervisor) Idle(ctx context.Context) error {
	// whoever waits for that lets no more begin
	s.pool.Close()
	for {
		s.mu.Lock()
		var one *run
		for _, one = range s.active {
			break
		}
		s.mu.Unlock()
		if one == nil {
			return nil
		}
		select {
		case <-one.done:
			// It takes its name out of the list just before; see Run.
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close ends every run that is still active, with the signal's name in its result, and puts the end
// on record. What waits for a module to be compiled has not begun, and is told so.
func (s *Supervisor) Close(reason string, signal syscall.Signal) error {
	s.life.End()
	s.policies.Close()
	s.pool.Close()
	s.life.AwaitEntered()
	s.mu.Lock()
	all := make([]*run, 0, len(s.active))
	for _, r := range s.active {
		all = append(all, r)
	}
	s.mu.Unlock()
	for _, r := range all {
		r.end(cause{signal: int(signal), daemon: reason})
	}
	for _, r := range all {
		<-r.done
	}
	s.life.AwaitBackground()
	s.closeRefusals()
	_, err := s.log.Append(context.Background(),
		audit.Entry{Event: audit.DaemonStopped{Reason: reason}})
	closeErr := s.log.Close()
	s.keeper.end()
	// else both are the same thing
	if err == nil {
		err = closeErr
	}
	if err != nil {
		return problem.New(problem.Failed, "audit log: %w", err).WithHint("make room for the log")
	}
	return nil
}
