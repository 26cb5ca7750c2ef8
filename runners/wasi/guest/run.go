package guest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	wazerosys "github.com/tetratelabs/wazero/sys"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/internal/sys"
	"github.com/jail-sandbox/jail/runners/wasi"
	"github.com/jail-sandbox/jail/runners/wasi/guest/hostagent"
	"github.com/jail-sandbox/jail/runners/wasi/guest/hostfetch"
	"github.com/jail-sandbox/jail/runners/wasi/guest/preview1"
)

// Run runs the module once. If its code is interruptible, the end of ctx ends it. The streams stay
// the caller's; a nil one is at its end, or takes everything. They should be in blocking mode. An
// error means that the tool did not run, or was stopped by a fault that is not its own; how the
// tool itself ended is in the Report. A module that imports what ctx does not grant is refused,
// even if it was loaded with another context.
func (l *Loaded) Run(ctx context.Context, inv runners.Invocation, stdin, stdout,
	stderr *os.File) (runners.Report, error) {
	if err := inv.Validate(); err != nil {
		return runners.Report{}, err
	}
	if err := l.info.Granted(granted(ctx)...); err != nil {
		return refused(err), err
	}
	mem := newLinear(inv.MemoryLimit)
	if l.info.MemoryMin > mem.limit {
		refused := &runners.MemoryRefused{Limit: int64(mem.limit), Wanted: int64(l.info.MemoryMin)}
		return runners.Report{MemoryRefused: refused},
			fmt.Errorf("%w: the module needs %d bytes of memory to start, the limit is %d",
				wasi.ErrTooLarge, refused.Wanted, refused.Limit)
	}
	var denials runners.Denials
	g, err := newTree(inv, l.info.Layout, &denials)
	if err != nil {
		return runners.Report{}, err
	}
	defer g.view.Close()
	p := preview1.New(preview1.Config{
		Args: inv.Args, Env: inv.Env, Fetch: opener(ctx), Agent: agentOf(ctx).Open,
		Stdin: descriptor(stdin), Stdout: descriptor(stdout), Stderr: descriptor(stderr),
		Dirs: g.dirs, OpenFiles: inv.OpenFiles,
		// The engine ends the guest when a host function panics with this type.
		Exit: func(code int) { panic(wazerosys.NewExitError(uint32(code))) },
		Done: ctx.Done(),
	}, &denials)
	defer p.Close()
	requests := hostfetch.New(opener(ctx))
	defer requests.Close()
	answers := hostagent.New(agentOf(ctx).Host)
	defer answers.Close()
	start := time.Now()
	made := l.made.Swap(nil)
	if made != nil {
		made.memory.limit = mem.limit
		mem = made.memory
	}
	runErr := l.start(context.WithValue(ctx, callerKey{}, &caller{p, requests, answers}), made, mem)
	for _, f := range [...]*os.File{stdin, stdout, stderr} {
		// Keep the files open: only their descriptors were used.
		runtime.KeepAlive(f)
	}
	rep := runners.Report{
		Denied:        denials.List(),
		MemoryRefused: mem.refused,
		LimitsMet:     p.LimitsMet(),
		// A next run of the same module did not load it.
		Usage: runners.Usage{LoadNanos: l.took.Swap(0),
			RunNanos: int64(time.Since(start)), MemoryPeak: int64(mem.peak),
			OpenPeak: p.OpenPeak(), StdoutBytes: p.Stdout, StderrBytes: p.Stderr},
	}
	if isStopped(ctx, runErr) {
		rep.Stopped = runners.StoppedCancelled
		return rep, nil
	}
	rep.ExitCode, rep.Trap, err = ending(runErr)
	return rep, err
}

// isStopped reports whether the engine ended a run because its context was cancelled.
func isStopped(ctx context.Context, err error) bool {
	exit, ok := errors.AsType[*wazerosys.ExitError](err)
	return ok && ctx.Err() != nil && exit.ExitCode() == wazerosys.ExitCodeContextCanceled
}

// descriptor returns the descriptor of a stream, in blocking mode, or -1 for nil.
func descriptor(f *os.File) int {
	if f == nil {
		return -1
	}
	return int(f.Fd())
}

// start calls _start of the instance made, or of a new one if made is nil.
func (l *Loaded) start(ctx context.Context, made *instance, mem *linear) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", errEngine, r)
			mem.Free()
		}
	}()
	if made == nil {
		if made, err = l.instantiate(ctx, mem); err != nil {
			return err
		}
	}
	defer made.module.Close(ctx)
	_, err = made.start.Call(ctx)
	return err
}

// An instance is a module with a memory of its own, for one run.
type instance struct {
	module api.Module
	start  api.Function
	memory *linear
}

// instantiate makes an instance, which runs the start section if there is one.
func (l *Loaded) instantiate(ctx context.Context, mem *linear) (made *instance, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", errEngine, r)
		}
		if err != nil {
			mem.Free()
		}
	}()
	// An empty name, so that the same module can be instantiated again.
	m, err := l.runtime.InstantiateModule(experimental.WithMemoryAllocator(ctx, mem), l.module,
		wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		return nil, err
	}
	f := m.ExportedFunction("_start")
	if f == nil || len(f.Definition().ParamTypes()) != 0 {
		// The first error is the cause.
		_ = m.Close(ctx)
		return nil, errStart
	}
	return &instance{m, f, mem}, nil
}

