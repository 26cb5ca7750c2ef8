package modules

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const entryFile = "wazero-v1.12.0-amd64-linux/" // and 64 digits

func stored(t *testing.T, c *Cache, module string) (sum [sha256.Size]byte, path string) {
	t.Helper()
	sum = sha256.Sum256([]byte(module))
	name := entryFile + strings.Repeat("a", 64)
	if err := c.Store(sum, []byte(name+"\nmachine code of "+module)); err != nil {
		t.Fatal(err)
	}
	return sum, filepath.Join(c.Path(sum), name)
}

func mustOpen(t *testing.T) *Cache {
	t.Helper()
	c, err := Open(filepath.Join(t.TempDir(), "modules"), 0)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func wantFound(t *testing.T, c *Cache, sum [sha256.Size]byte, want bool) {
	t.Helper()
	hold := &Hold{}
	defer hold.Close()
	_, ok, err := c.Find(hold, sum)
	if err != nil {
		t.Fatal(err)
	}
	if ok != want {
		t.Fatalf("found %v, want %v", ok, want)
	}
}

func TestCacheFindsWhatItStored(t *testing.T) {
	c := mustOpen(t)
	sum, _ := stored(t, c, "a")
	wantFound(t, c, sum, true)
	wantFound(t, c, sha256.Sum256([]byte("b")), false)

	// Another daemon on the same state has the same secret.
	other, err := Open(c.dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	wantFound(t, other, sum, true)
}

// TestCacheRefusesWhatWasChanged is T-118: whatever is done to an entry, it is not used but made
// anew.
func TestCacheRefusesWhatWasChanged(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, c *Cache, path string){
		"a byte": func(t *testing.T, _ *Cache, path string) {
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			content[len(content)-1] ^= 1
			writeFile(t, path, content)
		},
		"cut":   func(t *testing.T, _ *Cache, path string) { writeFile(t, path, []byte("mach")) },
		"empty": func(t *testing.T, _ *Cache, path string) { writeFile(t, path, nil) },
		"another module's entry": func(t *testing.T, c *Cache, path string) {
			_, other := stored(t, c, "other")
			content, err := os.ReadFile(other)
			if err != nil {
				t.Fatal(err)
			}
			writeFile(t, path, content)
		},
		"another module's entry and seal": func(t *testing.T, c *Cache, path string) {
			_, other := stored(t, c, "other")
			dir := filepath.Dir(filepath.Dir(path))
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(filepath.Dir(filepath.Dir(other)), dir); err != nil {
				t.Fatal(err)
			}
		},
		"no seal": func(t *testing.T, c *Cache, path string) {
			if err := os.Remove(filepath.Join(filepath.Dir(filepath.Dir(path)),
				sealName)); err != nil {
				t.Fatal(err)
			}
		},
		"an empty seal": func(t *testing.T, c *Cache, path string) {
			seal := filepath.Join(filepath.Dir(filepath.Dir(path)), sealName)
			if err := os.Chmod(seal, 0o600); err != nil {
				t.Fatal(err)
			}
			writeFile(t, seal, nil)
		},
		"another secret": func(t *testing.T, c *Cache, _ string) {
			c.secret = bytes.Repeat([]byte{1}, sha256.Size)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := mustOpen(t)
			sum, path := stored(t, c, "a")
			if err := os.Chmod(path, 0o644); err != nil {
				t.Fatal(err)
			}
			change(t, c, path)
			wantFound(t, c, sum, false)
			if _, err := os.Stat(c.Path(sum)); !os.IsNotExist(err) {
				t.Errorf("the entry is still there: %v", err)
			}
			c.secret, _ = os.ReadFile(filepath.Join(c.dir, "secret"))
			stored(t, c, "a")
			wantFound(t, c, sum, true)
		})
	}
}

