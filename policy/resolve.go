package policy

import (
	"errors"
	"fmt"
)

// ErrNoLayers is what Resolve returns without a layer to meet.
var ErrNoLayers = errors.New("no policy layers")

// Layer is one policy of several that meet, with the name under which a Decision speaks
// of it ("ceiling", "profile python", "request") and where it came from.
type Layer struct {
	Name   string
	Source string // a file, "built in", or "command line"
	Policy Policy
}

// Effective is the policy of a run: the meet of its layers. Only Resolve makes one that
// grants anything; the zero value grants nothing.
type Effective struct {
	layers []Layer
	// met[i] is the meet of layers 0 to i, so that the first to refuse a question is
	// the layer that narrowed it away.
	met []Policy
}

// Resolve meets the layers in the order of trust: ceiling, profile, request. None can
// grant what one before it does not. A layer that does not pass Check is an error, and
// an error is no policy at all.
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
		l.Policy = l.Policy.Normal()
		acc = acc.Meet(l.Policy)
		eff.layers = append(eff.layers, l)
		eff.met = append(eff.met, acc)
	}
	return eff, nil
}

// Policy returns a copy of the met policy, in normal form.
func (e Effective) Policy() Policy {
	if len(e.met) == 0 {
		return Policy{}
	}
	return e.met[len(e.met)-1].Normal()
}

// Layers returns the layers in their order, each in normal form.
func (e Effective) Layers() []Layer {
	out := make([]Layer, len(e.layers))
	for i, l := range e.layers {
		out[i] = Layer{l.Name, l.Source, l.Policy.Normal()}
	}
	return out
}

// Digest returns the digest of the met policy.
func (e Effective) Digest() string { return e.Policy().Digest() }

func (e Effective) String() string { return e.Policy().String() }
