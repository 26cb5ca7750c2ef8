// Package profiles reads the policies that have names: the shipped ones, and the operator's, which
// replace shipped ones of the same name.
//
// It is apart from package policy because it reads files, and apart from the daemon so that a
// client can list and check profiles without one.
package profiles

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/policy/syntax"
)

// Dir is the directory of the operator's profiles.
const Dir = "/etc/jail/profiles"

// BuiltIn is the origin of a shipped profile.
const BuiltIn = "built in"

// ErrNotFound is returned for a name that no profile has. It wraps fs.ErrNotExist.
var ErrNotFound = fmt.Errorf("no such profile: %w", fs.ErrNotExist)

// ErrFragment is returned by Get for a policy that can only be included.
var ErrFragment = errors.New("is a fragment to include, not a profile to run")

//go:embed *.toml
var shipped embed.FS

// Profile is a policy with a name.
type Profile struct {
	Name  string
	About string
	// BuiltIn, or the path of the operator's file
	Origin string
	// It can only be included; by itself it allows no tool.
	Fragment bool
	// the text of the file
	Text []byte
	File syntax.File
	// Err says why the profile cannot be used. An operator's file that is refused does
	// not make room for the shipped one of its name, which may be wider.
	Err error
}

// entry is the text of one policy, or the error of reading it.
type entry struct {
	origin string
	text   []byte
	// the text of NAME.toml.sig; nil if there is none
	signature []byte
	err       error
}

// Set is an immutable snapshot of the profiles. A later Load returns another one.
type Set struct {
	entries map[string]entry
	places  syntax.Places
}

// For returns the set for a caller: variables in policies are expanded to the places.
func (s *Set) For(places syntax.Places) *Set { return &Set{s.entries, places} }

// Parse parses a policy that is not in the set. Its includes are taken from the set.
func (s *Set) Parse(kind syntax.Kind, source string, text []byte) (syntax.File, error) {
	return syntax.ParseFor(s.places, kind, source, text, s.Find)
}

// Load reads the shipped profiles and the operator's in dir, which may be missing; "" means none. A
// directory that others can write is an error. A single refused file is in the set with its error.
func Load(dir string) (*Set, error) {
	s := &Set{entries: map[string]entry{}}
	names, err := fs.Glob(shipped, "*.toml")
	if err != nil {
		return nil, fmt.Errorf("profiles: bug: %w", err)
	}
	for _, file := range names {
		text, err := shipped.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("profiles: bug: %w", err)
		}
		s.entries[strings.TrimSuffix(file, ".toml")] = entry{origin: BuiltIn, text: text}
	}
	if dir == "" {
		return s, nil
	}
	own, err := readDir(dir)
	if err != nil {
		return nil, err
	}
	maps.Copy(s.entries, own)
	return s, nil
}

// Get returns the profile called name, parsed with all that it includes. Its error is
// ErrNotFound, ErrFragment, or says what is wrong with the file.
func (s *Set) Get(name string) (Profile, error) {
	p, ok := s.profile(name)
	switch {
	case !ok:
		return Profile{}, fmt.Errorf("profile %q: %w", name, ErrNotFound)
	case p.Fragment:
		return p, fmt.Errorf("profile %q: %w", name, ErrFragment)
	}
	return p, p.Err
}

// Show returns the profile or fragment called name, even if it cannot be used. The error is
// ErrNotFound.
func (s *Set) Show(name string) (Profile, error) {
	p, ok := s.profile(name)
	if !ok {
		return Profile{}, fmt.Errorf("profile %q: %w", name, ErrNotFound)
	}
	return p, nil
}

// List returns all profiles and fragments, sorted by name.
func (s *Set) List() []Profile {
	var out []Profile
	for _, name := range slices.Sorted(maps.Keys(s.entries)) {
		p, _ := s.profile(name)
		out = append(out, p)
	}
	return out
}

// Find returns the text of a policy in the set. It is a syntax.Finder.
func (s *Set) Find(name string) (source string, text []byte, err error) {
	e, ok := s.entries[name]
	if !ok {
		return "", nil, fs.ErrNotExist
	}
	return e.source(name), slices.Clone(e.text), e.err
}

func (e entry) source(name string) string {
	if e.origin == BuiltIn {
		return name + ".toml (" + BuiltIn + ")"
	}
	return e.origin
}

func (s *Set) profile(name string) (Profile, bool) {
	e, ok := s.entries[name]
	if !ok {
		return Profile{}, false
	}
	p := Profile{Name: name, Origin: e.origin, Text: slices.Clone(e.text), Err: e.err}
	if e.err != nil {
		return p, true
	}
	p.File, p.Err = s.Parse(syntax.Profile, e.source(name), e.text)
	if p.Err != nil {
		// Files in subdirectories are fragments, which may be incomplete.
		p.Fragment = strings.Contains(name, "/") && onlyIncomplete(p.Err)
		return p, true
	}
	p.About = p.File.About
	p.Fragment = p.File.Policy.Tools.Empty()
	if at, ok := p.File.At["name"]; ok && at.File == e.source(name) && p.File.Name != name {
		p.Err = syntax.Errors{{Position: at,
			Message: fmt.Sprintf("name is %q, and the file is called %q", p.File.Name, name)}}
	}
	return p, true
}

// onlyIncomplete reports whether all errors are about keys that a profile needs and this lacks.
func onlyIncomplete(err error) bool {
	var all syntax.Errors
	if !errors.As(err, &all) {
		return false
	}
	return !slices.ContainsFunc(all, func(e syntax.Error) bool { return !e.Incomplete })
}
