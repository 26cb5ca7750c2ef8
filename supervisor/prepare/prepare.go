// Package prepare turns requests into jobs: it resolves the policy, opens the workspace, finds the
// tool and makes the plan. Nothing of a job has started yet.
package prepare

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/outer"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/profiles"
	"github.com/jail-sandbox/jail/supervisor/bundle"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/config"
	"github.com/jail-sandbox/jail/supervisor/hostlayers"
	"github.com/jail-sandbox/jail/supervisor/images"
	"github.com/jail-sandbox/jail/supervisor/lifetime"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/modules"
	"github.com/jail-sandbox/jail/supervisor/mounts"
	"github.com/jail-sandbox/jail/supervisor/prewarm"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// Options are what a Preparer uses of the daemon.
type Options struct {
	Config config.Config
	// Policies returns the current policies of the host.
	Policies func() *profiles.State
	Bundles  *bundle.Catalog
	Layers   hostlayers.Host
	Life     *lifetime.Lifetime
	// Widening returns what the grant id adds to a run of the user under a profile, as an agent or
	// "".
	Widening func(uid uint32, id, profile, agent string) (policy.Widening, error)
	// Runtimes finds the programs of outer layers.
	Runtimes *outer.Runtimes
	// Images holds the unpacked images.
	Images *images.Store
	// Told says that the kernel tells what Landlock refuses.
	Told bool
	// ProcFixed says that the kernel narrows no mounted proc.
	ProcFixed bool
	// Compile runs a job that compiles a module, and writes the compiled form to out. failure is
	// the compiler's complaint about the module, or "".
	Compile func(ctx context.Context, j *Job, out io.Writer) (failure string, err error)
}

// A Preparer makes jobs for a daemon. Its methods may be called from several goroutines.
type Preparer struct {
	o       Options
	modules toolFiles
	// relays numbers the proxy relays on loopback interfaces that invocations share.
	relays atomic.Uint32
}

// New returns a preparer. It opens the cache of compiled modules.
func New(o Options) (*Preparer, error) {
	s := &Preparer{o: o}
	return s, s.modules.open(o.Config)
}

// Module returns the verified bytes of an installed or an agent's module that was used before. ok
// is false if none with this digest is kept.
func (s *Preparer) Module(sum [sha256.Size]byte) (*os.File, bool) { return s.modules.bySum(sum) }

// Run prepares the job of a request. On error the job has what was known by then.
func (s *Preparer) Run(ctx context.Context, c caller.Caller, req message.Request) (*Job, error) {
	j := &Job{Caller: c, Req: req}
	return j, s.prepare(ctx, j, false)
}

// Plan returns the plan of a request and starts nothing. Its range of host ids is one that is free
// now.
func (s *Preparer) Plan(ctx context.Context, c caller.Caller, req message.Request) (jail.Plan,
	error) {
	j := &Job{Caller: c, Req: req}
	defer j.Close()
	err := s.prepare(ctx, j, true)
	return j.Plan, err
}

// Hold prepares the job of the jail that holds a session open for at most total. wakes is set if
// the session slept and its shadow exists.
func (s *Preparer) Hold(ctx context.Context, c caller.Caller, req message.Request,
	total time.Duration, wakes bool) (*Job, error) {
	j := &Job{Caller: c, Req: req, Holds: Holding{For: total, Wakes: wakes}}
	return j, s.prepare(ctx, j, false)
}

// Invoke prepares an invocation of a session.
func (s *Preparer) Invoke(ctx context.Context, c caller.Caller, req message.Request,
	in *Session) (*Job, error) {
	j := &Job{Caller: c, Req: req, In: &Invocation{Session: in}}
	return j, s.prepare(ctx, j, false)
}

// prepare fills in j, step by step. If dry, nothing is compiled or mounted.
func (s *Preparer) prepare(ctx context.Context, j *Job, dry bool) (err error) {
	j.Begun, j.Host.cached = time.Now(), &modules.Hold{}
	if j.ID, err = identify(j.Req.ID); err != nil {
		return err
	}
	if j.Req.KeepEnv && j.In == nil {
		return problem.New(problem.Usage, "keep_env is for the invocations of a session")
	}
	if err = j.checkFiles(); err != nil {
		return problem.New(problem.Usage, "files: %v", err)
	}
	if j.Policy, err = s.decide(j); err != nil {
		return err
	}
	if j.Host.Agent, err = j.asAgent(); err != nil {
		return err
	}
	if j.Source, err = j.openWorkspace(); err != nil {
		return err
	}
	if err = s.narrowByWorkspace(j); err != nil {
		return err
	}
	if j.Host.Image, err = s.image(ctx, j); err != nil {
		return err
	}
	cwd, err := j.findCwd()
	if err != nil {
		return err
	}
	f := &finder{p: s, caller: j.Caller, req: j.Req, policy: j.Policy, source: j.Source, cwd: cwd,
		agent: j.Host.Agent, image: j.Host.Image}
	j.Tool, err = f.find(j.Holds.For > 0)
	if j.Policy = f.policy; err != nil {
		return err
	}
	if j.In != nil {
		j.In.Shared = j.mayShare()
	}
	if !dry && j.Holds.For == 0 {
		for _, t := range j.Tool.modules() {
			if err := s.compiled(ctx, j, t); err != nil {
				return err
			}
		}
	}
	if err := j.fitsOuter(); err != nil {
		return err
	}
	if err := s.makePlan(ctx, j, f); err != nil || dry {
		return err
	}
	if err := checkIO(s.o.Config.Slice, j.Policy.Policy().Limits); err != nil {
		return err
	}
	if j.Shared() && !prewarm.HasHost(j.Plan) {
		// The engine has its mounts already.
		return nil
	}
	// What the policy mounts is opened with the caller's rights, the cache with the daemon's.
	j.Host.Binds, err = mounts.Binds(j.Plan, j.Caller.Caller, s.o.Layers)
	return err
}

