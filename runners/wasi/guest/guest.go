// Package guest runs a WebAssembly module inside a jail: the only code that knows the engine,
// wazero. It assumes that the engine may be broken: it runs as the tool's own process, holds
// nothing that the tool may not have, and is stopped only from outside, by killing the jail. So it
// does not ask the engine for interruptible code, which would run four to six times slower, unless
// the process is the shared engine of a session.
package guest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/internal/sys"
	"github.com/jail-sandbox/jail/runners/wasi"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
)

// Errors to compare.
var (
	// errNotCompiled says that a cache directory was given and holds no compiled form of the module
	// for this machine. A run compiles only in memory, and only without a cache directory: in the
	// jail of a run there is no budget for compiling, and nothing could keep the result.
	errNotCompiled = errors.New("module is not in the cache of compiled modules")
	// errCacheDamaged says that the engine refused the compiled form. Compile it again.
	errCacheDamaged = errors.New("compiled module is damaged")
	// errEngine is a fault of ours or of the engine, not of the module.
	errEngine = errors.New("engine fault")
)

// features are the proposals that tools need: what compilers emit by default
// today, and exceptions for setjmp. Threads are not among them.
const features = api.CoreFeaturesV2 | experimental.CoreFeaturesExtendedConst |
	experimental.CoreFeaturesTailCall | experimental.CoreFeaturesExceptionHandling

// config returns the engine's configuration. Every setting that changes the machine code is part of
// wasi.Engine, but interruptible, which is part of the digest (wasi.Interruptible).
func config(interruptible bool) wazero.RuntimeConfig {
	return wazero.NewRuntimeConfigCompiler().
		WithCoreFeatures(features).
		// symbols for a stack that nobody sees cost seconds
		WithDebugInfoEnabled(false).
		WithCloseOnContextDone(interruptible)
}

// Loaded is a module that is ready to run, as often as wanted, also several times at once.
type Loaded struct {
	info    wasi.Info
	runtime wazero.Runtime
	cache   wazero.CompilationCache
	module  wazero.CompiledModule
	host    host
	// made is an instance for the next run, if there is one.
	made atomic.Pointer[instance]
	took atomic.Int64 // nanoseconds
}

// Load checks a module and loads its compiled form from cacheDir, which Compile made from the same
// module, or compiles it if cacheDir is "". Close it after use. The module may import the host
// functions for fetches if ctx has a Proxy; see WithProxy.
func Load(ctx context.Context, module []byte, limits wasi.Limits, cacheDir string) (*Loaded,
	error) {
	return loadGranted(ctx, module, limits, cacheDir, granted(ctx))
}

// Prepare is Load for a module that may import any host function there is: [Loaded.Run] checks what
// is granted. It also instantiates the module for the first run, with its initial memory and
// tables. None of the module's code runs, so a module with a start section is only loaded. It uses
// only the limits and the cache directory of inv.
func Prepare(ctx context.Context, module []byte, inv runners.Invocation) (*Loaded, error) {
	start := time.Now()
	l, err := loadGranted(ctx, module, inv.Module, inv.CacheDir, wasi.EveryFunction())
	if err != nil || l.info.Starts {
		return l, err
	}
	mem := newLinear(inv.MemoryLimit)
	if l.info.MemoryMin > mem.limit {
		return l, nil
	}
	// An error occurs again in the run, which reports it.
	if made, err := l.instantiate(ctx, mem); err == nil {
		l.made.Store(made)
	}
	l.took.Store(int64(time.Since(start)))
	return l, nil
}

