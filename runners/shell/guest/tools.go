package guest

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/interp"

	"github.com/jail-sandbox/jail/policy/paths"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/shell"
	wasi "github.com/jail-sandbox/jail/runners/wasi/guest"
)

// tools runs the commands of one script. A module is loaded once, when its first command runs.
type tools struct {
	inv     runners.Invocation
	script  runners.Script
	modules []lazy
	slots   chan struct{}

	// The script's own files, for tests.
	files     *files
	functions map[string]bool // of its own

	tally tally
}

type lazy struct {
	once   sync.Once
	code   []byte
	loaded *wasi.Loaded
	err    error
}

func newTools(order runners.Order, modules [][]byte) *tools {
	t := &tools{inv: order.Invocation, script: *order.Script, modules: make([]lazy, len(modules)),
		slots: make(chan struct{}, max(order.Script.Concurrent, 1))}
	for i, code := range modules {
		t.modules[i].code = code
	}
	return t
}

func (t *tools) close() {
	for i := range t.modules {
		if l := t.modules[i].loaded; l != nil {
			// An error only leaks memory of a process that is about to end.
			_ = l.Close(context.Background())
		}
	}
}

func (t *tools) load(ctx context.Context, i int) (*wasi.Loaded, error) {
	m := &t.modules[i]
	m.once.Do(func() {
		dir := ""
		if t.inv.CacheDir != "" {
			dir = filepath.Join(t.inv.CacheDir, strconv.Itoa(i))
		}
		m.loaded, m.err = wasi.Load(ctx, m.code, t.inv.Module, dir)
	})
	return m.loaded, m.err
}

// exec runs one simple command that is neither a function nor a builtin of the interpreter. A
// failure is an interp.ExitStatus.
func (t *tools) exec(ctx context.Context, args []string) error {
	hc := interp.HandlerCtx(ctx)
	switch args[0] {
	case failPrefix:
		fmt.Fprintf(hc.Stderr, "sh: %s\n", args[1])
		return interp.ExitStatus(exitUsage)
	case toolPrefix:
		args = args[1:]
	}
	if args[0] == shell.Xargs {
		return t.xargs(ctx, hc, args[1:])
	}
	return t.command(ctx, hc, args)
}

func (t *tools) command(ctx context.Context, hc interp.HandlerContext, args []string) error {
	say := func(code uint8, format string, what ...any) error {
		fmt.Fprintf(hc.Stderr, "sh: %s: %s\n", runners.Printable(args[0], 200),
			fmt.Sprintf(format, what...))
		return interp.ExitStatus(code)
	}
	c, ok := t.script.Commands[args[0]]
	if !ok {
		if rule, known := t.script.Refused[args[0]]; known {
			t.tally.deny("policy", "tool "+args[0], rule)
			return say(exitRefused, "not allowed: %s", rule)
		}
		if strings.Contains(args[0], "/") {
			return say(exitNotFound,
				"not found: a script's commands are those of bundles, and .wasm files that it "+
					"names in plain text")
		}
		return say(exitNotFound, "not found")
	}
	select {
	case t.slots <- struct{}{}:
		defer func() { <-t.slots }()
	default:
		return say(exitRefused, "%d tools run already: the limit pids allows no more", cap(t.slots))
	}
	loaded, err := t.load(ctx, c.Module)
	if err != nil {
		t.tally.fail(fmt.Errorf("%s: %w", args[0], err))
		return say(exitRefused, "%v", err)
	}
	return t.run(ctx, hc, loaded, c, args)
}

func (t *tools) run(ctx context.Context, hc interp.HandlerContext, loaded *wasi.Loaded,
	c runners.Command, args []string) error {
	inv := t.inv
	inv.Args = append(runners.Texts{c.Name}, args[1:]...)
	inv.Env = environment(hc)
	inv.Cwd = hc.Dir
	inv.Layout = c.Layout
	// The tool sees only the working directory, without its path, so PWD (the last variable) is
	// removed.
	if c.Layout == runners.LayoutWorking {
		inv.Env = inv.Env[:len(inv.Env)-1]
	}
	if inv.Mounts = seen(t.inv.Mounts, c.Unseen); hidden(t.inv.Mounts, c.Unseen, hc.Dir) {
		t.tally.deny("wasi", "directory "+hc.Dir, ruleBundle)
		fmt.Fprintf(hc.Stderr, "sh: %s: started in %s, and its %s\n",
			runners.Printable(args[0], 200), runners.Printable(hc.Dir, 300), ruleBundle)
		return interp.ExitStatus(exitRefused)
	}
	out, wait := stream(hc.Stdout)
	errOut, waitErr := out, func() {}
	if hc.Stderr != hc.Stdout {
		errOut, waitErr = stream(hc.Stderr)
	}
	in, _ := hc.Stdin.(*os.File)
	rep, err := loaded.Run(wasi.WithScope(ctx, c.Scope), inv, in, out, errOut)
	wait()
	waitErr()
	t.tally.count(args[0], rep)
	if err != nil {
		t.tally.fail(fmt.Errorf("%s: %w", args[0], err))
		fmt.Fprintf(hc.Stderr, "sh: %s: %v\n", args[0], err)
		return interp.ExitStatus(exitRefused)
	}
	if rep.Trap != nil {
		fmt.Fprintf(hc.Stderr, "sh: %s: %s\n", args[0], rep.Trap.Sentence)
	}
	if rep.ExitCode == 0 {
		return nil
	}
	return interp.ExitStatus(uint8(rep.ExitCode))
}

