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

// A State is the policy of a host at one moment: the ceiling and the profiles, read together. It
// never changes, so a run that has one keeps it.
type State struct {
	Set *Set
	// Of the operator's files as they are written; "" where there are none.
	Digest string

	ceilingPath string
	ceiling     []byte // nil without one
	// why nothing runs; only ever of the first state of a Source
	ceilingErr error
	rules      syntax.Host
}

// Ceiling returns the host's ceiling for the runs of one caller. ok is false where the host has
// none.
func (s *State) Ceiling(places syntax.Places) (file syntax.File, ok bool, err error) {
	if s.ceilingErr != nil || s.ceiling == nil {
		return syntax.File{}, false, s.ceilingErr
	}
	file, err = s.Set.For(places).Parse(syntax.Ceiling, s.ceilingPath, s.ceiling)
	return file, err == nil, err
}

// Rules are what the ceiling says of policy files themselves.
func (s *State) Rules() syntax.Host { return s.rules }

// A Change is what a Source found on the disk that it had not read before.
type Change struct {
	Old, New string // digests of states
	// of what is new, gone or written anew: "ceiling", and profiles by name
	Names []string
	// Err says why the new state is not taken. The old one stays in force.
	Err error
}

// Status says how a Source stands.
type Status struct {
	// Of the state in force.
	Digest string
	Loaded time.Time // when it was read
	// states that were taken after the first
	Reloads  int64
	Failures int64 // states that were refused
	// why what is on the disk is not in force; nil if it is
	Err error
}

// A Source holds the policy files of a host and takes over what changes in them: whole and checked,
// or not at all. Its methods may be called from several goroutines.
type Source struct {
	options Options

	mu    sync.Mutex
	state *State
	// Stamps of what was looked at last.
	seen   string
	status Status
	watch  *watch
}

// Options say what a Source reads.
type Options struct {
	// Of the operator's profiles; need not exist; "" is none.
	Dir string
	// path of the host's ceiling; need not exist; "" is none
	Ceiling string
	// Admit refuses the text of a profile, by what the ceiling demands of one; nil admits all. It
	// gets the file NAME.toml.sig as well, nil without one.
	Admit func(rules syntax.Host, name string, text, signature []byte) error
	// Record is called for each change before the change takes effect. If it fails, the change is
	// not taken.
	Record func(Change) error
}

// Open reads the policy of the host. A single file that cannot be used is in the state with its
// reason, and so is a broken ceiling, which stops every run; a directory that others could write to
// is an error.
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

// Current returns the state in force, after a look at whether files have changed since.
func (s *Source) Current() *State {
	s.check()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// Status says how the source stands.
func (s *Source) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// check reads what has changed on the disk, if anything has.
func (s *Source) check() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if stamps(s.options) == s.seen {
		return
	}
	s.reload(false)
}

// Reload reads everything anew, whether it has changed or not, and takes also what Check does not
// believe: that there is no ceiling any more.
func (s *Source) Reload() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reload(true)
	return s.status.Err
}

// errCeilingGone keeps a ceiling in force whose file has vanished: to be rid of it takes a word of
// the operator, not an editor that writes a file by taking it away first.
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
		// What is on the disk is what is in force.
		s.status.Err = next.problems(nil)
		return
	}
	if s.options.Record != nil {
		if recordErr := s.options.Record(c); recordErr != nil {
			err = errors.Join(err, recordErr)
			// The next look reads the directory again.
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

// read reads all files once, each by its descriptor.
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
	// Whom it names is not known.
	if state.ceilingErr != nil {
		state.rules = syntax.Host{Run: &syntax.Audience{}}
	}
	s.admit(state)
	state.Digest = state.digest()
	return state, nil
}

// anywhere are places for policies that are only checked: a variable has a value in most runs.
var anywhere = syntax.Places{Home: "/home/user", Workspace: "/home/user/work"}

// admit refuses the profiles that the ceiling's rules do not let in.
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

// problems returns what is wrong with the files of a state that was not wrong in the one before: a
// file that was broken all along keeps no other from being taken.
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

// broken are the operator's profiles that cannot be used.
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

// own returns the digests of the operator's files by name.
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
