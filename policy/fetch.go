package policy

import "slices"

// Fetch is what a tool may fetch: the rules that grant a request, and limits over all
// requests of a run. Without a rule nothing is granted, whatever the limits say.
type Fetch struct {
	Allow  []FetchRule `json:"allow"`
	Limits FetchLimits `json:"limits"`
}

// TopFetch grants every request, without limit.
func TopFetch() Fetch {
	return Fetch{Allow: []FetchRule{TopFetchRule()}, Limits: TopFetchLimits()}
}

// Meet grants the requests that both grant, within the smaller limits.
func (f Fetch) Meet(g Fetch) Fetch {
	return Fetch{meetLists(f.Normal().Allow, g.Normal().Allow), f.Limits.Meet(g.Limits)}.Normal()
}

// LessEq reports whether g grants every request that f grants.
func (f Fetch) LessEq(g Fetch) bool {
	f, g = f.Normal(), g.Normal()
	return listBelow(f.Allow, g.Allow) && f.Limits.LessEq(g.Limits)
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
	return Fetch{normalList(rules), f.Limits}
}

func (f Fetch) String() string {
	f = f.Normal()
	return listString(f.Allow) + " within " + f.Limits.String()
}

// find returns the rule for a request and the credential to attach. Rules that would
// attach different credentials to one request contradict each other. Before the request
// itself is known, none is attached.
func (f Fetch) find(q Connect) (rule FetchRule, credential string, err error) {
	found := false
	for _, r := range f.Allow {
		if !r.matches(q) {
			continue
		}
		if !found {
			rule, found = r, true
		}
		if q.Method == "" || r.Credential == "" || r.Credential == AnyCredential || r.Credential == credential {
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
