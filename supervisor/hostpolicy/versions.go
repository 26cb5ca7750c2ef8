package hostpolicy

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"

	"github.com/jail-sandbox/jail/jail/atomicfile"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/supervisor/bundle/trust"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// versionsFile holds the highest version of each signed profile that was ever in force.
const versionsFile = "policy-versions.json"

// seenVersion is a version of a signed profile that was once in force.
type seenVersion struct {
	Version int64  `json:"version"`
	Digest  string `json:"digest"`
}

// versions holds the highest versions that were in force, so that no signed profile goes back.
type versions struct {
	path string

	mu   sync.Mutex
	seen map[string]seenVersion
	// next has the versions that were read and are not in force yet.
	next map[string]seenVersion
}

func openVersions(dir string) (*versions, error) {
	v := &versions{path: filepath.Join(dir, versionsFile), seen: map[string]seenVersion{},
		next: map[string]seenVersion{}}
	err := atomicfile.ReadJSON(v.path, &v.seen)
	if errors.Is(err, fs.ErrNotExist) {
		return v, nil
	}
	if err != nil {
		return nil, fmt.Errorf(
			"%s, without which a signed profile could go back to an old version: %w", v.path, err)
	}
	return v, nil
}

// admit refuses a profile that the ceiling's keys have not signed, that is older than the highest
// version that was ever in force, or that is another text of that version. It accepts all if the
// ceiling wants no signatures.
func (v *versions) admit(rules syntax.Host, name string, text, signature []byte) error {
	if rules.SignedBy == nil {
		return nil
	}
	if signature == nil {
		return fmt.Errorf(
			"it is not signed, and the ceiling admits signed profiles only: there is no "+
				"%s.toml.sig beside it; jail policy sign makes one", name)
	}
	said, err := trust.VerifyPolicy(string(signature), rules.SignedBy)
	if err != nil {
		return err
	}
	if want := trust.NewPolicyStatement(name, said.Version, text); said != want {
		return fmt.Errorf("its signature is of another text: of %s with %s, and this is %s with %s",
			said.Name, said.Digest, want.Name, want.Digest)
	}
	if plain, err := syntax.Plain(name+".toml", text); err == nil &&
		plain["version"] != said.Version {
		return fmt.Errorf("its signature is of version %d, and the file says %v", said.Version,
			plain["version"])
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	was := v.seen[name]
	switch {
	case said.Version < was.Version:
		return fmt.Errorf(
			"its version is %d, and version %d was in force already: what is signed does not go "+
				"back", said.Version, was.Version)
	case said.Version == was.Version && said.Digest != was.Digest:
		return fmt.Errorf(
			"its version is %d, and another text of that version was in force already: count up",
			said.Version)
	}
	v.next[name] = seenVersion{said.Version, said.Digest}
	return nil
}

// commit saves the versions that were admitted last as those in force.
func (v *versions) commit() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	changed := false
	for name, n := range v.next {
		if v.seen[name] != n {
			v.seen[name], changed = n, true
		}
	}
	clear(v.next)
	if !changed {
		return nil
	}
	if err := atomicfile.WriteJSON(v.path, v.seen, 0o644, atomicfile.Durable); err != nil {
		return problem.New(problem.Failed, "%s: %w", v.path, err)
	}
	return nil
}

// forget drops the versions that were admitted and then refused as a whole.
func (v *versions) forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	clear(v.next)
}