func loadGranted(ctx context.Context, module []byte, limits wasi.Limits, cacheDir string,
	granted []wasi.Import) (*Loaded, error) {
	start := time.Now()
	info, err := wasi.Check(module, limits, granted...)
	if err != nil {
		return nil, err
	}
	if cacheDir == "" {
		l, err := load(ctx, info, wasi.BoundTables(module), "", limits.Interruptible)
		if err == nil {
			l.took.Store(int64(time.Since(start)))
		}
		return l, err
	}
	before, err := entryFile(cacheDir)
	if err != nil {
		return nil, err
	}
	// The engine copies what it keeps. Mapped memory, since so much garbage would cause a
	// collection.
	room, err := sys.Reserve(len(module) + wasi.HollowRoom)
	if err == nil {
		err = sys.Open(room)
	}
	if err != nil {
		return nil, err
	}
	l, err := load(ctx, info, wasi.AppendHollow(room[:0], module), cacheDir, limits.Interruptible)
	// Nothing can be done about it.
	_ = sys.Release(room)
	if err != nil {
		return nil, err
	}
	// If the cache is writable, the engine stores missing entries in it. It would have compiled a
	// module without code.
	after, err := entryFile(cacheDir)
	if err == nil && (!os.SameFile(before, after) || before.Size() != after.Size() ||
		!before.ModTime().Equal(after.ModTime())) {
		err = errNotCompiled
	}
	if err != nil {
		// The first error is the cause.
		_ = l.Close(ctx)
		return nil, err
	}
	l.took.Store(int64(time.Since(start)))
	return l, nil
}

func load(ctx context.Context, info wasi.Info, module []byte, cacheDir string,
	interruptible bool) (*Loaded, error) {
	// A write beyond the limit of file sizes is the guest's error, not our end.
	sys.IgnoreFileSizeSignal()
	l := &Loaded{info: info, host: host{memory: info.Memory}}
	cfg := config(interruptible)
	if cacheDir != "" {
		var err error
		if l.cache, err = wazero.NewCompilationCacheWithDir(cacheDir); err != nil {
			return nil, fmt.Errorf("cache of compiled modules: %w", err)
		}
		cfg = cfg.WithCompilationCache(l.cache)
	}
	l.runtime = wazero.NewRuntimeWithConfig(ctx, cfg)
	err := l.read(ctx, module)
	if err == nil {
		err = l.host.bind(ctx, l.runtime, l.info.Imports)
	}
	if err != nil {
		// The first error is the cause.
		_ = l.Close(ctx)
		return nil, err
	}
	return l, nil
}

// read decodes the module with the engine. It turns panics into errors: the engine panics on some
// invalid modules, such as code that ends within a try_table.
func (l *Loaded) read(ctx context.Context, module []byte) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &wasi.ModuleError{Kind: wasi.ErrModule,
				Sentence: "the module is invalid: the engine could not read it to its end (" +
					runners.Printable(fmt.Sprint(r), 200) + ")"}
		}
	}()
	if l.module, err = l.runtime.CompileModule(ctx, module); err != nil {
		return compileError(err)
	}
	return nil
}

// Close releases the engine's memory.
func (l *Loaded) Close(ctx context.Context) error {
	err := l.runtime.Close(ctx)
	if l.cache != nil {
		err = errors.Join(err, l.cache.Close(ctx))
	}
	return err
}

// Run loads the module and runs it once; see Loaded.Run. For a refused module the Report names the
// denial.
func Run(ctx context.Context, inv runners.Invocation, module []byte, stdin, stdout,
	stderr *os.File) (runners.Report, error) {
	l, err := Load(ctx, module, inv.Module, inv.CacheDir)
	if err != nil {
		return refused(err), err
	}
	defer l.Close(ctx)
	return l.Run(ctx, inv, stdin, stdout, stderr)
}

// refused returns a report with a denial if err is about an import that was not granted.
func refused(err error) runners.Report {
	var me *wasi.ModuleError
	if !errors.As(err, &me) || me.Kind != wasi.ErrImport {
		return runners.Report{}
	}
	return runners.Report{Denied: []runners.Denial{
		{Layer: "wasi", What: "import " + me.Import, Rule: "not granted", Count: 1}}}
}