// T-118: each byte of an entry and of its seal, and a directory that leads elsewhere.
func TestCacheChecksEveryByte(t *testing.T) {
	c := mustOpen(t)
	if info, err := os.Stat(c.dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Fatalf("the cache's directory: %v, %v", info.Mode(), err)
	}
	for _, file := range []string{"entry", "seal"} {
		sum, path := stored(t, c, "a")
		if file == "seal" {
			// A seal has both halves once its entry was used when it had settled.
			c.settles = 0
			wantFound(t, c, sum, true)
			path = filepath.Join(c.Path(sum), sealName)
		}
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for at := range whole {
			if err := os.RemoveAll(c.Path(sum)); err != nil {
				t.Fatal(err)
			}
			sum, entry := stored(t, c, "a")
			wantFound(t, c, sum, true)
			path := map[string]string{"entry": entry,
				"seal": filepath.Join(c.Path(sum), sealName)}[file]
			if whole, err = os.ReadFile(path); err != nil {
				t.Fatal(err)
			}
			whole[at] ^= 1
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			writeFile(t, path, whole)
			// Either half of a seal vouches for the file: the one for its content, the other for
			// its being the very file that was sealed.
			wantFound(t, c, sum, file == "seal")
			if file == "seal" {
				sum, entry := stored(t, c, "b")
				wantFound(t, c, sum, true)
				path := filepath.Join(c.Path(sum), sealName)
				if whole, err = os.ReadFile(path); err != nil {
					t.Fatal(err)
				}
				whole[at] ^= 1
				// And one of the other half.
				whole[(at+sha256.Size)%len(whole)] ^= 1
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
				writeFile(t, path, whole)
				wantFound(t, c, sum, false)
				// Found has taken it away, so "b" is made anew each time.
				if _, err := os.Stat(entry); err == nil {
					t.Errorf("byte %d: the entry is still there", at)
				}
			}
		}
	}
	sum, _ := stored(t, c, "a")
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	if err := os.Rename(c.Path(sum), elsewhere); err != nil {
		t.Fatal(err)
	}
	entry, err := filepath.Glob(filepath.Join(elsewhere, "wazero-*", "*"))
	if err != nil || len(entry) != 1 {
		t.Fatal(entry, err)
	}
	if err := os.Remove(entry[0]); err != nil {
		t.Fatal(err)
	}
	writeFile(t, entry[0], []byte("machine code of somebody else"))
	if err := os.Symlink(elsewhere, c.Path(sum)); err != nil {
		t.Fatal(err)
	}
	wantFound(t, c, sum, false)
	if _, err := os.Stat(entry[0]); err != nil {
		t.Errorf("what the link leads to was touched: %v", err)
	}
}

// A copy of the whole state has other inodes and times: its entries are read again, believed for
// their content, and sealed anew.
func TestCacheBelievesACopyByItsContent(t *testing.T) {
	c := mustOpen(t)
	sum, path := stored(t, c, "a")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, content)
	wantFound(t, c, sum, true)
	wantFound(t, c, sum, true)
}

