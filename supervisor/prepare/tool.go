package prepare

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/asuser"
	"github.com/jail-sandbox/jail/jail/launch"
	"github.com/jail-sandbox/jail/jail/rootless"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/wasi"
	"github.com/jail-sandbox/jail/supervisor/admission"
	"github.com/jail-sandbox/jail/supervisor/bundle"
	"github.com/jail-sandbox/jail/supervisor/config"
	"github.com/jail-sandbox/jail/supervisor/lifetime"
	"github.com/jail-sandbox/jail/supervisor/modules"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// A Tool is what a job runs: a WebAssembly module, a program of the host, or a script.
type Tool struct {
	// Name is BUNDLE/COMMAND, the path of a module, or the path of a program.
	Name string
	// command is argument 0 of the tool.
	command string
	Sum     [sha256.Size]byte
	layout  runners.Layout
	module  *os.File // the verified module in a sealed memfd; nil for a program or a script
	// Native is the path in the jail of a program; "" for a module or a script.
	Native string
	// installed is set for a module of an installed bundle, and not for one that a caller names by
	// its path.
	installed bool
	// Asks are the tools that start only after an approval: this one, or commands of the script.
	Asks []Asked
	// memory is the least linear memory of the module, in bytes.
	memory int64
	// Imports are the functions that the module imports.
	Imports []string
	needs   *bundle.Needs // what a pulled bundle asks for; nil for other tools
	// Script is nil where one tool is run.
	Script *Script
}

// digest returns the SHA-256 of the module, program or script text, as "sha256:HEX".
func (t Tool) digest() string { return "sha256:" + hex.EncodeToString(t.Sum[:]) }

// fetches reports whether the module imports a function of the fetch interface.
func (t Tool) fetches() bool {
	return slices.ContainsFunc(t.Imports, func(name string) bool {
		return strings.HasPrefix(name, wasi.Fetch+".")
	})
}

// modules returns the tools whose modules run: the tool itself, or for a script its commands. A
// program of the host has none.
func (t Tool) modules() []Tool {
	switch {
	case t.Script != nil:
		return t.Script.tools
	case t.Native != "":
		return nil
	}
	return []Tool{t}
}

// files returns the open files of the modules.
func (t Tool) files() (all []*os.File) {
	for _, m := range t.modules() {
		if m.module != nil {
			all = append(all, m.module)
		}
	}
	return all
}

// toolFiles holds the modules and the digests of programs that the daemon keeps between runs.
type toolFiles struct {
	// cache holds the compiled modules. compiling admits the jails that compile them.
	cache     *modules.Cache
	compiling *admission.Queue
	// sealed holds the verified bytes of installed modules, and agents those of agents' modules
	// that users brought, since agents run again and again. digests caches digests of programs.
	sealed, agents modules.Sealed[Tool]
	digests        modules.Digests
}

// maxAgentModules bounds the total bytes of the modules kept in agents.
const maxAgentModules = 64 << 20

// bySum returns a descriptor of the kept module with this digest. ok is false if none is kept.
func (f *toolFiles) bySum(sum [sha256.Size]byte) (*os.File, bool) {
	if module, ok := f.sealed.BySum(sum); ok {
		return module, true
	}
	return f.agents.BySum(sum)
}

// open opens the cache and the compile queue with the bounds of the configuration.
func (f *toolFiles) open(c config.Config) (err error) {
	f.agents.Most = maxAgentModules
	f.compiling = admission.New(admission.CompileBounds(c.Bounds))
	f.cache, err = modules.Open(filepath.Join(c.StateDir, "modules"), c.Bounds.Cache)
	return err
}

// findTool finds the module of a tool. A name that ends in .wasm or begins with /, ./ or ../ is a
// file of the caller; any other is a command of an installed bundle. The policy decides before the
// module is read.
func (f *finder) findTool(name string) (Tool, error) {
	switch {
	case name == "":
		return Tool{}, problem.New(problem.Usage, "no tool is named")
	case strings.ContainsRune(name, 0):
		return Tool{}, problem.New(problem.Usage, "the tool's name has a NUL byte")
	case strings.HasSuffix(name, ".wasm") || strings.HasPrefix(name, "/") || strings.HasPrefix(name,
		"./") || strings.HasPrefix(name, "../"):
		return f.moduleFile(name)
	}
	return f.bundled(name)
}

