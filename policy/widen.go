package policy

import "time"

// A Widening is what runs may have in addition to their profile: requests without a credential, and
// tools of bundles. The result still meets the ceiling.
type Widening struct {
	Fetch []FetchRule
	Tools Globs
}

// UsualFetchLimits returns the limits for a profile that granted no requests and gets a fetch rule.
func UsualFetchLimits() FetchLimits {
	return FetchLimits{Requests: 100, BytesIn: 50 << 20, BytesOut: 1 << 20, Concurrent: 8,
		Timeout: 30 * time.Second}
}

// Widen returns p with the grants of w added. The denying rules of p still apply.
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

// rules returns the fetch rules without fields that a widening cannot grant.
func (w Widening) rules() (out []FetchRule) {
	for _, r := range w.Fetch {
		out = append(out, FetchRule{Host: r.Host, Ports: r.Ports, Methods: r.Methods, Paths: r.Paths})
	}
	return out
}

// LessEq reports whether p grants all that w grants.
func (w Widening) LessEq(p Policy) bool {
	top := TopFetchLimits()
	return Fetch{Allow: w.rules(), Limits: top}.LessEq(Fetch{Allow: p.Fetch.Allow, Limits: top}) &&
		w.Tools.LessEq(p.Tools.Allow)
}