// ruleBundle is the rule in refusals of a mount that a pulled bundle does not ask for.
const ruleBundle = "bundle does not ask for that mount"

// seen returns the mounts in all except those whose path is in unseen.
func seen(all []runners.Mount, unseen []string) []runners.Mount {
	if len(unseen) == 0 {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all),
		func(m runners.Mount) bool { return slices.Contains(unseen, m.Path) })
}

// hidden reports whether the innermost mount that contains dir is one of unseen.
func hidden(all []runners.Mount, unseen []string, dir string) bool {
	deepest := ""
	for _, m := range all {
		if paths.Within(m.Path, dir) && len(m.Path) > len(deepest) {
			deepest = m.Path
		}
	}
	return slices.Contains(unseen, deepest)
}

// stream returns a file to which a tool writes w's data, nil to discard it. Call the returned
// function after the tool has ended: it waits until all data is copied.
func stream(w io.Writer) (*os.File, func()) {
	switch w := w.(type) {
	case *os.File:
		return w, func() {}
	case nil:
		return nil, func() {}
	}
	pr, pw, err := os.Pipe()
	if err != nil {
		return nil, func() { fmt.Fprintf(w, "sh: %v\n", err) }
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(w, pr)
	}()
	return pw, func() {
		_ = pw.Close()
		<-done
		_ = pr.Close()
	}
}

// environment returns the variables that the script exports, sorted, and PWD last, from which a
// WASI C library takes its working directory.
func environment(hc interp.HandlerContext) runners.Texts {
	var env runners.Texts
	for name, v := range hc.Env.Each {
		if v.Exported && v.Kind == expand.String && name != "PWD" {
			env = append(env, name+"="+v.Str)
		}
	}
	slices.Sort(env)
	return append(env, "PWD="+hc.Dir)
}

// Denied implements view.Recorder: it records a refusal of the script's own file accesses.
func (t *tools) Denied(what, rule string) { t.tally.deny("wasi", what, rule) }

// tally sums the denials, usage and limit events of a script's tools. It is safe for concurrent
// use.
type tally struct {
	mu       sync.Mutex
	denials  runners.Denials
	usage    runners.Usage
	executed map[string]int64
	refused  *runners.MemoryRefused
	met      runners.LimitsMet
	failed   error
}

func (t *tally) count(name string, rep runners.Report) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.executed == nil {
		t.executed = map[string]int64{}
	}
	t.executed[name]++
	for _, d := range rep.Denied {
		t.denials.AddCount(d)
	}
	if rep.MemoryRefused != nil {
		t.refused = rep.MemoryRefused
	}
	for _, m := range rep.LimitsMet {
		t.met.Add(m)
	}
	t.usage.LoadNanos += rep.Usage.LoadNanos
	t.usage.MemoryPeak = max(t.usage.MemoryPeak, rep.Usage.MemoryPeak)
	t.usage.OpenPeak = max(t.usage.OpenPeak, rep.Usage.OpenPeak)
}

func (t *tally) deny(layer, what, rule string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.denials.Add(layer, what, rule)
}

// fail records a fault of the runner, as opposed to one of a tool. The first one is kept.
func (t *tally) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failed == nil {
		t.failed = err
	}
}

func (t *tally) fault() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed
}

func (t *tally) report() runners.Report {
	t.mu.Lock()
	defer t.mu.Unlock()
	rep := runners.Report{Denied: t.denials.List(), MemoryRefused: t.refused, LimitsMet: t.met,
		Usage: t.usage}
	for name, n := range t.executed {
		rep.Executed = append(rep.Executed, runners.Executed{Name: name, Count: n})
	}
	slices.SortFunc(rep.Executed, func(a, b runners.Executed) int {
		return strings.Compare(a.Name, b.Name)
	})
	return rep
}
