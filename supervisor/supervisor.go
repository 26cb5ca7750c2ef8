// Package supervisor carries out what package prepare has decided: it prepares the workspace,
// writes the record, launches the jail, watches its limits and says how the run ended. It holds
// sessions open, and wires the parts of a daemon together.
package supervisor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/profiles"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/auditlog"
	"github.com/jail-sandbox/jail/supervisor/bundle"
	"github.com/jail-sandbox/jail/supervisor/config"
	"github.com/jail-sandbox/jail/supervisor/detached"
	"github.com/jail-sandbox/jail/supervisor/ending"
	"github.com/jail-sandbox/jail/supervisor/hostpolicy"
	"github.com/jail-sandbox/jail/supervisor/hoststatus"
	"github.com/jail-sandbox/jail/supervisor/meters"
	"github.com/jail-sandbox/jail/supervisor/names"
	"github.com/jail-sandbox/jail/supervisor/naming"
	"github.com/jail-sandbox/jail/supervisor/prepare"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/records"
	"github.com/jail-sandbox/jail/supervisor/recovery"
	"github.com/jail-sandbox/jail/supervisor/rundir"
	"github.com/jail-sandbox/jail/supervisor/shadows"
	"github.com/jail-sandbox/jail/supervisor/tools"
)

// A Supervisor is one daemon: it wires together the parts that run tools. Its methods may be called
// from several goroutines.
type Supervisor struct {
	config   config.Config
	log      *auditlog.Log
	bundles  *bundle.Catalog
	policies *hostpolicy.Policies
	names    *names.Store
	detached *detached.Runs
	sessions *Sessions
	host     *hoststatus.Checks
	records  *records.Reader
	*runner
}

