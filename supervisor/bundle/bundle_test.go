package bundle

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// code is a module for the tests: verification looks at its first bytes only.
func code(text string) []byte { return []byte(coreModule + text) }

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// sound is a manifest of a bundle with one module and the given commands.
func sound(name string, module []byte, commands ...string) Manifest {
	m := Manifest{
		Format: Format, Name: name, Version: "1.2.3", About: "for tests",
		Licences:  []Licence{{SPDX: "0BSD", File: "LICENSE"}},
		BuiltFrom: []Source{{Name: "source", Version: "1", SHA256: hexSum(nil)}},
		Modules: []ModuleEntry{{File: "all.wasm", SHA256: hexSum(module),
			Size: int64(len(module)), Layout: LayoutRooted, Imports: []string{"a.b"}}},
	}
	for _, c := range commands {
		m.Commands = append(m.Commands, CommandEntry{Name: c, Module: "all.wasm", About: "Does " +
			c + "."})
	}
	return m
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

func encode(t *testing.T, m Manifest) []byte {
	t.Helper()
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// install puts a sound bundle into a store and returns its folder.
func install(t *testing.T, store, name string, commands ...string) string {
	t.Helper()
	dir := filepath.Join(store, name)
	module := code(name)
	write(t, filepath.Join(dir, "all.wasm"), module)
	write(t, filepath.Join(dir, "LICENSE"), []byte("free"))
	write(t, filepath.Join(dir, ManifestFile), encode(t, sound(name, module, commands...)))
	return dir
}

func mustOpen(t *testing.T, dirs ...string) *Set {
	t.Helper()
	s, err := Open(dirs...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestFind(t *testing.T) {
	store := t.TempDir()
	install(t, store, "core-utils", "grep", "egrep", "sed", "cat")
	install(t, store, "search", "rg", "grep")
	s := mustOpen(t, store)
	if p := s.Problems(); p != nil {
		t.Fatal(p)
	}

	c, err := s.Find("sed")
	if err != nil || c.Bundle != "core-utils" || c.Name != "sed" || c.About != "Does sed." {
		t.Fatalf("sed: %+v, %v", c, err)
	}
	if got, err := c.Module.Read(); err != nil || !bytes.Equal(got, code("core-utils")) {
		t.Errorf("sed's module: %q, %v", got, err)
	}
	if c, err := s.Find("search/grep"); err != nil || c.Bundle != "search" {
		t.Errorf("search/grep: %+v, %v", c, err)
	}

	var ambiguous *ambiguousError
	if _, err := s.Find("grep"); !errors.As(err, &ambiguous) || !slices.Equal(ambiguous.In,
		[]string{"core-utils", "search"}) {
		t.Errorf("grep: %v", err)
	} else if want := "core-utils/grep, search/grep"; !strings.Contains(err.Error(), want) {
		t.Errorf("grep: %v does not say %s", err, want)
	}

	for name, near := range map[string][]string{
		"gerp":          {"egrep", "grep"},
		"core-utils/sd": {"sed"},
		"Sed":           {"sed"},
		"zzzzzz":        nil,
		"":              nil,
		"../cat":        {"cat"},
		"core-utils/":   nil,
		"search/sed":    {"sed"},
	} {
		var missing *NotFoundError
		_, err := s.Find(name)
		if !errors.As(err, &missing) {
			t.Errorf("%q: %v", name, err)
			continue
		}
		if near == nil && missing.Near != nil || near != nil && !slices.Contains(missing.Near,
			near[len(near)-1]) {
			t.Errorf("%q: near it %q, want %q", name, missing.Near, near)
		}
	}
}

func TestListAndShow(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	install(t, first, "one", "a")
	install(t, second, "one", "b")
	install(t, second, "a-first", "c")
	s := mustOpen(t, first, second, filepath.Join(first, "missing"))
	var names []string
	for _, b := range s.List() {
		names = append(names, b.Name)
	}
	if !slices.Equal(names, []string{"a-first", "one"}) {
		t.Errorf("bundles %q", names)
	}
	b, err := s.Show("one")
	if err != nil || b.Dir != filepath.Join(first, "one") || len(b.Commands()) != 1 ||
		b.Commands()[0].Name != "a" {
		t.Errorf("one: %+v, %v", b, err)
	}
	var missing *NotFoundError
	if _, err := s.Show("ona"); !errors.As(err, &missing) || !slices.Equal(missing.Near,
		[]string{"one"}) {
		t.Errorf("ona: %v", err)
	}
}

// T-602, T-603, T-610, T-614: what is read is what the manifest names, or nothing.
// Each change is made after the bundle was opened, when only reading can see it.
func TestAlteredModule(t *testing.T) {
	cases := map[string]func(t *testing.T, path string){
		"first byte": func(t *testing.T, path string) { flip(t, path, 0) },
		"last byte":  func(t *testing.T, path string) { flip(t, path, len(code("victim"))-1) },
		"truncated":  func(t *testing.T, path string) { must(t, os.Truncate(path, 9)) },
		"empty":      func(t *testing.T, path string) { must(t, os.Truncate(path, 0)) },
		"longer":     func(t *testing.T, path string) { must(t, os.Truncate(path, 1<<20)) },
		"swapped": func(t *testing.T, path string) {
			write(t, path+".new", code("danger"))
			must(t, os.Rename(path+".new", path))
		},
		"link to the same": func(t *testing.T, path string) {
			must(t, os.Rename(path, path+".real"))
			must(t, os.Symlink("all.wasm.real", path))
		},
		"pipe": func(t *testing.T, path string) {
			must(t, os.Remove(path))
			must(t, syscall.Mkfifo(path, 0o644))
		},
		"directory": func(t *testing.T, path string) {
			must(t, os.Remove(path))
			must(t, os.Mkdir(path, 0o755))
		},
	}
	for name, alter := range cases {
		t.Run(name, func(t *testing.T) {
			store := t.TempDir()
			dir := install(t, store, "victim", "run")
			c, err := mustOpen(t, store).Find("run")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Module.Read(); err != nil {
				t.Fatal("control, unaltered:", err)
			}
			alter(t, filepath.Join(dir, "all.wasm"))
			if got, err := c.Module.Read(); !errors.Is(err, ErrAltered) || got != nil {
				t.Errorf("read %q, %v", got, err)
			}
		})
	}
}

// A file that the manifest names with the right digest is still no tool if it is
// something else than it is named for (T-614).
func TestWrongKind(t *testing.T) {
	for name, content := range map[string]string{
		"elf":       "\x7fELF\x02\x01\x01\x00rest",
		"script":    "#!/bin/sh\necho\n",
		"component": "\x00asm\x0d\x00\x01\x00rest",
		"short":     "\x00asm",
	} {
		t.Run(name, func(t *testing.T) {
			store := t.TempDir()
			dir := filepath.Join(store, "b")
			write(t, filepath.Join(dir, "all.wasm"), []byte(content))
			write(t, filepath.Join(dir, ManifestFile),
				encode(t, sound("b", []byte(content), "run")))
			b, err := Load(dir)
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Verify(); !errors.Is(err, ErrAltered) || !strings.Contains(err.Error(),
				"core module") {
				t.Errorf("verified as %v", err)
			}
		})
	}
}

// T-603: a folder holds what its manifest names.
func TestUnsoundFolder(t *testing.T) {
	cases := map[string]struct {
		alter func(t *testing.T, dir string)
		want  error
	}{
		"extra file": {func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "extra.wasm"), code("x"))
		}, ErrAltered},
		"extra folder": {func(t *testing.T, dir string) {
			must(t, os.Mkdir(filepath.Join(dir, "sub"), 0o755))
		}, ErrAltered},
		"other name": {func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, ManifestFile), encode(t, sound("other", code("b"), "run")))
		}, ErrManifest},
		"no manifest": {func(t *testing.T, dir string) {
			must(t, os.Remove(filepath.Join(dir, ManifestFile)))
		}, os.ErrNotExist},
		"linked manifest": {func(t *testing.T, dir string) {
			link(t, filepath.Join(dir, ManifestFile))
		}, ErrAltered},
		"linked folder": {func(t *testing.T, dir string) { link(t, dir) }, ErrAltered},
		"a file instead": {func(t *testing.T, dir string) {
			must(t, os.RemoveAll(dir))
			write(t, dir, nil)
		}, ErrAltered},
		"endless manifest": {func(t *testing.T, dir string) {
			must(t, os.Truncate(filepath.Join(dir, ManifestFile), 1<<40))
		}, ErrAltered},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			store := t.TempDir()
			dir := install(t, store, "b", "run")
			install(t, store, "good", "other")
			c.alter(t, dir)
			s := mustOpen(t, store)
			if p := s.Problems(); len(p) != 1 || !errors.Is(p[0], c.want) {
				t.Fatalf("problems %v, want one that is %v", p, c.want)
			}
			var missing *NotFoundError
			if _, err := s.Find("run"); !errors.As(err, &missing) || len(missing.Left) != 1 {
				t.Errorf("found a command of an unsound bundle, or did not say why not: %v", err)
			}
			if _, err := s.Find("other"); err != nil {
				t.Errorf("the sound bundle beside it: %v", err)
			}
		})
	}
}

