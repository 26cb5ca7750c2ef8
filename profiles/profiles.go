// Package profiles holds the policies that people call by name: the shipped ones, and
// over them those of the operator's directory.
//
// It exists apart from policy because it reads files, and apart from the daemon so that
// a client can list and check profiles without one.
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

// Dir is the operator's directory.
const Dir = "/etc/jail/profiles"

// BuiltIn is the origin of a shipped profile.
const BuiltIn = "built in"

// ErrNotFound is what Get returns for a name that no profile has. It is a
// fs.ErrNotExist as well.
var ErrNotFound = fmt.Errorf("no such profile: %w", fs.ErrNotExist)

// ErrFragment is what Get returns for a policy that is only there to be included.
var ErrFragment = errors.New("is a fragment to include, not a profile to run")

//go:embed *.toml
var shipped embed.FS

// Profile is a policy that can be called by name.
type Profile struct {
	Name  string
	About string
	// BuiltIn, or the path of the operator's file
	Origin string
	// There to be included; allows no tool by itself.
	Fragment bool
	// As its author wrote it.
	Text []byte
	File syntax.File
	// Err says why the profile cannot be used. An operator's file that is refused does
	// not make room for the shipped one of its name, which may be wider.
	Err error
}

// entry is the text of one policy, or why it was refused.
type entry struct {
	origin string
	text   []byte
	// What lies beside it as NAME.toml.sig.
	signature []byte
	err       error
}

// Set is the profiles of one moment. It never changes: a later Load makes another.
type Set struct {
	entries map[string]entry
	places  syntax.Places
}

// For returns the set for the runs of one caller, whose places the variables of policies
// stand for.
func (s *Set) For(places syntax.Places) *Set { return &Set{s.entries, places} }

// Parse reads a policy that is not in the set, with what it includes of the set.
func (s *Set) Parse(kind syntax.Kind, source string, text []byte) (syntax.File, error) {
	return syntax.ParseFor(s.places, kind, source, text, s.Find)
}

// Load reads the operator's directory over the shipped profiles. A directory that does
// not exist is an empty one; "" is none at all. A directory that others could write to
// is an error; a single file that is refused is in the set, with its reason.
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

// Show returns what there is under a name, whether it can be run or not.
func (s *Set) Show(name string) (Profile, error) {
	p, ok := s.profile(name)
	if !ok {
		return Profile{}, fmt.Errorf("profile %q: %w", name, ErrNotFound)
	}
	return p, nil
}

// List returns all profiles and fragments by name.
func (s *Set) List() []Profile {
	var out []Profile
	for _, name := range slices.Sorted(maps.Keys(s.entries)) {
		p, _ := s.profile(name)
		out = append(out, p)
	}
	return out
}

// Find is the syntax.Finder of the set, for policies that are not in it.
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
		// What lies in a directory below is there to be included, and need not be whole.
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

// onlyIncomplete reports whether all that is wrong is what a profile leaves out.
func onlyIncomplete(err error) bool {
	var all syntax.Errors
	if !errors.As(err, &all) {
		return false
	}
	return !slices.ContainsFunc(all, func(e syntax.Error) bool { return !e.Incomplete })
}
