package policy

import (
	"errors"
	"fmt"
)

// Decision answers a Question.
type Decision struct {
	Allowed bool
	// Ask is set where Allowed is not, but an explicit yes would do.
	Ask bool
	// Held is set where the yes must name the path itself, since it is protected.
	Held bool
	// Layer names the layer that said no; of an allowed question, the one whose rule
	// it was in the end. Source is where that layer came from.
	Layer  string
	Source string
	// Rule is the rule that decided, as a key of the policy file and its value, or a
	// sentence that says which rule is missing.
	Rule string
	// Credential is what the proxy attaches to an allowed Connect, or "".
	Credential string
	// Fetch is the rule by which a Connect is allowed, with what else it asks for.
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

// Decide answers a question by the meet of all layers. The layer of a no is the first
// one whose meet with those before it gives that answer, so it is the layer that took
// away what they still grant; one no is enough.
func (e Effective) Decide(q Question) Decision {
	if len(e.met) == 0 {
		return Decision{Layer: "none", Rule: "there is no policy"}
	}
	last := len(e.met) - 1
	d, at := q.decide(e.met[last]), last
	for i, l := range e.layers {
		own := q.decide(l.Policy)
		if d.Allowed {
			// Of layers that share the rule, the first gave it.
			if own.Rule == d.Rule {
				at = i
				break
			}
			continue
		}
		if met := q.decide(e.met[i]); met.Allowed || met.Ask != d.Ask {
			continue
		}
		// The layer on its own says best why, unless it refuses only together with those before it.
		if !own.Allowed && own.Ask == d.Ask {
			d.Rule = own.Rule
		}
		at = i
		break
	}
	d.Layer, d.Source = e.layers[at].Name, e.layers[at].Source
	return d
}

// RuleInternal says why a layer does not grant a host inside the operator's network.
const RuleInternal = `fetch.allow host = "*" stands for public hosts only`

// Unnamed returns the first layer that grants a request, or the name alone of an internal host, by
// rules with the host "*" only. That pattern stands for every public host: a host inside the
// operator's network needs a rule with its name, or with a name above it. The first layer, which is
// the ceiling, and layers that say nothing of fetches need not name it. Each further layer can only
// add a refusal.
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
