// Package supervisor turns a request into a run: it resolves the policy, makes the plan, prepares the workspace, writes the record, launches
// the jail, watches its limits and says how it ended. It is the only part that sees a whole run.
package supervisor

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/asuser"
	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/denials"
	"github.com/jail-sandbox/jail/jail/launch"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/profiles"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/bundle"
	"github.com/jail-sandbox/jail/supervisor/pool"
)

// Config says where things are. Every path is absolute.
type Config struct {
	StateDir string   // runs, workspaces, compiled modules, keys
	LogDir   string   // the audit log
	Bundles  []string // directories of tool bundles that came with jail, in order
	Tools    string   // where pulled bundles and the keys of their publishers are; readable by all
	Profiles string   // the operator's profiles
	Ceiling  string   // the host's ceiling; need not exist
	Fetch    string   // what the operator says of fetches; need not exist
	Audit    string   // what the operator says of the log; need not exist
	Exe      string   // the daemon's own program, which is also the fetch proxy's
	Shim     string   // jail-shim
	Init     string   // jail-init
	Slice    string   // control group above all jails
	Socket   string   // where the daemon listens, for the record
	Private  bool     // serves one client only
	Settings string   // what the operator says of the daemon; need not exist
	Bounds   Bounds   // of what runs at one time
	Refusals bool     // what Landlock refuses is to be told, by way of the host's audit
	Version  string
}

// Places say where this configuration has its bundles.
func (c Config) Places() bundle.Places { return bundle.Places{Dirs: c.Bundles, Tools: c.Tools} }

// A Caller is who asks, as the kernel told it.
type Caller struct {
	asuser.Caller
	PID  int
	Exe  string
	Home string // the home directory, where known: it is no workspace
}

func (c Caller) actor() audit.Actor { return audit.Actor{UID: c.UID, PID: c.PID, Exe: c.Exe} }

func (c Caller) workspace() workspace.Caller {
	return workspace.Caller{UID: c.UID, GID: c.GID, Groups: c.Groups}
}

// A Supervisor runs tools. Its methods may be called from several goroutines.
type Supervisor struct {
	config     Config
	launcher   launch.Launcher
	log        *timedLog
	meters     *meters
	queue      *queue
	compiling  *queue // before that, and at most as many as there are processors
	bundles    *bundle.Catalog
	workspaces *workspace.Store
	policies   *profiles.Source
	runs       *runStore
	outputs    *outputStore
	cache      *moduleCache
	sealed     sealedModules
	pool       *pool.Pool[kindOf, *warmJail] // of jails that wait; nil without one
	standing   *runStore                     // their directories
	digests    programDigests
	refusals   *denials.Watcher // nil where none are told

	poolBundles atomic.Pointer[bundle.Set] // that the pool's jails were made from

	filterMu sync.Mutex
	filter   []byte // of fetch proxies, compiled

	gate   sync.RWMutex    // held by whoever begins something; Close waits for that
	ending context.Context // done when nothing may begin any more
	end    context.CancelFunc

	mu       sync.Mutex
	active   map[string]*run
	sessions map[string]*session

	keeper    logKeeper      // of the log
	readers   *readers       // of what the log has
	following *readers       // of what comes to it
	behind    sync.WaitGroup // what is cleared away after the answer

	clearing chan struct{} // a place for each run that is
}

// later does what no caller waits for; Close does.
func (s *Supervisor) later(f func()) { s.behind.Go(f) }

// maxClearing is how many runs may be cleared away behind their answers. With more, a run waits for what is its own.
const maxClearing = 16

// clear gives back what a run had and nobody can use any more: behind its answer, if there is a place for it.
func (s *Supervisor) clear(f func()) {
	select {
	case s.clearing <- struct{}{}:
		s.later(func() {
			defer func() { <-s.clearing }()
			f()
		})
	default:
		f()
	}
}

