package profiles

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/policy/syntax"
)

// A State is an immutable snapshot of a host's policy: the ceiling and the profiles, read together.
type State struct {
	Set *Set
	// the digest of the operator's files; "" if there are none
	Digest string

	ceilingPath string
	ceiling     []byte // nil without one
	// why nothing may run; only set in the first state of a Source
	ceilingErr error
	rules      syntax.Host
}

// Ceiling returns the host's ceiling for a caller. ok is false if the host has none.
func (s *State) Ceiling(places syntax.Places) (file syntax.File, ok bool, err error) {
	if s.ceilingErr != nil || s.ceiling == nil {
		return syntax.File{}, false, s.ceilingErr
	}
	file, err = s.Set.For(places).Parse(syntax.Ceiling, s.ceilingPath, s.ceiling)
	return file, err == nil, err
}

// Rules returns the ceiling's rules about policy files.
func (s *State) Rules() syntax.Host { return s.rules }

// A Change is a difference between the files on the disk and the state in force.
type Change struct {
	Old, New string // digests of states
	// the files that are new, gone or changed: "ceiling", or "profile NAME"
	Names []string
	// Err is why the new state is refused. The old one stays in force.
	Err error
}

// Status is the status of a Source.
type Status struct {
	// the digest of the state in force
	Digest string
	Loaded time.Time // when it was read
	// the number of states taken after the first
	Reloads  int64
	Failures int64 // states that were refused
	// why the files on the disk are not in force, or which of them cannot be used; else nil
	Err error
}

// A Source keeps the policy files of a host. It takes a changed state only if all of it is valid.
// Its methods may be called from several goroutines.
type Source struct {
	options Options

	mu    sync.Mutex
	state *State
	// the stamps of the files when they were last read
	seen   string
	status Status
	watch  *watch
}

// Options are the files that a Source reads, and its hooks.
type Options struct {
	// the directory of the operator's profiles, which may be missing; "" for none
	Dir string
	// the path of the ceiling, which may be missing; "" for none
	Ceiling string
	// Admit returns an error for a profile that the ceiling's rules refuse. signature is the text
	// of NAME.toml.sig, or nil. A nil Admit accepts all.
	Admit func(rules syntax.Host, name string, text, signature []byte) error
	// Record is called for each change before it takes effect. If it fails, the change is refused.
	Record func(Change) error
}

// Open reads the policy of the host. Files that cannot be used are in the state with their errors;
// a broken ceiling stops every run. A directory that others can write is an error.
func Open(o Options) (*Source, error) {
	s := &Source{options: o, seen: stamps(o)}
	state, err := s.read()
	if err != nil {
		return nil, err
	}
	s.state = state
	s.status = Status{Digest: state.Digest, Loaded: time.Now(), Err: state.problems(nil)}
	return s, nil
}

// Current returns the state in force, after a check for changed files.
func (s *Source) Current() *State {
	s.check()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// Status returns the status without reading the disk.
func (s *Source) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// check reads the files again if their stamps have changed.
func (s *Source) check() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if stamps(s.options) == s.seen {
		return
	}
	s.reload(false)
}

// Reload reads all files again. Unlike check, it also accepts that the ceiling was removed.
func (s *Source) Reload() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reload(true)
	return s.status.Err
}

// errCeilingGone keeps a removed ceiling in force until the operator asks for a reload, since some
// editors remove a file before they write it.
var errCeilingGone = errors.New(
	"the ceiling's file is gone, and the ceiling stays in force until the daemon is told to reload (SIGHUP)")

func (s *Source) reload(told bool) {
	s.seen = s.options.settled()
	next, err := s.read()
	if err == nil {
		err = next.problems(s.state)
	}
	if err == nil && !told && next.ceiling == nil && s.state.ceiling != nil {
		err = errCeilingGone
	}
	c := Change{Old: s.state.Digest, Err: err}
	if next != nil {
		c.New, c.Names = next.Digest, changed(s.state, next)
	}
	if err == nil && c.New == c.Old && s.state.ceilingErr == nil {
		// The files and the state in force are the same.
		s.status.Err = next.problems(nil)
		return
	}
	if s.options.Record != nil {
		if recordErr := s.options.Record(c); recordErr != nil {
			err = errors.Join(err, recordErr)
			// This makes the next check read the files again.
			s.seen = ""
		}
	}
	if err != nil {
		s.status.Failures++
		s.status.Err = err
		return
	}
	s.state = next
	s.status = Status{Digest: next.Digest, Loaded: time.Now(), Reloads: s.status.Reloads + 1,
		Failures: s.status.Failures, Err: next.problems(nil)}
}

