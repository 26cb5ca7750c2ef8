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
	// approvals are the actions that wait for somebody.
	approvals *approvals.Queue
	// containers are those of OCI engines.
	containers *containers.Keeper
}

// New opens the state and the log, clears what dead daemons left, and puts the start on record.
// Without a log there is no service.
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
		// Shadows of a user's daemon are memory of the session.
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

// newRunner returns the runner of a daemon, with what needs no file of the state.
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

// open opens the state, in an order in which each part finds what it needs.
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
	// A jail that was made under the old policies is for nobody, and takes up room.
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
		// First, since the shadow of a session that may be woken is not forgotten, and neither is
		// that of an action that was approved.
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

// lookEvery is how often a daemon looks for runs whose grants are over, or were revoked by another
// daemon.
const lookEvery = 2 * time.Second

// sweepEvery is how often a daemon looks for what others, killed meanwhile, have left half made.
const sweepEvery = 10 * time.Minute

// openPool starts the pool of prewarmed jails. A private daemon serves one command and has none. A
// daemon of an ordinary user has too few rights to attach a workspace to a jail that was started
// before.
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

// openRefusals begins to read what Landlock refuses on this host. Where that is not to be had the
// daemon does without: no wall depends on it, and jail doctor says why.
func (s *Service) openRefusals() {
	if s.config.Refusals {
		var err error
		s.runner.Jails.Refusals, err = denials.Start()
		s.config.Log.Check("read what Landlock refuses", err)
	}
}

// closeRefusals ends that. No run is active any more.
func (s *Service) closeRefusals() {
	if refusals := s.runner.Jails.Refusals; refusals != nil {
		// nothing is read any more in any case
		_ = refusals.Close()
	}
}

// Run runs a tool for a caller. See [run.Runner.Run].
func (s *Service) Run(ctx context.Context, c caller.Caller, req message.Request,
	streams stdio.Streams) message.Result {
	return s.runner.Run(ctx, c, req, streams)
}

// Live are the runs that are alive.
func (s *Service) Live() *live.Runs {
	return &live.Runs{Own: s.runner.Live, Dirs: s.runner.Dirs, Slice: s.config.Slice,
		Detached: s.detached, Records: s.records, Permissions: s.permissionsOf}
}

// Sessions are the open ones.
func (s *Service) Sessions() *session.Sessions { return s.sessions }

// runDetached runs what goes on without its client: a run, or an invocation of a session.
func (s *Service) runDetached(ctx context.Context, c caller.Caller, req message.DetachRequest,
	streams stdio.Streams) message.Result {
	if req.Session != "" {
		return s.sessions.Exec(ctx, c, req.Session, req.Exec(), streams)
	}
	return s.runner.Run(ctx, c, req.Request, streams)
}

// Detached are the runs that go on without their clients.
func (s *Service) Detached() *detached.Runs { return s.detached }

// Preparer decides requests.
func (s *Service) Preparer() *prepare.Preparer { return s.runner.Preparer }

// Containers decides for those of OCI engines.
func (s *Service) Containers() *containers.Keeper { return s.containers }

// Workspaces are the shadows that are kept.
func (s *Service) Workspaces() *shadows.Store { return s.runner.Shadows }

// Approvals are the actions that wait for somebody's approval.
func (s *Service) Approvals() *approvals.Queue { return s.approvals }

// ProposeCommit proposes to commit a shadow, whatever its policy says of approvals.
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

// mayGrant returns an error unless a grant of a policy could be used as it is proposed.
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

// endUngranted ends the runs and sessions that were given more than their profile by a grant that is
// over.
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

// Revoke ends a grant, and what lives of it. See [approvals.Queue.Revoke].
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

// ruleFor returns what the policy of a live run or session says of an action. Where an action is of
// no run, a person is asked unless the ceiling forbids the action.
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

// Records reads the log for callers.
func (s *Service) Records() *records.Reader { return s.records }

// Policies are the policy files of the host that are in force.
func (s *Service) Policies() *hostpolicy.Policies { return s.policies }

// Host looks at what the host can enforce.
func (s *Service) Host() *hoststatus.Checks { return s.host }

// Meters are what the daemon counts.
func (s *Service) Meters() *meters.Meters { return s.runner.Meters }

// Tools changes the bundles of the host.
func (s *Service) Tools() *tools.Manager {
	return &tools.Manager{Store: &bundle.Store{Dir: s.config.Tools, Shipped: s.config.Bundles,
		Check: tools.CheckModule}, Catalog: s.installed.bundles, Log: s.log, Permissions: s.permissionsOf}
}

// Images adds and removes images of the host.
func (s *Service) Images() *tools.Images {
	return &tools.Images{Manager: *s.Tools(), Images: s.installed.images, Rules: s.rules}
}

func (s *Service) rules() syntax.Host { return s.policies.Current().Rules() }

// Names knows what users call runs and sessions.
func (s *Service) Names() *naming.Namer {
	return &naming.Namer{Names: s.names, Owner: s.ownerOf, Permissions: s.permissionsOf}
}

func (s *Service) permissionsOf(c caller.Caller) caller.Permissions {
	return caller.PermissionsOf(s.policies.Current().Rules(), c)
}

// live returns the run or session of an id that this daemon has not ended.
func (s *Service) live(id string) shadows.Live {
	if r := s.runner.Live(id); r != nil {
		return r
	}
	return nil
}

// ownerOf returns the user of a run, of a session, or of what is left of one: nil if the user is
// not known. there is false if nothing has that id.
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

// Enter announces that something begins. See [lifetime.Lifetime.Enter].
func (s *Service) Enter() (leave func(), err error) { return s.runner.Life.Enter() }

// Connections is how many of its clients' may be open at one time, 0 for a daemon that serves one
// client and needs no bound.
func (s *Service) Connections() int {
	if s.config.Private {
		return 0
	}
	return s.config.Bounds.Connections
}

// Active is how many runs, sessions and containers are alive.
func (s *Service) Active() int { return len(s.runner.AllLive()) + s.containers.Living() }

// Idle returns when no run is active, or with ctx's error.
func (s *Service) Idle(ctx context.Context) error {
	// a caller that waits for that lets no more begin
	s.runner.Jails.Pool.Close()
	for {
		all := s.runner.AllLive()
		if len(all) == 0 {
			return nil
		}
		select {
		case <-all[0].Done():
			// It takes its name out of the list just before; see run.Runner.Do.
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close ends every run that is still active, with the signal's name in its result, and puts the end
// on record. A run that waits for a module to be compiled has not begun, and its
// caller gets an error that says so.
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
		// They outlive the end of the host, which may follow. A slow disk delays nothing else.
		s.config.Log.Check("write caches to the disk", s.runner.Shadows.Kept.Caches().Settle())
	}
	// else both are the same thing
	if err == nil {
		err = closeErr
	}
	if err != nil {
		return problem.New(problem.Failed, "audit log: %w", err).WithHint("make room for the log")
	}
	return nil
}

// RecordAgents puts steps of agents on record, all of them or none. It returns the numbers of the
// first and the last record.
func (s *Service) RecordAgents(entries []audit.Entry) (first, last uint64, err error) {
	return s.log.AppendAll(entries)
}

// stateFormat is the number of the layout of state directories. A directory without a number has
// format 1, as releases before 0.8 wrote it. A layout that an older jaild would misread takes the
// next number, and New then reads the previous one, too.
const stateFormat = 1

// formatFile holds the number, in the state directory.
const formatFile = "format"

// checkFormat refuses a state directory of a format that this version does not know. It writes the
// number into a directory that has none.
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
