// Package prepare decides requests: it resolves the policy, opens the workspace, finds the tool and
// makes the plan. What it returns is a Job, of which nothing has started.
package prepare

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/rootless"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/profiles"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/bundle"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/config"
	"github.com/jail-sandbox/jail/supervisor/hostlayers"
	"github.com/jail-sandbox/jail/supervisor/idrange"
	"github.com/jail-sandbox/jail/supervisor/inode"
	"github.com/jail-sandbox/jail/supervisor/lifetime"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/modules"
	"github.com/jail-sandbox/jail/supervisor/mounts"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/rundir"
	"github.com/jail-sandbox/jail/supervisor/runlog"
)

// A Job is a request that was decided: everything is looked up and nothing is started.
type Job struct {
	Caller caller.Caller
	// Begun is when the job was asked for.
	Begun time.Time
	Req   message.Request
	ID    jail.ID
	// Policy is the effective policy, once Resolved.
	Policy   policy.Effective
	Resolved bool
	Tool     Tool
	// Script is nil where one tool is run.
	Script *Script
	// Source is the workspace's real directory, nil without one.
	Source *os.File
	// Cwd is the working directory in the jail.
	Cwd   string
	Binds []*os.File
	// cached are the compiled modules that the job uses.
	cached *modules.Hold
	// IDs are those of the jail; an invocation has its session's.
	IDs  *idrange.Range
	Plan jail.Plan
	env  []string
	// Compile says that the module is compiled for later runs, and no tool is run.
	Compile bool
	// Holds is how long the session may last that the jail holds open, in which no tool runs; 0
	// for any other jail.
	Holds time.Duration
	// In is the session that the job is an invocation of, or nil.
	In *Session
	// dry says that nothing may start.
	dry bool
	// Programs are those of the host that may run by their names, and not with all that is beside
	// them.
	Programs []inode.ID
}

// A Session is what its invocations have of it.
type Session struct {
	ID     jail.ID
	Policy policy.Effective
	Plan   jail.Plan
	IDs    *idrange.Range
	// Group is the control group of the session's invocations.
	Group string
	// Source is the workspace's real directory, nil without one.
	Source *os.File
}

// Options say what a Preparer needs of the daemon.
type Options struct {
	Config config.Config
	// Policies returns the policies of the host that are in force.
	Policies func() *profiles.State
	Bundles  *bundle.Catalog
	Layers   hostlayers.Host
	Life     *lifetime.Lifetime
	// Told says that the kernel tells what Landlock refuses.
	Told bool
	// Compile runs a job that compiles a module, and writes the compiled form to out. The failure
	// is what is wrong with the module.
	Compile func(ctx context.Context, j *Job, out io.Writer) (failure string, err error)
}

// A Preparer decides the requests of a daemon. Its methods may be called from several goroutines.
type Preparer struct {
	o       Options
	modules toolFiles
}

// New returns the preparer of a daemon, and opens its cache of compiled modules.
func New(o Options) (*Preparer, error) {
	s := &Preparer{o: o}
	return s, s.modules.open(o.Config)
}

// Module returns the verified bytes of an installed module that was used before, by its digest.
func (s *Preparer) Module(sum [sha256.Size]byte) (*os.File, bool) {
	return s.modules.sealed.BySum(sum)
}

// Run decides a request. On error the job holds what was known by then.
func (s *Preparer) Run(ctx context.Context, c caller.Caller, req message.Request) (*Job, error) {
	j := &Job{Caller: c, Req: req}
	return j, s.prepare(ctx, j)
}

// Plan makes the plan of a request and starts nothing. The range of host ids in it is one that is
// free now.
func (s *Preparer) Plan(ctx context.Context, c caller.Caller, req message.Request) (jail.Plan,
	error) {
	j := &Job{Caller: c, Req: req, dry: true}
	defer j.Close()
	err := s.prepare(ctx, j)
	return j.Plan, err
}

// Hold decides a request for the jail that holds a session open, for so long at most.
func (s *Preparer) Hold(ctx context.Context, c caller.Caller, req message.Request,
	total time.Duration) (*Job, error) {
	j := &Job{Caller: c, Req: req, Holds: total}
	return j, s.prepare(ctx, j)
}

