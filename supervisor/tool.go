package supervisor

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
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/asuser"
	"github.com/jail-sandbox/jail/jail/launch"
	"github.com/jail-sandbox/jail/jail/rootless"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/wasi"
	"github.com/jail-sandbox/jail/supervisor/bundle"
	"github.com/jail-sandbox/jail/supervisor/idrange"
)

// A tool is a module or a program of the host that was found.
type tool struct {
	name    string // core-utils/grep, /path/of/x.wasm, /usr/bin/git
	command string // what it finds as its own name
	sum     [sha256.Size]byte
	layout  runners.Layout
	module  *os.File // its verified bytes, sealed
	native  string   // a program of the host: its path in the jail; then there is no module
	// installed says that an operator chose it: it is of a bundle, and not a file that a caller names.
	installed bool
	fetches   bool // it imports the host functions of fetches
	imports   []string
	needs     *bundle.Needs // of a pulled bundle
}

func (t tool) digest() string { return "sha256:" + hex.EncodeToString(t.sum[:]) }

// findTool finds the module that the request names: a file if the name has a slash and ends in .wasm or is no command of a bundle, else
// a command of an installed bundle. The policy is asked before anything of it is read.
func (s *Supervisor) findTool(j *job) (tool, error) {
	name := j.req.Tool
	switch {
	case name == "":
		return tool{}, usage("no tool is named")
	case strings.ContainsRune(name, 0):
		return tool{}, usage("the tool's name has a NUL byte")
	case strings.HasSuffix(name, ".wasm") || strings.HasPrefix(name, "/") || strings.HasPrefix(name, "./") || strings.HasPrefix(name, "../"):
		return s.moduleFile(j, name)
	}
	return s.bundled(j, name)
}

func (s *Supervisor) bundled(j *job, name string) (tool, error) {
	c, err := s.bundles.Find(name)
	if err != nil && !isMissing(err) {
		return tool{}, failed(err, "jail tool verify says what is wrong with the pulled bundles", "tool %s: %v", name, err)
	}
	if err != nil {
		return tool{}, &Error{Code: CodeNotFound, Message: err.Error(), Err: err, Hint: hintFor(name)}
	}
	t := tool{name: c.Bundle + "/" + c.Name, command: c.Name, installed: true, needs: c.Needs}
	if d := j.eff.Decide(policy.Tool{Bundle: c.Bundle, Command: c.Name}); !d.Allowed {
		denied := toolDenied("tool "+t.name, d)
		if d.Layer != policy.CeilingLayer {
			denied.Hint = "jail profile new mine --allow-tool " + t.name + " makes a profile that lets it run: jail run --policy mine.toml"
		}
		return t, denied
	}
	if j.eff, err = narrowed(j.eff, c.Bundle, c.Needs); err != nil {
		return t, failed(err, "", "tool %s: %v", t.name, err)
	}
	path := c.Module.Path()
	if known, ok := s.sealed.get(path); ok {
		known.name, known.command, known.needs = t.name, t.command, t.needs
		err := known.mayFetch(j)
		return known, err
	}
	before, err := stampOf(path)
	if err != nil {
		return t, failed(err, "install the bundle anew", "tool %s: %v", t.name, err)
	}
	module, err := c.Module.Read()
	if err != nil {
		return t, failed(err, "install the bundle anew: its files are not those of its manifest", "tool %s: %v", t.name, err)
	}
	if err := t.take(module, runners.Layout(c.Module.Layout)); err != nil {
		return t, err
	}
	if err := s.sealed.put(path, before, t); err != nil {
		return t, failed(err, "", "tool %s: %v", t.name, err)
	}
	err = t.mayFetch(j)
	return t, err
}

// hintFor says what to do about a tool that is not installed. Who asks for what the host has is told how it is run in a jail.
func hintFor(name string) string {
	const list = "jail tool list shows what is installed"
	if slices.Contains([]string{"sh", "bash", "dash", "zsh"}, name) {
		return "jail sh -c SCRIPT runs a script of installed tools; --profile build has the host's own " + name
	}
	for _, dir := range filepath.SplitList(defaultPath) {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return filepath.Join(dir, name) + " is a program of this host: --profile build, or one of your own that grants it, runs it; " + list
		}
	}
	return list
}