// read reads all files into a new state, each once and by its descriptor.
func (s *Source) read() (*State, error) {
	state := &State{ceilingPath: s.options.Ceiling}
	set, err := Load(s.options.Dir)
	if err != nil {
		return nil, err
	}
	state.Set = set
	if s.options.Ceiling != "" {
		state.ceiling, err = ReadTrusted(s.options.Ceiling)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			state.ceilingErr = err
		}
	}
	if state.ceiling != nil {
		file, err := set.For(anywhere).Parse(syntax.Ceiling, s.options.Ceiling, state.ceiling)
		state.ceilingErr, state.rules = err, file.Host
	}
	// The audience of a broken ceiling is unknown, so nobody may run.
	if state.ceilingErr != nil {
		state.rules = syntax.Host{Run: &syntax.Audience{}}
	}
	s.admit(state)
	state.Digest = state.digest()
	return state, nil
}

// anywhere has values for the variables of policies that are only checked.
var anywhere = syntax.Places{Home: "/home/user", Workspace: "/home/user/work"}

// admit marks the profiles that the Admit hook refuses.
func (s *Source) admit(state *State) {
	if s.options.Admit == nil || state.ceilingErr != nil {
		return
	}
	for name, e := range state.Set.entries {
		if e.origin == BuiltIn || e.err != nil {
			continue
		}
		if e.err = s.options.Admit(state.rules, name, e.text, e.signature); e.err != nil {
			e.err = fmt.Errorf("%s: %w", e.origin, e.err)
		}
		state.Set.entries[name] = e
	}
}

// problems returns the errors of a state that the one before did not have, so that a file that was
// broken before does not stop other changes. before may be nil.
func (s *State) problems(before *State) error {
	var all []error
	if s.ceilingErr != nil {
		all = append(all, fmt.Errorf("ceiling: %w", s.ceilingErr))
	}
	was := map[string]bool{}
	if before != nil {
		was = before.broken()
	}
	broken := s.broken()
	for _, name := range slices.Sorted(maps.Keys(broken)) {
		if was[name] {
			continue
		}
		p, _ := s.Set.For(anywhere).profile(name)
		all = append(all, fmt.Errorf("profile %s: %w", name, p.Err))
	}
	return errors.Join(all...)
}

// broken returns the names of the profiles that cannot be used.
func (s *State) broken() map[string]bool {
	out := map[string]bool{}
	for name, e := range s.Set.entries {
		if p, _ := s.Set.For(anywhere).profile(name); p.Err != nil && !p.Fragment &&
			(e.origin != BuiltIn || s.ceiling != nil || s.Digest != "") {
			out[name] = true
		}
	}
	return out
}

// own returns the digests of the operator's files, by name.
func (s *State) own() map[string]string {
	out := map[string]string{}
	if s.ceiling != nil || s.ceilingErr != nil {
		out["ceiling"] = sum(s.ceiling)
	}
	for name, e := range s.Set.entries {
		if e.origin != BuiltIn {
			out["profile "+name] = sum(e.text) + sum(e.signature)
		}
	}
	return out
}

func (s *State) digest() string {
	own := s.own()
	if len(own) == 0 {
		return ""
	}
	var all strings.Builder
	for _, name := range slices.Sorted(maps.Keys(own)) {
		fmt.Fprintf(&all, "%s %s\n", name, own[name])
	}
	return "sha256:" + sum([]byte(all.String()))
}

func sum(text []byte) string { return fmt.Sprintf("%x", sha256.Sum256(text)) }

func changed(old, next *State) []string {
	a, b := old.own(), next.own()
	var names []string
	for name := range a {
		if a[name] != b[name] {
			names = append(names, name)
		}
	}
	for name := range b {
		if _, ok := a[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
