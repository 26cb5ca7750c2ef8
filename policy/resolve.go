package policy

import (
	"errors"
	"fmt"
	"slices"
	"sync"
)

// ErrNoLayers is returned by Resolve if there are no layers.
var ErrNoLayers = errors.New("no policy layers")

// Layer is one policy of several that meet, with the name under which a Decision speaks
// of it ("ceiling", "profile python", "request") and where it came from.
type Layer struct {
	Name string
	// A file, "built in", or "command line".
	Source string
	Policy Policy
	// Tools narrow the layer for runs of single tools; see Effective.For.
	Tools []ForTool
}

// CeilingLayer is the name of the layer of the host's ceiling.
const CeilingLayer = "ceiling"

// ForTool narrows a layer for the runs of the tools that a pattern matches: a bundle command as
// bundle/command, a program of the host or module by its absolute path. It meets the other layers,
// so it never grants.
type ForTool struct {
	Tool   Glob
	Policy Policy
}

// Effective is the policy of a run: the meet of its layers. Only Resolve makes one that
// grants anything; the zero value grants nothing.
type Effective struct {
	layers []Layer
	// met[i] is the meet of layers 0 to i. The first one that refuses a question tells which layer
	// took the right away.
	met []Policy
	// result is computed once, since runs ask for it often.
	result *result
}

// A result is the last of the meets, in normal form, and its digest.
type result struct {
	policy Policy
	digest func() string
}

func newResult(met Policy) *result {
	pol := met.Normal()
	return &result{pol, sync.OnceValue(pol.Digest)}
}

// Resolve returns the meet of the layers in the order of trust: ceiling, profile, request. It
// returns an error for a layer that does not pass Check, and for mounts of several layers that hide
// one another.
func Resolve(layers ...Layer) (Effective, error) {
	if len(layers) == 0 {
		return Effective{}, ErrNoLayers
	}
	var eff Effective
	acc := Top()
	for _, l := range layers {
		if err := l.Policy.Check(); err != nil {
			return Effective{}, fmt.Errorf("policy %s (%s): %w", l.Name, l.Source, err)
		}
		for _, t := range l.Tools {
			if err := t.Policy.Check(); err != nil {
				return Effective{}, fmt.Errorf("policy %s (%s), tool %q: %w", l.Name, l.Source,
					t.Tool, err)
			}
		}
		l.Policy = l.Policy.Normal()
		acc = acc.Meet(l.Policy)
		eff.layers = append(eff.layers, l)
		eff.met = append(eff.met, acc)
	}
	// Two layers that both grant sources at any target may put different things at one path.
	if errs := checkNested(acc); len(errs) > 0 {
		return Effective{}, fmt.Errorf("the policies do not fit together: %w", errors.Join(errs...))
	}
	eff.result = newResult(acc)
	return eff, nil
}

// For returns the policy for runs of these tools together: each layer, followed by its sections for
// any of the tools. It lies below e.
func (e Effective) For(tools ...string) Effective {
	var out Effective
	acc := Top()
	for _, l := range e.layers {
		acc = acc.Meet(l.Policy)
		out.layers = append(out.layers, l)
		out.met = append(out.met, acc)
		for _, t := range l.Tools {
			if !slices.ContainsFunc(tools, t.Tool.Match) {
				continue
			}
			part := Layer{Name: fmt.Sprintf("%s, tool %q", l.Name, t.Tool), Source: l.Source,
				Policy: t.Policy.Normal()}
			acc = acc.Meet(part.Policy)
			out.layers = append(out.layers, part)
			out.met = append(out.met, acc)
		}
	}
	out.result = newResult(acc)
	return out
}

// Ceiling returns the policy of the ceiling alone. The bool reports whether it narrows anything
// inside of a jail.
func (e Effective) Ceiling() (Policy, bool) {
	if len(e.layers) == 0 || e.layers[0].Name != CeilingLayer {
		return Policy{}, false
	}
	// Outer layers are around the jail: the ceiling has no layer inside that could hold them.
	inside := e.layers[0].Policy
	inside.Outer = TopOuter()
	return e.layers[0].Policy, !Top().LessEq(inside)
}

// Policy returns the meet of the layers, in normal form. Its lists must not be changed.
func (e Effective) Policy() Policy {
	if e.result == nil {
		return Policy{}
	}
	return e.result.policy
}

// Layers returns the layers in their order, each in normal form. The lists of their policies must
// not be changed.
func (e Effective) Layers() []Layer { return slices.Clone(e.layers) }

// IsZero reports whether e is the zero value, which grants nothing.
func (e Effective) IsZero() bool { return len(e.layers) == 0 }

// Digest returns the digest of the meet of the layers.
func (e Effective) Digest() string {
	if e.result == nil {
		return Policy{}.Digest()
	}
	return e.result.digest()
}

func (e Effective) String() string { return e.Policy().String() }