// moduleFile reads a module that the caller names by its path, with the caller's rights.
func (s *Supervisor) moduleFile(j *job, name string) (tool, error) {
	path := name
	if !filepath.IsAbs(path) {
		path = filepath.Join(j.req.Dir, path)
	}
	path = filepath.Clean(path)
	t := tool{name: path, command: strings.TrimSuffix(filepath.Base(path), ".wasm")}
	if d := j.eff.Decide(policy.Module{Path: path}); !d.Allowed {
		return t, toolDenied("module "+path, d)
	}
	module, err := j.caller.ReadFile(path, wasi.MaxModuleBytes)
	switch {
	case errors.Is(err, asuser.ErrTooLarge):
		return t, refused(nil, "", "module %s is larger than %d MiB", path, wasi.MaxModuleBytes>>20)
	case errors.Is(err, asuser.ErrNotRegular):
		return t, notFound("name a .wasm file", "module %s is not a regular file", path)
	case isNotExist(err):
		return t, notFound("", "module %s: no such file", path)
	case err != nil:
		return t, refused(nil, "the module is read with your own rights", "module %s", describe(err))
	}
	if err = t.take(module, ""); err == nil {
		err = t.mayFetch(j)
	}
	return t, err
}

// mayFetch refuses a module that imports the host functions of fetches where the policy grants none. It is asked of each run: the module's
// bytes are verified once, and used under other policies.
func (t *tool) mayFetch(j *job) error {
	if !t.fetches || len(j.eff.Policy().Fetch.Allow) > 0 {
		return nil
	}
	t.module.Close()
	t.module = nil
	rule := "the policy grants no fetch"
	return refused([]runners.Denial{{Layer: "wasi", What: "import " + wasi.Fetch, Rule: rule + ": run with --profile fetch --fetch HOST", Count: 1}},
		"run with --profile fetch --fetch HOST, or with a policy that has [[fetch.allow]]", "tool %s asks for the network, and %s", t.name, rule)
}

// take reads the module's outside and seals it: a module that is none, is too large, or imports what it is not granted never comes near
// an engine.
func (t *tool) take(module []byte, layout runners.Layout) error {
	info, err := wasi.Check(module, runners.ModuleLimits{}, wasi.FetchFunctions[:]...)
	if err != nil {
		hint := ""
		if bytes.HasPrefix(module, []byte("\x7fELF")) || bytes.HasPrefix(module, []byte("#!")) {
			hint = "it is a program of the host: --profile build, or one of your own that grants it, runs such"
		}
		return t.refuse(err, hint)
	}
	t.fetches = info.Fetches()
	for _, im := range info.Imports {
		t.imports = append(t.imports, im.String())
	}
	if t.layout = layout; layout == "" {
		t.layout = info.Layout
	}
	t.sum = sha256.Sum256(module)
	if t.module, err = launch.SealedFile("module", module); err != nil {
		return failed(err, "", "tool %s: %v", t.name, err)
	}
	return nil
}

func (t *tool) refuse(err error, hint string) error {
	var denied []runners.Denial
	var module *wasi.ModuleError
	if errors.As(err, &module) && module.Import != "" {
		denied = []runners.Denial{{Layer: "wasi", What: "import " + module.Import, Rule: "only WASI preview 1 and " + wasi.Fetch + " are granted", Count: 1}}
	}
	return refused(denied, hint, "tool %s: %v", t.name, err)
}

// compilePolicy is what a compiling jail gets: room to write the result to, and nothing else.
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

// CPU time for compiling: ordinary modules take 0.3 s for each MiB on a quiet machine, and more than twice that on a busy one.
const (
	compileLeast  = 5 * time.Second
	compilePerMiB = 1500 * time.Millisecond
	compileTrust  = time.Minute // for a module of an installed bundle, which an operator chose, at least
	compileWall   = 3 * time.Minute
)

// compilePolicyOf gives a module of so many bytes the time that it may need, and times as much where the operator says that the processor is slow.
func compilePolicyOf(t tool, size int64, times int) string {
	cpu := compileLeast + time.Duration(size>>20)*compilePerMiB
	if t.installed {
		cpu = max(cpu, compileTrust)
	}
	slower := time.Duration(max(times, 1))
	return fmt.Sprintf(compilePolicy, int64(slower*compileWall/time.Minute), int64((slower*cpu).Round(time.Second)/time.Second))
}

// compiled makes sure that the module's compiled form is in the cache. Compiling is the one
// time that a module's author decides how much is done before anything of the module runs, so it is done in a jail of its own.
func (s *Supervisor) compiled(ctx context.Context, j *job) error {
	ok, err := s.isCompiled(j)
	if err != nil || ok {
		return err
	}
	ctx, stop := s.untilEnding(ctx)
	defer stop()
	if err = s.compileInTurn(ctx, j); err != nil && s.ending.Err() != nil {
		return isEnding() // the next daemon compiles it
	}
	return err
}

func (s *Supervisor) compileInTurn(ctx context.Context, j *job) error {
	leave, err := s.compiling.enter(ctx, j.caller.UID, 1, 0)
	if e := (*Error)(nil); errors.As(err, &e) && e.Code == CodeBusy {
		return &Error{Code: CodeBusy, Message: "jaild is busy: tool " + j.tool.name + " is to be compiled, and as many others are as it compiles at one time", Hint: "try again when they are done", Err: err}
	} else if err != nil {
		return err
	}
	defer leave()
	if ok, err := s.isCompiled(j); err != nil || ok { // by another run, that this one waited for
		return err
	}
	return s.compile(ctx, j)
}

