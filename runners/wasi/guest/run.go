package guest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/wasi"
	"github.com/jail-sandbox/jail/runners/wasi/guest/hostagent"
	"github.com/jail-sandbox/jail/runners/wasi/guest/hostfetch"
	"github.com/jail-sandbox/jail/runners/wasi/guest/preview1"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	wazerosys "github.com/tetratelabs/wazero/sys"
)

// Run runs the module once. If its code is interruptible, the end of ctx ends it. The streams stay
// the caller's; a nil one is at its end, or takes everything. They should be in blocking mode. An
// error means that the tool did not run, or was stopped by a fault that is not its own; how the
// tool itself ended is in the Report. A module that imports what ctx does not grant is refused, even
// if it was loaded with another context.
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
	runErr := l.start(withProcess(ctx, p, requests, answers), made, mem)
	for _, f := range [...]*os.File{stdin, stdout, stderr} {
		// Only their descriptors were used, which a finalizer closes.
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

// descriptor of a stream. Fd puts it into blocking mode if it was opened as a file of Go's.
func descriptor(f *os.File) int {
	if f == nil {
		return -1
	}
	return int(f.Fd())
}

// start calls _start of an instance, which it makes if there is none.
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
