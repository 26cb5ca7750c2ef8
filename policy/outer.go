package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Names of outer layers.
const (
	// OuterNone is no layer around the jail.
	OuterNone  = "none"
	OuterBwrap = "bwrap"
	OuterCrun  = "crun"
	OuterRunc  = "runc"
	OuterRunsc = "runsc"
)

// An OuterLayer is a program that starts the jail inside a sandbox of its own.
type OuterLayer struct {
	Name  string
	About string
	// Replaces says that Landlock is not there inside, and the view of the mounts stands in its
	// place.
	Replaces bool
}

var outerLayers = []OuterLayer{
	{OuterBwrap, "bubblewrap, in C, in place of jail's own starter", false},
	{OuterCrun, "the OCI runtime crun, in C, in place of jail's own starter", false},
	{OuterRunc, "the OCI runtime runc in place of jail's own starter", false},
	{OuterRunsc, "gVisor: a kernel of its own in user space, which the tool speaks to in place of " +
		"the host's; it has no Landlock", true},
}

// OuterLayers returns the layers there are, by name.
func OuterLayers() []OuterLayer { return slices.Clone(outerLayers) }

// OuterWords returns the words of outer.allow: OuterNone and the names of the layers.
func OuterWords() []string { return append([]string{OuterNone}, TopOuter().Layers...) }

// CheckOuter returns an error that names the layers there are, if name is neither one nor
// OuterNone.
func CheckOuter(name string) error { return checkKnown("outer layer", OuterWords(), name) }

// Outer says which layers a run may have around its jail. The zero value is a run without one.
type Outer struct {
	// Layers is a set of names.
	Layers []string `json:"layers,omitempty"`
	// Must says that a run without a layer is refused.
	Must bool `json:"must,omitempty"`
}

// TopOuter lets a run have any layer, or none.
func TopOuter() Outer {
	var o Outer
	for _, l := range outerLayers {
		o.Layers = append(o.Layers, l.Name)
	}
	return o
}

// KeepingOuter is TopOuter without the layers inside of which there is no Landlock. It is what a
// ceiling means that says nothing of layers.
func KeepingOuter() Outer {
	var o Outer
	for _, l := range outerLayers {
		if !l.Replaces {
			o.Layers = append(o.Layers, l.Name)
		}
	}
	return o
}

// OuterOf returns what a list of layers allows, OuterNone among them or not.
func OuterOf(words ...string) Outer {
	o := Outer{Must: !slices.Contains(words, OuterNone)}
	for _, name := range words {
		if name != OuterNone {
			o.Layers = append(o.Layers, name)
		}
	}
	return o.Normal()
}

// Words are what OuterOf makes o of, sorted but for OuterNone, which is the first.
func (o Outer) Words() []string {
	o = o.Normal()
	if o.Must {
		return o.Layers
	}
	return append([]string{OuterNone}, o.Layers...)
}

// Meet allows what both allow.
func (o Outer) Meet(p Outer) Outer {
	return Outer{meetStrings(o.Layers, p.Layers), o.Must || p.Must}.Normal()
}

// LessEq reports whether p allows all that o does.
func (o Outer) LessEq(p Outer) bool {
	return subsetStrings(o.Normal().Layers, p.Normal().Layers) && (o.Must || !p.Must)
}

// Normal sorts the layers, and drops names that are no layer.
func (o Outer) Normal() Outer {
	known := meetStrings(o.Layers, TopOuter().Layers)
	return Outer{Layers: unionStrings(known, nil), Must: o.Must}
}

// Allows reports whether a run may have the layer, or be without one.
func (o Outer) Allows(name string) bool { return slices.Contains(o.Words(), name) }

// of returns o, or the zero value for a policy that lets nothing run: it has no layer around it.
func (o Outer) of(p Policy) Outer {
	if p.Tools.Empty() {
		return Outer{}
	}
	return o.Normal()
}

// Choose returns the layer of a run: none where that is allowed, else the only one that is.
func (o Outer) Choose() (string, error) {
	switch words := o.Words(); {
	case len(words) == 0:
		return "", errors.New("the policies leave no outer layer that all of them allow")
	case words[0] == OuterNone || len(words) == 1:
		return words[0], nil
	default:
		return "", fmt.Errorf("the policies demand an outer layer and allow several: "+
			"choose one of %s with --outer", strings.Join(words, ", "))
	}
}

func (o Outer) String() string { return setString(o.Words()) }

// InLayer asks for a run inside an outer layer, or for one without.
type InLayer struct{ Name string }

func (q InLayer) String() string { return "run in outer layer " + q.Name }

func (q InLayer) decide(p Policy) Decision {
	if p.Outer.Allows(q.Name) {
		return allow("outer %s", p.Outer)
	}
	return deny("outer allows %s only", p.Outer)
}