func (s *Supervisor) isCompiled(j *job) (bool, error) {
	_, ok, err := s.cache.find(j.cached, j.tool.sum)
	if err != nil {
		return false, failed(err, "", "cache of compiled modules: %v", err)
	}
	return ok, nil
}

// compileBounds are for the jails that compile, each of which takes a processor.
func compileBounds(b Bounds) Bounds {
	return Bounds{Runs: min(runtime.NumCPU(), max(b.Runs, 1)), Memory: b.Memory, Waiting: b.Waiting + b.Runs, Wait: max(b.Wait, 2*time.Minute)}
}

func (s *Supervisor) compile(ctx context.Context, j *job) error {
	info, err := j.tool.module.Stat()
	if err != nil {
		return failed(err, "", "module: %v", err)
	}
	file, err := syntax.Parse(syntax.Profile, "compile", []byte(compilePolicyOf(j.tool, info.Size(), s.config.Bounds.Compile)), nil)
	if err != nil {
		return failed(err, "", "bug: %v", err)
	}
	eff, err := policy.Resolve(policy.Layer{Name: "compile", Source: "built in", Policy: file.Policy})
	if err != nil {
		return failed(err, "", "bug: %v", err)
	}
	out := &limited{max: maxEntry}
	failure, err := s.compileJail(ctx, j, eff, out)
	if err != nil {
		return err
	}
	if failure != "" {
		return refused(nil, "", "tool %s cannot be compiled: %s", j.tool.name, failure)
	}
	if err := s.cache.store(j.tool.sum, out.Bytes()); err != nil {
		return failed(err, "", "cache of compiled modules: %v", err)
	}
	return nil
}

// compileJail runs one compiling jail as a run of its own, without a record: it is part of the one that waits for it.
func (s *Supervisor) compileJail(ctx context.Context, j *job, eff policy.Effective, out *limited) (failure string, err error) {
	sub := &job{caller: j.caller, id: jail.ID(string(j.id)[:min(len(j.id), 50)] + ".compile"), eff: eff, tool: j.tool, compile: true}
	defer sub.close()
	if sub.tool.module, err = launch.Reopen(j.tool.module); err != nil {
		return "", failed(err, "", "module: %v", err)
	}
	if err := s.planCompile(sub); err != nil {
		return "", err
	}
	r := &run{s: s, job: sub, done: make(chan struct{})}
	defer close(r.done)
	stop := context.AfterFunc(ctx, func() { r.end(cause{gone: true}) })
	defer stop()
	if r.dir, err = s.runs.add(sub.state()); err != nil {
		return "", AsError(err)
	}
	err = errors.Join(r.jailed(ctx, Streams{Out: out, Err: io.Discard}), r.dir.remove())
	r.given()
	if err != nil {
		return "", AsError(err)
	}
	switch res := r.result; {
	case res.Limit != nil:
		return beyond(*res.Limit), nil
	case r.failure != "":
		return r.failure, nil
	case res.ExitCode != 0:
		return fmt.Sprintf("the compiler ended with code %d", res.ExitCode), nil
	}
	return "", nil
}

// beyond says which limit ended a compilation, with its unit: a module that an ordinary compiler made comes near none of them.
func beyond(l LimitHit) string {
	const advice = "; it is no module that a compiler made for people, or split it"
	switch l.Name {
	case "cpu_time", "wall":
		return fmt.Sprintf("compiling it takes more than %v (%s)%s", time.Duration(l.Limit)*time.Millisecond, l.Name, advice)
	case "memory", "file_size", "output":
		return fmt.Sprintf("compiling it takes more than %d MiB (%s)%s", l.Limit>>20, l.Name, advice)
	}
	return fmt.Sprintf("compiling it reached the limit %s of %d", l.Name, l.Limit)
}

// compileDir is where the compiling engine leaves its result, inside.
const compileDir = "/tmp/compiled"

func (s *Supervisor) planCompile(j *job) (err error) {
	if j.ids, err = idrange.Take(); err != nil {
		return &Error{Code: CodeBusy, Message: err.Error(), Hint: "try again when other runs have ended", Err: err}
	}
	j.plan, err = jail.NewPlan(j.eff, jail.Request{ID: j.id, Base: j.ids.Base, User: rootless.User(), Slice: s.config.Slice, Command: jail.Command{
		Runner: jail.RunnerCompile, Tool: j.tool.name, Digest: j.tool.digest(), Args: []string{"compile"}, Cwd: "/"}})
	if err != nil {
		return failed(err, "", "compile %s: %v", j.tool.name, err)
	}
	return j.spare()
}