func identify(asked string) (jail.ID, error) {
	if asked == "" {
		return jail.NewID(), nil
	}
	id, err := jail.ParseID(asked)
	if err != nil {
		return "", problem.New(problem.Usage, "%v", err)
	}
	return id, nil
}

// decide returns the effective policy. An invocation has the policy that its session started with,
// narrowed by its own limits.
func (s *Preparer) decide(j *Job) (policy.Effective, error) {
	if j.In == nil {
		return s.resolve(j.Caller, j.Req)
	}
	if len(j.Req.Limits) == 0 {
		return j.In.Policy, nil
	}
	flags, err := readFlags(message.Request{Limits: j.Req.Limits})
	if err != nil {
		return policy.Effective{}, err
	}
	return resolve(append(j.In.Policy.Layers(), policy.Layer{Name: invocationLayer,
		Source: "command line", Policy: flags.Policy()}))
}

// openWorkspace opens the workspace with the caller's rights. From here on the descriptor is used
// and not the name. It returns nil if the run has no workspace.
func (j *Job) openWorkspace() (*os.File, error) {
	if j.In != nil {
		return j.In.openSource()
	}
	access := j.Policy.Policy().Workspace.Access
	if access == policy.WorkspaceNone {
		if j.Req.Workspace != "" && !j.Req.NoWorkspace {
			return nil, notAllowed("a workspace",
				j.Policy.Decide(policy.Open{Path: policy.WorkspaceDir, Want: policy.Read}))
		}
		return nil, nil
	}
	path := cmp.Or(j.Req.Workspace, j.Req.Dir)
	if !filepath.IsAbs(path) {
		return nil, problem.New(problem.Usage, "workspace %q is not an absolute path", path)
	}
	f, err := j.Caller.OpenDir(path)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err,
		syscall.ENAMETOOLONG), errors.Is(err, syscall.ELOOP):
		return nil, problem.New(problem.NotFound, "workspace %s: %v", path, errors.Unwrap(err)).
			WithHint("name a directory with --workspace, or use --no-workspace")
	case problem.Short(err) != nil:
		return nil, err
	case err != nil:
		return nil, problem.New(problem.Refused, "workspace %s: %v", path, errors.Unwrap(err)).
			WithHint("the workspace is opened with your own rights")
	}
	return f, j.checkWorkspace(f)
}

// checkWorkspace refuses the root of the host and the caller's home, whose shadows nobody could
// review.
func (j *Job) checkWorkspace(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return problem.New(problem.Failed, "workspace: %w", err)
	}
	for dir, what := range map[string]string{"/": "the root of the host",
		j.Caller.Home: "your home directory"} {
		other, err := os.Stat(dir)
		if dir != "" && err == nil && os.SameFile(info, other) {
			return problem.New(problem.Refused,
				"workspace %s is %s, which holds far more than one tool should see",
				f.Name(), what).
				WithHint("go to the directory that the tool is for, or name it with --workspace")
		}
	}
	return nil
}

// A finder finds the tool of a job with the caller's rights.
type finder struct {
	p      *Preparer
	caller caller.Caller
	req    message.Request
	// policy is the effective policy. The rules for the tool that is found narrow it.
	policy policy.Effective
	// source is the workspace's real directory, nil without one.
	source *os.File
	// cwd is the working directory, in the paths of policies.
	cwd string
	// agent is nil unless the tool is an agent.
	agent *Agent
	// image is nil unless the tool is a program of an image.
	image *Image
	// asked is set if the tool needs an approval. asks are the commands of a script that do.
	asked bool
	asks  []Asked
}

// An Asked is a tool that starts only after an approval.
type Asked struct{ Name, Digest string }

// permits returns the policy's decision on a start, and whether it is allowed, at least with an
// approval.
func (f *finder) permits(q policy.Question) (policy.Decision, bool) {
	d := f.policy.Decide(q)
	f.asked = f.asked || d.Ask
	return d, d.Allowed || d.Ask
}

// target returns the path at which the tool finds the workspace.
func (f *finder) target(t Tool) target {
	at := targetOf(f.policy, f.source)
	if t.Native == "" && t.Name != sessionTool {
		at = at.ofModule(f.policy.Policy().Mounts)
	}
	return at
}

// find finds the script or tool of the job. If holds, the job holds a session and runs none.
func (f *finder) find(holds bool) (Tool, error) {
	if holds {
		return Tool{Name: sessionTool, command: sessionTool}, nil
	}
	if f.req.Script != nil {
		t, err := f.script()
		t.Asks = f.asks
		return t, err
	}
	t, err := f.findProgram()
	if err == nil {
		err = f.narrow(t)
	}
	if err == nil {
		err = t.fits(memory(f.policy))
	}
	if f.asked {
		t.Asks = []Asked{{t.Name, t.digest()}}
	}
	return t, err
}

// narrow applies the policy's rules for the tool that was found. A program is looked up again in
// the mounts that are left: it must have the same content at the same path, and what starts it must
// be there too.
func (f *finder) narrow(found Tool) error {
	before := f.policy.Digest()
	if f.policy = f.policy.For(found.Name); f.policy.Digest() == before || found.Native == "" {
		return nil
	}
	t, err := f.native(found.Name)
	if err == nil && (t.Name != found.Name || t.Sum != found.Sum) {
		err = problem.New(problem.Refused,
			"program %s is another one in what [tool.%q] leaves of the mounts", found.Name,
			found.Name).
			WithHint("start it by its path")
	}
	return err
}