var errStart = errors.New("_start takes parameters")

// ending turns the engine's result into an exit code, a trap, or an error that is not the tool's.
// It drops the engine's stack trace, which can be long and does not help the tool's user.
func ending(err error) (int, *runners.Trap, error) {
	if err == nil {
		return 0, nil, nil
	}
	if exit, ok := errors.AsType[*wazerosys.ExitError](err); ok {
		return int(exit.ExitCode()), nil, nil
	}
	if errors.Is(err, errStart) {
		return 0, nil, &wasi.ModuleError{Kind: wasi.ErrNoCommand,
			Sentence: "the module's _start takes parameters"}
	}
	if errors.Is(err, errEngine) {
		return 0, nil, firstLine(err)
	}
	text, ok := trapText(err)
	if !ok {
		return 0, nil, fmt.Errorf("%w: %w", errEngine, firstLine(err))
	}
	class, sentence := trapOf(text)
	return wasi.ExitTrap, &runners.Trap{Class: class, Sentence: sentence}, nil
}

// trapText finds the engine's own name of a trap. Its type is internal to the
// engine, so its text is all there is; TestTraps pins each one.
func trapText(err error) (string, bool) {
	_, rest, ok := strings.Cut(err.Error(), "wasm error: ")
	switch {
	case ok:
	case strings.Contains(err.Error(), "stack overflow"):
		// Comes without its stack, for good reason.
		return "stack overflow", true
	default:
		// Active segments are checked while instantiating, in other words.
		if strings.Contains(err.Error(), "out of bounds") {
			return "out of bounds memory access", true
		}
		return "", false
	}
	text, _, _ := strings.Cut(rest, "\n")
	return text, true
}

func trapOf(text string) (class, sentence string) {
	switch text {
	case "unreachable":
		return wasi.TrapUnreachable, "the module stopped itself (unreachable)"
	case "out of bounds memory access":
		return wasi.TrapMemory, "the module used memory that it does not have"
	case "stack overflow":
		return wasi.TrapStack, "the module nested its calls too deeply"
	case "integer overflow", "integer divide by zero", "invalid conversion to integer":
		return wasi.TrapArithmetic, "the module made an arithmetic error (" + text + ")"
	case "invalid table access", "indirect call type mismatch", "null reference":
		return wasi.TrapTable, "the module called through a bad function pointer (" + text + ")"
	case "uncaught exception":
		return wasi.TrapException, "the module threw an exception that nothing caught"
	}
	return wasi.TrapOther, "the module was stopped (" + runners.Printable(text, 80) + ")"
}

// firstLine drops the stack traces of the engine and of Go.
func firstLine(err error) error {
	text := err.Error()
	line, _, more := strings.Cut(text, "\n")
	if !more {
		return err
	}
	if errors.Is(err, errEngine) {
		return fmt.Errorf("%w: %s", errEngine, strings.TrimPrefix(line, errEngine.Error()+": "))
	}
	return errors.New(line)
}

// compileError converts an error of the engine's compiler to one of this package.
func compileError(err error) error {
	text, _, _ := strings.Cut(err.Error(), "\n")
	switch {
	case strings.Contains(text, "compilationcache:"):
		return fmt.Errorf("%w: %s", errCacheDamaged, text)
	case strings.Contains(text, "read-only file system"), strings.Contains(text,
		"permission denied"):
		// It compiled, because there was no entry for this machine, and could not keep the result.
		return errNotCompiled
	}
	return &wasi.ModuleError{Kind: wasi.ErrModule, Sentence: "the module is invalid: " +
		runners.Printable(text, 300)}
}

// RunMetered is Run on a thread that the goroutine is locked to. It measures the CPU time of the
// thread and, unless limit is 0, stops the module when the thread has used limit nanoseconds more.
func (l *Loaded) RunMetered(ctx context.Context, inv runners.Invocation, limit int64, stdin, stdout,
	stderr *os.File) (runners.Report, error) {
	thread := sys.ThisThread()
	begun, err := thread.CPUTime()
	if err != nil {
		return runners.Report{}, err
	}
	var over atomic.Bool
	if limit > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithCancel(ctx)
		defer stop()
		defer watchCPU(thread, begun+time.Duration(limit), func() {
			over.Store(true)
			stop()
		})()
	}
	rep, err := l.Run(ctx, inv, stdin, stdout, stderr)
	if now, clockErr := thread.CPUTime(); clockErr == nil {
		rep.Usage.CPUNanos = int64(now - begun)
	}
	if rep.Stopped != "" && over.Load() {
		rep.Stopped = runners.StoppedCPUTime
	}
	return rep, err
}

// cpuTick is the minimum interval between two reads of the CPU time.
const cpuTick = 10 * time.Millisecond

// watchCPU calls over when the thread's CPU time has reached until, or cannot be read. It sleeps
// for what is left, since the CPU time of a thread grows no faster than the clock. stop ends the
// watch.
func watchCPU(thread sys.Thread, until time.Duration, over func()) (stop func()) {
	done := make(chan struct{})
	go func() {
		for {
			used, err := thread.CPUTime()
			if err != nil || used >= until {
				over()
				return
			}
			timer := time.NewTimer(max(until-used, cpuTick))
			select {
			case <-timer.C:
			case <-done:
				timer.Stop()
				return
			}
		}
	}()
	return func() { close(done) }
}