// New opens the state and the log, clears what dead daemons left, and puts the start on record.
// Without a log there is no supervisor.
func New(ctx context.Context, c config.Config) (*Supervisor, error) {
	s := &Supervisor{config: c, runner: newRunner(c)}
	s.sessions = &Sessions{runner: s.runner, private: c.Private, permissions: s.permissionsOf,
		open: map[string]*session{}}
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
	s.host = hoststatus.New(c, s.permissionsOf)
	s.meters = newMeters(s)
	var err error
	if s.names, err = names.Open(filepath.Join(c.StateDir, "names")); err != nil {
		return nil, problem.New(problem.Failed, "names of runs: %w", err)
	}
	if s.log, err = auditlog.Open(c, s.names, s.meters.Appended); err != nil {
		return nil, err
	}
	s.runner.log = s.log
	s.records = records.New(c.LogDir, s.log.Extent, s.permissionsOf)
	s.jailer.openRefusals(c)
	if err := s.open(ctx); err != nil {
		s.jailer.close()
		return nil, errors.Join(err, s.log.Close())
	}
	if !c.Private {
		s.log.Keep(c)
	}
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
	if s.preparer, err = prepare.New(prepare.Options{Config: c, Bundles: s.bundles,
		Policies: func() *profiles.State { return s.policies.Current() }, Layers: s.layers,
		Life: s.life, Told: s.refusals != nil, Compile: s.compile}); err != nil {
		return problem.New(problem.Failed, "compiled modules: %w", err)
	}
	if s.detached, err = detached.Open(detached.Options{Dir: filepath.Join(c.StateDir, "output"),
		Private: c.Private, Life: s.life, Permissions: s.permissionsOf, Run: s.Run,
		Log: c.Log}); err != nil {
		return problem.New(problem.Failed, "outputs of detached runs: %w", err)
	}
	if s.runs, err = rundir.Open(filepath.Join(c.StateDir, "runs")); err != nil {
		return problem.New(problem.Failed, "runs: %w", err)
	}
	prewarmed, err := rundir.Open(filepath.Join(c.StateDir, "pool"))
	if err != nil {
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
	swept := &recovery.Recovery{Slice: c.Slice, LogDir: c.LogDir, Log: s.log, Runs: s.runs,
		Prewarmed: prewarmed, Workspaces: s.workspaces}
	if err := swept.Settle(ctx); err != nil || c.Private {
		return err
	}
	s.openPool(prewarmed)
	s.config.Log.Check("watch policies", s.policies.Watch())
	s.life.Go(s.workspaces.ForgetOld)
	s.life.Go(func() {
		ticker := time.NewTicker(sweepEvery)
		defer ticker.Stop()
		swept.Again(ticker.C, s.life.Done(), c.Log)
	})
	return nil
}

// Workspaces are the shadows that are kept.
func (s *Supervisor) Workspaces() *shadows.Store { return s.workspaces }

// live returns the run or session of an id that this daemon has not ended.
func (s *Supervisor) live(id string) shadows.Live {
	if r := s.active.get(id); r != nil {
		return liveRun{r}
	}
	return nil
}

// Host looks at what the host can enforce.
func (s *Supervisor) Host() *hoststatus.Checks { return s.host }

// Tools changes the bundles of the host.
func (s *Supervisor) Tools() *tools.Manager {
	return &tools.Manager{Store: &bundle.Store{Dir: s.config.Tools, Shipped: s.config.Bundles,
		Check: tools.CheckModule}, Catalog: s.bundles, Log: s.log, Permissions: s.permissionsOf}
}

// Detached are the runs that go on without their clients.
func (s *Supervisor) Detached() *detached.Runs { return s.detached }

// Preparer decides requests.
func (s *Supervisor) Preparer() *prepare.Preparer { return s.preparer }

// Sessions are the open ones.
func (s *Supervisor) Sessions() *Sessions { return s.sessions }

// Records reads the log for callers.
func (s *Supervisor) Records() *records.Reader { return s.records }

// Meters are what the daemon counts.
func (s *Supervisor) Meters() *meters.Meters { return s.meters }

// newMeters makes the metrics of a supervisor.
func newMeters(s *Supervisor) *meters.Meters {
	return meters.New(meters.Sources{Version: s.config.Version, Active: s.Active, Queue: s.queue,
		Waiting:   func() int { return s.log.Waiting() },
		Prewarmed: func() int { return s.pool.Prewarmed() },
		Policies:  func() hostpolicy.Status { return s.policies.Status() }})
}

// Names knows what users call runs and sessions.
func (s *Supervisor) Names() *naming.Namer {
	return &naming.Namer{Names: s.names, Owner: s.ownerOf, Permissions: s.permissionsOf}
}

// ownerOf returns whose the run, the session, or what is left of one is, nil where that cannot be
// told, and whether there is any.
func (s *Supervisor) ownerOf(id string) (owner *uint32, there bool) {
	if r := s.active.get(id); r != nil {
		return &r.job.Caller.UID, true
	}
	if uid, ok := s.sessions.owner(id); ok {
		return &uid, true
	}
	if uid, ok := s.detached.Owner(id); ok {
		return &uid, true
	}
	w, err := s.workspaces.Get(id)
	if err == nil {
		defer w.Close()
		uid := w.Info().Caller.UID
		return &uid, true
	}
	if !errors.Is(err, workspace.ErrNotFound) {
		return nil, true
	}
	st, err := s.runs.Read(id)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, false
	case err != nil:
		return nil, true
	}
	return &st.UID, true
}

func (s *Supervisor) isThere(id string) bool {
	_, there := s.ownerOf(id)
	return there
}

// Policies are the policy files of the host that are in force.
func (s *Supervisor) Policies() *hostpolicy.Policies { return s.policies }

// sweepEvery is how often a daemon looks for what others, killed meanwhile, have left half made.
const sweepEvery = 10 * time.Minute

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
	return len(s.active.all())
}

// Idle returns when no run is active, or with ctx's error.
func (s *Supervisor) Idle(ctx context.Context) error {
	// a caller that waits for that lets no more begin
	s.pool.Close()
	for {
		all := s.active.all()
		if len(all) == 0 {
			return nil
		}
		select {
		case <-all[0].done:
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
	all := s.active.all()
	for _, r := range all {
		r.End(ending.Cause{Signal: int(signal), Daemon: reason})
	}
	for _, r := range all {
		<-r.done
	}
	s.life.AwaitBackground()
	s.config.Log.Check("remove shadows made ahead", s.workspaces.EndStock())
	s.jailer.close()
	_, err := s.log.Append(context.Background(),
		audit.Entry{Event: audit.DaemonStopped{Reason: reason}})
	closeErr := s.log.Close()
	// else both are the same thing
	if err == nil {
		err = closeErr
	}
	if err != nil {
		return problem.New(problem.Failed, "audit log: %w", err).WithHint("make room for the log")
	}
	return nil
}