// Invoke decides a request for an invocation of a session.
func (s *Preparer) Invoke(ctx context.Context, c caller.Caller, req message.Request,
	in *Session) (*Job, error) {
	j := &Job{Caller: c, Req: req, In: in}
	return j, s.prepare(ctx, j)
}

func (s *Preparer) prepare(ctx context.Context, j *Job) error {
	j.Begun, j.cached = time.Now(), &modules.Hold{}
	for _, step := range []func(context.Context, *Job) error{s.identify, s.decide, s.openWorkspace,
		s.narrowByWorkspace, s.findCwd, s.openTool, s.makePlan} {
		if err := step(ctx, j); err != nil {
			return err
		}
	}
	return nil
}

// Close lets go of all that the job holds.
func (j *Job) Close() {
	files := append(j.Binds, j.Tool.module, j.Source)
	if j.Script != nil {
		files = append(files, j.Script.files()...)
	}
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
	j.cached.Close()
	if j.IDs != nil && j.In == nil {
		j.IDs.Release()
	}
}

func (s *Preparer) identify(_ context.Context, j *Job) error {
	if j.Req.ID == "" {
		j.ID = jail.NewID()
		return nil
	}
	id, err := jail.ParseID(j.Req.ID)
	if err != nil {
		return problem.New(problem.Usage, "%v", err)
	}
	j.ID = id
	return nil
}

func (s *Preparer) decide(_ context.Context, j *Job) (err error) {
	if j.In != nil {
		return j.decideIn()
	}
	j.Policy, err = s.resolve(j.Caller, j.Req)
	j.Resolved = err == nil
	return err
}

// openWorkspace opens the directory with the caller's rights; from here on it is its descriptor and
// not its name that counts.
func (s *Preparer) openWorkspace(_ context.Context, j *Job) error {
	if j.In != nil {
		return j.takeSource()
	}
	access := j.Policy.Policy().Workspace.Access
	if access == policy.WorkspaceNone {
		if j.Req.Workspace != "" && !j.Req.NoWorkspace {
			return toolDenied("a workspace", j.Policy.Decide(policy.Open{Path: policy.WorkspaceDir,
				Want: policy.Read}))
		}
		return nil
	}
	path := j.Req.Workspace
	if path == "" {
		path = j.Req.Dir
	}
	if !filepath.IsAbs(path) {
		return problem.New(problem.Usage, "workspace %q is not an absolute path", path)
	}
	f, err := j.Caller.OpenDir(path)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err,
		syscall.ENAMETOOLONG), errors.Is(err, syscall.ELOOP):
		return problem.New(problem.NotFound, "workspace %s: %v", path, errors.Unwrap(err)).
			WithHint("name a directory with --workspace, or use --no-workspace")
	case problem.Short(err) != nil:
		return err
	case err != nil:
		return problem.New(problem.Refused, "workspace %s: %v", path, errors.Unwrap(err)).
			WithHint("the workspace is opened with your own rights")
	}
	j.Source = f
	return j.checkWorkspace()
}

// checkWorkspace refuses directories whose shadow nobody could review: all of the host, or all of a
// home.
func (j *Job) checkWorkspace() error {
	info, err := j.Source.Stat()
	if err != nil {
		return problem.New(problem.Failed, "workspace: %w", err)
	}
	for dir, what := range map[string]string{"/": "the root of the host",
		j.Caller.Home: "your home directory"} {
		other, err := os.Stat(dir)
		if dir != "" && err == nil && os.SameFile(info, other) {
			return problem.New(problem.Refused,
				"workspace %s is %s, which holds far more than one tool should see",
				j.Source.Name(), what).
				WithHint("go to the directory that the tool is for, or name it with --workspace")
		}
	}
	return nil
}

func (s *Preparer) openTool(ctx context.Context, j *Job) (err error) {
	if j.Holds > 0 {
		j.Tool = Tool{Name: sessionTool, command: sessionTool}
		return nil
	}
	if j.Req.Script != nil {
		return s.openScript(ctx, j)
	}
	if j.Tool, err = s.findProgram(j); err != nil {
		return err
	}
	if err := s.narrowed(j); err != nil {
		return err
	}
	if err := j.Tool.fits(j.memory()); err != nil || j.dry || j.Tool.Native != "" {
		return err
	}
	return s.compiled(ctx, j)
}

