package supervisor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/rootless"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/idrange"
	"github.com/jail-sandbox/jail/supervisor/inode"
	"github.com/jail-sandbox/jail/supervisor/modules"
	"github.com/jail-sandbox/jail/supervisor/mounts"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/rundir"
)

// A job is a request that was decided: everything is looked up and nothing is started.
type job struct {
	caller caller.Caller
	// when it was asked for
	begun    time.Time
	req      Request
	id       jail.ID
	eff      policy.Effective
	resolved bool
	tool     tool
	// nil where one tool is run
	script *script
	// the workspace's real directory, nil without one
	source *os.File
	cwd    string // in the jail
	binds  []*os.File
	// of the compiled modules that it uses
	cached *modules.Hold
	ids    *idrange.Range
	plan   jail.Plan
	env    []string
	// no run of a tool: the module is compiled for later runs
	compile bool
	// no run of a tool: the jail holds a session open
	hold *session
	// that it is an invocation of
	in  *session
	dry bool // nothing may start
	// of the host, that may run by their names and not with all that is beside them
	programs []inode.ID
}

// prepare decides a request. On error the job holds what was known by then.
func (s *Supervisor) prepare(ctx context.Context, c caller.Caller, req Request, dry bool) (*job,
	error) {
	j := &job{caller: c, req: req, dry: dry}
	return j, s.prepareJob(ctx, j)
}

func (s *Supervisor) prepareJob(ctx context.Context, j *job) error {
	j.begun, j.cached = time.Now(), &modules.Hold{}
	for _, step := range []func(context.Context, *job) error{s.identify, s.decide, s.openWorkspace,
		s.narrowByWorkspace, s.findCwd, s.openTool, s.makePlan} {
		if err := step(ctx, j); err != nil {
			return err
		}
	}
	return nil
}

func (j *job) close() {
	files := append(j.binds, j.tool.module, j.source)
	if j.script != nil {
		files = append(files, j.script.files()...)
	}
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
	j.cached.Close()
	if j.ids != nil && j.in == nil {
		j.ids.Release()
	}
}

func (s *Supervisor) identify(_ context.Context, j *job) error {
	if j.req.ID == "" {
		j.id = jail.NewID()
		return nil
	}
	id, err := jail.ParseID(j.req.ID)
	if err != nil {
		return problem.New(problem.Usage, "%v", err)
	}
	j.id = id
	return nil
}

func (s *Supervisor) decide(_ context.Context, j *job) (err error) {
	if j.in != nil {
		return j.decideIn()
	}
	j.eff, err = s.resolve(j.caller, j.req)
	j.resolved = err == nil
	return err
}

// openWorkspace opens the directory with the caller's rights; from here on it is its descriptor and
// not its name that counts.
func (s *Supervisor) openWorkspace(_ context.Context, j *job) error {
	if j.in != nil {
		return j.takeSource()
	}
	access := j.eff.Policy().Workspace.Access
	if access == policy.WorkspaceNone {
		if j.req.Workspace != "" && !j.req.NoWorkspace {
			return toolDenied("a workspace", j.eff.Decide(policy.Open{Path: policy.WorkspaceDir,
				Want: policy.Read}))
		}
		return nil
	}
	path := j.req.Workspace
	if path == "" {
		path = j.req.Dir
	}
	if !filepath.IsAbs(path) {
		return problem.New(problem.Usage, "workspace %q is not an absolute path", path)
	}
	f, err := j.caller.OpenDir(path)
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
	j.source = f
	return j.checkWorkspace()
}

// checkWorkspace refuses directories whose shadow nobody could review: all of the host, or all of a
// home.
func (j *job) checkWorkspace() error {
	info, err := j.source.Stat()
	if err != nil {
		return problem.New(problem.Failed, "workspace: %w", err)
	}
	for dir, what := range map[string]string{"/": "the root of the host",
		j.caller.Home: "your home directory"} {
		other, err := os.Stat(dir)
		if dir != "" && err == nil && os.SameFile(info, other) {
			return problem.New(problem.Refused,
				"workspace %s is %s, which holds far more than one tool should see",
				j.source.Name(), what).
				WithHint("go to the directory that the tool is for, or name it with --workspace")
		}
	}
	return nil
}

