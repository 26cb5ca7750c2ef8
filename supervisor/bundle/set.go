package bundle

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A Set holds the bundles that were installed when it was opened. It does not change; reading a
// module that was altered since fails.
type Set struct {
	bundles  []*Bundle // by name
	problems []error
}

// A Command is a command of an installed bundle, with the module that it runs.
type Command struct {
	Bundle string
	Name   string // argv[0] for the module
	About  string
	Module Module
	// Needs are what a pulled bundle asks for; nil for one that came with jail.
	Needs *Needs
}

// Open reads the bundles below the given folders. A folder that does not exist holds none. If two
// folders have a bundle of one name, the first one is used. A bad bundle is left out; Problems
// returns its error.
func Open(dirs ...string) (*Set, error) { return open(false, dirs) }

func open(owned bool, dirs []string) (*Set, error) {
	s := &Set{}
	for _, dir := range dirs {
		if err := s.add(dir, owned); err != nil {
			return nil, fmt.Errorf("bundles: %w", err)
		}
	}
	s.sort()
	return s, nil
}

func (s *Set) sort() {
	slices.SortFunc(s.bundles, func(a, b *Bundle) int { return cmp.Compare(a.Name, b.Name) })
}

func (s *Set) add(dir string, owned bool) error {
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := (&Bundle{owned: owned}).trusted(dir, info, info.IsDir()); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		// A name that no bundle can have is a folder that is being unpacked, or not jail's.
		if !safeName(e.Name()) || s.bundle(e.Name()) != nil {
			continue
		}
		b, err := load(filepath.Join(dir, e.Name()), owned)
		if err != nil {
			s.problems = append(s.problems, err)
			continue
		}
		s.bundles = append(s.bundles, b)
	}
	return nil
}

func (s *Set) bundle(name string) *Bundle {
	i := slices.IndexFunc(s.bundles, func(b *Bundle) bool { return b.Name == name })
	if i < 0 {
		return nil
	}
	return s.bundles[i]
}

// Problems returns the errors of the bundles that were left out.
func (s *Set) Problems() []error { return slices.Clone(s.problems) }

// List returns the bundles, sorted by name.
func (s *Set) List() []*Bundle { return slices.Clone(s.bundles) }

// Show returns the bundle of the given name. The error is a *NotFoundError.
func (s *Set) Show(name string) (*Bundle, error) {
	if b := s.bundle(name); b != nil {
		return b, nil
	}
	var names []string
	for _, b := range s.bundles {
		names = append(names, b.Name)
	}
	return nil, s.notFound("bundle", name, names)
}

// Find returns the command of the given name, "grep" or "core-utils/grep". The
// error is a *NotFoundError or an *ambiguousError.
func (s *Set) Find(name string) (Command, error) {
	want, short, qualified := strings.Cut(name, "/")
	if !qualified {
		short = name
	}
	var found []Command
	var names []string
	for _, b := range s.bundles {
		for _, c := range b.Manifest.Commands {
			names = append(names, c.Name)
			if c.Name == short && (!qualified || b.Name == want) {
				found = append(found, b.command(c))
			}
		}
	}
	switch len(found) {
	case 0:
		return Command{}, s.notFound("tool", name, names)
	case 1:
		return found[0], nil
	}
	ambiguous := &ambiguousError{Name: name}
	for _, c := range found {
		ambiguous.In = append(ambiguous.In, c.Bundle)
	}
	return Command{}, ambiguous
}

// Commands returns the bundle's commands, in the order of the manifest.
func (b *Bundle) Commands() []Command {
	commands := make([]Command, 0, len(b.Manifest.Commands))
	for _, c := range b.Manifest.Commands {
		commands = append(commands, b.command(c))
	}
	return commands
}

func (b *Bundle) command(c CommandEntry) Command {
	i := slices.IndexFunc(b.Modules, func(m ModuleEntry) bool { return m.File == c.Module })
	command := Command{Bundle: b.Name, Name: c.Name, About: c.About,
		Module: Module{b.Modules[i], b}}
	if b.Origin != nil {
		command.Needs = b.Manifest.Needs
		if command.Needs == nil {
			// A pulled bundle that names no needs gets none.
			command.Needs = &Needs{}
		}
	}
	return command
}