// narrowed meets what the policy says of the tool that was found. A program is looked for anew in
// what is left of the mounts: it must be there under its own name, and what starts it too.
func (s *Preparer) narrowed(j *Job) error {
	before := j.Policy.Digest()
	if j.Policy = j.Policy.For(j.Tool.Name); j.Policy.Digest() == before || j.Tool.Native == "" {
		return nil
	}
	t, err := s.native(j, j.Tool.Name)
	if err == nil && (t.Name != j.Tool.Name || t.Sum != j.Tool.Sum) {
		err = problem.New(problem.Refused,
			"program %s is another one in what [tool.%q] leaves of the mounts", j.Tool.Name,
			j.Tool.Name).
			WithHint("start it by its path")
	}
	return err
}

func (s *Preparer) makePlan(_ context.Context, j *Job) (err error) {
	if j.env, err = j.environ(); err != nil {
		return err
	}
	if j.Req.Terminal != nil && j.Tool.Native == "" {
		return problem.New(problem.Usage, "a terminal is for programs of the host; %s is none",
			j.Tool.Name)
	}
	slice := s.o.Config.Slice
	if j.In != nil {
		j.IDs, slice = j.In.IDs, j.In.Group
	} else if j.IDs, err = idrange.Take(); err != nil {
		return problem.New(problem.Busy, "%w", err).WithHint("try again when other runs have ended")
	}
	r := jail.Request{ID: j.ID, Base: j.IDs.Base, User: rootless.User(), Slice: slice,
		Later:  j.Holds == 0 && j.Tool.Native == "",
		Caches: s.caches(j), Told: s.o.Told, Command: jail.Command{
			Runner: string(runners.KindWASI), Tool: j.Tool.Name, Digest: j.Tool.Digest(),
			Args: runlog.Readable(j.args()), Env: runlog.Readable(j.env), Cwd: j.Cwd}}
	if j.Script != nil {
		r.Command.Runner, r.Command.Script = string(runners.KindShell), j.Script.steps
	}
	if j.Holds > 0 {
		r.Caches, r.Command.Runner, r.Command.Digest = nil, holder(j.Policy), ""
	}
	if j.Tool.Native != "" {
		r.Command.Runner, r.Command.Terminal = string(runners.KindNative), j.Req.Terminal != nil
		if r.Programs, j.Programs, err = s.findPrograms(j); err != nil {
			return err
		}
	}
	if j.Source != nil {
		if r.Workspace, err = sourceOf(j.Source, j.Caller); err != nil {
			return problem.New(problem.Failed, "workspace: %w", err)
		}
	}
	if j.Plan, err = jail.NewPlan(j.Policy, r); err != nil {
		return problem.New(problem.Refused, "%w", err).
			WithHint("jail policy show, and --limit, say what the policy asks for")
	}
	j.fitSession()
	if err := j.fitOOMScore(); err != nil {
		return err
	}
	if inv := j.Order().Invocation; inv.Validate() != nil {
		err := inv.Validate()
		return problem.New(problem.Usage, "%v", err)
	}
	if j.dry {
		return nil
	}
	if err := checkIO(s.o.Config.Slice, j.Policy.Policy().Limits); err != nil {
		return err
	}
	return s.openBinds(j)
}

// sourceOf says with whose ids the tool works on a directory: root's tools with those of its owner,
// everybody else's with their own, so that a tool never reads for its caller what the caller could
// not.
func sourceOf(dir *os.File, c caller.Caller) (*jail.Source, error) {
	if c.UID != 0 {
		return &jail.Source{Path: dir.Name(), UID: c.UID, GID: c.GID}, nil
	}
	info, err := dir.Stat()
	if err != nil {
		return nil, err
	}
	st := info.Sys().(*syscall.Stat_t)
	return &jail.Source{Path: dir.Name(), UID: st.Uid, GID: st.Gid}, nil
}

