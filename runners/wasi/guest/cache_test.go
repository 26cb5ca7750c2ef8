package guest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/wasi"
)

// compiled makes a cache of the module and returns it with its entry.
func compiled(t *testing.T, module []byte) (dir, entry string) {
	t.Helper()
	dir = t.TempDir()
	if err := Compile(context.Background(), module, wasi.Limits{}, dir); err != nil {
		t.Fatal(err)
	}
	entry, err := Entry(dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir, entry
}

func cached(t *testing.T, module []byte, dir string) result {
	t.Helper()
	return runModule(t, runners.Invocation{CacheDir: dir}, module, "")
}

func TestCache(t *testing.T) {
	module := exits(42)
	dir, entry := compiled(t, module)
	info, err := os.Stat(entry)
	if err != nil {
		t.Fatal(err)
	}
	if r := cached(t, module, dir); r.err != nil || r.ExitCode != 42 {
		t.Errorf("hit: %d %v", r.ExitCode, r.err)
	}
	if now, err := os.Stat(entry); err != nil || !now.ModTime().Equal(info.ModTime()) {
		t.Errorf("the entry was written again: %v", err)
	}
	if r := cached(t, module, t.TempDir()); !errors.Is(r.err, errNotCompiled) {
		t.Errorf("empty cache: %v", r.err)
	}
	if r := cached(t, module, filepath.Join(dir, "missing")); !errors.Is(r.err, errNotCompiled) {
		t.Errorf("no cache: %v", r.err)
	}
	if r := cached(t, exits(1), dir); !errors.Is(r.err, errNotCompiled) {
		t.Errorf("cache of another module: %d %v", r.ExitCode, r.err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(entry), strings.Repeat("ab", 32)), nil,
		0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Entry(dir); !errors.Is(err, errNotCompiled) {
		t.Errorf("two entries: %v", err)
	}
}

// The debug option would make another entry of the same name; both the option
// and the engine's version are in the key that names the directory.
func TestEngineNamesItsVersion(t *testing.T) {
	if !strings.Contains(wasi.Engine, "wazero v1.12.0") || !strings.Contains(wasi.Engine,
		"no debug info") {
		t.Errorf("%q", wasi.Engine)
	}
}

// T-118: a damaged entry is found where the engine can find it. It cannot find
// all damage, which is why entries are sealed before they are used.
func TestDamagedEntry(t *testing.T) {
	module := exits(42)
	_, entry := compiled(t, module)
	whole, err := os.ReadFile(entry)
	if err != nil {
		t.Fatal(err)
	}
	damage := func(b []byte) result {
		dir := t.TempDir()
		sub := filepath.Join(dir, filepath.Base(filepath.Dir(entry)))
		if err := os.Mkdir(sub, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(sub, filepath.Base(entry)), b, 0o600); err != nil {
			t.Fatal(err)
		}
		return cached(t, module, dir)
	}
	if r := damage(whole); r.err != nil || r.ExitCode != 42 {
		t.Fatalf("undamaged: %v", r.err)
	}
	for name, b := range map[string][]byte{
		"empty": {}, "cut in the header": whole[:5], "cut in the code": whole[:len(whole)/2],
		"magic": flip(whole, 0), "code": flip(whole, len(whole)/2),
	} {
		if r := damage(b); !errors.Is(r.err, errCacheDamaged) {
			t.Errorf("%s: %d %v", name, r.ExitCode, r.err)
		}
	}
}

func flip(b []byte, at int) []byte {
	b = append([]byte(nil), b...)
	b[at] ^= 0xff
	return b
}
