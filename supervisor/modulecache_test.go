package supervisor

import (
	"bytes"
	"crypto/sha256"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const entryFile = "wazero-v1.12.0-amd64-linux/" // and 64 digits

func stored(t *testing.T, c *moduleCache, module string) (sum [sha256.Size]byte, path string) {
	t.Helper()
	sum = sha256.Sum256([]byte(module))
	name := entryFile + strings.Repeat("a", 64)
	if err := c.store(sum, []byte(name+"\nmachine code of "+module)); err != nil {
		t.Fatal(err)
	}
	return sum, filepath.Join(c.path(sum), name)
}

func mustOpen(t *testing.T) *moduleCache {
	t.Helper()
	c, err := openModuleCache(filepath.Join(t.TempDir(), "modules"), 0)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func wantFound(t *testing.T, c *moduleCache, sum [sha256.Size]byte, want bool) {
	t.Helper()
	hold := &cacheHold{}
	defer hold.close()
	_, ok, err := c.find(hold, sum)
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
	other, err := openModuleCache(c.dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	wantFound(t, other, sum, true)
}

// TestCacheRefusesWhatWasChanged is T-118: whatever is done to an entry, it is not used but made anew.
func TestCacheRefusesWhatWasChanged(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, c *moduleCache, path string){
		"a byte": func(t *testing.T, _ *moduleCache, path string) {
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			content[len(content)-1] ^= 1
			writeFile(t, path, content)
		},
		"cut":   func(t *testing.T, _ *moduleCache, path string) { writeFile(t, path, []byte("mach")) },
		"empty": func(t *testing.T, _ *moduleCache, path string) { writeFile(t, path, nil) },
		"another module's entry": func(t *testing.T, c *moduleCache, path string) {
			_, other := stored(t, c, "other")
			content, err := os.ReadFile(other)
			if err != nil {
				t.Fatal(err)
			}
			writeFile(t, path, content)
		},
		"another module's entry and seal": func(t *testing.T, c *moduleCache, path string) {
			_, other := stored(t, c, "other")
			dir := filepath.Dir(filepath.Dir(path))
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(filepath.Dir(filepath.Dir(other)), dir); err != nil {
				t.Fatal(err)
			}
		},
		"no seal": func(t *testing.T, c *moduleCache, path string) {
			if err := os.Remove(filepath.Join(filepath.Dir(filepath.Dir(path)), sealName)); err != nil {
				t.Fatal(err)
			}
		},
		"an empty seal": func(t *testing.T, c *moduleCache, path string) {
			seal := filepath.Join(filepath.Dir(filepath.Dir(path)), sealName)
			if err := os.Chmod(seal, 0o600); err != nil {
				t.Fatal(err)
			}
			writeFile(t, seal, nil)
		},
		"another secret": func(t *testing.T, c *moduleCache, _ string) { c.secret = bytes.Repeat([]byte{1}, sha256.Size) },
	} {
		t.Run(name, func(t *testing.T) {
			c := mustOpen(t)
			sum, path := stored(t, c, "a")
			if err := os.Chmod(path, 0o644); err != nil {
				t.Fatal(err)
			}
			change(t, c, path)
			wantFound(t, c, sum, false)
			if _, err := os.Stat(c.path(sum)); !os.IsNotExist(err) {
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
			c.settles = 0 // a seal has both halves once its entry was used when it had settled
			wantFound(t, c, sum, true)
			path = filepath.Join(c.path(sum), sealName)
		}
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for at := range whole {
			if err := os.RemoveAll(c.path(sum)); err != nil {
				t.Fatal(err)
			}
			sum, entry := stored(t, c, "a")
			wantFound(t, c, sum, true)
			path := map[string]string{"entry": entry, "seal": filepath.Join(c.path(sum), sealName)}[file]
			if whole, err = os.ReadFile(path); err != nil {
				t.Fatal(err)
			}
			whole[at] ^= 1
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			writeFile(t, path, whole)
			// Either half of a seal vouches for the file: the one for its content, the other for its being the very file that was sealed.
			wantFound(t, c, sum, file == "seal")
			if file == "seal" {
				sum, entry := stored(t, c, "b")
				wantFound(t, c, sum, true)
				path := filepath.Join(c.path(sum), sealName)
				if whole, err = os.ReadFile(path); err != nil {
					t.Fatal(err)
				}
				whole[at] ^= 1
				whole[(at+sha256.Size)%len(whole)] ^= 1 // and one of the other half
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
				writeFile(t, path, whole)
				wantFound(t, c, sum, false)
				if _, err := os.Stat(entry); err == nil { // found has taken it away, so "b" is made anew each time
					t.Errorf("byte %d: the entry is still there", at)
				}
			}
		}
	}
	sum, _ := stored(t, c, "a")
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	if err := os.Rename(c.path(sum), elsewhere); err != nil {
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
	if err := os.Symlink(elsewhere, c.path(sum)); err != nil {
		t.Fatal(err)
	}
	wantFound(t, c, sum, false)
	if _, err := os.Stat(entry[0]); err != nil {
		t.Errorf("what the link leads to was touched: %v", err)
	}
}

// A copy of the whole state has other inodes and times: its entries are read again, believed for their content, and sealed anew.
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
	for _, written := range []string{"", "\n", "no newline", entryFile + "short\ncode", "../" + strings.Repeat("a", 64) + "\ncode",
		entryFile + strings.Repeat("a", 64) + "/../x\ncode", "wazero-/../../x/" + strings.Repeat("a", 64) + "\ncode", entryFile + strings.Repeat("a", 64) + "\n"} {
		if err := c.store(sum, []byte(written)); err == nil {
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