// openBinds opens what the policy mounts with the caller's rights, the cache with the daemon's.
func (s *Preparer) openBinds(j *Job) (err error) {
	j.Binds, err = mounts.Binds(j.Plan, j.Caller.Caller, s.o.Layers)
	return err
}

// args are the tool's whole arguments: its name comes first.
func (j *Job) args() []string { return append([]string{j.Tool.command}, j.Req.Args...) }

func (j *Job) invocation() *runners.Invocation {
	inv := &runners.Invocation{Args: j.args(), Env: j.env, Cwd: j.Plan.Command.Cwd,
		Layout:  j.Tool.layout,
		Devices: j.Plan.Devices, MemoryLimit: j.memory(), OpenFiles: j.openFiles(),
		CacheDir: filepath.Join(jail.CacheDir, "0")}
	if w := j.Plan.Workspace; w != nil {
		inv.Mounts = append(inv.Mounts, runners.Mount{Path: jail.SeenPath(w.Target),
			Source: w.Target, Write: w.Shadow, Hide: j.Policy.Policy().Workspace.Hide})
	}
	for _, m := range j.Plan.Mounts {
		if m.Kind != jail.MountProc && !strings.HasPrefix(m.Target, jail.CacheDir) {
			inv.Mounts = append(inv.Mounts, runners.Mount{Path: m.Target, Write: m.Write})
		}
	}
	return inv
}

func (j *Job) memory() int64 {
	const all = 4 << 30 // what WebAssembly can address
	return min(j.Policy.Policy().Limits.Memory, all)
}

func (j *Job) openFiles() int { return int(min(j.Policy.Policy().Limits.OpenFiles, 1<<20)) }

// Order is what jail-init is told to run.
func (j *Job) Order() runners.Order {
	if j.Compile {
		return runners.Order{Compile: true,
			Invocation: runners.Invocation{Args: []string{"compile"}, CacheDir: compileDir}}
	}
	if j.Script != nil {
		o := j.Script.order(j)
		o.Fetch = j.Plan.Fetch != nil
		return o
	}
	if j.Tool.Native != "" {
		return j.nativeOrder()
	}
	return runners.Order{Invocation: *j.invocation(), Fetch: j.Plan.Fetch != nil}
}

// Modules are the descriptors that come with the order.
func (j *Job) Modules() []*os.File {
	if j.Script != nil {
		return j.Script.files()
	}
	if j.Tool.module == nil {
		return nil
	}
	return []*os.File{j.Tool.module}
}

func (s *Preparer) caches(j *Job) []string {
	if j.Tool.Native != "" {
		return nil
	}
	if j.Script == nil {
		return []string{s.modules.cache.Path(j.Tool.Sum)}
	}
	var all []string
	for _, t := range j.Script.tools {
		all = append(all, s.modules.cache.Path(t.Sum))
	}
	return all
}

// State is what the directory of the run says of it.
func (j *Job) State() rundir.State {
	st := rundir.State{ID: string(j.ID), Tool: j.Tool.Name, Args: runlog.Readable(j.Req.Args),
		Profile: j.profile(), Policy: j.Policy.Digest(),
		UID: j.Caller.UID, Cgroup: j.Plan.Cgroup.Path, Session: j.Session(),
		Files: j.Plan.FileEvents != "", Started: time.Now().UTC()}
	if j.Source != nil {
		st.Workspace = j.Source.Name()
	}
	return st
}

func (j *Job) profile() string {
	switch {
	case j.Req.Policy != "":
		return j.Req.PolicyName
	case j.Req.Profile == "":
		return "default"
	}
	return j.Req.Profile
}

// checkIO refuses a policy that bounds the use of disks where nothing below slice could hold it.
func checkIO(slice string, l policy.Limits) error {
	if l.IORead == policy.Unlimited && l.IOWrite == policy.Unlimited {
		return nil
	}
	if err := cgroup.MissingIO(slice); err != nil {
		return problem.MissingLayer("control groups",
			fmt.Sprintf("limits io_read and io_write need them to bound the use of disks: %v", err),
			"take io_read and io_write out of the policy, or enable the controller (blkio, or io of cgroup v2)", err)
	}
	return nil
}
