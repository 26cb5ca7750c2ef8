package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Fetch is what a tool may fetch: rules that grant requests, rules that deny some of them again,
// and limits over all requests of a run. Without a granting rule nothing is granted.
type Fetch struct {
	Allow  []FetchRule `json:"allow"`
	Deny   []FetchDeny `json:"deny,omitempty"`
	Limits FetchLimits `json:"limits"`
	// Rate is how many requests may start per second; 0 means no bound.
	Rate int64     `json:"rate,omitempty"`
	Mode FetchMode `json:"mode,omitzero"`
}

// TopFetch grants every request, without limit.
func TopFetch() Fetch {
	return Fetch{Allow: []FetchRule{TopFetchRule()}, Limits: TopFetchLimits(), Mode: FetchReport}
}

// Meet grants the requests that both grant and neither denies, within the smaller limits.
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
		if r = r.normal(); !r.Target().nothing() {
			rules = append(rules, r)
		}
	}
	if len(rules) == 0 {
		return Fetch{}
	}
	out := Fetch{Allow: normalList(rules), Limits: f.Limits.Normal(), Rate: max(f.Rate, 0),
		Mode: f.Mode}
	for _, r := range f.Deny {
		if r = r.normal(); !r.nothing() {
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

// Within returns the limits on all requests of a run as text, with the rate.
func (f Fetch) Within() string {
	text := f.Limits.String()
	if f.Rate > 0 {
		text += " rate=" + strconv.FormatInt(f.Rate, 10)
	}
	return text
}

// find returns the rule that grants a request, and the credential to attach, or "". A rule with a
// credential wins over others, else the first by name. Two different credentials are an error. No
// credential is attached while the method is unknown.
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

// AnyCredential in a rule narrows nothing: it meets with any credential. By itself it attaches
// none.
const AnyCredential = "*"

// FetchRule grants requests: to the hosts that Host stands for, at Ports, by Methods, of
// Paths, with a credential attached or without. A rule with an empty list grants nothing.
type FetchRule struct {
	Host  Host  `json:"host"`
	Ports Ports `json:"ports"`
	// Upper case, or * for all.
	Methods Globs `json:"methods"`
	// Start with a slash; ** for all.
	Paths Globs `json:"paths"`
	// Credential is the name of the credential that the proxy attaches; "" is none. In the order,
	// none is below each name, and each name below AnyCredential.
	Credential string `json:"credential,omitempty"`
	// Types are the media types that an answer may have, such as "text/*"; none is all.
	Types Globs `json:"types,omitempty"`
	// WebSocket lets a request become a stream in both directions.
	WebSocket bool `json:"websocket,omitempty"`
	// TLS tells how the proxy treats a client's own TLS in a tunnel.
	TLS TLSMode `json:"tls,omitzero"`
	// Bounds apply to the requests of a run to one host by this rule.
	Bounds FetchBounds `json:"bounds,omitzero"`
}

// TopFetchRule grants every request.
func TopFetchRule() FetchRule {
	return FetchRule{
		Host: AnyHost, Ports: AllPorts(), Methods: MustGlobs("*"), Paths: MustGlobs("**"),
		Credential: AnyCredential,
		WebSocket:  true, TLS: TLSOpaque,
	}
}

// Target returns a rule that denies the requests that r grants.
func (r FetchRule) Target() FetchDeny { return FetchDeny{r.Host, r.Ports, r.Methods, r.Paths} }

// Targets returns the targets of all granting rules, and the denying rules.
func (f Fetch) Targets() (all []FetchDeny) {
	for _, r := range f.Allow {
		all = append(all, r.Target())
	}
	return append(all, f.Deny...)
}

func (r FetchRule) normal() FetchRule {
	r.Ports, r.Methods, r.Paths = r.Ports.Normal(), r.Methods.Normal(), r.Paths.Normal()
	if r.Types = r.Types.Normal(); r.Types.String() == MustGlobs("**").String() {
		r.Types = nil
	}
	r.Bounds = r.Bounds.normal()
	return r
}

func (r FetchRule) below(s FetchRule) bool {
	return r.Target().below(s.Target()) &&
		meetCredential(r.Credential, s.Credential) == r.Credential &&
		(len(s.Types) == 0 || len(r.Types) > 0 && r.Types.LessEq(s.Types)) &&
		(s.WebSocket || !r.WebSocket) && r.TLS <= s.TLS && r.Bounds.lessEq(s.Bounds)
}

func (r FetchRule) meet(s FetchRule) []FetchRule {
	m := FetchRule{
		Host:       r.Host.Meet(s.Host),
		Ports:      r.Ports.Meet(s.Ports),
		Methods:    r.Methods.Meet(s.Methods),
		Paths:      r.Paths.Meet(s.Paths),
		Credential: meetCredential(r.Credential, s.Credential),
		WebSocket:  r.WebSocket && s.WebSocket,
		TLS:        min(r.TLS, s.TLS),
		Bounds:     r.Bounds.meet(s.Bounds),
	}
	switch {
	case len(r.Types) == 0:
		m.Types = s.Types
	case len(s.Types) == 0:
		m.Types = r.Types
	default:
		if m.Types = r.Types.Meet(s.Types); len(m.Types) == 0 {
			// No answer has a type that both let through.
			return nil
		}
	}
	if m.Target().nothing() {
		return nil
	}
	return []FetchRule{m}
}

func meetCredential(a, b string) string {
	switch {
	case a == b || b == AnyCredential:
		return a
	case a == AnyCredential:
		return b
	}
	return ""
}

// String shows the whole rule on one line.
func (r FetchRule) String() string {
	text := r.Target().String()
	if r.Credential != "" {
		text += " credential " + r.Credential
	}
	if len(r.Types) > 0 {
		text += " types " + r.Types.String()
	}
	if r.WebSocket {
		text += " websocket"
	}
	if r.TLS == TLSOpaque {
		text += " tls opaque"
	}
	return text + r.Bounds.String()
}

// matches reports whether the rule grants a request. If the method is unknown, only host and port
// are compared.
func (r FetchRule) matches(q Connect) bool {
	if !r.Host.Match(q.Host) || !r.Ports.Has(q.Port) {
		return false
	}
	if q.Tunnel {
		return r.TLS == TLSOpaque && r.everyRequest()
	}
	if q.WebSocket && !r.WebSocket {
		return false
	}
	return q.Method == "" || r.Methods.Match(q.Method) && r.Paths.Match(q.Path)
}

// everyRequest reports whether the rule grants every method and path of its hosts, and so may grant
// a tunnel, in which neither is visible.
func (r FetchRule) everyRequest() bool {
	return r.Methods.String() == MustGlobs("*").String() && MustGlobs("/**").LessEq(r.Paths)
}

// FetchDeny denies requests, whatever grants them: to the hosts that Host stands for, at Ports, by
// Methods, of Paths. It is the only denying rule of a policy. It keeps the lattice, since denied
// requests meet by union.
type FetchDeny struct {
	Host    Host  `json:"host"`
	Ports   Ports `json:"ports"`
	Methods Globs `json:"methods"`
	Paths   Globs `json:"paths"`
}

// DenyHost returns a rule that denies every request to the hosts that h stands for.
func DenyHost(h Host) FetchDeny { return FetchDeny{h, AllPorts(), MustGlobs("*"), MustGlobs("**")} }

func (r FetchDeny) normal() FetchDeny {
	return FetchDeny{r.Host, r.Ports.Normal(), r.Methods.Normal(), r.Paths.Normal()}
}

func (r FetchDeny) nothing() bool {
	return r.Host.depth == hostNone || len(r.Ports) == 0 || len(r.Methods) == 0 || len(r.Paths) == 0
}

func (r FetchDeny) below(s FetchDeny) bool {
	return r.Host.LessEq(s.Host) && r.Ports.LessEq(s.Ports) && r.Methods.LessEq(s.Methods) &&
		r.Paths.LessEq(s.Paths)
}

func (r FetchDeny) String() string {
	return fmt.Sprintf("%s ports %s methods %s paths %s", r.Host, r.Ports, r.Methods, r.Paths)
}

// matches reports whether the rule denies a request. A tunnel hides its requests, so it is denied
// if the rule denies any of them. If the method is unknown, only a rule that denies all matches.
func (r FetchDeny) matches(q Connect) bool {
	if !r.Host.Match(q.Host) || !r.Ports.Has(q.Port) {
		return false
	}
	switch {
	case q.Tunnel:
		return true
	case q.Method == "":
		return MustGlobs("*").LessEq(r.Methods) && MustGlobs("/**").LessEq(r.Paths)
	}
	return r.Methods.Match(q.Method) && r.Paths.Match(q.Path)
}

// denied returns the rule that denies a request, if there is one.
func (f Fetch) denied(q Connect) (FetchDeny, bool) {
	for _, r := range f.Deny {
		if r.matches(q) {
			return r, true
		}
	}
	return FetchDeny{}, false
}

// FetchMode is what happens to a request that no rule grants.
type FetchMode = word[fetchModes]

type fetchModes struct{}

func (fetchModes) words() []string { return []string{"enforce", "report"} }

// The modes, each below the next.
const (
	FetchEnforce FetchMode = iota // it is refused
	// it is sent, as far as the ceiling and the address checks allow, and recorded
	FetchReport
)

// TLSMode is how the proxy treats a client's own TLS.
type TLSMode = word[tlsModes]

type tlsModes struct{}

func (tlsModes) words() []string { return []string{"intercept", "opaque"} }

// The modes, each below the next.
const (
	// It ends at the proxy, which sees each request.
	TLSIntercept TLSMode = iota
	// It passes through; only the host name is visible, decided and recorded.
	TLSOpaque
)

// FetchBounds narrow one rule. 0 means no bound; the meet takes the smaller ones that are set. All
// but the sizes apply to one host in one run.
type FetchBounds struct {
	// Bytes of the body of one request.
	RequestSize int64 `json:"request_size,omitempty"`
	// Bytes of the body of one answer.
	ResponseSize int64 `json:"response_size,omitempty"`
	Requests     int64 `json:"requests,omitempty"`
	BytesIn      int64 `json:"bytes_in,omitempty"`
	BytesOut     int64 `json:"bytes_out,omitempty"`
	Concurrent   int64 `json:"concurrent,omitempty"`
	// Requests that may start per second.
	Rate    int64         `json:"rate,omitempty"`
	Timeout time.Duration `json:"timeout,omitempty"`
}

var fetchBoundFields = []LimitField[FetchBounds]{
	{"request_size", Bytes, "bytes of the body of a request",
		func(b *FetchBounds) *int64 { return &b.RequestSize }},
	{"response_size", Bytes, "bytes of the body of an answer",
		func(b *FetchBounds) *int64 { return &b.ResponseSize }},
	{"requests", Count, "requests to one host", func(b *FetchBounds) *int64 { return &b.Requests }},
	{"bytes_in", Bytes, "bytes received from one host",
		func(b *FetchBounds) *int64 { return &b.BytesIn }},
	{"bytes_out", Bytes, "bytes sent to one host",
		func(b *FetchBounds) *int64 { return &b.BytesOut }},
	{"concurrent", Count, "requests at one time to one host",
		func(b *FetchBounds) *int64 { return &b.Concurrent }},
	{"rate", Count, "requests to one host that start in one second",
		func(b *FetchBounds) *int64 { return &b.Rate }},
	{"timeout", Duration, "time for one request",
		func(b *FetchBounds) *int64 { return (*int64)(&b.Timeout) }},
}

// lesser returns the smaller bound; 0 means no bound.
func lesser(a, b int64) int64 {
	switch {
	case a <= 0:
		return max(b, 0)
	case b <= 0:
		return a
	}
	return min(a, b)
}

// within reports whether the bound a is within b; 0 means no bound.
func within(a, b int64) bool { return b <= 0 || a > 0 && a <= b }

func (b FetchBounds) meet(c FetchBounds) (out FetchBounds) {
	for _, f := range fetchBoundFields {
		*f.At(&out) = lesser(*f.At(&b), *f.At(&c))
	}
	return out
}

func (b FetchBounds) lessEq(c FetchBounds) bool {
	return !slices.ContainsFunc(fetchBoundFields,
		func(f LimitField[FetchBounds]) bool { return !within(*f.At(&b), *f.At(&c)) })
}

func (b FetchBounds) normal() FetchBounds { return b.meet(FetchBounds{}) }

func (b FetchBounds) check() error {
	for _, f := range fetchBoundFields {
		if *f.At(&b) < 0 {
			return fmt.Errorf("%s is negative", f.Name)
		}
	}
	return nil
}

// String shows the bounds that are set, each after a space.
func (b FetchBounds) String() string {
	var out strings.Builder
	for _, f := range fetchBoundFields {
		if n := *f.At(&b); n > 0 {
			out.WriteString(" " + f.Name + " " + f.Unit.Format(n))
		}
	}
	return out.String()
}

// FetchBoundFields returns the bounds that a rule can have.
func FetchBoundFields() []LimitField[FetchBounds] { return slices.Clone(fetchBoundFields) }