func (f *finder) bundled(name string) (Tool, error) {
	c, err := f.p.o.Bundles.Find(name)
	if err != nil && !bundle.IsMissing(err) {
		return Tool{}, problem.New(problem.Failed, "tool %s: %w", name, err).
			WithHint("jail tool verify says what is wrong with the pulled bundles")
	}
	if err != nil {
		return Tool{}, problem.New(problem.NotFound, "%w", err).WithHint(f.hintFor(name))
	}
	t := Tool{Name: c.Bundle + "/" + c.Name, command: c.Name, installed: true, needs: c.Needs}
	if d, ok := f.permits(policy.Tool{Bundle: c.Bundle, Command: c.Name}); !ok {
		denied := notAllowed("tool "+t.Name, d)
		if d.Layer != policy.CeilingLayer {
			denied.Hint = f.grantBeside("--add-tool " + t.Name)
		}
		return t, denied
	}
	own, err := narrowed(f.policy, c.Bundle, c.Needs)
	if err != nil {
		return t, problem.New(problem.Failed, "tool %s: %w", t.Name, err)
	}
	f.policy = own
	path := c.Module.Path()
	before, err := modules.StampOf(path)
	if err != nil {
		return t, problem.New(problem.Failed, "tool %s: %w", t.Name, err).
			WithHint("install the bundle anew")
	}
	if known, module, ok := f.p.modules.sealed.Get(path, before); ok {
		known.module = module
		known.Name, known.command, known.needs = t.Name, t.command, t.needs
		err := known.mayImport(f)
		return known, err
	}
	module, err := c.Module.Read()
	if err != nil {
		return t, problem.New(problem.Failed, "tool %s: %w", t.Name, err).
			WithHint("install the bundle anew: its files are not those of its manifest")
	}
	if err := t.take(module, runners.Layout(c.Module.Layout)); err != nil {
		return t, err
	}
	about := t
	about.module = nil
	if err := f.p.modules.sealed.Put(path, before, t.Sum, t.module, about); err != nil {
		return t, problem.New(problem.Failed, "tool %s: %w", t.Name, err)
	}
	err = t.mayImport(f)
	return t, err
}

// grantBeside returns a hint for making a profile that grants flag and all that the run's own
// profile grants.
func (f *finder) grantBeside(flag string) string {
	return fmt.Sprintf(
		"jail profile new mine --from %s %s makes a profile that lets it run "+
			"beside what %[1]s grants: jail run --policy mine.toml", profileName(f.req), flag)
}

// hintFor returns a hint for a tool that is not installed. If the host has a program of that name,
// the hint tells how to run it in a jail.
func (f *finder) hintFor(name string) string {
	const list = "jail tool list shows what is installed"
	if slices.Contains([]string{"sh", "bash", "dash", "zsh"}, name) {
		return "jail sh -c SCRIPT runs a script of installed tools; --profile build has the " +
			"host's own " + name
	}
	for _, dir := range filepath.SplitList(defaultPath) {
		at := filepath.Join(dir, name)
		if info, err := os.Stat(at); err == nil && info.Mode().IsRegular() &&
			info.Mode()&0o111 != 0 {
			return at + " is a program of this host: --profile build " +
				"runs it with others of its kind; " + f.grantBeside("--native "+at)
		}
	}
	at := ""
	if err := f.caller.Do(func() error { at = f.outside(name); return nil }); err == nil && at != "" {
		return at + " is a program of this host: jail profile new --from-here writes a profile " +
			"that shows it and the rest of your PATH"
	}
	return list
}

// moduleFile reads a module file of the caller with the caller's rights.
func (f *finder) moduleFile(name string) (Tool, error) {
	path := name
	if !filepath.IsAbs(path) {
		path = filepath.Join(f.req.Dir, path)
	}
	path = filepath.Clean(path)
	t := Tool{Name: path, command: strings.TrimSuffix(filepath.Base(path), ".wasm")}
	if d, ok := f.permits(policy.Module{Path: path}); !ok {
		return t, notAllowed("module "+path, d)
	}
	file, info, err := f.caller.OpenFile(path)
	if err != nil {
		return t, unreadable(path, err)
	}
	defer file.Close()
	kept, stamp := fmt.Sprintf("%d %s", f.caller.UID, path), modules.StampOfInfo(info)
	if f.agent != nil {
		if known, module, ok := f.p.modules.agents.Get(kept, stamp); ok {
			known.module = module
			err := known.mayImport(f)
			return known, err
		}
	}
	module, err := asuser.ReadAll(file, wasi.MaxModuleBytes)
	if err != nil {
		return t, unreadable(path, err)
	}
	if err = t.take(module, ""); err != nil {
		return t, err
	}
	if f.agent != nil && stamp.Settled() {
		about := t
		about.module = nil
		if err := f.p.modules.agents.Put(kept, stamp, t.Sum, t.module, about); err != nil {
			return t, problem.New(problem.Failed, "module %s: %w", path, err)
		}
	}
	err = t.mayImport(f)
	return t, err
}

