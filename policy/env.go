package policy

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Env is what a tool may get in its environment. Each part meets by intersection:
//
//   - Set: constants that the policy itself gives, as pairs of name and value. Two
//     policies that give one name different values meet in neither.
//   - Pass: names whose values are taken over from the caller's own environment.
//   - Allow: names to which a caller may give a value with the run, as with --env. The
//     value is an input of the run, like an argument, and so not part of the policy.
//
// A value given with the run comes before one taken over, and that before a constant.
type Env struct {
	Set   Vars  `json:"set"`
	Pass  Globs `json:"pass"`
	Allow Globs `json:"allow"`
}

// TopEnv grants every name and every value.
func TopEnv() Env { return Env{Vars{Any: true}, MustGlobs("*"), MustGlobs("*")} }

// Meet grants what both grant.
func (e Env) Meet(f Env) Env {
	return Env{e.Set.Meet(f.Set), e.Pass.Meet(f.Pass), e.Allow.Meet(f.Allow)}
}

// LessEq reports whether f grants all that e grants.
func (e Env) LessEq(f Env) bool {
	return e.Set.LessEq(f.Set) && e.Pass.LessEq(f.Pass) && e.Allow.LessEq(f.Allow)
}

// Normal brings each part into normal form.
func (e Env) Normal() Env { return Env{e.Set.Normal(), e.Pass.Normal(), e.Allow.Normal()} }

func (e Env) String() string {
	return fmt.Sprintf("set %s pass %s allow %s", e.Set, e.Pass, e.Allow)
}

// Environ returns the environment of a tool as sorted "name=value" strings: the
// constants of e, then of inherited those that Pass names, then of given those that
// Allow names. It returns the names of given that are refused; a run with any of them
// must not start, since the caller asked for something that it will not get.
func (e Env) Environ(given, inherited map[string]string) (environ, refused []string) {
	out := maps.Clone(e.Set.Values)
	if out == nil {
		out = map[string]string{}
	}
	for name, value := range inherited {
		if CheckEnvName(name) == nil && CheckEnvValue(value) == nil && e.Pass.Match(name) {
			out[name] = value
		}
	}
	for name, value := range given {
		if CheckEnvName(name) != nil || CheckEnvValue(value) != nil || !e.Allow.Match(name) {
			refused = append(refused, name)
			continue
		}
		out[name] = value
	}
	for name, value := range out {
		environ = append(environ, name+"="+value)
	}
	slices.Sort(environ)
	slices.Sort(refused)
	return environ, refused
}

// the longest value: execve refuses a longer string
const maxEnvBytes = 128 << 10

// CheckEnvName refuses names that no program could look up: empty, with =, a NUL, a
// slash or another character that is not printable ASCII.
func CheckEnvName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("name of a variable is empty")
	case len(name) > 255:
		return fmt.Errorf("name of a variable is longer than 255 bytes")
	case strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`=/*?[]{}\`, r)
	}):
		return fmt.Errorf("name of a variable %q has a character that none has", name)
	}
	return nil
}

// CheckEnvValue returns an error for a value that the kernel refuses, or nil.
func CheckEnvValue(value string) error {
	switch {
	case strings.ContainsRune(value, 0):
		return fmt.Errorf("value of a variable has a NUL")
	case len(value) > maxEnvBytes:
		return fmt.Errorf("value of a variable is longer than %d bytes", maxEnvBytes)
	}
	return nil
}

// Vars is a set of names with values. If Any is set, it is every name with every value.
type Vars struct {
	Any    bool              `json:"any,omitempty"`
	Values map[string]string `json:"values,omitempty"`
}

// Meet returns the pairs in both.
func (v Vars) Meet(w Vars) Vars {
	switch {
	case v.Any:
		return w.Normal()
	case w.Any:
		return v.Normal()
	}
	out := maps.Clone(v.Values)
	maps.DeleteFunc(out, func(name, value string) bool {
		other, ok := w.Values[name]
		return !ok || other != value
	})
	return Vars{Values: out}.Normal()
}

// LessEq reports whether each pair of v is in w.
func (v Vars) LessEq(w Vars) bool {
	if v.Any || w.Any {
		return w.Any
	}
	for name, value := range v.Values {
		if other, ok := w.Values[name]; !ok || other != value {
			return false
		}
	}
	return true
}

// Normal drops pairs if Any is set, and copies the rest.
func (v Vars) Normal() Vars {
	if v.Any {
		return Vars{Any: true}
	}
	if len(v.Values) == 0 {
		return Vars{}
	}
	return Vars{Values: maps.Clone(v.Values)}
}

func (v Vars) String() string {
	if v.Any {
		return "any"
	}
	if len(v.Values) == 0 {
		return "∅"
	}
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(v.Values)) {
		texts = append(texts, name+"="+strconv.Quote(v.Values[name]))
	}
	return "{" + strings.Join(texts, " ") + "}"
}
