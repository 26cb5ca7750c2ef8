package guest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/wasi"
	"github.com/tetratelabs/wazero"
)

// BenchmarkTrivial is a loaded module's whole run: instantiate, call, close.
func BenchmarkTrivial(b *testing.B) {
	dir := b.TempDir()
	inv := runners.Invocation{Args: runners.Texts{"x"},
		Mounts: []runners.Mount{{Path: "/workspace", Source: dir, Write: true}}, Cwd: "/workspace"}
	l, err := Load(context.Background(), exits(0), wasi.Limits{}, "")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close(context.Background())
	for b.Loop() {
		if _, err := l.Run(context.Background(), inv, nil, nil, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkWalk reads every file of a tree of 100 directories with 20 files
// each, beside the engine's own mount.
func BenchmarkWalk(b *testing.B) {
	dir := b.TempDir()
	for i := range 100 {
		sub := filepath.Join(dir, fmt.Sprint("d", i))
		if err := os.Mkdir(sub, 0o755); err != nil {
			b.Fatal(err)
		}
		for j := range 20 {
			if err := os.WriteFile(filepath.Join(sub, fmt.Sprint("f", j)), make([]byte, 2000),
				0o644); err != nil {
				b.Fatal(err)
			}
		}
	}
	ctx := context.Background()
	b.Run("engine", func(b *testing.B) {
		e := stockEngine()
		for b.Loop() {
			m, err := e.runtime.InstantiateModule(ctx, e.module,
				wazero.NewModuleConfig().WithName("").WithArgs("prober", "walk\t/workspace").
					WithFSConfig(wazero.NewFSConfig().WithDirMount(dir, "/workspace")))
			if err != nil {
				b.Fatal(err)
			}
			m.Close(ctx)
		}
	})
	for name, hide := range map[string][]string{"ours": nil,
		"ours with hidden names": {".env", "**/*.pem"}} {
		b.Run(name, func(b *testing.B) {
			l := loaded(b)
			inv := runners.Invocation{Args: runners.Texts{"prober", "walk\t/workspace"},
				Layout: runners.LayoutRooted,
				Mounts: []runners.Mount{{Path: "/workspace", Source: dir, Write: true, Hide: hide}}}
			for b.Loop() {
				if _, err := l.Run(ctx, inv, nil, nil, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkShippedTool is what a run of a shipped tool costs inside: the load of its compiled
// module, and a run that does nothing.
func BenchmarkShippedTool(b *testing.B) {
	module, err := os.ReadFile("../../../bin/bundles/core-utils/toybox.wasm")
	if err != nil {
		b.Skip("no bundles have been built")
	}
	ctx, dir := context.Background(), b.TempDir()
	if err := Compile(ctx, module, wasi.Limits{}, dir); err != nil {
		b.Fatal(err)
	}
	inv := runners.Invocation{Args: runners.Texts{"true"}, CacheDir: dir}
	for b.Loop() {
		if rep, err := Run(ctx, inv, module, nil, nil, nil); err != nil || rep.ExitCode != 0 {
			b.Fatalf("%+v %v", rep, err)
		}
	}
}
