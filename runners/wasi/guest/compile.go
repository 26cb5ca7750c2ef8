package guest

import (
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/jail-sandbox/jail/runners/wasi"
)

// Compile compiles a module into one entry in cacheDir, an empty writable directory. It must run in
// a jail of its own with limits: a module's author decides how much work compiling takes.
func Compile(ctx context.Context, module []byte, limits wasi.Limits, cacheDir string) error {
	// All imports are accepted: nothing is called here, and each run checks again.
	info, err := wasi.Check(module, limits, wasi.EveryFunction()...)
	if err != nil {
		return err
	}
	if err := wasi.CheckCode(module); err != nil {
		return err
	}
	entry, err := compileInto(ctx, info, wasi.BoundTables(module), cacheDir, limits.Interruptible)
	if err != nil {
		return err
	}
	// The engine names an entry after the module, and a run gives it the hollow one: compiling that
	// gives its name.
	hollow := filepath.Join(cacheDir, "hollow")
	defer os.RemoveAll(hollow)
	name, err := compileInto(ctx, info, wasi.Hollow(module), hollow, limits.Interruptible)
	if err != nil {
		return fmt.Errorf("%w: without its code: %w", errEngine, err)
	}
	if err := os.Rename(entry,
		filepath.Join(filepath.Dir(entry), filepath.Base(name))); err != nil {
		return err
	}
	return os.RemoveAll(hollow)
}

// compileInto compiles a module and returns the path of its entry.
func compileInto(ctx context.Context, info wasi.Info, module []byte, cacheDir string,
	interruptible bool) (string, error) {
	l, err := load(ctx, info, module, cacheDir, interruptible)
	if err != nil {
		return "", err
	}
	if err := l.Close(ctx); err != nil {
		return "", fmt.Errorf("cache of compiled modules: %w", err)
	}
	return Entry(cacheDir)
}

// entryFile describes the one compiled module in cacheDir.
func entryFile(cacheDir string) (os.FileInfo, error) {
	path, err := Entry(cacheDir)
	if err != nil {
		return nil, err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotCompiled, err)
	}
	return info, nil
}

// Entry returns the path of the one compiled module in cacheDir. The engine names it
// wazero-VERSION-ARCH-OS/DIGEST, where the digest is over the module without its code and the
// features of the CPU; a directory for each module makes it findable without them.
func Entry(cacheDir string) (string, error) {
	dirs, err := os.ReadDir(cacheDir)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNotCompiled, err)
	}
	var found []string
	for _, d := range dirs {
		if !d.IsDir() || !strings.HasPrefix(d.Name(), "wazero-") {
			continue
		}
		files, err := os.ReadDir(filepath.Join(cacheDir, d.Name()))
		if err != nil {
			return "", fmt.Errorf("%w: %w", errNotCompiled, err)
		}
		for _, f := range files {
			if b, err := hex.DecodeString(f.Name()); err == nil && len(b) == 32 &&
				f.Type().IsRegular() {
				found = append(found, filepath.Join(cacheDir, d.Name(), f.Name()))
			}
		}
	}
	switch len(found) {
	case 0:
		return "", errNotCompiled
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("%w: %s holds %d entries, not one", errNotCompiled, cacheDir, len(found))
}
