// Package service wires the parts of a daemon together. It is what jaild runs.
package service

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail/atomicfile"
	"github.com/jail-sandbox/jail/jail/denials"
	"github.com/jail-sandbox/jail/jail/launch"
	"github.com/jail-sandbox/jail/jail/probe"
	"github.com/jail-sandbox/jail/jail/rootless"
	"github.com/jail-sandbox/jail/jail/tick"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/profiles"
	"github.com/jail-sandbox/jail/supervisor/admission"
	"github.com/jail-sandbox/jail/supervisor/approvals"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/auditlog"
	"github.com/jail-sandbox/jail/supervisor/bundle"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/config"
	"github.com/jail-sandbox/jail/supervisor/containers"
	"github.com/jail-sandbox/jail/supervisor/detached"
	"github.com/jail-sandbox/jail/supervisor/ending"
	"github.com/jail-sandbox/jail/supervisor/gitview"
	"github.com/jail-sandbox/jail/supervisor/hostlayers"
	"github.com/jail-sandbox/jail/supervisor/hostpolicy"
	"github.com/jail-sandbox/jail/supervisor/hoststatus"
	"github.com/jail-sandbox/jail/supervisor/images"
	"github.com/jail-sandbox/jail/supervisor/lifetime"
	"github.com/jail-sandbox/jail/supervisor/live"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/meters"
	"github.com/jail-sandbox/jail/supervisor/names"
	"github.com/jail-sandbox/jail/supervisor/naming"
	"github.com/jail-sandbox/jail/supervisor/prepare"
	"github.com/jail-sandbox/jail/supervisor/prewarm"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/records"
	"github.com/jail-sandbox/jail/supervisor/recovery"
	"github.com/jail-sandbox/jail/supervisor/run"
	"github.com/jail-sandbox/jail/supervisor/rundir"
	"github.com/jail-sandbox/jail/supervisor/runproxy"
	"github.com/jail-sandbox/jail/supervisor/session"
	"github.com/jail-sandbox/jail/supervisor/shadows"
	"github.com/jail-sandbox/jail/supervisor/stdio"
	"github.com/jail-sandbox/jail/supervisor/tools"
)

// A Service is one daemon: it wires together the parts that run tools. Its methods may be called
// from several goroutines.
type Service struct {
	config config.Config
	log    *auditlog.Log
	// installed are the tools of this host.
	installed struct {
		bundles *bundle.Catalog
		images  *images.Store
	}
	policies *hostpolicy.Policies
	names    *names.Store
	host     *hoststatus.Checks
	records  *records.Reader
	runner   *run.Runner
	sessions *session.Sessions
	detached *detached.Runs
	// approvals has the actions that wait for an approval.
	approvals *approvals.Queue
	// containers has the containers of OCI engines.
	containers *containers.Keeper
}

