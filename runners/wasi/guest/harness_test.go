package guest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/jail-sandbox/jail/jail/jailtest/built"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/wasi"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
)

// scratch holds what the tests of one run share: the prober and its compiled
// forms.
var scratch string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if module := os.Getenv("JAIL_TEST_MODULE"); module != "" {
		return runChild(module)
	}
	var err error
	if scratch, err = os.MkdirTemp("", "jail-wasi-guest-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(scratch)
	return m.Run()
}

// prober builds the guest of the tests, once.
var prober = sync.OnceValue(func() []byte {
	out := filepath.Join(scratch, "prober.wasm")
	if err := built.Program(out, []string{"GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0"},
		"-ldflags=-s -w", "./runners/wasi/guest/testdata/prober"); err != nil {
		panic(err)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		panic(err)
	}
	return b
})

// proberCache is a cache directory that holds the prober.
var proberCache = sync.OnceValue(func() string {
	dir := filepath.Join(scratch, "cache")
	if err := Compile(context.Background(), prober(), runners.ModuleLimits{}, dir); err != nil {
		panic(err)
	}
	return dir
})

// result is what a run gave.
type result struct {
	runners.Report
	err            error
	stdout, stderr string
}

func (r result) lines() []string { return strings.Split(strings.TrimRight(r.stdout, "\n"), "\n") }

// denied reports whether something was recorded whose text has the words.
func (r result) denied(words string) bool {
	for _, d := range r.Denied {
		if strings.Contains(d.What, words) {
			return true
		}
	}
	return false
}

// run runs the prober with the operations.
func run(t *testing.T, inv runners.Invocation, ops ...string) result {
	t.Helper()
	inv.Args = append(runners.Texts{"prober"}, ops...)
	inv.CacheDir = proberCache()
	return runModule(t, inv, prober(), "")
}

func runModule(t *testing.T, inv runners.Invocation, module []byte, stdin string) result {
	t.Helper()
	if len(inv.Args) == 0 {
		inv.Args = runners.Texts{"tool"}
	}
	in := tempFile(t, stdin)
	out, errs := tempFile(t, ""), tempFile(t, "")
	var r result
	r.Report, r.err = Run(context.Background(), inv, module, in, out, errs)
	r.stdout, r.stderr = contents(t, out), contents(t, errs)
	return r
}

func tempFile(t *testing.T, text string) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	return f
}

func contents(t *testing.T, f *os.File) string {
	t.Helper()
	b, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// stock runs the prober on the engine's own WASI and directory mount: the
// control, which shows that an attack works where nothing of ours is.
func stock(t *testing.T, mount func(wazero.FSConfig) wazero.FSConfig, ops ...string) []string {
	t.Helper()
	ctx := context.Background()
	e := stockEngine()
	out := tempFile(t, "")
	cfg := wazero.NewModuleConfig().WithName("").WithArgs(append([]string{"prober"}, ops...)...).
		WithStdout(out).WithStderr(out).WithFSConfig(mount(wazero.NewFSConfig()))
	if m, err := e.runtime.InstantiateModule(ctx, e.module, cfg); err != nil {
		t.Fatalf("stock: %v\n%s", err, contents(t, out))
	} else {
		m.Close(ctx)
	}
	return strings.Split(strings.TrimRight(contents(t, out), "\n"), "\n")
}

type stockLoaded struct {
	runtime wazero.Runtime
	module  wazero.CompiledModule
}

var stockEngine = sync.OnceValue(func() stockLoaded {
	ctx := context.Background()
	cache, err := wazero.NewCompilationCacheWithDir(proberCache())
	if err != nil {
		panic(err)
	}
	r := wazero.NewRuntimeWithConfig(ctx, config(false).WithCompilationCache(cache))
	wasi_snapshot_preview1.MustInstantiate(ctx, r)
	// What is in the cache.
	m, err := r.CompileModule(ctx, wasi.Hollow(prober()))
	if err != nil {
		panic(err)
	}
	return stockLoaded{r, m}
})

// world is a directory to mount, and one beside it that nothing may touch.
type world struct {
	t            *testing.T
	top, in, out string
	before       string
}

const canary = "canary: nobody reads this"

func newWorld(t *testing.T) *world {
	t.Helper()
	top := t.TempDir()
	w := &world{t: t, top: top, in: filepath.Join(top, "in"), out: filepath.Join(top, "out")}
	w.dir("in")
	w.dir("out/dir")
	w.file("out/secret", canary)
	w.file("out/dir/secret", canary)
	w.file("in/file", "inside")
	w.dir("in/dir")
	w.file("in/dir/file", "inside dir")
	w.before = w.hash()
	return w
}

func (w *world) path(p string) string { return filepath.Join(w.top, p) }

func (w *world) dir(p string) { w.must(os.MkdirAll(w.path(p), 0o755)) }

func (w *world) file(p, text string) { w.must(os.WriteFile(w.path(p), []byte(text), 0o644)) }

func (w *world) link(target, p string) { w.must(os.Symlink(target, w.path(p))) }

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// hash is over all that is outside: names, modes, times, links and bytes.
func (w *world) hash() string {
	w.t.Helper()
	h := sha256.New()
	w.must(filepath.WalkDir(w.out, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		i, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintln(h, p, i.Mode(), i.ModTime().UnixNano(), inode(i))
		if i.Mode().IsRegular() {
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			h.Write(b)
		}
		return nil
	}))
	return fmt.Sprintf("%x", h.Sum(nil))
}

// untouched reports whether all that is outside is as it was.
func (w *world) untouched() bool { return w.hash() == w.before }

func (w *world) mount() runners.Mount {
	return runners.Mount{Path: "/workspace", Source: w.in, Write: true}
}

// preopens is the layout in which descriptor 3 is /workspace, as in the control.
func (w *world) preopens() runners.Invocation {
	return runners.Invocation{Mounts: []runners.Mount{w.mount()}, Layout: runners.LayoutPreopens}
}

func (w *world) readOnly() runners.Invocation {
	inv := w.preopens()
	inv.Mounts[0].Write = false
	return inv
}

func (w *world) stock(ops ...string) []string {
	w.t.Helper()
	return stock(w.t, func(c wazero.FSConfig) wazero.FSConfig {
		return c.WithDirMount(w.in, "/workspace")
	}, ops...)
}

func (w *world) stockReadOnly(ops ...string) []string {
	w.t.Helper()
	return stock(w.t, func(c wazero.FSConfig) wazero.FSConfig {
		return c.WithReadOnlyDirMount(w.in, "/workspace")
	}, ops...)
}

func ok(line string) bool { return strings.HasPrefix(line, "0\t") }

// inode is what identifies a file; its access time, which reading changes, is
// left out.
func inode(i fs.FileInfo) string {
	st := reflect.ValueOf(i.Sys()).Elem()
	return fmt.Sprint(st.FieldByName("Ino").Uint(), st.FieldByName("Nlink").Uint(), i.Size())
}