// unreadable returns the error for a module of the caller that cannot be read.
func unreadable(path string, err error) error {
	switch {
	case errors.Is(err, asuser.ErrTooLarge):
		return problem.New(problem.Refused, "module %s is larger than %d MiB", path,
			wasi.MaxModuleBytes>>20)
	case errors.Is(err, asuser.ErrNotRegular):
		return problem.New(problem.NotFound, "module %s is not a regular file", path).
			WithHint("name a .wasm file")
	case problem.Short(err) != nil:
		return err
	case errors.Is(err, os.ErrNotExist):
		return problem.New(problem.NotFound, "module %s: no such file", path).
			WithHint("name the .wasm file by its path from here")
	}
	return problem.New(problem.Refused, "module %s", problem.Describe(err)).
		WithHint("the module is read with your own rights")
}

// mayImport refuses a module that imports host functions which the run is not granted.
func (t *Tool) mayImport(f *finder) error {
	if err := t.mayFetch(f.policy); err != nil {
		return err
	}
	return t.mayBind(f.agent)
}

// mayFetch refuses a module that imports fetch functions if the policy grants no fetch. It is
// called for every run, since a verified module is kept and used under other policies.
func (t *Tool) mayFetch(eff policy.Effective) error {
	if !t.fetches() || len(eff.Policy().Fetch.Allow) > 0 {
		return nil
	}
	t.module.Close()
	t.module = nil
	rule := "the policy grants no fetch"
	return problem.New(problem.Refused, "tool %s asks for the network, and %s", t.Name, rule).
		WithDenied("wasi", "import "+wasi.Fetch, rule+": run with --profile fetch --fetch HOST").
		WithHint("run with --profile fetch --fetch HOST, or with a policy that has [[fetch.allow]]")
}

// take checks the imports and the size of the module and puts it into a sealed memfd. No engine
// sees a module that fails the check.
func (t *Tool) take(module []byte, layout runners.Layout) error {
	info, err := wasi.Check(module, runners.ModuleLimits{}, wasi.EveryFunction()...)
	if err != nil {
		hint := ""
		if bytes.HasPrefix(module, []byte("\x7fELF")) || bytes.HasPrefix(module, []byte("#!")) {
			hint = "it is a program of the host: --profile build, or one of your own that grants " +
				"it, runs such"
		}
		return t.refuse(err, hint)
	}
	t.memory = int64(info.MemoryMin)
	for _, im := range info.Imports {
		t.Imports = append(t.Imports, im.String())
	}
	if t.layout = layout; layout == "" {
		t.layout = info.Layout
	}
	t.Sum = sha256.Sum256(module)
	if t.module, err = launch.SealedFile("module", module); err != nil {
		return problem.New(problem.Failed, "tool %s: %w", t.Name, err)
	}
	return nil
}

// fits refuses a module whose initial linear memory is above limit, in bytes.
func (t *Tool) fits(limit int64) error {
	if t.memory <= limit {
		return nil
	}
	rule := "limit memory is " + policy.Bytes.Format(limit)
	wanted := policy.Bytes.Format(t.memory)
	return problem.New(problem.Refused, "tool %s needs %s of memory to start, and %s", t.Name,
		wanted, rule).
		WithDenied("policy", "memory "+wanted, rule).
		WithHint("jail policy explain --why limit:memory says which layer decides, and what would " +
			"change it")
}

func (t *Tool) refuse(err error, hint string) error {
	e := problem.New(problem.Refused, "tool %s: %v", t.Name, err).WithHint(hint)
	if module, ok := errors.AsType[*wasi.ModuleError](err); ok && module.Import != "" {
		return e.WithDenied("wasi", "import "+module.Import,
			"only WASI preview 1, "+wasi.Fetch+" and the bindings of agents are granted")
	}
	return e
}

// compilePolicy is the policy of a jail that compiles a module: it may only write its result.
const compilePolicy = `policy = 1
name = "compile"
about = "Compile one module."
[[mount]]
target = "/tmp"
access = "tmpfs"
[limits]
wall = "%dm"
cpu_time = "%ds"
cpus = 2.0
memory = "512MiB"
pids = 32
open_files = 64
output = "512MiB"
workspace = "1MiB"
workspace_files = 1
file_size = "512MiB"
[syscalls]
groups = ["wasi"]
`