// New opens the state and the log, clears what dead daemons left, and puts the start on record. Without a log there is no supervisor.
func New(ctx context.Context, c Config) (*Supervisor, error) {
	s := &Supervisor{config: c, launcher: launch.Launcher{Shim: c.Shim, Init: c.Init}, active: map[string]*run{}, sessions: map[string]*session{},
		clearing: make(chan struct{}, maxClearing), readers: newReaders(1), following: newReaders(maxFollowing)}
	s.ending, s.end = context.WithCancel(context.Background())
	for _, binary := range []string{c.Shim, c.Init} {
		if _, err := os.Stat(binary); err != nil {
			return nil, failed(err, "install jail-shim and jail-init beside jaild", "%v", err)
		}
	}
	if err := os.MkdirAll(c.StateDir, 0o700); err != nil {
		return nil, failed(err, "", "state directory: %v", err)
	}
	if err := os.MkdirAll(c.LogDir, 0o700); err != nil {
		return nil, failed(err, "", "audit log: %v", err)
	}
	s.queue, s.compiling, s.meters = newQueue(c.Bounds), newQueue(compileBounds(c.Bounds)), newMeters(s)
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
		return failed(err, "", "tool bundles: %v", err)
	}
	if s.workspaces, err = workspace.Open(filepath.Join(c.StateDir, "workspaces")); err != nil {
		return failed(err, "", "workspaces: %v", err)
	}
	if s.cache, err = openModuleCache(filepath.Join(c.StateDir, "modules"), c.Bounds.Cache); err != nil {
		return failed(err, "", "compiled modules: %v", err)
	}
	if s.outputs, err = openOutputs(filepath.Join(c.StateDir, "output")); err != nil {
		return failed(err, "", "outputs of detached runs: %v", err)
	}
	if s.runs, err = openRunStore(filepath.Join(c.StateDir, "runs")); err != nil {
		return failed(err, "", "runs: %v", err)
	}
	if s.standing, err = openRunStore(filepath.Join(c.StateDir, "pool")); err != nil {
		return failed(err, "", "jails that wait: %v", err)
	}
	started := audit.DaemonStarted{Version: c.Version, Socket: c.Socket, State: c.StateDir, Private: c.Private}
	if _, err := s.log.Append(ctx, audit.Entry{Event: started}); err != nil {
		return failed(err, "without a record nothing runs; make room for it", "audit log: %v", err)
	}
	if err := s.openPolicies(ctx); err != nil {
		return err
	}
	if err := s.recover(ctx); err != nil || c.Private {
		return err
	}
	s.openPool()
	s.watchPolicies()
	s.later(s.pruneQuietly)
	return nil
}

// recover settles what daemons that were killed left: commits that were cut off, jails that waited, some of them in sessions, runs, shadows.
func (s *Supervisor) recover(ctx context.Context) error {
	return errors.Join(s.settleCommits(ctx), s.clearStanding(), s.clearDead(ctx), s.sweepTerms())
}

// settleCommits finishes or undoes the commits that a dead daemon was at, and says so on record. One that cannot be settled now is no reason
// to stop everything else: it stays as it is, whoever asks for it is told, and the next daemon tries again.
func (s *Supervisor) settleCommits(ctx context.Context) error {
	settled, _ := s.workspaces.Recover(ctx)
	for _, w := range settled {
		if _, err := s.log.Append(ctx, audit.Entry{Run: w.ID, Event: settledEvent(w)}); err != nil {
			return failed(err, "", "audit log: %v", err)
		}
	}
	return nil
}

// clearDead ends and removes what daemons that were killed left behind, and says so on record.
func (s *Supervisor) clearDead(ctx context.Context) error {
	dead, err := s.runs.dead()
	if err != nil {
		return failed(err, "", "runs: %v", err)
	}
	for _, r := range dead {
		if err := s.clearRun(ctx, r); err != nil {
			return err
		}
	}
	return s.clearGroups(dead)
}

