package workspace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

func cacheNamed(id string) CacheSpec {
	return CacheSpec{ID: id, Owner: CacheOwner{Name: "build"}, Size: 8 << 20}
}

// cacheFile is a file of the directory of a cache in the store.
func (f *fixture) cacheFile(id, name string) string {
	return filepath.Join(f.dir, cachePrefix+id, name)
}

// hasCacheFile reports whether there is such a file.
func (f *fixture) hasCacheFile(id, name string) bool {
	f.t.Helper()
	_, err := os.Lstat(f.cacheFile(id, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.t.Fatal(err)
	}
	return err == nil
}

// useCache opens a cache and calls use with the directory of its content.
func (f *fixture) useCache(spec CacheSpec, use func(dir string)) (fresh bool) {
	f.t.Helper()
	mount, fresh, err := f.store.Caches().Open(spec)
	must(f.t, err)
	use(fmt.Sprintf("/proc/self/fd/%d/%s", mount.Fd(), CacheRoot))
	must(f.t, mount.Close())
	return fresh
}

// awaitRelease waits until the kernel has released the image of a cache.
func (f *fixture) awaitRelease(id string) {
	f.t.Helper()
	image, err := os.OpenFile(f.cacheFile(id, "upper.img"), os.O_RDWR, 0)
	must(f.t, err)
	defer image.Close()
	must(f.t, sys.LockWait(image, true))
}

func (f *fixture) cacheMeta(id string) (m cacheMeta) {
	f.t.Helper()
	text, err := os.ReadFile(f.cacheFile(id, "meta.json"))
	must(f.t, err)
	must(f.t, json.Unmarshal(text, &m))
	return m
}

// fromBoot has a cache written to last in another boot of the host.
func (f *fixture) fromBoot(id, boot string) {
	f.t.Helper()
	m := f.cacheMeta(id)
	m.Boot = boot
	text, err := json.Marshal(m)
	must(f.t, err)
	must(f.t, os.WriteFile(f.cacheFile(id, "meta.json"), text, 0o600))
}

func writeIn(t *testing.T, text string) func(dir string) {
	return func(dir string) {
		must(t, os.WriteFile(filepath.Join(dir, "file"), []byte(text), 0o600))
	}
}

// wantIn checks the file of a cache; "" means that there is none.
func wantIn(t *testing.T, want string) func(dir string) {
	return func(dir string) {
		got, err := os.ReadFile(filepath.Join(dir, "file"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) || string(got) != want {
			t.Errorf("the cache has %q, want %q: %v", got, want, err)
		}
	}
}

// TestCacheBoot: what was written in an earlier boot, and was not settled, is not relied on,
// however clean its file system says that it is.
func TestCacheBoot(t *testing.T) {
	f := newFixture(t)
	spec := cacheNamed("c1")
	if !f.useCache(spec, writeIn(t, "first")) {
		t.Error("a new cache is not fresh")
	}
	boot, err := sys.BootID()
	must(t, err)
	if got := f.cacheMeta("c1").Boot; got != boot {
		t.Errorf("it is of boot %q", got)
	}
	f.awaitRelease("c1")
	if f.useCache(spec, wantIn(t, "first")) {
		t.Error("it is begun anew in the same boot")
	}
	f.awaitRelease("c1")
	f.fromBoot("c1", "another")
	// What another boot left cannot be settled any more.
	must(t, f.store.Caches().Settle())
	if got := f.cacheMeta("c1").Boot; got != "another" {
		t.Errorf("a torn cache was settled: %q", got)
	}
	if !f.useCache(spec, wantIn(t, "")) {
		t.Error("it is relied on in another boot")
	}
	if got := f.cacheMeta("c1").Boot; got != boot {
		t.Errorf("made anew, it is of boot %q", got)
	}
}

// TestCacheSettles: a settled cache outlives the boot, until it is mounted again.
func TestCacheSettles(t *testing.T) {
	f := newFixture(t)
	spec := cacheNamed("c1")
	f.useCache(spec, func(dir string) {
		writeIn(t, "first")(dir)
		must(t, f.store.Caches().Settle())
		if f.cacheMeta("c1").Boot == "" {
			t.Error("a cache that is mounted was settled")
		}
	})
	f.awaitRelease("c1")
	must(t, f.store.Caches().Settle())
	if got := f.cacheMeta("c1").Boot; got != "" {
		t.Errorf("it is of boot %q", got)
	}
	fresh := f.useCache(spec, func(dir string) {
		wantIn(t, "first")(dir)
		if f.cacheMeta("c1").Boot == "" {
			t.Error("a cache that is mounted is settled")
		}
	})
	if fresh {
		t.Error("a settled cache is begun anew")
	}
}

// TestCacheShared: two mounts of a cache are of one file system.
func TestCacheShared(t *testing.T) {
	f := newFixture(t)
	spec := cacheNamed("c1")
	f.useCache(spec, func(dir string) {
		writeIn(t, "first")(dir)
		if f.useCache(spec, func(other string) {
			wantIn(t, "first")(other)
			writeIn(t, "second")(other)
		}) {
			t.Error("a cache in use is begun anew")
		}
		wantIn(t, "second")(dir)
	})
}

// TestCacheUnfinished: what is left of a cache that could not be made is removed.
func TestCacheUnfinished(t *testing.T) {
	f := newFixture(t)
	large := cacheNamed("c1")
	large.Size = 1 << 50
	if _, _, err := f.store.Caches().Open(large); !errors.Is(err, ErrNoSpace) {
		t.Fatalf("a cache beyond the disk: %v", err)
	}
	if f.hasCacheFile("c1", "") {
		t.Error("a cache that could not be made is left")
	}
	// A process was killed while it made one. Another is being made.
	for _, id := range []string{"killed", "made"} {
		must(t, os.Mkdir(f.cacheFile(id, ""), 0o700))
		for _, name := range []string{"upper.img", "lock"} {
			must(t, os.WriteFile(f.cacheFile(id, name), nil, 0o600))
		}
	}
	lock, err := os.OpenFile(f.cacheFile("made", "lock"), os.O_RDWR, 0)
	must(t, err)
	must(t, sys.Lock(lock, true))
	must(t, f.store.Caches().Prune(time.Now(), nil))
	if f.hasCacheFile("killed", "") || !f.hasCacheFile("made", "upper.img") {
		t.Error("prune does not tell unfinished caches from those that are being made")
	}
	must(t, lock.Close())
	must(t, f.store.Caches().Prune(time.Now(), nil))
	if f.hasCacheFile("made", "") {
		t.Error("prune leaves an unfinished cache")
	}
}

// TestCacheWithoutTemplate: a cache that cannot be made anew now is found and removed as before.
func TestCacheWithoutTemplate(t *testing.T) {
	f := newFixture(t)
	spec := cacheNamed("c1")
	f.useCache(spec, writeIn(t, "first"))
	f.awaitRelease("c1")
	f.fromBoot("c1", "another")
	templates, err := filepath.Glob(filepath.Join(f.dir, templatePrefix+"*"))
	must(t, err)
	for _, name := range templates {
		must(t, os.Remove(name))
		must(t, os.Symlink("nowhere", name))
	}
	if _, _, err := f.store.Caches().Open(spec); err == nil {
		t.Fatal("a link was taken for a template")
	}
	all, err := f.store.Caches().List()
	must(t, err)
	if len(all) != 1 || all[0].ID != "c1" {
		t.Errorf("caches: %+v", all)
	}
	must(t, f.store.Caches().Remove("c1"))
	if f.hasCacheFile("c1", "") {
		t.Error("it is left")
	}
}