// CPU time for compiling: ordinary modules take 0.3 s for each MiB on a quiet machine, and more
// than twice that on a busy one.
const (
	compileLeast  = 5 * time.Second
	compilePerMiB = 1500 * time.Millisecond
	// the least for a module of an installed bundle, which an operator chose
	compileTrust = time.Minute
	// Wall time ends a compiler that hangs. It suffices with a tenth of a processor.
	compileWall  = 3 * time.Minute
	compileShare = 10
)

// compilePolicyOf returns the policy for compiling a module of size bytes. The time limits are
// multiplied by times, which operators raise on slow processors.
func compilePolicyOf(t Tool, size int64, times int) string {
	cpu := compileLeast + time.Duration(size>>20)*compilePerMiB
	if t.installed {
		cpu = max(cpu, compileTrust)
	}
	slower := time.Duration(max(times, 1))
	wall := max(compileWall, compileShare*cpu)
	return fmt.Sprintf(compilePolicy, int64(slower*wall/time.Minute),
		int64((slower*cpu).Round(time.Second)/time.Second))
}

// compiled ensures that the cache holds the compiled module. Compiling takes as much work as the
// module's author likes before the module itself runs, so it runs in a jail of its own.
func (s *Preparer) compiled(ctx context.Context, j *Job, t Tool) error {
	ok, err := s.isCompiled(j, t)
	if err != nil || ok {
		return err
	}
	ctx, stop := s.o.Life.UntilEnd(ctx)
	defer stop()
	if err = s.compileInTurn(ctx, j, t); err != nil && s.o.Life.Ending() {
		// the next daemon compiles it
		return lifetime.ErrEnding
	}
	return err
}

func (s *Preparer) compileInTurn(ctx context.Context, j *Job, t Tool) error {
	leave, err := s.modules.compiling.Enter(ctx, j.Caller.UID, j.Session(), 1, 0)
	if e := (*problem.Error)(nil); errors.As(err, &e) && e.Code == problem.Busy {
		return problem.New(problem.Busy,
			"jaild is busy: tool %s is to be compiled, and as many others are "+
				"as it compiles at one time", t.Name).
			WithCause(err).
			WithHint("try again when they are done")
	} else if err != nil {
		return err
	}
	defer leave()
	// Another run may have compiled it while this one waited.
	if ok, err := s.isCompiled(j, t); err != nil || ok {
		return err
	}
	return s.compile(ctx, j, t)
}

func (s *Preparer) isCompiled(j *Job, t Tool) (bool, error) {
	find := func() (string, bool, error) { return s.modules.cache.Find(j.Host.cached, t.Sum) }
	if j.Shared() {
		find = func() (string, bool, error) { return j.In.Modules.find(s.modules.cache, j.code(t)) }
	}
	_, ok, err := find()
	if err != nil {
		return false, problem.New(problem.Failed, "cache of compiled modules: %w", err)
	}
	return ok, nil
}

func (s *Preparer) compile(ctx context.Context, j *Job, t Tool) error {
	info, err := t.module.Stat()
	if err != nil {
		return problem.New(problem.Failed, "module: %w", err)
	}
	file, err := syntax.Parse(syntax.Profile, "compile", []byte(compilePolicyOf(t, info.Size(),
		s.o.Config.Bounds.Compile)), nil)
	if err != nil {
		return problem.New(problem.Failed, "bug: %w", err)
	}
	eff, err := policy.Resolve(policy.Layer{Name: "compile", Source: "built in",
		Policy: file.Policy})
	if err != nil {
		return problem.New(problem.Failed, "bug: %w", err)
	}
	out := &limited{max: modules.MaxEntry}
	failure, err := s.compileJail(ctx, j, t, eff, out)
	if err != nil {
		return err
	}
	if failure != "" {
		return problem.New(problem.Refused, "tool %s cannot be compiled: %s", t.Name, failure)
	}
	if err := s.modules.cache.Store(j.code(t), out.Bytes()); err != nil {
		return problem.New(problem.Failed, "cache of compiled modules: %w", err)
	}
	return nil
}