func (s *Supervisor) clearRun(ctx context.Context, r *runDir) error {
	// By its name and not by what its file says: a file that was cut short names no group, and no group is every process of the host.
	if err := errors.Join(clearCgroup(s.leafOf(r.state)), clearFetchGroup(s.leafOf(r.state))); err != nil {
		return failed(err, "", "run %s, left by a daemon that was killed: %v", r.state.ID, err)
	}
	if r.state.Files {
		lost := audit.Gap{Reason: "the daemon was killed: what the run did with files in its last seconds is not on record", Count: -1}
		if _, err := s.log.Append(ctx, audit.Entry{Run: r.state.ID, Session: r.state.Session, Policy: r.state.Policy, Event: lost}); err != nil {
			return failed(err, "", "audit log: %v", err)
		}
	}
	finished := audit.RunFinished{ExitCode: ExitFailed, Error: "the daemon was killed while the tool ran"}
	if w, err := s.workspaces.Get(r.state.ID); err == nil {
		finished.Workspace = "kept"
		w.Close()
	}
	if _, err := s.log.Append(ctx, audit.Entry{Run: r.state.ID, Session: r.state.Session, Policy: r.state.Policy, Event: finished}); err != nil {
		return failed(err, "", "audit log: %v", err)
	}
	if err := r.remove(); err != nil {
		return failed(err, "", "run %s: %v", r.state.ID, err)
	}
	return nil
}

// leafOf returns the control group of a run that its directory names, or "" if that is not one that the run can have: what the directory of a dead
// daemon says decides which processes are killed.
func (s *Supervisor) leafOf(st runState) string {
	dir, name := path.Split(path.Clean(st.Cgroup))
	above := path.Dir(besideCeiling(path.Join(dir, name)))
	if above != s.config.Slice && !s.isGroup(above, st.Session) || !strings.HasPrefix(name, st.ID+".") {
		return ""
	}
	return path.Join(dir, name)
}

func clearCgroup(name string) error {
	if name == "" {
		return nil // the daemon was killed before it wrote what it was about to start
	}
	if leaf, err := cgroup.Open(name); err == nil { // else it is gone already, whole or in part
		if err := leaf.Kill(killWait); err != nil {
			return err
		}
	}
	if err := cgroup.Remove(name); err != nil || besideCeiling(name) == name {
		return err
	}
	return cgroup.Remove(path.Dir(name))
}

// besideCeiling is where a leaf would be without the group that holds it to the host's ceiling.
func besideCeiling(leaf string) string {
	dir, name := path.Split(leaf)
	if above, ok := strings.CutSuffix(path.Clean(dir), "/"+name+jail.CeilingGroup); ok {
		return path.Join("/", above, name)
	}
	return leaf
}

// killWait is how long a killed control group may take to be empty before that is an error.
const killWait = 5 * time.Second

// Enter says that something begins, which Close waits for until leave is called: a run is ended by Close when it can be, and not before it has a
// record. When the supervisor ends there is an error, and nothing may begin.
func (s *Supervisor) Enter() (leave func(), err error) {
	s.gate.RLock()
	if s.ending.Err() != nil {
		s.gate.RUnlock()
		return nil, isEnding()
	}
	return sync.OnceFunc(s.gate.RUnlock), nil
}

func isEnding() *Error {
	return &Error{Code: CodeEnding, Message: "this jaild is being ended, and begins nothing more", Hint: "try again when it is there again"}
}

// untilEnding is a context that is done, too, when nothing may begin any more: for what takes long before a run can be ended.
func (s *Supervisor) untilEnding(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.ending, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// Connections is how many of its clients' may be open at one time, 0 for a daemon that serves one client and needs no bound.
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
	s.closePool() // whoever waits for that lets no more begin
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

// Close ends every run that is still active, with the signal's name in its result, and puts the end on record. What waits for a module to be compiled
// has not begun, and is told so.
func (s *Supervisor) Close(reason string, signal syscall.Signal) error {
	s.end()
	s.policies.Close()
	s.closePool()
	s.gate.Lock() // waits for what begins
	s.mu.Lock()
	all := make([]*run, 0, len(s.active))
	for _, r := range s.active {
		all = append(all, r)
	}
	s.mu.Unlock()
	s.gate.Unlock()
	for _, r := range all {
		r.end(cause{signal: int(signal)})
	}
	for _, r := range all {
		<-r.done
	}
	s.behind.Wait()
	s.closeRefusals()
	_, err := s.log.Append(context.Background(), audit.Entry{Event: audit.DaemonStopped{Reason: reason}})
	closeErr := s.log.Close()
	s.keeper.end()
	if err == nil { // else both are the same thing
		err = closeErr
	}
	if err != nil {
		return failed(err, "make room for the log", "audit log: %v", err)
	}
	return nil
}
