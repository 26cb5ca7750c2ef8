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
	// Replaces is set if Landlock does not work inside, and only the layer's own view of the mounts
	// limits access to files.
	Replaces bool
}

var outerLayers = []OuterLayer{
	{OuterBwrap, "bubblewrap, in C, in place of jail's own starter", false},
	{OuterCrun, "the OCI runtime crun, in C, in place of jail's own starter", false},
	{OuterRunc, "the OCI runtime runc in place of jail's own starter", false},
	{OuterRunsc, "gVisor: a kernel of its own in user space, which the tool speaks to in place of " +
		"the host's; it has no Landlock", true},
}

// OuterLayers returns all layers, sorted by name.
func OuterLayers() []OuterLayer { return slices.Clone(outerLayers) }

// OuterWords returns the words of outer.allow: OuterNone and the names of the layers.
func OuterWords() []string { return append([]string{OuterNone}, TopOuter().Layers...) }

// CheckOuter returns an error unless name is a layer or OuterNone.
func CheckOuter(name string) error { return checkKnown("outer layer", OuterWords(), name) }

// Outer is which layers a run may have around its jail. The zero value allows only none.
type Outer struct {
	// Layers are the allowed layers, a set.
	Layers []string `json:"layers,omitempty"`
	// Must is set if a run without a layer is refused.
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

// KeepingOuter returns TopOuter without layers in which Landlock does not work. It is the default
// of a ceiling that names no layers.
func KeepingOuter() Outer {
	var o Outer
	for _, l := range outerLayers {
		if !l.Replaces {
			o.Layers = append(o.Layers, l.Name)
		}
	}
	return o
}

// OuterOf returns an Outer that allows the listed words of outer.allow.
func OuterOf(words ...string) Outer {
	o := Outer{Must: !slices.Contains(words, OuterNone)}
	for _, name := range words {
		if name != OuterNone {
			o.Layers = append(o.Layers, name)
		}
	}
	return o.Normal()
}

// Words returns the words of outer.allow: OuterNone first, if allowed, then the layers, sorted.
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

// Allows reports whether a run may have the layer called name, or for OuterNone be without one.
func (o Outer) Allows(name string) bool { return slices.Contains(o.Words(), name) }

// of returns o, or the zero value if p lets nothing run.
func (o Outer) of(p Policy) Outer {
	if p.Tools.Empty() {
		return Outer{}
	}
	return o.Normal()
}

// Choose returns the layer of a run: OuterNone if allowed, else the only allowed layer. It fails if
// none or several are allowed.
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

// InLayer asks whether a run may be inside the outer layer Name, or for OuterNone without one.
type InLayer struct{ Name string }

func (q InLayer) String() string { return "run in outer layer " + q.Name }

func (q InLayer) decide(p Policy) Decision {
	if p.Outer.Allows(q.Name) {
		return allow("outer %s", p.Outer)
	}
	return deny("outer allows %s only", p.Outer)
}