func (s *Supervisor) openTool(ctx context.Context, j *job) (err error) {
	if j.hold != nil {
		j.tool = tool{name: sessionTool, command: sessionTool}
		return nil
	}
	if j.req.Script != nil {
		return s.openScript(ctx, j)
	}
	if j.tool, err = s.findProgram(j); err != nil {
		return err
	}
	if err := s.narrowed(j); err != nil {
		return err
	}
	if err := j.tool.fits(j.memory()); err != nil || j.dry || j.tool.native != "" {
		return err
	}
	return s.compiled(ctx, j)
}

// narrowed meets what the policy says of the tool that was found. A program is looked for anew in
// what is left of the mounts: it must be there under its own name, and what starts it too.
func (s *Supervisor) narrowed(j *job) error {
	before := j.eff.Digest()
	if j.eff = j.eff.For(j.tool.name); j.eff.Digest() == before || j.tool.native == "" {
		return nil
	}
	t, err := s.native(j, j.tool.name)
	if err == nil && (t.name != j.tool.name || t.sum != j.tool.sum) {
		err = problem.New(problem.Refused,
			"program %s is another one in what [tool.%q] leaves of the mounts", j.tool.name,
			j.tool.name).
			WithHint("start it by its path")
	}
	return err
}

func (s *Supervisor) makePlan(_ context.Context, j *job) (err error) {
	if j.env, err = j.environ(); err != nil {
		return err
	}
	if j.req.Terminal != nil && j.tool.native == "" {
		return problem.New(problem.Usage, "a terminal is for programs of the host; %s is none",
			j.tool.name)
	}
	slice := s.config.Slice
	if j.in != nil {
		j.ids, slice = j.in.run.job.ids, j.in.group
	} else if j.ids, err = idrange.Take(); err != nil {
		return problem.New(problem.Busy, "%w", err).WithHint("try again when other runs have ended")
	}
	r := jail.Request{ID: j.id, Base: j.ids.Base, User: rootless.User(), Slice: slice,
		Caches: s.caches(j), Told: s.refusals != nil, Command: jail.Command{
			Runner: string(runners.KindWASI), Tool: j.tool.name, Digest: j.tool.digest(),
			Args: readable(j.args()), Env: readable(j.env), Cwd: j.cwd}}
	if j.script != nil {
		r.Command.Runner, r.Command.Script = string(runners.KindShell), j.script.steps
	}
	if j.hold != nil {
		r.Caches, r.Command.Runner, r.Command.Digest = nil, j.hold.runner(j.eff), ""
	}
	if j.tool.native != "" {
		r.Command.Runner, r.Command.Terminal = string(runners.KindNative), j.req.Terminal != nil
		if r.Programs, j.programs, err = s.findPrograms(j); err != nil {
			return err
		}
	}
	if j.source != nil {
		if r.Workspace, err = sourceOf(j.source, j.caller); err != nil {
			return problem.New(problem.Failed, "workspace: %w", err)
		}
	}
	if j.plan, err = jail.NewPlan(j.eff, r); err != nil {
		return problem.New(problem.Refused, "%w", err).
			WithHint("jail policy show, and --limit, say what the policy asks for")
	}
	j.fitSession()
	if err := j.fitOOMScore(); err != nil {
		return err
	}
	if inv := j.order().Invocation; inv.Validate() != nil {
		err := inv.Validate()
		return problem.New(problem.Usage, "%v", err)
	}
	if j.dry {
		return nil
	}
	if err := checkIO(s.config.Slice, j.eff.Policy().Limits); err != nil {
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
func (s *Supervisor) openBinds(j *job) (err error) {
	j.binds, err = mounts.Binds(j.plan, j.caller.Caller, s.layers)
	return err
}

// args are the tool's whole arguments: its name comes first.
func (j *job) args() []string { return append([]string{j.tool.command}, j.req.Args...) }

func (j *job) invocation() *runners.Invocation {
	inv := &runners.Invocation{Args: j.args(), Env: j.env, Cwd: j.plan.Command.Cwd,
		Layout:  j.tool.layout,
		Devices: j.plan.Devices, MemoryLimit: j.memory(), OpenFiles: j.openFiles(),
		CacheDir: filepath.Join(jail.CacheDir, "0")}
	if w := j.plan.Workspace; w != nil {
		inv.Mounts = append(inv.Mounts, runners.Mount{Path: w.Target, Write: w.Shadow,
			Hide: j.eff.Policy().Workspace.Hide})
	}
	for _, m := range j.plan.Mounts {
		if m.Kind != jail.MountProc && !strings.HasPrefix(m.Target, jail.CacheDir) {
			inv.Mounts = append(inv.Mounts, runners.Mount{Path: m.Target, Write: m.Write})
		}
	}
	return inv
}

func (j *job) memory() int64 {
	const all = 4 << 30 // what WebAssembly can address
	return min(j.eff.Policy().Limits.Memory, all)
}

func (j *job) openFiles() int { return int(min(j.eff.Policy().Limits.OpenFiles, 1<<20)) }

func (j *job) order() runners.Order {
	if j.compile {
		return runners.Order{Compile: true,
			Invocation: runners.Invocation{Args: []string{"compile"}, CacheDir: compileDir}}
	}
	if j.script != nil {
		o := j.script.order(j)
		o.Fetch = j.plan.Fetch != nil
		return o
	}
	if j.tool.native != "" {
		return j.nativeOrder()
	}
	return runners.Order{Invocation: *j.invocation(), Fetch: j.plan.Fetch != nil}
}

// modules are the descriptors that come with the order.
func (j *job) modules() []*os.File {
	if j.script != nil {
		return j.script.files()
	}
	if j.tool.module == nil {
		return nil
	}
	return []*os.File{j.tool.module}
}

func (s *Supervisor) caches(j *job) []string {
	if j.tool.native != "" {
		return nil
	}
	if j.script == nil {
		return []string{s.modules.cache.Path(j.tool.sum)}
	}
	var all []string
	for _, t := range j.script.tools {
		all = append(all, s.modules.cache.Path(t.sum))
	}
	return all
}

// filesOf opens the descriptors of one launch.
func (s *Supervisor) filesOf(j *job, w *workspace.Workspace) (*mounts.Files, error) {
	files := &mounts.Files{}
	files.Binds = j.binds
	if j.source == nil {
		return files, nil
	}
	var err error
	if w == nil {
		files.Lower, err = workspace.CloneLower(j.source)
	} else if files.Lower, err = w.Lower(); err == nil {
		files.Own(files.Lower)
		files.Upper, err = w.Upper()
	}
	if err != nil {
		files.Close()
		return nil, s.layers.Failed("shadow workspaces", err)
	}
	if w == nil {
		files.Own(files.Lower)
	} else {
		files.Own(files.Upper)
	}
	return files, nil
}

func (j *job) state() rundir.State {
	st := rundir.State{ID: string(j.id), Tool: j.tool.name, Args: readable(j.req.Args),
		Profile: j.profile(), Policy: j.eff.Digest(),
		UID: j.caller.UID, Cgroup: j.plan.Cgroup.Path, Session: j.session(),
		Files: j.plan.FileEvents != "", Started: time.Now().UTC()}
	if j.source != nil {
		st.Workspace = j.source.Name()
	}
	return st
}

func (j *job) profile() string {
	switch {
	case j.req.Policy != "":
		return j.req.PolicyName
	case j.req.Profile == "":
		return "default"
	}
	return j.req.Profile
}