// compileJail compiles a module in a jail of its own and writes the result to out. failure is the
// compiler's complaint about the module, or "".
func (s *Preparer) compileJail(ctx context.Context, j *Job, t Tool,
	eff policy.Effective, out *limited) (failure string, err error) {
	sub := &Job{Caller: j.Caller, ID: jail.ID(string(j.ID)[:min(len(j.ID), 50)] + ".compile"),
		Policy: eff, Tool: t}
	defer sub.Close()
	if sub.Tool.module, err = launch.Reopen(t.module); err != nil {
		return "", problem.New(problem.Failed, "module: %w", err)
	}
	if err := s.planCompile(sub, j.Shared()); err != nil {
		return "", err
	}
	return s.o.Compile(ctx, sub, out)
}

// compileDir is the directory in the jail where the compiler writes its result.
const compileDir = "/tmp/compiled"

// planCompile makes the plan and the order of a job that compiles a module. interruptible compiles
// it for a shared engine.
func (s *Preparer) planCompile(j *Job, interruptible bool) (err error) {
	if j.Host.IDs, err = takeIDs(); err != nil {
		return err
	}
	j.Plan, err = jail.NewPlan(j.Policy, jail.Request{ID: j.ID, Base: j.Host.IDs.Base,
		User: rootless.User(), Slice: s.o.Config.Slice, Command: jail.Command{
			Runner: jail.RunnerCompile, Tool: j.Tool.Name, Digest: j.Tool.digest(),
			Args: []string{"compile"}, Cwd: "/"}})
	if err != nil {
		return problem.New(problem.Failed, "compile %s: %w", j.Tool.Name, err)
	}
	j.Order = runners.Order{Compile: true,
		Invocation: runners.Invocation{Args: []string{"compile"}, CacheDir: compileDir}}
	j.Order.Invocation.Module.Interruptible = interruptible
	return fitOOMScore(&j.Plan)
}

// limited is a buffer that refuses more than max bytes.
type limited struct {
	bytes.Buffer
	max int
}

func (l *limited) Write(p []byte) (int, error) {
	if l.Len()+len(p) > l.max {
		return 0, fmt.Errorf("more than %d bytes: %w", l.max, io.ErrShortWrite)
	}
	return l.Buffer.Write(p)
}

// maxEngineModules is how many modules a shared engine may mount. A further module starts a new
// engine with that module alone.
const maxEngineModules = 16

// Modules are the compiled modules that the shared engines of a session have mounted. Its methods
// may be called from several goroutines.
type Modules struct {
	mu sync.Mutex
	// hold keeps the modules in the cache until the session ends.
	hold modules.Hold
	// dirs are the directories of the modules, by policy digest.
	dirs map[string][]string
}

// find calls modules.Cache.Find with the hold of the session.
func (m *Modules) find(c *modules.Cache, sum [sha256.Size]byte) (dir string, ok bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return c.Find(&m.hold, sum)
}

// place returns the module directories that an engine with this policy digest mounts, and the index
// of dir in them. It adds dir if it is missing.
func (m *Modules) place(policy, dir string) ([]string, int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dirs == nil {
		m.dirs = map[string][]string{}
	}
	all := m.dirs[policy]
	i := slices.Index(all, dir)
	if i < 0 {
		if len(all) >= maxEngineModules {
			all = nil
		}
		i, all = len(all), append(slices.Clip(all), dir)
		m.dirs[policy] = all
	}
	return all, i
}

// Close releases the modules, so that the cache may remove them. m may be nil.
func (m *Modules) Close() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hold.Close()
}

// sharedMemory returns the linear memory, in bytes, that one invocation in a shared engine may
// have, given the limit of the engine. The rest is for the engine and for others, so that an
// invocation that takes ever more memory fails alone, before the kernel kills the engine.
func sharedMemory(limit int64) int64 { return limit / 4 * 3 }

// mayShare reports whether an invocation can run in a shared engine of its session. Runs that
// record file events or learn cannot, since the processes of invocations could not be told apart.
func (j *Job) mayShare() bool {
	return j.In.Modules != nil && j.Tool.Native == "" && j.Tool.Script == nil &&
		j.Req.Terminal == nil && !j.Req.Learn &&
		j.Tool.memory <= sharedMemory(j.Policy.Policy().Limits.Memory) &&
		j.Policy.Policy().Audit.Files == policy.FilesNone &&
		j.Policy.Policy().Session.Engine != policy.EngineOwn
}

// code returns the cache key of the compiled form of a module of the job.
func (j *Job) code(t Tool) [sha256.Size]byte {
	if j.Shared() {
		return wasi.Interruptible(t.Sum)
	}
	return t.Sum
}
