package policy

import "time"

// A Widening is what runs may have beside what their profile grants: requests without a credential,
// and tools of bundles. It can express nothing else, and what it grants is met with the ceiling as
// all of a profile is.
type Widening struct {
	Fetch []FetchRule
	Tools Globs
}

// UsualFetchLimits are those of a profile that granted no request and gets a rule for some.
func UsualFetchLimits() FetchLimits {
	return FetchLimits{Requests: 100, BytesIn: 50 << 20, BytesOut: 1 << 20, Concurrent: 8,
		Timeout: 30 * time.Second}
}

// Widen returns p with what w grants. What p takes away stays taken away.
func (p Policy) Widen(w Widening) Policy {
	if len(w.Fetch) > 0 {
		if len(p.Fetch.Normal().Allow) == 0 {
			p.Fetch.Limits = UsualFetchLimits()
		}
		p.Fetch.Allow = append(p.Fetch.Allow[:len(p.Fetch.Allow):len(p.Fetch.Allow)], w.rules()...)
	}
	p.Tools.Allow = append(p.Tools.Allow[:len(p.Tools.Allow):len(p.Tools.Allow)], w.Tools...)
	return p
}

// rules are the rules for requests without what a widening does not grant.
func (w Widening) rules() (out []FetchRule) {
	for _, r := range w.Fetch {
		out = append(out, FetchRule{Host: r.Host, Ports: r.Ports, Methods: r.Methods, Paths: r.Paths})
	}
	return out
}

// LessEq reports whether p grants all that w does.
func (w Widening) LessEq(p Policy) bool {
	top := TopFetchLimits()
	return Fetch{Allow: w.rules(), Limits: top}.LessEq(Fetch{Allow: p.Fetch.Allow, Limits: top}) &&
		w.Tools.LessEq(p.Tools.Allow)
}
