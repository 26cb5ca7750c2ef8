package policy

import "fmt"

// AnyCredential in a rule narrows nothing: the rule that it meets says which one. Met
// with nothing but itself, it attaches none.
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
	// Credential names what the proxy attaches; "" is none. The order is: none lies
	// below each name, and each name below AnyCredential.
	Credential string `json:"credential,omitempty"`
	// Types are the media types that an answer may have, such as "text/*"; none is all.
	Types Globs `json:"types,omitempty"`
	// WebSocket lets a request become a stream in both directions.
	WebSocket bool `json:"websocket,omitempty"`
	// TLS says how a tunnel is treated: a client's own TLS, of which the proxy sees only the server
	// name.
	TLS TLSMode `json:"tls,omitzero"`
	// Bounds hold for the requests of a run to one host by this rule.
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

func (r FetchRule) grantsNothing() bool {
	return r.Host.depth == hostNone || len(r.Ports) == 0 || len(r.Methods) == 0 || len(r.Paths) == 0
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
	return r.Host.LessEq(s.Host) && r.Ports.LessEq(s.Ports) && r.Methods.LessEq(s.Methods) &&
		r.Paths.LessEq(s.Paths) && meetCredential(r.Credential, s.Credential) == r.Credential &&
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
	if m.grantsNothing() {
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
	text := fmt.Sprintf("%s ports %s methods %s paths %s", r.Host, r.Ports, r.Methods, r.Paths)
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

// matches answers for one request. Where the method is not known yet, only host and
// port are asked about.
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

// everyRequest reports whether the rule grants every method and path of its hosts, so that
// nothing is lost where neither can be seen.
func (r FetchRule) everyRequest() bool {
	return r.Methods.String() == MustGlobs("*").String() && MustGlobs("/**").LessEq(r.Paths)
}