// T-610: a store that others can write to is none for a service of root's.
func TestOwned(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root makes files that belong to root")
	}
	cases := map[string]func(t *testing.T, store, dir string){
		"writable module": func(t *testing.T, store, dir string) {
			must(t, os.Chmod(filepath.Join(dir, "all.wasm"), 0o666))
		},
		"somebody's module": func(t *testing.T, store, dir string) {
			must(t, os.Chown(filepath.Join(dir, "all.wasm"), 1234, 0))
		},
		"writable manifest": func(t *testing.T, store, dir string) {
			must(t, os.Chmod(filepath.Join(dir, ManifestFile), 0o664))
		},
		"writable folder": func(t *testing.T, store, dir string) {
			must(t, os.Chmod(dir, 0o775))
		},
		"somebody's folder": func(t *testing.T, store, dir string) {
			must(t, os.Chown(dir, 1234, 0))
		},
		"writable store": func(t *testing.T, store, dir string) {
			must(t, os.Chmod(store, 0o777))
		},
	}
	use := func(open func(...string) (*Set, error), store string) error {
		s, err := open(store)
		if err != nil {
			return err
		}
		if err := errors.Join(s.Problems()...); err != nil {
			return err
		}
		c, err := s.Find("run")
		if err != nil {
			return err
		}
		_, err = c.Module.Read()
		return err
	}
	owned := func(dirs ...string) (*Set, error) { return OpenPlaces(Places{Dirs: dirs}, true) }
	for name, alter := range cases {
		t.Run(name, func(t *testing.T) {
			store := t.TempDir()
			must(t, os.Chmod(store, 0o755))
			dir := install(t, store, "b", "run")
			if err := use(owned, store); err != nil {
				t.Fatal("control, root's alone:", err)
			}
			alter(t, store, dir)
			if err := use(owned, store); !errors.Is(err, errUntrusted) {
				t.Errorf("used: %v", err)
			}
			if err := use(Open, store); err != nil {
				t.Errorf("control, not asked for: %v", err)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func flip(t *testing.T, path string, at int) {
	t.Helper()
	content, err := os.ReadFile(path)
	must(t, err)
	content[at] ^= 1
	must(t, os.WriteFile(path, content, 0o644))
}

// link moves a file away, out of the store, and leaves a link to it.
func link(t *testing.T, path string) {
	t.Helper()
	elsewhere := filepath.Join(t.TempDir(), filepath.Base(path))
	must(t, os.Rename(path, elsewhere))
	must(t, os.Symlink(elsewhere, path))
}

// A directory of bundles that is something else is refused in words.
func TestNoDirectoryOfBundles(t *testing.T) {
	for want, make := range map[string]func(path string) error{
		"it is a symbolic link":  func(path string) error { return os.Symlink("/", path) },
		"it is a regular file":   func(path string) error { return os.WriteFile(path, nil, 0o644) },
		"it is a special file":   func(path string) error { return syscall.Mkfifo(path, 0o644) },
		"no such file or direct": func(string) error { return nil },
	} {
		path := filepath.Join(t.TempDir(), "bundles")
		must(t, make(path))
		_, err := Open(path)
		if missing := strings.HasPrefix(want, "no such"); missing != (err == nil) ||
			err != nil && (!errors.Is(err, ErrAltered) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
