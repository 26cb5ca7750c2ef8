package policy

import "fmt"

// FetchDeny takes requests away, whatever grants them: to the hosts that Host stands for, at
// Ports, by Methods, of Paths. It is the one rule of a policy that denies, since the union
// of what is taken away is as closed as the meet of what is granted.
type FetchDeny struct {
	Host    Host  `json:"host"`
	Ports   Ports `json:"ports"`
	Methods Globs `json:"methods"`
	Paths   Globs `json:"paths"`
}

// DenyHost takes away every request to the hosts that h stands for.
func DenyHost(h Host) FetchDeny {
	return FetchDeny{h, AllPorts(), MustGlobs("*"), MustGlobs("**")}
}

func (r FetchDeny) normal() FetchDeny {
	return FetchDeny{r.Host, r.Ports.Normal(), r.Methods.Normal(), r.Paths.Normal()}
}

func (r FetchDeny) takesNothing() bool {
	return r.Host.depth == hostNone || len(r.Ports) == 0 || len(r.Methods) == 0 || len(r.Paths) == 0
}

func (r FetchDeny) below(s FetchDeny) bool {
	return r.Host.LessEq(s.Host) && r.Ports.LessEq(s.Ports) && r.Methods.LessEq(s.Methods) &&
		r.Paths.LessEq(s.Paths)
}

func (r FetchDeny) meet(s FetchDeny) []FetchDeny {
	return []FetchDeny{{r.Host.Meet(s.Host), r.Ports.Meet(s.Ports), r.Methods.Meet(s.Methods),
		r.Paths.Meet(s.Paths)}}
}

func (r FetchDeny) String() string {
	return fmt.Sprintf("%s ports %s methods %s paths %s", r.Host, r.Ports, r.Methods, r.Paths)
}

// matches answers for one request. What is not known yet, or cannot be seen, may be what the
// rule takes away: a tunnel is refused for any part of the host that is.
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

// denied returns the rule that takes a request away, if there is one.
func (f Fetch) denied(q Connect) (FetchDeny, bool) {
	for _, r := range f.Deny {
		if r.matches(q) {
			return r, true
		}
	}
	return FetchDeny{}, false
}

// FetchMode says what happens to a request that no rule grants.
type FetchMode uint8

// The modes, each below the next.
const (
	FetchEnforce FetchMode = iota // it is refused
	// it is sent, as far as the ceiling and the floor of addresses let it, and recorded
	FetchReport
)

// TLSMode says how the proxy treats a client's own TLS.
type TLSMode uint8

// The modes, each below the next.
const (
	// It ends at the proxy, which sees each request.
	TLSIntercept TLSMode = iota
	// It passes through, and only the host is decided and recorded.
	TLSOpaque
)

var (
	fetchModeWords = []string{"enforce", "report"}
	tlsModeWords   = []string{"intercept", "opaque"}
)

// Choices returns the words of fetch.mode.
func (FetchMode) Choices() []string { return append([]string(nil), fetchModeWords...) }

// Choices returns the words of a rule's tls.
func (TLSMode) Choices() []string { return append([]string(nil), tlsModeWords...) }

func (m FetchMode) String() string { return word(fetchModeWords, m) }
func (m TLSMode) String() string   { return word(tlsModeWords, m) }

// MarshalText writes the word.
func (m FetchMode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// MarshalText writes the word.
func (m TLSMode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads the word.
func (m *FetchMode) UnmarshalText(text []byte) error { return unword(fetchModeWords, m, text) }

// UnmarshalText reads the word.
func (m *TLSMode) UnmarshalText(text []byte) error { return unword(tlsModeWords, m, text) }
