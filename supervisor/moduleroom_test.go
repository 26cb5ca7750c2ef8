package supervisor

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// aged says of entries that each was used an hour before the next one.
func aged(t *testing.T, c *moduleCache, modules ...[sha256.Size]byte) {
	t.Helper()
	for n, m := range modules {
		at := time.Now().Add(time.Duration(n-len(modules)) * time.Hour)
		if err := os.Chtimes(c.path(m), at, at); err != nil {
			t.Fatal(err)
		}
	}
}

func wantThere(t *testing.T, c *moduleCache, want map[[sha256.Size]byte]bool) {
	t.Helper()
	for m, want := range want {
		if _, err := os.Stat(c.path(m)); (err == nil) != want {
			t.Errorf("entry %x is there: %v, want %v", m[:2], err == nil, want)
		}
	}
}

// However many modules are compiled, those that were used longest ago go. That one was used is seen, and does not make its content be read anew.
func TestCacheStaysBelowItsBound(t *testing.T) {
	c := mustOpen(t)
	c.most, c.settles = 3*leastEntry, 0
	a, _ := stored(t, c, "a")
	wantFound(t, c, a, true) // and has a stamp now
	b, _ := stored(t, c, "b")
	d, _ := stored(t, c, "d")
	aged(t, c, a, b, d)
	seal := filepath.Join(c.path(a), sealName)
	whole, err := os.ReadFile(seal)
	if err != nil {
		t.Fatal(err)
	}
	whole[0] ^= 1 // the half that is for the content
	if err := os.Chmod(seal, 0o600); err != nil {
		t.Fatal(err)
	}
	writeFile(t, seal, whole)
	wantFound(t, c, a, true)
	wantFound(t, c, a, true)
	e, _ := stored(t, c, "e")
	wantThere(t, c, map[[sha256.Size]byte]bool{a: true, b: false, d: true, e: true})
	for n := range 10 {
		last, _ := stored(t, c, fmt.Sprint(n))
		wantFound(t, c, last, true)
	}
	if _, total, err := c.room(); err != nil || total > c.most {
		t.Errorf("the entries take %d of %d bytes, %v", total, c.most, err)
	}
}

// It is marked once in a while, not at each run.
func TestCacheMarksSeldom(t *testing.T) {
	c := mustOpen(t)
	a, _ := stored(t, c, "a")
	at := time.Now().Add(-markEvery / 2)
	if err := os.Chtimes(c.path(a), at, at); err != nil {
		t.Fatal(err)
	}
	wantFound(t, c, a, true)
	if info, err := os.Stat(c.path(a)); err != nil || !info.ModTime().Equal(at) {
		t.Errorf("it was used at %v, and is marked with %v, %v", at, info.ModTime(), err)
	}
}

// What a run has looked for stays until the run is over, whichever daemon needs the room.
func TestCacheKeepsWhatIsInUse(t *testing.T) {
	c := mustOpen(t)
	other, err := openModuleCache(c.dir, 1)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := stored(t, c, "a")
	missing := sha256.Sum256([]byte("b"))
	first, second := &cacheHold{}, &cacheHold{}
	for hold, m := range map[*cacheHold][sha256.Size]byte{first: a, second: missing} {
		if _, ok, err := c.find(hold, m); err != nil || ok != (m == a) {
			t.Fatal(ok, err)
		}
	}
	stored(t, c, "b") // as the run does that did not find it
	d, _ := stored(t, other, "d")
	wantThere(t, c, map[[sha256.Size]byte]bool{a: true, missing: true, d: false})
	first.close()
	stored(t, other, "d")
	wantThere(t, c, map[[sha256.Size]byte]bool{a: false, missing: true, d: false})
	second.close()
	stored(t, other, "d")
	wantThere(t, c, map[[sha256.Size]byte]bool{missing: false})
}

// Two runs find an entry bad. The second to act on that leaves alone what the first has made anew.
func TestCacheRemovesWhatIsBadNow(t *testing.T) {
	c := mustOpen(t)
	a, path := stored(t, c, "a")
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, []byte("something else"))
	if err := c.look(c.path(a)); !isUseless(err) {
		t.Fatal(err)
	}
	wantFound(t, c, a, false)
	stored(t, c, "a")
	if err := c.remove(c.path(a)); err != nil {
		t.Error(err)
	}
	wantFound(t, c, a, true)
}

// What a killed daemon was writing goes; what one writes now, and what is none of the cache's, does not.
func TestCacheTakesAwayWhatIsLeft(t *testing.T) {
	c := mustOpen(t)
	c.most = 1
	for name, age := range map[string]time.Duration{unplaced + "old": 2 * leftAfter, unplaced + "now": 0, "lost+found": 2 * leftAfter} {
		dir := filepath.Join(c.dir, name)
		at := time.Now().Add(-age)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(dir, at, at); err != nil {
			t.Fatal(err)
		}
	}
	stored(t, c, "a")
	for name, want := range map[string]bool{unplaced + "old": false, unplaced + "now": true, "lost+found": true, "secret": true} {
		if _, err := os.Stat(filepath.Join(c.dir, name)); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", name, err == nil, want)
		}
	}
}
