package policy

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
