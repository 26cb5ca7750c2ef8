package policy

import (
	"slices"
	"strconv"
)

// Fetch is what a tool may fetch: the rules that grant a request, those that take it away
// whatever grants it, and limits over all requests of a run. Without a rule that grants,
// nothing is granted, whatever the rest says.
type Fetch struct {
	Allow  []FetchRule `json:"allow"`
	Deny   []FetchDeny `json:"deny,omitempty"`
	Limits FetchLimits `json:"limits"`
	// Rate is how many requests may start in one second; 0 is no bound.
	Rate int64     `json:"rate,omitempty"`
	Mode FetchMode `json:"mode,omitzero"`
}

// TopFetch grants every request, without limit.
func TopFetch() Fetch {
	return Fetch{Allow: []FetchRule{TopFetchRule()}, Limits: TopFetchLimits(), Mode: FetchReport}
}

// Meet grants the requests that both grant and neither takes away, within the smaller limits.
func (f Fetch) Meet(g Fetch) Fetch {
	return Fetch{
		Allow:  meetLists(f.Normal().Allow, g.Normal().Allow),
		Deny:   slices.Concat(f.Deny, g.Deny),
		Limits: f.Limits.Meet(g.Limits),
		Rate:   lesser(f.Rate, g.Rate),
		Mode:   min(f.Mode, g.Mode),
	}.Normal()
}

// LessEq reports whether g grants every request that f grants.
func (f Fetch) LessEq(g Fetch) bool {
	f, g = f.Normal(), g.Normal()
	return len(f.Allow) == 0 || listBelow(f.Allow, g.Allow) && listBelow(g.Deny, f.Deny) &&
		f.Limits.LessEq(g.Limits) && within(f.Rate, g.Rate) && f.Mode <= g.Mode
}

// Normal leaves out rules that grant nothing or that another covers, and the limits
// where no rule is left.
func (f Fetch) Normal() Fetch {
	var rules []FetchRule
	for _, r := range f.Allow {
		if r = r.normal(); !r.grantsNothing() {
			rules = append(rules, r)
		}
	}
	if len(rules) == 0 {
		return Fetch{}
	}
	out := Fetch{Allow: normalList(rules), Limits: f.Limits.Normal(), Rate: max(f.Rate, 0),
		Mode: f.Mode}
	for _, r := range f.Deny {
		if r = r.normal(); !r.takesNothing() {
			out.Deny = append(out.Deny, r)
		}
	}
	out.Deny = normalList(out.Deny)
	return out
}

func (f Fetch) String() string {
	f = f.Normal()
	text := listString(f.Allow)
	if len(f.Deny) > 0 {
		text += " but not " + listString(f.Deny)
	}
	text += " within " + f.Within()
	if f.Mode == FetchReport {
		text += " mode=report"
	}
	return text
}

// Within shows what bounds all requests of a run, the rate with the limits.
func (f Fetch) Within() string {
	text := f.Limits.String()
	if f.Rate > 0 {
		text += " rate=" + strconv.FormatInt(f.Rate, 10)
	}
	return text
}

// find returns the rule for a request and the credential to attach. Rules that would
// attach different credentials to one request contradict each other. Before the request
// itself is known, none is attached. Of several rules that match, it is the one with a
// credential that counts, else the first by name.
func (f Fetch) find(q Connect) (rule FetchRule, credential string, err error) {
	found := false
	for _, r := range f.Allow {
		if !r.matches(q) {
			continue
		}
		if !found {
			rule, found = r, true
		}
		if q.Method == "" || r.Credential == "" || r.Credential == AnyCredential ||
			r.Credential == credential {
			continue
		}
		if credential != "" {
			return FetchRule{}, "", errTwoCredentials
		}
		rule, credential = r, r.Credential
	}
	if !found {
		return FetchRule{}, "", errNoRule
	}
	return rule, credential, nil
}

// Credentials returns the names of the credentials that rules attach, sorted.
func (f Fetch) Credentials() []string {
	var out []string
	for _, r := range f.Allow {
		if r.Credential != "" && r.Credential != AnyCredential {
			out = append(out, r.Credential)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