func TestCacheTakesOnlyEntries(t *testing.T) {
	c := mustOpen(t)
	sum := sha256.Sum256([]byte("a"))
	for _, written := range []string{"", "\n", "no newline", entryFile + "short\ncode",
		"../" + strings.Repeat("a", 64) + "\ncode",
		entryFile + strings.Repeat("a", 64) + "/../x\ncode", "wazero-/../../x/" +
			strings.Repeat("a", 64) + "\ncode", entryFile + strings.Repeat("a", 64) + "\n"} {
		if err := c.Store(sum, []byte(written)); err == nil {
			t.Errorf("took %q", written)
		}
	}
	left, err := os.ReadDir(c.dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 1 || left[0].Name() != "secret" {
		t.Errorf("left behind: %v", left)
	}
}

func writeFile(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

// aged says of entries that each was used an hour before the next one.
func aged(t *testing.T, c *Cache, modules ...[sha256.Size]byte) {
	t.Helper()
	for n, m := range modules {
		at := time.Now().Add(time.Duration(n-len(modules)) * time.Hour)
		if err := os.Chtimes(c.Path(m), at, at); err != nil {
			t.Fatal(err)
		}
	}
}

func wantThere(t *testing.T, c *Cache, want map[[sha256.Size]byte]bool) {
	t.Helper()
	for m, want := range want {
		if _, err := os.Stat(c.Path(m)); (err == nil) != want {
			t.Errorf("entry %x is there: %v, want %v", m[:2], err == nil, want)
		}
	}
}

// However many modules are compiled, those that were used longest ago go. That one was used is
// seen, and does not make its content be read anew.
func TestCacheStaysBelowItsBound(t *testing.T) {
	c := mustOpen(t)
	c.most, c.settles = 3*leastEntry, 0
	a, _ := stored(t, c, "a")
	// And has a stamp now.
	wantFound(t, c, a, true)
	b, _ := stored(t, c, "b")
	d, _ := stored(t, c, "d")
	aged(t, c, a, b, d)
	seal := filepath.Join(c.Path(a), sealName)
	whole, err := os.ReadFile(seal)
	if err != nil {
		t.Fatal(err)
	}
	// The half that is for the content.
	whole[0] ^= 1
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
	if err := os.Chtimes(c.Path(a), at, at); err != nil {
		t.Fatal(err)
	}
	wantFound(t, c, a, true)
	if info, err := os.Stat(c.Path(a)); err != nil || !info.ModTime().Equal(at) {
		t.Errorf("it was used at %v, and is marked with %v, %v", at, info.ModTime(), err)
	}
}

// What a run has looked for stays until the run is over, whichever daemon needs the room.
func TestCacheKeepsWhatIsInUse(t *testing.T) {
	c := mustOpen(t)
	other, err := Open(c.dir, 1)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := stored(t, c, "a")
	missing := sha256.Sum256([]byte("b"))
	first, second := &Hold{}, &Hold{}
	for hold, m := range map[*Hold][sha256.Size]byte{first: a, second: missing} {
		if _, ok, err := c.Find(hold, m); err != nil || ok != (m == a) {
			t.Fatal(ok, err)
		}
	}
	// As the run does that did not find it.
	stored(t, c, "b")
	d, _ := stored(t, other, "d")
	wantThere(t, c, map[[sha256.Size]byte]bool{a: true, missing: true, d: false})
	first.Close()
	stored(t, other, "d")
	wantThere(t, c, map[[sha256.Size]byte]bool{a: false, missing: true, d: false})
	second.Close()
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
	if err := c.look(c.Path(a)); !isUseless(err) {
		t.Fatal(err)
	}
	wantFound(t, c, a, false)
	stored(t, c, "a")
	if err := c.remove(c.Path(a)); err != nil {
		t.Error(err)
	}
	wantFound(t, c, a, true)
}

// What a killed daemon was writing goes; what one writes now, and what is none of the cache's, does
// not.
func TestCacheTakesAwayWhatIsLeft(t *testing.T) {
	c := mustOpen(t)
	c.most = 1
	for name, age := range map[string]time.Duration{unplaced + "old": 2 * leftAfter,
		unplaced + "now": 0, "lost+found": 2 * leftAfter} {
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
	for name, want := range map[string]bool{unplaced + "old": false, unplaced + "now": true,
		"lost+found": true, "secret": true} {
		if _, err := os.Stat(filepath.Join(c.dir, name)); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", name, err == nil, want)
		}
	}
}

// FuzzStore: whatever a compiling jail writes (T-118) is one entry below the module's own directory
// and found again, or it is refused and leaves nothing.
func FuzzStore(f *testing.F) {
	name := entryFile + strings.Repeat("a", 64)
	for _, s := range []string{"", "\n", name + "\ncode", name + "\n", "../" + name + "\ncode",
		name + "/x\ncode", name + "\x00\ncode", "wazero-../" + strings.Repeat("0", 64) + "\nx"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, written []byte) {
		top := t.TempDir()
		c, err := Open(filepath.Join(top, "modules"), 0)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256([]byte("a"))
		stored := c.Store(sum, written) == nil
		hold := &Hold{}
		defer hold.Close()
		if _, ok, err := c.Find(hold, sum); err != nil || ok != stored {
			t.Errorf("stored %v, found %v, %v", stored, ok, err)
		}
		if list, err := os.ReadDir(top); err != nil || len(list) != 1 {
			t.Errorf("beside the cache: %v, %v", list, err)
		}
		list, err := os.ReadDir(c.dir)
		if want := map[bool]int{false: 2, true: 3}[stored]; err != nil || len(list) != want {
			t.Errorf("in the cache: %v, %v, want %d", list, err, want)
		}
		if !stored {
			return
		}
		f, err := c.open(c.Path(sum))
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		if rel, err := filepath.Rel(c.Path(sum), f.Name()); err != nil ||
			!entryName().MatchString(rel) {
			t.Errorf("the entry lies at %s, %v", rel, err)
		}
	})
}
