package policy

import (
	"errors"
	"fmt"
)

// Decision is the answer to a Question.
type Decision struct {
	Allowed bool
	// Ask is set if Allowed is not, but an explicit approval would allow it.
	Ask bool
	// Held is set if the approval must name the path, since it is protected.
	Held bool
	// Layer is the layer that refused, or for an allowed question the one whose rule allowed it.
	// Source is where the layer came from.
	Layer  string
	Source string
	// Rule is the rule that decided, as a key of the policy file and its value, or a
	// sentence that says which rule is missing.
	Rule string
	// Credential is the name of the credential that the proxy attaches to an allowed Connect, or
	// "".
	Credential string
	// Fetch is the rule that grants a Connect, also one that needs an approval; else nil.
	Fetch *FetchRule
}

// Question is something that a jail may be allowed to do: Open, Tool, Module, Native,
// Connect, Commit, EnvVar or InLayer.
type Question interface {
	decide(Policy) Decision
	fmt.Stringer
}

var (
	errNoRule         = errors.New("no rule")
	errTwoCredentials = errors.New("two rules attach different credentials")
)

func allow(format string, args ...any) Decision {
	return Decision{Allowed: true, Rule: fmt.Sprintf(format, args...)}
}

func deny(format string, args ...any) Decision {
	return Decision{Rule: fmt.Sprintf(format, args...)}
}

func ask(format string, args ...any) Decision {
	return Decision{Ask: true, Rule: fmt.Sprintf(format, args...)}
}

// Decide answers a question by the meet of all layers. If it refuses, Layer is the first layer
// whose meet with those before it refuses: the one that took the right away.
func (e Effective) Decide(q Question) Decision {
	if len(e.met) == 0 {
		return Decision{Layer: "none", Rule: "there is no policy"}
	}
	last := len(e.met) - 1
	d, at := q.decide(e.met[last]), last
	for i, l := range e.layers {
		own := q.decide(l.Policy)
		if d.Allowed {
			// If layers share the rule, name the first.
			if own.Rule == d.Rule {
				at = i
				break
			}
			continue
		}
		if met := q.decide(e.met[i]); met.Allowed || met.Ask != d.Ask {
			continue
		}
		// The layer's own rule says more, unless it refuses only together with those before it.
		if !own.Allowed && own.Ask == d.Ask {
			d.Rule = own.Rule
		}
		at = i
		break
	}
	d.Layer, d.Source = e.layers[at].Name, e.layers[at].Source
	return d
}

// RuleInternal is the rule for a layer that does not grant a host inside the operator's network.
const RuleInternal = `fetch.allow host = "*" stands for public hosts only`

// Unnamed returns the first layer that grants a request to an internal host only by rules with the
// host "*", which stands for public hosts only. Internal hosts need a rule with their name, or a
// pattern for names below a domain. The first layer, which is the ceiling, and layers that leave
// all requests to the others need not name them. The bool is false if there is no such layer.
func (e Effective) Unnamed(q Connect) (Layer, bool) {
	for _, l := range e.layers[min(1, len(e.layers)):] {
		f := l.Policy.Fetch.Normal()
		if len(f.Allow) == 1 && f.Allow[0].String() == TopFetchRule().normal().String() {
			continue
		}
		named := false
		for _, r := range f.Allow {
			named = named || r.Host != AnyHost && r.matches(q)
		}
		if !named {
			return l, true
		}
	}
	return Layer{}, false
}