// New opens the state and the audit log, cleans up after dead daemons, and records the start.
// Without a log it fails.
func New(ctx context.Context, c config.Config) (*Service, error) {
	for _, binary := range []string{c.Shim, c.Init} {
		if _, err := os.Stat(binary); err != nil {
			return nil, problem.New(problem.Failed, "%w", err).
				WithHint("install jail-shim and jail-init beside jaild")
		}
	}
	if err := os.MkdirAll(c.StateDir, 0o700); err != nil {
		return nil, problem.New(problem.Failed, "state directory: %w", err)
	}
	if err := checkFormat(c.StateDir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(c.LogDir, 0o700); err != nil {
		return nil, problem.New(problem.Failed, "audit log: %w", err)
	}
	s := &Service{config: c, runner: newRunner(c)}
	s.runner.Meters = meters.New(meters.Sources{Version: c.Version, Active: s.Active,
		Queue:     s.runner.Queue,
		Waiting:   func() int { return s.log.Waiting() },
		Prewarmed: func() int { return s.runner.Jails.Pool.Prewarmed() },
		Policies:  func() hostpolicy.Status { return s.policies.Status() }})
	s.host = hoststatus.New(c, s.permissionsOf)
	var err error
	if s.names, err = names.Open(filepath.Join(c.StateDir, "names")); err != nil {
		return nil, problem.New(problem.Failed, "names of runs: %w", err)
	}
	if s.log, err = auditlog.Open(c, s.names, s.runner.Meters.Appended); err != nil {
		return nil, err
	}
	s.runner.Log = s.log
	s.records = records.New(c.LogDir, s.log.Extent, s.permissionsOf)
	asleep := filepath.Join(c.StateDir, "sessions")
	if rootless.User() != nil {
		// A user's daemon has its shadows in memory, which a sleeping session would lose.
		asleep = ""
	}
	s.sessions = session.New(s.runner, c.Private, s.permissionsOf, c.Bounds.Sessions, asleep)
	s.openRefusals()
	if err := s.open(ctx); err != nil {
		s.closeRefusals()
		return nil, errors.Join(err, s.log.Close())
	}
	if !c.Private {
		s.log.Keep(c)
	}
	return s, nil
}

// newRunner returns the runner of a daemon, with the parts that need no state on disk.
func newRunner(c config.Config) *run.Runner {
	l := launch.Launcher{Shim: c.Shim, Init: c.Init, AgentInit: c.AgentInit}
	if !c.Private {
		l.Ahead = launch.NewAhead(c.Shim)
	}
	layers := hostlayers.Host{StateDir: c.StateDir, Slice: c.Slice}
	return &run.Runner{Life: lifetime.New(), Queue: admission.New(c.Bounds), Errors: c.Log,
		Jails: run.Jails{Launcher: l, Layers: layers},
		Proxies: &runproxy.Host{Launcher: l, Layers: layers, Exe: c.Exe,
			Settings: c.Fetch}}
}

// open opens the parts of the state, in an order in which each finds what it needs, and starts the
// background tasks.
func (s *Service) open(ctx context.Context) error {
	c, r := s.config, s.runner
	var err error
	if s.installed.bundles, err = bundle.OpenCatalog(c.Places()); err != nil {
		failed := problem.New(problem.Failed, "tool bundles: %w", err)
		if errors.Is(err, bundle.ErrAltered) {
			failed.Hint = "install the bundles anew: jail follows no link to them"
		}
		return failed
	}
	kept, err := workspace.Open(filepath.Join(c.StateDir, "workspaces"))
	if err != nil {
		return problem.New(problem.Failed, "workspaces: %w", err)
	}
	c.Log.Check("remove old caches", kept.Caches().Prune(time.Now(), nil))
	commits := &approvals.Commits{}
	settings, err := config.ReadApprovals(c.Approvals)
	if err != nil {
		return err
	}
	o := approvals.Options{Dir: filepath.Join(c.StateDir, "approvals"), Log: s.log,
		Permissions: s.permissionsOf, Commits: commits, NoMCP: settings.NoMCP}
	if len(settings.Notify) > 0 {
		o.Notify = (&approvals.Notifier{Words: settings.Notify, Background: r.Life.Go,
			Ended: func(err error) { c.Log.Check("notify of an action", err) }}).Notify
	}
	s.approvals = approvals.New(o)
	r.Proxies.Queue, r.Proxies.Errors = s.approvals.Fetches(), c.Log
	r.Tools = s.approvals.Tools()
	r.Shadows = shadows.New(kept, shadows.Options{Terms: filepath.Join(c.StateDir, "terms"),
		Ask: s.approvals.AskCommit, Approved: s.approvals.Applies, Ended: s.approvals.EndRun,
		Log: s.log, Permissions: s.permissionsOf,
		Live: s.live, Discarded: s.sessions.Forget,
		PruneNames: func() error { return s.names.Prune(s.isThere) },
		Background: r.Life.Go, Check: c.Log.Check,
		Git: &gitview.Host{Launcher: r.Jails.Launcher, Exe: c.Exe}})
	commits.Store = r.Shadows
	procFixed, err := probe.ProcFixed()
	if err != nil {
		return problem.New(problem.Failed, "the kernel's proc: %w", err)
	}
	if s.installed.images, err = images.Open(filepath.Join(c.StateDir, "images")); err != nil {
		return problem.New(problem.Failed, "images: %w", err)
	}
	if r.Preparer, err = prepare.New(prepare.Options{Config: c,
		Bundles: s.installed.bundles, Images: s.installed.images,
		Policies: func() *profiles.State { return s.policies.Current() }, Layers: r.Jails.Layers,
		Widening: s.approvals.Programs().Widening, Runtimes: hoststatus.RuntimesOf(c), Life: r.Life,
		Told: r.Jails.Refusals != nil, ProcFixed: procFixed, Compile: r.Compile}); err != nil {
		return problem.New(problem.Failed, "compiled modules: %w", err)
	}
	if s.detached, err = detached.Open(detached.Options{Dir: filepath.Join(c.StateDir, "output"),
		Private: c.Private, Life: r.Life, Permissions: s.permissionsOf, Run: s.runDetached,
		Log: c.Log}); err != nil {
		return problem.New(problem.Failed, "outputs of detached runs: %w", err)
	}
	if s.containers, err = containers.Open(containers.Options{
		Dir: filepath.Join(c.StateDir, "containers"), Node: c.Containers,
		Resolve: r.Preparer.Container, Log: s.log, Check: c.Log.Check}, c.Private); err != nil {
		return problem.New(problem.Failed, "containers: %w", err)
	}
	if r.Dirs, err = rundir.Open(filepath.Join(c.StateDir, "runs")); err != nil {
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
	// A jail that was prewarmed under the old policies fits no run and uses up capacity.
	if s.policies, err = hostpolicy.Open(ctx, hostpolicy.Options{Profiles: c.Profiles,
		Ceiling:  c.Ceiling,
		StateDir: c.StateDir, Private: c.Private, Record: record,
		Changed: func() { r.Jails.Pool.Drain() }}); err != nil {
		return err
	}
	swept := &recovery.Recovery{Slice: c.Slice, LogDir: c.LogDir, Log: s.log, Runs: r.Dirs,
		Prewarmed: prewarmed, Workspaces: r.Shadows, Sweep: s.sessions.Sweep}
	if err := swept.Settle(ctx); err != nil {
		return err
	}
	approved := func() { c.Log.Check("apply what was approved", s.approvals.Recover()) }
	if c.Private {
		r.Life.Go(approved)
		return nil
	}
	r.Jails.Maker = prewarm.Options{Dirs: prewarmed, Launcher: r.Jails.Launcher,
		Host: r.Jails.Layers}
	s.openPool()
	c.Log.Check("watch policies", s.policies.Watch())
	r.Life.Go(func() {
		// First, since ForgetOld keeps the shadows of sessions that can be woken and of approved
		// actions.
		c.Log.Check("sweep sessions", s.sessions.Sweep())
		approved()
		r.Shadows.ForgetOld()
		s.approvals.Keep(r.Life.Done(), func(err error) {
			c.Log.Check("apply what was approved", err)
		})
	})
	r.Life.Go(func() {
		for range tick.Each(r.Life.Done(), lookEvery) {
			s.endUngranted()
		}
	})
	r.Life.Go(func() {
		ticker := time.NewTicker(sweepEvery)
		defer ticker.Stop()
		swept.Again(ticker.C, r.Life.Done(), c.Log)
	})
	return nil
}

// lookEvery is how often a daemon checks for runs whose grants have expired, or were revoked
// through another daemon.
const lookEvery = 2 * time.Second

// sweepEvery is how often a daemon cleans up after other daemons that were killed meanwhile.
const sweepEvery = 10 * time.Minute

// openPool starts the pool of prewarmed jails, except in a private daemon, which serves one
// command, and a user's daemon, which may not attach a workspace to a running jail.
func (s *Service) openPool() {
	if s.config.Private || s.config.Bounds.Warm < 1 || rootless.User() != nil {
		return
	}
	r := s.runner
	o := r.Jails.Maker
	o.Size, o.Module, o.Outdated = s.config.Bounds.Warm, r.Preparer.Module,
		bundlesChanged(s.installed.bundles)
	o.Busy = r.Works
	r.Jails.Pool = prewarm.New(o)
}

// bundlesChanged returns a function that reports, once for each change, that bundles were
// installed, removed or withdrawn.
func bundlesChanged(c *bundle.Catalog) func() bool {
	var last atomic.Pointer[bundle.Set]
	return func() bool {
		now, err := c.Now()
		if err != nil {
			now = nil
		}
		was := last.Swap(now)
		return was != nil && was != now
	}
}

// openRefusals starts to read the kernel's reports of Landlock refusals, if the settings say so. An
// error is only logged: no isolation depends on the reports.
func (s *Service) openRefusals() {
	if s.config.Refusals {
		var err error
		s.runner.Jails.Refusals, err = denials.Start()
		s.config.Log.Check("read what Landlock refuses", err)
	}
}

// closeRefusals stops to read the reports. No run is active any more.
func (s *Service) closeRefusals() {
	if refusals := s.runner.Jails.Refusals; refusals != nil {
		// An error does not matter: nothing is read any more.
		_ = refusals.Close()
	}
}

// Run runs a tool for a caller. See [run.Runner.Run].
func (s *Service) Run(ctx context.Context, c caller.Caller, req message.Request,
	streams stdio.Streams) message.Result {
	return s.runner.Run(ctx, c, req, streams)
}

// Live returns access to the live runs.
func (s *Service) Live() *live.Runs {
	return &live.Runs{Own: s.runner.Live, Dirs: s.runner.Dirs, Slice: s.config.Slice,
		Detached: s.detached, Records: s.records, Permissions: s.permissionsOf}
}

// Sessions returns the sessions.
func (s *Service) Sessions() *session.Sessions { return s.sessions }

// runDetached carries out a detached run, or a detached invocation of a session.
func (s *Service) runDetached(ctx context.Context, c caller.Caller, req message.DetachRequest,
	streams stdio.Streams) message.Result {
	if req.Session != "" {
		return s.sessions.Exec(ctx, c, req.Session, req.Exec(), streams)
	}
	return s.runner.Run(ctx, c, req.Request, streams)
}

// Detached returns the detached runs.
func (s *Service) Detached() *detached.Runs { return s.detached }

// Preparer returns the part that decides requests.
func (s *Service) Preparer() *prepare.Preparer { return s.runner.Preparer }

// Containers returns the part that decides for containers of OCI engines.
func (s *Service) Containers() *containers.Keeper { return s.containers }

// Workspaces returns the kept shadows.
func (s *Service) Workspaces() *shadows.Store { return s.runner.Shadows }

// Approvals returns the actions that wait for an approval.
func (s *Service) Approvals() *approvals.Queue { return s.approvals }

// ProposeCommit proposes to commit a shadow, even if its policy demands no approval.
func (s *Service) ProposeCommit(ctx context.Context, c caller.Caller, id, words string,
	req shadows.CommitRequest) (approvals.Action, error) {
	held, err := s.runner.Shadows.Approvals().Hold(ctx, c, id, req)
	if err != nil {
		return approvals.Action{}, err
	}
	held.Words = words
	return s.approvals.ProposeCommit(ctx, c, held)
}

// Propose proposes an action that the proposer carries out. See [approvals.Programs.Propose].
func (s *Service) Propose(c caller.Caller, p approvals.ProposeRequest) (approvals.Action, error) {
	rule, err := s.ruleFor(c, p.Type, p.Run)
	if err != nil {
		return approvals.Action{}, err
	}
	if g := p.PolicyGrant; g != nil {
		if err := s.mayGrant(c, p); err != nil {
			return approvals.Action{}, err
		}
	}
	return s.approvals.Programs().Propose(c, p, rule)
}

// mayGrant returns an error unless the proposed grant of a policy could be used.
func (s *Service) mayGrant(c caller.Caller, p approvals.ProposeRequest) error {
	w, err := p.Widening()
	if err != nil {
		return err
	}
	if err := s.runner.Preparer.Profile(c, p.PolicyGrant.Profile); err != nil {
		return err
	}
	return s.runner.Preparer.MayWiden(c, w)
}

// endUngranted ends the runs and sessions with a grant, beyond their profile, that is over.
func (s *Service) endUngranted() {
	for _, r := range s.runner.AllLive() {
		j := r.Job()
		for _, id := range j.Req.Grants {
			if err := s.runner.Preparer.Granted(j.Caller, j.Req, id); err != nil {
				r.End(ending.Cause{Signal: int(syscall.SIGKILL), Grant: id})
			}
		}
	}
}

// Revoke ends a grant and the runs that depend on it. See [approvals.Queue.Revoke].
func (s *Service) Revoke(c caller.Caller, id string) (approvals.Grant, error) {
	defer s.endUngranted()
	return s.approvals.Revoke(c, id)
}

// RevertAction undoes an action. See [approvals.Queue.Revert].
func (s *Service) RevertAction(ctx context.Context, c caller.Caller, id string) (approvals.Action,
	error) {
	defer s.endUngranted()
	return s.approvals.Revert(ctx, c, id)
}

// Claim gives an approved action to its proposer. See [approvals.Programs.Claim].
func (s *Service) Claim(c caller.Caller, id, key string) (approvals.Action, error) {
	return s.approvals.Programs().Claim(c, id, key, func(a approvals.Action) error {
		ceiling, err := s.runner.Preparer.Ceiling()
		if err == nil && ceiling.Approve.Mode(a.Type) == policy.ApproveNever {
			err = problem.New(problem.Refused, "%s: the ceiling lets nobody approve it any more", a.Type)
		}
		return err
	})
}

// ruleFor returns the approval rule for an action: the policy's of the live run or session, within
// the ceiling's. Without a run, a person is asked unless the ceiling forbids the action.
func (s *Service) ruleFor(c caller.Caller, action, run string) (approvals.Rule, error) {
	ceiling, err := s.runner.Preparer.Ceiling()
	if err != nil {
		return approvals.Rule{}, err
	}
	rule := approvals.Rule{Mode: min(policy.ApproveAsk, ceiling.Approve.Mode(action)), UID: c.UID}
	if run == "" {
		return rule, nil
	}
	r := s.runner.Live(run)
	if r == nil || !s.permissionsOf(c).Sees(r.Job().Caller.UID) {
		return rule, problem.New(problem.NotFound, "no run or session %q is alive", run).
			WithHint("propose while it is open, or for no run")
	}
	j := r.Job()
	if !c.MayControl(j.Caller.UID) {
		return rule, problem.New(problem.Refused, "run %s is another user's", run)
	}
	rule.UID, rule.Policy = j.Caller.UID, j.Policy.Digest()
	rule.Mode = min(j.Policy.Policy().Approve.Mode(action), ceiling.Approve.Mode(action))
	rule.Protected = func(name string) bool {
		_, held := j.Policy.Policy().Workspace.HeldBack(name)
		return held
	}
	return rule, nil
}

// Records returns the reader of the audit log for callers.
func (s *Service) Records() *records.Reader { return s.records }

// Policies returns the host's policy files in force.
func (s *Service) Policies() *hostpolicy.Policies { return s.policies }

// Host returns the checks of what the host can enforce.
func (s *Service) Host() *hoststatus.Checks { return s.host }

// Meters returns the daemon's metrics.
func (s *Service) Meters() *meters.Meters { return s.runner.Meters }

// Tools returns the manager of the host's tool bundles.
func (s *Service) Tools() *tools.Manager {
	return &tools.Manager{Store: &bundle.Store{Dir: s.config.Tools, Shipped: s.config.Bundles,
		Check: tools.CheckModule}, Catalog: s.installed.bundles, Log: s.log, Permissions: s.permissionsOf}
}

// Images returns the manager of the host's images.
func (s *Service) Images() *tools.Images {
	return &tools.Images{Manager: *s.Tools(), Images: s.installed.images, Rules: s.rules}
}

func (s *Service) rules() syntax.Host { return s.policies.Current().Rules() }

// Names returns the translator between names and ids of runs and sessions.
func (s *Service) Names() *naming.Namer {
	return &naming.Namer{Names: s.names, Owner: s.ownerOf, Permissions: s.permissionsOf}
}

func (s *Service) permissionsOf(c caller.Caller) caller.Permissions {
	return caller.PermissionsOf(s.policies.Current().Rules(), c)
}

// live returns the run or session with this id that has not ended, or nil.
func (s *Service) live(id string) shadows.Live {
	if r := s.runner.Live(id); r != nil {
		return r
	}
	return nil
}

// ownerOf returns the user of a run, a session or a rest of one: nil if the user is not known.
// there is false if nothing has that id.
func (s *Service) ownerOf(id string) (owner *uint32, there bool) {
	if r := s.runner.Live(id); r != nil {
		return &r.Job().Caller.UID, true
	}
	if uid, ok := s.sessions.Owner(id); ok {
		return &uid, true
	}
	if owner, there := s.detached.Owner(id); there {
		return owner, true
	}
	w, err := s.runner.Shadows.Kept.Get(id)
	if err == nil {
		defer w.Close()
		uid := w.Info().Caller.UID
		return &uid, true
	}
	if !errors.Is(err, workspace.ErrNotFound) {
		return nil, true
	}
	st, err := s.runner.Dirs.Read(id)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, false
	case err != nil:
		return nil, true
	}
	return &st.UID, true
}

func (s *Service) isThere(id string) bool {
	_, there := s.ownerOf(id)
	return there
}

// Enter announces that a request begins something. See [lifetime.Lifetime.Enter].
func (s *Service) Enter() (leave func(), err error) { return s.runner.Life.Enter() }

// Connections returns how many client connections may be open at one time, 0 for no bound in a
// daemon that serves one client.
func (s *Service) Connections() int {
	if s.config.Private {
		return 0
	}
	return s.config.Bounds.Connections
}

// Active returns how many runs, sessions and containers are alive.
func (s *Service) Active() int { return len(s.runner.AllLive()) + s.containers.Living() }

// Idle waits until no run is active, and returns nil, or ctx's error if ctx ends first.
func (s *Service) Idle(ctx context.Context) error {
	// A caller that waits for this lets no more runs begin.
	s.runner.Jails.Pool.Close()
	for {
		all := s.runner.AllLive()
		if len(all) == 0 {
			return nil
		}
		select {
		case <-all[0].Done():
			// The run was removed from the list just before: see run.Runner.Do.
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close ends every active run, with the signal in its result, and records the end of the daemon
// with reason. A run that waits for a compilation has not begun, and its caller gets an error that
// says so.
func (s *Service) Close(reason string, signal syscall.Signal) error {
	life := s.runner.Life
	life.End()
	s.policies.Close()
	s.runner.Jails.Pool.Close()
	life.AwaitEntered()
	all := s.runner.AllLive()
	for _, r := range all {
		r.End(ending.Cause{Signal: int(signal), Daemon: reason})
	}
	for _, r := range all {
		<-r.Done()
	}
	life.AwaitBackground()
	s.runner.Jails.Launcher.Ahead.Close()
	s.config.Log.Check("remove shadows made ahead", s.runner.Shadows.Kept.EndStock())
	s.closeRefusals()
	s.containers.Close()
	_, err := s.log.Append(context.Background(),
		audit.Entry{Event: audit.DaemonStopped{Reason: reason}})
	closeErr := s.log.Close()
	if !s.config.Private {
		// Caches must survive a shutdown of the host. A slow disk delays nothing else here.
		s.config.Log.Check("write caches to the disk", s.runner.Shadows.Kept.Caches().Settle())
	}
	// If err is set, closeErr has the same cause.
	if err == nil {
		err = closeErr
	}
	if err != nil {
		return problem.New(problem.Failed, "audit log: %w", err).WithHint("make room for the log")
	}
	return nil
}

// RecordAgents records steps of agents, all of them or none. It returns the numbers of the first
// and the last record.
func (s *Service) RecordAgents(entries []audit.Entry) (first, last uint64, err error) {
	return s.log.AppendAll(entries)
}

// stateFormat is the number of the layout of state directories. A directory without a number has
// format 1, as releases before 0.8 wrote it. A layout that an older jaild would misread takes the
// next number, and New then reads the previous one, too.
const stateFormat = 1

// formatFile holds the number, in the state directory.
const formatFile = "format"

// checkFormat returns an error for a state directory in a format that this version does not know.
// It writes the number into a directory that has none.
func checkFormat(dir string) error {
	path := filepath.Join(dir, formatFile)
	text, err := os.ReadFile(path)
	known := strconv.Itoa(stateFormat)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// Without the file the format is 1: a full disk does not keep a daemon from its state.
		_ = atomicfile.Write(path, []byte(known+"\n"), 0o600, atomicfile.Durable)
		return nil
	case err != nil:
		return problem.New(problem.Failed, "state directory: %w", err)
	case strings.TrimSpace(string(text)) != known:
		return problem.New(problem.Failed, "state directory %s: its format is %.20q, and jail %s "+
			"knows format %s", dir, strings.TrimSpace(string(text)), config.Version, known).
			WithHint("start the version of jail that wrote it, or name another directory with --state")
	}
	return nil
}
